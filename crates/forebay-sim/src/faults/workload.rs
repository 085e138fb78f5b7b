//! What clients do: few names, so that they are in each other's way.

use super::history::{Action, Texts, Thing};
use super::model::{Tree, is_dir};
use super::plan::{Calm, Plan};
use super::random::Random;
use super::request::ROOT;
use forebay_core::path::TreePath;
use forebay_core::record::Kind;

/// Inode numbers of the PFS; those of bridges are far above.
const FIRST_LOWER_INO: u64 = 100;

/// More than any simulated directory has.
const ALL_ENTRIES: usize = 1000;

/// The habits of one seed.
pub(super) struct Workload {
    paths: Vec<TreePath>,
    /// What the PFS holds.
    pub(super) lower: Tree,
    /// What the symbolic links of it say.
    pub(super) lower_texts: Texts,
    /// How often an action is one for the sake of symbolic links, in a million.
    links: u32,
    /// What clients do first, the last one before the others.
    first: Vec<Action>,
    /// How often each action is taken, in the order of [`Workload::action`].
    weights: [u64; 11],
    truncates: bool,
    pause_us: u64,
}

impl Workload {
    pub(super) fn of(random: &mut Random, plan: &Plan) -> Self {
        let is_single = plan.bridges == 1;
        // Other names have other homes.
        let tag = random.below(1_000);
        let tops = random.between(2, 3);
        let subs = random.between(1, 2);
        let mut paths = Vec::new();
        let path = |s: String| TreePath::new(s.into_bytes()).unwrap_or_default();
        for top in &["a", "b", "c"][..tops as usize] {
            paths.push(path(format!("{top}{tag}")));
            for sub in &["x", "y"][..subs as usize] {
                paths.push(path(format!("{top}{tag}/{sub}")));
                paths.push(path(format!("{top}{tag}/{sub}/z")));
            }
        }
        let tops = paths.iter().filter(|p| p.depth() == 1);
        let mut first: Vec<_> = tops.cloned().map(Action::Mkdir).collect();
        let lower = if random.chance(if is_single { 750_000 } else { 500_000 }) {
            pfs(&paths, random)
        } else {
            Tree::new()
        };
        // Tops and their children more often than what lies deeper.
        let tops: Vec<_> = paths.iter().filter(|p| p.depth() < 3).cloned().collect();
        paths.extend(tops.iter().cloned());
        paths.extend(tops);
        // Files that stay and have several names, or everything.
        let stays = is_single && random.chance(500_000);
        let mut weights = match stays {
            true => [2, 6, 1, 6, 1, 0, 4, 1, 1, 1, 8],
            false => [4, 3, 5, 4, 3, 3, 6, 1, 4, 3, 7],
        };
        for weight in &mut weights {
            *weight *= *random.pick(&[0, 1, 1, 1, 2, 4]);
        }
        let truncates = !plan.calm.has(Calm::CONTENTS);
        if !truncates {
            weights[10] = 0;
        } else if !is_single {
            // A copy can get its first name on the PFS and not the second, in a directory that another bridge could not make.
            // The drain takes back the marks of both, and the next one finds a stranger under the first.
            weights[3] = 0;
        }
        // Drawn from the seed alone: all other runs stay what they are.
        if is_single && plan.seed % 8 == 5 && !plan.calm.has(Calm::REMOVERS) {
            first.splice(..0, removals(&lower));
        }
        // There has to be something, and someone has to look.
        weights[0] += 1;
        weights[2] += 1;
        weights[8] += 1;
        let mut lower = lower;
        let mut lower_texts = Texts::new();
        let mut links = 0;
        // Links are one more way to a file, and leave fewer calls for hard links.
        if !plan.calm.has(Calm::LINKS) && !stays {
            links = *random.pick(&[100_000, 300_000, 500_000]);
            for (path, thing) in &mut lower {
                if !thing.is_dir() && random.chance(300_000) {
                    thing.kind = Kind::Symlink;
                    lower_texts.insert(thing.ino, text(path, random.pick(&paths), random));
                }
            }
        }
        Workload {
            paths,
            lower,
            lower_texts,
            links,
            first,
            weights,
            truncates,
            pause_us: *random.pick(&[0, 500, 5_000, 20_000]),
        }
    }

    /// Nobody does anything by itself over a PFS that holds this.
    pub(super) fn none(lower: Tree) -> Self {
        Workload {
            paths: Vec::new(),
            lower,
            lower_texts: Texts::new(),
            links: 0,
            first: Vec::new(),
            weights: [0; 11],
            truncates: false,
            pause_us: 0,
        }
    }

