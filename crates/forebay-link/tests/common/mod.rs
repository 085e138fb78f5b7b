//! A scripted bridge: a SEQPACKET socket whose every answer the test writes.
#![allow(dead_code)] // each test file uses its part
#![allow(unsafe_code)]

use forebay_link::Config;
use forebay_wire::{
    Attention, LANE_BYTES, LANE_REQUEST_BYTES, LanePage, MAX_REQUEST_BYTES, Op, Reply, ReplyKind,
    Request,
};
use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

/// A folder with a socket, where a scripted bridge listens.
pub struct Place {
    folder: PathBuf,
    listener: OwnedFd,
}

fn check(result: isize) -> usize {
    assert!(result >= 0, "{}", Error::last_os_error());
    result as usize
}

fn address(path: &Path) -> libc::sockaddr_un {
    // SAFETY: zeroes are a valid address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
        *to = *from as libc::c_char;
    }
    address
}

impl Place {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "fby-link-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let address = address(&folder.join("socket"));
        // SAFETY: the address is valid and has the length that is passed; the descriptor is new.
        let listener = unsafe {
            let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
            check(fd as isize);
            let len = size_of_val(&address) as u32;
            check(libc::bind(fd, (&raw const address).cast(), len) as isize);
            check(libc::listen(fd, 256) as isize);
            OwnedFd::from_raw_fd(fd)
        };
        Place { folder, listener }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// Where backing objects are. Nobody makes it.
    pub fn storage(&self) -> PathBuf {
        self.folder.join("storage")
    }

    /// The root of the buffer. Nobody makes it.
    pub fn buffer(&self) -> PathBuf {
        self.folder.join("buffer")
    }

    /// The settings of a program that uses this bridge, and waits `patience_s` seconds for a lost one.
    pub fn config(&self, patience_s: u32) -> &'static Config {
        let entries = [
            format!("FOREBAY_BUFFER={}", self.buffer().display()),
            format!("FOREBAY_SOCKET={}", self.socket().display()),
            format!("FOREBAY_STORAGE_DIR={}", self.storage().display()),
            format!("FOREBAY_RECONNECT_S={patience_s}"),
        ];
        let config = Box::leak(Box::new(Config::EMPTY));
        assert!(config.read(entries.iter().map(|e| e.as_bytes())));
        config
    }

    /// Takes the next connection.
    pub fn accept(&self) -> Peer {
        // SAFETY: no address is asked for; the descriptor is new.
        unsafe {
            let fd = libc::accept4(
                self.listener.as_raw_fd(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                libc::SOCK_CLOEXEC,
            );
            check(fd as isize);
            Peer(OwnedFd::from_raw_fd(fd))
        }
    }

    /// Runs `script` as the bridge, beside the client.
    pub fn serve<R: Send + 'static>(
        self,
        script: impl FnOnce(&Place) -> R + Send + 'static,
    ) -> JoinHandle<R> {
        std::thread::spawn(move || script(&self))
    }

    /// Runs `script` as a bridge in a new place. Returns the settings of its client as well; see [`Place::config`].
    pub fn scripted<R: Send + 'static>(
        patience_s: u32,
        script: impl FnOnce(&Place) -> R + Send + 'static,
    ) -> (&'static Config, JoinHandle<R>) {
        let place = Place::new();
        (place.config(patience_s), place.serve(script))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The bridge's end of a connection.
pub struct Peer(OwnedFd);

/// A request as the bridge received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub op: Op,
    pub seq: u32,
    pub client: u64,
    pub retry: bool,
    pub arg2: u64,
    pub path: String,
}

impl Asked {
    fn of(message: &[u8]) -> Self {
        let r = Request::decode(message).unwrap();
        Asked {
            op: r.op,
            seq: r.seq,
            client: r.client,
            retry: r.retry,
            arg2: r.arg2,
            path: String::from_utf8(r.str1.to_vec()).unwrap(),
        }
    }

    pub fn echo(&self) -> Vec<u8> {
        encoded(&Reply {
            kind: ReplyKind::Bytes,
            body: self.path.as_bytes(),
            ..Reply::status(self.seq, 0)
        })
    }
}

pub fn encoded(reply: &Reply<'_>) -> Vec<u8> {
    [&reply.header()[..], reply.body].concat()
}

