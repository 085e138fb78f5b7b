//! Mounts images, recovers them, and judges what is there.

use crate::case::{Case, Recovery};
use crate::image::Image;
use crate::log::Log;
use crate::model::{Op, State, states};
use crate::oracle::{self, Fault, Progress};
use crate::pick::Pick;
use crate::recorder::Places;
use crate::rig::{self, DiskFile, Loop};
use crate::storage::{self, Said};
use crate::tree::{self, Tree};
use crate::verdict::Verdict;
use crate::{foreign, rebuilt};
use anyhow::Context;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Exit status of Forebay when something stays in the buffer, and it has said what.
const DATA_LEFT: i32 = 75;
/// The command that lists what a drain does not.
const FSCK: &str = "forebay fsck";
/// With this begins the name of a file that a rebuild puts beside another one whose label has the same path.
const BESIDE: &str = "conflict-";
/// Longest text of one fault.
const SHOWN_BYTES: usize = 600;
/// Of the operations before the end so many are shown.
const SHOWN_OPERATIONS: usize = 12;
/// Of the images whose recovery withholds nothing, one in so many is drained a second time.
const AGAIN_ONE_IN: usize = 4;

/// Judges images of one log.
pub struct Judge<'a> {
    case: Case,
    log: &'a Log,
    image: Image<'a>,
    places: Places,
    ops: Vec<Op>,
    states: Vec<State>,
    disks: Vec<(DiskFile, Loop)>,
    /// Say what each step says.
    verbose: bool,
}

impl<'a> Judge<'a> {
    /// Prepares disks.
    ///
    /// # Errors
    /// The machine says no.
    pub fn new(case: Case, log: &'a Log, forebay: &Path, verbose: bool) -> anyhow::Result<Self> {
        let places = Places::new(forebay)?;
        let ops = case.workload.claims(case.seed);
        let states = states(&ops).context("the workload can't be carried out")?;
        let image = Image::new(log, case.workload.disks().len());
        let mut judge = Judge {
            case,
            log,
            image,
            places,
            ops,
            states,
            disks: Vec::new(),
            verbose,
        };
        judge.fresh_disks()?;
        Ok(judge)
    }

    fn fresh_disks(&mut self) -> anyhow::Result<()> {
        self.disks.clear();
        for (number, (bytes, _)) in self.case.workload.disks().into_iter().enumerate() {
            let path = self.places.at(&format!("image{number}"));
            let _ = fs::remove_file(&path);
            let file = DiskFile::new(&path, bytes)?;
            let device = Loop::attach(&path, false)?;
            self.disks.push((file, device));
        }
        Ok(())
    }

    /// Judges an image. A fault counts if it shows again on other loop devices; `None`: it does not.
    ///
    /// # Errors
    /// The machine says no.
    pub fn judge(&mut self, pick: Pick) -> anyhow::Result<Option<Verdict>> {
        let first = self.once(pick)?;
        if first.faults.is_empty() {
            return Ok(Some(first));
        }
        self.fresh_disks()?;
        let again = self.once(pick)?;
        Ok((!again.faults.is_empty()).then_some(again))
    }

    fn once(&mut self, pick: Pick) -> anyhow::Result<Verdict> {
        let pieces = self.log.pieces(pick, self.disks.len() as u8);
        self.image.make(pick.point, &pieces);
        for (number, (file, device)) in self.disks.iter().enumerate() {
            file.fill(self.image.blocks(number))?;
            device.forget()?;
        }
        self.places.forget_user()?;
        let mounts = self.places.mounts(self.case.workload);
        let mut mounted = Vec::new();
        let mut verdict = None;
        for ((mount, kind), (_, device)) in mounts.iter().zip(&self.disks) {
            match kind.mount(&device.device, mount) {
                Ok(()) => mounted.push(mount),
                Err(e) => verdict = Some(Verdict::of(Fault::Unmountable, format!("{e:#}"))),
            }
        }
        let progress = self.case.progress(self.log, pick.point);
        let verdict = match verdict {
            Some(verdict) => Ok(verdict),
            None => self.recover(&progress, pick.point.is_multiple_of(AGAIN_ONE_IN)),
        };
        rig::reap();
        for mount in mounted {
            rig::unmount(mount)?;
        }
        let mut verdict = verdict?;
        for (_, seen) in &mut verdict.faults {
            let end = (0..=SHOWN_BYTES.min(seen.len()))
                .rev()
                .find(|end| seen.is_char_boundary(*end));
            seen.truncate(end.unwrap_or(0));
        }
        Ok(verdict)
    }

    fn say(&self, what: &str, text: &str) {
        if self.verbose {
            println!("{what}: {text}");
        }
    }

    /// Runs a verb; what it says goes to `said`. Gives its exit status, -1 for none.
    fn tell(&self, verb: &str, more: &[&str], said: &mut Said) -> anyhow::Result<i32> {
        let more: Vec<OsString> = more.iter().map(OsString::from).collect();
        let output = self.places.forebay(verb, &more)?;
        let text = rig::both(&output);
        self.say(verb, &format!("{}: {text}", output.status));
        said.add(&text, &self.places.pfs());
        Ok(output.status.code().unwrap_or(-1))
    }

