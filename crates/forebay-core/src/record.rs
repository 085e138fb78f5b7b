//! What the tables hold about one path.
//!
//! A record says *which* object a path names and what the PFS below has to do
//! with it. It holds no size, owner or time: those live in the inode of the
//! backing object, because programs change them there, through real descriptors.

use crate::facts::Timestamp;
use crate::identity::{self, Identity};
use crate::path::TreePath;
use std::fmt;

pub use forebay_types::{BridgeId, ObjectId, ObjectName, Stamp, Token};

/// What kind of thing a record describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file whose bytes are in the backing object.
    File,
    /// A directory made in the buffer. Nothing of the PFS shows through it.
    Dir,
    /// A symbolic link; the backing object holds its text.
    Symlink,
    /// A FIFO, socket or device node.
    Special,
    /// Something of the PFS that was renamed: it is still at `origin` there.
    Moved,
    /// Nothing is here, although the PFS has something at `hides`.
    Whiteout,
}

impl Kind {
    /// All of them.
    #[cfg(test)]
    pub(crate) const ALL: [Kind; 6] = [
        Kind::File,
        Kind::Dir,
        Kind::Symlink,
        Kind::Special,
        Kind::Moved,
        Kind::Whiteout,
    ];

    /// Its number in tables and labels.
    pub const fn code(self) -> u8 {
        match self {
            Kind::File => 1,
            Kind::Dir => 2,
            Kind::Symlink => 3,
            Kind::Special => 4,
            Kind::Moved => 5,
            Kind::Whiteout => 6,
        }
    }

    /// The kind with this number, if there is one.
    pub const fn from_code(code: u8) -> Option<Kind> {
        Some(match code {
            1 => Kind::File,
            2 => Kind::Dir,
            3 => Kind::Symlink,
            4 => Kind::Special,
            5 => Kind::Moved,
            6 => Kind::Whiteout,
            _ => return None,
        })
    }
}

/// What an object is on the storage. The numbers are the two low bits of a sequence number on the storage and never
/// change. The fourth one, [`forebay_types::COPY`], is a file, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// A regular file. A symbolic link and a marker have this shape, too.
    File = 0,
    /// An empty directory.
    Dir = 1,
    /// A FIFO, socket or device beside a file that carries the label.
    Node = 2,
}

/// Why the PFS and the records may disagree for a moment: a change of what the PFS shows at this path
/// has been committed, and is being carried out there. Requests wait or go on as
/// [`crate::ops::decide`] says; only the drain that has set the mark takes it away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transit {
    /// Something is being put at its place on the PFS, or taken from there.
    Placing,
    /// The record and its object are about to go, so that the PFS alone shows what is here.
    Releasing,
}

impl Transit {
    const fn code(self) -> u8 {
        match self {
            Transit::Placing => 1,
            Transit::Releasing => 2,
        }
    }

    const fn from_code(code: u8) -> Option<Transit> {
        Some(match code {
            1 => Transit::Placing,
            2 => Transit::Releasing,
            _ => return None,
        })
    }
}

/// A range of a file's bytes and the bridge that keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Segment {
    /// First byte.
    pub start: u64,
    /// The byte after the last one.
    pub end: u64,
    /// The bridge that keeps these bytes.
    pub keeper: BridgeId,
}

/// Directories of the PFS by their numbers. Who has asked for something there may be able to rename a directory of somebody else to the
/// place of one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dirs {
    /// Where a thing gets its name, or what it hides goes. Of a directory that has opened: that directory.
    pub within: Option<Identity>,
    /// For `Moved`: where `origin` is.
    pub out_of: Option<Identity>,
}

impl Dirs {
    /// As a record has them.
    pub fn boxed(self) -> Option<Box<Self>> {
        (self != Dirs::default()).then(|| Box::new(self))
    }

    /// Of a record that has no origin.
    pub fn within(within: Option<Identity>) -> Option<Box<Self>> {
        let out_of = None;
        Dirs { within, out_of }.boxed()
    }
}

