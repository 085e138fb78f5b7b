//! Requests of the kernel: what `/dev/fuse` gives, decoded. `linux/fuse.h` describes the layout; numbers have the byte
//! order of the machine.

/// Version of the protocol, major part.
pub const MAJOR: u32 = 7;
/// Oldest minor version that this server understands (Linux 5.4).
pub const OLDEST_MINOR: u32 = 31;
/// Newest minor version that this server was written for (Linux 6.16).
pub const NEWEST_MINOR: u32 = 44;
/// The node id of the root.
pub const ROOT: u64 = 1;
/// Most bytes of one read or write.
pub const MAX_WRITE_BYTES: usize = 1 << 20;
/// Room for the longest request: a write, its headers, and some to spare.
pub const REQUEST_BYTES: usize = MAX_WRITE_BYTES + 4096;

/// Capabilities in the first request and its answer.
pub mod capability {
    /// Reads of one file may overlap.
    pub const ASYNC_READ: u64 = 1 << 0;
    /// `O_TRUNC` comes with the open.
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    /// Writes of more than a page.
    pub const BIG_WRITES: u64 = 1 << 5;
    /// Look-ups in one directory may overlap.
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    /// The number of pages of a request is negotiated.
    pub const MAX_PAGES: u64 = 1 << 22;
    /// The server clears set-user-id bits when it is told to.
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    /// There is a second word of capabilities.
    pub const INIT_EXT: u64 = 1 << 30;
    /// The kernel reads and writes backing files itself.
    pub const PASSTHROUGH: u64 = 1 << 37;
}

/// Bits of [`Setattr::valid`].
pub mod set {
    /// The mode.
    pub const MODE: u32 = 1 << 0;
    /// The owner.
    pub const UID: u32 = 1 << 1;
    /// The group.
    pub const GID: u32 = 1 << 2;
    /// The size.
    pub const SIZE: u32 = 1 << 3;
    /// The access time.
    pub const ATIME: u32 = 1 << 4;
    /// The modification time.
    pub const MTIME: u32 = 1 << 5;
    /// The request names an open file.
    pub const HANDLE: u32 = 1 << 6;
    /// The access time becomes the present.
    pub const ATIME_NOW: u32 = 1 << 7;
    /// The modification time becomes the present.
    pub const MTIME_NOW: u32 = 1 << 8;
    /// Set-user-id bits go.
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// Bit of [`Call::Getattr`]: the request names an open file.
const GETATTR_HANDLE: u32 = 1;
/// Bit of a write: set-user-id bits go.
const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// Bit of an open: set-user-id bits go.
const OPEN_KILL_SUIDGID: u32 = 1;
/// Bit of a sync: only what is needed to read the data again.
const DATA_ONLY: u32 = 1;

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// Its number, which the answer repeats.
    pub unique: u64,
    /// The node that it is about.
    pub node: u64,
    /// What is asked for.
    pub call: Call<'a>,
}

/// New attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setattr {
    /// Which of the fields count ([`set`]).
    pub valid: u32,
    pub handle: u64,
    pub size: u64,
    pub atime: (i64, u32),
    pub mtime: (i64, u32),
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

/// What a request asks for. Names are single components of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call<'a> {
    Init {
        major: u32,
        minor: u32,
        readahead: u32,
        capabilities: u64,
    },
    Lookup {
        name: &'a [u8],
    },
    Forget {
        lookups: u64,
    },
    /// Pairs of node and number of look-ups, 16 bytes each; see [`forgotten`].
    BatchForget {
        pairs: &'a [u8],
    },
    Getattr {
        handle: Option<u64>,
    },
    Setattr(Setattr),
    Readlink,
    Symlink {
        name: &'a [u8],
        text: &'a [u8],
    },
    Mknod {
        name: &'a [u8],
        mode: u32,
        device: u32,
    },
    Mkdir {
        name: &'a [u8],
        mode: u32,
    },
    Unlink {
        name: &'a [u8],
    },
    Rmdir {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        new_parent: u64,
        new_name: &'a [u8],
        flags: u32,
    },
    Link {
        old: u64,
        name: &'a [u8],
    },
    Open {
        flags: u32,
        kill_suidgid: bool,
    },
    Create {
        name: &'a [u8],
        flags: u32,
        mode: u32,
    },
    Read {
        handle: u64,
        offset: u64,
        size: u32,
    },
    Write {
        handle: u64,
        offset: u64,
        data: &'a [u8],
        /// The file has `O_APPEND` at this moment. The offset is then the end of the file as far as the kernel knows.
        appends: bool,
        kill_suidgid: bool,
    },
    Statfs,
    Release {
        handle: u64,
    },
    Fsync {
        handle: u64,
        data_only: bool,
    },
    Setxattr {
        name: &'a [u8],
        value: &'a [u8],
        flags: u32,
    },
    Getxattr {
        name: &'a [u8],
        size: u32,
    },
    Listxattr {
        size: u32,
    },
    Removexattr {
        name: &'a [u8],
    },
    Opendir,
    Readdir {
        handle: u64,
        offset: u64,
        size: u32,
    },
    Releasedir {
        handle: u64,
    },
    Fsyncdir,
    Access {
        mask: u32,
    },
    Fallocate {
        handle: u64,
        offset: u64,
        length: u64,
        mode: u32,
    },
    Lseek {
        handle: u64,
        offset: u64,
        whence: u32,
    },
    CopyFileRange {
        from: u64,
        from_offset: u64,
        to: u64,
        to_offset: u64,
        length: u64,
    },
    Syncfs,
    /// The file would have no record at the bridge.
    Tmpfile,
    /// The kernel does without it when it is told that there is no such call.
    Unknown,
}

