//! What happened, in order, for people.

use forebay_core::bridge::{Body, Message, Part};
use forebay_core::path::TreePath;
use forebay_core::record::BridgeId;
use forebay_core::table::Change;

/// One line.
#[derive(Debug, Clone)]
struct Line {
    time: u64,
    who: String,
    what: String,
    /// What it is about; empty if it concerns everybody.
    paths: Vec<TreePath>,
}

/// The lines of one run; none are kept unless it was asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct Trace {
    on: bool,
    lines: Vec<Line>,
}

impl Trace {
    pub(super) fn new(on: bool) -> Self {
        Trace {
            on,
            lines: Vec::new(),
        }
    }

    /// Notes something. The text is only made if someone will read it.
    pub(super) fn note(
        &mut self,
        time: u64,
        who: impl FnOnce() -> String,
        what: impl FnOnce() -> (String, Vec<TreePath>),
    ) {
        if self.on {
            let (what, paths) = what();
            self.lines.push(Line {
                time,
                who: who(),
                what,
                paths,
            });
        }
    }

    pub(super) fn message(
        &mut self,
        verb: &str,
        from: BridgeId,
        to: BridgeId,
        time: u64,
        message: &Message,
    ) {
        let who = || format!("bridge {}", from.0);
        self.note(time, who, || {
            let (text, paths) = body(&message.body);
            (format!("{verb} to {}: {text}", to.0), paths)
        });
    }

    /// The lines that concern `paths`, or all if there are none.
    pub(super) fn text(&self, paths: &[TreePath]) -> String {
        let concerns = |line: &Line| {
            paths.is_empty()
                || line.paths.is_empty()
                || line
                    .paths
                    .iter()
                    .any(|a| paths.iter().any(|b| a.is_within(b) || b.is_within(a)))
        };
        let mut out = String::new();
        for line in self.lines.iter().filter(|l| concerns(l)) {
            let ms = line.time as f64 / 1000.0;
            out += &format!("{ms:>12.3} ms  {:<10} {}\n", line.who, line.what);
        }
        out
    }
}

fn names(paths: &[TreePath]) -> String {
    let names: Vec<_> = paths.iter().map(ToString::to_string).collect();
    names.join(" ")
}

fn part(part: &Part) -> (String, Vec<TreePath>) {
    let mut paths: Vec<_> = part.reads.iter().map(|(p, _)| p.clone()).collect();
    paths.retain(|p| !p.is_root());
    paths.extend(part.ranges.iter().map(|(p, _)| p.clone()));
    let (text, written) = changes(&part.changes);
    paths.extend(written);
    (text, paths)
}

/// A batch as text, and the paths in it.
pub(super) fn changes(changes: &[Change]) -> (String, Vec<TreePath>) {
    let mut words = Vec::new();
    let mut paths = Vec::new();
    for change in changes {
        words.push(match change {
            Change::Put { path, record } => {
                paths.push(path.clone());
                format!("put {path}={:?}:{:?}", record.kind, record.object.oid)
            }
            Change::Delete { path, .. } => {
                paths.push(path.clone());
                format!("delete {path}")
            }
            Change::Doom { object, .. } => format!("doom {:?}", object.oid),
            Change::Undoom(object) => format!("undoom {:?}", object.oid),
            Change::Relabel(object) => format!("relabel {:?}", object.oid),
            Change::Relabeled(object) => format!("relabeled {:?}", object.oid),
            Change::Meta { key, value } => {
                let key = key.escape_ascii().to_string();
                let verb = if value.is_some() { "set" } else { "clear" };
                format!("{verb} {key}")
            }
        });
    }
    (words.join(", "), paths)
}

fn body(body: &Body) -> (String, Vec<TreePath>) {
    match body {
        Body::Fetch { path, .. } => (format!("fetch {path}"), vec![path.clone()]),
        Body::Fetched { request, record } => {
            let what = record.as_ref().map(|r| (r.kind, r.object.oid));
            (format!("fetched {request:x}: {what:?}"), Vec::new())
        }
        Body::FetchRange { dir, .. } => (format!("fetch below {dir}"), vec![dir.clone()]),
        Body::FetchedRange { entries, .. } => {
            let paths: Vec<_> = entries.iter().map(|(p, _)| p.clone()).collect();
            (format!("fetched below: {}", names(&paths)), paths)
        }
        Body::Prepare {
            txn,
            primary,
            part: p,
        } => {
            let (text, paths) = part(p);
            let primary = primary.0;
            let seq = txn.seq;
            (
                format!("prepare {seq:x} (primary {primary}): {text}"),
                paths,
            )
        }
        Body::Commit { txn, part: p } => {
            let (text, paths) = part(p);
            (format!("commit {:x}: {text}", txn.seq), paths)
        }
        Body::Vote { txn, vote } => {
            let vote = if vote.is_ok() { "yes" } else { "no" };
            let (by, seq) = (txn.coordinator.0, txn.seq);
            (format!("vote {vote} on {by}:{seq:x}"), Vec::new())
        }
        Body::Outcome { txn, committed, .. } => {
            let (by, seq) = (txn.coordinator.0, txn.seq);
            (
                format!("outcome of {by}:{seq:x}: {}", word(*committed)),
                Vec::new(),
            )
        }
        Body::Decide { txn, committed } => {
            let seq = txn.seq;
            (format!("decide {seq:x}: {}", word(*committed)), Vec::new())
        }
        Body::Ack { txn } => (format!("ack {:x}", txn.seq), Vec::new()),
        Body::Query { txn } => {
            let (by, seq) = (txn.coordinator.0, txn.seq);
            (format!("query {by}:{seq:x}"), Vec::new())
        }
        Body::Settled => ("settled".to_owned(), Vec::new()),
    }
}

fn word(committed: bool) -> &'static str {
    if committed { "commit" } else { "abort" }
}