/// Everything a table says about one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRecord {
    /// Grows with each change of this path's record; never reused for a path.
    pub version: u64,
    /// What it is.
    pub kind: Kind,
    /// The backing object (for `Moved` and `Whiteout` a file that only carries the label).
    pub object: ObjectName,
    /// The bridge that keeps the object.
    pub owner: BridgeId,
    /// Inode number that `stat` shows, for directory listings; 0 for `Moved` and `Whiteout`.
    pub ino: u64,
    /// Inode number of the PFS file that the object is a copy of, which `stat` shows instead; 0: none.
    pub copy_of: u64,
    /// For `Moved`: where on the PFS the thing still is.
    pub origin: Option<TreePath>,
    /// What on the PFS lies hidden under this path and has to go when this is drained.
    pub hides: Option<TreePath>,
    /// What is replaced on the PFS when this is drained: the entry at `hides`, or at its own path once it is drained.
    /// `None`: nothing is, or nobody knows.
    pub replaces: Option<Identity>,
    /// Which entry of the PFS this record is about to become, or is.
    ///
    /// - Of a file: the copy that a drain is naming, or tried to name when the PFS did not say whether it got there.
    /// - Of [`Kind::Moved`]: what was renamed, known by its inode number; `None` for a directory that has opened, and in tables
    ///   of older versions.
    pub arriving: Option<Box<Identity>>,
    /// What [`PathRecord::replaces`] was when somebody chose ours. As long as the two are equal, that choice waits to be carried out.
    pub chosen: Option<Box<Identity>>,
    /// For `Moved`: somebody has chosen that what others have put in the place of the renamed thing gets the name instead.
    pub adopts: bool,
    /// The directories of the PFS in which alone something is done about it, where they can be told again: see
    /// [`Settings::knows_dirs_of`](crate::facts::Settings::knows_dirs_of).
    pub dirs: Option<Box<Dirs>>,
    /// The request that made this path name this object.
    pub token: Token,
    /// Set once drained.
    pub drained: Option<Stamp>,
    /// Set while a change of the PFS at this path is being carried out.
    pub transit: Option<Transit>,
    /// Which bridge keeps which bytes; empty: all of them are with `owner`.
    pub segments: Box<[Segment]>,
}

impl PathRecord {
    /// Of this object, of no version yet: it has no inode number, speaks of nothing on the PFS, and was not drained.
    pub fn new(kind: Kind, object: ObjectName, owner: BridgeId) -> Self {
        PathRecord {
            version: 0,
            kind,
            object,
            owner,
            ino: 0,
            copy_of: 0,
            origin: None,
            hides: None,
            replaces: None,
            arriving: None,
            chosen: None,
            adopts: false,
            dirs: None,
            token: Token::default(),
            drained: None,
            transit: None,
            segments: Box::default(),
        }
    }

    /// Does a program see something here?
    pub fn is_visible(&self) -> bool {
        self.kind != Kind::Whiteout
    }

    /// Has somebody chosen that what it replaces goes, although others had changed that?
    pub(crate) fn is_chosen(&self) -> bool {
        let replaces = self.replaces.map(Identity::certain);
        self.chosen.is_some() && self.chosen.as_deref().copied() == replaces
    }

    /// Is it a directory that was made in the buffer, and has opened to the one that a drain has made at this path?
    pub(crate) fn is_open_at(&self, path: &TreePath) -> bool {
        self.kind == Kind::Moved && self.origin.as_ref() == Some(path) && self.arriving.is_none()
    }

    /// Was something of the PFS removed here, with nothing in its place, and not renamed from here?
    pub fn is_removal(&self) -> bool {
        let is_leaving = self.replaces.is_some_and(Identity::is_leaving);
        self.kind == Kind::Whiteout && self.hides.is_some() && !is_leaving
    }

    /// See [`PathRecord::dirs`].
    pub(crate) fn dirs(&self) -> Dirs {
        self.dirs.as_deref().copied().unwrap_or_default()
    }

    /// Forgets by which numbers directories are known: other ones are in their places. False: it knew none.
    pub fn forget_dirs(&mut self) -> bool {
        let made = self.kind == Kind::Dir && self.drained.is_some();
        let forgets = self.dirs.take().is_some();
        self.replaces.take_if(|_| made).is_some() || forgets
    }

