//! Carries out a script, and remembers what is the neighbour's.

use super::judge::is_reserved;
use super::script::{Act, Entry, Script, Step};
use crate::faults::history::{Action, Call, Outcome, Thing};
use crate::faults::model::{self, Tree};
use crate::faults::pfs::Pfs;
use crate::faults::world::{World, is_done};
use crate::faults::{Broken, Mutation};
use forebay_core::drain::{DrainReport, Left, Reason, Side, SideChoice};
use forebay_core::membership::Membership;
use forebay_core::path::TreePath;
use forebay_core::record::{Kind, PathRecord};
use std::collections::{BTreeMap, BTreeSet};

/// What users see, with what files hold.
pub(super) type View = BTreeMap<TreePath, (Thing, u64)>;

/// An inode that the neighbour has put where it is, or written to.
#[derive(Debug, Clone)]
pub(super) struct Theirs {
    pub(super) thing: Thing,
    /// Of a file. Nothing else ever holds the same.
    pub(super) contents: u64,
    /// It has put it there. Else it has only written.
    pub(super) is_placed: bool,
    /// Where it may be: its own path, and that path below directories that the buffer has renamed.
    pub(super) at: BTreeSet<TreePath>,
}

/// The number and the contents of what is under each name on the PFS.
type Names = BTreeMap<TreePath, (u64, u64)>;

fn names(pfs: &Pfs) -> Names {
    let contents = |number| pfs.version(number).map_or(0, |(_, contents)| contents);
    let names = pfs.numbers();
    names
        .map(|(path, number)| (path.clone(), (number, contents(number))))
        .collect()
}

/// A script under way.
pub(super) struct Play {
    pub(super) world: World,
    /// What is the neighbour's, by the number of its inode on the PFS.
    pub(super) theirs: BTreeMap<u64, Theirs>,
    /// What the neighbour has removed, replaced or overwritten: what users know it by, and its contents.
    pub(super) undone: BTreeSet<(u64, u64)>,
    /// What the neighbour has renamed, and where to: what users know it by, its contents, and the path.
    pub(super) brought: BTreeSet<(u64, u64, TreePath)>,
    /// Inodes that the neighbour has made.
    made: BTreeSet<u64>,
    /// Inodes that the neighbour has written to.
    written: BTreeSet<u64>,
    /// Where inodes were before the neighbour renamed them for the first time, and all names that one had with others.
    pub(super) homes: BTreeMap<u64, BTreeSet<TreePath>>,
    /// The neighbour has done something.
    has_neighbour: bool,
    /// What the PFS had under each name at the beginning, or when a drain has last put something there.
    without_others: Names,
    /// All that the neighbour did was to make new names where users saw them appear.
    pub(super) only_adds: bool,
    /// The neighbour has taken something away that may be needed below what is in the buffer.
    takes_away: bool,
    /// The PFS has refused something.
    pub(super) had_refusal: bool,
    /// A decision was carried out: somebody has said that something may go.
    pub(super) has_chosen: bool,
    /// What the last drain has listed because of others.
    pub(super) conflicts: Vec<TreePath>,
}

impl Play {
    pub(super) fn begin(
        script: &Script,
        mutation: Option<Mutation>,
        membership: &Membership,
    ) -> Result<Self, Broken> {
        let mut lower = Tree::new();
        for (path, entry) in &script.start {
            let kind = match entry {
                Entry::Dir => Kind::Dir,
                Entry::File => Kind::File,
                Entry::NameOf(_) => continue,
            };
            if model::is_dir(&lower, &path.parent()) {
                let ino = 100 + lower.len() as u64;
                lower.insert(path.clone(), Thing { ino, kind });
            }
        }
        let stage_limit = if script.stages { u64::MAX } else { 0 };
        let mut world = World::step_by_step(lower, stage_limit, mutation, membership)?;
        let mut pfs = world.pfs_mut();
        for (path, entry) in &script.start {
            if let Entry::NameOf(of) = entry {
                pfs.link(of, path);
            }
        }
        script.others.iter().for_each(|of| pfs.give_to_others(of));
        script.sticky.iter().for_each(|dir| pfs.make_sticky(dir));
        let without_others = names(&pfs);
        drop(pfs);
        Ok(Play {
            world,
            without_others,
            theirs: BTreeMap::new(),
            undone: BTreeSet::new(),
            brought: BTreeSet::new(),
            made: BTreeSet::new(),
            written: BTreeSet::new(),
            homes: BTreeMap::new(),
            has_neighbour: false,
            only_adds: true,
            takes_away: false,
            had_refusal: false,
            has_chosen: false,
            conflicts: Vec::new(),
        })
    }

