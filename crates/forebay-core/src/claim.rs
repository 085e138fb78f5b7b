//! Who owns a directory of the PFS: the lock that a buffer puts into it, and what another buffer makes of it.
//!
//! The lock is a symbolic link that leads nowhere, [`NAME`] in the directory. Its text says who holds it. The call that
//! makes it fails if the name is taken, on NFS as well; its text is there with it, so no lock is ever half written; and who
//! may not read the directory can read the link. The name is reserved: no program in the buffer sees it, no drain moves it.
//!
//! There is no heartbeat. What matters is not whether the holder lives but whether its storage still holds something
//! that belongs into the directory, and that no clock tells. So a lock goes by itself only on the host that holds
//! the storage ([`judge`]); everywhere else somebody has to say so (`forebay unlock`).

use crate::home::{hash_bytes, mix};
use std::fmt;

/// The name of the lock in the directory.
pub const NAME: &[u8] = b".forebay-lock";
/// The version of [`Claim::to_text`]. The text of a later one is not understood, and so never taken for stale.
const VERSION: &[u8] = b"forebay-1";

/// What a lock says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// User that runs the bridge.
    pub uid: u32,
    /// Name of the node.
    pub host: Vec<u8>,
    /// Identity of this run of the node, which a reboot changes.
    pub boot: Vec<u8>,
    /// Identity of the space in which `pid` has a meaning: containers have others.
    pub pid_space: u64,
    /// Identity of the space in which paths have a meaning: containers and jobs with a `/tmp` of their own have others.
    pub mount_space: u64,
    /// The bridge.
    pub pid: u32,
    /// When it was started, in clock ticks since the boot: process ids are used again.
    pub pid_started: u64,
    /// When the lock was made, in seconds since 1970. For people alone.
    pub since_s: u64,
    /// Inode number of the directory: with another one this is a copy that somebody has made of it.
    pub dir: u64,
    /// Inode number of the instance directory: with another one at its path the storage is gone.
    pub storage: u64,
    /// Path of the buffer root, as the holder calls it.
    pub root: Vec<u8>,
    /// Path of the instance directory.
    pub instance: Vec<u8>,
}

impl Claim {
    /// The text of the lock: words without spaces, so that `ls -l` shows it.
    pub fn to_text(&self) -> Vec<u8> {
        let mut text = VERSION.to_vec();
        let mut word = |key: &str, value: &[u8]| {
            text.extend_from_slice(format!(" {key}=").as_bytes());
            text.extend_from_slice(&escape(value));
        };
        let number = |n: u64| n.to_string().into_bytes();
        word("uid", &number(self.uid.into()));
        word("host", &self.host);
        word("boot", &self.boot);
        word("pids", &number(self.pid_space));
        word("mounts", &number(self.mount_space));
        word("pid", &number(self.pid.into()));
        word("started", &number(self.pid_started));
        word("since", &number(self.since_s));
        word("dir", &number(self.dir));
        word("storage", &number(self.storage));
        word("root", &self.root);
        word("instance", &self.instance);
        text
    }

    /// Reads a text; `None` if it is damaged, or of a later version.
    pub fn from_text(text: &[u8]) -> Option<Claim> {
        let mut words = text.split(|&b| b == b' ');
        if words.next()? != VERSION {
            return None;
        }
        let words: Vec<_> = words.collect();
        let word = |key: &str| {
            words.iter().find_map(|word| {
                let value = word.strip_prefix(key.as_bytes())?.strip_prefix(b"=")?;
                unescape(value)
            })
        };
        let number = |key| -> Option<u64> { std::str::from_utf8(&word(key)?).ok()?.parse().ok() };
        let short = |key| u32::try_from(number(key)?).ok();
        Some(Claim {
            uid: short("uid")?,
            host: word("host")?,
            boot: word("boot")?,
            pid_space: number("pids")?,
            mount_space: number("mounts")?,
            pid: short("pid")?,
            pid_started: number("started")?,
            since_s: number("since")?,
            dir: number("dir")?,
            storage: number("storage")?,
            root: word("root")?,
            instance: word("instance")?,
        })
    }

    /// The name that a lock with this text gets while it is being removed. It is the same for all locks of one storage, so
    /// that each of its lives finds what an earlier one could not remove.
    pub fn name_aside(text: &[u8]) -> Vec<u8> {
        let of = match Claim::from_text(text) {
            Some(claim) => mix(
                mix(hash_bytes(&claim.host), hash_bytes(&claim.instance)),
                claim.storage,
            ),
            None => hash_bytes(text),
        };
        let name = String::from_utf8_lossy(NAME);
        format!("{name}-{of:016x}").into_bytes()
    }

    /// Is this a lock of the same storage, whichever process made it?
    pub fn is_of(&self, other: &Claim) -> bool {
        (&self.host, &self.instance, self.storage) == (&other.host, &other.instance, other.storage)
    }

