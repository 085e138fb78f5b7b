//! What a drain says is synced was synced, on a file system that is never told of a `syncfs`.

mod common;

use common::{Pfs, forebay, is_possible};
use std::fs;
use std::path::Path;
use std::process::Command;

const FILES: u64 = 100;

fn run(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn each_file_and_each_directory_is_synced_where_nothing_is_known_of_syncfs() {
    forebay_testkit::skip_unless!(
        is_possible(),
        "this needs root, FUSE and {}",
        forebay().display()
    );
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("synced");
    let _ = fs::remove_dir_all(&folder);
    let mut pfs = Pfs::mount(vec![folder.join("pfs")], &[]);
    let buffer = pfs.at[0].join("buffer");
    fs::create_dir(&buffer).expect("the buffer");
    let storage = folder.join("storage");
    fs::create_dir(&storage).expect("the storage");
    let with = |verb: &str| {
        let mut command = Command::new(forebay());
        command.arg(verb).arg("--buffer").arg(&buffer);
        command.arg("--storage").arg(&storage);
        command
    };
    let make = format!("mkdir d d/e; for n in $(seq {FILES}); do echo $n > d/e/f$n; done");
    run(with("run")
        .args(["--no-drain", "--no-record", "--", "sh", "-c", &make])
        .current_dir(&buffer));
    let said = run(&mut with("drain"));
    assert!(said.contains("fsync of each file and directory"), "{said}");
    let came = pfs.unmount();
    let calls = |name: &str| came["calls"][name].as_u64().unwrap_or(0);
    assert_eq!(came["unsynced_files"], 0, "{came}");
    // The lock, which the bridge that ends moves aside and removes, once after the run and once after the drain.
    assert_eq!(came["named_unsynced"], 2, "{came}");
    // That of the stand-in itself, in which this test has made the buffer; and the buffer, since the lock went.
    assert_eq!(came["unsynced_dirs"], 2, "{came}");
    assert!(calls("fsyncdir") >= 3, "{came}");
    assert_eq!(calls("fsync"), FILES, "{came}");
}