    /// What users see now.
    pub(super) fn view(&self) -> Result<View, Broken> {
        let shown = self.world.shown()?;
        let with_contents = |(path, thing): (TreePath, Thing)| {
            let contents = match thing.is_dir() {
                true => 0,
                false => self.world.holds(&path).unwrap_or(0),
            };
            (path, (thing, contents))
        };
        Ok(shown.into_iter().map(with_contents).collect())
    }

    /// Carries out a step; false if it could not be, or if nobody may judge it afterwards.
    pub(super) fn take(&mut self, step: &Step) -> Result<bool, Broken> {
        let did = match step {
            Step::Call(action) => self.call(action)?,
            Step::RemoveAll(path) => self.remove_all(path)?,
            Step::Drain { keep, refused } => {
                self.had_refusal |= refused.is_some();
                self.drain(*keep, *refused)?;
                true
            }
            Step::Take(side, path) => {
                self.choose(*side, path)?;
                true
            }
            Step::Restart => {
                let before = self.view()?;
                self.world.restart()?;
                self.same_view(&before, "a bridge that starts again shows what it showed")?;
                true
            }
            Step::They(act) => {
                let is_done = self.they(act)?;
                self.has_neighbour |= is_done;
                is_done
            }
        };
        self.follow_renames();
        self.note_names();
        if !self.takes_away {
            self.world.is_whole()?;
        }
        Ok(did)
    }

    /// Does a user see something of the neighbour's at a path, or below?
    pub(super) fn shows_theirs(&self, view: &View, path: &TreePath) -> bool {
        let mut below = view.iter().filter(|(p, _)| p.is_within(path));
        below.any(|(_, shown)| self.is_theirs(*shown))
    }

    /// Is what users see this something of the neighbour's?
    pub(super) fn is_theirs(&self, (thing, contents): (Thing, u64)) -> bool {
        self.theirs.values().any(|t| match t.thing.is_dir() {
            true => t.thing == thing,
            false => !thing.is_dir() && t.contents == contents,
        })
    }

    /// Has the neighbour renamed this to this path?
    pub(super) fn was_brought(&self, (thing, contents): (Thing, u64), path: &TreePath) -> bool {
        self.brought.contains(&(thing.ino, contents, path.clone()))
    }

    fn call(&mut self, action: &Action) -> Result<bool, Broken> {
        let before = self.view()?;
        // A program that ends a file of the neighbour's under its own eyes knows what it does.
        let ends = match action {
            Action::Unlink(path) | Action::Truncate(path, _) | Action::Rename(_, path, 0) => {
                let shown = before.get(path).copied();
                shown.filter(|shown| !shown.0.is_dir() && self.is_theirs(*shown))
            }
            _ => None,
        };
        let destroys = match action {
            Action::Mkdir(_) => Vec::new(),
            Action::Unlink(_) | Action::Truncate(..) if ends.is_some() => Vec::new(),
            Action::Rename(old, _, 0) if ends.is_some() => vec![old.clone()],
            Action::Link(old, _) => vec![old.clone()],
            other => other.paths(),
        };
        if destroys.iter().any(|path| self.shows_theirs(&before, path)) {
            return Ok(false);
        }
        let (call, made) = self.world.ask(action.clone())?;
        self.does_what_it_says(&before, &call, made)?;
        if let Some((_, contents)) = ends.filter(|_| is_done(&call)) {
            // A name that it has given a file stays if the program removes another one.
            let is_ended = |theirs: &Theirs| match action {
                Action::Unlink(path) | Action::Rename(_, path, _) => {
                    !theirs.is_placed || theirs.at.contains(path)
                }
                _ => true,
            };
            let is_it = |theirs: &Theirs| {
                theirs.contents == contents && !theirs.thing.is_dir() && is_ended(theirs)
            };
            let ended = self.theirs.iter().filter(|(_, theirs)| is_it(theirs));
            for number in ended.map(|(number, _)| *number).collect::<Vec<_>>() {
                let theirs = self.theirs.remove(&number);
                // The name stays theirs if only what is under it changes.
                let now = self.world.pfs().version(number);
                if let (Some(theirs), Some((thing, now))) = (theirs.filter(|t| t.is_placed), now) {
                    let at = theirs.at.into_iter();
                    self.brought.extend(at.map(|at| (thing.ino, now, at)));
                }
                // If it comes back as it was, then the program has ended that.
                self.made.remove(&number);
                self.written.remove(&number);
            }
        }
        if let (Action::Rename(old, new, flags), true) = (action, is_done(&call)) {
            self.rename_theirs(old, new);
            if *flags == libc::RENAME_EXCHANGE {
                self.rename_theirs(new, old);
            }
        }
        Ok(is_done(&call))
    }

