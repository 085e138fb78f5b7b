//! What happened, in order, for people.

use forebay_core::bridge::{Body, Message, Part, TxnId};
use forebay_core::path::TreePath;
use forebay_core::record::BridgeId;
use forebay_core::table::Change;
use std::collections::BTreeMap;

/// One line.
#[derive(Debug, Clone)]
struct Line {
    time: u64,
    who: String,
    what: String,
    /// What it is about; empty if it concerns everybody.
    paths: Vec<TreePath>,
}

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Sent,
    Lost,
    Received,
}

/// The lines of one run; none are kept unless it was asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct Trace {
    on: bool,
    lines: Vec<Line>,
    /// What was asked for, because the answers don't repeat it.
    asked: BTreeMap<(BridgeId, u64), TreePath>,
}

impl Trace {
    pub(super) fn new(on: bool) -> Self {
        Trace {
            on,
            ..Trace::default()
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
        way: Way,
        from: BridgeId,
        to: BridgeId,
        time: u64,
        message: &Message,
    ) {
        if !self.on {
            return;
        }
        if let Body::Fetch { request, path } = &message.body {
            self.asked.insert((from, *request), path.clone());
        }
        let (text, paths) = match &message.body {
            Body::Fetched {
                request, record, ..
            } => {
                let path = self.asked.get(&(to, *request)).cloned().unwrap_or_default();
                let what = record.as_ref().map(|r| (r.kind, r.object.oid));
                (format!("fetched {path}: {what:?}"), vec![path])
            }
            other => body(other),
        };
        let who = if way == Way::Received { to } else { from };
        self.note(
            time,
            || format!("bridge {}", who.0),
            || {
                let way = match way {
                    Way::Sent => format!("to {}", to.0),
                    Way::Lost => format!("to {}, lost", to.0),
                    Way::Received => format!("from {}", from.0),
                };
                (format!("{way}: {text}"), paths)
            },
        );
    }

    /// The lines that concern `paths`, or all if there are none.
    pub(super) fn text(&self, paths: &[TreePath]) -> String {
        let concerns = |line: &Line| {
            paths.is_empty()
                || line.paths.is_empty()
                || line
                    .paths
                    .iter()
                    .filter(|p| !p.is_root())
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
            Change::Doom(object) => format!("doom {:?}", object.oid),
            Change::Undoom(object) => format!("undoom {:?}", object.oid),
            Change::Relabel(object) => format!("relabel {:?}", object.oid),
            Change::Relabeled(object) => format!("relabeled {:?}", object.oid),
            Change::Meta { key, value } => match meta(key) {
                Some(name) => format!("{} {name}", if value.is_some() { "set" } else { "clear" }),
                // Every batch has one of these.
                None => continue,
            },
        });
    }
    (words.join(", "), paths)
}

fn body(body: &Body) -> (String, Vec<TreePath>) {
    match body {
        Body::Fetch { path, .. } => (format!("fetch {path}"), vec![path.clone()]),
        Body::Fetched { .. } => ("fetched".to_owned(), Vec::new()),
        Body::FetchChildren { dir, .. } => (format!("fetch children of {dir}"), vec![dir.clone()]),
        Body::FetchBelow { dir, .. } => (format!("fetch below {dir}"), vec![dir.clone()]),
        Body::FetchSpeakers { of, before, .. } => (
            format!("fetch speakers of {of:?} before {before:?}"),
            Vec::new(),
        ),
        Body::FetchedSpeakers { part, .. } => (format!("fetched {part:?}"), Vec::new()),
        Body::FetchNames { object, .. } => (format!("fetch names of {object}"), Vec::new()),
        Body::FetchedNames { names, .. } => (format!("fetched names {names:?}"), Vec::new()),
        Body::FetchedChildren { children, .. } => {
            (format!("fetched {} children", children.len()), Vec::new())
        }
        Body::FetchedBelow { entries, .. } => {
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
            let text = format!("prepare {} (primary {primary}): {text}", name(*txn));
            (text, paths)
        }
        Body::Commit { txn, part: p } => {
            let (text, paths) = part(p);
            (format!("commit {}: {text}", name(*txn)), paths)
        }
        Body::Vote { txn, vote } => {
            let vote = if vote.is_ok() { "yes" } else { "no" };
            (format!("vote {vote} on {}", name(*txn)), Vec::new())
        }
        Body::Outcome { txn, committed, .. } => {
            let text = format!("outcome of {}: {}", name(*txn), word(*committed));
            (text, Vec::new())
        }
        Body::Decide { txn, committed } => {
            let text = format!("decide {}: {}", name(*txn), word(*committed));
            (text, Vec::new())
        }
        Body::Ack { txn } => (format!("ack {}", name(*txn)), Vec::new()),
        Body::Query { txn } => (format!("query {}", name(*txn)), Vec::new()),
        Body::Settled => ("settled".to_owned(), Vec::new()),
    }
}

fn word(committed: bool) -> &'static str {
    if committed { "commit" } else { "abort" }
}

/// Coordinator, its life, and the number in it.
fn name(txn: TxnId) -> String {
    let (by, life, number) = (txn.coordinator.0, txn.seq >> 32, txn.seq as u32);
    format!("{by}:{life}.{number}")
}

/// A named value of the transaction layer. `None` for the memory of requests.
fn meta(key: &[u8]) -> Option<String> {
    let text = key.escape_ascii().to_string();
    let rest = text.strip_prefix("bridge/")?;
    let (kind, _) = rest.split_once('/')?;
    let value = &key["bridge/".len() + kind.len() + 1..];
    let number = |from: usize, to: usize| {
        let bytes = value.get(from..to)?;
        Some(bytes.iter().fold(0, |n: u64, b| n << 8 | u64::from(*b)))
    };
    Some(match kind {
        "done" => return None,
        "intent" | "prepared" | "outcome" => {
            let coordinator = BridgeId(number(0, 4)? as u32);
            let seq = number(4, 12)?;
            format!("{kind} {}", name(TxnId { coordinator, seq }))
        }
        "owned" => format!(
            "owned {:x}.{:x}.{:x}",
            number(0, 4)?,
            number(4, 8)?,
            number(8, 16)?
        ),
        "settled" => format!("settled {}", number(0, 4)?),
        _ => rest.to_owned(),
    })
}
