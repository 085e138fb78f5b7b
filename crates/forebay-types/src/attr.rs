//! Attributes of an object and their encoding.

/// Size of an encoded [`Attr`] in bytes.
pub const ATTR_BYTES: usize = 136;

/// The error for bytes that are no encoded [`Attr`], because there are not [`ATTR_BYTES`] of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrongLength {
    /// Number of bytes given.
    pub got: usize,
}

impl core::fmt::Display for WrongLength {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "{} bytes are no attributes: those have {ATTR_BYTES}",
            self.got
        )
    }
}

impl core::error::Error for WrongLength {}

/// Seconds and nanoseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Timestamp {
    /// Seconds; may be negative.
    pub sec: i64,
    /// Nanoseconds, 0..1e9.
    pub nsec: u32,
}

/// Attributes of an object, as `stat` gives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attr {
    /// Type and permission bits.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device that holds the object (`st_dev`).
    pub dev: u64,
    /// Device number of a device node (`st_rdev`).
    pub rdev: u64,
    /// Inode number of the backing object.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Allocated space in units of 512 bytes.
    pub blocks: u64,
    /// Preferred I/O size in bytes.
    pub blksize: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of data.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Birth; zero if the file system does not record it.
    pub btime: Timestamp,
    /// Inode number of the PFS file that the object is a copy of, which programs see instead of its own; 0: none.
    pub copy_of: u64,
    /// What an access control list gives to whoever asks: bit `n` is set if it gives all of the rights `n`, a sum of read (4), write (2)
    /// and execute (1). `None`: what the mode says. It is in no encoded form.
    pub granted: Option<u8>,
}

/// Device and number of an inode. While a descriptor of it is open, no other one has both.
pub type Inode = (u64, u64);

/// Bits of a mode that tell the kind of a file, and their values.
const KIND: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;

impl Attr {
    /// Is it a directory?
    pub fn is_dir(&self) -> bool {
        self.mode & KIND == DIRECTORY
    }

    /// Is it a regular file?
    pub fn is_file(&self) -> bool {
        self.mode & KIND == REGULAR
    }

    /// Which inode it is of.
    pub fn inode(&self) -> Inode {
        (self.dev, self.ino)
    }

    /// The encoded form.
    pub fn encode(&self) -> [u8; ATTR_BYTES] {
        let mut out = [0; ATTR_BYTES];
        let words = [
            u64::from(self.mode) | u64::from(self.nlink) << 32,
            u64::from(self.uid) | u64::from(self.gid) << 32,
            self.dev,
            self.rdev,
            self.ino,
            self.size,
            self.blocks,
            u64::from(self.blksize),
            self.atime.sec as u64,
            u64::from(self.atime.nsec),
            self.mtime.sec as u64,
            u64::from(self.mtime.nsec),
            self.ctime.sec as u64,
            u64::from(self.ctime.nsec),
            self.btime.sec as u64,
            u64::from(self.btime.nsec),
            self.copy_of,
        ];
        for (i, w) in words.iter().enumerate() {
            out[i * 8..i * 8 + 8].copy_from_slice(&w.to_le_bytes());
        }
        out
    }

    /// Reads the encoded form.
    ///
    /// # Errors
    /// [`WrongLength`] unless `body` is [`ATTR_BYTES`] long.
    pub fn decode(body: &[u8]) -> Result<Self, WrongLength> {
        if body.len() != ATTR_BYTES {
            return Err(WrongLength { got: body.len() });
        }
        let w = |i: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&body[i * 8..i * 8 + 8]);
            u64::from_le_bytes(word)
        };
        let time = |i: usize| Timestamp {
            sec: w(i) as i64,
            nsec: w(i + 1) as u32,
        };
        Ok(Attr {
            mode: w(0) as u32,
            nlink: (w(0) >> 32) as u32,
            uid: w(1) as u32,
            gid: (w(1) >> 32) as u32,
            dev: w(2),
            rdev: w(3),
            ino: w(4),
            size: w(5),
            blocks: w(6),
            blksize: w(7) as u32,
            atime: time(8),
            mtime: time(10),
            ctime: time(12),
            btime: time(14),
            copy_of: w(16),
            granted: None,
        })
    }
}