    /// What is the neighbour's below a directory that a program renames may go with it.
    fn rename_theirs(&mut self, old: &TreePath, new: &TreePath) {
        for theirs in self.theirs.values_mut() {
            let below = theirs.at.iter().filter(|at| *at != old);
            let moved: Vec<_> = below.filter_map(|at| at.rebase(old, new)).collect();
            theirs.at.extend(moved);
        }
    }

    /// What is below a directory that the buffer shows elsewhere may come there.
    fn follow_renames(&mut self) {
        for (path, record) in self.world.all_records() {
            if let (Kind::Moved, Some(origin)) = (record.kind, &record.origin) {
                self.rename_theirs(origin, &path);
            }
        }
    }

    fn note_names(&mut self) {
        let mut names: BTreeMap<u64, Vec<&TreePath>> = BTreeMap::new();
        let pfs = self.world.pfs();
        for (path, number) in pfs.numbers() {
            names.entry(number).or_default().push(path);
        }
        names.retain(|_, names| names.len() > 1);
        for (number, names) in names {
            let homes = self.homes.entry(number).or_default();
            homes.extend(names.into_iter().cloned());
        }
    }

    /// Users see the change that they were told, and no other.
    fn does_what_it_says(
        &self,
        before: &View,
        call: &Call,
        made: Option<Thing>,
    ) -> Result<(), Broken> {
        if self.takes_away {
            // What lay in a directory that is gone may show again in the next one of that name.
            return Ok(());
        }
        let mut after = self.view()?;
        // What it made way for may show now.
        after.retain(|path, shown| before.get(path) == Some(shown) || !self.is_theirs(*shown));
        let [before, after] = [before, &after].map(|view| -> Tree {
            let things = view.iter().map(|(path, (thing, _))| (path.clone(), *thing));
            things.collect()
        });
        let outcome = call.answered.as_ref().map(|(_, outcome)| outcome);
        let expected = match outcome {
            Some(Outcome::Done | Outcome::Opened(_)) => {
                let texts = BTreeMap::new();
                model::apply(call, made, &before, &texts).unwrap_or_else(|| before.clone())
            }
            _ => before,
        };
        if expected == after {
            return Ok(());
        }
        let detail = format!("{}: {outcome:?} {expected:?} -> {after:?}", call.action);
        let promise = "a call changes what users see as it says";
        Err(Broken::new(promise, detail, call.action.paths()))
    }

    fn remove_all(&mut self, path: &TreePath) -> Result<bool, Broken> {
        let view = self.view()?;
        if self.shows_theirs(&view, path) {
            return Ok(false);
        }
        let below = view.iter().filter(|(p, _)| p.is_within(path));
        let below: Vec<_> = below.map(|(p, (thing, _))| (p.clone(), *thing)).collect();
        for (path, thing) in below.iter().rev() {
            let action = match thing.is_dir() {
                true => Action::Rmdir(path.clone()),
                false => Action::Unlink(path.clone()),
            };
            self.call(&action)?;
        }
        Ok(!below.is_empty())
    }

