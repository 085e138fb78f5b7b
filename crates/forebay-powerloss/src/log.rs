//! The log of the disks: what reached them, in one sequence.
//!
//! Each entry is a head of 32 bytes (kind, disk, length of the payload, offset, length, time) and its payload.

use std::io::{self, Read, Write};
use std::ops::Range;
use std::time::Duration;

/// Size of a block: a disk writes it whole or not at all.
pub const BLOCK_BYTES: usize = 4096;
/// Bytes of the head of an entry.
const HEAD_BYTES: usize = 32;

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

/// The word by which the workload says that it begins; what was written before belongs to every image.
pub const START: &str = "start";

/// Writes entries.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    now_us: u64,
}

impl<W: Write> Writer<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> Self {
        Writer { out, now_us: 0 }
    }

    /// Entries from now on carry this time.
    pub fn at(&mut self, now: Duration) {
        self.now_us = now.as_micros() as u64;
    }

    fn entry(&mut self, kind: u8, disk: u8, at: u64, bytes: u64, payload: &[u8]) -> io::Result<()> {
        let mut head = [0; HEAD_BYTES];
        head[0] = kind;
        head[1] = disk;
        let length = u32::try_from(payload.len()).map_err(io::Error::other)?;
        head[4..8].copy_from_slice(&length.to_le_bytes());
        head[8..16].copy_from_slice(&at.to_le_bytes());
        head[16..24].copy_from_slice(&bytes.to_le_bytes());
        head[24..32].copy_from_slice(&self.now_us.to_le_bytes());
        self.out.write_all(&head)?;
        self.out.write_all(payload)
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
        self.out.flush()
    }
}

/// A log that was read.
#[derive(Debug, Clone, Default)]
pub struct Log {
    /// The entries, in their order.
    pub events: Vec<Event>,
    /// When each of them was noted, since the disks are there.
    times: Vec<Duration>,
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
        let (mut events, mut times) = (Vec::new(), Vec::new());
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
            times.push(Duration::from_micros(word(24)));
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
        let is_start = |event: &Event| matches!(event, Event::Mark(text) if text.split(' ').next() == Some(START));
        let start = events
            .iter()
            .position(is_start)
            .map_or(events.len(), |at| at + 1);
        Ok(Log {
            events,
            times,
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

    /// What the workload has said before `point`, from [`START`] on.
    pub fn said(&self, point: usize) -> impl Iterator<Item = (Duration, &str)> {
        let range = self.start().saturating_sub(1).min(point)..point;
        let entries = self.times[range.clone()].iter().zip(&self.events[range]);
        entries.filter_map(|(time, event)| match event {
            Event::Mark(text) => Some((*time, text.as_str())),
            _ => None,
        })
    }

    /// The latest time at which the power can go so that `point` is not reached.
    pub fn time_of(&self, point: usize) -> Duration {
        let last = self.times.len().saturating_sub(1);
        self.times
            .get(point.min(last))
            .copied()
            .unwrap_or(Duration::ZERO)
    }

    /// The log of a disk that lies: it answers this share of flushes (0 to 1) without doing them.
    pub fn with_lies(mut self, share: f64, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let start = self.start;
        let keeps = self.events.iter().enumerate().map(|(index, event)| {
            index < start || !matches!(event, Event::Flush { .. }) || random.f64() >= share
        });
        let keeps: Vec<bool> = keeps.collect();
        let mut of_times = keeps.iter();
        self.times.retain(|_| of_times.next() == Some(&true));
        let mut of_events = keeps.iter();
        self.events.retain(|_| of_events.next() == Some(&true));
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
        writer.at(Duration::from_secs(2));
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
        let said: Vec<_> = log.said(5).collect();
        let wanted = [(Duration::ZERO, START), (Duration::from_secs(2), "ack 1")];
        assert_eq!(said, wanted);
        assert_eq!(log.time_of(3), Duration::ZERO);
        assert_eq!(log.time_of(9), Duration::from_secs(2));
        assert!(Log::read(&bytes[..30]).is_err());
        let lying = log.with_lies(1.0, 1);
        assert_eq!(lying.events.len(), 4);
        assert_eq!(lying.time_of(3), Duration::from_secs(2));
    }
}
