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

use common::{Case, Outcome};
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

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

/// Runs the script in the buffer of the case, which root has mounted at this place meanwhile.
fn beside_a_mount(case: &Case, script: &str, at: &Path) -> Outcome {
    let forebay = |arguments: &[&OsStr]| {
        let status = Command::new(common::forebay()).args(arguments).status();
        assert!(status.expect("run forebay").success());
    };
    let (root, storage, at) = (case.dir().join("run"), case.storage(), at.as_os_str());
    let (buffer, local) = ("--buffer".as_ref(), "--storage".as_ref());
    let start = [
        "mount".as_ref(),
        buffer,
        root.as_ref(),
        local,
        storage.as_ref(),
        at,
    ];
    case.buffered_between(
        script,
        || forebay(&start),
        || forebay(&["umount".as_ref(), at]),
    )
}
