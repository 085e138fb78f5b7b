//! What one process reads or writes in a collective call, in compressed form.
//!
//! A block of a many-dimensional array is thousands of small pieces of the file. As nested strides it is a few
//! numbers, so every process can know the accesses of all, and nobody has to exchange lists of offsets.

use super::{Extent, MAX_OFFSET};
use std::fmt;

/// Repetitions of something at a fixed distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Level {
    count: u64,
    stride: u64,
}

/// Blocks of one size at nested strides, outermost level first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Strided {
    hull: Extent,
    block: u64,
    bytes: u64,
    levels: Vec<Level>,
}

/// The bytes of a file that one process reads or writes in one collective call. Its memory holds them in the order of
/// their offsets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Access {
    /// Ascending; each hull ends before the next begins. With each, the bytes of those before it.
    parts: Vec<(Strided, u64)>,
}

/// Why a description is no access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessError {
    /// Two pieces overlap, or are not in the order of their offsets.
    Overlap,
    /// It goes beyond [`MAX_OFFSET`].
    TooLarge,
    /// Something does not lie where it should: it begins before the file, or is no whole message.
    Outside,
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AccessError::Overlap => {
                "pieces of an access overlap or are not in the order of offsets"
            }
            AccessError::TooLarge => "an access goes beyond the largest offset of a file",
            AccessError::Outside => {
                "an access begins before its file, or its description is not whole"
            }
        })
    }
}

impl std::error::Error for AccessError {}

impl Access {
    /// Blocks of `block` bytes from offset `start` on, at nested strides: pairs of count and distance in bytes, outermost
    /// first. A count or block of 0 is an access without bytes.
    pub fn strided(start: u64, block: u64, levels: &[(u64, u64)]) -> Result<Self, AccessError> {
        let mut access = Access::default();
        access.append(start, block, levels)?;
        Ok(access)
    }

    /// Adds blocks as in [`Access::strided`], which begin where the access ends or behind that.
    pub fn append(
        &mut self,
        start: u64,
        block: u64,
        levels: &[(u64, u64)],
    ) -> Result<(), AccessError> {
        match Strided::new(start, block, levels)? {
            Some(part) => self.push(part),
            None => Ok(()),
        }
    }

    fn push(&mut self, part: Strided) -> Result<(), AccessError> {
        let before = self.bytes();
        let end = self.parts.last().map_or(0, |(last, _)| last.hull.end);
        if part.hull.start < end {
            return Err(AccessError::Overlap);
        }
        before
            .checked_add(part.bytes)
            .ok_or(AccessError::TooLarge)?;
        self.parts.push((part, before));
        Ok(())
    }

    /// The aggregate access region of a call: from the first byte that anybody accesses to the last.
    pub fn region(accesses: &[Access]) -> Extent {
        let hulls = || accesses.iter().filter_map(Access::hull);
        let start = hulls().map(|h| h.start).min().unwrap_or(0);
        Extent::new(start, hulls().map(|h| h.end).max().unwrap_or(start))
    }

    /// From its first byte to its last; `None` without bytes.
    pub fn hull(&self) -> Option<Extent> {
        let (first, last) = (self.parts.first()?, self.parts.last()?);
        Some(Extent::new(first.0.hull.start, last.0.hull.end))
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.parts
            .last()
            .map_or(0, |(part, before)| before + part.bytes)
    }

    /// How many pieces it has, as far as they are known to be apart.
    pub fn pieces(&self) -> u64 {
        let blocks = |(part, _): &(Strided, u64)| part.bytes / part.block;
        self.parts.iter().map(blocks).sum()
    }

