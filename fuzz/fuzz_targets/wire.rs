//! Any bytes at all, as a request and as a reply.
#![no_main]

#[path = "../check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    check::any_message(bytes);
});