/// Why a message is no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// Reads the fields of a message one after the other.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(head)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        let bytes = self.take(4)?.try_into().map_err(|_| Malformed)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        let bytes = self.take(8)?.try_into().map_err(|_| Malformed)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// A name and the NUL that ends it.
    fn name(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.0.iter().position(|&b| b == 0).ok_or(Malformed)?;
        let name = self.take(len)?;
        self.take(1)?;
        Ok(name)
    }
}

/// Requests that the kernel waits for no answer to.
const FORGET: u32 = 2;
const BATCH_FORGET: u32 = 42;

/// Size of the fixed part of a request in bytes.
const HEADER_BYTES: usize = 40;

/// Decodes one message.
///
/// # Errors
/// [`Malformed`]: it is shorter than it has to be.
pub fn decode(message: &[u8]) -> Result<Request<'_>, Malformed> {
    let mut header = Fields(message);
    let len = header.u32()? as usize;
    let opcode = header.u32()?;
    let unique = header.u64()?;
    let node = header.u64()?;
    if len != message.len() || len < HEADER_BYTES {
        return Err(Malformed);
    }
    let call = call(opcode, Fields(&message[HEADER_BYTES..]))?;
    Ok(Request { unique, node, call })
}

/// The number of a request that can't be decoded, if its header can be read and it is of a kind that gets an answer.
pub fn awaits_answer(message: &[u8]) -> Option<u64> {
    let mut header = Fields(message);
    let (_len, opcode) = (header.u32().ok()?, header.u32().ok()?);
    let unique = header.u64().ok()?;
    let is_told_only = matches!(opcode, FORGET | BATCH_FORGET) || unique == 0;
    (!is_told_only).then_some(unique)
}

