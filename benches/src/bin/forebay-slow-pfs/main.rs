//! A stand-in for a parallel file system: a FUSE mount whose files are in memory, where each call takes a while. As any
//! ordinary FUSE file system it is never told of a `syncfs`.
//!
//! Says `ready` when it is there. When it is unmounted it says in a line of JSON which calls came, and what would be lost if
//! its machine lost power then: files whose bytes, and directories whose entries, nobody has synced.
//!
//! Lines on its standard input make all calls fail or hang, see [`weather`]. Each is answered with a line.
//!
//! Mounted in several places it stands in for several clients, which share the files. With `--locks` they share locks too,
//! see [`locks`].

mod files;
mod locks;
mod weather;

use anyhow::{Context, Result};
use clap::Parser;
use files::{Files, Node};
use forebay_core::collective::{Layout, lustre_attribute};
use forebay_sim::collective::Locks;
use fuser::{
    Config, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, KernelConfig,
    LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use weather::{Fate, Weather};

/// A slow file system for measurements and tests.
#[derive(Parser)]
#[command(name = "forebay-slow-pfs", version)]
struct Cli {
    /// Microseconds that each call takes.
    #[arg(long, value_name = "N", default_value_t = 300)]
    latency_us: u64,
    /// Calls that it serves at a time.
    #[arg(long, value_name = "N", default_value_t = 32)]
    at_once: usize,
    /// The locks of its clients: server-extents, server-grown, tokens, whole-file or none.
    #[arg(long, value_name = "KIND", default_value = "none", value_parser = parse_locks)]
    locks: Locks,
    /// Bytes of a granule of the locks, and of a stripe.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    granule: u64,
    /// Servers, each with the locks of its stripes.
    #[arg(long, value_name = "N", default_value_t = 1)]
    servers: u32,
    /// Microseconds that it takes a client to give up a lock.
    #[arg(long, value_name = "N", default_value_t = 2000)]
    handover_us: u64,
    /// Its clients write behind: a write returns before it has its locks, unless the file is open with O_SYNC.
    #[arg(long)]
    write_behind: bool,
    /// Two names can be exchanged in one call, as on a local file system.
    #[arg(long)]
    exchange: bool,
    /// Where it is mounted: once for each client.
    #[arg(required = true)]
    dirs: Vec<PathBuf>,
}

fn parse_locks(name: &str) -> Result<Locks, String> {
    let known = Locks::ALL.iter().find(|(known, _)| *known == name);
    known
        .map(|(_, locks)| *locks)
        .ok_or_else(|| format!("no such locks: {name}"))
}

/// The kernel keeps attributes and names so long, as libfuse tells it.
const VALID: Duration = Duration::from_secs(1);

struct Slow {
    client: usize,
    files: Arc<Mutex<Files>>,
    locks: Arc<locks::FileLocks>,
    write_behind: bool,
    latency: Duration,
    exchanges: bool,
    /// What it tells of how a file lies on its servers.
    stripes: Option<Vec<u8>>,
    weather: Weather,
    counts: Arc<Mutex<BTreeMap<&'static str, u64>>>,
}

impl Slow {
    /// A call has come: it takes its time, and is done if the weather allows it.
    fn call<T>(
        &self,
        name: &'static str,
        work: impl FnOnce(&mut Files) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        std::thread::sleep(self.latency);
        let fate = self.weather.pass();
        if let Fate::Fails(errno) = fate {
            return Err(errno);
        }
        *lock(&self.counts).entry(name).or_default() += 1;
        let outcome = work(&mut lock(&self.files));
        match fate {
            Fate::Lost(errno) => Err(errno),
            _ => outcome,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn time(time: TimeOrNow) -> SystemTime {
    match time {
        TimeOrNow::SpecificTime(at) => at,
        TimeOrNow::Now => SystemTime::now(),
    }
}

fn empty(reply: ReplyEmpty, outcome: Result<(), Errno>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e),
    }
}

fn entry(reply: ReplyEntry, outcome: Result<fuser::FileAttr, Errno>) {
    match outcome {
        Ok(attr) => reply.entry(&VALID, &attr, Generation(0)),
        Err(e) => reply.error(e),
    }
}

fn data(reply: ReplyData, outcome: Result<Vec<u8>, Errno>) {
    match outcome {
        Ok(bytes) => reply.data(&bytes),
        Err(e) => reply.error(e),
    }
}

fn xattr(reply: ReplyXattr, size: u32, outcome: Result<Vec<u8>, Errno>) {
    match outcome {
        Ok(bytes) if size == 0 => reply.size(bytes.len() as u32),
        Ok(bytes) if bytes.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(bytes) => reply.data(&bytes),
        Err(e) => reply.error(e),
    }
}

impl Filesystem for Slow {
    fn init(&mut self, _: &Request, _: &mut KernelConfig) -> io::Result<()> {
        // The last client says so.
        if self.client == 0 {
            println!("ready");
        }
        io::stdout().flush()
    }

    fn destroy(&mut self) {
        if self.client > 0 {
            return;
        }
        let (files, dirs) = lock(&self.files).unsynced();
        let report = serde_json::json!({
            "calls": *lock(&self.counts), "unsynced_files": files, "unsynced_dirs": dirs,
            "named_unsynced": lock(&self.files).named_unsynced,
        });
        println!("{report}");
    }

    fn lookup(&self, _: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(
            reply,
            self.call("lookup", |files| {
                files.entry(dir.0, name).and_then(|ino| files.attr(ino))
            }),
        );
    }

    fn forget(&self, _: &Request, _: INodeNo, _: u64) {}

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.call("getattr", |files| files.attr(ino.0)) {
            Ok(attr) => reply.attr(&VALID, &attr),
            Err(e) => reply.error(e),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let outcome = self.call("setattr", |files| {
            let node = files.node(ino.0)?;
            if let Some(size) = size {
                node.resize(size)?;
            }
            let attr = &mut node.attr;
            attr.perm = mode.map_or(attr.perm, |mode| (mode & 0o7777) as u16);
            attr.uid = uid.unwrap_or(attr.uid);
            attr.gid = gid.unwrap_or(attr.gid);
            attr.atime = atime.map_or(attr.atime, time);
            attr.mtime = mtime.map_or(attr.mtime, time);
            attr.ctime = SystemTime::now();
            files.attr(ino.0)
        });
        match outcome {
            Ok(attr) => reply.attr(&VALID, &attr),
            Err(e) => reply.error(e),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        data(reply, self.call("readlink", |files| files.bytes(ino.0)));
    }

    fn mknod(
        &self,
        request: &Request,
        dir: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let mut node = Node::new(mode, request);
        node.attr.rdev = rdev;
        entry(
            reply,
            self.call("mknod", |files| files.add(dir.0, name, node)),
        );
    }

    fn mkdir(
        &self,
        request: &Request,
        dir: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let node = Node::new(mode | libc::S_IFDIR, request);
        entry(
            reply,
            self.call("mkdir", |files| files.add(dir.0, name, node)),
        );
    }

    fn unlink(&self, _: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(
            reply,
            self.call("unlink", |files| files.remove(dir.0, name)),
        );
    }

    fn rmdir(&self, _: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.call("rmdir", |files| files.remove(dir.0, name)));
    }

    fn symlink(
        &self,
        request: &Request,
        dir: INodeNo,
        name: &OsStr,
        text: &Path,
        reply: ReplyEntry,
    ) {
        let mut node = Node::new(libc::S_IFLNK | 0o777, request);
        node.set_text(text.as_os_str().as_bytes());
        entry(
            reply,
            self.call("symlink", |files| files.add(dir.0, name, node)),
        );
    }

    fn rename(
        &self,
        _: &Request,
        dir: INodeNo,
        name: &OsStr,
        to: INodeNo,
        new: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let outcome = self.call("rename", |files| {
            if flags.contains(RenameFlags::RENAME_NOREPLACE) && files.entry(to.0, new).is_ok() {
                return Err(Errno::EEXIST);
            }
            let exchanges = flags.contains(RenameFlags::RENAME_EXCHANGE);
            match (exchanges, self.exchanges) {
                (false, _) => files.rename((dir.0, name), (to.0, new)),
                (true, true) => files.exchange((dir.0, name), (to.0, new)),
                (true, false) => Err(Errno::EINVAL),
            }
        });
        empty(reply, outcome);
    }

    fn link(&self, _: &Request, ino: INodeNo, dir: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(
            reply,
            self.call("link", |files| files.link(dir.0, name, ino.0)),
        );
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.call("open", |_| Ok(())) {
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::empty()),
            Err(e) => reply.error(e),
        }
    }

    fn create(
        &self,
        request: &Request,
        dir: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let node = Node::new(mode | libc::S_IFREG, request);
        match self.call("create", |files| files.add(dir.0, name, node)) {
            Ok(attr) => reply.created(
                &VALID,
                &attr,
                Generation(0),
                FileHandle(0),
                FopenFlags::empty(),
            ),
            Err(e) => reply.error(e),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        data(
            reply,
            self.call("read", |files| files.read(ino.0, offset, size)),
        );
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if !self.write_behind || flags.0 & libc::O_SYNC == libc::O_SYNC {
            let given_up = self
                .locks
                .wait(self.client, ino.0, offset, bytes.len() as u64);
            *lock(&self.counts).entry("lock given up").or_default() += given_up;
        }
        match self.call("write", |files| files.write(ino.0, offset, bytes)) {
            Ok(()) => reply.written(bytes.len() as u32),
            Err(e) => reply.error(e),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        empty(reply, self.call("flush", |_| Ok(())));
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(reply, self.call("fsync", |files| files.sync(ino.0)));
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(reply, self.call("fsyncdir", |files| files.sync(ino.0)));
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.call("readdir", |files| files.list(ino.0));
        let listed = match listed {
            Ok(listed) => listed,
            Err(e) => return reply.error(e),
        };
        for (at, (inode, kind, name)) in listed.iter().enumerate().skip(offset as usize) {
            if reply.add(INodeNo(*inode), at as u64 + 1, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let many = 1 << 30;
        reply.statfs(many, many, many, many, many, 4096, 255, 4096);
    }

    fn setxattr(
        &self,
        _: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        _: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let outcome = self.call("setxattr", |files| {
            knows_attribute(name)?;
            let node = files.node(ino.0)?;
            node.xattrs.insert(name.to_owned(), value.to_vec());
            Ok(())
        });
        empty(reply, outcome);
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value = self.call("getxattr", |files| {
            knows_attribute(name)?;
            let node = files.node(ino.0)?;
            let stripes = self.stripes.as_ref().filter(|_| name == "lustre.lov");
            let value = node.xattrs.get(name).or(stripes);
            value.cloned().ok_or(Errno::ENODATA)
        });
        xattr(reply, size, value);
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.call("listxattr", |files| {
            let names = files.node(ino.0)?.xattrs.keys();
            Ok(names
                .flat_map(|name| [name.as_bytes(), &[0]].concat())
                .collect())
        });
        xattr(reply, size, names);
    }

    fn removexattr(&self, _: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let outcome = self.call("removexattr", |files| {
            let removed = files.node(ino.0)?.xattrs.remove(name);
            removed.map(|_| ()).ok_or(Errno::ENODATA)
        });
        empty(reply, outcome);
    }
}

/// Where servers keep the locks it stands in for Lustre, which tells of each file how it lies on them.
fn stripes(locks: Locks, layout: Layout) -> Option<Vec<u8>> {
    let on_servers = matches!(locks, Locks::ServerExtents | Locks::ServerGrown);
    on_servers.then(|| lustre_attribute(layout))
}

/// Access control lists would have to change modes.
fn knows_attribute(name: &OsStr) -> Result<(), Errno> {
    match name.as_bytes().starts_with(b"system.posix_acl_") {
        true => Err(Errno::EOPNOTSUPP),
        false => Ok(()),
    }
}

fn main() -> Result<()> {
    forebay_sys::abort_at_panics();
    let cli = Cli::parse();
    let weather = Weather::new();
    let told = weather.clone();
    std::thread::spawn(move || told.listen(io::stdin().lock()));
    let files = Arc::new(Mutex::new(Files::new()));
    let layout = Layout::new(cli.granule, cli.servers);
    let handover = Duration::from_micros(cli.handover_us);
    let locks = Arc::new(locks::FileLocks::new(cli.locks, layout, handover));
    let counts: Arc<Mutex<_>> = Arc::default();
    let slow = |client| Slow {
        client,
        files: Arc::clone(&files),
        locks: Arc::clone(&locks),
        write_behind: cli.write_behind,
        latency: Duration::from_micros(cli.latency_us),
        exchanges: cli.exchange,
        stripes: stripes(cli.locks, layout),
        weather: weather.clone(),
        counts: Arc::clone(&counts),
    };
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("slow-pfs".into()),
        MountOption::DefaultPermissions,
    ];
    config.acl = fuser::SessionACL::All;
    config.n_threads = Some(cli.at_once);
    config.clone_fd = true;
    let (first, others) = cli.dirs.split_first().context("no directory")?;
    let failed = |dir: &Path| format!("FUSE at {}", dir.display());
    // It ends when the first directory is unmounted; dropped sessions unmount the others.
    let mut sessions = Vec::new();
    for (dir, client) in others.iter().zip(1..) {
        let session = fuser::spawn_mount(slow(client), dir, &config);
        sessions.push(session.with_context(|| failed(dir))?);
    }
    fuser::mount(slow(0), first, &config).with_context(|| failed(first))
}
