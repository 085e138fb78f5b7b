//! The contents of disks after a power loss.

use crate::log::{BLOCK_BYTES, Event, Log};
use crate::pick::Piece;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hasher};

type Block = Box<[u8; BLOCK_BYTES]>;

/// The blocks of a disk that are not zero.
#[derive(Debug, Clone, Default)]
pub struct Blocks(HashMap<u64, Block>);

/// The hash of a block; 0 for zeros. The hash of a disk is the sum of those of its blocks.
fn hash_of(number: u64, block: Option<&Block>) -> u64 {
    let Some(block) = block.filter(|block| block.iter().any(|byte| *byte != 0)) else {
        return 0;
    };
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(number);
    hasher.write(block.as_slice());
    hasher.finish()
}

/// Cuts a range of bytes at the borders of blocks: number of the block, range in it, offset in the whole.
fn cut(at: u64, bytes: u64) -> impl Iterator<Item = (u64, std::ops::Range<usize>, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        (done < bytes).then(|| {
            let (number, from) = (
                (at + done) / BLOCK_BYTES as u64,
                (at + done) as usize % BLOCK_BYTES,
            );
            let length = (BLOCK_BYTES - from).min((bytes - done) as usize);
            let offset = done as usize;
            done += length as u64;
            (number, from..from + length, offset)
        })
    })
}

/// The disks of a log, moved forward along it.
#[derive(Debug)]
pub struct Image<'a> {
    log: &'a Log,
    durable: Vec<Blocks>,
    hashes: Vec<u64>,
    /// For each disk: the events before this one are in `durable`.
    reached: Vec<usize>,
    /// The blocks in which the picked writes differ from that.
    over: Vec<BTreeMap<u64, Block>>,
}

impl<'a> Image<'a> {
    /// Empty disks.
    pub fn new(log: &'a Log, disks: usize) -> Self {
        Image {
            log,
            durable: vec![Blocks::default(); disks],
            hashes: vec![0; disks],
            reached: vec![0; disks],
            over: vec![BTreeMap::new(); disks],
        }
    }

    fn change(&mut self, event: &Event, only: Option<u64>, durable: bool) {
        let log = self.log;
        let (disk, at, bytes, data) = match event {
            Event::Write { disk, at, data } => {
                (*disk, *at, data.len() as u64, Some(log.bytes(data)))
            }
            Event::Zero { disk, at, bytes } => (*disk, *at, *bytes, None),
            Event::Flush { .. } | Event::Mark(_) => return,
        };
        let disk = usize::from(disk);
        for (number, range, offset) in cut(at, bytes) {
            if only.is_some_and(|only| only != number) {
                continue;
            }
            let source = data.map(|data| &data[offset..offset + range.len()]);
            let below = self.durable[disk].0.get(&number);
            if durable {
                self.hashes[disk] = self.hashes[disk].wrapping_sub(hash_of(number, below));
                if data.is_none() && range.len() == BLOCK_BYTES {
                    self.durable[disk].0.remove(&number);
                    continue;
                }
                let block = self.durable[disk]
                    .0
                    .entry(number)
                    .or_insert_with(|| Box::new([0; BLOCK_BYTES]));
                fill(&mut block[range], source);
                self.hashes[disk] = self.hashes[disk].wrapping_add(hash_of(number, Some(block)));
            } else {
                let block = self.over[disk].entry(number).or_insert_with(|| {
                    below.cloned().unwrap_or_else(|| Box::new([0; BLOCK_BYTES]))
                });
                fill(&mut block[range], source);
            }
        }
    }

    /// Makes the image of a power loss before the event `point`, with these pieces of what was not flushed by then.
    pub fn make(&mut self, point: usize, pieces: &[Piece]) {
        let log = self.log;
        for disk in 0..self.durable.len() {
            self.over[disk].clear();
            let flushed = log.last_flush(disk as u8, point);
            if flushed < self.reached[disk] {
                self.durable[disk].0.clear();
                (self.hashes[disk], self.reached[disk]) = (0, 0);
            }
            for index in self.reached[disk]..flushed {
                let event = &log.events[index];
                if event.changes() == Some(disk as u8) {
                    self.change(event, None, true);
                }
            }
            self.reached[disk] = flushed;
        }
        for piece in pieces {
            self.change(&log.events[piece.event], piece.block, false);
        }
    }

    /// The blocks of a disk in the image that was made.
    pub fn blocks(&self, disk: usize) -> impl Iterator<Item = (u64, &[u8; BLOCK_BYTES])> {
        let over = &self.over[disk];
        let below = self.durable[disk]
            .0
            .iter()
            .filter(|(number, _)| !over.contains_key(number));
        below.chain(over).map(|(number, block)| (*number, &**block))
    }

    /// Equal for equal contents of all disks.
    pub fn hash(&self) -> u64 {
        let mut all = DefaultHasher::new();
        for (disk, over) in self.over.iter().enumerate() {
            let mut hash = self.hashes[disk];
            for (number, block) in over {
                let below = self.durable[disk].0.get(number);
                hash = hash
                    .wrapping_sub(hash_of(*number, below))
                    .wrapping_add(hash_of(*number, Some(block)));
            }
            all.write_u64(hash);
        }
        all.finish()
    }
}

fn fill(place: &mut [u8], source: Option<&[u8]>) {
    match source {
        Some(source) => place.copy_from_slice(source),
        None => place.fill(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Writer;

    fn written() -> Log {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.mark(b"start").unwrap();
        writer.write(0, 0, &[1; 4096]).unwrap();
        writer.flush_of(0).unwrap();
        writer.write(0, 4096, &[2; 8192]).unwrap();
        writer.write(0, 512, &[3; 512]).unwrap();
        Log::read(bytes.as_slice()).unwrap()
    }

    fn bytes(image: &Image<'_>, number: u64, at: usize) -> u8 {
        image
            .blocks(0)
            .find(|(n, _)| *n == number)
            .map_or(0, |(_, block)| block[at])
    }

    #[test]
    fn what_was_flushed_is_there_and_of_the_rest_what_was_picked() {
        let log = written();
        let mut image = Image::new(&log, 1);
        image.make(
            5,
            &[Piece {
                event: 3,
                block: Some(2),
            }],
        );
        assert_eq!(
            [
                bytes(&image, 0, 512),
                bytes(&image, 1, 0),
                bytes(&image, 2, 0)
            ],
            [1, 0, 2]
        );
        let torn = image.hash();
        image.make(
            5,
            &[Piece {
                event: 4,
                block: None,
            }],
        );
        assert_eq!(
            [
                bytes(&image, 0, 511),
                bytes(&image, 0, 512),
                bytes(&image, 2, 0)
            ],
            [1, 3, 0]
        );
        assert_ne!(image.hash(), torn);
        image.make(2, &[]);
        assert_eq!(image.blocks(0).count(), 0);
        image.make(
            5,
            &[Piece {
                event: 3,
                block: Some(2),
            }],
        );
        assert_eq!(image.hash(), torn);
    }

    #[test]
    fn a_write_of_what_was_there_makes_no_other_image() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.write(0, 0, &[1; 4096]).unwrap();
        writer.flush_of(0).unwrap();
        writer.write(0, 0, &[1; 4096]).unwrap();
        let log = Log::read(bytes.as_slice()).unwrap();
        let mut image = Image::new(&log, 1);
        image.make(3, &[]);
        let without = image.hash();
        image.make(
            3,
            &[Piece {
                event: 2,
                block: None,
            }],
        );
        assert_eq!(image.hash(), without);
    }
}
