//! Messages on standard error when a library cannot reach its bridge. The caller limits them to one line per process
//! and cause.

use forebay_hook::kernel::{self, Errno};
use forebay_wire::PROTOCOL_VERSION;

use crate::config::Config;
use crate::exchange::is_forbidden;

/// Says that the bridge could not be reached until patience ended, or can't be.
pub fn lost(config: &Config, why: Errno) {
    let reason: &[u8] = match why {
        _ if is_forbidden(why) => b"this process may make no sockets, as in a sandbox",
        libc::ENOENT => b"its socket is gone",
        libc::ECONNREFUSED => b"nobody listens on its socket",
        libc::EACCES => b"its socket may not be opened",
        _ => b"the connection broke",
    };
    kernel::complain(&[
        b"forebay: the bridge of ",
        config.root(),
        b" at ",
        config.socket(),
        b" cannot be reached (",
        reason,
        b"); calls on paths in the buffer fail with EIO\n",
    ]);
}

/// Says that the bridge speaks another version of the protocol.
pub fn other_version(config: &Config, theirs: u8) {
    let (mut ours_text, mut theirs_text) = ([0; 3], [0; 3]);
    let ours = kernel::decimal(u64::from(PROTOCOL_VERSION), &mut ours_text);
    let theirs = kernel::decimal(u64::from(theirs), &mut theirs_text);
    kernel::complain(&[
        b"forebay: this program's Forebay library speaks protocol ",
        &ours_text[..ours],
        b", the bridge at ",
        config.socket(),
        b" speaks ",
        &theirs_text[..theirs],
        b": use the same version of both; calls on paths in the buffer fail with EPROTO\n",
    ]);
}