    /// The directory that `--storage` names.
    pub fn storage_path(&self) -> &[u8] {
        let end = self.instance.iter().rposition(|&b| b == b'/');
        match end {
            None | Some(0) => b"/",
            Some(end) => &self.instance[..end],
        }
    }
}

/// The bytes as one word of printable characters, others as `%` and two hexadecimal digits.
fn escape(bytes: &[u8]) -> Vec<u8> {
    let mut word = Vec::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'%' | 0..=b' ' | 0x7f.. => word.extend_from_slice(format!("%{byte:02x}").as_bytes()),
            _ => word.push(byte),
        }
    }
    word
}

/// Reads what [`escape`] wrote.
fn unescape(word: &[u8]) -> Option<Vec<u8>> {
    let mut parts = word.split(|&b| b == b'%');
    let mut bytes = parts.next()?.to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        bytes.extend_from_slice(rest);
    }
    Some(bytes)
}

/// What a storage on this node holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holdings {
    /// It is not there any more.
    Gone,
    /// It is there, and nothing is in it.
    Nothing,
    /// Something that may have to be drained.
    Something,
    /// This user may not look.
    Unknown,
}

/// What only this node can tell about the holder of a lock that was made on it.
pub trait Witness {
    /// Does the process run that made it?
    fn runs(&self, claim: &Claim) -> bool;
    /// What does its storage hold?
    fn holds(&self, claim: &Claim) -> Holdings;
    /// Is the directory that it was made for still where it was?
    fn is_at_its_place(&self, claim: &Claim) -> bool;
}

/// Why a lock does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stale {
    /// Somebody has copied the directory with it.
    Copied,
    /// The process is gone, and its storage holds nothing.
    StorageEmpty,
}

/// Why a lock counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// Its bridge runs.
    Running,
    /// Its bridge does not run. Its storage may hold what belongs into the directory.
    Undrained,
    /// The same, of another user: nobody may look.
    Closed,
    /// Its bridge does not run, and its storage is not where it was: gone, moved, or not mounted.
    Missing,
    /// It was made on another node, or in another container: nothing can be known of it from here.
    Elsewhere,
}

/// What to make of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockVerdict {
    /// It is that of this storage, of an earlier life.
    Own,
    /// It may be taken over.
    Stale(Stale),
    /// It counts.
    Taken(Taken),
}