fn call(opcode: u32, mut f: Fields<'_>) -> Result<Call<'_>, Malformed> {
    Ok(match opcode {
        1 => Call::Lookup { name: f.name()? },
        FORGET => Call::Forget { lookups: f.u64()? },
        3 => {
            let flags = f.u32()?;
            f.u32()?;
            let handle = f.u64()?;
            Call::Getattr {
                handle: (flags & GETATTR_HANDLE != 0).then_some(handle),
            }
        }
        4 => Call::Setattr(setattr(f)?),
        5 => Call::Readlink,
        6 => Call::Symlink {
            name: f.name()?,
            text: f.name()?,
        },
        8 => {
            let (mode, device) = (f.u32()?, f.u32()?);
            f.take(8)?;
            Call::Mknod {
                mode,
                device,
                name: f.name()?,
            }
        }
        9 => {
            let mode = f.u32()?;
            f.u32()?;
            Call::Mkdir {
                mode,
                name: f.name()?,
            }
        }
        10 => Call::Unlink { name: f.name()? },
        11 => Call::Rmdir { name: f.name()? },
        12 | 45 => {
            let new_parent = f.u64()?;
            let flags = if opcode == 45 { u64_low(f.u64()?) } else { 0 };
            Call::Rename {
                new_parent,
                flags,
                name: f.name()?,
                new_name: f.name()?,
            }
        }
        13 => Call::Link {
            old: f.u64()?,
            name: f.name()?,
        },
        14 => Call::Open {
            flags: f.u32()?,
            kill_suidgid: f.u32()? & OPEN_KILL_SUIDGID != 0,
        },
        15 => Call::Read {
            handle: f.u64()?,
            offset: f.u64()?,
            size: f.u32()?,
        },
        16 => write(f)?,
        17 => Call::Statfs,
        18 => Call::Release { handle: f.u64()? },
        20 => Call::Fsync {
            handle: f.u64()?,
            data_only: f.u32()? & DATA_ONLY != 0,
        },
        21 => {
            let (size, flags) = (f.u32()? as usize, f.u32()?);
            Call::Setxattr {
                flags,
                name: f.name()?,
                value: f.take(size)?,
            }
        }
        22 => {
            let size = f.u32()?;
            f.u32()?;
            Call::Getxattr {
                size,
                name: f.name()?,
            }
        }
        23 => Call::Listxattr { size: f.u32()? },
        24 => Call::Removexattr { name: f.name()? },
        26 => init(f)?,
        27 => Call::Opendir,
        28 => Call::Readdir {
            handle: f.u64()?,
            offset: f.u64()?,
            size: f.u32()?,
        },
        29 => Call::Releasedir { handle: f.u64()? },
        30 => Call::Fsyncdir,
        34 => Call::Access { mask: f.u32()? },
        35 => {
            let (flags, mode) = (f.u32()?, f.u32()?);
            f.take(8)?;
            Call::Create {
                flags,
                mode,
                name: f.name()?,
            }
        }
        BATCH_FORGET => {
            let count = f.u32()? as usize;
            f.u32()?;
            Call::BatchForget {
                pairs: f.take(count.checked_mul(16).ok_or(Malformed)?)?,
            }
        }
        43 => Call::Fallocate {
            handle: f.u64()?,
            offset: f.u64()?,
            length: f.u64()?,
            mode: f.u32()?,
        },
        46 => Call::Lseek {
            handle: f.u64()?,
            offset: f.u64()?,
            whence: f.u32()?,
        },
        47 => {
            let (from, from_offset, _node) = (f.u64()?, f.u64()?, f.u64()?);
            Call::CopyFileRange {
                from,
                from_offset,
                to: f.u64()?,
                to_offset: f.u64()?,
                length: f.u64()?,
            }
        }
        50 => Call::Syncfs,
        51 => Call::Tmpfile,
        _ => Call::Unknown,
    })
}

/// The first of two 32-bit fields that were read as one of 64 bits.
fn u64_low(word: u64) -> u32 {
    let bytes = word.to_ne_bytes();
    u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn init(mut f: Fields<'_>) -> Result<Call<'_>, Malformed> {
    let (major, minor, readahead) = (f.u32()?, f.u32()?, f.u32()?);
    let low = u64::from(f.u32()?);
    let high = match low & capability::INIT_EXT {
        0 => 0,
        _ => u64::from(f.u32()?),
    };
    Ok(Call::Init {
        major,
        minor,
        readahead,
        capabilities: low | high << 32,
    })
}

fn setattr(mut f: Fields<'_>) -> Result<Setattr, Malformed> {
    let valid = f.u32()?;
    f.u32()?;
    let (handle, size, _owner) = (f.u64()?, f.u64()?, f.u64()?);
    let (atime, mtime, _ctime) = (f.u64()? as i64, f.u64()? as i64, f.u64()?);
    let (atime_ns, mtime_ns, _ctime_ns) = (f.u32()?, f.u32()?, f.u32()?);
    let (mode, _, uid, gid) = (f.u32()?, f.u32()?, f.u32()?, f.u32()?);
    Ok(Setattr {
        valid,
        handle,
        size,
        atime: (atime, atime_ns),
        mtime: (mtime, mtime_ns),
        mode,
        uid,
        gid,
    })
}

fn write(mut f: Fields<'_>) -> Result<Call<'_>, Malformed> {
    let (handle, offset, size, flags) = (f.u64()?, f.u64()?, f.u32()?, f.u32()?);
    let _owner = f.u64()?;
    let (open_flags, _) = (f.u32()?, f.u32()?);
    Ok(Call::Write {
        handle,
        offset,
        data: f.take(size as usize)?,
        appends: open_flags & libc::O_APPEND as u32 != 0,
        kill_suidgid: flags & WRITE_KILL_SUIDGID != 0,
    })
}

/// The nodes of [`Call::BatchForget`], each with the number of look-ups that the kernel forgets.
pub fn forgotten(pairs: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    pairs.chunks_exact(16).map(|pair| {
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&pair[at..at + 8]);
            u64::from_ne_bytes(bytes)
        };
        (word(0), word(8))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message with this body.
    fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
        let len = (HEADER_BYTES + body.len()) as u32;
        let mut out = Vec::new();
        out.extend(len.to_ne_bytes());
        out.extend(opcode.to_ne_bytes());
        out.extend(77u64.to_ne_bytes());
        out.extend(5u64.to_ne_bytes());
        out.extend([0; 16]);
        out.extend(body);
        out
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    #[test]
    fn a_rename_has_two_names_and_its_flags() {
        let mut body = 9u64.to_ne_bytes().to_vec();
        body.extend(words(&[2, 0]));
        body.extend(b"old\0new\0");
        let request = message(45, &body);
        let request = decode(&request).unwrap();
        assert_eq!((request.unique, request.node), (77, 5));
        let expected = Call::Rename {
            name: b"old",
            new_parent: 9,
            new_name: b"new",
            flags: 2,
        };
        assert_eq!(request.call, expected);
    }

    #[test]
    fn a_write_has_the_bytes_after_its_header_and_says_whether_it_appends() {
        for (open_flags, appends) in [
            (libc::O_WRONLY | libc::O_APPEND, true),
            (libc::O_WRONLY | libc::O_DIRECT, false),
        ] {
            let mut body = 3u64.to_ne_bytes().to_vec();
            body.extend(4096u64.to_ne_bytes());
            body.extend(words(&[5, WRITE_KILL_SUIDGID, 0, 0]));
            body.extend(words(&[open_flags as u32, 0]));
            body.extend(b"bytes");
            let request = message(16, &body);
            let expected = Call::Write {
                handle: 3,
                offset: 4096,
                data: b"bytes",
                appends,
                kill_suidgid: true,
            };
            assert_eq!(decode(&request).unwrap().call, expected);
        }
    }

    #[test]
    fn capabilities_have_two_words_if_the_kernel_says_so() {
        let extended = capability::INIT_EXT as u32;
        let request = message(26, &words(&[7, 40, 65536, extended, 1 << 5]));
        let expected = Call::Init {
            major: 7,
            minor: 40,
            readahead: 65536,
            capabilities: capability::INIT_EXT | capability::PASSTHROUGH,
        };
        assert_eq!(decode(&request).unwrap().call, expected);
        let old = message(26, &words(&[7, 31, 65536, 1]));
        assert!(matches!(
            decode(&old).unwrap().call,
            Call::Init {
                capabilities: 1,
                ..
            }
        ));
    }

    #[test]
    fn what_is_forgotten_comes_in_pairs() {
        let mut body = words(&[2, 0]);
        for word in [7u64, 1, 1 << 40, 3] {
            body.extend(word.to_ne_bytes());
        }
        let request = message(42, &body);
        let Call::BatchForget { pairs } = decode(&request).unwrap().call else {
            panic!("not a batch");
        };
        assert_eq!(forgotten(pairs).collect::<Vec<_>>(), [(7, 1), (1 << 40, 3)]);
    }

    #[test]
    fn a_request_that_makes_no_sense_is_answered_unless_nobody_waits() {
        let cut = message(1, b"no end");
        assert_eq!(decode(&cut), Err(Malformed));
        assert_eq!(awaits_answer(&cut), Some(77));
        assert_eq!(awaits_answer(&cut[..16]), Some(77));
        assert_eq!(awaits_answer(&cut[..15]), None);
        for opcode in [FORGET, BATCH_FORGET] {
            let cut = message(opcode, b"");
            assert_eq!(decode(&cut), Err(Malformed));
            assert_eq!(awaits_answer(&cut), None);
        }
    }

    #[test]
    fn a_message_that_is_cut_anywhere_is_refused_or_decodes() {
        for opcode in 0..60 {
            let whole = message(opcode, &[0; 128]);
            assert!(decode(&whole).is_ok(), "{opcode}");
            for cut in 0..whole.len() {
                assert!(decode(&whole[..cut]).is_err(), "{opcode} cut at {cut}");
                let mut shorter = whole[..cut].to_vec();
                if cut >= 4 {
                    shorter[..4].copy_from_slice(&(cut as u32).to_ne_bytes());
                }
                let _ = decode(&shorter);
            }
        }
    }
}
