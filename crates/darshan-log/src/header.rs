//! The uncompressed first bytes of a log, which say where everything else lies.

use crate::module::MAX_MODULES;
use crate::region::{Compression, Source};
use crate::{Error, Extent, ModuleId, ModuleInfo, Region, Result};

/// Bytes of the header of format 3.41.
pub(crate) const HEADER_BYTES: usize = 1328;
/// Bytes of the header of formats before 3.41.
const OLD_HEADER_BYTES: usize = 360;
const OLD_MODULES: usize = 16;
pub(crate) const MAGIC: i64 = 6_567_223;
/// The format that [`LogWriter`](crate::LogWriter) writes.
pub(crate) const WRITTEN_VERSION: &[u8; 8] = b"3.41\0\0\0\0";

/// Byte order of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endian {
    /// Least significant byte first (x86-64, AArch64).
    Little,
    /// Most significant byte first (POWER of old, Blue Gene).
    Big,
}

impl Endian {
    /// The number in the first 8 bytes. Panics if there are fewer.
    pub(crate) fn u64(self, bytes: &[u8]) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[..8]);
        match self {
            Endian::Little => u64::from_le_bytes(word),
            Endian::Big => u64::from_be_bytes(word),
        }
    }

    pub(crate) fn u32(self, bytes: &[u8]) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&bytes[..4]);
        match self {
            Endian::Little => u32::from_le_bytes(word),
            Endian::Big => u32::from_be_bytes(word),
        }
    }
}

/// Version of the format of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FormatVersion {
    /// Darshan 3.0.
    V3_00,
    /// Darshan 3.1.
    V3_10,
    /// Darshan 3.2.0.
    V3_20,
    /// Darshan 3.2.1 to 3.4.0.
    V3_21,
    /// Darshan 3.4.1 and later.
    V3_41,
}

impl FormatVersion {
    const ALL: [(FormatVersion, &'static str); 5] = [
        (FormatVersion::V3_00, "3.00"),
        (FormatVersion::V3_10, "3.10"),
        (FormatVersion::V3_20, "3.20"),
        (FormatVersion::V3_21, "3.21"),
        (FormatVersion::V3_41, "3.41"),
    ];

    /// The version as it stands in the log, such as `3.41`.
    pub fn as_str(self) -> &'static str {
        FormatVersion::ALL[self as usize].1
    }

    /// The module that has the number `index` in this format. Later formats put two modules in between.
    fn module(self, index: usize) -> ModuleId {
        let mut number = index;
        if self < FormatVersion::V3_20 && number >= 4 {
            // Format 3.20 added H5D.
            number += 1;
        }
        if self < FormatVersion::V3_41 && number >= 6 {
            // Format 3.41 added PNETCDF_VAR.
            number += 1;
        }
        ModuleId::from_number(number as u8)
    }
}

/// What the header of a log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Format of the log.
    pub version: FormatVersion,
    /// Byte order of the log.
    pub endian: Endian,
    /// Compression of all regions.
    pub compression: Compression,
    /// Where the job record lies, with the executable and the mounts.
    pub job: Extent,
    /// Where the names lie; of length 0 if there are none.
    pub names: Extent,
    /// The modules that the log has data of, by number.
    pub modules: Vec<ModuleInfo>,
    /// Modules that lost records and have none in the log.
    pub partial_only: Vec<ModuleId>,
}

impl Header {
    /// The byte behind the last region.
    pub fn end(&self) -> u64 {
        let regions = self
            .modules
            .iter()
            .map(|m| m.extent)
            .chain([self.job, self.names]);
        regions.map(Extent::end).max().unwrap_or(0)
    }

    /// The module, if the log has data of it.
    pub fn module(&self, id: ModuleId) -> Option<&ModuleInfo> {
        self.modules.iter().find(|module| module.id == id)
    }

    pub(crate) fn read(source: &Source, file_len: u64) -> Result<Header> {
        let mut bytes = [0u8; HEADER_BYTES];
        let got = source.read_at(&mut bytes, 0)?;
        let bytes = &bytes[..got];
        let version = read_version(bytes)?;
        let needed = if version == FormatVersion::V3_41 {
            HEADER_BYTES
        } else {
            OLD_HEADER_BYTES
        };
        if got < needed {
            return Err(Error::Truncated {
                region: Region::Header,
                offset: got as u64,
            });
        }
        let endian = read_endian(bytes)?;
        let mut header = Header {
            version,
            endian,
            compression: read_compression(bytes[16])?,
            job: Extent::default(),
            names: Extent::default(),
            modules: Vec::new(),
            partial_only: Vec::new(),
        };
        let extent = |at: usize| Extent {
            offset: endian.u64(&bytes[at..]),
            len: endian.u64(&bytes[at + 8..]),
        };
        // Places of: partial flags, names, module extents, module versions; number of modules.
        let (partial, names, extents, versions, modules) = if version == FormatVersion::V3_41 {
            (endian.u64(&bytes[24..]), 32, 48, 1072, MAX_MODULES)
        } else {
            (
                u64::from(endian.u32(&bytes[20..])),
                24,
                40,
                296,
                OLD_MODULES,
            )
        };
        header.names = extent(names);
        for index in 0..modules {
            let (id, place) = (version.module(index), extent(extents + 16 * index));
            let partial = partial >> index & 1 == 1;
            if place.len > 0 {
                let version = endian.u32(&bytes[versions + 4 * index..]);
                header.modules.push(ModuleInfo {
                    id,
                    version,
                    partial,
                    extent: place,
                });
            } else if partial {
                header.partial_only.push(id);
            }
        }
        header.job = job_extent(&header, needed as u64, file_len)?;
        Ok(header)
    }
}

fn read_version(bytes: &[u8]) -> Result<FormatVersion> {
    let stored = bytes.get(..8).unwrap_or(bytes);
    let text = stored.split(|byte| *byte == 0).next().unwrap_or_default();
    let known = FormatVersion::ALL
        .iter()
        .find(|(_, name)| name.as_bytes() == text);
    known
        .map(|(version, _)| *version)
        .ok_or_else(|| Error::Format {
            found: if stored.is_empty() {
                "an empty file".into()
            } else {
                format!("it starts with \"{}\"", stored.escape_ascii())
            },
        })
}

fn read_endian(bytes: &[u8]) -> Result<Endian> {
    let magic = &bytes[8..16];
    [Endian::Little, Endian::Big]
        .into_iter()
        .find(|endian| endian.u64(magic) as i64 == MAGIC)
        .ok_or_else(|| Error::Format {
            found: format!("no magic number at byte 8 but {magic:02x?}"),
        })
}

fn read_compression(byte: u8) -> Result<Compression> {
    match byte {
        0 => Ok(Compression::Zlib),
        1 => Ok(Compression::Bzip2),
        2 => Ok(Compression::None),
        other => Err(Error::Corrupt {
            region: Region::Header,
            offset: 16,
            reason: format!("unknown compression {other}"),
        }),
    }
}

/// The job record goes from the header to the first region behind it.
fn job_extent(header: &Header, start: u64, file_len: u64) -> Result<Extent> {
    let end = match header.names.offset {
        0 => header
            .modules
            .iter()
            .map(|m| m.extent.offset)
            .min()
            .unwrap_or(file_len),
        names => names,
    };
    if end < start {
        return Err(Error::Corrupt {
            region: Region::Header,
            offset: 0,
            reason: format!("a region starts at byte {end}, within the header"),
        });
    }
    Ok(Extent {
        offset: start,
        len: end - start,
    })
}
