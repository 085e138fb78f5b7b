//! A full disk under the buffer: errors come at once and clearly, nothing that was
//! acknowledged is lost, and work goes on when there is space again.

mod common;

use common::process::Process;
use common::{Folder, Place, names, read};
use forebay_client::Client;
use forebay_testkit::{is_root, skip};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

#[test]
#[ignore = "the bridge of the other tests"]
fn bridge_process() {
    common::process::serve();
}

/// A small ext4 of its own, gone with the value.
struct SmallDisk {
    folder: Folder,
}

impl SmallDisk {
    /// `None`, with the reason printed, where this can't be had.
    fn new(mib: u64) -> Option<SmallDisk> {
        if !is_root() {
            skip("only root can mount a small disk");
            return None;
        }
        let disk = SmallDisk {
            folder: Folder::new(),
        };
        let image = disk.folder.path().join("image");
        File::create(&image).unwrap().set_len(mib << 20).unwrap();
        std::fs::create_dir(disk.path()).unwrap();
        let run = |program: &str, args: &[&std::ffi::OsStr]| {
            let output = Command::new(program).args(args).output();
            match output {
                Ok(o) if o.status.success() => true,
                Ok(o) => {
                    skip(&format!(
                        "{program}: {}",
                        String::from_utf8_lossy(&o.stderr)
                    ));
                    false
                }
                Err(e) => {
                    skip(&format!("{program}: {e}"));
                    false
                }
            }
        };
        let made = run(
            "mkfs.ext4",
            &["-q".as_ref(), "-m0".as_ref(), image.as_ref()],
        );
        let loop_option = ["-o".as_ref(), "loop".as_ref()];
        let mounted = made
            && run(
                "mount",
                &[
                    loop_option[0],
                    loop_option[1],
                    image.as_ref(),
                    disk.path().as_ref(),
                ],
            );
        mounted.then_some(disk)
    }
    fn path(&self) -> PathBuf {
        self.folder.path().join("mount")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a bridge that a failing test leaves may still be using it.
        let _ = Command::new("umount").arg("-l").arg(self.path()).output();
    }
}

const PIECE: usize = 1 << 20;

fn is_full<T>(outcome: Result<T, forebay_client::Error>) -> bool {
    match outcome {
        Ok(_) => false,
        Err(e) if e.errno() == Some(libc::ENOSPC) => true,
        Err(e) => panic!("not ENOSPC, but {e}"),
    }
}

/// Takes all the space there is, without the bridge, as another program would.
struct Ballast(PathBuf);

impl Ballast {
    fn take(dir: &Path) -> Ballast {
        let ballast = Ballast(dir.join("ballast"));
        ballast.take_more();
        ballast
    }
    fn take_more(&self) {
        let file = File::options()
            .create(true)
            .append(true)
            .open(&self.0)
            .unwrap();
        for piece in [PIECE, 4096] {
            let bytes = vec![1; piece];
            while let Ok(1..) = (&file).write(&bytes) {}
        }
    }
    fn give_back(&self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

/// Sets it when it goes, also when the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn check(place: &Place, storage: &Path) {
    let instance = forebay_admin::instance_dir(storage, &place.root());
    let report = forebay_server::fsck::fsck(&instance, Default::default()).unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}

fn create(client: &mut Client, path: &str) -> Result<File, forebay_client::Error> {
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
    client.open(path, flags, 0o644).map(File::from)
}

#[test]
fn programs_see_a_full_disk_at_create_or_write_and_nothing_is_lost() {
    let Some(disk) = SmallDisk::new(160) else {
        return;
    };
    let place = Place::new();
    let bridge = Process::start_at(&place.root(), &disk.path(), &place);
    let mut client = place.client();
    let bytes: Vec<u8> = (0..PIECE).map(|n| (n % 251) as u8).collect();
    let mut whole = Vec::new();
    let mut part = None;
    for n in 0.. {
        assert!(n < 1000, "a disk of 160 MiB is never full");
        let file = match create(&mut client, &format!("f{n}")) {
            Ok(file) => file,
            Err(e) => {
                assert_eq!(e.errno(), Some(libc::ENOSPC));
                break;
            }
        };
        match file.write_at(&bytes, 0) {
            Ok(n) if n == bytes.len() => whole.push(format!("f{n}", n = whole.len())),
            Ok(len) => {
                part = Some((format!("f{n}"), len));
                break;
            }
            Err(e) => {
                assert_eq!(e.raw_os_error(), Some(libc::ENOSPC));
                part = Some((format!("f{n}"), 0));
                break;
            }
        }
    }
    let all: Vec<_> = whole
        .iter()
        .chain(part.iter().map(|(name, _)| name))
        .collect();
    assert_eq!(names(&mut client, "").len(), all.len());
    for path in &whole {
        assert!(read(&mut client, path) == bytes, "{path}");
    }
    if let Some((path, len)) = &part {
        assert!(read(&mut client, path) == bytes[..*len], "{path}");
    }
    // What a person does now.
    for path in whole.iter().take(20) {
        client.unlink(path).unwrap();
    }
    let file = create(&mut client, "later").unwrap();
    file.write_all_at(&bytes, 0).unwrap();
    assert!(read(&mut client, "later") == bytes);
    bridge.end();
    check(&place, &disk.path());
}

#[test]
fn tables_that_find_no_space_say_so_and_go_on_when_there_is_some() {
    let Some(disk) = SmallDisk::new(160) else {
        return;
    };
    let place = Place::new();
    let mut bridge = Process::start_at(&place.root(), &disk.path(), &place);
    let mut client = place.client();
    client.mkdir("keep", 0o755).unwrap();
    let long = |n: u32| format!("keep/{n:0>250}");
    create(&mut client, &long(0)).unwrap();
    let mut at = 0;
    for round in 0..2 {
        let ballast = Ballast::take(&disk.path());
        let ended = AtomicBool::new(false);
        // Each rename makes the tables grow, and another program takes whatever gets free.
        let refused = thread::scope(|scope| {
            let _ends = Ends(&ended);
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    ballast.take_more();
                }
            });
            let mut refused = 0;
            for _ in 0..200_000 {
                if is_full(client.rename(long(at), long(at + 1))) {
                    refused += 1;
                    if refused == 100 {
                        break;
                    }
                } else {
                    at += 1;
                }
            }
            refused
        });
        assert_eq!(refused, 100, "the tables are never full");
        println!("round {round}: full after {at} renames");
        // What was refused has not happened, and what is there can be read.
        assert_eq!(names(&mut client, "keep"), [long(at)[5..].to_owned()]);
        assert!(is_full(create(&mut client, "new")));
        if round == 1 {
            bridge.kill();
            ballast.give_back();
            bridge = Process::start_at(&place.root(), &disk.path(), &place);
        } else {
            ballast.give_back();
        }
        client.rename(long(at), long(at + 1)).unwrap();
        at += 1;
        client.unlink(long(at)).unwrap();
        create(&mut client, &long(at)).unwrap();
    }
    bridge.end();
    check(&place, &disk.path());
}
