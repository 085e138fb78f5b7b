//! What is known of the locks of file systems: by their type, or because somebody has measured them.

use crate::pfs_kind;

/// Who keeps the locks of a file, and for what part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockProtocol {
    /// Every I/O server keeps the locks of its own part of the file (Lustre).
    ServerSide,
    /// The first client holds a token for a range of the whole file, and later ones negotiate with it (GPFS).
    ClientToken,
    /// Every granule has a lock of its own, which does not grow.
    Granules,
    /// Two writers of one file always exclude each other (capabilities of CephFS).
    WholeFile,
    /// No locks between clients: a local file system, or one that leaves it to programs.
    None,
    /// Not known.
    Unknown,
}

impl LockProtocol {
    /// All protocols, with their names in settings, files and reports.
    pub const NAMES: [(LockProtocol, &'static str); 6] = [
        (LockProtocol::ServerSide, "server"),
        (LockProtocol::ClientToken, "token"),
        (LockProtocol::Granules, "granules"),
        (LockProtocol::WholeFile, "whole-file"),
        (LockProtocol::None, "none"),
        (LockProtocol::Unknown, "unknown"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        let of = Self::NAMES.iter().find(|(protocol, _)| *protocol == self);
        of.map_or("", |(_, name)| name)
    }

    /// Its number in messages between processes.
    pub fn number(self) -> u64 {
        let at = Self::NAMES
            .iter()
            .position(|(protocol, _)| *protocol == self);
        at.map_or(u64::MAX, |at| at as u64)
    }

    /// The protocol with this number.
    pub fn numbered(number: u64) -> Option<Self> {
        let of = Self::NAMES.get(usize::try_from(number).ok()?);
        of.map(|(protocol, _)| *protocol)
    }

    /// The protocol with this name.
    pub fn named(name: &str) -> Option<Self> {
        let of = Self::NAMES.iter().find(|(_, known)| *known == name);
        of.map(|(protocol, _)| *protocol)
    }
}

/// A type of file systems whose locks are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownFileSystem {
    /// Its name.
    pub name: &'static str,
    /// `statfs.f_type`.
    pub fs_type: i64,
    /// Its locks.
    pub protocol: LockProtocol,
    /// What to know about them.
    pub about: &'static str,
}

const fn known(
    name: &'static str,
    fs_type: i64,
    protocol: LockProtocol,
    about: &'static str,
) -> KnownFileSystem {
    KnownFileSystem {
        name,
        fs_type,
        protocol,
        about,
    }
}

const LOCAL: &str = "of this node alone: no other client has it mounted";

/// The file systems whose locks are known by their type. Those of this node that are not here have none either.
pub const KNOWN_FILE_SYSTEMS: [KnownFileSystem; 16] = {
    use LockProtocol::{ClientToken, None, ServerSide, Unknown, WholeFile};
    [
        known(
            "Lustre",
            0x0bd0_0bd0,
            ServerSide,
            "each object server locks its own stripes; the granule is the stripe",
        ),
        known(
            "GPFS",
            0x4750_4653,
            ClientToken,
            "byte-range tokens of the whole file; the granule is the block",
        ),
        known(
            "CephFS",
            0x00c3_6400,
            WholeFile,
            "two writers of a file lose the right to buffer, wherever they write",
        ),
        known(
            "BeeGFS",
            0x1983_0326,
            None,
            "storage servers write what comes; clients take no locks for data",
        ),
        known(
            "OrangeFS",
            0x2003_0528,
            None,
            "clients take no locks; writes that overlap are the program's affair",
        ),
        known(
            "GFS2",
            0x0116_1970,
            WholeFile,
            "one lock of the cluster for each inode",
        ),
        known(
            "OCFS2",
            0x7461_636f,
            WholeFile,
            "one lock of the cluster for each inode",
        ),
        known(
            "NFS",
            0x6969,
            Unknown,
            "no locks for data, but a client may keep old bytes: the collective layer leaves it to the MPI library",
        ),
        known(
            "SMB",
            0xfe53_4d42,
            WholeFile,
            "a lease of the file, which a second writer breaks",
        ),
        known(
            "FUSE",
            crate::pfs_kind::FUSE,
            Unknown,
            "whatever is behind the mount decides: measure it",
        ),
        known("ext4", 0xef53, None, LOCAL),
        known("XFS", 0x5846_5342, None, LOCAL),
        known("Btrfs", 0x9123_683e, None, LOCAL),
        known("tmpfs", 0x0102_1994, None, LOCAL),
        known("ZFS", 0x2fc1_2fc1, None, LOCAL),
        known("overlayfs", 0x794c_7630, None, LOCAL),
    ]
};

/// The name of a type of file systems, if it is known.
pub fn file_system_name(fs_type: i64) -> Option<&'static str> {
    let of = KNOWN_FILE_SYSTEMS.iter().find(|fs| fs.fs_type == fs_type);
    of.map(|fs| fs.name)
}

