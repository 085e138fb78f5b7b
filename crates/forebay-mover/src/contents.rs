//! The second part of a drain: files, symbolic links and nodes.
//!
//! A file is copied to a temporary name in its final directory, synced, read back from the file
//! system and compared, and then renamed ([`crate::publish`]): at no moment is there half a file under
//! its name.
//!
//! Small files go in batches: their writeback begins together and is waited for together.

use crate::counters::Counters;
use crate::ground::{Ground, Halt};
use crate::pass::Pass;
use crate::pfs::{self, During, Trouble, Work};
use crate::processes;
use forebay_admin::drain::Reason;
use forebay_core::drain::{Contents, Picture, copy_name};
use forebay_core::facts::{Attr, Timestamp};
use forebay_core::path::TreePath;
use forebay_core::record::{Kind, ObjectName, Record, Stamp};
use forebay_pfs::Lower;
use forebay_sys::{self as sys, Errno, Openers, errno_of};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use xxhash_rust::xxh3::Xxh3;

/// One read and one write.
const CHUNK_BYTES: usize = 1 << 20;
/// A batch is full with so many bytes or files. Each of them is an open descriptor.
const BATCH_BYTES: u64 = 32 << 20;
const BATCH_FILES: usize = 256;
/// From so many files on they are synced together.
const SYNC_ALL_FROM: usize = 8;
/// Change times tick this coarsely on old kernels: a file that changed within one tick after we
/// looked at it would look unchanged.
const TICK: Duration = Duration::from_millis(20);
/// Pause between two looks at a file that is still open.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// A file that changes while it is copied gets one more chance.
pub(crate) const TRIES: u32 = 2;

/// One object to be drained.
pub(crate) struct Task {
    pub(crate) contents: Contents,
    /// The names of it that may be put on the PFS now.
    pub(crate) ready: Vec<(TreePath, Record)>,
    pub(crate) bytes: u64,
    pub(crate) tries: u32,
}

impl Task {
    pub(crate) fn object(&self) -> ObjectName {
        self.ready[0].1.object
    }

    /// The directories in which it makes temporary names.
    pub(crate) fn workplaces(&self) -> impl Iterator<Item = TreePath> {
        self.ready.iter().map(|(path, _)| path.parent())
    }
}

/// A task whose contents are on the PFS under a temporary name.
pub(crate) struct Copied {
    pub(crate) task: Task,
    /// The backing inode when the copy began.
    pub(crate) attr: Attr,
    pub(crate) stamp: Stamp,
    /// The directory of the first name.
    pub(crate) dir: Arc<OwnedFd>,
    /// The temporary file, still open, and what was written to it.
    pub(crate) file: Option<(std::fs::File, Written)>,
}

/// What a copy wrote: the ranges with data, and the checksum of ranges and bytes.
pub(crate) struct Written {
    size: u64,
    ranges: Vec<(u64, u64)>,
    sum: u64,
    /// The source became shorter meanwhile: of no use.
    pub(crate) is_short: bool,
}

/// The state of an inode that [`Record::drained`] is compared with.
pub(crate) fn stamp(attr: &Attr) -> Stamp {
    Stamp {
        size: attr.size,
        ctime_ns: i128::from(attr.ctime.sec) * 1_000_000_000 + i128::from(attr.ctime.nsec),
    }
}

/// Bytes to copy: a file may be larger than what it holds.
fn data_bytes(attr: &Attr) -> u64 {
    attr.size.min(attr.blocks * 512)
}

