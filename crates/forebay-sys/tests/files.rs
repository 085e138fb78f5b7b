//! Checks for each call on names and files that it does what it says, and how it fails.

use forebay_sys::{self as sys, Errno};
use forebay_types::Timestamp;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use tempfile::TempDir;

/// A directory on a disk, and a descriptor of it.
struct Scene {
    temporary: TempDir,
    fd: OwnedFd,
}

impl Scene {
    fn new() -> Self {
        let temporary = tempfile::tempdir_in("/var/tmp").unwrap();
        let fd = sys::open_path(temporary.path(), libc::O_RDONLY | libc::O_DIRECTORY).unwrap();
        Scene { temporary, fd }
    }

    fn dir(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.temporary.path().join(name)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> File {
        fs::write(self.path(name), bytes).unwrap();
        let path = self.path(name);
        File::options().read(true).write(true).open(path).unwrap()
    }
}

fn closes_on_exec(fd: impl AsFd) -> bool {
    let flags = rustix::io::fcntl_getfd(fd).unwrap();
    flags.contains(rustix::io::FdFlags::CLOEXEC)
}

#[test]
fn files_are_opened_below_a_directory_and_close_on_exec() {
    let s = Scene::new();
    let create = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
    let made = sys::open(s.dir(), b"file", create, 0o640).unwrap();
    assert!(closes_on_exec(&made));
    let mode = fs::metadata(s.path("file")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    let again = sys::open(s.dir(), b"file", create, 0o640);
    assert_eq!(again.unwrap_err(), Errno::EXIST);
    assert!(closes_on_exec(&s.fd));
    let missing = sys::open_path(&s.path("missing"), libc::O_RDONLY);
    assert_eq!(missing.unwrap_err(), Errno::NOENT);
}

#[test]
fn a_path_is_opened_beneath_a_directory_without_any_link() {
    let s = Scene::new();
    sys::mkdir(s.dir(), b"d", 0o700).unwrap();
    s.file("d/file", b"x");
    sys::symlink(b"d", s.dir(), b"link").unwrap();
    let fd = match sys::open_beneath(s.dir(), b"d/file", libc::O_PATH) {
        // A filter of system calls forbids `openat2`. Callers have a substitute, so there is nothing to test here.
        Err(Errno::NOSYS | Errno::PERM) => return,
        fd => fd.unwrap(),
    };
    assert!(closes_on_exec(&fd));
    let open = |path: &[u8]| sys::open_beneath(s.dir(), path, libc::O_RDONLY).map(drop);
    assert_eq!(open(b"d/file"), Ok(()));
    assert_eq!(open(b"link/file"), Err(Errno::LOOP));
    assert_eq!(open(b"../x"), Err(Errno::XDEV));
    assert_eq!(open(b"d/none"), Err(Errno::NOENT));
}

#[test]
fn a_name_with_a_nul_is_einval_and_one_too_long_is_enametoolong() {
    let s = Scene::new();
    let (nul, long) = (&b"a\0b"[..], &[b'n'; 300][..]);
    for (name, errno) in [(nul, Errno::INVAL), (long, Errno::NAMETOOLONG)] {
        assert_eq!(sys::stat(s.dir(), name), Err(errno));
        assert_eq!(sys::mkdir(s.dir(), name, 0o700), Err(errno));
        assert_eq!(sys::rename(s.dir(), name, s.dir(), b"x"), Err(errno));
        assert_eq!(sys::readlink(s.dir(), name), Err(errno));
        assert_eq!(sys::open(s.dir(), name, 0, 0).unwrap_err(), errno);
    }
    // A path that is too long for the buffer on the stack, but not for the system.
    let path = [b"./".repeat(400), b"deep".to_vec()].concat();
    assert_eq!(sys::mkdir(s.dir(), &path, 0o700), Ok(()));
    assert!(s.path("deep").is_dir());
}

#[test]
fn names_are_made_moved_and_removed() {
    let s = Scene::new();
    assert_eq!(sys::make_dir(s.dir(), b"d"), Ok(()));
    assert_eq!(sys::make_dir(s.dir(), b"d"), Ok(()));
    assert_eq!(sys::mkdir(s.dir(), b"d", 0o700), Err(Errno::EXIST));
    s.file("a", b"abc");
    let d = sys::open(s.dir(), b"d", libc::O_PATH, 0).unwrap();
    assert_eq!(sys::link(s.dir(), b"a", d.as_fd(), b"b"), Ok(()));
    assert_eq!(sys::stat(d.as_fd(), b"b").unwrap().nlink, 2);
    assert_eq!(
        sys::link(s.dir(), b"none", d.as_fd(), b"c"),
        Err(Errno::NOENT)
    );
    assert_eq!(sys::rename(d.as_fd(), b"b", s.dir(), b"c"), Ok(()));
    assert_eq!(fs::read(s.path("c")).unwrap(), b"abc");
    assert_eq!(
        sys::rename_noreplace(s.dir(), b"a", s.dir(), b"d"),
        Err(Errno::EXIST)
    );
    assert_eq!(
        sys::rename_noreplace(s.dir(), b"a", d.as_fd(), b"a"),
        Ok(())
    );
    assert_eq!(sys::rename(d.as_fd(), b"a", s.dir(), b"a"), Ok(()));
    assert_eq!(
        sys::rename(d.as_fd(), b"b", s.dir(), b"c"),
        Err(Errno::NOENT)
    );
    assert_eq!(sys::unlink(s.dir(), b"c", true), Err(Errno::NOTDIR));
    assert_eq!(sys::unlink(s.dir(), b"c", false), Ok(()));
    assert_eq!(sys::unlink(s.dir(), b"d", true), Ok(()));
    assert_eq!(sys::unlink(s.dir(), b"d", true), Err(Errno::NOENT));
    assert_eq!(
        sys::mknod(s.dir(), b"fifo", libc::S_IFIFO | 0o600, 0),
        Ok(())
    );
    let mode = sys::stat(s.dir(), b"fifo").unwrap().mode;
    assert_eq!(mode & libc::S_IFMT, libc::S_IFIFO);
    let again = sys::mknod(s.dir(), b"fifo", libc::S_IFIFO | 0o600, 0);
    assert_eq!(again, Err(Errno::EXIST));
}

#[test]
fn a_symbolic_link_is_read_by_name_and_by_descriptor() {
    let s = Scene::new();
    let text = [b'x'; 3000];
    assert_eq!(sys::symlink(&text, s.dir(), b"link"), Ok(()));
    assert_eq!(sys::symlink(&text, s.dir(), b"link"), Err(Errno::EXIST));
    assert_eq!(sys::readlink(s.dir(), b"link"), Ok(text.to_vec()));
    let flags = libc::O_PATH | libc::O_NOFOLLOW;
    let link = sys::open(s.dir(), b"link", flags, 0).unwrap();
    assert_eq!(sys::readlink(link.as_fd(), b""), Ok(text.to_vec()));
    s.file("file", b"");
    assert_eq!(sys::readlink(s.dir(), b"file"), Err(Errno::INVAL));
    let file = sys::open(s.dir(), b"file", flags, 0).unwrap();
    assert_eq!(sys::readlink(file.as_fd(), b""), Err(Errno::NOENT));
}

#[test]
fn attributes_are_those_of_the_standard_library() {
    let s = Scene::new();
    let file = s.file("file", &[1; 5000]);
    let known = fs::metadata(s.path("file")).unwrap();
    for attr in [sys::stat(s.dir(), b"file"), sys::stat(file.as_fd(), b"")] {
        let attr = attr.unwrap();
        assert_eq!(
            (attr.mode, u64::from(attr.nlink)),
            (known.mode(), known.nlink())
        );
        assert_eq!((attr.uid, attr.gid), (known.uid(), known.gid()));
        assert_eq!(
            (attr.dev, attr.ino, attr.rdev),
            (known.dev(), known.ino(), known.rdev())
        );
        assert_eq!((attr.size, attr.blocks), (known.size(), known.blocks()));
        assert_eq!(u64::from(attr.blksize), known.blksize());
        assert_eq!(
            (attr.mtime.sec, i64::from(attr.mtime.nsec)),
            (known.mtime(), known.mtime_nsec())
        );
        assert_eq!(
            (attr.ctime.sec, i64::from(attr.ctime.nsec)),
            (known.ctime(), known.ctime_nsec())
        );
    }
    let null = fs::metadata("/dev/null").unwrap();
    let dev = sys::open_path("/dev".as_ref(), libc::O_PATH).unwrap();
    assert_eq!(sys::stat(dev.as_fd(), b"null").unwrap().rdev, null.rdev());
    assert_eq!(sys::stat(s.dir(), b"none"), Err(Errno::NOENT));
    // A link is not followed.
    sys::symlink(b"none", s.dir(), b"link").unwrap();
    assert_eq!(sys::stat(s.dir(), b"link").unwrap().size, 4);
}

#[test]
fn modes_owners_and_times_are_set_by_name_and_by_descriptor() {
    let s = Scene::new();
    let file = s.file("file", b"");
    let mode = || sys::stat(s.dir(), b"file").unwrap().mode & 0o7777;
    assert_eq!(sys::chmod(file.as_fd(), 0o4750), Ok(()));
    assert_eq!(mode(), 0o4750);
    assert_eq!(sys::chmod_at(s.dir(), b"file", 0o601), Ok(()));
    assert_eq!(mode(), 0o601);
    assert_eq!(sys::chmod_at(s.dir(), b"none", 0o600), Err(Errno::NOENT));
    let (uid, gid) = sys::my_ids();
    assert_eq!(sys::chown(s.dir(), b"file", uid, gid), Ok(()));
    assert_eq!(sys::chown(file.as_fd(), b"", u32::MAX, u32::MAX), Ok(()));
    assert_eq!(sys::chown(s.dir(), b"none", uid, gid), Err(Errno::NOENT));
    let at = |sec| Timestamp {
        sec,
        nsec: 999_999_999,
    };
    let times = |name: &[u8]| {
        let attr = sys::stat(s.dir(), name).unwrap();
        (attr.atime, attr.mtime)
    };
    assert_eq!(
        sys::set_times(s.dir(), b"file", Some(at(-5)), Some(at(7))),
        Ok(())
    );
    assert_eq!(times(b"file"), (at(-5), at(7)));
    assert_eq!(sys::set_times(file.as_fd(), b"", None, Some(at(8))), Ok(()));
    assert_eq!(times(b"file"), (at(-5), at(8)));
    assert_eq!(
        sys::set_times(s.dir(), b"none", None, Some(at(1))),
        Err(Errno::NOENT)
    );
    let before = sys::now_coarse();
    assert_eq!(sys::set_times_to_now(file.as_fd()), Ok(()));
    assert!(times(b"file").0 >= before && times(b"file").1 >= before);
    let path = sys::open(s.dir(), b"file", libc::O_PATH, 0).unwrap();
    assert_eq!(sys::set_times_to_now(path.as_fd()), Err(Errno::BADF));
    assert_eq!(sys::chmod(path.as_fd(), 0o600), Err(Errno::BADF));
    assert_eq!(sys::chmod_of_path(path.as_fd(), 0o640), Ok(()));
    assert_eq!(mode(), 0o640);
    assert_eq!(
        sys::set_times_of_path(path.as_fd(), Some(at(3)), None),
        Ok(())
    );
    assert_eq!(times(b"file").0, at(3));
}

#[test]
fn no_mode_time_or_name_goes_to_what_a_symbolic_link_leads_to() {
    let s = Scene::new();
    let file = s.file("file", b"");
    sys::chmod(file.as_fd(), 0o640).unwrap();
    sys::symlink(b"file", s.dir(), b"link").unwrap();
    let before = sys::stat(s.dir(), b"file").unwrap();
    let link = sys::open(s.dir(), b"link", libc::O_PATH | libc::O_NOFOLLOW, 0).unwrap();
    assert_eq!(sys::chmod_at(s.dir(), b"link", 0o777), Err(Errno::LOOP));
    assert_eq!(sys::chmod_of_path(link.as_fd(), 0o777), Err(Errno::LOOP));
    let at = Timestamp { sec: 5, nsec: 0 };
    assert_eq!(
        sys::set_times_of_path(link.as_fd(), Some(at), Some(at)),
        Ok(())
    );
    assert_eq!(sys::link_file(link.as_fd(), s.dir(), b"second"), Ok(()));
    assert_eq!(sys::stat(s.dir(), b"file"), Ok(before));
    assert_eq!(sys::stat(s.dir(), b"link").unwrap().mtime, at);
    assert_eq!(sys::readlink(s.dir(), b"second").unwrap(), b"file");
}

#[test]
fn extended_attributes_of_every_length_come_back() {
    let s = Scene::new();
    let file = s.file("file", b"");
    let fd = file.as_fd();
    let name = b"user.forebay.test";
    assert_eq!(sys::get_xattr(fd, name), Ok(None));
    assert_eq!(sys::remove_xattr(fd, name), Err(Errno::NODATA));
    for len in [0, 1, 512, 513, 2000] {
        let value = vec![7; len];
        assert_eq!(sys::set_xattr(fd, name, &value), Ok(()));
        assert_eq!(sys::get_xattr(fd, name), Ok(Some(value)));
    }
    assert_eq!(sys::list_xattr(fd), Ok([name, &b"\0"[..]].concat()));
    assert_eq!(sys::has_only_xattr(fd, name), Ok(true));
    assert_eq!(sys::has_only_xattr(fd, b"user.forebay"), Ok(false));
    assert_eq!(sys::set_xattr(fd, b"user.other", b"x"), Ok(()));
    assert_eq!(sys::has_only_xattr(fd, name), Ok(false));
    assert_eq!(
        sys::set_xattr(fd, &[b"user.", &[b'n'; 100][..]].concat(), b""),
        Ok(())
    );
    assert_eq!(sys::has_only_xattr(fd, name), Ok(false));
    assert_eq!(sys::remove_xattr(fd, name), Ok(()));
    assert_eq!(sys::get_xattr(fd, name), Ok(None));
    let path = sys::open(s.dir(), b"file", libc::O_PATH, 0).unwrap();
    assert_eq!(sys::set_xattr(path.as_fd(), name, b"x"), Err(Errno::BADF));
    assert_eq!(sys::get_xattr(path.as_fd(), name), Err(Errno::BADF));
    assert_eq!(sys::list_xattr(path.as_fd()), Err(Errno::BADF));
    assert_eq!(sys::has_only_xattr(path.as_fd(), name), Err(Errno::BADF));
}

#[test]
fn a_directory_of_several_batches_is_listed_whole() {
    let s = Scene::new();
    let mut known = BTreeMap::from([(b"d".to_vec(), libc::DT_DIR), (b"l".to_vec(), libc::DT_LNK)]);
    sys::mkdir(s.dir(), b"d", 0o700).unwrap();
    sys::symlink(b"d", s.dir(), b"l").unwrap();
    sys::mknod(s.dir(), b"fifo", libc::S_IFIFO | 0o600, 0).unwrap();
    known.insert(b"fifo".to_vec(), libc::DT_FIFO);
    for i in 0..2000 {
        let name = format!("a-file-with-a-name-of-some-length-{i}");
        s.file(&name, b"");
        known.insert(name.into_bytes(), libc::DT_REG);
    }
    let mut entries = Vec::new();
    let mut batches = 1;
    while sys::read_dir(s.dir(), &mut entries).unwrap() {
        batches += 1;
    }
    assert!(batches > 2, "{batches}");
    assert_eq!(sys::read_dir(s.dir(), &mut entries), Ok(false));
    let inode = entries.iter().find(|e| e.name == b"d").unwrap().ino;
    assert_eq!(inode, fs::metadata(s.path("d")).unwrap().ino());
    let found: BTreeMap<_, _> = entries.into_iter().map(|e| (e.name, e.dtype)).collect();
    assert_eq!(found, known);
    let file = s.file("file", b"");
    assert_eq!(
        sys::read_dir(file.as_fd(), &mut Vec::new()),
        Err(Errno::NOTDIR)
    );
}

#[test]
fn data_and_holes_of_a_file_are_told_apart() {
    let s = Scene::new();
    let mut file = s.file("file", &[1; 4096]);
    file.seek(SeekFrom::Start(1 << 20)).unwrap();
    file.write_all(&[2; 4096]).unwrap();
    assert_eq!(sys::set_size(file.as_fd(), 2 << 20), Ok(()));
    assert_eq!(sys::fsync(file.as_fd()), Ok(()));
    assert_eq!(sys::syncfs(file.as_fd()), Ok(()));
    assert_eq!(sys::next_data(file.as_fd(), 0), Ok(Some((0, 4096))));
    let second = Ok(Some((1 << 20, (1 << 20) + 4096)));
    assert_eq!(sys::next_data(file.as_fd(), 4096), second);
    assert_eq!(sys::next_data(file.as_fd(), (1 << 20) + 4096), Ok(None));
    let (reader, _writer) = sys::pipe().unwrap();
    assert_eq!(sys::next_data(reader.as_fd(), 0), Err(Errno::SPIPE));
    assert_eq!(sys::set_size(reader.as_fd(), 0), Err(Errno::INVAL));
    assert_eq!(sys::fsync(reader.as_fd()), Err(Errno::INVAL));
    // Advice does no harm, wherever it is given.
    for fd in [file.as_fd(), reader.as_fd()] {
        sys::begin_writeback(fd);
        sys::will_need(fd);
        sys::will_read_all(fd);
        sys::forget_pages(fd);
    }
}

#[test]
fn a_copy_has_as_many_bytes_as_asked_for_or_as_there_are() {
    let s = Scene::new();
    let bytes: Vec<u8> = (0..100_000).map(|i| (i % 251) as u8).collect();
    for (asked, there) in [(100_000, 100_000), (70_001, 70_001), (1 << 40, 100_000)] {
        let (from, to) = (s.file("from", &bytes), s.file("to", b""));
        assert_eq!(sys::copy(from.as_fd(), to.as_fd(), asked), Ok(there));
        assert_eq!(fs::read(s.path("to")).unwrap(), bytes[..there as usize]);
    }
    // The kernel refuses to copy from a file in /proc, so the substitute does it.
    let version = fs::read("/proc/version").unwrap();
    let (from, to) = (File::open("/proc/version").unwrap(), s.file("to", b""));
    let copied = sys::copy(from.as_fd(), to.as_fd(), 1 << 20);
    assert_eq!(copied, Ok(version.len() as u64));
    assert_eq!(fs::read(s.path("to")).unwrap(), version);
    let (from, to) = (s.file("from", &bytes), File::open(s.path("to")).unwrap());
    assert_eq!(sys::copy(from.as_fd(), to.as_fd(), 10), Err(Errno::BADF));
}

#[test]
fn a_lock_is_seen_as_long_as_it_is_held() {
    let s = Scene::new();
    let (first, second) = (s.file("lock", b""), s.file("lock", b""));
    assert!(!sys::is_locked(&s.path("lock")));
    assert!(!sys::is_locked(&s.path("none")));
    assert_eq!(sys::lock_file(first.as_fd()), Ok(()));
    assert_eq!(sys::lock_file(second.as_fd()), Err(Errno::WOULDBLOCK));
    assert!(sys::is_locked(&s.path("lock")));
    drop(first);
    assert_eq!(sys::lock_file(second.as_fd()), Ok(()));
}

#[test]
fn access_is_judged_and_the_access_time_kept() {
    let s = Scene::new();
    let file = s.file("file", b"x");
    assert_eq!(
        sys::check_access(&s.path("file"), libc::R_OK | libc::W_OK),
        Ok(())
    );
    // No file without an execute bit is executable, not even for root.
    assert_eq!(
        sys::check_access(&s.path("file"), libc::X_OK),
        Err(Errno::ACCESS)
    );
    assert_eq!(
        sys::check_access(&s.path("none"), libc::F_OK),
        Err(Errno::NOENT)
    );
    assert_eq!(sys::keep_access_time(file.as_fd()), Ok(()));
    let path = sys::open(s.dir(), b"file", libc::O_PATH, 0).unwrap();
    assert_eq!(sys::keep_access_time(path.as_fd()), Err(Errno::BADF));
}

#[test]
fn a_file_system_says_what_it_is_and_how_much_is_free() {
    let s = Scene::new();
    let (size, free) = sys::fs_space(s.dir()).unwrap();
    assert!(free <= size && size > 0);
    assert_eq!(sys::space(s.temporary.path()).unwrap().0, size);
    assert_eq!(sys::space(&s.path("none")), Err(Errno::NOENT));
    let proc = sys::open_path("/proc".as_ref(), libc::O_RDONLY).unwrap();
    assert_eq!(sys::fs_type(proc.as_fd()), Ok(0x9fa0));
    assert_eq!(sys::writes_in_place(proc.as_fd()), Ok(false));
    if let Ok(memory) = sys::open_path("/dev/shm".as_ref(), libc::O_RDONLY)
        && sys::fs_type(memory.as_fd()) == Ok(0x0102_1994)
    {
        assert_eq!(sys::writes_in_place(memory.as_fd()), Ok(true));
    }
}

#[test]
fn a_scratch_file_has_no_name_and_touches_nothing_that_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let victim = folder.path().join("victim");
    std::fs::write(&victim, "whole").unwrap();
    // Whoever can tell the name in advance puts a link there.
    let trap = format!(".forebay-probe-{}-1", std::process::id());
    std::os::unix::fs::symlink(&victim, folder.path().join(trap)).unwrap();
    for dir in [folder.path(), std::path::Path::new("/dev/shm")] {
        let dir = sys::open_path(dir, libc::O_RDONLY | libc::O_DIRECTORY).unwrap();
        let file = sys::scratch_file(dir.as_fd()).unwrap();
        assert_eq!(sys::stat(file.as_fd(), b"").unwrap().nlink, 0);
    }
    assert_eq!(std::fs::read_to_string(victim).unwrap(), "whole");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}