    /// It is on the PFS now as this.
    pub(crate) fn is_there_as(&mut self, there: Identity) {
        self.replaces = Some(there);
        self.chosen = None;
    }

    /// A copy of its object is on the PFS now, under this name or another one: all show the number of that.
    pub(crate) fn shows(&mut self, copy: Identity) {
        if self.copy_of != 0 {
            self.copy_of = copy.inode();
        }
    }

    /// Cancels the rename of the thing at `origin`: it is removed with what this record hides, which is that thing or a directory
    /// above it.
    pub(crate) fn keeps(&mut self, origin: &TreePath, known: Identity) {
        let hides = self.hides.as_ref();
        let below = hides.map_or(0, |hides| hides.components().count());
        let path = origin.components().skip(below).collect::<Vec<_>>();
        let is_chosen = self.is_chosen();
        self.replaces = match self.replaces {
            // Others may have replaced it.
            Some(before) if path.is_empty() && !before.is_same_inode(known) => Some(before),
            _ if path.is_empty() => Some(known),
            before => before.map(|before| before.with_also(path.into_iter(), known)),
        };
        if is_chosen {
            self.chosen = self.replaces.map(|goes| Box::new(goes.certain()));
        }
    }

    /// Whatever comes to `origin` from now on is not removed with what this record hides.
    pub(crate) fn leaves(&mut self, origin: &TreePath) {
        // A removed directory does not count it, so it shows as something new there.
        if self.hides.as_ref() == Some(origin) {
            self.replaces = Some(Identity::NOTHING);
        }
    }

    /// The place on the PFS that it keeps from view, or was drained to, if it is at `path`.
    pub fn covers(&self, path: &TreePath) -> Option<TreePath> {
        let at_own_path = || self.drained.is_some().then(|| path.clone());
        self.hides.clone().or_else(at_own_path)
    }
}

/// Why bytes are no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadRecord {
    /// They are no record of any format.
    Damaged,
    /// They are in a format that this program does not know: a later one has written them.
    Format(u8),
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadRecord::Damaged => f.write_str("damaged record"),
            BadRecord::Format(format) => write!(
                f,
                "a record of format {format}; this program reads formats {FIRST_FORMAT} to {FORMAT}"
            ),
        }
    }
}

impl std::error::Error for BadRecord {}

/// Without transit, segments and extensions.
const FIRST_FORMAT: u8 = 1;
/// What is written.
const FORMAT: u8 = 2;

/// Extensions: a tag, and an [`Identity`].
const REPLACES: u8 = 1;
const ARRIVING: u8 = 2;
/// A tag, and an inode number.
const COPY_OF: u8 = 3;
// Those that came later stand behind the others: programs that do not know them read no further.
/// A tag, and an identity.
const CHOSEN: u8 = 4;
/// A tag alone: [`PathRecord::adopts`].
const ADOPTS: u8 = 5;
/// A tag, and an identity.
const WITHIN: u8 = 6;
/// [`Dirs::out_of`].
const OUT_OF: u8 = 7;

const NS_PER_S: i128 = 1_000_000_000;

const HAS_ORIGIN: u8 = 1;
const HAS_HIDES: u8 = 2;
const HAS_DRAINED: u8 = 4;
const HAS_TRANSIT: u8 = 8;
const HAS_SEGMENTS: u8 = 16;
const KNOWN_IN_FIRST: u8 = HAS_ORIGIN | HAS_HIDES | HAS_DRAINED;
const KNOWN: u8 = KNOWN_IN_FIRST | HAS_TRANSIT | HAS_SEGMENTS;

