//! The processes that outlive the command of a run, and what each has of the buffer. `core::lifetime` decides what follows.

use crate::bridge::Bridge;
use crate::reception::Attached;
use crate::units;
use forebay_admin::LifetimeStatus;
use forebay_core::lifetime::Holding;
use forebay_sys as sys;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Most processes that a line names.
const NAMED: usize = 5;

/// A process that goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outliving {
    /// Its id.
    pub pid: u32,
    /// The name of its program; empty if it has just ended.
    pub name: String,
    /// What it has of the buffer.
    pub holding: Holding,
}

impl fmt::Display for Outliving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.pid, self.name)
    }
}

/// "2 processes (4711 (cat), 4712 (sh))".
pub fn text(all: &[Outliving]) -> String {
    let mut named: Vec<_> = all.iter().take(NAMED).map(Outliving::to_string).collect();
    if all.len() > NAMED {
        named.push("...".to_owned());
    }
    let count = units::count(all.len() as u64, "process", "processes");
    format!("{count}: {}", named.join(", "))
}

/// The children of a process, from all of its threads. The list of a process without children is right at one moment;
/// another one may miss children that come or go meanwhile.
fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let lists = tasks.into_iter().flatten().flatten();
    let text = lists.map(|task| fs::read_to_string(task.path().join("children")));
    text.flatten()
        .flat_map(|list| list.split_whitespace().map(str::parse).collect::<Vec<_>>())
        .flatten()
        .collect()
}

/// Reaps the children of this process that have ended, but `spared`. Gives those that are left.
pub fn reap(spared: &[u32]) -> Vec<u32> {
    loop {
        let left = children(std::process::id());
        let ended = left.iter().filter(|pid| !spared.contains(pid));
        // The children of one that has ended are ours now, and perhaps not in the list.
        if ended.filter(|pid| sys::reap(**pid)).count() == 0 {
            return left;
        }
    }
}

/// All processes that go on, except the bridge: descendants of this process, which adopts orphans, those that have joined the
/// run, with their descendants, and, if no other run uses the bridge, further programs that are connected to it. Without
/// any, nobody of the run is there any more.
pub fn find(bridge: &Bridge, life: &LifetimeStatus, attached: &[Attached]) -> Vec<Outliving> {
    let me = std::process::id();
    let mut found = BTreeMap::new();
    let mut parents = reap(&[bridge.pid]);
    parents.retain(|pid| *pid != bridge.pid);
    // The first ones count even if they have ended since: what they have left is found by the next look.
    for pid in &parents {
        found.insert(*pid, Holding::Nothing);
    }
    // They have come for the buffer, and may not have used it yet.
    for guest in attached.iter().filter(|guest| !guest.has_ended()) {
        found.insert(guest.pid, Holding::Connection);
        parents.push(guest.pid);
    }
    while let Some(parent) = parents.pop() {
        for child in children(parent) {
            if !is_over(child) && found.insert(child, Holding::Nothing).is_none() {
                parents.push(child);
            }
        }
    }
    for (pid, holding) in &mut found {
        *holding = (*holding).max(holds(*pid, &bridge.instance));
    }
    let is_alone = !life.stay && life.runs == [me];
    let has_descendants = !found.is_empty();
    let mut inherited = false;
    for program in &life.programs {
        match found.get_mut(program) {
            Some(holding) => *holding = (*holding).max(Holding::Connection),
            None if has_descendants && is_over(*program) => inherited = true,
            None if is_alone => {
                found.insert(*program, Holding::Connection);
            }
            None => {}
        }
    }
    let least = match inherited {
        // One of them has the connection of a process that has ended.
        true => Holding::Connection,
        false => Holding::Nothing,
    };
    found
        .into_iter()
        .map(|(pid, holding)| Outliving {
            pid,
            name: sys::process_name(pid),
            holding: holding.max(least),
        })
        .collect()
}

/// Has the process ended, with all its threads?
fn is_over(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return true;
    };
    // The state follows the name, which may hold anything.
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    matches!(state, Some('Z' | 'X')) && threads <= 1
}

/// What a process has of the buffer whose backing files are in `instance`, as far as this user may look.
fn holds(pid: u32, instance: &Path) -> Holding {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let descriptors = fs::read_dir(process.join("fd"));
    let descriptors = descriptors.into_iter().flatten().flatten();
    let mut links = descriptors
        .map(|fd| fd.path())
        .chain([process.join("cwd")])
        .filter_map(|link| fs::read_link(link).ok());
    if links.any(|target| target.starts_with(instance)) {
        return Holding::Files;
    }
    let maps = fs::read(process.join("maps")).unwrap_or_default();
    let instance = instance.as_os_str().as_encoded_bytes();
    let is_mapped = maps.windows(instance.len() + 1).any(|at| {
        let (path, end) = at.split_at(instance.len());
        path == instance && end == b"/"
    });
    match is_mapped {
        true => Holding::Files,
        false => Holding::Nothing,
    }
}