    /// A whole pass, in which users see nothing change.
    pub(super) fn drain(
        &mut self,
        keep: bool,
        refused: Option<u32>,
    ) -> Result<DrainReport, Broken> {
        let before = self.view()?;
        let report = self.pass(Vec::new(), keep, refused)?;
        self.same_view(&before, "a drain changes nothing that users see")?;
        Ok(report)
    }

    fn pass(
        &mut self,
        choices: Vec<SideChoice>,
        keep: bool,
        refused: Option<u32>,
    ) -> Result<DrainReport, Broken> {
        let before = names(&self.world.pfs());
        let report = self.world.drain_once(choices, keep, refused)?;
        let mut after = names(&self.world.pfs());
        for path in before.keys().filter(|path| !after.contains_key(*path)) {
            self.without_others.remove(path);
        }
        after.retain(|path, now| before.get(path) != Some(now));
        self.without_others.extend(after);
        self.note_conflicts(&report);
        Ok(report)
    }

    fn note_conflicts(&mut self, report: &DrainReport) {
        let is_conflict = |left: &&Left| {
            matches!(
                left.reason,
                Reason::Changed | Reason::Taken | Reason::NoDirectory
            )
        };
        let conflicts = report.left.iter().filter(is_conflict);
        self.conflicts = conflicts.map(|left| left.path.clone()).collect();
    }

    /// Somebody decides about a path. What is refused changes nothing; else what was decided against may go, and what lies at no
    /// place of which the decision speaks stays as it was.
    fn choose(&mut self, side: Side, path: &TreePath) -> Result<(), Broken> {
        let before = self.view()?;
        let records: BTreeMap<_, _> = self.world.all_records().into_iter().collect();
        let ring = match side {
            Side::Theirs => exchanged(&records, path),
            Side::Ours | Side::Both => Vec::new(),
        };
        let mut places: Vec<_> = ring.clone();
        places.push(path.clone());
        let of_these = places.iter().filter_map(|at| records.get(at));
        let below = of_these.flat_map(|r| [&r.hides, &r.origin]).flatten();
        places.extend(below.cloned().collect::<Vec<_>>());
        // Where a renamed directory hides what shows again.
        let hides = |r: &PathRecord| {
            r.hides
                .as_ref()
                .is_some_and(|hidden| places.contains(hidden))
        };
        let above: Vec<_> = records.iter().filter(|(_, r)| hides(r)).collect();
        places.extend(
            above
                .into_iter()
                .map(|(at, _)| at.clone())
                .collect::<Vec<_>>(),
        );
        let choice = SideChoice {
            path: path.clone(),
            side,
        };
        if side == Side::Ours {
            self.world.pfs_mut().give(path);
        }
        // Whichever of its names the neighbour has written a file by.
        let decided: BTreeSet<_> = {
            let pfs = self.world.pfs();
            let numbers = pfs.numbers().filter(|(at, _)| at.is_within(path));
            numbers.map(|(_, number)| number).collect()
        };
        let holds_a_dir = |play: &Play| {
            let pfs = play.world.pfs();
            let tree = pfs.tree();
            let is_dir = |at: &TreePath| tree.get(at).is_some_and(|thing| thing.is_dir());
            let has_below = |at: &TreePath| records.keys().any(|r| r != at && r.is_within(at));
            places.iter().any(|at| is_dir(at) || has_below(at))
        };
        // The drain moves it.
        let held_a_dir = holds_a_dir(self);
        let were = names(&self.world.pfs());
        let is_foreign = |at: &TreePath| were.get(at) != self.without_others.get(at);
        let is_foreign = !ring.is_empty() && ring.iter().chain([path]).any(is_foreign);
        let report = self.pass(vec![choice], true, None)?;
        if let Some((_, why)) = report.refused.first() {
            let holds_a_dir = held_a_dir || holds_a_dir(self);
            if is_foreign && !holds_a_dir {
                let promise = "files that have exchanged their names can have them back";
                return Err(Broken::new(promise, why.clone(), vec![path.clone()]));
            }
            return self.same_view(&before, "a decision that is refused changes nothing");
        }
        if !self.has_neighbour && !self.had_refusal {
            let promise = "there is nothing to decide where nobody else has done anything";
            return Err(Broken::new(promise, String::new(), vec![path.clone()]));
        }
        self.has_chosen = true;
        let is_meant = |at: &TreePath| places.iter().any(|place| at.is_within(place));
        if side == Side::Ours {
            let theirs = std::mem::take(&mut self.theirs);
            for (number, theirs) in theirs {
                if theirs.at.iter().any(is_meant) || decided.contains(&number) {
                    self.undone.insert((theirs.thing.ino, theirs.contents));
                } else {
                    self.theirs.insert(number, theirs);
                }
            }
        }
        if side != Side::Ours {
            let mut pfs = self.world.pfs_mut();
            places.iter().for_each(|place| pfs.decide_for(place));
        }
        if side == Side::Theirs {
            // What was only renamed is still there.
            let copies = ring.iter().chain([path]).filter(|at| {
                let record = records.get(*at);
                record.is_none_or(|record| record.kind != Kind::Moved)
            });
            let ours = copies.filter_map(|at| before.get(at));
            self.undone
                .extend(ours.map(|(thing, contents)| (thing.ino, *contents)));
        }
        let after = self.view()?;
        if side == Side::Theirs {
            for at in ring.iter().chain([path]) {
                self.comes_back(at, &records, &before, &after)?;
            }
        }
        if side == Side::Both {
            let ours = before.get(path).filter(|shown| !self.is_theirs(**shown));
            if let Some(ours) = ours.filter(|ours| !after.values().any(|now| now == *ours)) {
                let promise = "of two versions that are both taken none is lost";
                let detail = format!("{path} was {} with {}", ours.0, ours.1);
                return Err(Broken::new(promise, detail, vec![path.clone()]));
            }
        }
        let is_second = |at: &TreePath| {
            let name = [path.name(), b".ours"].concat();
            side == Side::Both && path.is_within(&at.parent()) && at.name().starts_with(&name)
        };
        let elsewhere = |view: View| -> View {
            let is_elsewhere = |at: &TreePath| !is_meant(at) && !is_second(at);
            view.into_iter()
                .filter(|(at, _)| is_elsewhere(at))
                .collect()
        };
        self.same(
            &elsewhere(before),
            &elsewhere(after),
            "a decision changes nothing of which it does not speak",
        )
    }