    fn recover(&self, progress: &Progress, is_sampled: bool) -> anyhow::Result<Verdict> {
        self.say("progress", &format!("{progress:?}"));
        let begun = progress.begun.min(self.ops.len());
        for (number, op) in self
            .ops
            .iter()
            .enumerate()
            .take(begun)
            .skip(begun.saturating_sub(SHOWN_OPERATIONS))
        {
            self.say(&format!("operation {}", number + 1), &format!("{op:?}"));
        }
        let mut verdict = Verdict::default();
        let pfs = self.places.tree(self.case.workload);
        if self.case.workload.is_native() {
            self.look(&pfs, progress, &|_, _| false, &mut verdict)?;
            return Ok(verdict);
        }
        let storage = self.places.storage();
        let before = storage::objects(&storage);
        for (path, entry) in &before {
            self.say(
                "object",
                &format!("{path}: {} bytes", entry.node.bytes.len()),
            );
        }
        // Before there was an instance a drain says that there is nothing, and fsck has nothing to check.
        let has_instance = storage::has_instance(&storage);
        let mut said = Said::default();
        if has_instance {
            self.before_drain(&mut verdict, &mut said)?;
        }
        let status = self.tell("drain", &[], &mut said)?;
        verdict.withheld = status == DATA_LEFT;
        if has_instance && status != 0 && !verdict.withheld {
            verdict.fault(
                Fault::RecoveryFailed,
                format!("drain: {status}: {}", said.text()),
            );
        }
        // What stays in the buffer is seen through the buffer.
        let seen = match verdict.withheld {
            true => self.view(&mut verdict)?,
            false => pfs.clone(),
        };
        let settled = tree::read(&pfs)?;
        let after = storage::objects(&storage);
        if has_instance && !verdict.has(Fault::RecoveryFailed) {
            self.again(status, is_sampled, &settled, &mut said, &mut verdict)?;
        }
        let shown = if verdict.withheld {
            tree::read(&seen)?
        } else {
            settled.clone()
        };
        self.look_at_what_is_left(&after, &shown, &settled, &said, &mut verdict);
        if let Some(drained) = progress
            .drained
            .as_deref()
            .filter(|_| !self.case.is_rebuilt())
            && tree::hash(&shown) != drained
        {
            verdict.fault(Fault::DrainedUndone, oracle::list(&shown));
        }
        self.look_after_objects(&before, &after, &settled, progress, &mut verdict);
        let withheld = |names: &BTreeSet<&str>, fits: &dyn Fn(&[u8]) -> bool| {
            let is_object = |(path, entry): (&String, &tree::Entry)| {
                fits(&entry.node.bytes) && said.names_object(path)
            };
            // A rebuild that lost the power has named it, and given it a name that says so.
            let was_beside = |(path, entry): (&String, &tree::Entry)| {
                let name = path.rsplit('/').next().unwrap_or(path);
                name.starts_with(BESIDE) && fits(&entry.node.bytes)
            };
            names.iter().any(|name| said.names(name))
                || after.iter().any(is_object)
                || self.case.interrupted.is_some() && shown.iter().any(was_beside)
        };
        self.look(&seen, progress, &withheld, &mut verdict)?;
        Ok(verdict)
    }

    /// The way of recovery that goes before the drain.
    fn before_drain(&self, verdict: &mut Verdict, said: &mut Said) -> anyhow::Result<()> {
        match self.case.recovery {
            Recovery::Drain => {}
            // It may end with an error for what it can't bring back, and then names that.
            Recovery::Rebuild => drop(self.tell("fsck", &["--rebuild"], said)?),
            Recovery::Start => {
                let output = self.places.run_in_buffer(&["true".into()])?;
                if !output.status.success() {
                    verdict.fault(
                        Fault::RecoveryFailed,
                        format!("run: {}", rig::both(&output)),
                    );
                }
            }
        }
        Ok(())
    }

