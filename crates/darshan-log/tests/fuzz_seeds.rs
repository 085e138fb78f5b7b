//! The seeds of the fuzz target, and all logs that the tests make, obey what the fuzzer checks.

mod common;

#[path = "../../../fuzz/check_log.rs"]
mod check_log;

use common::every_module;
use common::raw::every_version;
use darshan_log::{Compression, Endian};
use std::path::Path;

#[test]
fn seeds_and_own_logs_obey_what_the_fuzzer_checks() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/darshan_log");
    let seeds: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(!seeds.is_empty());
    for seed in seeds {
        check_log::any_log(&std::fs::read(seed).unwrap());
    }
    for endian in [Endian::Little, Endian::Big] {
        for compression in [Compression::Zlib, Compression::Bzip2, Compression::None] {
            for log in every_version(endian, compression) {
                check_log::any_log(&log.bytes());
            }
        }
    }
    check_log::any_log(&every_module::bytes());
}
