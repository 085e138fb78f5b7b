//! How a file lies on the I/O servers, as its file system tells.
//!
//! Lustre and CephFS tell it in extended attributes of the file, GPFS as the preferred size of I/O. The bytes of Lustre's
//! attribute are those of its `lustre_user.h` (2.16): a plain layout (`lov_user_md`), or components, each with a range of the
//! file and a plain layout of its own.

use super::Layout;

/// How a file lies on the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Striping {
    /// Bytes of a stripe. On Lustre and GPFS it is the granule of locks.
    pub stripe_bytes: u64,
    /// Servers of the file, if that is told.
    pub servers: Option<u32>,
}

const GPFS: i64 = 0x4750_4653;

const LUSTRE_ATTRIBUTE: &str = "lustre.lov";
const CEPH_ATTRIBUTE: &str = "ceph.file.layout";

/// `LOV_USER_MAGIC_V1` and `_V3`: a plain layout.
const PLAIN: [u32; 2] = [0x0bd1_0bd0, 0x0bd3_0bd0];
/// `LOV_USER_MAGIC_COMP_V1`: components.
const COMPONENTS: u32 = 0x0bd6_0bd0;
/// `LOV_PATTERN_RAID0`: the stripes lie on servers in turn. Others have no stripes, as data that is kept with the names.
const IN_TURN: u32 = 1;
/// What may stand beside it: `LOV_PATTERN_OVERSTRIPING` (several objects on a server, each with locks of its own),
/// `LOV_PATTERN_COMPRESS`, and flags.
const BESIDE_PATTERN: u32 = 0xffff_0000 | 0x200 | 0x800;
/// `LCME_FL_STALE`, `_OFFLINE`: a mirror that is not used. `_EXTENSION`: a component that is only to come, with another unit.
/// `_PARITY`: one with codes instead of data.
const NOT_IN_USE: u32 = 0x1 | 0x8 | 0x40 | 0x80;
/// Stands for "all servers there are".
const ALL_SERVERS: u16 = u16::MAX;
const COMPONENTS_AT: usize = 32;
const COMPONENT_BYTES: usize = 48;

impl Striping {
    /// Asks for the layout of a file on a file system of this `statfs.f_type`, whose `st_blksize` is `block_bytes`. `attribute`
    /// gives the value of an extended attribute of the file.
    pub fn ask(
        fs_type: i64,
        block_bytes: u64,
        attribute: impl Fn(&str) -> Option<Vec<u8>>,
    ) -> Option<Self> {
        if !crate::pfs_kind::may_wait(fs_type) {
            return None;
        }
        if fs_type == GPFS {
            return Self::of(block_bytes, None);
        }
        let lustre = attribute(LUSTRE_ATTRIBUTE).and_then(|value| in_lustre(&value));
        lustre.or_else(|| in_ceph(&attribute(CEPH_ATTRIBUTE)?))
    }

    fn of(stripe_bytes: u64, servers: Option<u32>) -> Option<Self> {
        (stripe_bytes > 0).then_some(Striping {
            stripe_bytes: stripe_bytes.min(Layout::MAX_GRANULE_BYTES),
            servers: servers.filter(|&n| n > 0),
        })
    }

    /// Words for a message to processes that have not asked; zeros for what is not told.
    pub fn to_words(told: Option<Self>) -> [u64; 2] {
        told.map_or([0; 2], |told| {
            [told.stripe_bytes, told.servers.map_or(0, u64::from)]
        })
    }

    /// What [`Striping::to_words`] made words of.
    pub fn from_words([stripe_bytes, servers]: [u64; 2]) -> Option<Self> {
        Self::of(stripe_bytes, u32::try_from(servers).ok())
    }
}

fn number<const N: usize>(value: &[u8], at: usize) -> Option<[u8; N]> {
    value.get(at..)?.first_chunk().copied()
}

fn u32_at(value: &[u8], at: usize) -> Option<u32> {
    number(value, at).map(u32::from_le_bytes)
}

fn u16_at(value: &[u8], at: usize) -> Option<u16> {
    number(value, at).map(u16::from_le_bytes)
}

fn u64_at(value: &[u8], at: usize) -> Option<u64> {
    number(value, at).map(u64::from_le_bytes)
}

