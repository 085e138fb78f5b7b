//! Which descriptors are granted, and how.

use crate::facts::{Cred, Settings};
use crate::ops::{GrantTarget, Op};
use crate::record::ObjectName;

/// Status flags of a descriptor that a client may have. `O_ASYNC` is not among them.
pub const GRANT_FLAGS: i32 = libc::O_ACCMODE
    | libc::O_APPEND
    | libc::O_TRUNC
    | libc::O_NONBLOCK
    | libc::O_DSYNC
    | libc::O_SYNC
    | libc::O_DIRECT
    | libc::O_DIRECTORY
    | libc::O_NOATIME
    | libc::O_NOFOLLOW
    | libc::O_PATH;

/// The status flags of a descriptor for a file that is being made.
pub fn new_file_flags(flags: i32) -> i32 {
    flags & GRANT_FLAGS & !(libc::O_TRUNC | libc::O_DIRECTORY | libc::O_NOFOLLOW)
}

/// How a client gets what it is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The bridge opens the target and passes the descriptor.
    Descriptor,
    /// The client opens the backing file itself. This saves two messages that carry a descriptor.
    Name(ObjectName),
}

/// An open that the driver carries out for a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granting {
    /// What to open.
    pub target: GrantTarget,
    /// With these flags, all of them among [`GRANT_FLAGS`].
    pub flags: i32,
    /// How the client gets it. Nothing is opened for a name.
    pub form: Form,
    /// Programs can open this object later without the bridge, so its file is never reused.
    pub shared: bool,
    /// The file gets another time of change once it is open: a program may write to it through a mapping, and nothing else
    /// would show that.
    pub is_stamped: bool,
}

/// How a grant of `target` with `flags` reaches the caller. `by_name`: it would rather open a backing
/// file itself; `is_plain`: the target is a plain file of this bridge.
pub(super) fn form(
    target: &GrantTarget,
    flags: i32,
    by_name: bool,
    is_plain: bool,
    cred: &Cred,
    settings: &Settings,
) -> Granting {
    let flags = flags & GRANT_FLAGS;
    let is_path = flags & libc::O_PATH != 0;
    let may_map_writes = flags & libc::O_ACCMODE == libc::O_RDWR && !is_path;
    let is_stamped = is_plain && may_map_writes && !settings.stamps_mapped_writes;
    let form = match target {
        // The storage belongs to the bridge's user. Opening a FIFO or a device may block, or act.
        GrantTarget::Object(object)
            if by_name
                && is_plain
                && !is_path
                && !is_stamped
                && cred.uid == settings.bridge_uid =>
        {
            Form::Name(*object)
        }
        _ => Form::Descriptor,
    };
    Granting {
        target: target.clone(),
        flags,
        form,
        shared: is_path || form != Form::Descriptor,
        is_stamped,
    }
}

/// Does the client have to open the object anew through the descriptor? It asked for more than
/// `O_PATH` and got that, because only the client itself may do the open (it may block, or act).
pub(super) fn wants_reopening(op: &Op, granted: i32) -> bool {
    let asked = match op {
        Op::Open { flags, .. } => *flags,
        _ => return false,
    };
    granted & libc::O_PATH != 0 && asked & libc::O_PATH == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            root: b"/pfs".to_vec(),
            stage_limit_bytes: 0,
            stamps_mapped_writes: true,
            bridge_uid: 7,
            removed_at_once: 256,
            devices: Default::default(),
            keeps_numbers: true,
            protections: Default::default(),
        }
    }

    fn granted(flags: i32, by_name: bool, is_plain: bool, uid: u32) -> Granting {
        let settings = settings();
        let cred = Cred {
            uid,
            ..Cred::default()
        };
        let target = GrantTarget::Object(ObjectName::default());
        form(&target, flags, by_name, is_plain, &cred, &settings)
    }

    #[test]
    fn only_the_bridges_own_user_gets_the_name_of_a_plain_file() {
        let name = Form::Name(ObjectName::default());
        assert_eq!(granted(libc::O_RDWR, true, true, 7).form, name);
        assert_eq!(granted(libc::O_RDWR, false, true, 7).form, Form::Descriptor);
        assert_eq!(granted(libc::O_RDWR, true, false, 7).form, Form::Descriptor);
        assert_eq!(granted(libc::O_RDWR, true, true, 8).form, Form::Descriptor);
        assert_eq!(granted(libc::O_PATH, true, true, 7).form, Form::Descriptor);
    }

    #[test]
    fn what_may_be_written_through_a_mapping_is_opened_by_the_bridge_where_nothing_else_shows_that()
    {
        let on_tmpfs = |flags, is_plain| {
            let settings = Settings {
                stamps_mapped_writes: false,
                ..settings()
            };
            let cred = Cred {
                uid: 7,
                ..Cred::default()
            };
            let target = GrantTarget::Object(ObjectName::default());
            let granting = form(&target, flags, true, is_plain, &cred, &settings);
            (granting.is_stamped, granting.form == Form::Descriptor)
        };
        assert_eq!(on_tmpfs(libc::O_RDWR, true), (true, true));
        assert_eq!(on_tmpfs(libc::O_RDONLY, true), (false, false));
        assert_eq!(on_tmpfs(libc::O_WRONLY, true), (false, false));
        assert_eq!(on_tmpfs(libc::O_RDWR, false), (false, true));
        assert!(!granted(libc::O_RDWR, true, true, 7).is_stamped);
    }

    #[test]
    fn what_others_may_open_later_is_shared() {
        assert!(granted(libc::O_RDONLY, true, true, 7).shared);
        assert!(granted(libc::O_PATH, false, true, 7).shared);
        assert!(!granted(libc::O_RDONLY, false, true, 7).shared);
    }

    #[test]
    fn flags_that_act_on_others_are_not_granted() {
        let asked = libc::O_RDWR | libc::O_ASYNC | libc::O_APPEND | libc::O_CREAT;
        let granted = granted(asked, false, true, 7).flags;
        assert_eq!(granted, libc::O_RDWR | libc::O_APPEND);
        assert_eq!(new_file_flags(asked | libc::O_TRUNC), granted);
    }

    #[test]
    fn who_asked_for_a_path_does_not_open_again() {
        let op = |flags| Op::Open {
            path: crate::ops::Path {
                start: crate::ops::Start::Root,
                bytes: b"f".to_vec(),
            },
            flags,
            mode: 0,
        };
        assert!(wants_reopening(&op(libc::O_RDONLY), libc::O_PATH));
        assert!(!wants_reopening(&op(libc::O_PATH), libc::O_PATH));
        assert!(!wants_reopening(&op(libc::O_RDONLY), libc::O_RDONLY));
    }
}