impl<G: Ground + ?Sized> Pass<'_, G> {
    /// What is to be copied, without what cannot be now (which is noted).
    pub(crate) fn plan_contents(&self, picture: &Picture) -> Vec<Task> {
        let mut tasks = Vec::new();
        for contents in picture.contents() {
            let object = contents.names[0].1.object;
            let attr = match self.ground.objects().attr(object) {
                Ok(attr) => attr,
                Err(errno) => {
                    let operation = "stat in the buffer";
                    self.leave(&contents.names[0].0, 0, Trouble { operation, errno });
                    continue;
                }
            };
            if contents.is_clean(stamp(&attr)) && self.is_still_there(&contents, &attr) {
                // An earlier drain may have died before it synced the directory.
                for (path, _) in &contents.names {
                    self.note_unsynced(path);
                }
                continue;
            }
            let bytes = data_bytes(&attr);
            let (ready, blocked): (Vec<_>, Vec<_>) =
                contents.names.iter().cloned().partition(|(path, _)| {
                    picture.is_settled(&path.parent()) && !picture.is_obstructed(path)
                });
            for (path, _) in &blocked {
                self.leave_blocked(path, bytes, self.obstacle(picture, path));
            }
            if ready.is_empty() {
                continue;
            }
            Counters::add(&self.counters.files_total, 1);
            Counters::add(&self.counters.bytes_total, bytes);
            tasks.push(Task {
                contents,
                ready,
                bytes,
                tries: 0,
            });
        }
        tasks
    }

    /// Does the PFS still have what was drained? Somebody else may have removed it.
    fn is_still_there(&self, contents: &Contents, attr: &Attr) -> bool {
        contents.names.iter().all(|(path, record)| {
            pfs::look(self.ground.lower(), path)
                .ok()
                .flatten()
                .is_some_and(|found| record.kind != Kind::File || found.size == attr.size)
        })
    }

    /// Copies everything, with several threads.
    pub(crate) fn copy_all(&self, tasks: Vec<Task>) -> Result<(), Halt> {
        let queue = Mutex::new(VecDeque::from(tasks));
        let workers = self
            .request
            .workers
            .unwrap_or(crate::DEFAULT_WORKERS)
            .max(1);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..workers)
                .map(|_| scope.spawn(|| self.work(&queue)))
                .collect();
            threads.into_iter().try_for_each(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(Halt::Fault("a copying thread has panicked".into())))
            })
        })
    }

    fn work(&self, queue: &Mutex<VecDeque<Task>>) -> Result<(), Halt> {
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let batch = take_batch(&mut queue.lock());
            // What a stop leaves over is found out at the end.
            if batch.is_empty() || self.is_stopping() {
                return Ok(());
            }
            let again = self.drain_batch(batch, &mut buffer)?;
            queue.lock().extend(again);
        }
    }

    /// Drains a batch; gives back what changed meanwhile.
    fn drain_batch(&self, batch: Vec<Task>, buffer: &mut [u8]) -> Result<Vec<Task>, Halt> {
        let mut copied = Vec::with_capacity(batch.len());
        let mut dirs = LastDir::default();
        for task in batch {
            self.points.pass()?;
            match self.copy(&task, &mut dirs, buffer) {
                Ok(Some((attr, dir, file))) => copied.push(Copied {
                    task,
                    attr,
                    stamp: stamp(&attr),
                    dir,
                    file,
                }),
                Ok(None) => self.done(&task),
                Err(trouble) => self.give_up(&task, trouble),
            }
        }
        self.points.pass()?;
        let synced = self.sync(copied);
        // What is compared comes from the file system and not from cached pages; the disk is asked for
        // the whole batch at once.
        for (file, written) in synced.iter().filter_map(|c| c.file.as_ref()) {
            sys::forget_pages(file.as_fd());
            if written.size <= CHUNK_BYTES as u64 {
                sys::will_need(file.as_fd());
            }
        }
        let verified = self.each(synced, |c| self.verify(c, buffer));
        self.points.pass()?;
        self.publish(verified)
    }

    /// Puts the copies on the disks of the PFS. All writeback is under way by now. Many files are synced by
    /// one call for the whole file system, because every `fsync` of its own waits for the disk's cache.
    fn sync(&self, copied: Vec<Copied>) -> Vec<Copied> {
        let mut files = copied.iter().filter_map(|c| c.file.as_ref());
        if copied.len() >= SYNC_ALL_FROM
            && let Some((any, _)) = files.next()
            && sys::syncfs(any.as_fd()).is_ok()
        {
            return copied;
        }
        self.each(copied, |c| match &c.file {
            Some((file, _)) => sys::fsync(file.as_fd()).during("fsync"),
            None => Ok(()),
        })
    }

    /// Goes through the batch; what fails leaves it.
    pub(crate) fn each(
        &self,
        batch: Vec<Copied>,
        mut work: impl FnMut(&Copied) -> Work<()>,
    ) -> Vec<Copied> {
        let mut good = Vec::with_capacity(batch.len());
        for c in batch {
            match work(&c) {
                Ok(()) => good.push(c),
                Err(trouble) => {
                    self.discard(&c);
                    self.give_up(&c.task, trouble);
                }
            }
        }
        good
    }

    pub(crate) fn give_up(&self, task: &Task, trouble: Trouble) {
        for (path, _) in &task.ready {
            self.leave(path, task.bytes, trouble);
        }
        self.done(task);
    }

    pub(crate) fn done(&self, _task: &Task) {
        Counters::add(&self.counters.files_done, 1);
    }

    pub(crate) fn discard(&self, c: &Copied) {
        // If it stays, the next drain removes it.
        let _ = sys::unlink(c.dir.as_fd(), &copy_name(c.task.contents.oid), false);
    }

    /// Puts the contents under a temporary name; `None` if they are not to be drained now (noted).
    #[allow(clippy::type_complexity)]
    fn copy(
        &self,
        task: &Task,
        dirs: &mut LastDir,
        buffer: &mut [u8],
    ) -> Work<Option<(Attr, Arc<OwnedFd>, Option<(std::fs::File, Written)>)>> {
        let (path, record) = &task.ready[0];
        let temp = copy_name(task.contents.oid);
        if record.kind != Kind::File {
            let attr = self.wait_a_tick(record.object)?;
            let dir = dirs.parent(self.ground.lower(), path)?;
            self.make_other(record, &attr, dir.as_fd(), &temp)?;
            return Ok(Some((attr, dir, None)));
        }
        let source = self.open_source(record.object)?;
        if self.is_written_to(&source) {
            for (path, _) in &task.ready {
                self.counters
                    .leave(path, task.bytes, Reason::Open, "", String::new());
            }
            return Ok(None);
        }
        let attr = self.wait_a_tick(record.object)?;
        let dir = dirs.parent(self.ground.lower(), path)?;
        let file: std::fs::File = create_temp(dir.as_fd(), &temp)?.into();
        let outcome = (|| {
            let written = self.copy_data(&source, &file, attr.size, buffer)?;
            let Some(written) = written else {
                return Ok(None);
            };
            self.dress(source.as_fd(), file.as_fd(), &attr)?;
            sys::begin_writeback(file.as_fd());
            Ok(Some(written))
        })();
        match outcome {
            Ok(Some(written)) => Ok(Some((attr, dir, Some((file, written))))),
            other => {
                let _ = sys::unlink(dir.as_fd(), &temp, false);
                other.map(|_| None)
            }
        }
    }

    /// Opens a backing file for reading, also one that its owner may not read.
    pub(crate) fn open_source(&self, object: ObjectName) -> Work<OwnedFd> {
        let objects = self.ground.objects();
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW;
        match objects.open_object(object, flags) {
            Err(Errno::ACCESS) => {
                objects.never_reuse(object);
                let path = objects
                    .open_object(object, libc::O_PATH)
                    .during("open in the buffer")?;
                let mode = sys::stat(path.as_fd(), b"")
                    .during("stat in the buffer")?
                    .mode
                    & 0o7777;
                let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&path));
                let cwd = sys::open_path(std::path::Path::new("/"), libc::O_PATH)
                    .during("open in the buffer")?;
                sys::chmod_at(cwd.as_fd(), link.as_bytes(), mode | 0o400)
                    .during("chmod in the buffer")?;
                let opened = objects.open_object(object, flags);
                sys::chmod_at(cwd.as_fd(), link.as_bytes(), mode).during("chmod in the buffer")?;
                opened
            }
            other => other,
        }
        .during("open in the buffer")
    }

    fn is_written_to(&self, source: &OwnedFd) -> bool {
        while processes::is_in_use(source, Openers::Writers) {
            if self.is_stopping() || !self.has_patience() {
                return true;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        false
    }

    /// Attributes of an object, taken when its last change is surely over.
    fn wait_a_tick(&self, object: ObjectName) -> Work<Attr> {
        let objects = self.ground.objects();
        let attr = objects.attr(object).during("stat in the buffer")?;
        let changed = Duration::new(attr.ctime.sec.max(0) as u64, attr.ctime.nsec);
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        if let Some(rest) = (changed + TICK).checked_sub(now)
            && !rest.is_zero()
        {
            // A clock that was set back must not stop the drain.
            std::thread::sleep(rest.min(TICK));
            return objects.attr(object).during("stat in the buffer");
        }
        Ok(attr)
    }

    /// Copies what is not a hole; `None` if the drain was stopped.
    fn copy_data(
        &self,
        source: &OwnedFd,
        file: &std::fs::File,
        size: u64,
        buffer: &mut [u8],
    ) -> Work<Option<Written>> {
        sys::will_read_all(source.as_fd());
        let from: std::fs::File = source.try_clone().map_err(errno_of).during("dup")?.into();
        let mut sum = Xxh3::new();
        let mut ranges = Vec::new();
        let mut is_short = false;
        let mut at = 0;
        while at < size {
            let Some((start, end)) = sys::next_data(source.as_fd(), at).during("seek")? else {
                break;
            };
            let end = end.min(size);
            if start >= end {
                break;
            }
            ranges.push((start, end));
            sum.update(&start.to_le_bytes());
            let mut pos = start;
            while pos < end {
                if self.is_stopping() {
                    return Ok(None);
                }
                let want = buffer.len().min((end - pos) as usize);
                self.throttle.take(want as u64, self.counters);
                let n = from
                    .read_at(&mut buffer[..want], pos)
                    .map_err(errno_of)
                    .during("read in the buffer")?;
                if n == 0 {
                    is_short = true;
                    break;
                }
                sum.update(&buffer[..n]);
                file.write_all_at(&buffer[..n], pos)
                    .map_err(errno_of)
                    .during("write")?;
                pos += n as u64;
                Counters::add(&self.counters.bytes_done, n as u64);
            }
            if is_short {
                break;
            }
            at = end;
        }
        if ranges.last().is_none_or(|&(_, end)| end < size) {
            sys::set_size(file.as_fd(), size).during("truncate")?;
        }
        Ok(Some(Written {
            size,
            ranges,
            sum: sum.digest(),
            is_short,
        }))
    }

    /// Owner, mode, extended attributes and times.
    pub(crate) fn dress(
        &self,
        source: BorrowedFd<'_>,
        target: BorrowedFd<'_>,
        attr: &Attr,
    ) -> Work<()> {
        let now = sys::stat(target, b"").during("stat")?;
        if (now.uid, now.gid) != (attr.uid, attr.gid) {
            sys::chown(target, b"", attr.uid, attr.gid).during("chown")?;
        }
        for name in pfs::copy_xattrs(source, target)? {
            self.counters.remark(format!(
                "the PFS does not take the extended attribute {name} of some files"
            ));
        }
        sys::chmod(target, attr.mode & 0o7777).during("chmod")?;
        sys::set_times(target, b"", Some(attr.atime), Some(attr.mtime)).during("set times")
    }

    /// A symbolic link or a node.
    fn make_other(
        &self,
        record: &Record,
        attr: &Attr,
        dir: BorrowedFd<'_>,
        temp: &[u8],
    ) -> Work<()> {
        remove_temp(dir, temp)?;
        if record.kind == Kind::Symlink {
            let text = self
                .ground
                .objects()
                .link_text(record.object)
                .during("read in the buffer")?;
            sys::symlink(&text, dir, temp).during("symlink")?;
        } else {
            sys::mknod(dir, temp, attr.mode, attr.rdev).during("mknod")?;
        }
        let now = sys::stat(dir, temp).during("stat")?;
        if (now.uid, now.gid) != (attr.uid, attr.gid) {
            sys::chown(dir, temp, attr.uid, attr.gid).during("chown")?;
        }
        if record.kind == Kind::Special {
            sys::chmod_at(dir, temp, attr.mode & 0o7777).during("chmod")?;
        }
        sys::set_times(dir, temp, Some(attr.atime), Some(attr.mtime)).during("set times")
    }

    /// Reads the copy back and compares.
    fn verify(&self, c: &Copied, buffer: &mut [u8]) -> Work<()> {
        let Some((file, written)) = &c.file else {
            return Ok(());
        };
        if written.is_short {
            return Ok(());
        }
        // Else its access time would be now. Not everybody may ask for this; then it is set again.
        let keeps = sys::keep_access_time(file.as_fd()).is_ok();
        let mut sum = Xxh3::new();
        let mut verified = 0;
        for &(start, end) in &written.ranges {
            sum.update(&start.to_le_bytes());
            let mut pos = start;
            while pos < end {
                let want = buffer.len().min((end - pos) as usize);
                let n = file
                    .read_at(&mut buffer[..want], pos)
                    .map_err(errno_of)
                    .during("read back")?;
                if n == 0 {
                    break;
                }
                sum.update(&buffer[..n]);
                pos += n as u64;
                verified += n as u64;
                Counters::add(&self.counters.bytes_verified, n as u64);
            }
        }
        let attr = sys::stat(file.as_fd(), b"").during("stat")?;
        let expected: u64 = written.ranges.iter().map(|(start, end)| end - start).sum();
        let is_same =
            attr.size == written.size && verified == expected && sum.digest() == written.sum;
        if !is_same {
            return Err(Errno::IO).during("verify");
        }
        if !keeps && let Ok(now) = self.ground.objects().attr(c.task.object()) {
            let times: (Timestamp, Timestamp) = (now.atime, now.mtime);
            sys::set_times(file.as_fd(), b"", Some(times.0), Some(times.1)).during("set times")?;
        }
        Ok(())
    }
}

/// The directory that was used last: neighbours in the queue mostly share it.
#[derive(Default)]
struct LastDir(Option<(TreePath, Arc<OwnedFd>)>);

impl LastDir {
    fn parent(&mut self, lower: &Lower, path: &TreePath) -> Work<Arc<OwnedFd>> {
        let parent = path.parent();
        if let Some((at, dir)) = &self.0
            && *at == parent
        {
            return Ok(dir.clone());
        }
        let dir = Arc::new(pfs::parent(lower, path)?);
        self.0 = Some((parent, dir.clone()));
        Ok(dir)
    }
}

/// Takes from the front: one large file, or small ones up to the size of a batch.
fn take_batch(queue: &mut VecDeque<Task>) -> Vec<Task> {
    let mut batch = Vec::new();
    let mut bytes = 0;
    while batch.len() < BATCH_FILES {
        match queue.front() {
            Some(task) if batch.is_empty() || bytes + task.bytes <= BATCH_BYTES => {}
            _ => break,
        }
        let Some(task) = queue.pop_front() else { break };
        bytes += task.bytes;
        batch.push(task);
    }
    batch
}

/// A new file; what a killed drain has left under its name goes.
fn create_temp(dir: BorrowedFd<'_>, temp: &[u8]) -> Work<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
    match sys::open(dir, temp, flags, 0o600) {
        Err(Errno::EXIST) => {
            remove_temp(dir, temp)?;
            sys::open(dir, temp, flags, 0o600)
        }
        other => other,
    }
    .during("create")
}

pub(crate) fn remove_temp(dir: BorrowedFd<'_>, temp: &[u8]) -> Work<()> {
    match sys::unlink(dir, temp, false) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(e).during("unlink"),
    }
}
