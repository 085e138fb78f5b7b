//! The buffer as a mount: programs that no library can be loaded into give what they give natively, and when a server
//! dies programs get an error and nothing that was synced is lost.

#[path = "../common/mod.rs"]
mod common;

mod ends;
mod flags;
mod programs;
#[path = "../cli_verbs/stage.rs"]
mod stage;
mod user;

/// Skips the test unless the kernel lets this user mount FUSE file systems.
macro_rules! need_fuse {
    () => {
        ::forebay_testkit::skip_unless!(
            ::forebay_testkit::is_root() && std::path::Path::new("/dev/fuse").exists(),
            "a mount needs root and /dev/fuse"
        );
    };
}
pub(crate) use need_fuse;
