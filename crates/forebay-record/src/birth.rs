//! Makes a table: a file in the directory of the run, mapped, backed by memory where it is used, and closed again.

use core::ffi::{CStr, c_char};
use core::ops::Range;
use core::sync::atomic::AtomicU64;

use forebay_count::layout::{H_IO_FIRST, H_IO_LAST, MIN_TABLE_BYTES, WORD_BYTES};
use forebay_count::table::Birth;
use forebay_count::{Host, TABLE_SUFFIX, TROUBLE_PREFIX, Table};
use forebay_hook::kernel::{self, Errno, call, decimal, openat};

use crate::clock;
use crate::config::{Config, MAX_DIR_BYTES};
use crate::end;
use crate::limits;
use crate::own_reads;
use crate::state;

/// Most file names that are tried before the directory is given up.
const MAX_NAMES: u64 = 1000;
/// Room for the directory and the name of a table in it.
const PATH_BYTES: usize = MAX_DIR_BYTES + 80;
const ARGS_BYTES: usize = 3072;

/// The words of a new table; `None` if there is no room, no permission or no directory.
pub fn make(config: &Config, serial: u64, by_fork: bool) -> Option<&'static [AtomicU64]> {
    let (pid, ticks) = (kernel::getpid() as u32, start_ticks());
    let Ok((at, len, path)) = with_limits_lifted(config, (pid, ticks), serial) else {
        leave_note(config, pid);
        return None;
    };
    // SAFETY: a mapping of this length that is never unmapped while it is used; any bits are valid.
    let words = unsafe { core::slice::from_raw_parts(at.cast(), len / WORD_BYTES) };
    if describe(config, words, (pid, ticks), by_fork) {
        return Some(words);
    }
    remove(&path);
    // SAFETY: nothing refers to the mapping any more.
    unsafe { kernel::unmap(at, len) };
    leave_note(config, pid);
    None
}

/// Makes the table with two limits lifted for the moment, as far as the process may lift them. A limit on file sizes
/// below that of a table would kill the program; one on descriptors would leave it without a table.
fn with_limits_lifted(config: &Config, process: (u32, u64), serial: u64) -> Result<Mapping, Errno> {
    let size = limits::soft_limit(libc::RLIMIT_FSIZE);
    let lifted = (size < config.table_bytes as u64)
        .then(|| limits::swap_soft_limit(libc::RLIMIT_FSIZE, u64::MAX));
    let room = limits::soft_limit(libc::RLIMIT_FSIZE).min(config.table_bytes as u64) as usize;
    let mut made = create(config, room, process, serial);
    if let Err(libc::EMFILE) = made {
        let files = limits::swap_soft_limit(libc::RLIMIT_NOFILE, u64::MAX);
        made = create(config, room, process, serial);
        if let Some(files) = files {
            limits::swap_soft_limit(libc::RLIMIT_NOFILE, files);
        }
    }
    if let Some(Some(size)) = lifted {
        limits::swap_soft_limit(libc::RLIMIT_FSIZE, size);
    }
    made
}

/// A mapped table: its address, its bytes, and its path.
type Mapping = (*mut u8, usize, Path);

/// Makes and maps the file. `pid` and `ticks`, the start of the process, are in its name.
fn create(
    config: &Config,
    room: usize,
    (pid, ticks): (u32, u64),
    serial: u64,
) -> Result<Mapping, Errno> {
    const PAGE_BYTES: usize = 4096;
    let len = room / PAGE_BYTES * PAGE_BYTES;
    if len < MIN_TABLE_BYTES {
        return Err(libc::EFBIG);
    }
    for n in serial..serial + MAX_NAMES {
        let path = Path::new(config.dir())
            .number(u64::from(pid))
            .text(b"-")
            .number(ticks);
        let path = path.text(b"-").number(n).text(TABLE_SUFFIX.as_bytes());
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        // SAFETY: a C string.
        match unsafe { openat(libc::AT_FDCWD, path.as_ptr(), flags, 0o600) } {
            Ok(fd) => {
                let mapped = map(fd, len);
                kernel::close(fd);
                if mapped.is_err() {
                    remove(&path);
                }
                return mapped.map(|at| (at, len, path));
            }
            Err(libc::EEXIST) => {}
            Err(libc::ENOENT) => {
                // The run was started on another node, so its directory is not here yet.
                let dir = Path::new(config.dir());
                // SAFETY: a C string.
                unsafe { call!(libc::SYS_mkdirat, libc::AT_FDCWD, dir.as_ptr(), 0o700) }?;
            }
            Err(e) => return Err(e),
        }
    }
    Err(libc::EEXIST)
}

fn remove(path: &Path) {
    // SAFETY: a C string.
    let _ = unsafe { call!(libc::SYS_unlinkat, libc::AT_FDCWD, path.as_ptr(), 0) };
}