impl Peer {
    /// The bytes of the next message; none at the end of the connection.
    pub fn receive(&self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; MAX_REQUEST_BYTES];
        // SAFETY: the buffer has the length that is passed.
        let n = unsafe {
            libc::recv(
                self.0.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                0,
            )
        };
        buffer.truncate(n.max(0) as usize);
        (n > 0).then_some(buffer)
    }

    pub fn asked(&self) -> Asked {
        Asked::of(&self.receive().expect("a request"))
    }

    pub fn send(&self, message: &[u8]) {
        self.send_with(message, None);
    }

    /// Sends a message, with a descriptor if one is given.
    pub fn send_with(&self, message: &[u8], fd: Option<RawFd>) {
        // SAFETY: the control room has CMSG_SPACE for a descriptor, aligned as a u64.
        unsafe {
            let mut room = [0u64; 8];
            let mut part = libc::iovec {
                iov_base: message.as_ptr().cast_mut().cast(),
                iov_len: message.len(),
            };
            let mut header: libc::msghdr = std::mem::zeroed();
            header.msg_iov = &raw mut part;
            header.msg_iovlen = 1;
            if let Some(fd) = fd {
                header.msg_control = room.as_mut_ptr().cast();
                header.msg_controllen = libc::CMSG_SPACE(4) as usize;
                let control = libc::CMSG_FIRSTHDR(&raw const header);
                (*control).cmsg_level = libc::SOL_SOCKET;
                (*control).cmsg_type = libc::SCM_RIGHTS;
                (*control).cmsg_len = libc::CMSG_LEN(4) as usize;
                libc::CMSG_DATA(control).cast::<RawFd>().write_unaligned(fd);
            }
            check(libc::sendmsg(
                self.0.as_raw_fd(),
                &raw const header,
                libc::MSG_NOSIGNAL,
            ));
        }
    }

    /// Answers with the path that was asked for.
    pub fn echo(&self, asked: &Asked) {
        self.send(&asked.echo());
    }

    pub fn refuse(&self, asked: &Asked, errno: i32) {
        self.send(&Reply::status(asked.seq, errno).header());
    }

    /// Echoes until the client asks for shared memory. Returns that request.
    pub fn echo_until_lane(&self) -> Asked {
        loop {
            let asked = self.asked();
            if asked.op == Op::Lane {
                return asked;
            }
            self.echo(&asked);
        }
    }

    /// Echoes until the client asks for shared memory, and grants it.
    pub fn share(&self) -> Shared {
        let asked = self.echo_until_lane();
        let (shared, memory) = Shared::new();
        let grant = Reply {
            kind: ReplyKind::Grant,
            ..Reply::status(asked.seq, 0)
        };
        self.send_with(&encoded(&grant), Some(memory.as_raw_fd()));
        shared
    }
}

/// The bridge's side of a lane.
#[derive(Clone, Copy)]
pub struct Shared(&'static LanePage);

impl Shared {
    /// A lane to which the bridge attends, and the memory behind it.
    fn new() -> (Self, OwnedFd) {
        // SAFETY: a C string; the mapping stays for the rest of the test process, and any bytes are a valid page.
        unsafe {
            let fd = libc::memfd_create(c"lane".as_ptr(), libc::MFD_CLOEXEC);
            check(fd as isize);
            let memory = OwnedFd::from_raw_fd(fd);
            check(libc::ftruncate(fd, LANE_BYTES as i64) as isize);
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(
                std::ptr::null_mut(),
                LANE_BYTES,
                prot,
                libc::MAP_SHARED,
                fd,
                0,
            );
            assert_ne!(at, libc::MAP_FAILED);
            let page = &*at.cast::<LanePage>();
            page.words.attend(Attention {
                cpu: u32::MAX,
                crowded: true,
            });
            (Shared(page), memory)
        }
    }

    pub fn words(&self) -> &'static forebay_wire::LaneWords {
        &self.0.words
    }

    /// The next request, if one comes soon.
    pub fn take(&self) -> Option<Asked> {
        for _ in 0..200_000 {
            if let Some(len) = self.0.words.take() {
                assert!(len <= LANE_REQUEST_BYTES);
                // SAFETY: the request has `len` bytes.
                let message = unsafe { std::slice::from_raw_parts(self.0.request(), len) };
                return Some(Asked::of(message));
            }
            std::thread::yield_now();
        }
        None
    }

    /// Answers in the lane. False if the client has turned to the socket.
    pub fn answer(&self, message: &[u8]) -> bool {
        // SAFETY: the replies of these tests are short.
        unsafe {
            std::ptr::copy_nonoverlapping(message.as_ptr(), self.0.reply(), message.len());
        }
        self.0.words.answer(message.len())
    }
}