    /// Users see what they saw, but for what the neighbour has taken away itself.
    fn same_view(&self, before: &View, promise: &'static str) -> Result<(), Broken> {
        self.same(before, &self.view()?, promise)
    }

    fn same(&self, before: &View, after: &View, promise: &'static str) -> Result<(), Broken> {
        let told = |shown: Option<&(Thing, u64)>| match shown {
            Some((thing, contents)) => format!("{thing} with {contents}"),
            None => "nothing".to_owned(),
        };
        for path in before.keys().chain(after.keys()) {
            let (was, is) = (before.get(path), after.get(path));
            let is_undone =
                |(thing, contents): &(Thing, u64)| self.undone.contains(&(thing.ino, *contents));
            let both_dirs = |(was, _): &(Thing, u64)| {
                was.is_dir() && is.is_some_and(|now| now.0.is_dir() && self.is_theirs(*now))
            };
            let may = match was {
                Some(was) => is_undone(was) || both_dirs(was),
                None => is.is_some_and(|now| self.is_theirs(*now) || self.was_brought(*now, path)),
            };
            if was != is && !may {
                let detail = format!("{path}: {} -> {}", told(was), told(is));
                return Err(Broken::new(promise, detail, vec![path.clone()]));
            }
        }
        Ok(())
    }

