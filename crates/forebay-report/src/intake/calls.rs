//! Calls on names that are in no record: `access`, failed `stat` and `open`, `unlink`, `readdir` and the like. The recorder
//! notes them by rank, with the time that they took.

use super::Intake;
use super::uses::LayerBuilder;
use crate::model::{Counters, File, Flushing, Interface, Wait};
use std::collections::BTreeMap;

/// The name of the note.
pub(super) const NOTE: &str = "calls";
/// Most entries that are read; more ranks than that need no list of their calls.
const MOST: usize = 1 << 20;

/// A sort of calls.
pub(super) struct Kind {
    /// As the recorder calls it.
    key: &'static str,
    /// As the report shows it, in the place of a file.
    pub name: &'static str,
    sort: Sort,
}

/// What calls do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    /// They ask whether a name is there, or what it is.
    Ask,
    /// They change names.
    Other,
    /// They wait until storage has what was written, of more than one file or a part of one.
    Flush,
    /// They wait for somebody else, and do no I/O.
    Wait,
}

const KINDS: [Kind; 17] = [
    asking("access", "(access)"),
    asking("stat_missed", "(stat that failed)"),
    asking("open_failed", "(open that failed)"),
    asking("readlink", "(readlink)"),
    asking("xattr", "(extended attributes)"),
    other("mkdir", "(mkdir)"),
    other("rmdir", "(rmdir)"),
    other("unlink", "(unlink)"),
    other("link", "(link)"),
    other("symlink", "(symlink)"),
    other("opendir", "(opendir)"),
    other("readdir", "(readdir)"),
    other("attributes", "(chmod, chown, utimes)"),
    other("truncate", "(truncate)"),
    kind(
        "sync_range",
        "(sync, syncfs, sync_file_range, msync)",
        Sort::Flush,
    ),
    waiting("opened_pipe", "opens of pipes"),
    waiting("lock", "calls for locks on files"),
];

const fn asking(key: &'static str, name: &'static str) -> Kind {
    kind(key, name, Sort::Ask)
}

const fn other(key: &'static str, name: &'static str) -> Kind {
    kind(key, name, Sort::Other)
}

const fn waiting(key: &'static str, name: &'static str) -> Kind {
    kind(key, name, Sort::Wait)
}

const fn kind(key: &'static str, name: &'static str, sort: Sort) -> Kind {
    Kind { key, name, sort }
}

/// The calls of one rank of one sort.
pub(super) struct Calls {
    pub rank: u32,
    pub kind: &'static Kind,
    pub calls: u64,
    pub nanoseconds: u64,
}

impl Calls {
    pub fn counters(&self) -> Counters {
        let seconds = self.nanoseconds as f64 / 1e9;
        if self.kind.sort == Sort::Flush {
            let mut counters = Counters {
                syncs: self.calls,
                flushing: Flushing {
                    timed_syncs: self.calls,
                    sync_seconds: seconds,
                    ..Flushing::default()
                },
                ..Counters::default()
            };
            counters.write.seconds = seconds;
            return counters;
        }
        let (asked, other_calls) = match self.kind.sort {
            Sort::Ask => (self.calls, 0),
            Sort::Other | Sort::Flush | Sort::Wait => (0, self.calls),
        };
        Counters {
            asked,
            other_calls,
            meta_seconds: seconds,
            ..Counters::default()
        }
    }
}

/// The calls in the text of a note. What is none is left out.
pub(super) fn of(note: &str) -> Vec<Calls> {
    let rows: Vec<(u32, String, u64, u64)> = serde_json::from_str(note).unwrap_or_default();
    let known = rows
        .into_iter()
        .take(MOST)
        .filter_map(|(rank, key, calls, nanoseconds)| {
            let kind = KINDS.iter().find(|kind| kind.key == key)?;
            Some(Calls {
                rank,
                kind,
                calls,
                nanoseconds,
            })
        });
    known.collect()
}

impl Intake {
    /// Adds calls that are in no record to the system calls, each kind as if it were a file. What waits is noted apart.
    pub(super) fn add_calls(&mut self) {
        let mut files: BTreeMap<&str, usize> = BTreeMap::new();
        for one in std::mem::take(&mut self.calls) {
            let counters = self.believed(one.counters());
            if one.kind.sort == Sort::Wait {
                self.job.waits.push(Wait {
                    rank: one.rank,
                    what: one.kind.name,
                    calls: counters.other_calls,
                    seconds: counters.meta_seconds,
                });
                continue;
            }
            let file = *files.entry(one.kind.name).or_insert_with(|| {
                self.job.files.push(File {
                    name: one.kind.name.to_owned(),
                    is_calls: true,
                    ..File::default()
                });
                self.job.files.len() - 1
            });
            let layer = self.layers.entry(Interface::Posix);
            let layer = layer.or_insert_with(|| LayerBuilder::new(Interface::Posix));
            if counters.flushing.seconds() > 0.0 {
                layer.add_waits(file, vec![(one.rank, counters.flushing.seconds())]);
            }
            layer.add_rank(file, counters, one.rank);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_list_of_known_calls_is_left_out() {
        let calls = of(r#"[[0,"access",5,1000000000],[1,"of tomorrow",1,1],[2,"unlink",3,0]]"#);
        let told: Vec<_> = calls.iter().map(|one| (one.rank, one.kind.name)).collect();
        assert_eq!(told, [(0, "(access)"), (2, "(unlink)")]);
        assert_eq!(
            (calls[0].counters().asked, calls[1].counters().other_calls),
            (5, 3)
        );
        assert_eq!(calls[0].counters().meta_seconds, 1.0);
        for nonsense in [
            "",
            "{}",
            "[[0]]",
            "[[-1,\"access\",1,1]]",
            "[[0,\"access\",1e99,1]]",
        ] {
            assert!(of(nonsense).is_empty(), "{nonsense}");
        }
    }
}
