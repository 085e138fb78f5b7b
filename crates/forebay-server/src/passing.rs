//! Backing directories on their way to clients: sent, and not received. No process has such a descriptor open, so a
//! drain asks here.
//!
//! A descriptor is noted after it was sent, and only then the bridge closes its own copy. Whoever looks at the
//! descriptors of the bridge first, then here, and then at other processes finds it.

use forebay_core::record::ObjectId;
use forebay_sys as sys;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Weak};

/// What is in the sockets of clients, by their numbers.
#[derive(Default)]
pub struct Passing(Mutex<HashMap<RawFd, Sent>>);

struct Sent {
    socket: Weak<OwnedFd>,
    /// At least those that were not received.
    dirs: Vec<ObjectId>,
}

/// What is known before something is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// The client has received everything.
    Nothing,
    /// Something may still be on its way.
    Something,
}

/// To be asked before a descriptor of a backing directory is sent.
pub fn begin(socket: &OwnedFd) -> Before {
    match is_received(socket) {
        true => Before::Nothing,
        false => Before::Something,
    }
}

/// If the kernel does not say, it may not be.
fn is_received(socket: &OwnedFd) -> bool {
    sys::is_received(socket.as_fd()) == Ok(true)
}

impl Passing {
    /// A descriptor of this directory was sent, and is still open here.
    pub fn sent(&self, socket: &Arc<OwnedFd>, dir: ObjectId, before: Before) {
        let mut all = self.0.lock();
        let sent = all.entry(socket.as_raw_fd()).or_insert_with(|| Sent {
            socket: Weak::new(),
            dirs: Vec::new(),
        });
        // The number may have been that of another socket.
        if before == Before::Nothing || !std::ptr::eq(sent.socket.as_ptr(), Arc::as_ptr(socket)) {
            sent.dirs.clear();
            sent.socket = Arc::downgrade(socket);
        }
        sent.dirs.push(dir);
    }

    /// The directories that are on their way now.
    pub fn now(&self) -> Vec<ObjectId> {
        let mut all = self.0.lock();
        all.retain(|_, sent| sent.socket.upgrade().is_some_and(|s| !is_received(&s)));
        let dirs = all.values().flat_map(|sent| &sent.dirs);
        dirs.copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_directory_counts_from_when_it_is_sent_until_it_is_received() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut writer = ours.try_clone().unwrap();
        let socket = Arc::new(OwnedFd::from(ours));
        let passing = Passing::default();
        let mut send = |dir| {
            let before = begin(&socket);
            writer.write_all(b"d").unwrap();
            passing.sent(&socket, ObjectId(dir), before);
        };
        send(1);
        send(2);
        assert_eq!(passing.now(), [ObjectId(1), ObjectId(2)]);
        theirs.read_exact(&mut [0; 2]).unwrap();
        send(3);
        assert_eq!(passing.now(), [ObjectId(3)]);
        theirs.read_exact(&mut [0]).unwrap();
        assert_eq!(passing.now(), []);
        send(4);
        drop(socket);
        assert_eq!(passing.now(), []);
    }
}
