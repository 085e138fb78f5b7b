//! Any bytes at all, as a Darshan log.
#![no_main]

#[path = "../check_log.rs"]
mod check_log;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check_log::any_log(bytes));