    /// A copy of what programs see through the buffer.
    fn view(&self, verdict: &mut Verdict) -> anyhow::Result<PathBuf> {
        let (from, to) = (self.places.pfs().join("."), self.places.at("view"));
        let _ = fs::remove_dir_all(&to);
        fs::create_dir(&to)?;
        let command = ["cp".into(), "-a".into(), from.into(), to.clone().into()];
        let output = self.places.run_in_buffer(&command)?;
        self.say(
            "view",
            &format!("{}: {}", output.status, rig::both(&output)),
        );
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            let of_copy = errors.lines().find(|line| line.starts_with("cp:"));
            let seen = format!("through the buffer: {}", of_copy.unwrap_or(&errors));
            verdict.fault(Fault::RecoveryFailed, seen);
        }
        Ok(to)
    }

    /// A second drain changes nothing, and fsck finds nothing but what is withheld.
    fn again(
        &self,
        first: i32,
        is_sampled: bool,
        settled: &Tree,
        said: &mut Said,
        verdict: &mut Verdict,
    ) -> anyhow::Result<()> {
        if verdict.withheld || is_sampled {
            // As JSON it names all that is left.
            let options: &[&str] = if verdict.withheld { &["--json"] } else { &[] };
            let status = self.tell("drain", options, said)?;
            let now = tree::read(&self.places.pfs())?;
            if status != first || now != *settled {
                verdict.fault(
                    Fault::NotSettled,
                    format!("{status} after {first}: {}", oracle::list(&now)),
                );
            }
        }
        let mut of_fsck = Said::default();
        let status = self.tell("fsck", &[], &mut of_fsck)?;
        let is_sound = status == 0 || (verdict.withheld && of_fsck.finds_only_withheld());
        if !is_sound {
            verdict.fault(Fault::FsckFinds, of_fsck.text());
        }
        // What fsck names counts if the drain has said who knows.
        if said.text().contains(FSCK) {
            said.add(of_fsck.text(), &self.places.pfs());
        }
        Ok(())
    }

    fn look(
        &self,
        root: &Path,
        progress: &Progress,
        withheld: &rebuilt::Withheld<'_>,
        verdict: &mut Verdict,
    ) -> anyhow::Result<()> {
        let Case { workload, seed, .. } = self.case;
        if workload.program.is_foreign() {
            let checked = foreign::check(workload.program, seed, &self.places, root, progress);
            if let Err(seen) = checked {
                verdict.fault(Fault::ProgramFinds, seen);
            }
            return Ok(());
        }
        let tree = tree::read(root)?;
        for (path, entry) in &tree {
            self.say("tree", &format!("{path}: {} bytes", entry.node.bytes.len()));
        }
        verdict.faults.extend(if self.case.is_rebuilt() {
            rebuilt::judge(&self.ops, &self.states, progress, &tree, withheld)
        } else {
            oracle::judge(&self.ops, &self.states, progress, &tree)
        });
        Ok(())
    }

    /// Whatever is not on the PFS must have been named, by its path or as an object. After a drain that has withheld
    /// nothing there is nothing of that kind.
    fn look_at_what_is_left(
        &self,
        objects: &Tree,
        shown: &Tree,
        on_pfs: &Tree,
        said: &Said,
        verdict: &mut Verdict,
    ) {
        let holds =
            |tree: &Tree, bytes: &[u8]| tree.values().any(|entry| entry.node.bytes == bytes);
        let is_named = |(path, entry): &(&String, &tree::Entry)| {
            let of_file = |(path, found): (&String, &tree::Entry)| {
                found.node.bytes == entry.node.bytes && said.names(path)
            };
            verdict.withheld && (said.names_object(path) || shown.iter().any(of_file))
        };
        let object = objects
            .iter()
            .find(|left| !holds(on_pfs, &left.1.node.bytes) && !is_named(left));
        if let Some((path, entry)) = object {
            let seen = format!("object {path} with {} bytes", entry.node.bytes.len());
            verdict.fault(Fault::NotNamed, seen);
        }
        let differs = |path: &&String| {
            let (now, then) = (shown.get(*path), on_pfs.get(*path));
            let is_alike = now.map(|entry| &entry.node) == then.map(|entry| &entry.node);
            let is_file = now.or(then).is_some_and(|entry| !entry.node.is_dir);
            is_file && !is_alike && !said.names(path)
        };
        let paths = shown.keys().chain(on_pfs.keys());
        if let Some(path) = paths.into_iter().find(differs) {
            verdict.fault(Fault::NotNamed, format!("{path} differs on the PFS"));
        }
    }

    /// What labelled objects held must still be somewhere, unless the program has removed or overwritten it.
    fn look_after_objects(
        &self,
        before: &Tree,
        after: &Tree,
        on_pfs: &Tree,
        progress: &Progress,
        verdict: &mut Verdict,
    ) {
        if self.case.workload.program.is_foreign() {
            return;
        }
        let begun = progress.begun.min(self.ops.len());
        let kept = |bytes: &[u8]| {
            let mut all = after.values().chain(on_pfs.values());
            all.any(|entry| entry.node.bytes == bytes)
        };
        // The contents that a file has had at each moment: nobody was asked to remove or change it.
        let wanted = |bytes: &[u8]| {
            let last = &self.states[begun];
            let mut nodes = last.names.values();
            nodes.any(|node| last.nodes[*node].bytes == bytes)
        };
        let gone: Vec<&str> = before
            .iter()
            .filter(|(name, entry)| {
                let is_there = after
                    .get(*name)
                    .is_some_and(|now| now.node.bytes == entry.node.bytes);
                !is_there && wanted(&entry.node.bytes) && !kept(&entry.node.bytes)
            })
            .map(|(name, _)| name.as_str())
            .collect();
        if !gone.is_empty() {
            let first = gone.iter().take(3).copied().collect::<Vec<_>>().join(", ");
            verdict.fault(
                Fault::ObjectDeleted,
                format!("{} objects: {first}", gone.len()),
            );
        }
    }
}