/// What `me`, who has the lock of its own storage, makes of a lock that it has found in the directory with the inode number `dir`.
pub fn judge(found: &Claim, me: &Claim, dir: u64, witness: &impl Witness) -> LockVerdict {
    let elsewhere = LockVerdict::Taken(Taken::Elsewhere);
    // Whatever the number: `crate::root_dir` has said that the storage may use the directory.
    if found.is_of(me) {
        return LockVerdict::Own;
    }
    if found.dir != dir {
        // Another mount, or another node, may number the same directory otherwise.
        return match witness.is_at_its_place(found) {
            true => LockVerdict::Stale(Stale::Copied),
            false => elsewhere,
        };
    }
    let spaces = |claim: &Claim| (claim.pid_space, claim.mount_space);
    let is_of_this_run = found.boot == me.boot;
    if found.host != me.host || is_of_this_run && spaces(found) != spaces(me) {
        return elsewhere;
    }
    if is_of_this_run && witness.runs(found) {
        return LockVerdict::Taken(Taken::Running);
    }
    match witness.holds(found) {
        Holdings::Gone => LockVerdict::Taken(Taken::Missing),
        Holdings::Nothing => LockVerdict::Stale(Stale::StorageEmpty),
        Holdings::Something => LockVerdict::Taken(Taken::Undrained),
        Holdings::Unknown => LockVerdict::Taken(Taken::Closed),
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes| String::from_utf8_lossy(bytes).escape_debug().to_string();
        write!(
            f,
            "user {}, host {}, process {}, storage {}, since {} s after 1970",
            self.uid,
            text(&self.host),
            self.pid,
            text(self.storage_path()),
            self.since_s
        )
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stale::Copied => "it came with a copy of another directory",
            Stale::StorageEmpty => "its bridge has ended, and its storage holds nothing",
        })
    }
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Taken::Running => "that bridge runs",
            Taken::Undrained => {
                "that bridge does not run, and its storage holds files that may not be drained"
            }
            Taken::Closed => {
                "that bridge does not run, and only its user can tell whether its storage holds files that are not drained"
            }
            Taken::Missing => {
                "that bridge does not run, and its storage is not there: it may be gone, moved, or not mounted"
            }
            Taken::Elsewhere => "from here nobody can tell whether that buffer is still in use",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim() -> Claim {
        Claim {
            uid: 1000,
            host: b"node7".to_vec(),
            boot: b"boot-a".to_vec(),
            pid_space: 4,
            mount_space: 6,
            pid: 4711,
            pid_started: 99,
            since_s: 1_700_000_000,
            dir: 2,
            storage: 55,
            root: b"/pfs/a b%\xff\n".to_vec(),
            instance: b"/scratch/me/a b-0123".to_vec(),
        }
    }

    /// Another storage of the same node.
    fn me() -> Claim {
        Claim {
            pid: 1,
            storage: 56,
            instance: b"/other/a-0123".to_vec(),
            ..claim()
        }
    }

    struct Node(bool, Holdings);

    impl Witness for Node {
        fn runs(&self, _: &Claim) -> bool {
            self.0
        }
        fn holds(&self, _: &Claim) -> Holdings {
            self.1
        }
        fn is_at_its_place(&self, _: &Claim) -> bool {
            self.0
        }
    }

    /// Nothing may be asked of this one: what it knows is of another node.
    struct Nobody;

    impl Witness for Nobody {
        fn runs(&self, claim: &Claim) -> bool {
            panic!("asked for process {}", claim.pid)
        }
        fn holds(&self, claim: &Claim) -> Holdings {
            panic!("asked for {:?}", claim.instance)
        }
        fn is_at_its_place(&self, claim: &Claim) -> bool {
            panic!("asked for {:?}", claim.root)
        }
    }

    #[test]
    fn a_text_is_one_line_of_words_that_comes_back() {
        let text = claim().to_text();
        assert!(text.is_ascii() && !text.contains(&b'\n'), "{text:?}");
        assert_eq!(Claim::from_text(&text), Some(claim()));
        let more = [&text[..], b" later=1"].concat();
        assert_eq!(Claim::from_text(&more), Some(claim()));
        assert_eq!(claim().storage_path(), b"/scratch/me");
    }

    #[test]
    fn a_text_that_is_cut_or_of_a_later_version_is_not_understood() {
        let text = claim().to_text();
        let instance = text.windows(10).position(|w| w == b" instance=").unwrap();
        for cut in 0..instance {
            assert_eq!(Claim::from_text(&text[..cut]), None, "{cut}");
        }
        let later = String::from_utf8(text)
            .unwrap()
            .replace("forebay-1", "forebay-2");
        assert_eq!(Claim::from_text(later.as_bytes()), None);
        assert_eq!(Claim::from_text(b"somewhere"), None);
    }

    #[test]
    fn of_another_node_or_container_nothing_is_guessed() {
        let mut other = claim();
        other.host = b"node8".to_vec();
        let elsewhere = LockVerdict::Taken(Taken::Elsewhere);
        assert_eq!(judge(&other, &me(), 2, &Nobody), elsewhere);
        // The path of a storage is the same on each node.
        let same_path = Claim {
            instance: me().instance,
            storage: 56,
            ..other
        };
        assert_eq!(judge(&same_path, &me(), 2, &Nobody), elsewhere);
        let container = Claim {
            pid_space: 5,
            ..claim()
        };
        assert_eq!(judge(&container, &me(), 2, &Nobody), elsewhere);
        let job = Claim {
            mount_space: 5,
            ..claim()
        };
        assert_eq!(judge(&job, &me(), 2, &Nobody), elsewhere);
    }

    #[test]
    fn an_earlier_life_of_the_same_storage_goes_on() {
        let before = Claim {
            boot: b"boot-z".to_vec(),
            pid: 9,
            pid_space: 7,
            ..me()
        };
        assert_eq!(judge(&before, &me(), 2, &Nobody), LockVerdict::Own);
        // By a mount that numbers the directory otherwise.
        assert_eq!(judge(&before, &me(), 3, &Nobody), LockVerdict::Own);
    }

    #[test]
    fn a_lock_goes_by_itself_only_if_nothing_can_be_lost() {
        use Holdings::*;
        let cases = [
            (true, Gone, LockVerdict::Taken(Taken::Running)),
            (false, Gone, LockVerdict::Taken(Taken::Missing)),
            (false, Nothing, LockVerdict::Stale(Stale::StorageEmpty)),
            (false, Something, LockVerdict::Taken(Taken::Undrained)),
            (false, Unknown, LockVerdict::Taken(Taken::Closed)),
        ];
        for (runs, holds, verdict) in cases {
            assert_eq!(judge(&claim(), &me(), 2, &Node(runs, holds)), verdict);
        }
        // After a reboot a process with that number is another one.
        let before = Claim {
            boot: b"boot-z".to_vec(),
            ..claim()
        };
        let found = judge(&before, &me(), 2, &Node(true, Nothing));
        assert_eq!(found, LockVerdict::Stale(Stale::StorageEmpty));
    }

    #[test]
    fn the_lock_in_a_copy_of_a_directory_says_nothing_about_the_copy() {
        let verdict = |is_there| judge(&claim(), &me(), 3, &Node(is_there, Holdings::Unknown));
        assert_eq!(verdict(true), LockVerdict::Stale(Stale::Copied));
        // The same directory, by a mount that numbers it otherwise.
        assert_eq!(verdict(false), LockVerdict::Taken(Taken::Elsewhere));
    }
}
