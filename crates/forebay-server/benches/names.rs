//! What the bridge itself spends on names: requests go straight to the executor,
//! without sockets, beside the same calls to the file system that it stands on.
//!
//! `cargo bench -p forebay-server --bench names -- DIR [THREADS [triple]]`, with `DIR` on the
//! file system to be compared with; `triple` plays nothing else, for a profiler. Prints microseconds of wall time per call and,
//! for the triple of create, stat and unlink, of processor time.
#![allow(unsafe_code)]

use forebay_server::{Config, ServerHandle, Stand, Waker, Work, start};
use forebay_wire::{Op, Request};
use std::fs::{self, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Names per thread and phase.
const FILES: u32 = 10_000;
const ROUNDS: u32 = 5;

/// Who carries the calls out.
trait Names: Sync {
    fn mkdir(&self, path: &str);
    fn create(&self, path: &str);
    fn stat(&self, path: &str);
    fn unlink(&self, path: &str);
}

struct Native(PathBuf);

impl Names for Native {
    fn mkdir(&self, path: &str) {
        fs::create_dir(self.0.join(path)).unwrap();
    }
    fn create(&self, path: &str) {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(self.0.join(path));
        drop(file.unwrap());
    }
    fn stat(&self, path: &str) {
        fs::metadata(self.0.join(path)).unwrap();
    }
    fn unlink(&self, path: &str) {
        fs::remove_file(self.0.join(path)).unwrap();
    }
}

struct Bridge {
    server: Arc<ServerHandle>,
    seq: AtomicU32,
    socket: Arc<OwnedFd>,
}

impl Bridge {
    fn serve(&self, request: Request<'_>) {
        let request = Request {
            client: 1,
            seq: self.seq.fetch_add(1, Ordering::Relaxed) + 1,
            ..request
        };
        let mut work = Work::new(&request, Arc::default(), 0, self.socket.clone()).unwrap();
        // No shard is there to be woken: nothing here waits for another request.
        let waker = Waker {
            shard: usize::MAX,
            ticket: 0,
        };
        let answered = loop {
            let mut stand = work.advance(&self.server, waker);
            if let Stand::Long(task) = stand {
                stand = work.advance_long(&self.server, waker, task);
            }
            match stand {
                Stand::Ended(Some(answered)) => break answered,
                Stand::Blocks(task) => work.take(&self.server, task.run(&self.server)),
                _ => panic!("{:?} waits", request.op),
            }
        };
        let path = request.str1.escape_ascii();
        assert_eq!(answered.status, 0, "{:?} {path}", request.op);
    }
}

impl Names for Bridge {
    fn mkdir(&self, path: &str) {
        self.serve(Request {
            arg1: 0o755,
            str1: path.as_bytes(),
            ..Request::new(Op::Mkdir)
        });
    }
    fn create(&self, path: &str) {
        self.serve(Request {
            arg0: (libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY) as u32,
            arg1: 0o644,
            str1: path.as_bytes(),
            ..Request::new(Op::Open)
        });
    }
    fn stat(&self, path: &str) {
        self.serve(Request {
            str1: path.as_bytes(),
            ..Request::new(Op::Stat)
        });
    }
    fn unlink(&self, path: &str) {
        self.serve(Request {
            str1: path.as_bytes(),
            ..Request::new(Op::Unlink)
        });
    }
}

fn cpu_time() -> Duration {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is a valid timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut t) };
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// Wall and processor time of `work` on all threads, per call.
fn phase(threads: usize, work: impl Fn(usize) + Sync) -> (f64, f64) {
    let (wall, cpu) = (Instant::now(), cpu_time());
    thread::scope(|scope| {
        for n in 0..threads {
            let work = &work;
            scope.spawn(move || work(n));
        }
    });
    let calls = f64::from(FILES) * threads as f64;
    let us = |time: Duration| time.as_secs_f64() * 1e6 / calls;
    (us(wall.elapsed()), us(cpu_time() - cpu))
}

fn play(what: &str, names: &dyn Names, threads: usize, all_phases: bool) {
    let path = |thread: usize, file: u32| format!("d{thread}/file.{file:06}");
    let all = |call: fn(&dyn Names, &str)| {
        if !all_phases {
            return 0.0;
        }
        phase(threads, |n| {
            (0..FILES).for_each(|file| call(names, &path(n, file)));
        })
        .0
    };
    (0..threads).for_each(|n| names.mkdir(&format!("d{n}")));
    for _ in 0..ROUNDS {
        let create = all(|names, path| names.create(path));
        let stat = all(|names, path| names.stat(path));
        let unlink = all(|names, path| names.unlink(path));
        let (wall, cpu) = phase(threads, |n| {
            let path = path(n, 0);
            for _ in 0..FILES {
                names.create(&path);
                names.stat(&path);
                names.unlink(&path);
            }
        });
        println!(
            "{what:<8} create {create:6.2}  stat {stat:5.2}  unlink {unlink:6.2}  triple {wall:6.2}, cpu {cpu:6.2} us"
        );
    }
}

fn main() {
    // Cargo adds `--bench`.
    let mut args = std::env::args().skip(1).filter(|a| a != "--bench");
    let dir = args
        .next()
        .map_or_else(std::env::temp_dir, PathBuf::from)
        .join(format!("forebay-names-{}", std::process::id()));
    let threads = args.next().map_or(1, |n| n.parse().unwrap());
    compare(&dir, threads, args.next().is_none());
    fs::remove_dir_all(&dir).unwrap();
}

fn compare(dir: &Path, threads: usize, all_phases: bool) {
    let (native, root) = (dir.join("native"), dir.join("root"));
    for side in [&native, &root] {
        fs::create_dir_all(side).unwrap();
    }
    play("native", &Native(native), threads, all_phases);
    let mut config = Config::new(&root, &dir.join("storage")).unwrap();
    config.socket = dir.join("socket");
    let server = start(config).unwrap();
    let (_client, socket) = UnixStream::pair().unwrap();
    let bridge = Bridge {
        server: server.handle().clone(),
        seq: AtomicU32::new(0),
        socket: Arc::new(socket.into()),
    };
    play("bridge", &bridge, threads, all_phases);
    drop(bridge);
    server.stop().unwrap();
}
