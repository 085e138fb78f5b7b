//! Mounts images, recovers them, and judges what is there.

use crate::image::Image;
use crate::log::Log;
use crate::model::{Op, State, states};
use crate::oracle::{self, Fault, Progress};
use crate::pick::Pick;
use crate::recorder::Places;
use crate::rig::{self, DiskFile, Loop};
use crate::tree::{self, Tree};
use crate::verdict::Verdict;
use crate::workload::{Program, Workload};
use anyhow::Context;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// Attribute of Forebay's objects that says what they are.
const LABEL: &str = "user.forebay.label";
/// Exit status of Forebay when something stays in the buffer, and it has said what.
const DATA_LEFT: i32 = 75;
/// Longest text of one fault.
const SHOWN_BYTES: usize = 600;

/// Judges images of one log.
pub struct Judge<'a> {
    workload: Workload,
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
    pub fn new(
        workload: Workload,
        seed: u64,
        log: &'a Log,
        forebay: &Path,
        verbose: bool,
    ) -> anyhow::Result<Self> {
        let places = Places::new(forebay)?;
        let ops = workload.claims(seed);
        let states = states(&ops).context("the workload can't be carried out")?;
        let image = Image::new(log, workload.disks().len());
        let mut judge = Judge {
            workload,
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
        for (number, bytes) in self.workload.disks().into_iter().enumerate() {
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
        let mounts = self.places.mounts(self.workload);
        let mut mounted = Vec::new();
        let mut verdict = None;
        for (mount, (_, device)) in mounts.iter().zip(&self.disks) {
            match rig::mount_ext4(&device.device, mount) {
                Ok(()) => mounted.push(mount),
                Err(e) => verdict = Some(Verdict::of(Fault::Unmountable, format!("{e:#}"))),
            }
        }
        let progress = Progress::of(self.log.said(pick.point));
        let verdict = match verdict {
            Some(verdict) => Ok(verdict),
            None => self.recover(progress),
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

    fn recover(&self, progress: Progress) -> anyhow::Result<Verdict> {
        self.say("progress", &format!("{progress:?}"));
        let mut verdict = Verdict::default();
        let root = self.places.tree(self.workload);
        if self.workload.is_native() {
            self.look(&root, progress, &mut verdict)?;
            return Ok(verdict);
        }
        let before = objects(&self.places.storage());
        // Before there was an instance a drain says that there is nothing, and fsck has nothing to check.
        let has_instance = has_instance(&self.places.storage());
        let drain = self.places.forebay("drain", &[])?;
        let said = rig::both(&drain);
        self.say("drain", &format!("{}: {said}", drain.status));
        verdict.withheld = drain.status.code() == Some(DATA_LEFT);
        if has_instance && !drain.status.success() && !verdict.withheld {
            verdict.faults.push((
                Fault::RecoveryFailed,
                format!("drain: {}: {said}", drain.status),
            ));
        }
        self.look(&root, progress, &mut verdict)?;
        self.look_after_objects(&before, progress, &mut verdict)?;
        if verdict.has(Fault::RecoveryFailed) {
            return Ok(verdict);
        }
        if !has_instance {
            return Ok(verdict);
        }
        let settled = tree::read(&root)?;
        let again = self.places.forebay("drain", &[])?;
        self.say(
            "drain again",
            &format!("{}: {}", again.status, rig::both(&again)),
        );
        if again.status.code() != drain.status.code() || tree::read(&root)? != settled {
            verdict.faults.push((
                Fault::NotSettled,
                format!("{}: {}", again.status, rig::both(&again)),
            ));
        }
        let fsck = self.places.forebay("fsck", &[])?;
        self.say("fsck", &format!("{}: {}", fsck.status, rig::both(&fsck)));
        if !fsck.status.success() {
            verdict.faults.push((Fault::FsckFinds, rig::both(&fsck)));
        }
        Ok(verdict)
    }

    fn look(&self, root: &Path, progress: Progress, verdict: &mut Verdict) -> anyhow::Result<()> {
        if self.workload.program == Program::Sqlite {
            verdict.faults.extend(
                database(root, progress)
                    .err()
                    .map(|seen| (Fault::ProgramFinds, seen)),
            );
            return Ok(());
        }
        let tree = tree::read(root)?;
        self.say("tree", &format!("{:?}", tree.keys().collect::<Vec<_>>()));
        // What a recovery withholds it has listed; then names may be missing on the PFS.
        if !verdict.withheld {
            verdict
                .faults
                .extend(oracle::judge(&self.ops, &self.states, progress, &tree));
        }
        Ok(())
    }

    /// What labelled objects held must still be somewhere, unless the program has removed or overwritten it.
    fn look_after_objects(
        &self,
        before: &Tree,
        progress: Progress,
        verdict: &mut Verdict,
    ) -> anyhow::Result<()> {
        if self.workload.program == Program::Sqlite {
            return Ok(());
        }
        let after = objects(&self.places.storage());
        let on_pfs = tree::read(&self.places.pfs())?;
        let begun = progress.begun.min(self.ops.len());
        let kept = |bytes: &[u8]| {
            after
                .values()
                .chain(on_pfs.values())
                .any(|entry| entry.node.bytes == bytes)
        };
        // The contents that a file has had at each moment: nobody was asked to remove or change it.
        let wanted = |bytes: &[u8]| {
            let last = &self.states[begun];
            last.names
                .values()
                .any(|node| last.nodes[*node].bytes == bytes)
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
            verdict.faults.push((
                Fault::ObjectDeleted,
                format!("{} objects: {first}", gone.len()),
            ));
        }
        Ok(())
    }
}

/// Had a bridge written down for what its storage is?
fn has_instance(storage: &Path) -> bool {
    let mut entries = fs::read_dir(storage).into_iter().flatten().flatten();
    entries.any(|entry| entry.path().join("root").exists())
}

/// The labelled objects with something in them, by path in the storage.
fn objects(storage: &Path) -> Tree {
    let mut all = Tree::new();
    for instance in fs::read_dir(storage).into_iter().flatten().flatten() {
        let objects = instance.path().join("obj");
        let Ok(found) = tree::read(&objects) else {
            continue;
        };
        all.extend(found.into_iter().filter(|(path, entry)| {
            !entry.node.bytes.is_empty() && tree::attribute(&objects.join(path), LABEL).is_some()
        }));
    }
    all
}

/// Is the database whole, with every acknowledged row?
fn database(dir: &Path, progress: Progress) -> Result<(), String> {
    let file = dir.join("base.db");
    if !file.exists() {
        return if progress.acknowledged == 0 {
            Ok(())
        } else {
            Err("there is no base.db".into())
        };
    }
    let question = "pragma integrity_check; select count(*), coalesce(max(id), -1) from t;";
    let answer = rig::run("sqlite3", &[OsString::from(&file), question.into()]);
    let answer = match answer {
        Err(_) if progress.acknowledged == 0 => return Ok(()),
        Err(e) => return Err(format!("{e:#}")),
        Ok(answer) => answer,
    };
    let lines: Vec<&str> = answer.lines().collect();
    let rows: Vec<i64> = lines.last().map_or(Vec::new(), |last| {
        last.split('|').flat_map(str::parse).collect()
    });
    let [count, last] = rows[..] else {
        return Err(answer);
    };
    let is_right = lines[0] == "ok" && count == last + 1;
    let fits = count >= progress.acknowledged as i64 && count <= progress.begun as i64;
    if is_right && fits {
        Ok(())
    } else {
        Err(format!("{progress:?}: {answer}"))
    }
}
