//! The processes that outlive the command of a run, and what each has of the buffer. `core::lifetime` decides which these are,
//! and what follows.

use crate::bridge::Bridge;
use crate::reception::Attached;
use crate::units;
use forebay_admin::LifetimeStatus;
use forebay_core::lifetime::{self, BridgeUsers, Holding};
use forebay_sys as sys;
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
    /// The name of its program.
    pub name: String,
    /// What it has of the buffer.
    pub holding: Holding,
}

impl fmt::Display for Outliving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.pid, self.name)
    }
}

/// "2 processes (4711 (cat), 4712 (sh))". The server of the mount, which ends after all that see it, is named only if it is the last.
pub fn text(all: &[Outliving]) -> String {
    let of_command = all.iter().filter(|process| !serves_mount(process.pid));
    let mut of_command: Vec<_> = of_command.collect();
    if of_command.is_empty() {
        of_command.extend(all);
    }
    let named = of_command.iter().take(NAMED);
    let mut named: Vec<_> = named.map(|process| process.to_string()).collect();
    if of_command.len() > NAMED {
        named.push("...".to_owned());
    }
    let count = units::count(of_command.len() as u64, "process", "processes");
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

/// Is it the server of the mount of this run? It ends after those that see the mount.
fn serves_mount(pid: u32) -> bool {
    let exe = |pid: &str| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let is_forebay = exe("self").is_some_and(|own| exe(&pid.to_string()) == Some(own));
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    is_forebay && arguments.split(|byte| *byte == 0).nth(1) == Some(b"serve-mount")
}

/// All processes that outlive the command of this run, except the bridge. Without any, nobody of the run is there any more.
pub fn find(bridge: &Bridge, life: &LifetimeStatus, attached: &[Attached]) -> Vec<Outliving> {
    let own = reap(&[bridge.pid]);
    let own = own.into_iter().filter(|pid| *pid != bridge.pid);
    let guests = attached.iter().filter(|guest| !guest.has_ended());
    let guests = guests.map(|guest| guest.pid);
    let mut found = lifetime::going_on(own, guests, children, is_over);
    for (pid, holding) in &mut found {
        *holding = (*holding).max(holds(*pid, &bridge.instance));
    }
    let users = BridgeUsers {
        stays: life.stay,
        runs: &life.runs,
        programs: &life.programs,
    };
    users
        .outliving(std::process::id(), found, is_over)
        .into_iter()
        .map(|(pid, holding)| Outliving {
            pid,
            name: sys::process_name(pid),
            holding,
        })
        // Some have ended just now.
        .filter(|process| !is_over(process.pid))
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