/// The protocol of a file system, by `statfs.f_type`. A file in a buffer of Forebay lies on storage of its node.
pub fn protocol_of(fs_type: i64) -> LockProtocol {
    let of = KNOWN_FILE_SYSTEMS.iter().find(|fs| fs.fs_type == fs_type);
    match of {
        Some(fs) => fs.protocol,
        None if !pfs_kind::may_wait(fs_type) => LockProtocol::None,
        None => LockProtocol::Unknown,
    }
}

/// What a measurement says of the locks of a mounted file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeasuredLocks {
    /// The protocol, which is not [`LockProtocol::Unknown`].
    pub protocol: LockProtocol,
    /// The granule in bytes, if it has one.
    pub granule_bytes: Option<u64>,
    /// With locks on servers: a divisor of their number, and mostly the number itself.
    pub servers: Option<u32>,
    /// A write that waits for nobody, in nanoseconds.
    pub write_nanos: u64,
    /// What it costs more when another client has to give up its lock.
    pub handover_nanos: u64,
}

impl MeasuredLocks {
    /// The protocol to go by on a file system of this type. Locks on servers look like tokens, or like one lock for the whole file, where
    /// files have one stripe; the next file may have more.
    pub fn protocol_on(&self, fs_type: i64) -> LockProtocol {
        let known = protocol_of(fs_type);
        let as_one_stripe = matches!(
            self.protocol,
            LockProtocol::ClientToken | LockProtocol::WholeFile
        );
        match known == LockProtocol::ServerSide && as_one_stripe {
            true => known,
            false => self.protocol,
        }
    }

    /// Words for a message to processes that have not looked; zeros for no measurement.
    pub fn to_words(measured: Option<Self>) -> [u64; 3] {
        let words = |m: Self| {
            let servers = m.servers.map_or(0, u64::from);
            [
                m.protocol.number() + 1,
                m.granule_bytes.unwrap_or(0),
                servers,
            ]
        };
        measured.map_or([0; 3], words)
    }

    /// The measurement that [`MeasuredLocks::to_words`] made words of, without its times.
    pub fn from_words([protocol, granule, servers]: [u64; 3]) -> Option<Self> {
        Some(MeasuredLocks {
            protocol: LockProtocol::numbered(protocol.checked_sub(1)?)?,
            granule_bytes: Some(granule).filter(|&n| n > 0),
            servers: u32::try_from(servers).ok().filter(|&n| n > 0),
            write_nanos: 0,
            handover_nanos: 0,
        })
    }

    /// A line of the file in which measurements are kept: the mount, and what was measured, in words.
    pub fn to_line(&self, mount: &str) -> String {
        let number = |n: Option<u64>| n.map_or("-".to_owned(), |n| n.to_string());
        let (protocol, granule) = (self.protocol.name(), number(self.granule_bytes));
        let servers = number(self.servers.map(u64::from));
        let (write, handover) = (self.write_nanos, self.handover_nanos);
        format!("{mount}\t{protocol}\t{granule}\t{servers}\t{write}\t{handover}")
    }

    /// The mount and the measurement in a line of [`MeasuredLocks::to_line`]; `None` if it is no such line.
    pub fn from_line(line: &str) -> Option<(&str, Self)> {
        let words: Vec<&str> = line.split('\t').collect();
        let [mount, protocol, granule, servers, write, handover] = words[..] else {
            return None;
        };
        let number = |word: &str| match word {
            "-" => Some(None),
            word => word.parse::<u64>().ok().map(Some),
        };
        let servers = match number(servers)? {
            Some(n) => Some(u32::try_from(n).ok().filter(|&n| n > 0)?),
            None => None,
        };
        let measured = MeasuredLocks {
            protocol: LockProtocol::named(protocol).filter(|p| *p != LockProtocol::Unknown)?,
            granule_bytes: number(granule)?,
            servers,
            write_nanos: number(write)??,
            handover_nanos: number(handover)??,
        };
        Some((mount, measured))
    }