    /// The neighbour renames a directory with all that is in it; false if it can't.
    fn they_move(&mut self, from: &TreePath, to: &TreePath) -> bool {
        let mut pfs = self.world.pfs_mut();
        let names = pfs.numbers().map(|(path, number)| (number, path.clone()));
        let names: Vec<_> = names.filter(|(_, path)| path.is_within(from)).collect();
        if names.iter().any(|(_, path)| is_reserved(path)) {
            return false;
        }
        let Some(moved) = pfs.move_dir(from, to) else {
            return false;
        };
        let versions: Vec<_> = moved
            .iter()
            .map(|(number, _)| pfs.version(*number))
            .collect();
        drop(pfs);
        for (number, path) in names {
            self.homes
                .entry(number)
                .or_insert_with(|| BTreeSet::from([path]));
        }
        let mut placed = BTreeSet::new();
        for ((number, path), version) in moved.into_iter().zip(versions) {
            let Some((thing, contents)) = version else {
                continue;
            };
            self.brought.insert((thing.ino, contents, path.clone()));
            let is_back = self.is_back(number, &path);
            if is_back && !self.written.contains(&number) {
                self.undone.remove(&(thing.ino, contents));
                self.theirs.remove(&number);
                continue;
            }
            self.undone.insert((thing.ino, contents));
            if placed.insert(number) {
                self.theirs.remove(&number);
            }
            let theirs = self.theirs.entry(number).or_insert(Theirs {
                thing,
                contents,
                is_placed: !is_back,
                at: BTreeSet::new(),
            });
            theirs.at.insert(path);
        }
        self.takes_away = true;
        self.only_adds = false;
        true
    }

    /// What it renames away and back is where it was, and so is what it renames from one of its names to another.
    fn is_back(&self, number: u64, path: &TreePath) -> bool {
        let homes = self.homes.get(&number);
        !self.made.contains(&number) && homes.is_some_and(|homes| homes.contains(path))
    }

    fn they(&mut self, act: &Act) -> Result<bool, Broken> {
        if let Act::Rename(from, to) = act
            && self
                .world
                .pfs()
                .get(from)
                .is_some_and(|thing| thing.is_dir())
        {
            return Ok(self.they_move(from, to));
        }
        let before = self.view()?;
        let is_recorded: BTreeSet<_> = self.world.all_records().into_iter().map(|r| r.0).collect();
        let mut gone = Vec::new();
        let mut pfs = self.world.pfs_mut();
        let versions = |pfs: &Pfs, path: &TreePath| {
            let number = pfs.number(path)?;
            Some((number, pfs.version(number)?))
        };
        let (is_placed, number, at) = match act {
            Act::Make(path, kind) => (true, pfs.put(path, *kind), path),
            Act::Replace(path, kind) => {
                let was = versions(&pfs, path);
                let is_gone = pfs.take_away(path).is_some();
                gone.extend(was.filter(|_| is_gone));
                let number = if is_gone { pfs.put(path, *kind) } else { None };
                (true, number, path)
            }
            Act::Write(path) => {
                let was = versions(&pfs, path);
                let wrote = pfs.scribble(path);
                gone.extend(was.filter(|_| wrote.is_some()));
                (false, wrote.map(|(number, _)| number), path)
            }
            Act::Remove(path) => {
                let was = versions(&pfs, path);
                let number = pfs.take_away(path);
                gone.extend(was.filter(|_| number.is_some()));
                (false, number, path)
            }
            Act::Rename(from, to) => {
                let was = [versions(&pfs, from), versions(&pfs, to)];
                let number = pfs.put_over(from, to);
                gone.extend(was.into_iter().flatten().filter(|_| number.is_some()));
                (true, number, to)
            }
            Act::Link(old, new) => (true, pfs.link(old, new), new),
        };
        let Some(number) = number else {
            return Ok(false);
        };
        let now = pfs.version(number);
        // What it has given another name is still its own under that one.
        let is_elsewhere = |number: u64| {
            let theirs = self.theirs.get(&number);
            let mut names = theirs.iter().flat_map(|theirs| &theirs.at);
            names.any(|name| name != at && pfs.number(name) == Some(number))
        };
        match act {
            Act::Make(..) | Act::Replace(..) => self.made.insert(number),
            Act::Write(_) => self.written.insert(number),
            Act::Remove(_) | Act::Rename(..) | Act::Link(..) => false,
        };
        let is_write = matches!(act, Act::Write(_));
        let stays = |number: &u64| !is_write && is_elsewhere(*number);
        let stay: Vec<_> = gone.iter().map(|(number, _)| stays(number)).collect();
        drop(pfs);
        for ((gone, (thing, contents)), stays) in gone.into_iter().zip(stay) {
            self.undone.insert((thing.ino, contents));
            if stays {
                continue;
            }
            let was = self.theirs.remove(&gone);
            if gone != number || matches!(act, Act::Remove(_)) {
                self.made.remove(&gone);
                self.written.remove(&gone);
            }
            // What it has put there itself is where it was when it writes to it.
            if let (Act::Write(_), Some(was), Some((_, contents))) = (act, was, now) {
                self.theirs.insert(gone, Theirs { contents, ..was });
            }
        }
        let is_back = match act {
            Act::Rename(from, to) => {
                let homes = self.homes.entry(number);
                homes.or_insert_with(|| BTreeSet::from([from.clone()]));
                self.is_back(number, to)
            }
            _ => false,
        };
        if let (Act::Rename(_, to), Some((thing, contents))) = (act, now) {
            self.brought.insert((thing.ino, contents, to.clone()));
            if is_back && !self.written.contains(&number) {
                self.undone.remove(&(thing.ino, contents));
            }
        }
        if !matches!(act, Act::Remove(_))
            && (!is_back || self.written.contains(&number))
            && let Some((thing, contents)) = now
        {
            let at = BTreeSet::from([at.clone()]);
            let theirs = self.theirs.entry(number).or_insert(Theirs {
                thing,
                contents,
                is_placed: is_placed && !is_back,
                at: at.clone(),
            });
            theirs.at.extend(at);
        }
        self.takes_away |= !matches!(act, Act::Make(..) | Act::Write(_));
        let appears = || -> Result<bool, Broken> {
            let after = self.view()?;
            let is_new = |(path, shown): (&TreePath, &(Thing, u64))| {
                let is_it = now.is_some_and(|(thing, _)| thing == shown.0);
                is_it && !before.contains_key(path) && !is_recorded.contains(path)
            };
            Ok(matches!(act, Act::Make(..)) && after.iter().any(is_new))
        };
        self.only_adds = self.only_adds && appears()?;
        Ok(true)
    }
}

