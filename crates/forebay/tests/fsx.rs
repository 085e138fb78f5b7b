//! fsx: a million random operations on file contents. It compares each read with a model in memory.
//! Every seed runs twice: on a file that is new in the buffer, and on one that was on the PFS.

mod common;

use common::{case, need};

/// Operations on contents without mmap; a file is closed and opened again every tenth time or so.
const CALLS: &str = "
    flen = 262144
    [opsize]
    max = 16384
    [weights]
    close_open = 3
    read = 10
    write = 10
    truncate = 4
    mapread = 0
    mapwrite = 0
    fsync = 0.01
    fdatasync = 0.01
    punch_hole = 1
    copy_file_range = 1
    sendfile = 1
    posix_fadvise = 1
";

/// The same with mapped reads and writes.
const MAPS: &str = "
    flen = 131072
    nomsyncafterwrite = true
    [opsize]
    max = 8192
    [weights]
    close_open = 3
    read = 10
    write = 10
    truncate = 1
    mapread = 10
    mapwrite = 10
    fsync = 0.01
    fdatasync = 0.01
    punch_hole = 0.3
    copy_file_range = 1
    sendfile = 1
    posix_fadvise = 1
";

/// fsx with this configuration: 2 files, `seeds`, `operations` each.
fn exercise(case: common::Case, configuration: &str, seeds: &[u32], operations: u32) {
    std::fs::write(case.dir().join("fsx.toml"), configuration).expect("write fsx.toml");
    let seeds = seeds
        .iter()
        .map(u32::to_string)
        .collect::<Vec<_>>()
        .join(" ");
    let script = format!(
        r#"
        for seed in {seeds}; do
            "$TOOLS/fsx" -q -N {operations} -S $seed -f "$OUTSIDE/../fsx.toml" -P "$OUTSIDE" new.$seed > "$OUTSIDE/said" 2>&1 ||
                {{ echo "seed $seed, new file:"; tail -30 "$OUTSIDE/said"; exit 1; }}
            "$TOOLS/fsx" -q -N {operations} -S $seed -f "$OUTSIDE/../fsx.toml" -P "$OUTSIDE" old.$seed > "$OUTSIDE/said" 2>&1 ||
                {{ echo "seed $seed, file of the PFS:"; tail -30 "$OUTSIDE/said"; exit 1; }}
        done
        md5sum new.* old.* > "$OUTSIDE/sums"
        "#
    );
    let start = "for seed in 1 2 3 4 5 6 7 11 12 13 14 15 16 17 18; do head -c 70000 /dev/zero | tr '\\0' o > old.$seed; done";
    let case = case.start(start).without_walk();
    let outcome = case.buffered(&script);
    assert_eq!(outcome.code, 0, "{}", outcome.text());
    let arrived = std::process::Command::new("md5sum")
        .args(["--check", "--quiet", "--strict"])
        .arg(case.dir().join("out/sums"))
        .current_dir(&outcome.dir)
        .status()
        .expect("run md5sum");
    assert!(arrived.success(), "contents differ after the drain");
    case.passes();
}

#[test]
fn fsx_finds_no_fault_in_700_000_calls() {
    need!("fsx");
    exercise(case!(), CALLS, &[1, 2, 3, 4, 5, 6, 7], 50_000);
}

#[test]
fn fsx_with_mmap_finds_no_fault_in_160_000_operations() {
    need!("fsx");
    exercise(case!(), MAPS, &[11, 12, 13, 14], 20_000);
}

#[test]
fn fsx_with_mmap_finds_no_fault_in_160_000_more() {
    need!("fsx");
    exercise(case!(), MAPS, &[15, 16, 17, 18], 20_000);
}

/// Fewer, because each look at the file asks the server of the mount.
#[test]
fn fsx_with_mmap_finds_no_fault_in_16_000_operations_through_the_mount() {
    need!("fsx");
    forebay_testkit::skip_unless!(
        forebay_testkit::is_root() && std::path::Path::new("/dev/fuse").exists(),
        "a mount needs root and /dev/fuse"
    );
    exercise(case!().via("mount"), MAPS, &[11, 12], 4_000);
}
