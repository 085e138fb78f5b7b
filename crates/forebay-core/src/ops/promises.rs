//! Rules for decisions, as [`Decision`] and [`Answer`] document them. Checked in builds with debug assertions.

use super::{Answer, Decision, FollowUp, Op};
use crate::batch;
use crate::table::Change;

/// Effects that are looked at: each takes a search.
const MOST_LOOKED_AT: usize = 1024;

/// Asserts it.
#[track_caller]
pub(super) fn assert_kept(op: &Op, decision: &Decision) {
    if !cfg!(debug_assertions) {
        return;
    }
    batch::assert_well_formed(&decision.batch);
    if only_looks(op) {
        assert!(
            decision.batch.is_empty() && decision.follow_ups.is_empty(),
            "an operation that only looks changes something: {op:?}"
        );
    }
    match &decision.answer {
        Answer::Grant { flags, .. } => {
            assert!(flags & libc::O_CREAT == 0, "a grant that creates");
        }
        Answer::Entries { entries, .. } => {
            // "." and ".." come first in the first part.
            let dots = entries.iter().take(2).filter(|e| is_dot(&e.name)).count();
            // The PFS may list a name twice, so equal ones are no fault of ours.
            assert!(
                entries[dots..].is_sorted_by(|a, b| a.name <= b.name),
                "entries out of order"
            );
        }
        Answer::Done | Answer::Attr(_) | Answer::Bytes(_) => {}
    }
    assert_marked(decision);
}

/// Work on objects after the commit leaves a trace if the bridge dies before it is done.
#[track_caller]
fn assert_marked(decision: &Decision) {
    let unseen = decision.unseen.as_ref();
    for follow_up in decision.follow_ups.iter().take(MOST_LOOKED_AT) {
        let marked = match follow_up {
            FollowUp::Remove(object) => {
                decision
                    .batch
                    .iter()
                    .any(|c| matches!(c, Change::Doom(o) if o == object))
                    || unseen.is_some_and(|u| u.records.iter().any(|(_, o)| o == object))
            }
            FollowUp::Relabel(object, _) | FollowUp::Mark(object) => {
                decision.batch.contains(&Change::Relabel(*object))
            }
            FollowUp::Void(object, _) => decision.batch.contains(&Change::Doom(*object)),
            FollowUp::Touch(_) => true,
        };
        assert!(marked, "no mark for {follow_up:?}");
    }
}

/// True for operations that never change the tables. `open` and `resolve` may stage a file, so they are not among
/// them.
fn only_looks(op: &Op) -> bool {
    matches!(
        op,
        Op::Stat { .. }
            | Op::Readlink { .. }
            | Op::ReadDir { .. }
            | Op::NameOf { .. }
            | Op::Realpath { .. }
    )
}

fn is_dot(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

#[cfg(test)]
mod tests {
    use super::super::{Entry, GrantTarget};
    use super::*;
    use crate::facts::{Attr, Judged};
    use crate::path::TreePath;
    use crate::record::{BridgeId, ObjectId, ObjectName};

    fn decision(answer: Answer) -> Decision {
        Decision {
            batch: Vec::new(),
            unseen: None,
            follow_ups: Vec::new(),
            answer,
        }
    }

    fn op() -> Op {
        Op::NameOf {
            start: super::super::Start::Root,
        }
    }

    fn entries(names: &[&str]) -> Answer {
        let entry = |name: &&str| Entry {
            name: name.as_bytes().to_vec(),
            ino: 1,
            dtype: libc::DT_REG,
        };
        Answer::Entries {
            entries: names.iter().map(entry).collect(),
            more: false,
        }
    }

    #[test]
    fn a_listing_begins_with_dots_and_is_sorted() {
        assert_kept(&op(), &decision(entries(&[".", "..", "\u{1}", "-", "a"])));
        assert_kept(&op(), &decision(entries(&["a", "b"])));
    }

    #[test]
    #[should_panic(expected = "entries out of order")]
    fn a_listing_out_of_order_is_a_broken_assertion() {
        assert_kept(&op(), &decision(entries(&["b", "a"])));
    }

    #[test]
    #[should_panic(expected = "a grant that creates")]
    fn a_grant_that_creates_is_a_broken_assertion() {
        let target = GrantTarget::Lower(TreePath::root(), Judged::new(&Attr::default()));
        let flags = libc::O_CREAT;
        assert_kept(&op(), &decision(Answer::Grant { target, flags }));
    }

    #[test]
    #[should_panic(expected = "an operation that only looks changes something")]
    fn a_look_that_changes_something_is_a_broken_assertion() {
        let mut decision = decision(Answer::Done);
        decision.batch.push(Change::Undoom(ObjectName::default()));
        assert_kept(&op(), &decision);
    }

    #[test]
    #[should_panic(expected = "no mark for Remove")]
    fn an_object_that_goes_without_a_mark_is_a_broken_assertion() {
        let object = ObjectName {
            oid: ObjectId::new(BridgeId(1), 1, 4),
            link: 0,
        };
        let mut decision = decision(Answer::Done);
        decision.follow_ups.push(FollowUp::Remove(object));
        let path = super::super::Path {
            start: super::super::Start::Root,
            bytes: b"f".to_vec(),
        };
        assert_kept(&Op::Unlink { path, dir: false }, &decision);
    }
}