impl Play {
    /// What was only renamed is nobody's to lose: without its rename it is where it was, unless its directory was removed.
    fn comes_back(
        &self,
        path: &TreePath,
        records: &BTreeMap<TreePath, PathRecord>,
        before: &View,
        after: &View,
    ) -> Result<(), Broken> {
        let origin = records.get(path).and_then(|record| record.origin.as_ref());
        let (Some(origin), Some(shown)) = (origin, before.get(path)) else {
            return Ok(());
        };
        let is_around = |r: &PathRecord| {
            let hidden = r.hides.as_ref().filter(|_| r.kind == Kind::Whiteout);
            hidden.is_some_and(|hidden| hidden != origin && origin.is_within(hidden))
        };
        let is_there = after.values().any(|(thing, _)| thing.ino == shown.0.ino);
        let is_undone = self.undone.contains(&(shown.0.ino, shown.1));
        if is_there || is_undone || self.is_theirs(*shown) || records.values().any(is_around) {
            return Ok(());
        }
        let promise = "what was renamed comes back where theirs is taken, or that is refused";
        let detail = format!("{} that was at {path} is gone", shown.0);
        Err(Broken::new(promise, detail, vec![path.clone()]))
    }
}

/// What has exchanged its names with `path`, if that leads back to it: what was where its version is, what was where that one's is,
/// and so on.
fn exchanged(records: &BTreeMap<TreePath, PathRecord>, path: &TreePath) -> Vec<TreePath> {
    let mut ring = Vec::new();
    let mut at = path.clone();
    while let Some(lower) = records.get(&at).and_then(|record| record.covers(&at)) {
        let was_there = |(other, r): &(&TreePath, &PathRecord)| {
            **other != at && r.origin.as_ref() == Some(&lower)
        };
        let Some((next, _)) = records.iter().find(was_there) else {
            break;
        };
        if next == path {
            return ring;
        }
        if ring.contains(next) {
            break;
        }
        ring.push(next.clone());
        at = next.clone();
    }
    Vec::new()
}
