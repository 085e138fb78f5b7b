//! What one process reads or writes in a collective call, in compressed form.
//!
//! A block of a many-dimensional array is thousands of small pieces of the file. As nested strides it is a few numbers, and so a small
//! message. Only pieces without a pattern are a list.

use super::{Extent, MAX_OFFSET};
use std::fmt;

/// Repetitions of something at a fixed distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Level {
    count: u64,
    stride: u64,
}

/// Blocks of one size: one, or several at nested strides. There may be a million of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    start: u64,
    block: u64,
    /// Bytes of the parts before it.
    before: u64,
    /// Which of the strides; [`ONE_BLOCK`]: none.
    strides: u32,
}

const ONE_BLOCK: u32 = u32::MAX;

/// How the blocks of a part repeat.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Strides {
    /// From the begin of the first block to the end of the last one.
    span: u64,
    /// Bytes of all blocks.
    bytes: u64,
    /// Outermost first.
    levels: Vec<Level>,
}

/// A part with its strides.
struct Strided<'a> {
    hull: Extent,
    block: u64,
    bytes: u64,
    levels: &'a [Level],
}

/// The bytes of a file that one process reads or writes in one collective call. Its memory holds them in the order of
/// their offsets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Access {
    /// Ascending; each hull ends before the next begins.
    parts: Vec<Part>,
    strides: Vec<Strides>,
    end: u64,
    bytes: u64,
    pieces: u64,
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
        if let [] | [(1, _)] = levels {
            return self.append_piece(start, block);
        }
        match strides(block, levels)? {
            None => Ok(()),
            Some((block, strides)) if strides.levels.is_empty() => self.append_piece(start, block),
            Some((block, strides)) => {
                let number = u32::try_from(self.strides.len()).ok();
                let number = number.filter(|&number| number < ONE_BLOCK);
                let number = number.ok_or(AccessError::TooLarge)?;
                let (span, bytes) = (strides.span, strides.bytes);
                self.push(start, block, number, (span, bytes))?;
                self.strides.push(strides);
                Ok(())
            }
        }
    }

    /// The same for one block.
    pub fn append_piece(&mut self, start: u64, block: u64) -> Result<(), AccessError> {
        match block {
            0 => Ok(()),
            _ => self.push(start, block, ONE_BLOCK, (block, block)),
        }
    }

    /// Without pieces, with the memory that it had.
    pub fn clear(&mut self) {
        let Access { parts, strides, .. } = std::mem::take(self);
        (self.parts, self.strides) = (parts, strides);
        self.parts.clear();
        self.strides.clear();
    }

    /// Bytes of memory that it keeps.
    pub fn memory_bytes(&self) -> usize {
        self.parts.capacity() * size_of::<Part>() + self.strides.capacity() * size_of::<Strides>()
    }

    /// Makes room for so many more parts, which may be a guess.
    pub fn reserve(&mut self, parts: usize) {
        self.parts.reserve(parts);
    }

    #[inline]
    fn push(
        &mut self,
        start: u64,
        block: u64,
        strides: u32,
        (span, bytes): (u64, u64),
    ) -> Result<(), AccessError> {
        let end = start.checked_add(span).filter(|&end| end <= MAX_OFFSET);
        let end = end.ok_or(AccessError::TooLarge)?;
        if start < self.end {
            return Err(AccessError::Overlap);
        }
        self.parts.push(Part {
            start,
            block,
            before: self.bytes,
            strides,
        });
        self.end = end;
        // Pieces do not overlap, so they have no more bytes than there are offsets.
        self.bytes += bytes;
        self.pieces += match strides {
            ONE_BLOCK => 1,
            _ => bytes / block,
        };
        Ok(())
    }

    fn with_strides(&self, part: &Part) -> Strided<'_> {
        let (span, bytes, levels) = match self.strides.get(part.strides as usize) {
            Some(strides) => (strides.span, strides.bytes, &strides.levels[..]),
            None => (part.block, part.block, &[][..]),
        };
        Strided {
            hull: Extent::new(part.start, part.start + span),
            block: part.block,
            bytes,
            levels,
        }
    }

    /// The aggregate access region of a call: from the first byte that anybody accesses to the last.
    pub fn region(accesses: &[Access]) -> Extent {
        let hulls = || accesses.iter().filter_map(Access::hull);
        let start = hulls().map(|h| h.start).min().unwrap_or(0);
        Extent::new(start, hulls().map(|h| h.end).max().unwrap_or(start))
    }

    /// From its first byte to its last; `None` without bytes.
    pub fn hull(&self) -> Option<Extent> {
        let first = self.parts.first()?;
        Some(Extent::new(first.start, self.end))
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many pieces it has, as far as they are known to be apart.
    pub fn pieces(&self) -> u64 {
        self.pieces
    }

    /// Its blocks as [`Access::append`] takes them: offset of the first one, bytes of each, and levels, outermost first.
    pub fn strides(&self) -> impl Iterator<Item = (u64, u64, Vec<(u64, u64)>)> + '_ {
        self.parts.iter().map(|part| {
            let levels = self.with_strides(part).levels.iter();
            let levels = levels.map(|l| (l.count, l.stride)).collect();
            (part.start, part.block, levels)
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
        while let [first, ..] = rest {
            // Looks no further than the run goes: there may be a million parts of one shape.
            let levels = self.with_strides(first).levels;
            let is_like =
                |part: &Part| part.block == first.block && self.with_strides(part).levels == levels;
            let distance = rest.get(1).unwrap_or(first).start - first.start;
            let follows =
                |two: &&[Part]| is_like(&two[1]) && two[1].start - two[0].start == distance;
            let count = 1 + rest.windows(2).take_while(follows).count();
            let mut deeper = vec![(count as u64, distance)];
            deeper.extend(levels.iter().map(|l| (l.count, l.stride)));
            folded
                .append(first.start, first.block, &deeper)
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
        for part in &mut moved.parts {
            part.start = start + (part.start - hull.start);
        }
        moved.end = start + hull.bytes();
        Ok(moved)
    }

    /// How many of its bytes lie before an offset: also the place of that offset in the memory of the process.
    pub fn bytes_below(&self, offset: u64) -> u64 {
        let next = self.parts.partition_point(|part| part.start < offset);
        match next.checked_sub(1).map(|last| &self.parts[last]) {
            Some(part) => part.before + self.with_strides(part).bytes_below(offset),
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

    /// Its first piece from an offset on, without what lies before that.
    pub fn next_piece(&self, offset: u64) -> Option<Extent> {
        let end = self.hull().map_or(0, |hull| hull.end);
        let rest = (offset < end).then(|| Extent::new(offset, end))?;
        self.pieces_within(rest).next()
    }

    /// Its contiguous pieces in an extent, by offset.
    pub fn pieces_within(&self, extent: Extent) -> impl Iterator<Item = Extent> + use<'_> {
        let mut at = extent.start;
        let begun = self.parts.partition_point(|part| part.start <= at);
        let mut next = match begun.checked_sub(1) {
            Some(last) if self.with_strides(&self.parts[last]).hull.end > at => last,
            _ => begun,
        };
        std::iter::from_fn(move || {
            let part = self.parts.get(next)?;
            let (piece, end) = match part.strides {
                ONE_BLOCK => {
                    let end = part.start + part.block;
                    (Extent::new(part.start.max(at), end), end)
                }
                _ => {
                    let strided = self.with_strides(part);
                    (strided.piece_from(at), strided.hull.end)
                }
            };
            if piece.start >= extent.end {
                return None;
            }
            at = piece.end.min(extent.end);
            next += usize::from(at >= end);
            Some(Extent::new(piece.start, at))
        })
    }
}

/// Nested strides, and the block with the innermost levels that leave no gap; `None` without bytes.
fn strides(block: u64, levels: &[(u64, u64)]) -> Result<Option<(u64, Strides)>, AccessError> {
    let mut bytes = block;
    let mut span = block; // of what the level repeats
    let mut kept = Vec::with_capacity(levels.len());
    let mut merged = block;
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
    kept.reverse();
    let strides = Strides {
        span,
        bytes,
        levels: kept,
    };
    Ok(Some((merged, strides)))
}

impl Strided<'_> {
    fn bytes_below(&self, offset: u64) -> u64 {
        let mut rest = offset.clamp(self.hull.start, self.hull.end) - self.hull.start;
        let mut inner = self.bytes;
        let mut below = 0;
        for level in self.levels {
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

    /// The piece in which this offset is, from there on, or the next one. The offset lies before the end.
    fn piece_from(&self, offset: u64) -> Extent {
        assert!(offset < self.hull.end, "a piece after the last one");
        let mut base = self.hull.start;
        let mut span = self.hull.bytes();
        for level in self.levels {
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
