//! What the bridge counts, and how it looks from outside.

use crate::ServerHandle;
use forebay_admin::{BypassingProgram, RootDir, Status};
use forebay_core::bypass::{BypassingPrograms, Starts};
use forebay_core::root_dir::Sight;
use forebay_core::share::may_take;
use forebay_sys::Peer;
use forebay_wire::Op;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of requests: one per number of an operation.
const OP_COUNTERS: usize = 32;
const _: () = assert!((Op::Bypass as usize) < OP_COUNTERS);

/// The operations that are shown, with their names.
const OPS: [(Op, &str); 20] = [
    (Op::Hello, "hello"),
    (Op::Open, "open"),
    (Op::Resolve, "resolve"),
    (Op::Stat, "stat"),
    (Op::Mkdir, "mkdir"),
    (Op::Mknod, "mknod"),
    (Op::Symlink, "symlink"),
    (Op::Link, "link"),
    (Op::Unlink, "unlink"),
    (Op::Rename, "rename"),
    (Op::Readlink, "readlink"),
    (Op::ReadDir, "readdir"),
    (Op::NameOf, "nameof"),
    (Op::Realpath, "realpath"),
    (Op::Admin, "admin"),
    (Op::Lane, "lane"),
    (Op::Sync, "sync"),
    (Op::Words, "words"),
    (Op::NameTable, "names"),
    (Op::Bypass, "bypass"),
];

/// What the bridge has done since its start.
#[derive(Default)]
pub struct Activity {
    requests: [AtomicU64; OP_COUNTERS],
    by_lane: AtomicU64,
    grants: AtomicU64,
    staged_files: AtomicU64,
    staged_bytes: AtomicU64,
}

impl Activity {
    /// A request was read.
    pub fn request(&self, op: Op) {
        self.requests[op as usize].fetch_add(1, Ordering::Relaxed);
    }
    /// A request came through shared memory.
    pub fn by_lane(&self) {
        self.by_lane.fetch_add(1, Ordering::Relaxed);
    }
    /// A descriptor was sent.
    pub fn grant(&self) {
        self.grants.fetch_add(1, Ordering::Relaxed);
    }
    /// A file of the PFS was copied into the buffer.
    pub fn staged(&self, bytes: u64) {
        self.staged_files.fetch_add(1, Ordering::Relaxed);
        self.staged_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Connections by process.
pub struct Clients {
    by_process: Mutex<Door>,
    limit: usize,
    /// The user of the bridge.
    owner: u32,
    count: AtomicU64,
}

/// Who is in, and whether anybody may come.
#[derive(Default)]
struct Door {
    processes: HashMap<i32, Connections>,
    /// Connections of each user.
    users: HashMap<u32, usize>,
    all: usize,
    is_closed: bool,
}

/// Connections of one process.
#[derive(Default)]
struct Connections {
    all: usize,
    /// Those through which a program has asked something.
    of_program: usize,
}

/// Who has asked something through a connection last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// Nobody yet. Whoever can reach the socket can connect and say nothing, so no end waits for such a connection.
    Nobody,
    /// A program.
    Program,
    /// A command of Forebay.
    Command,
}

/// Why a connection is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unwelcome {
    /// This limit is reached.
    Limit(&'static str),
    /// The bridge is about to end, or looks whether it may. Who tries again finds it, or the next one.
    Closed,
}

impl Clients {
    /// At most `limit` connections, of a bridge of the user `owner`.
    pub fn new(limit: usize, owner: u32) -> Self {
        Clients {
            limit,
            owner,
            by_process: Mutex::default(),
            count: AtomicU64::new(0),
        }
    }

