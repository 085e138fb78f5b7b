//! The log of the disks: what reached them, in one sequence.
//!
//! Each entry is a head of 24 bytes (kind, disk, length of the payload, offset, length) and its payload.

use std::io::{self, Read, Write};
use std::ops::Range;

/// Size of a block: a disk writes it whole or not at all.
pub const BLOCK_BYTES: usize = 4096;
/// Bytes of the head of an entry.
const HEAD_BYTES: usize = 24;

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Bytes were written.
    Write {
        /// Number of the disk.
        disk: u8,
        /// Offset on the disk, in bytes.
        at: u64,
        /// Where the bytes are: see [`Log::bytes`].
        data: Range<usize>,
    },
    /// A range was filled with zeros, or given back.
    Zero {
        /// Number of the disk.
        disk: u8,
        /// Offset on the disk, in bytes.
        at: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// What was written to this disk before is durable.
    Flush {
        /// Number of the disk.
        disk: u8,
    },
    /// The workload said something.
    Mark(String),
}

impl Event {
    /// The disk that it changes; `None` if it changes none.
    pub fn changes(&self) -> Option<u8> {
        match self {
            Event::Write { disk, .. } | Event::Zero { disk, .. } => Some(*disk),
            Event::Flush { .. } | Event::Mark(_) => None,
        }
    }
}

/// What the workload says when it begins; what was written before belongs to every image.
pub const START: &str = "start";

/// Writes entries.
#[derive(Debug)]
pub struct Writer<W>(W);

impl<W: Write> Writer<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> Self {
        Writer(out)
    }

    fn entry(&mut self, kind: u8, disk: u8, at: u64, bytes: u64, payload: &[u8]) -> io::Result<()> {
        let mut head = [0; HEAD_BYTES];
        head[0] = kind;
        head[1] = disk;
        let length = u32::try_from(payload.len()).map_err(io::Error::other)?;
        head[4..8].copy_from_slice(&length.to_le_bytes());
        head[8..16].copy_from_slice(&at.to_le_bytes());
        head[16..24].copy_from_slice(&bytes.to_le_bytes());
        self.0.write_all(&head)?;
        self.0.write_all(payload)
    }

    /// Notes a write. Zeros are noted as such, which keeps logs small.
    ///
    /// # Errors
    /// The log can't be written.
    pub fn write(&mut self, disk: u8, at: u64, data: &[u8]) -> io::Result<()> {
        if data.iter().all(|byte| *byte == 0) {
            return self.zero(disk, at, data.len() as u64);
        }
        self.entry(b'W', disk, at, data.len() as u64, data)
    }

    /// Notes a range of zeros.
    ///
    /// # Errors
    /// The log can't be written.
    pub fn zero(&mut self, disk: u8, at: u64, bytes: u64) -> io::Result<()> {
        self.entry(b'Z', disk, at, bytes, &[])
    }

    /// Notes a flush.
    ///
    /// # Errors
    /// The log can't be written.
    pub fn flush_of(&mut self, disk: u8) -> io::Result<()> {
        self.entry(b'F', disk, 0, 0, &[])
    }

    /// Notes what the workload says.
    ///
    /// # Errors
    /// The log can't be written.
    pub fn mark(&mut self, text: &[u8]) -> io::Result<()> {
        self.entry(b'M', 0, 0, 0, text)
    }

    /// Brings all entries to the file.
    ///
    /// # Errors
    /// The log can't be written.
    pub fn finish(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A log that was read.
#[derive(Debug, Clone, Default)]
pub struct Log {
    /// The entries, in their order.
    pub events: Vec<Event>,
    arena: Vec<u8>,
    start: usize,
}

impl Log {
    /// Reads a whole log.
    ///
    /// # Errors
    /// It can't be read, or is none.
    pub fn read(mut from: impl Read) -> io::Result<Self> {
        let mut arena = Vec::new();
        from.read_to_end(&mut arena)?;
        let mut events = Vec::new();
        let mut next = 0;
        while next < arena.len() {
            let bad = || {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("no log entry at byte {next}"),
                )
            };
            let head = arena.get(next..next + HEAD_BYTES).ok_or_else(bad)?;
            let word = |from: usize| {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&head[from..from + 8]);
                u64::from_le_bytes(bytes)
            };
            let length = (word(0) >> 32) as usize;
            let data = next + HEAD_BYTES..next + HEAD_BYTES + length;
            let payload = arena.get(data.clone()).ok_or_else(bad)?;
            let (disk, at, bytes) = (head[1], word(8), word(16));
            events.push(match head[0] {
                b'W' => Event::Write {
                    disk,
                    at,
                    data: data.clone(),
                },
                b'Z' => Event::Zero { disk, at, bytes },
                b'F' => Event::Flush { disk },
                b'M' => Event::Mark(String::from_utf8_lossy(payload).trim().to_owned()),
                _ => return Err(bad()),
            });
            next = data.end;
        }
        let is_start = |event: &Event| matches!(event, Event::Mark(text) if text == START);
        let start = events
            .iter()
            .position(is_start)
            .map_or(events.len(), |at| at + 1);
        Ok(Log {
            events,
            arena,
            start,
        })
    }

    /// The bytes of a write.
    pub fn bytes(&self, data: &Range<usize>) -> &[u8] {
        &self.arena[data.clone()]
    }

    /// Index of the entry after [`START`]; the end of the log if there is none.
    pub fn start(&self) -> usize {
        self.start
    }

    /// What the workload has said before `point`, since [`START`].
    pub fn said(&self, point: usize) -> impl Iterator<Item = &str> {
        self.events[self.start().min(point)..point]
            .iter()
            .filter_map(|event| match event {
                Event::Mark(text) => Some(text.as_str()),
                _ => None,
            })
    }

    /// The log of a disk that lies: it answers this share of flushes (0 to 1) without doing them.
    pub fn with_lies(mut self, share: f64, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let start = self.start;
        let mut index = 0;
        self.events.retain(|event| {
            index += 1;
            index <= start || !matches!(event, Event::Flush { .. }) || random.f64() >= share
        });
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_read_again() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.write(1, 8192, b"text").unwrap();
        writer.write(0, 0, &[0; 4096]).unwrap();
        writer.mark(b"start\n").unwrap();
        writer.flush_of(1).unwrap();
        writer.mark(b"ack 1").unwrap();
        let log = Log::read(bytes.as_slice()).unwrap();
        let Event::Write {
            disk: 1,
            at: 8192,
            data,
        } = &log.events[0]
        else {
            panic!("{:?}", log.events[0]);
        };
        assert_eq!(log.bytes(data), b"text");
        assert_eq!(
            log.events[1],
            Event::Zero {
                disk: 0,
                at: 0,
                bytes: 4096
            }
        );
        assert_eq!(log.start(), 3);
        assert_eq!(log.said(5).collect::<Vec<_>>(), ["ack 1"]);
        assert!(Log::read(&bytes[..30]).is_err());
    }
}
