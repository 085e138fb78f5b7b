//! Reads a region of a log as a stream of plain bytes. A region is a sequence of independently
//! compressed streams, one per rank that wrote to it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::{Endian, Error, Extent, Region, Result};

/// Compressed bytes fetched at a time, and bytes decompressed at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// Where a log's bytes come from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    File(Arc<File>),
    Bytes(Arc<[u8]>),
}

impl Source {
    /// Fills `buffer` from `offset`; returns how many bytes there were.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        match self {
            Source::Bytes(bytes) => {
                let start = usize::try_from(offset)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                let len = buffer.len().min(bytes.len() - start);
                buffer[..len].copy_from_slice(&bytes[start..start + len]);
                Ok(len)
            }
            Source::File(file) => {
                let mut done = 0;
                while done < buffer.len() {
                    match file.read_at(&mut buffer[done..], offset + done as u64) {
                        Ok(0) => break,
                        Ok(n) => done += n,
                        Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                        Err(source) => {
                            return Err(Error::Io {
                                operation: "read",
                                path: None,
                                source,
                            });
                        }
                    }
                }
                Ok(done)
            }
        }
    }
}

/// How the regions of a log are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// zlib streams.
    Zlib,
    /// bzip2 streams.
    Bzip2,
    /// Not compressed: what a killed process left behind.
    None,
}

enum Codec {
    Zlib(flate2::Decompress),
    Bzip2(bzip2::Decompress),
    Stored,
}

impl Codec {
    fn new(compression: Compression) -> Codec {
        match compression {
            Compression::Zlib => Codec::Zlib(flate2::Decompress::new(true)),
            Compression::Bzip2 => Codec::Bzip2(bzip2::Decompress::new(false)),
            Compression::None => Codec::Stored,
        }
    }

    /// Prepares for the next stream.
    fn restart(&mut self) {
        match self {
            Codec::Zlib(codec) => codec.reset(true),
            Codec::Bzip2(codec) => *codec = bzip2::Decompress::new(false),
            Codec::Stored => {}
        }
    }
}

/// What one step of a [`Codec`] did.
struct Progress {
    consumed: usize,
    produced: usize,
    stream_ended: bool,
}

/// The plain bytes of one region, decompressed as they are asked for.
pub(crate) struct RegionReader {
    source: Source,
    pub(crate) region: Region,
    pub(crate) endian: Endian,
    codec: Codec,
    /// True inside a stream: bytes of it were consumed, and its end was not seen.
    in_stream: bool,
    input: Vec<u8>,
    input_at: usize,
    /// File offset of the first byte behind `input`.
    position: u64,
    end: u64,
    output: Vec<u8>,
    output_at: usize,
    produced: u64,
    limit: u64,
}

impl RegionReader {
    /// A reader of `extent`, which may decompress to `limit` bytes at most.
    pub(crate) fn new(
        source: Source,
        region: Region,
        extent: Extent,
        compression: Compression,
        endian: Endian,
        limit: u64,
    ) -> Self {
        RegionReader {
            source,
            region,
            endian,
            codec: Codec::new(compression),
            in_stream: false,
            input: Vec::new(),
            input_at: 0,
            position: extent.offset,
            end: extent.end(),
            output: Vec::new(),
            output_at: 0,
            produced: 0,
            limit,
        }
    }

    /// File offset up to which the region has been consumed.
    pub(crate) fn offset(&self) -> u64 {
        self.position - (self.input.len() - self.input_at) as u64
    }

    pub(crate) fn corrupt(&self, reason: impl Into<String>) -> Error {
        Error::Corrupt {
            region: self.region,
            offset: self.offset(),
            reason: reason.into(),
        }
    }

    pub(crate) fn over_limit(&self, what: &'static str, limit: u64) -> Error {
        Error::Limit {
            region: self.region,
            offset: self.offset(),
            what,
            limit,
        }
    }

    /// Plain bytes at hand without further work; empty only at the region's end.
    pub(crate) fn available(&mut self) -> Result<&[u8]> {
        if self.output_at == self.output.len() {
            self.refill()?;
        }
        Ok(&self.output[self.output_at..])
    }

    /// Skips `len` of the bytes that [`available`](Self::available) showed.
    pub(crate) fn consume(&mut self, len: usize) {
        self.output_at += len;
        debug_assert!(self.output_at <= self.output.len());
    }