fn map(fd: i32, len: usize) -> Result<*mut u8, Errno> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: plain integers; asks for a new mapping.
    unsafe {
        call!(libc::SYS_ftruncate, fd, len)?;
        let at = call!(libc::SYS_mmap, 0, len, prot, libc::MAP_SHARED, fd, 0)? as *mut u8;
        // A kernel that can't back single pages has to back all of them now.
        if state::populate(at.cast(), 4096) == Err(libc::EINVAL)
            && let Err(e) = call!(libc::SYS_fallocate, fd, 0, 0, len)
        {
            kernel::unmap(at, len);
            return Err(e);
        }
        Ok(at)
    }
}

/// Leaves an empty file that says that there is no table. It is empty because there may be no room for content.
fn leave_note(config: &Config, pid: u32) {
    let path = Path::new(config.dir())
        .text(TROUBLE_PREFIX.as_bytes())
        .number(u64::from(pid));
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_CLOEXEC;
    // SAFETY: a C string.
    if let Ok(fd) = unsafe { openat(libc::AT_FDCWD, path.as_ptr(), flags, 0o600) } {
        kernel::close(fd);
    }
}

struct Backing(&'static [AtomicU64]);

impl Host for Backing {
    fn back(&self, words: Range<usize>) -> bool {
        state::back(self.0, words)
    }

    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }
}

fn describe(
    config: &Config,
    words: &'static [AtomicU64],
    (pid, ticks): (u32, u64),
    by_fork: bool,
) -> bool {
    // SAFETY: zeroes are a valid value.
    let mut host: libc::utsname = unsafe { core::mem::zeroed() };
    // SAFETY: `host` is writable; no arguments.
    let uid = unsafe {
        let _ = call!(libc::SYS_uname, &raw mut host);
        call!(libc::SYS_getuid).unwrap_or(0) as u32
    };
    let (mut exe, mut args, mut cwd) = ([0; 1024], [0; ARGS_BYTES], [0; 1024]);
    // SAFETY: `cwd` is writable for its length.
    let cwd_len =
        unsafe { call!(libc::SYS_getcwd, cwd.as_mut_ptr(), cwd.len()) }.map_or(0, |n| n - 1);
    let birth = Birth {
        pid,
        ppid: kernel::getppid() as u32,
        start_ticks: ticks,
        serial: state::serial(),
        by_fork,
        uid,
        realtime_ns: clock::realtime_ns(),
        monotonic_ns: clock::now_ns(),
        // SAFETY: the kernel closes the name with a NUL.
        hostname: unsafe { CStr::from_ptr(host.nodename.as_ptr()) }.to_bytes(),
        job_key: config.job_key(),
        exe: link(c"/proc/self/exe", &mut exe),
        args: own_reads::read_file(c"/proc/self/cmdline", &mut args).unwrap_or(&[]),
        cwd: &cwd[..cwd_len],
    };
    let Some(table) = Table::format(words, &birth, &Backing(words)) else {
        return false;
    };
    if let Some((rank, ranks)) = config.rank {
        table.set_rank(rank, ranks, false);
    }
    end::look_at_io(&table, H_IO_FIRST);
    for i in 0..H_IO_LAST - H_IO_FIRST {
        table.put(H_IO_LAST + i, table.get(H_IO_FIRST + i));
    }
    true
}

fn link<'o>(path: &CStr, out: &'o mut [u8]) -> &'o [u8] {
    // SAFETY: a C string; `out` is writable for its length.
    let n = unsafe { kernel::readlink(path.as_ptr(), out.as_mut_ptr(), out.len()) };
    &out[..n.unwrap_or(0)]
}

/// The 22nd field of /proc/self/stat. The second field is a name in parentheses that may contain anything.
fn start_ticks() -> u64 {
    let mut room = [0; 1024];
    let text = own_reads::read_file(c"/proc/self/stat", &mut room).unwrap_or(&[]);
    let after_name = text.iter().rposition(|&b| b == b')').map_or(0, |n| n + 1);
    let field = text[after_name..]
        .split(|&b| b == b' ')
        .nth(20)
        .unwrap_or(&[]);
    end::number(field)
}

/// A path that is put together from pieces, closed with a NUL.
struct Path {
    bytes: [u8; PATH_BYTES],
    len: usize,
}

impl Path {
    fn new(dir: &[u8]) -> Self {
        let path = Path {
            bytes: [0; PATH_BYTES],
            len: 0,
        };
        path.text(dir).text(b"/")
    }

    fn text(mut self, text: &[u8]) -> Self {
        let room = &mut self.bytes[self.len..PATH_BYTES - 1];
        let n = text.len().min(room.len());
        room[..n].copy_from_slice(&text[..n]);
        self.len += n;
        self
    }

    fn number(mut self, n: u64) -> Self {
        self.len += decimal(n, &mut self.bytes[self.len..PATH_BYTES - 1]);
        self
    }

    fn as_ptr(&self) -> *const c_char {
        self.bytes.as_ptr().cast()
    }
}