    /// Its blocks as [`Access::append`] takes them: offset of the first one, bytes of each, and levels, outermost first.
    pub fn strides(&self) -> impl Iterator<Item = (u64, u64, Vec<(u64, u64)>)> + '_ {
        self.parts.iter().map(|(part, _)| {
            let levels = part.levels.iter().map(|l| (l.count, l.stride)).collect();
            (part.hull.start, part.block, levels)
        })
    }

    /// How many calls of [`Access::append`] describe it.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// The same bytes in fewer parts: parts of one shape at one distance become a level of strides. Types of MPI give a
    /// three-dimensional block as one part for each plane. Accesses that are translations of each other stay so.
    pub fn folded(&self) -> Access {
        let mut access = self.clone();
        loop {
            let shorter = access.folded_once();
            if shorter.parts.len() == access.parts.len() {
                return shorter;
            }
            access = shorter;
        }
    }

    fn folded_once(&self) -> Access {
        let mut folded = Access::default();
        let mut rest = &self.parts[..];
        while let [(first, _), ..] = rest {
            // Looks no further than the run goes: there may be a million parts of one shape.
            let is_like = |part: &Strided| part.block == first.block && part.levels == first.levels;
            let second = rest.get(1).map_or(first, |(part, _)| part);
            let distance = second.hull.start - first.hull.start;
            let follows = |two: &&[(Strided, u64)]| {
                let (one, next) = (&two[0].0, &two[1].0);
                is_like(next) && next.hull.start - one.hull.start == distance
            };
            let count = 1 + rest.windows(2).take_while(follows).count();
            let mut levels = vec![(count as u64, distance)];
            levels.extend(first.levels.iter().map(|l| (l.count, l.stride)));
            folded
                .append(first.hull.start, first.block, &levels)
                .expect("the same bytes in the same order");
            rest = &rest[count..];
        }
        folded
    }

    /// The same access with its first byte at an offset.
    pub fn moved_to(&self, start: u64) -> Result<Access, AccessError> {
        let Some(hull) = self.hull() else {
            return Ok(Access::default());
        };
        let end = start.checked_add(hull.bytes());
        if end.is_none_or(|end| end > MAX_OFFSET) {
            return Err(AccessError::TooLarge);
        }
        let mut moved = self.clone();
        for (part, _) in &mut moved.parts {
            let begin = start + (part.hull.start - hull.start);
            part.hull = Extent::new(begin, begin + part.hull.bytes());
        }
        Ok(moved)
    }

    /// How many of its bytes lie before an offset: also the place of that offset in the memory of the process.
    pub fn bytes_below(&self, offset: u64) -> u64 {
        let next = self
            .parts
            .partition_point(|(part, _)| part.hull.start < offset);
        match next.checked_sub(1).map(|last| &self.parts[last]) {
            Some((part, before)) => before + part.bytes_below(offset),
            None => 0,
        }
    }

    /// How many of its bytes lie in an extent.
    pub fn bytes_within(&self, extent: Extent) -> u64 {
        match self.hull() {
            Some(hull) if hull.meets(extent) => {
                self.bytes_below(extent.end) - self.bytes_below(extent.start)
            }
            _ => 0,
        }
    }

    /// Its contiguous pieces in an extent, by offset.
    pub fn pieces_within(&self, extent: Extent) -> impl Iterator<Item = Extent> + use<'_> {
        let mut at = extent.start;
        let ended = |(part, _): &(Strided, u64)| part.hull.end <= at;
        let mut next = self.parts.partition_point(ended);
        std::iter::from_fn(move || {
            let (part, _) = self.parts.get(next)?;
            let piece = part.piece_from(at);
            if piece.start >= extent.end {
                return None;
            }
            at = piece.end.min(extent.end);
            next += usize::from(at >= part.hull.end);
            Some(Extent::new(piece.start, at))
        })
    }
}

impl Strided {
    /// Nested strides; `None` without bytes.
    fn new(start: u64, block: u64, levels: &[(u64, u64)]) -> Result<Option<Self>, AccessError> {
        let mut bytes = block;
        let mut span = block; // of what the level repeats
        let mut kept = Vec::new();
        let mut merged = block; // the block, with the innermost levels that leave no gap
        for &(count, stride) in levels.iter().rev() {
            bytes = bytes.checked_mul(count).ok_or(AccessError::TooLarge)?;
            if bytes == 0 || count == 1 {
                continue;
            }
            if stride < span {
                return Err(AccessError::Overlap);
            }
            if kept.is_empty() && stride == span {
                merged *= count;
            } else {
                kept.push(Level { count, stride });
            }
            let more = (count - 1).checked_mul(stride);
            span = more
                .and_then(|m| m.checked_add(span))
                .ok_or(AccessError::TooLarge)?;
        }
        if bytes == 0 {
            return Ok(None);
        }
        let end = start.checked_add(span).filter(|&end| end <= MAX_OFFSET);
        kept.reverse();
        Ok(Some(Strided {
            hull: Extent::new(start, end.ok_or(AccessError::TooLarge)?),
            block: merged,
            bytes,
            levels: kept,
        }))
    }

    fn bytes_below(&self, offset: u64) -> u64 {
        let mut rest = offset.clamp(self.hull.start, self.hull.end) - self.hull.start;
        let mut inner = self.bytes;
        let mut below = 0;
        for level in &self.levels {
            inner /= level.count;
            let whole = (rest / level.stride).min(level.count);
            below += whole * inner;
            if whole == level.count {
                return below;
            }
            rest -= whole * level.stride;
        }
        below + rest.min(self.block)
    }

    /// As [`Access::piece_from`], for an offset before the end.
    fn piece_from(&self, offset: u64) -> Extent {
        assert!(offset < self.hull.end, "a piece after the last one");
        let mut base = self.hull.start;
        let mut span = self.hull.bytes();
        for level in &self.levels {
            span -= (level.count - 1) * level.stride;
            let rest = offset.saturating_sub(base);
            let mut whole = rest / level.stride;
            if rest - whole * level.stride >= span {
                whole += 1; // in the gap before the next repetition, which exists: the offset is before the end
            }
            base += whole * level.stride;
        }
        Extent::new(base.max(offset), base + self.block)
    }
}
