//! Disks that write down what reaches them: a FUSE mount with a file for each disk, and a file `mark` for the workload.
//!
//! One thread answers, after it has noted: so the order of the log is the order of the disks. A process of its own,
//! because whoever waits for a disk must not be the one that answers.

use crate::log::{BLOCK_BYTES, Writer};
use anyhow::Context;
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, WriteFlags,
};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// Name of the file that takes what the workload says.
pub const MARK: &str = "mark";
const MARK_INODE: u64 = 2;
const FIRST_DISK_INODE: u64 = 3;
/// Nobody else changes anything.
const VALID: Duration = Duration::from_secs(3600);

/// The name of the file of a disk.
pub fn name(disk: usize) -> String {
    format!("disk{disk}")
}

struct State {
    begun: Instant,
    log: Writer<BufWriter<File>>,
    disks: Vec<Vec<u8>>,
}

struct Disks(Mutex<State>);

/// Serves disks of these sizes until somebody unmounts them. If `from` names files, each disk holds what its file holds.
///
/// # Errors
/// There is no FUSE, a file can't be read, or the log can't be written.
pub fn serve(at: &Path, log: &Path, sizes: &[u64], from: &[PathBuf]) -> anyhow::Result<()> {
    let file = File::create(log).with_context(|| format!("can't make {}", log.display()))?;
    let mut state = State {
        begun: Instant::now(),
        log: Writer::new(BufWriter::with_capacity(1 << 20, file)),
        disks: sizes.iter().map(|bytes| vec![0; *bytes as usize]).collect(),
    };
    for (disk, path) in from.iter().enumerate() {
        state
            .load(disk, path)
            .with_context(|| format!("can't load {}", path.display()))?;
    }
    // Writeback of the file systems on these disks waits for this process, so it should not wait for writeback. It needs a
    // right that containers do not have; without it there is a danger only where memory is short.
    let _ = rustix::process::configure_io_flusher_behavior(true);
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("powerloss".into()),
        MountOption::DefaultPermissions,
    ];
    config.acl = fuser::SessionACL::All;
    match fuser::mount(Disks(Mutex::new(state)), at, &config) {
        // So it ends, too, when it is unmounted while a request is on its way here.
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionAborted => Ok(()),
        ended => ended.with_context(|| format!("FUSE at {}", at.display())),
    }
}

impl Disks {
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = state.begun.elapsed();
        state.log.at(now);
        state
    }

    fn attributes(&self, inode: u64) -> Option<FileAttr> {
        let size = match inode {
            1 | MARK_INODE => 0,
            _ => self.state().disks.get(disk_of(inode)?)?.len() as u64,
        };
        let is_root = inode == 1;
        Some(FileAttr {
            ino: INodeNo(inode),
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_root {
                FileType::Directory
            } else {
                FileType::RegularFile
            },
            perm: if is_root { 0o755 } else { 0o666 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

fn disk_of(inode: u64) -> Option<usize> {
    inode
        .checked_sub(FIRST_DISK_INODE)
        .and_then(|disk| usize::try_from(disk).ok())
}

impl State {
    /// Fills a disk, and notes that as if it had been written and flushed.
    fn load(&mut self, disk: usize, path: &Path) -> io::Result<()> {
        let bytes = std::fs::read(path)?;
        let inode = FIRST_DISK_INODE + disk as u64;
        for (number, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
            if block.iter().any(|byte| *byte != 0) {
                self.write(inode, (number * BLOCK_BYTES) as u64, block)?;
            }
        }
        self.flush(inode)
    }

    fn write(&mut self, inode: u64, at: u64, data: &[u8]) -> io::Result<()> {
        if inode == MARK_INODE {
            return self.log.mark(data);
        }
        let (disk, place) = self.place(inode, at, data.len() as u64)?;
        place.copy_from_slice(data);
        self.log.write(disk, at, data)
    }

    fn zero(&mut self, inode: u64, at: u64, bytes: u64) -> io::Result<()> {
        let (disk, place) = self.place(inode, at, bytes)?;
        place.fill(0);
        self.log.zero(disk, at, bytes)
    }

    fn flush(&mut self, inode: u64) -> io::Result<()> {
        match disk_of(inode) {
            Some(disk) => self.log.flush_of(disk as u8),
            None => Ok(()),
        }
    }

    fn place(&mut self, inode: u64, at: u64, bytes: u64) -> io::Result<(u8, &mut [u8])> {
        let beyond = || io::Error::from_raw_os_error(Errno::ENOSPC.code());
        let disk = disk_of(inode).ok_or_else(beyond)?;
        let all = self.disks.get_mut(disk).ok_or_else(beyond)?;
        let end = at.checked_add(bytes).ok_or_else(beyond)?;
        let place = all.get_mut(at as usize..end as usize).ok_or_else(beyond)?;
        Ok((disk as u8, place))
    }
}

fn answer(reply: ReplyEmpty, result: io::Result<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(Errno::from(e)),
    }
}

impl Filesystem for Disks {
    fn destroy(&mut self) {
        if let Err(e) = self.state().log.finish() {
            eprintln!("powerloss: the log is not complete: {e}");
        }
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let text = name.to_str().unwrap_or_default();
        let inode = match text
            .strip_prefix("disk")
            .and_then(|number| number.parse::<u64>().ok())
        {
            Some(number) => FIRST_DISK_INODE + number,
            None if text == MARK => MARK_INODE,
            None => 0,
        };
        match self.attributes(inode) {
            Some(attributes) => reply.entry(&VALID, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode.0) {
            Some(attributes) => reply.attr(&VALID, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // What is said must not wait in the page cache.
        let flags = if inode.0 == MARK_INODE {
            FopenFlags::FOPEN_DIRECT_IO
        } else {
            FopenFlags::empty()
        };
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let state = self.state();
        let all = disk_of(inode.0)
            .and_then(|disk| state.disks.get(disk))
            .map_or(&[][..], Vec::as_slice);
        let from = (offset as usize).min(all.len());
        let end = from.saturating_add(size as usize).min(all.len());
        reply.data(&all[from..end]);
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.state().write(inode.0, offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(e) => reply.error(Errno::from(e)),
        }
    }

    // Without it the kernel would take all later flushes for done.
    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer(reply, self.state().flush(inode.0));
    }

    // The end of a descriptor promises nothing.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u64>,
        _: Option<fuser::TimeOrNow>,
        _: Option<fuser::TimeOrNow>,
        _: Option<std::time::SystemTime>,
        _: Option<FileHandle>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.attributes(inode.0) {
            Some(attributes) => reply.attr(&VALID, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    // Discards, and writes of zeros: all kinds leave zeros.
    fn fallocate(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        _: i32,
        reply: ReplyEmpty,
    ) {
        answer(reply, self.state().zero(inode.0, offset, length));
    }
}
