//! A client that speaks to the bridge through shared memory.
#![allow(unsafe_code)]

use super::Place;
use forebay_client::{Answer, Client};
use forebay_wire::{
    BY_NAME, GRANT_BY_NAME, LANE_BYTES, LANE_REQUEST_BYTES, LanePage, Op, Reply, ReplyKind,
    Request, Seen,
};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Nothing takes so long.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A client of which a test moves every step, with its lane.
pub struct Laned {
    pub client: Client,
    pub memory: OwnedFd,
    pub page: &'static LanePage,
}

pub fn ask_for_lane(client: &mut Client) -> forebay_client::Result<Answer> {
    client.ask(Request::new(Op::Lane))
}

impl Laned {
    pub fn of(place: &Place) -> Self {
        let mut client = place.client();
        let memory = ask_for_lane(&mut client).unwrap().fd.unwrap();
        Laned::with(client, memory)
    }

    pub fn with(client: Client, memory: OwnedFd) -> Self {
        // SAFETY: asks for a new mapping, which stays for the rest of the test process; any bytes are a valid page.
        let page = unsafe {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(
                std::ptr::null_mut(),
                LANE_BYTES,
                prot,
                libc::MAP_SHARED,
                memory.as_raw_fd(),
                0,
            );
            assert_ne!(at, libc::MAP_FAILED);
            &*at.cast::<LanePage>()
        };
        Laned {
            client,
            memory,
            page,
        }
    }

    /// Puts bytes where a request belongs, and says how many there are.
    pub fn put(&self, bytes: &[u8]) -> usize {
        assert!(bytes.len() <= LANE_REQUEST_BYTES);
        // SAFETY: the place has LANE_REQUEST_BYTES.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.page.request(), bytes.len()) };
        bytes.len()
    }

    /// Posts what lies in the lane as soon as the bridge attends, which it does after a request through the socket.
    pub fn post(&mut self, len: usize) {
        let until = Instant::now() + LIMIT;
        while !self.page.words.post(len, None) {
            assert!(Instant::now() < until, "the bridge never attends");
            let _ = self.client.stat("");
        }
    }

    /// One request through the lane; the reply, as long as it lies there.
    pub fn ask(&mut self, request: &Request<'_>) -> Vec<u8> {
        let reply = self.try_ask(request);
        reply.expect("the answer does not come beside")
    }

    /// The same, if the answer does not come through the socket.
    pub fn try_ask(&mut self, request: &Request<'_>) -> Option<Vec<u8>> {
        let until = Instant::now() + LIMIT;
        let mut bytes = [0; LANE_REQUEST_BYTES];
        let len = request.encode(&mut bytes).unwrap();
        self.put(&bytes[..len]);
        self.post(len);
        loop {
            match self.page.words.look() {
                Seen::Reply(len) => {
                    // SAFETY: a reply is never longer than its place.
                    let reply = unsafe { std::slice::from_raw_parts(self.page.reply(), len) };
                    let reply = reply.to_vec();
                    self.page.words.finish();
                    return Some(reply);
                }
                Seen::Beside => return None,
                Seen::Nothing => assert!(Instant::now() < until, "no answer"),
            }
            std::thread::yield_now();
        }
    }
}

pub fn stat(path: &[u8]) -> Request<'_> {
    Request {
        client: 1,
        seq: 1,
        str1: path,
        ..Request::new(Op::Stat)
    }
}

pub fn open_by_name(path: &[u8], flags: i32) -> Request<'_> {
    Request {
        op: Op::Open,
        arg0: flags as u32,
        arg2: BY_NAME,
        ..stat(path)
    }
}

/// The path that a grant names.
pub fn name_in(reply: &Reply<'_>) -> std::path::PathBuf {
    use std::os::unix::ffi::OsStrExt;
    assert_eq!((reply.status, reply.kind), (0, ReplyKind::Grant));
    assert_ne!(reply.aux & GRANT_BY_NAME, 0);
    std::ffi::OsStr::from_bytes(reply.body.strip_suffix(b"\0").unwrap()).into()
}
