//! `O_APPEND` and `O_DIRECT`, which a program may give to a file that it has open, and take back.

use crate::common::{case, need};
use crate::stage::{Said, SmallDisk, Stage, finish};
use crate::user;
use crate::{beside_a_mount, need_fuse};
use std::fs;

/// A stage whose storage is an ext4, which takes only whole blocks with `O_DIRECT`. The disk goes before the stage.
fn stage() -> (Stage, Option<SmallDisk>) {
    let stage = Stage::without_storage();
    let disk = SmallDisk::ext4(stage.path("storage"), 256);
    (stage, disk)
}

/// A script of root in the directory of the stage.
fn script_of_root(stage: &Stage, script: &str) -> Said {
    let mut command = stage.command("bash");
    command
        .arg("-c")
        .arg(format!("{}\n{script}", user::FUNCTIONS));
    finish(command)
}

/// Copies of files by `dd`, which takes `O_DIRECT` back before it writes a last block that is not whole.
const COPIES: &str = r#"
    head -c 10000 /dev/zero | tr '\0' a > pfs/odd; printf 'status %s\n' start
    run -- bash -c '
        cd pfs; cp odd over
        copy() { dd if=odd bs=4k status=none "$@"; echo "status $?"; }
        copy of=new oflag=direct; copy of=over oflag=direct conv=notrunc; copy of=/dev/null iflag=direct
        copy of=synced oflag=direct,dsync iflag=direct,fullblock; cmp odd new; cmp odd over; cmp odd synced
        truncate -s 0 odd; copy of=empty oflag=direct iflag=direct'
    stat -c '%n %s' pfs/*
"#;
const COPIED: &str = "status start\nstatus 0\nstatus 0\nstatus 0\nstatus 0\nstatus 0\n\
                      pfs/empty 0\npfs/new 10000\npfs/odd 0\npfs/over 10000\npfs/synced 10000\n";

/// A program that changes the flags of its open files.
const CHANGES: &str = r#"
import fcntl, mmap, os
def flags(fd, flags): fcntl.fcntl(fd, fcntl.F_SETFL, flags)
def at_start(fd, data):
    os.lseek(fd, 0, os.SEEK_SET)
    os.write(fd, data)
    return os.lseek(fd, 0, os.SEEK_CUR)
CREATE = os.O_CREAT | os.O_RDWR
fd = os.open("pfs/append", CREATE | os.O_APPEND)
print(at_start(fd, b"one, "), at_start(fd, b"two, "))
flags(fd, 0); print(at_start(fd, b"ONE"))
flags(fd, os.O_APPEND); print(at_start(fd, b"three"), os.pread(fd, 99, 0))
fd = os.open("pfs/plain", CREATE)
print(at_start(fd, b"one, "))
flags(fd, os.O_APPEND); print(at_start(fd, b"two, "))
flags(fd, 0); print(at_start(fd, b"ONE"), os.pread(fd, 99, 0))
# A buffer of whole pages.
page = mmap.mmap(-1, 4096); page[:] = b"p" * 4096
fd = os.open("pfs/direct", CREATE | os.O_DIRECT)
print(os.pwrite(fd, page, 0))
flags(fd, 0); print(os.pwrite(fd, b"tail", 4096), os.pread(fd, 5, 4095))
flags(fd, os.O_DIRECT); print(os.preadv(fd, [page], 4096), page[:4])
fd = os.open("pfs/both", CREATE | os.O_DIRECT | os.O_APPEND)
page[:] = b"q" * 4096; print(os.pwrite(fd, page, 0), os.pwrite(fd, page, 0), os.fstat(fd).st_size)
"#;
const CHANGED: &str = "5 10\n3\n15 b'ONE, two, three'\n5\n10\n3 b'ONE, two, '\n4096\n4 b'ptail'\n4 b'tail'\n4096 4096 8192\n";

/// Processes that append to one file at once: those with even numbers have opened it so, and the others have given it the flag later.
const LINES: &str = r#"
import fcntl, os, sys
path, number, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
later = number % 2
fd = os.open(path, os.O_WRONLY | (0 if later else os.O_APPEND))
if later: fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
for n in range(count):
    os.write(fd, b"%d %d %s\n" % (number, n, b"x" * (n * 37 % 5000)))
"#;

/// Were all the lines appended, each whole, and those of a process one after the other?
fn holds_all_lines(content: &str, processes: usize, count: usize) {
    let mut next = vec![0; processes];
    for line in content.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [number, n, filling] = words[..] else {
            panic!("a line in pieces: {line}");
        };
        let (number, n): (usize, usize) = (number.parse().unwrap(), n.parse().unwrap());
        assert_eq!(next[number], n, "of process {number}");
        assert_eq!(filling.len(), n * 37 % 5000);
        next[number] += 1;
    }
    assert_eq!(next, vec![count; processes]);
}

/// What programs see, and what arrives on the PFS.
fn is_as_natively(stage: &Stage, script: impl Fn(&Stage, &str) -> Said) {
    for (name, program) in [("changes.py", CHANGES), ("lines.py", LINES)] {
        fs::write(stage.path(name), program).unwrap();
    }
    let said = script(stage, "run -- /usr/bin/python3 changes.py").ends_with(0);
    assert_eq!(said.out, CHANGED, "{}", said.err);
    assert_eq!(
        fs::read_to_string(stage.pfs().join("append")).unwrap(),
        "ONE, two, three"
    );
    let lines = r#"
        run -- bash -c ': > pfs/lines
            for n in 0 1 2 3; do /usr/bin/python3 lines.py pfs/lines $n 100 || echo failed & done; wait'
    "#;
    let said = script(stage, lines).ends_with(0);
    assert_eq!(said.out, "", "{}", said.err);
    let lines = fs::read_to_string(stage.pfs().join("lines")).unwrap();
    holds_all_lines(&lines, 4, 100);
    // The PFS is emptied, because the script names all that is there.
    for entry in fs::read_dir(stage.pfs()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let said = script(stage, COPIES).ends_with(0);
    assert_eq!(said.out, COPIED, "{}", said.err);
}

#[test]
fn flags_that_root_changes_count_for_each_write_as_natively() {
    need_fuse!();
    need!("mkfs.ext4");
    let (stage, disk) = stage();
    forebay_testkit::skip_unless!(disk.is_some(), "no loop device can be mounted here");
    is_as_natively(&stage, script_of_root);
}

#[test]
fn flags_that_a_user_changes_count_for_each_write_as_natively() {
    need_fuse!();
    need!("mkfs.ext4", "setpriv", "unshare");
    let (stage, disk) = stage();
    forebay_testkit::skip_unless!(disk.is_some(), "no loop device can be mounted here");
    user::equip(&stage, "666");
    is_as_natively(&stage, user::script);
}

#[test]
fn a_file_that_appends_or_is_direct_is_mapped_as_any_other_and_all_its_descriptors_agree() {
    need_fuse!();
    need!("mkfs.ext4");
    let (stage, disk) = stage();
    forebay_testkit::skip_unless!(disk.is_some(), "no loop device can be mounted here");
    let program = r#"
import mmap, os
plain = os.open("pfs/file", os.O_CREAT | os.O_RDWR)
for how in (os.O_APPEND, os.O_DIRECT):
    os.ftruncate(plain, 0); os.pwrite(plain, b"a" * 4096, 0)
    other = os.open("pfs/file", os.O_RDWR | how)
    maps = [mmap.mmap(fd, 4096) for fd in (plain, other)]
    page = mmap.mmap(-1, 4096)
    def see(): print([m[:3] for m in maps], os.pread(plain, 3, 0), os.preadv(other, [page], 0), page[:3])
    see(); maps[1][0:3] = b"bbb"; see(); os.pwrite(plain, b"ccc", 0); see()
    if how == os.O_APPEND: os.write(other, b"end"); print(os.pread(plain, 9, 4095))
    else: page[:] = b"d" * 4096; os.pwrite(other, page, 0); see()
"#;
    fs::write(stage.path("maps.py"), program).unwrap();
    let said = script_of_root(&stage, "run -- /usr/bin/python3 maps.py").ends_with(0);
    let see = |text: &str| format!("[b'{text}', b'{text}'] b'{text}' 4096 b'{text}'\n");
    let [a, b, c, d] = ["aaa", "bbb", "ccc", "ddd"].map(see);
    let expected = format!("{a}{b}{c}b'aend'\n{a}{b}{c}{d}");
    assert_eq!(said.out, expected, "{}", said.err);
}

#[test]
fn programs_with_the_library_and_programs_in_the_mount_append_to_one_file_and_lose_nothing() {
    need_fuse!();
    let case = case!().without_walk();
    let mountpoint = case.dir().join("at");
    fs::create_dir(&mountpoint).expect("make the mount point");
    fs::write(case.dir().join("bin/lines.py"), LINES).unwrap();
    let script = r#"
        : > lines
        append() { "$PYTHON" "$BIN/lines.py" "$@" || echo failed; }
        other() { LD_PRELOAD= "$PYTHON" "$BIN/lines.py" "$OUTSIDE/../at/lines" "$@" || echo failed; }
        append lines 0 300 & append lines 1 300 & other 2 300 & other 4 300 & wait
        sed -i 's/^4 /3 /' lines
    "#;
    let outcome = beside_a_mount(&case, script, &mountpoint);
    assert_eq!(outcome.text(), "", "{}", outcome.forebay_said);
    let lines = fs::read_to_string(outcome.dir.join("lines")).unwrap();
    holds_all_lines(&lines, 4, 300);
    case.passes();
}