    pub(super) fn pause_us(&self, random: &mut Random) -> u64 {
        random.between(1, 1 + self.pause_us)
    }

    /// A name that clients use, for somebody else.
    pub(super) fn any_path(&self, random: &mut Random) -> TreePath {
        random.pick(&self.paths).clone()
    }

    /// The text of a link that somebody else makes at `path`; `None` for something else.
    pub(super) fn foreign_link(&self, path: &TreePath, random: &mut Random) -> Option<Vec<u8>> {
        if self.links == 0 || !random.chance(300_000) {
            return None;
        }
        Some(text(path, random.pick(&self.paths), random))
    }

    /// The next thing that a client does.
    pub(super) fn action(&mut self, random: &mut Random) -> Action {
        if let Some(action) = self.first.pop() {
            return action;
        }
        let a = random.pick(&self.paths).clone();
        let b = random.pick(&self.paths).clone();
        if self.links > 0 && random.chance(self.links) {
            return match random.below(8) {
                0..=2 => Action::Symlink(text(&a, &b, random), a),
                3 => Action::Readlink(a),
                4 => Action::Stat(a, true),
                5 => Action::Create(a, libc::O_NOFOLLOW),
                6 if self.truncates => Action::Truncate(a, libc::O_NOFOLLOW),
                _ => Action::Create(a, 0),
            };
        }
        let mut left = random.below(self.weights.iter().sum());
        let mut chosen = 0;
        for (i, weight) in self.weights.iter().enumerate() {
            if left < *weight {
                chosen = i;
                break;
            }
            left -= weight;
        }
        match chosen {
            0 => Action::Create(a, libc::O_EXCL),
            1 => Action::Create(a, 0),
            2 => Action::Mkdir(a),
            3 => Action::Link(a, b),
            4 => Action::Unlink(a),
            5 => Action::Rmdir(a),
            6 => Action::Rename(
                a,
                b,
                if random.chance(250_000) {
                    libc::RENAME_NOREPLACE
                } else {
                    0
                },
            ),
            7 => Action::Rename(a, b, libc::RENAME_EXCHANGE),
            8 => Action::Stat(a, false),
            10 => Action::Truncate(a, 0),
            _ => {
                let after = random.chance(300_000).then(|| b.name().to_vec());
                let limit = *random.pick(&[1, 2, 3, 4, ALL_ENTRIES]);
                Action::List(a.parent(), after, limit)
            }
        }
    }
}

/// A text for a symbolic link at `path` to `target`; seldom one that leads out of the buffer.
fn text(path: &TreePath, target: &TreePath, random: &mut Random) -> Vec<u8> {
    match random.below(20) {
        0 => b"/elsewhere".to_vec(),
        1..=8 => [ROOT, b"/", target.as_bytes()].concat(),
        9..=11 if path.parent() == target.parent() => target.name().to_vec(),
        _ => [&b"../".repeat(path.depth() - 1)[..], target.as_bytes()].concat(),
    }
}

/// The directories of the PFS go with all that is in them, and come again; the first action last.
fn removals(lower: &Tree) -> Vec<Action> {
    let mut actions = Vec::new();
    let tops = lower
        .iter()
        .filter(|(path, thing)| path.depth() == 1 && thing.is_dir());
    for (top, _) in tops {
        let below = || lower.iter().filter(|(path, _)| path.is_within(top));
        // Several clients take them at once, so a directory may not be empty yet.
        for _ in 0..3 {
            actions.extend(below().rev().map(|(path, thing)| match thing.is_dir() {
                true => Action::Rmdir(path.clone()),
                false => Action::Unlink(path.clone()),
            }));
        }
        actions.extend(below().map(|(path, thing)| match thing.is_dir() {
            true => Action::Mkdir(path.clone()),
            false => Action::Create(path.clone(), 0),
        }));
    }
    actions.reverse();
    actions
}

/// Some of the paths, as files and directories of a PFS. Parents come before their children.
fn pfs(paths: &[TreePath], random: &mut Random) -> Tree {
    let mut tree = Tree::new();
    for path in paths {
        if is_dir(&tree, &path.parent()) && random.chance(600_000) {
            let ino = FIRST_LOWER_INO + tree.len() as u64;
            let dir = path.depth() < 3 && random.chance(600_000);
            let kind = if dir { Kind::Dir } else { Kind::File };
            tree.insert(path.clone(), Thing { ino, kind });
        }
    }
    tree
}