impl PathRecord {
    /// Bytes for the table. The first one is the format.
    ///
    /// At the end stands an area for extensions: its length in bytes, then as many bytes. A reader ends there with the first one that it does
    /// not know, and does not write that and what follows again. So a program that knows more must not leave such a storage to one that
    /// knows less: the format of the storage tells it.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Vec::with_capacity(96);
        w.push(FORMAT);
        w.push(self.kind.code());
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        w.push(
            flag(self.origin.is_some(), HAS_ORIGIN)
                | flag(self.hides.is_some(), HAS_HIDES)
                | flag(self.drained.is_some(), HAS_DRAINED)
                | flag(self.transit.is_some(), HAS_TRANSIT)
                | flag(!self.segments.is_empty(), HAS_SEGMENTS),
        );
        w.extend_from_slice(&self.version.to_le_bytes());
        w.extend_from_slice(&self.object.oid.0.to_le_bytes());
        w.extend_from_slice(&self.object.link.to_le_bytes());
        w.extend_from_slice(&self.owner.0.to_le_bytes());
        w.extend_from_slice(&self.ino.to_le_bytes());
        w.extend_from_slice(&self.token.client.to_le_bytes());
        w.extend_from_slice(&self.token.seq.to_le_bytes());
        if let Some(d) = self.drained {
            w.extend_from_slice(&d.size.to_le_bytes());
            let ctime_ns = i128::from(d.ctime.sec) * NS_PER_S + i128::from(d.ctime.nsec);
            w.extend_from_slice(&ctime_ns.to_le_bytes());
        }
        for path in [&self.origin, &self.hides].into_iter().flatten() {
            w.extend_from_slice(&(path.as_bytes().len() as u16).to_le_bytes());
            w.extend_from_slice(path.as_bytes());
        }
        if let Some(transit) = self.transit {
            w.push(transit.code());
        }
        if !self.segments.is_empty() {
            w.extend_from_slice(&(self.segments.len() as u32).to_le_bytes());
            for segment in self.segments.iter() {
                w.extend_from_slice(&segment.start.to_le_bytes());
                w.extend_from_slice(&segment.end.to_le_bytes());
                w.extend_from_slice(&segment.keeper.0.to_le_bytes());
            }
        }
        let extensions = [
            (REPLACES, self.replaces),
            (ARRIVING, self.arriving.as_deref().copied()),
        ];
        let known = extensions.iter().filter(|(_, identity)| identity.is_some());
        let copy_of = (self.copy_of != 0).then_some(self.copy_of.to_le_bytes());
        let chosen = self.chosen.as_deref();
        let Dirs { within, out_of } = self.dirs();
        let dirs = [(WITHIN, within), (OUT_OF, out_of)];
        let dirs = dirs.into_iter().filter_map(|(tag, dir)| Some((tag, dir?)));
        let others = chosen.copied().into_iter();
        let others = others.chain(dirs.clone().map(|(_, dir)| dir));
        let identities = known.count() + others.count();
        let length = identities * (1 + identity::BYTES)
            + copy_of.map_or(0, |ino| 1 + ino.len())
            + usize::from(self.adopts);
        w.extend_from_slice(&(length as u16).to_le_bytes());
        for (tag, identity) in extensions {
            if let Some(identity) = identity {
                w.push(tag);
                w.extend_from_slice(&identity.encode());
            }
        }
        if let Some(ino) = copy_of {
            w.push(COPY_OF);
            w.extend_from_slice(&ino);
        }
        if let Some(identity) = chosen {
            w.push(CHOSEN);
            w.extend_from_slice(&identity.encode());
        }
        if self.adopts {
            w.push(ADOPTS);
        }
        for (tag, identity) in dirs {
            w.push(tag);
            w.extend_from_slice(&identity.encode());
        }
        w
    }

    /// Reads what [`PathRecord::encode`] wrote, of this program and of those that wrote format 1.
    ///
    /// # Errors
    /// [`BadRecord`] for anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadRecord> {
        let mut r = Reader(bytes);
        let format = r.u8()?;
        if !(FIRST_FORMAT..=FORMAT).contains(&format) {
            return Err(BadRecord::Format(format));
        }
        let kind = Kind::from_code(r.u8()?).ok_or(BadRecord::Damaged)?;
        let has = r.u8()?;
        let known = if format == FIRST_FORMAT {
            KNOWN_IN_FIRST
        } else {
            KNOWN
        };
        if has & !known != 0 {
            return Err(BadRecord::Damaged);
        }
        let version = u64::from_le_bytes(r.array()?);
        let object = ObjectName {
            oid: ObjectId(u128::from_le_bytes(r.array()?)),
            link: u32::from_le_bytes(r.array()?),
        };
        let owner = BridgeId(u32::from_le_bytes(r.array()?));
        let mut record = PathRecord {
            version,
            ino: u64::from_le_bytes(r.array()?),
            token: Token {
                client: u64::from_le_bytes(r.array()?),
                seq: u32::from_le_bytes(r.array()?),
            },
            ..PathRecord::new(kind, object, owner)
        };
        if has & HAS_DRAINED != 0 {
            let size = u64::from_le_bytes(r.array()?);
            let ctime_ns = i128::from_le_bytes(r.array()?);
            let ctime = Timestamp {
                sec: i64::try_from(ctime_ns.div_euclid(NS_PER_S))
                    .map_err(|_| BadRecord::Damaged)?,
                nsec: ctime_ns.rem_euclid(NS_PER_S) as u32,
            };
            record.drained = Some(Stamp { size, ctime });
        }
        if has & HAS_ORIGIN != 0 {
            record.origin = Some(r.path()?);
        }
        if has & HAS_HIDES != 0 {
            record.hides = Some(r.path()?);
        }
        if has & HAS_TRANSIT != 0 {
            record.transit = Some(Transit::from_code(r.u8()?).ok_or(BadRecord::Damaged)?);
        }
        if has & HAS_SEGMENTS != 0 {
            let count = u32::from_le_bytes(r.array()?);
            let all = (0..count).map(|_| r.segment());
            record.segments = all.collect::<Result<_, _>>()?;
        }
        if format > FIRST_FORMAT {
            let extensions = usize::from(u16::from_le_bytes(r.array()?));
            let mut r = Reader(r.take(extensions)?);
            let mut dirs = Dirs::default();
            while let Ok(tag) = r.u8() {
                match tag {
                    REPLACES => record.replaces = Some(Identity::decode(r.array()?)),
                    ARRIVING => record.arriving = Some(Box::new(Identity::decode(r.array()?))),
                    COPY_OF => record.copy_of = u64::from_le_bytes(r.array()?),
                    CHOSEN => record.chosen = Some(Box::new(Identity::decode(r.array()?))),
                    ADOPTS => record.adopts = true,
                    WITHIN => dirs.within = Some(Identity::decode(r.array()?)),
                    OUT_OF => dirs.out_of = Some(Identity::decode(r.array()?)),
                    // Of a later program; what follows can't be told apart.
                    _ => break,
                }
            }
            record.dirs = dirs.boxed();
        }
        r.0.is_empty().then_some(record).ok_or(BadRecord::Damaged)
    }
}