    /// What a file of measurements says of a mount: its last line counts.
    pub fn find(lines: &str, mount: &str) -> Option<Self> {
        let mut all = lines.lines().rev().filter_map(Self::from_line);
        all.find_map(|(of, measured)| (of == mount).then_some(measured))
    }
}

/// The path of the file in which measurements are kept, from the variables of the environment.
pub fn measurements_file(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    let below = |dir: Option<String>, name: &str| dir.map(|dir| format!("{dir}/{name}"));
    set("FOREBAY_LOCKS")
        .or_else(|| below(set("XDG_CACHE_HOME"), "forebay/locks"))
        .or_else(|| below(set("HOME"), ".cache/forebay/locks"))
}

/// What stands for a mounted file system on all of its clients, by `/proc/self/mountinfo` of one of them: its type and what is
/// mounted. `device` is the major and minor number of a file in it.
pub fn mount_name(mountinfo: &str, device: (u32, u32)) -> Option<String> {
    let wanted = format!("{}:{}", device.0, device.1);
    let mut found = mountinfo.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let of = before.split(' ').nth(2)?;
        let mut words = after.split(' ');
        let (fs_type, source) = (words.next()?, words.next()?);
        (of == wanted).then(|| format!("{fs_type} {source}"))
    });
    found.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_is_found_again_by_its_mount_and_the_last_one_counts() {
        let one = MeasuredLocks {
            protocol: LockProtocol::ServerSide,
            granule_bytes: Some(1 << 20),
            servers: Some(4),
            write_nanos: 300_000,
            handover_nanos: 2_000_000,
        };
        let other = MeasuredLocks {
            protocol: LockProtocol::WholeFile,
            granule_bytes: None,
            servers: None,
            ..one
        };
        let lines = [
            one.to_line("lustre a@tcp:/b"),
            one.to_line("fuse.x y"),
            "damaged\tline".to_owned(),
            other.to_line("fuse.x y"),
        ];
        let file = lines.join("\n");
        assert_eq!(MeasuredLocks::find(&file, "lustre a@tcp:/b"), Some(one));
        assert_eq!(MeasuredLocks::find(&file, "fuse.x y"), Some(other));
        assert_eq!(MeasuredLocks::find(&file, "fuse.x"), None);
        let sent = MeasuredLocks::from_words(MeasuredLocks::to_words(Some(one)));
        let timeless = MeasuredLocks {
            write_nanos: 0,
            handover_nanos: 0,
            ..one
        };
        assert_eq!(sent, Some(timeless));
        assert_eq!(
            MeasuredLocks::from_words(MeasuredLocks::to_words(None)),
            None
        );
        let unknown = file.replace("whole-file", "unknown");
        assert_eq!(MeasuredLocks::find(&unknown, "fuse.x y"), Some(one));
    }

    #[test]
    fn a_mount_is_named_by_its_type_and_its_source() {
        let info = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw\n\
            99 22 0:48 / /pfs/with\\040blank rw,nosuid - fuse.slow slow-pfs rw,user_id=0\n";
        assert_eq!(mount_name(info, (0, 48)).unwrap(), "fuse.slow slow-pfs");
        assert_eq!(mount_name(info, (254, 0)).unwrap(), "ext4 /dev/root");
        assert_eq!(mount_name(info, (0, 4)), None);
    }

    #[test]
    fn every_type_is_in_the_table_once_and_local_ones_have_no_locks() {
        for (at, fs) in KNOWN_FILE_SYSTEMS.iter().enumerate() {
            let same = |other: &KnownFileSystem| other.fs_type == fs.fs_type;
            assert_eq!(KNOWN_FILE_SYSTEMS.iter().position(same), Some(at));
            if !pfs_kind::may_wait(fs.fs_type) {
                assert_eq!(fs.protocol, LockProtocol::None, "{}", fs.name);
            }
        }
        assert_eq!(protocol_of(0x8584_58f6), LockProtocol::None);
        assert_eq!(protocol_of(0x1234), LockProtocol::Unknown);
        assert_eq!(file_system_name(0x1983_0326), Some("BeeGFS"));
    }
}