/// The layout in `lustre.lov`. Of several components that of the one which reaches farthest counts: large files, for which
/// locks matter, lie there.
fn in_lustre(value: &[u8]) -> Option<Striping> {
    if u32_at(value, 0)? != COMPONENTS {
        return plain(value);
    }
    let count = u16_at(value, 14)?.into();
    let component = |number: usize| {
        let at = COMPONENTS_AT + number * COMPONENT_BYTES;
        let (flags, end) = (u32_at(value, at + 4)?, u64_at(value, at + 16)?);
        let layout = plain(value.get(u32_at(value, at + 24)? as usize..)?)?;
        (flags & NOT_IN_USE == 0).then_some((end, layout))
    };
    let all = (0..count).filter_map(component);
    let (_, layout) = all.max_by_key(|(end, _)| *end)?;
    Some(layout)
}

fn plain(value: &[u8]) -> Option<Striping> {
    let (magic, pattern) = (u32_at(value, 0)?, u32_at(value, 4)?);
    let (bytes, servers) = (u32_at(value, 24)?, u16_at(value, 28)?);
    if !PLAIN.contains(&magic) || pattern & !BESIDE_PATTERN != IN_TURN {
        return None;
    }
    let servers = (servers != ALL_SERVERS).then_some(servers.into());
    Striping::of(bytes.into(), servers)
}

/// The layout in `ceph.file.layout`: `stripe_unit=4194304 stripe_count=1 object_size=4194304 pool=data`. Each object is on a server of
/// its own, so the count of stripes says nothing of servers.
fn in_ceph(value: &[u8]) -> Option<Striping> {
    let text = std::str::from_utf8(value).ok()?;
    let mut fields = text.split_whitespace().filter_map(|f| f.split_once('='));
    let (_, bytes) = fields.find(|(name, _)| *name == "stripe_unit")?;
    Striping::of(bytes.parse().ok()?, None)
}