    /// Fills `buffer`; returns how many bytes the region still had.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let available = self.available()?;
            if available.is_empty() {
                break;
            }
            let len = available.len().min(buffer.len() - done);
            buffer[done..done + len].copy_from_slice(&available[..len]);
            self.consume(len);
            done += len;
        }
        Ok(done)
    }

    /// Fills `buffer`, or returns `false` at the region's end. An end inside of the buffer is damage.
    pub(crate) fn read_record(&mut self, buffer: &mut [u8]) -> Result<bool> {
        match self.read(buffer)? {
            0 => Ok(buffer.is_empty()),
            n if n == buffer.len() => Ok(true),
            n => Err(self.corrupt(format!(
                "it ends within a record, {n} of {} bytes",
                buffer.len()
            ))),
        }
    }

    /// Reads `words` 8-byte words in the log's byte order; `None` at the region's end.
    pub(crate) fn read_words(&mut self, words: usize) -> Result<Option<Vec<u64>>> {
        let mut bytes = vec![0; words * 8];
        if !self.read_record(&mut bytes)? {
            return Ok(None);
        }
        Ok(Some(
            bytes
                .chunks_exact(8)
                .map(|word| self.endian.u64(word))
                .collect(),
        ))
    }

    /// Reads the `count` words that a record claims to have. Memory grows with what comes, not with
    /// the claim.
    pub(crate) fn read_counted_words(&mut self, count: u64) -> Result<Vec<u64>> {
        let mut words = Vec::new();
        while (words.len() as u64) < count {
            let step = (count - words.len() as u64).min((CHUNK_BYTES / 8) as u64) as usize;
            match self.read_words(step)? {
                Some(more) => words.extend(more),
                None => return Err(self.corrupt("it ends within a record")),
            }
        }
        Ok(words)
    }

    /// Decompresses more bytes. The region is at its end if `output` stays empty.
    fn refill(&mut self) -> Result<()> {
        self.output.clear();
        self.output_at = 0;
        while self.output.is_empty() {
            let exhausted = self.input_at == self.input.len() && !self.fetch()?;
            // A codec may still hold plain bytes when it has taken the last of its input.
            if exhausted && !(self.in_stream && self.position == self.end) {
                return self.check_end();
            }
            self.output.resize(CHUNK_BYTES, 0);
            let step = match self.step() {
                Ok(step) => step,
                Err(error) => {
                    self.output.clear();
                    return if exhausted {
                        self.check_end()
                    } else {
                        Err(error)
                    };
                }
            };
            self.output.truncate(step.produced);
            self.input_at += step.consumed;
            self.produced += step.produced as u64;
            self.in_stream = !step.stream_ended;
            if step.stream_ended {
                self.codec.restart();
            }
            if self.produced > self.limit {
                self.output.clear();
                return Err(self.over_limit("its size when decompressed", self.limit));
            }
        }
        Ok(())
    }

    /// Fetches compressed bytes; `false` at the end of the region or of the file.
    fn fetch(&mut self) -> Result<bool> {
        let wanted = (self.end - self.position).min(CHUNK_BYTES as u64) as usize;
        self.input.resize(wanted, 0);
        self.input_at = 0;
        let got = match self.source.read_at(&mut self.input, self.position) {
            Ok(got) => got,
            Err(error) => {
                self.input.clear();
                return Err(error);
            }
        };
        self.input.truncate(got);
        self.position += got as u64;
        Ok(got > 0)
    }

    /// Checks that the end of the input was the end of the region.
    fn check_end(&self) -> Result<()> {
        if self.position < self.end {
            return Err(Error::Truncated {
                region: self.region,
                offset: self.position,
            });
        }
        if self.in_stream {
            return Err(self.corrupt("a compressed stream has no end"));
        }
        Ok(())
    }

    fn step(&mut self) -> Result<Progress> {
        let input = &self.input[self.input_at..];
        match &mut self.codec {
            Codec::Stored => {
                let len = input.len().min(self.output.len());
                self.output[..len].copy_from_slice(&input[..len]);
                Ok(Progress {
                    consumed: len,
                    produced: len,
                    stream_ended: true,
                })
            }
            Codec::Zlib(codec) => {
                let (before_in, before_out) = (codec.total_in(), codec.total_out());
                let status =
                    codec.decompress(input, &mut self.output, flate2::FlushDecompress::None);
                let step = Progress {
                    consumed: (codec.total_in() - before_in) as usize,
                    produced: (codec.total_out() - before_out) as usize,
                    stream_ended: matches!(status, Ok(flate2::Status::StreamEnd)),
                };
                let reason = status.err().map(|e| e.to_string());
                self.checked(step, reason)
            }
            Codec::Bzip2(codec) => {
                let (before_in, before_out) = (codec.total_in(), codec.total_out());
                let status = codec.decompress(input, &mut self.output);
                let step = Progress {
                    consumed: (codec.total_in() - before_in) as usize,
                    produced: (codec.total_out() - before_out) as usize,
                    stream_ended: matches!(status, Ok(bzip2::Status::StreamEnd)),
                };
                let reason = status.err().map(|e| e.to_string());
                self.checked(step, reason)
            }
        }
    }

    /// Refuses a step that made no progress: the next ones would not either.
    fn checked(&self, step: Progress, reason: Option<String>) -> Result<Progress> {
        if let Some(reason) = reason {
            return Err(self.corrupt(format!("decompression failed: {reason}")));
        }
        if step.consumed == 0 && step.produced == 0 && !step.stream_ended {
            return Err(self.corrupt("decompression makes no progress"));
        }
        Ok(step)
    }
}