/// Takes bytes off the front, never past the end.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8], BadRecord> {
        if self.0.len() < n {
            return Err(BadRecord::Damaged);
        }
        let (head, tail) = self.0.split_at(n);
        self.0 = tail;
        Ok(head)
    }
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], BadRecord> {
        let mut a = [0; N];
        a.copy_from_slice(self.take(N)?);
        Ok(a)
    }
    pub(crate) fn u8(&mut self) -> Result<u8, BadRecord> {
        Ok(self.array::<1>()?[0])
    }
    pub(crate) fn path(&mut self) -> Result<TreePath, BadRecord> {
        let len = usize::from(u16::from_le_bytes(self.array()?));
        TreePath::new(self.take(len)?).ok_or(BadRecord::Damaged)
    }
    fn segment(&mut self) -> Result<Segment, BadRecord> {
        Ok(Segment {
            start: u64::from_le_bytes(self.array()?),
            end: u64::from_le_bytes(self.array()?),
            keeper: BridgeId(u32::from_le_bytes(self.array()?)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Attr;

    fn plain() -> PathRecord {
        PathRecord {
            version: 0x0102_0304_0506_0708,
            ino: 6,
            token: Token { client: 7, seq: 8 },
            ..PathRecord::new(
                Kind::File,
                ObjectName {
                    oid: ObjectId::new(BridgeId(1), 2, 3),
                    link: 4,
                },
                BridgeId(5),
            )
        }
    }

    fn full() -> PathRecord {
        PathRecord {
            kind: Kind::Moved,
            copy_of: 12,
            origin: TreePath::new(*b"a/b"),
            hides: TreePath::new(*b"c"),
            replaces: Some(Identity::of(&Attr {
                ino: 11,
                ..Attr::default()
            })),
            arriving: Some(Box::new(Identity::MADE_DIR)),
            chosen: Some(Box::new(Identity::NOTHING)),
            adopts: true,
            dirs: Dirs {
                within: Some(Identity::MADE_DIR),
                out_of: Some(Identity::NOTHING),
            }
            .boxed(),
            drained: Some(Stamp {
                size: 9,
                ctime: Timestamp {
                    sec: -1,
                    nsec: 999_999_990,
                },
            }),
            ..plain()
        }
    }

    /// Without what stands in extensions.
    fn unknown(record: PathRecord) -> PathRecord {
        PathRecord {
            replaces: None,
            arriving: None,
            chosen: None,
            adopts: false,
            dirs: None,
            copy_of: 0,
            ..record
        }
    }

    fn segmented() -> PathRecord {
        let segment = |start, end, keeper| Segment {
            start,
            end,
            keeper: BridgeId(keeper),
        };
        PathRecord {
            transit: Some(Transit::Releasing),
            segments: [segment(0, 10, 1), segment(10, u64::MAX, 2)].into(),
            ..full()
        }
    }

    /// As the first format wrote them.
    const FULL_IN_FIRST: &[u8] =
        b"\x01\x05\x07\x08\x07\x06\x05\x04\x03\x02\x01\x03\0\0\0\0\0\0\0\x02\0\0\0\x01\
          \0\0\0\x04\0\0\0\x05\0\0\0\x06\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x08\0\0\0\x09\
          \0\0\0\0\0\0\0\xf6\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\
          \x03\0a/b\x01\0c";
    const PLAIN_IN_FIRST: &[u8] =
        b"\x01\x01\0\x08\x07\x06\x05\x04\x03\x02\x01\x03\0\0\0\0\0\0\0\x02\0\0\0\x01\0\
          \0\0\x04\0\0\0\x05\0\0\0\x06\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x08\0\0\0";

    #[test]
    fn a_record_survives_encoding_and_every_truncation_is_refused() {
        for r in [plain(), full(), segmented()] {
            let bytes = r.encode();
            assert_eq!(PathRecord::decode(&bytes), Ok(r));
            for cut in 0..bytes.len() {
                let cut_off = PathRecord::decode(&bytes[..cut]);
                assert_eq!(cut_off, Err(BadRecord::Damaged), "cut {cut}");
            }
        }
    }

    #[test]
    fn what_the_first_format_wrote_is_read_and_written_in_the_second() {
        for (bytes, record) in [(FULL_IN_FIRST, unknown(full())), (PLAIN_IN_FIRST, plain())] {
            assert_eq!(PathRecord::decode(bytes), Ok(record.clone()));
            for cut in 0..bytes.len() {
                let cut_off = PathRecord::decode(&bytes[..cut]);
                assert_eq!(cut_off, Err(BadRecord::Damaged), "cut {cut}");
            }
            let again = record.encode();
            assert_eq!(again[0], 2);
            assert_eq!(PathRecord::decode(&again), Ok(record));
        }
    }

    #[test]
    fn an_extension_is_skipped_and_a_format_from_later_is_named() {
        let mut bytes = unknown(segmented()).encode();
        bytes.truncate(bytes.len() - 2);
        bytes.extend_from_slice(b"\x05\0later");
        assert_eq!(PathRecord::decode(&bytes), Ok(unknown(segmented())));
        bytes[0] = 3;
        let refused = PathRecord::decode(&bytes).unwrap_err();
        assert_eq!(refused, BadRecord::Format(3));
        assert_eq!(
            refused.to_string(),
            "a record of format 3; this program reads formats 1 to 2"
        );
    }
}
