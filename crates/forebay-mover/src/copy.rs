//! Copies one object to the PFS under a temporary name.

use crate::copies::Held;
use crate::counters::Counters;
use crate::pass::Pass;
use crate::pfs::{self, During, Work};
use crate::processes;
use forebay_core::drain::{Copied, Copy};
use forebay_core::facts::Attr;
use forebay_core::identity::Identity;
use forebay_core::path::TreePath;
use forebay_core::record::{Kind, ObjectName};
use forebay_pfs::Lower;
use forebay_sys::Openers;
use forebay_sys::{self as sys, Errno};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use xxhash_rust::xxh3::Xxh3;

/// Change times tick this coarsely on old kernels: a file that changed within one tick after we
/// looked at it would look unchanged.
const TICK: Duration = Duration::from_millis(20);

/// What a copy wrote: the ranges with data, and the checksum of ranges and bytes.
pub(crate) struct Written {
    pub(crate) size: u64,
    pub(crate) ranges: Vec<(u64, u64)>,
    pub(crate) sum: u64,
    /// The source became shorter meanwhile, so the copy is of no use.
    is_short: bool,
}

impl Pass<'_> {
    /// Puts the contents under a temporary name. What there is of the copy goes into `held`.
    pub(crate) fn copy(
        &self,
        copy: &Copy,
        dirs: &mut LastDir,
        buffer: &mut [u8],
        held: &mut Option<Held>,
    ) -> Work<Copied> {
        let path = &copy.temporary.path;
        let temp = path.name();
        if copy.kind != Kind::File {
            let attr = self.wait_a_tick(copy.object)?;
            let dir = dirs.parent(self.ground.lower, path)?;
            self.make_other(copy, &attr, dir.as_fd(), temp)?;
            let made = sys::stat(dir.as_fd(), temp).during("stat")?;
            *held = Some(Held {
                object: copy.object,
                path: path.clone(),
                dir,
                name: temp.to_vec(),
                file: None,
            });
            return Ok(Copied::Whole {
                of: attr,
                copy: Identity::of_copy(&made),
            });
        }
        let source = self.open_source(copy.object)?;
        if processes::is_in_use(&source, Openers::Writers) {
            return Ok(Copied::InUse);
        }
        let attr = self.wait_a_tick(copy.object)?;
        let dir = dirs.parent(self.ground.lower, path)?;
        let file: std::fs::File = create_temp(dir.as_fd(), temp)?.into();
        let outcome = (|| {
            let Some(written) = self.copy_data(&source, &file, attr.size, buffer)? else {
                return Ok(Err(Copied::Stopped));
            };
            if written.is_short {
                return Ok(Err(Copied::Short));
            }
            self.dress(source.as_fd(), file.as_fd(), &attr)?;
            sys::begin_writeback(file.as_fd());
            let made = sys::stat(file.as_fd(), b"").during("stat")?;
            Ok(Ok((written, Identity::of_copy(&made))))
        })();
        match outcome {
            Ok(Ok((written, made))) => {
                *held = Some(Held {
                    object: copy.object,
                    path: path.clone(),
                    dir,
                    name: temp.to_vec(),
                    file: Some((file, written)),
                });
                Ok(Copied::Whole {
                    of: attr,
                    copy: made,
                })
            }
            other => {
                let _ = sys::unlink(dir.as_fd(), temp, false);
                other.map(|useless| useless.err().unwrap_or(Copied::Short))
            }
        }
    }

    /// Opens a backing file for reading, also one that its owner may not read.
    pub(crate) fn open_source(&self, object: ObjectName) -> Work<OwnedFd> {
        let objects = self.ground.objects;
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

    /// Attributes of an object, taken when its last change is surely over.
    fn wait_a_tick(&self, object: ObjectName) -> Work<Attr> {
        let objects = self.ground.objects;
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
        let from: std::fs::File = source
            .try_clone()
            .map_err(sys::errno_of)
            .during("dup")?
            .into();
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
                    .map_err(sys::errno_of)
                    .during("read in the buffer")?;
                if n == 0 {
                    is_short = true;
                    break;
                }
                sum.update(&buffer[..n]);
                file.write_all_at(&buffer[..n], pos)
                    .map_err(sys::errno_of)
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
    fn make_other(&self, copy: &Copy, attr: &Attr, dir: BorrowedFd<'_>, temp: &[u8]) -> Work<()> {
        remove_temp(dir, temp)?;
        if copy.kind == Kind::Symlink {
            let text = self
                .ground
                .objects
                .link_text(copy.object)
                .during("read in the buffer")?;
            sys::symlink(&text, dir, temp).during("symlink")?;
        } else {
            sys::mknod(dir, temp, attr.mode, attr.rdev).during("mknod")?;
        }
        let now = sys::stat(dir, temp).during("stat")?;
        if (now.uid, now.gid) != (attr.uid, attr.gid) {
            sys::chown(dir, temp, attr.uid, attr.gid).during("chown")?;
        }
        if copy.kind == Kind::Special {
            sys::chmod_at(dir, temp, attr.mode & 0o7777).during("chmod")?;
        }
        sys::set_times(dir, temp, Some(attr.atime), Some(attr.mtime)).during("set times")
    }
}

/// The directory used last: neighbours in the queue mostly share it.
#[derive(Default)]
pub(crate) struct LastDir(Option<(TreePath, Arc<OwnedFd>)>);

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

/// Makes a new file. Replaces what a killed drain has left under its name.
fn create_temp(dir: BorrowedFd<'_>, temp: &[u8]) -> Work<OwnedFd> {
    sys::create_anew(dir, temp).during("create")
}

pub(crate) fn remove_temp(dir: BorrowedFd<'_>, temp: &[u8]) -> Work<()> {
    match sys::unlink(dir, temp, false) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(e).during("unlink"),
    }
}
