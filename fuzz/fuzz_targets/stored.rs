//! Any bytes at all, as what lies on the storage.
#![no_main]

#[path = "../check_stored.rs"]
mod check_stored;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check_stored::anything_stored(bytes));
