//! Verified copies get their names.
//!
//! That happens while nobody can change the namespace, and only if the record and the backing inode are what
//! they were when the copy began; else the copy is thrown away.

use crate::contents::{Copied, TRIES, Task, remove_temp, stamp};
use crate::counters::Counters;
use crate::ground::{Ground, Halt, Namespace};
use crate::notes::{self, INTENDED};
use crate::pass::Pass;
use crate::pfs::{self, During, Work};
use forebay_admin::drain::Reason;
use forebay_core::drain::{Update, copy_name};
use forebay_core::record::{Record, Stamp};
use forebay_core::table::Change;
use forebay_sys as sys;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

/// Why something is left that another thing on the PFS stands in the way of.
const STRANGER: &str =
    "something else has appeared there on the PFS; move it away, or rename one of the two";

impl<G: Ground + ?Sized> Pass<'_, G> {
    /// Gives verified copies their names, if nothing has changed.
    pub(crate) fn publish(&self, batch: Vec<Copied>) -> Result<Vec<Task>, Halt> {
        let mut again = Vec::new();
        let mut batch = Some(batch);
        self.ground.exclusively(&mut |ns| {
            let (good, stale) = self.sort_out(ns, batch.take().unwrap_or_default())?;
            for c in stale {
                self.discard(&c);
                self.changed(c.task, &mut again);
            }
            let good = self.without_strangers(good);
            if good.is_empty() {
                return Ok(());
            }
            self.intend(ns, &good)?;
            let mut updates = Vec::new();
            for c in good {
                self.points.pass()?;
                match self.name_all(&c).and_then(|()| self.settled(&c)) {
                    Ok(mut done) => {
                        updates.append(&mut done);
                        Counters::add(&self.counters.files_drained, 1);
                        self.done(&c.task);
                    }
                    Err(trouble) => {
                        self.discard(&c);
                        self.give_up(&c.task, trouble);
                    }
                }
            }
            self.points.pass()?;
            self.commit_published(ns, updates)
        })?;
        Ok(again)
    }

    /// Those of which the record and the backing inode are still what they were when the copy
    /// began, and the others.
    fn sort_out(
        &self,
        ns: &dyn Namespace,
        batch: Vec<Copied>,
    ) -> Result<(Vec<Copied>, Vec<Copied>), Halt> {
        let (mut good, mut stale) = (Vec::new(), Vec::new());
        for c in batch {
            let mut same = !c.file.as_ref().is_some_and(|(_, w)| w.is_short)
                && self
                    .ground
                    .objects()
                    .attr(c.task.object())
                    .is_ok_and(|attr| stamp(&attr) == c.stamp);
            for (path, record) in &c.task.ready {
                same = same && ns.tables().get(path)?.as_ref() == Some(record);
            }
            if same { &mut good } else { &mut stale }.push(c);
        }
        Ok((good, stale))
    }

    /// Without those where somebody else has put something of his own on the PFS meanwhile: the rename
    /// would destroy it.
    fn without_strangers(&self, batch: Vec<Copied>) -> Vec<Copied> {
        let mut good = Vec::with_capacity(batch.len());
        for c in batch {
            match self.meets_stranger(&c) {
                Ok(false) => good.push(c),
                Ok(true) => {
                    self.discard(&c);
                    for (path, _) in &c.task.ready {
                        self.leave_blocked(path, c.task.bytes, STRANGER.to_owned());
                    }
                    self.done(&c.task);
                }
                Err(trouble) => {
                    self.discard(&c);
                    self.give_up(&c.task, trouble);
                }
            }
        }
        good
    }

    fn meets_stranger(&self, c: &Copied) -> Work<bool> {
        for (path, record) in &c.task.ready {
            let ours = record.hides.is_some()
                || record.drained.is_some()
                || self.intended.lock().contains(path);
            if !ours && pfs::look(self.ground.lower(), path)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes down what is about to be named.
    fn intend(&self, ns: &mut dyn Namespace, batch: &[Copied]) -> Result<(), Halt> {
        let mut intended = self.intended.lock();
        for c in batch {
            intended.extend(c.task.ready.iter().map(|(path, _)| path.clone()));
        }
        ns.commit(vec![notes::change(INTENDED, &intended)], Vec::new())
    }

    /// Records and the note change together.
    fn commit_published(&self, ns: &mut dyn Namespace, updates: Vec<Update>) -> Result<(), Halt> {
        let mut intended = self.intended.lock();
        let mut batch = Vec::new();
        for Update { path, after, .. } in updates {
            if let Some(mut record) = after {
                intended.remove(&path);
                record.version = ns.next_version();
                batch.push(Change::Put { path, record });
            }
        }
        batch.push(notes::change(INTENDED, &intended));
        ns.commit(batch, Vec::new())
    }

    fn changed(&self, mut task: Task, again: &mut Vec<Task>) {
        task.tries += 1;
        if task.tries < TRIES {
            self.counters
                .bytes_total
                .fetch_add(task.bytes, Ordering::Relaxed);
            again.push(task);
            return;
        }
        for (path, _) in &task.ready {
            self.counters
                .leave(path, task.bytes, Reason::Changing, "", String::new());
        }
        self.done(&task);
    }

    /// What the records say afterwards.
    fn settled(&self, c: &Copied) -> Work<Vec<Update>> {
        let stamp = self.relabel(c)?;
        let updates = c.task.ready.iter().map(|(path, before)| Update {
            path: path.clone(),
            before: before.clone(),
            after: Some(Record {
                drained: Some(stamp),
                // The new name has replaced what was hidden.
                hides: None,
                ..before.clone()
            }),
        });
        Ok(updates.collect())
    }

    /// Labels say no more what was replaced. That changes the inode, and so what counts as clean.
    fn relabel(&self, c: &Copied) -> Work<Stamp> {
        let objects = self.ground.objects();
        let hiding = c.task.ready.iter().filter(|(_, r)| r.hides.is_some());
        let mut relabeled = false;
        for (_, record) in hiding {
            let label = objects.read_label(record.object).during("read label")?;
            if let Some(mut label) = label {
                label.hides = None;
                objects
                    .write_label(record.object, &label)
                    .during("write label")?;
                relabeled = true;
            }
        }
        if !relabeled {
            return Ok(c.stamp);
        }
        let attr = objects.attr(c.task.object()).during("stat in the buffer")?;
        let is_same = (attr.size, attr.mtime, attr.mode, attr.uid, attr.gid)
            == (
                c.attr.size,
                c.attr.mtime,
                c.attr.mode,
                c.attr.uid,
                c.attr.gid,
            );
        // Changed in this very moment: the old stamp makes it dirty.
        Ok(if is_same { stamp(&attr) } else { c.stamp })
    }

    /// All names: the first by a rename of the copy, the others by hard links.
    fn name_all(&self, c: &Copied) -> Work<()> {
        let temp = copy_name(c.task.contents.oid);
        let (first, _) = &c.task.ready[0];
        sys::rename(c.dir.as_fd(), &temp, c.dir.as_fd(), first.name()).during("rename")?;
        self.note_dir(first);
        for (path, _) in &c.task.ready[1..] {
            let dir = pfs::parent(self.ground.lower(), path)?;
            remove_temp(dir.as_fd(), &temp)?;
            sys::link(c.dir.as_fd(), first.name(), dir.as_fd(), &temp).during("link")?;
            sys::rename(dir.as_fd(), &temp, dir.as_fd(), path.name()).during("rename")?;
            // A rename between two names of one inode leaves both.
            remove_temp(dir.as_fd(), &temp)?;
            self.note_dir(path);
        }
        Ok(())
    }
}
