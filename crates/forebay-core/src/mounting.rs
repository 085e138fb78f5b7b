//! With which rights the buffer is mounted, why that may be refused, and what the mount of an ordinary user shows.
//!
//! Root mounts in a mount namespace. Everybody else needs a user namespace as well, in which only the own user and the own
//! primary group have numbers.

use std::fmt;

/// How a process may mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// It is root's, and needs a mount namespace alone.
    Root,
    /// It needs a user namespace.
    User,
}

impl Privilege {
    /// That of a process of this effective user.
    pub fn of(uid: u32) -> Privilege {
        match uid {
            0 => Privilege::Root,
            _ => Privilege::User,
        }
    }
}

/// The user and the group that have numbers in a user namespace. They are the same as outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappedIds {
    /// The user.
    pub uid: u32,
    /// The user's primary group.
    pub gid: u32,
}

impl MappedIds {
    /// The group that the mount shows of an inode with this owner and this group.
    ///
    /// The kernel lets nobody create in a directory, or write to a file, whose group has no number in the namespace; and the
    /// directories of a project are of such groups. So all that is the user's own shows the primary group, whichever it has. This
    /// gives no right: what a program may do is decided outside of the namespace, by the true group. What belongs to others stays
    /// as it is, and shows as nobody's: programs that trust the owner of a file must not be fooled.
    pub fn shown_group(self, owner: u32, group: u32) -> u32 {
        match owner == self.uid {
            true => self.gid,
            false => group,
        }
    }
}

/// Does the kernel let a user create in a directory of this owner, by the mount that this user gets? In a user namespace the
/// owner has a number only if it is the user.
pub fn can_create_in(owner: u32, user: u32) -> bool {
    owner == user || Privilege::of(user) == Privilege::Root
}

/// Flags that a program may change while it has a file open. The file of the kernel has them, and each write tells whether it
/// appends at that moment.
const CHANGEABLE: i32 = libc::O_APPEND | libc::O_DIRECT;

/// The flags with which the server opens the backing file of a file that a program opens with `flags`.
///
/// The descriptor of the server would keep what the program takes back later. With `O_DIRECT` it would refuse the buffers of the
/// server as well, which lie anywhere in memory.
pub fn backing_flags(flags: i32) -> i32 {
    flags & !CHANGEABLE
}

/// Do the reads and writes of a file that a program opens with `flags` go through the server, although the kernel could carry them
/// out itself?
///
/// The kernel opens the backing file with the flags of the open for good. If the program takes `O_APPEND` back, what it
/// writes would land at the end all the same; if it takes `O_DIRECT` back, as `dd` does before a last block that is not whole, the
/// write would fail. The kernel does it right where a flag comes after the open.
pub fn server_moves_bytes(flags: i32) -> bool {
    let appends = flags & libc::O_APPEND != 0 && flags & libc::O_ACCMODE != libc::O_RDONLY;
    appends || flags & libc::O_DIRECT != 0
}

/// What became of a mount that was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountTrial {
    /// The kernel reads and writes backing files of the storage itself.
    Native,
    /// It was mounted. Bytes would go through the server, and shared mappings be refused. Holds the reason.
    Plain(String),
    /// It was not mounted.
    Failed(MountTrouble),
}

/// Why there is no mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountTrouble {
    /// `/dev/fuse` is not there.
    NoDevice,
    /// `/dev/fuse` may not be opened.
    DeviceDenied,
    /// The user may not have a user namespace. Holds the error.
    NoNamespace(String),
    /// The device was opened, and mounting is not permitted.
    NotPermitted,
    /// Anything else, in one line.
    Other(String),
}

/// Settings of the kernel that forbid user namespaces to ordinary users; `None` where the kernel does not have one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NamespaceSettings {
    /// `kernel.unprivileged_userns_clone`.
    pub userns_clone: Option<u64>,
    /// `user.max_user_namespaces`.
    pub max_user_namespaces: Option<u64>,
    /// `kernel.apparmor_restrict_unprivileged_userns`.
    pub apparmor_restricts: Option<u64>,
}

/// A reason why there are no user namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ailment {
    /// What is the matter.
    pub what: &'static str,
    /// How to mend it.
    pub how: &'static str,
}

impl fmt::Display for Ailment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.how)
    }
}

const APPARMOR: Ailment = Ailment {
    what: "kernel.apparmor_restrict_unprivileged_userns is 1",
    how: "as root: a profile of AppArmor that lets forebay have `userns`",
};

impl NamespaceSettings {
    /// Which setting forbids user namespaces, and how to mend that.
    pub(crate) fn ailment(&self) -> Ailment {
        if self.userns_clone == Some(0) {
            return Ailment {
                what: "kernel.unprivileged_userns_clone is 0",
                how: "as root: sysctl kernel.unprivileged_userns_clone=1",
            };
        }
        if self.max_user_namespaces == Some(0) {
            return Ailment {
                what: "user.max_user_namespaces is 0",
                how: "as root: sysctl user.max_user_namespaces=10000",
            };
        }
        if self.restricts() {
            return APPARMOR;
        }
        Ailment {
            what: "no setting of the kernel says why",
            how: "ask who runs this node; seccomp of a container may refuse them",
        }
    }

    fn restricts(&self) -> bool {
        self.apparmor_restricts.is_some_and(|level| level > 0)
    }
}

