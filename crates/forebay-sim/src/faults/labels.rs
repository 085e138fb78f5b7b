//! Labels that have to follow a rename.
//!
//! The owner of an object writes its label, and learns the record from its home.
//! It looks at the record, at the directory above, and at the record again: if
//! that is still the same version, then the directory was above it in between.

use super::disk::{Inode, Work};
use super::env::{Alarm, Env};
use super::look::Hand;
use super::node::{Node, Purpose, Waiter};
use super::request::settings;
use forebay_core::facts::{Cred, Facts, Label, Outcome, Stop};
use forebay_core::label::label_at;
use forebay_core::markers::may_be_unmade;
use forebay_core::path::TreePath;
use forebay_core::record::{Kind, ObjectName};
use forebay_core::request::{Known, Look};
use forebay_core::table::{Change, Tables};
use forebay_core::walk::Walk;

/// Markers are made so much later.
const MARKERS_WAIT_US: u64 = 20_000;
/// Until then the tables say of a marker that was made that it is still to be made.
const NOTE_WAITS_US: u64 = 20_000;

/// Looks at a record of which nobody can tell the label, before that is given up.
const MOST_TRIES: u32 = 10_000;

/// A label that is being written.
#[derive(Debug, Default)]
pub(super) struct Labeling {
    pub(super) known: Known,
    /// Version of the record at the first look, and the label that belongs to it.
    first: Option<(u64, Label)>,
    /// The record has changed since.
    outdated: bool,
    /// How often nobody could tell the label.
    tries: u32,
}

impl Node {
    /// The label of `object` is to be written anew.
    pub(super) fn relabel(&mut self, object: ObjectName) {
        match self.labels.get_mut(&object) {
            Some(labeling) => labeling.outdated = true,
            None => {
                self.labels.insert(object, Labeling::default());
                self.ready.push_back(Waiter::Label(object));
            }
        }
    }

    /// Is it a marker that is not made yet?
    fn is_to_be_made(&self, object: ObjectName, kind: Kind) -> bool {
        let is_made = self.disk.objects.contains_key(&object);
        !is_made && may_be_unmade(kind)
    }

    /// Is it a marker that may be made later?
    pub(super) fn comes_later(&self, object: ObjectName) -> bool {
        let path = self.tables.path_of(object).ok().flatten();
        let record = path.and_then(|path| self.tables.get(&path).ok().flatten());
        record.is_some_and(|record| self.is_to_be_made(object, record.kind))
    }

    pub(super) fn mark_later(&mut self, object: ObjectName, env: &mut Env) {
        match self.labels.get_mut(&object) {
            Some(labeling) => labeling.outdated = true,
            None => {
                self.labels.insert(object, Labeling::default());
                self.alarm(MARKERS_WAIT_US, Alarm::Label(object), env);
            }
        }
    }

    pub(super) fn go_on_labeling(&mut self, object: ObjectName, env: &mut Env) {
        let Some(bridge) = &self.bridge else {
            return;
        };
        let Some(mut labeling) = self.labels.remove(&object) else {
            return;
        };
        if labeling.outdated {
            labeling = Labeling::default();
        }
        let path = match bridge.path_of(object, &self.tables) {
            Ok(path) => path,
            Err(e) => return env.broken(e.to_string()),
        };
        let Some(path) = path else {
            // The name is gone again.
            self.apply(&[Change::Relabeled(object)]);
            return;
        };
        let seen = {
            let pfs = self.lower.borrow();
            let hand = Hand {
                // A label is written from records; what is on the PFS is asked for dirs alone.
                is_slow: false,
                ..self.hand(bridge, &pfs, env)
            };
            label_now(&Look::new(&hand, &labeling.known), &path, object)
        };
        match seen {
            Ok(Some(now)) if labeling.first.as_ref() == Some(&now) => {
                let (_, label) = now;
                if self.is_to_be_made(object, label.kind) {
                    // Whoever removes it meanwhile waits, and finds it.
                    let number = self
                        .disk
                        .begin(Work::Make(object, label, Some(Inode::new(0, 0))));
                    self.disk.finish(number);
                    self.made_markers.insert(object);
                    self.alarm(NOTE_WAITS_US, Alarm::Marked(object), env);
                } else {
                    self.labels.insert(object, labeling);
                    self.begin(Work::Relabel(object, label), Purpose::Label(object), env);
                }
            }
            Ok(Some(now)) => {
                labeling.first = Some(now);
                labeling.known = Known::default();
                self.labels.insert(object, labeling);
                self.ready.push_back(Waiter::Label(object));
            }
            Err(Stop::Need(need)) => {
                self.labels.insert(object, labeling);
                self.fetch(Waiter::Label(object), need, env);
            }
            // Others have put something else in the place of its directory. The mark stays, and the next start tries again.
            Ok(None) | Err(_) if labeling.tries == MOST_TRIES => {}
            Ok(None) | Err(_) => {
                // It is on its way to another name.
                let tries = labeling.tries + 1;
                let again = Labeling {
                    tries,
                    ..Labeling::default()
                };
                self.labels.insert(object, again);
                self.alarm(1_000, Alarm::Label(object), env);
            }
        }
    }

    /// Notes that a marker is made, unless it is to be labelled once more.
    pub(super) fn marked(&mut self, object: ObjectName) {
        if self.made_markers.remove(&object) {
            self.apply(&[Change::Relabeled(object)]);
        }
    }

    /// The disk has written a label.
    pub(super) fn labeled(&mut self, object: ObjectName) {
        match self.labels.get(&object) {
            Some(labeling) if labeling.outdated => self.ready.push_back(Waiter::Label(object)),
            Some(_) => {
                self.labels.remove(&object);
                self.apply(&[Change::Relabeled(object)]);
            }
            None => {}
        }
    }
}

/// The label that belongs to what is at `path`, if that is `object`, with the version of the record.
fn label_now(
    look: &Look<'_>,
    path: &TreePath,
    object: ObjectName,
) -> Outcome<Option<(u64, Label)>> {
    let Some(record) = look.record(path)?.filter(|r| r.object == object) else {
        return Ok(None);
    };
    let settings = settings(0, usize::MAX);
    let cred = Cred::default();
    let walk = Walk::new(&cred, &settings, look, false);
    let label = label_at(&walk, path, &record)?;
    Ok(Some((record.version, label)))
}