/// The value of `lustre.lov` of a file with a plain layout and no objects yet: for file systems that stand in for Lustre.
pub fn lustre_attribute(layout: Layout) -> Vec<u8> {
    let mut value = [0; COMPONENTS_AT];
    value[..4].copy_from_slice(&PLAIN[0].to_le_bytes());
    value[4..8].copy_from_slice(&IN_TURN.to_le_bytes());
    value[24..28].copy_from_slice(&(layout.granule_bytes as u32).to_le_bytes());
    let servers = u16::try_from(layout.servers).unwrap_or(ALL_SERVERS);
    value[28..30].copy_from_slice(&servers.to_le_bytes());
    value.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LUSTRE: i64 = 0x0bd0_0bd0;

    fn told(name: &str, value: &[u8]) -> Option<Striping> {
        Striping::ask(LUSTRE, 4096, |of| (of == name).then(|| value.to_vec()))
    }

    fn striping(stripe_bytes: u64, servers: u32) -> Option<Striping> {
        let servers = Some(servers);
        Some(Striping {
            stripe_bytes,
            servers,
        })
    }

    /// A layout of components: flags, end and plain layout of each.
    fn components(all: &[(u32, u64, Vec<u8>)]) -> Vec<u8> {
        let mut value = vec![0; COMPONENTS_AT + all.len() * COMPONENT_BYTES];
        value[..4].copy_from_slice(&COMPONENTS.to_le_bytes());
        value[14..16].copy_from_slice(&(all.len() as u16).to_le_bytes());
        for (number, (flags, end, layout)) in all.iter().enumerate() {
            let at = COMPONENTS_AT + number * COMPONENT_BYTES;
            let offset = value.len() as u32;
            value[at + 4..at + 8].copy_from_slice(&flags.to_le_bytes());
            value[at + 16..at + 24].copy_from_slice(&end.to_le_bytes());
            value[at + 24..at + 28].copy_from_slice(&offset.to_le_bytes());
            value.extend(layout);
        }
        value
    }

    #[test]
    fn a_plain_layout_of_lustre_is_read() {
        let value = lustre_attribute(Layout::new(1 << 22, 8));
        assert_eq!(told(LUSTRE_ATTRIBUTE, &value), striping(1 << 22, 8));
        // The form with a pool: 3 stripes of 64 KiB, with the name of the pool and the objects behind.
        let mut pool = value.clone();
        pool[..4].copy_from_slice(&0x0bd3_0bd0_u32.to_le_bytes());
        pool[24..30].copy_from_slice(&[0, 0, 1, 0, 3, 0]);
        pool.extend([7; 88]);
        assert_eq!(told(LUSTRE_ATTRIBUTE, &pool), striping(1 << 16, 3));
        let mut all = value.clone();
        all[28..30].copy_from_slice(&[0xff, 0xff]);
        let layout = told(LUSTRE_ATTRIBUTE, &all).unwrap();
        assert_eq!((layout.stripe_bytes, layout.servers), (1 << 22, None));
        // Released to an archive; several stripes on a server; data that is kept with the names.
        for (at, flag, expected) in [(7, 0x80, true), (5, 0x2, true), (5, 0x1, false)] {
            let mut flagged = value.clone();
            flagged[at] |= flag;
            let expected = striping(1 << 22, 8).filter(|_| expected);
            assert_eq!(told(LUSTRE_ATTRIBUTE, &flagged), expected, "{at} {flag}");
        }
        let huge = lustre_attribute(Layout::new(1 << 30, 1));
        let twice = [&huge[..27], &[0x80], &huge[28..]].concat();
        assert_eq!(told(LUSTRE_ATTRIBUTE, &twice), striping(1 << 30, 1));
    }

    #[test]
    fn of_components_the_one_that_reaches_farthest_counts() {
        let of = |bytes, servers| lustre_attribute(Layout::new(bytes, servers));
        let mut with_names = of(1 << 20, 1);
        with_names[4..8].copy_from_slice(&0x100_u32.to_le_bytes());
        let value = components(&[
            (0x10, 1 << 20, with_names),
            (0, u64::MAX, of(1 << 24, 16)),
            (0x10, 1 << 30, of(1 << 20, 4)),
            (0x80, u64::MAX, of(1 << 18, 2)),
            (0x40, u64::MAX, of(1 << 16, 2)),
            (0x11, u64::MAX, of(1 << 17, 2)),
        ]);
        assert_eq!(told(LUSTRE_ATTRIBUTE, &value), striping(1 << 24, 16));
        for end in 0..value.len() {
            // It does not reach beyond the bytes, wherever they end.
            let _ = told(LUSTRE_ATTRIBUTE, &value[..end]);
        }
        let mut wild = value;
        wild[14..16].copy_from_slice(&[0xff, 0xff]);
        wild[COMPONENTS_AT + 24..COMPONENTS_AT + 28].copy_from_slice(&[0xff; 4]);
        let _ = told(LUSTRE_ATTRIBUTE, &wild);
    }

    #[test]
    fn ceph_tells_it_in_words_and_gpfs_by_its_block() {
        let text = b"stripe_unit=4194304 stripe_count=2 object_size=8388608 pool=cephfs_data";
        assert_eq!(told(CEPH_ATTRIBUTE, text), Striping::of(1 << 22, None));
        let by_block = Striping::ask(GPFS, 1 << 23, |_| None);
        assert_eq!(by_block, Striping::of(1 << 23, None));
    }

    #[test]
    fn what_makes_no_sense_is_not_told() {
        for value in [&b""[..], b"\xd0\x0b\xd1\x0b", &[0; 64], &[0xff; 64]] {
            assert_eq!(told(LUSTRE_ATTRIBUTE, value), None, "{value:?}");
            assert_eq!(told(CEPH_ATTRIBUTE, value), None, "{value:?}");
        }
        for text in [
            "stripe_unit=0 stripe_count=1",
            "stripe_unit=-1",
            "stripe_unit",
            "stripe_count=1",
        ] {
            assert_eq!(told(CEPH_ATTRIBUTE, text.as_bytes()), None, "{text}");
        }
        let zero = [&lustre_attribute(Layout::new(1, 1))[..24], &[0; 8]].concat();
        assert_eq!(told(LUSTRE_ATTRIBUTE, &zero), None);
        const EXT4: i64 = 0xef53;
        let asks = |_: &str| -> Option<Vec<u8>> { panic!("a local file system has no servers") };
        assert_eq!(Striping::ask(EXT4, 4096, asks), None);
    }

    #[test]
    fn words_tell_the_same() {
        for told in [None, striping(4096, 3), Striping::of(1 << 30, None)] {
            assert_eq!(Striping::from_words(Striping::to_words(told)), told);
        }
    }
}