impl MountTrouble {
    /// In a few words.
    pub fn in_words(&self) -> String {
        match self {
            MountTrouble::NoDevice => "/dev/fuse is not there".to_owned(),
            MountTrouble::DeviceDenied => "this user may not open /dev/fuse".to_owned(),
            MountTrouble::NoNamespace(why) => {
                format!("this user may have no user namespace ({why})")
            }
            MountTrouble::NotPermitted => "mounting is not permitted".to_owned(),
            MountTrouble::Other(why) => why.clone(),
        }
    }

    /// What mends it.
    pub fn remedy(&self, privilege: Privilege, settings: &NamespaceSettings) -> String {
        let text = match (self, privilege) {
            (MountTrouble::NoDevice, _) => {
                "load the kernel module: modprobe fuse; in a container, pass the device in: --device /dev/fuse"
            }
            (MountTrouble::DeviceDenied, Privilege::Root) => {
                "in a container, pass the device in: --device /dev/fuse"
            }
            (MountTrouble::DeviceDenied, Privilege::User) => {
                "as root: chmod 666 /dev/fuse, as distributions have it; in a container, pass the device in: --device /dev/fuse"
            }
            (MountTrouble::NoNamespace(_), _) => {
                return settings.ailment().to_string();
            }
            (MountTrouble::NotPermitted, Privilege::Root) => {
                "give the container CAP_SYS_ADMIN: --cap-add SYS_ADMIN"
            }
            // There AppArmor lets everybody have a namespace, and takes the capabilities in it.
            (MountTrouble::NotPermitted, Privilege::User) if settings.restricts() => {
                return APPARMOR.to_string();
            }
            (MountTrouble::NotPermitted, Privilege::User) => {
                "ask who runs this node; seccomp of a container may refuse mounts"
            }
            (MountTrouble::Other(_), _) => "use --via preload",
        };
        text.to_owned()
    }
}

impl MountTrial {
    /// Why a mount is not as good as it can be, in a few words; `None` if it is.
    pub fn shortfall(&self) -> Option<String> {
        match self {
            MountTrial::Native => None,
            MountTrial::Plain(why) => Some(format!("bytes would go through a server ({why})")),
            MountTrial::Failed(trouble) => Some(trouble.in_words()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_users_own_shows_the_group_that_has_a_number_and_the_rest_stays_foreign() {
        let me = MappedIds {
            uid: 1000,
            gid: 100,
        };
        let (other, project) = (2000, 5000);
        assert_eq!(me.shown_group(1000, 100), 100);
        assert_eq!(me.shown_group(1000, project), 100);
        assert_eq!(me.shown_group(other, project), project);
        assert_eq!(me.shown_group(0, 0), 0);
    }

    #[test]
    fn only_root_creates_in_directories_of_others_through_a_mount() {
        assert!(can_create_in(7, 7) && can_create_in(7, 0));
        assert!(!can_create_in(0, 7) && !can_create_in(8, 7));
    }

    #[test]
    fn the_backing_file_gets_no_flag_that_a_program_may_take_back() {
        let stays = libc::O_RDWR | libc::O_DSYNC | libc::O_TRUNC;
        let all = stays | libc::O_APPEND | libc::O_DIRECT;
        assert_eq!(backing_flags(all), stays);
        assert_eq!(backing_flags(stays), stays);
    }

    #[test]
    fn the_server_moves_the_bytes_of_a_file_that_appends_or_is_direct_when_it_is_opened() {
        for (flags, by_server) in [
            (libc::O_RDWR | libc::O_DSYNC, false),
            (libc::O_WRONLY | libc::O_APPEND, true),
            (libc::O_RDWR | libc::O_APPEND, true),
            // Nothing is appended without a right to write, and a later change of the flag gives none.
            (libc::O_RDONLY | libc::O_APPEND, false),
            (libc::O_RDONLY | libc::O_DIRECT, true),
            (libc::O_WRONLY | libc::O_DIRECT, true),
        ] {
            assert_eq!(server_moves_bytes(flags), by_server, "{flags:o}");
        }
    }

    #[test]
    fn root_needs_no_user_namespace_and_everybody_else_does() {
        assert_eq!(Privilege::of(0), Privilege::Root);
        assert_eq!(Privilege::of(1), Privilege::User);
        assert_eq!(Privilege::of(u32::MAX), Privilege::User);
    }

    #[test]
    fn whatever_refuses_a_mount_is_named_with_what_mends_it() {
        let none = NamespaceSettings::default();
        let restricted = NamespaceSettings {
            apparmor_restricts: Some(1),
            ..none
        };
        let no_more = NamespaceSettings {
            max_user_namespaces: Some(0),
            ..restricted
        };
        let refused = || MountTrouble::NoNamespace("EPERM".to_owned());
        use MountTrouble::{DeviceDenied, NoDevice, NotPermitted, Other};
        use Privilege::{Root, User};
        for (trouble, privilege, settings, mends) in [
            (NoDevice, User, none, "modprobe fuse"),
            (DeviceDenied, User, none, "chmod 666 /dev/fuse"),
            (DeviceDenied, Root, none, "--device /dev/fuse"),
            (refused(), User, none, "seccomp"),
            (refused(), User, restricted, "AppArmor"),
            (refused(), User, no_more, "sysctl user.max_user_namespaces="),
            (NotPermitted, Root, restricted, "--cap-add SYS_ADMIN"),
            (NotPermitted, User, restricted, "AppArmor"),
            (NotPermitted, User, none, "seccomp"),
            (Other("odd".to_owned()), User, none, "--via preload"),
        ] {
            let remedy = trouble.remedy(privilege, &settings);
            assert!(remedy.contains(mends), "{trouble:?}: {remedy}");
            let said = trouble.in_words();
            assert!(!said.is_empty() && !(said + &remedy).contains('\n'));
        }
    }
}