    /// One more of a process, which has not said anything yet.
    ///
    /// # Errors
    /// Why it is not served.
    pub fn admit(&self, peer: Peer, per_process: usize) -> Result<(), Unwelcome> {
        let mut door = self.by_process.lock();
        if door.is_closed {
            return Err(Unwelcome::Closed);
        }
        let own = door.users.get(&peer.uid).copied().unwrap_or_default();
        if !may_take(own, door.all, self.limit, peer.uid == self.owner) {
            let why = "there are as many as there may be, or as one user may have";
            return Err(Unwelcome::Limit(why));
        }
        let connections = door.processes.entry(peer.pid).or_default();
        if connections.all >= per_process {
            return Err(Unwelcome::Limit("it has as many as one process may have"));
        }
        connections.all += 1;
        door.all += 1;
        *door.users.entry(peer.uid).or_default() += 1;
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// A connection of process `pid` counted as that of `before`; from now on it counts as that of `now`. False: it is not let
    /// in, because a program comes when the bridge is about to end.
    pub fn speaks(&self, pid: i32, before: Speaker, now: Speaker) -> bool {
        let mut door = self.by_process.lock();
        if now == Speaker::Program && door.is_closed {
            return false;
        }
        if let Some(connections) = door.processes.get_mut(&pid) {
            connections.of_program -= usize::from(before == Speaker::Program);
            connections.of_program += usize::from(now == Speaker::Program);
        }
        true
    }

    /// One less.
    pub fn leave(&self, peer: Peer, speaker: Speaker) {
        let pid = peer.pid;
        let mut door = self.by_process.lock();
        door.all -= 1;
        if let Some(own) = door.users.get_mut(&peer.uid) {
            *own -= 1;
            if *own == 0 {
                door.users.remove(&peer.uid);
            }
        }
        if let Some(connections) = door.processes.get_mut(&pid) {
            connections.all -= 1;
            connections.of_program -= usize::from(speaker == Speaker::Program);
            if connections.all == 0 {
                door.processes.remove(&pid);
            }
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Open connections.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Processes that are connected as programs.
    pub fn programs(&self) -> Vec<u32> {
        programs(&self.by_process.lock())
    }

    /// Lets nobody in any more, unless a program is there. From here on nothing changes the namespace.
    pub fn close(&self) -> bool {
        let mut door = self.by_process.lock();
        door.is_closed = programs(&door).is_empty();
        door.is_closed
    }

    /// Lets programs in again.
    pub fn open(&self) {
        self.by_process.lock().is_closed = false;
    }
}

fn programs(door: &Door) -> Vec<u32> {
    let is_program = |(_, connections): &(&i32, &Connections)| connections.of_program > 0;
    let programs = door.processes.iter().filter(is_program);
    programs.map(|(pid, _)| pid.unsigned_abs()).collect()
}

/// The state of the bridge. It takes no time that depends on how much is in the buffer.
pub fn take(server: &ServerHandle) -> Status {
    let (space_bytes, free_bytes) = server.objects.space().unwrap_or_default();
    let counters = &server.counters;
    let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
    Status {
        pid: std::process::id(),
        epoch: server.epoch,
        uptime_s: server.started.elapsed().as_secs(),
        root: server.root().to_owned(),
        root_dir: Some(root_dir(server)),
        storage: server.instance_dir().to_owned(),
        space_bytes,
        free_bytes,
        connections: server.clients.count(),
        lanes: server.lanes.count(),
        requests_by_lane: load(&counters.by_lane),
        operations: OPS
            .iter()
            .map(|(op, name)| ((*name).to_owned(), load(&counters.requests[*op as usize])))
            .filter(|(_, count)| *count > 0)
            .collect(),
        grants: load(&counters.grants),
        staged_files: load(&counters.staged_files),
        staged_bytes: load(&counters.staged_bytes),
        bypassing: bypassing(&server.bypassing.lock()),
    }
}

fn root_dir(server: &ServerHandle) -> RootDir {
    let Sight { dev, ino, born } = server.root_dir();
    RootDir {
        dev,
        ino,
        born: (born.sec, born.nsec),
        mount_space: server.hold.mount_space(),
    }
}

fn bypassing(all: &BypassingPrograms) -> Vec<BypassingProgram> {
    let shown = |path: Option<String>, why: &str, starts: Starts| BypassingProgram {
        path,
        why: why.to_owned(),
        starts: starts.all,
        may_look: starts.may_look,
    };
    let named = all.programs.iter().map(|program| {
        let path = String::from_utf8_lossy(&program.path).into_owned();
        shown(Some(path), program.why.in_words(), program.starts)
    });
    let further = (all.further.all > 0).then(|| shown(None, "", all.further));
    named.chain(further).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_counts_as_that_of_who_has_asked_last_and_programs_do_not_come_behind_a_closed_door()
     {
        use Speaker::{Command, Nobody, Program};
        let clients = Clients::new(8, 0);
        let peer = Peer {
            pid: 7,
            uid: 0,
            gid: 0,
        };
        clients.admit(peer, 2).unwrap();
        clients.admit(peer, 2).unwrap();
        assert_eq!(
            clients.programs(),
            [0; 0],
            "who has asked nothing counts for nothing"
        );
        assert!(clients.speaks(7, Nobody, Program) && clients.speaks(7, Nobody, Command));
        assert_eq!(clients.programs(), [7]);
        assert!(!clients.close(), "a program is there");
        assert!(clients.speaks(7, Program, Command));
        assert!(clients.close());
        assert!(!clients.speaks(7, Command, Program) && !clients.speaks(7, Nobody, Program));
        assert_eq!(clients.admit(peer, 9), Err(Unwelcome::Closed));
        clients.open();
        assert!(clients.speaks(7, Command, Program));
        assert_eq!(clients.programs(), [7]);
        clients.leave(peer, Program);
        assert_eq!(clients.programs(), [0; 0]);
        clients.leave(peer, Command);
        assert_eq!(clients.count(), 0);
    }
}
