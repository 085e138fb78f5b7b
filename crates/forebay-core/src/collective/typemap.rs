//! Where the bytes of an MPI data type lie, in compressed form.
//!
//! The driver walks through the constructors of a type and calls the same constructors here. What comes out serves both
//! sides of a call: the memory of a process, and the view through which it sees the file.

use std::ops::Range;

use super::AccessError;

/// Blocks of one size at a fixed distance, in the order of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Where the first block begins, in bytes from the origin of the type.
    pub offset: i64,
    /// Bytes of each block.
    pub block: u64,
    /// Bytes from the begin of one block to that of the next; of no meaning with one block.
    pub stride: i64,
    /// Number of blocks.
    pub count: u64,
}

impl Run {
    /// One block.
    pub fn piece(offset: i64, block: u64) -> Self {
        Run {
            offset,
            block,
            stride: 0,
            count: 1,
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.block * self.count
    }

    /// Where its last block begins.
    fn last(&self) -> i64 {
        self.offset + self.stride * (self.count as i64 - 1)
    }

    /// Without gaps it is one block; without bytes it is nothing.
    fn whole(self) -> Option<Self> {
        if self.block == 0 || self.count == 0 {
            return None;
        }
        match self.count > 1 && self.stride == self.block as i64 {
            true => Some(Run::piece(self.offset, self.bytes())),
            false => Some(self),
        }
    }

    /// Takes what follows in, as far as that gives the same bytes in the same order. Returns the rest, which comes next.
    pub fn join(&mut self, next: Run) -> Option<Run> {
        let next = next.whole()?;
        let follows = self.last() + self.block as i64 == next.offset;
        if follows && next.count == 1 {
            if self.count == 1 {
                self.block += next.block;
                return None;
            }
            let end = Run::piece(self.last(), self.block + next.block);
            self.count -= 1;
            return Some(end);
        }
        let Some(step) = next.offset.checked_sub(self.last()) else {
            return Some(next);
        };
        let same_stride = |r: &Run| r.count == 1 || r.stride == step;
        if self.block == next.block && same_stride(self) && same_stride(&next) && !follows {
            self.stride = step;
            self.count += next.count;
            return None;
        }
        Some(next)
    }
}

/// The bytes of one element of a data type, in the order of the data.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TypeMap {
    runs: Vec<Run>,
    /// With each run, the bytes before it.
    before: Vec<u64>,
    bytes: u64,
}

/// One dimension of an array, as `MPI_Type_create_darray` distributes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dimension {
    /// Elements of the whole array in this dimension.
    pub elements: u64,
    /// Elements of a block; all of them if the dimension is not distributed.
    pub block: u64,
    /// Processes in this dimension.
    pub processes: u64,
    /// Which of them this one is.
    pub coordinate: u64,
}

impl TypeMap {
    /// More runs than this are not kept: 160 MiB.
    pub const MAX_RUNS: usize = 1 << 22;

    /// So many bytes without a gap.
    pub fn contiguous(bytes: u64) -> Self {
        let mut map = TypeMap::default();
        // One run is never too many.
        let _ = map.push(Run::piece(0, bytes));
        map
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its runs.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Where the data lies if elements at a distance of `extent` bytes form one block.
    pub fn solid(&self, extent: i64) -> Option<i64> {
        match self.runs[..] {
            [run] if run.count == 1 && run.block as i64 == extent => Some(run.offset),
            _ => None,
        }
    }

    /// Adds a run at the end, and joins it with the one before where that gives the same bytes in the same order.
    pub fn push(&mut self, run: Run) -> Result<(), AccessError> {
        let far = || AccessError::TooLarge;
        let bytes = run.block.checked_mul(run.count).ok_or_else(far)?;
        let reaches = i128::from(run.stride) * i128::from(run.count.saturating_sub(1));
        let end = i128::from(run.offset) + reaches + i128::from(run.block);
        i64::try_from(end).map_err(|_| far())?;
        self.bytes = self.bytes.checked_add(bytes).ok_or_else(far)?;
        let rest = match self.runs.last_mut() {
            Some(last) => last.join(run),
            None => run.whole(),
        };
        rest.map_or(Ok(()), |rest| self.append(rest))
    }

    fn append(&mut self, run: Run) -> Result<(), AccessError> {
        if self.runs.len() == Self::MAX_RUNS {
            return Err(AccessError::TooLarge);
        }
        let before = match (self.runs.last(), self.before.last()) {
            (Some(last), Some(before)) => before + last.bytes(),
            _ => 0,
        };
        self.runs.push(run);
        self.before.push(before);
        Ok(())
    }

    /// Adds `count` elements of another type, the first at `offset`, each `stride` bytes after the one before.
    pub fn place(
        &mut self,
        element: &TypeMap,
        offset: i64,
        count: u64,
        stride: i64,
    ) -> Result<(), AccessError> {
        let far = || AccessError::TooLarge;
        let span = (count as i64).checked_mul(stride).ok_or_else(far)?;
        let last = span.checked_add(offset).ok_or_else(far)?;
        let is_near = |run: &Run| {
            let ends = [offset, last].map(|from| from.checked_add(run.offset));
            ends.iter().all(Option::is_some)
        };
        if !element.runs.iter().all(is_near) {
            return Err(far());
        }
        if let [run @ Run { count: 1, .. }] = element.runs[..] {
            let offset = offset + run.offset;
            return self.push(Run {
                offset,
                block: run.block,
                stride,
                count,
            });
        }
        for at in 0..count as i64 {
            for run in &element.runs {
                let offset = offset + at * stride + run.offset;
                self.push(Run { offset, ..*run })?;
            }
        }
        Ok(())
    }

    /// `count` elements at a distance of `stride` bytes.
    pub fn repeated(element: &TypeMap, count: u64, stride: i64) -> Result<Self, AccessError> {
        let mut map = TypeMap::default();
        map.place(element, 0, count, stride)?;
        Ok(map)
    }

    /// `MPI_Type_create_subarray`: with each dimension, slowest first, the elements of the array and of the block, and
    /// where the block begins. An element takes `extent` bytes of the array.
    pub fn subarray(
        element: &TypeMap,
        extent: i64,
        dimensions: &[(u64, u64, u64)],
    ) -> Result<Self, AccessError> {
        let (mut map, mut extent) = (element.clone(), extent);
        for &(array, block, first) in dimensions.iter().rev() {
            let mut wider = TypeMap::default();
            wider.place(&map, times(extent, first)?, block, extent)?;
            (map, extent) = (wider, times(extent, array)?);
        }
        Ok(map)
    }

    /// `MPI_Type_create_darray`: the dimensions, slowest first.
    pub fn distributed(
        element: &TypeMap,
        extent: i64,
        dimensions: &[Dimension],
    ) -> Result<Self, AccessError> {
        let (mut map, mut extent) = (element.clone(), extent);
        for dimension in dimensions.iter().rev() {
            let mut wider = TypeMap::default();
            let Dimension {
                elements, block, ..
            } = *dimension;
            let mut first = dimension.coordinate.saturating_mul(block);
            while block > 0 && first < elements {
                let count = block.min(elements - first);
                wider.place(&map, times(extent, first)?, count, extent)?;
                first = first.saturating_add(block.saturating_mul(dimension.processes));
            }
            (map, extent) = (wider, times(extent, elements)?);
        }
        Ok(map)
    }

    /// The numbers of the runs that have any of `bytes` bytes of one element, from byte number `first` on.
    pub fn runs_within(&self, first: u64, bytes: u64) -> Range<usize> {
        let end = first.saturating_add(bytes).min(self.bytes);
        let from = self.before.partition_point(|&before| before <= first);
        let from = from.saturating_sub(1);
        from..self
            .before
            .partition_point(|&before| before < end)
            .max(from)
    }

    /// The runs of `bytes` bytes of one element, from byte number `first` on.
    pub fn cut(&self, first: u64, bytes: u64) -> impl Iterator<Item = Run> + '_ {
        let end = first.saturating_add(bytes).min(self.bytes);
        let met = self.runs_within(first, bytes);
        let part = |number: usize| {
            let (run, before) = (&self.runs[number], self.before[number]);
            let high = (end - before).min(run.bytes());
            cut_run(run, first.saturating_sub(before), high)
        };
        let (head, tail) = match met.len() {
            0 => ([None; 3], [None; 3]),
            1 => (part(met.start), [None; 3]),
            _ => (part(met.start), part(met.end - 1)),
        };
        let whole = match met.len() {
            0 | 1 => &[],
            _ => &self.runs[met.start + 1..met.end - 1],
        };
        let (head, tail) = (head.into_iter().flatten(), tail.into_iter().flatten());
        head.chain(whole.iter().copied()).chain(tail)
    }

    /// The pieces of memory with `bytes` bytes from byte number `first` on, if elements follow each other at `extent`
    /// bytes: offset and length of each.
    pub fn pieces(
        &self,
        extent: i64,
        first: u64,
        bytes: u64,
    ) -> impl Iterator<Item = (i64, u64)> + '_ {
        let mut at = first;
        let end = first.saturating_add(bytes);
        let elements = std::iter::from_fn(move || {
            if at >= end || self.bytes == 0 {
                return None;
            }
            let (element, within) = (at / self.bytes, at % self.bytes);
            let take = (end - at).min(self.bytes - within);
            at += take;
            Some((element as i64 * extent, within, take))
        });
        elements.flat_map(move |(base, within, take)| {
            self.cut(within, take).flat_map(move |run| {
                (0..run.count as i64).map(move |i| (base + run.offset + i * run.stride, run.block))
            })
        })
    }
}

fn times(extent: i64, count: u64) -> Result<i64, AccessError> {
    i64::try_from(count)
        .ok()
        .and_then(|count| extent.checked_mul(count))
        .ok_or(AccessError::TooLarge)
}

/// Bytes `low..high` of a run: the end of a block, whole blocks, the begin of a block.
fn cut_run(run: &Run, low: u64, high: u64) -> [Option<Run>; 3] {
    if low >= high {
        return [None; 3];
    }
    let place = |byte: u64| run.offset + (byte / run.block) as i64 * run.stride;
    let whole_from = low.div_ceil(run.block) * run.block;
    let whole_to = high / run.block * run.block;
    let within = |from: u64, to: u64| {
        let skip = from % run.block;
        (from < to).then(|| Run::piece(place(from) + skip as i64, to - from))
    };
    if whole_from > whole_to {
        return [within(low, high), None, None];
    }
    let count = (whole_to - whole_from) / run.block;
    let whole = (count > 0).then(|| Run {
        offset: place(whole_from),
        count,
        ..*run
    });
    [within(low, whole_from), whole, within(whole_to, high)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(map: &TypeMap) -> Vec<(i64, u64)> {
        map.pieces(1 << 20, 0, map.bytes()).collect()
    }

    #[test]
    fn a_vector_is_one_run_and_a_dense_one_a_block() {
        let int = TypeMap::contiguous(4);
        let vector = TypeMap::repeated(&int, 1000, 16).unwrap();
        assert_eq!(vector.runs().len(), 1);
        assert_eq!(vector.bytes(), 4000);
        assert_eq!(TypeMap::repeated(&int, 5, 4).unwrap().solid(20), Some(0));
    }

    #[test]
    fn joining_keeps_the_bytes_and_their_order() {
        let mut map = TypeMap::default();
        for offset in [0, 8, 12, 40, 44, 60, 50, 100, 108, 116] {
            map.push(Run::piece(offset, 4)).unwrap();
        }
        let bytes: Vec<i64> = listed(&map)
            .into_iter()
            .flat_map(|(at, n)| at..at + n as i64)
            .collect();
        let plain: Vec<i64> = [0, 8, 12, 40, 44, 60, 50, 100, 108, 116]
            .into_iter()
            .flat_map(|at| at..at + 4)
            .collect();
        assert_eq!(bytes, plain);
    }

    #[test]
    fn any_cut_gives_the_bytes_in_between() {
        let int = TypeMap::contiguous(4);
        let dimensions = [(5, 3, 1), (7, 2, 4), (6, 5, 0)];
        let map = TypeMap::subarray(&int, 4, &dimensions).unwrap();
        let spread = |p: Vec<(i64, u64)>| -> Vec<i64> {
            p.into_iter()
                .flat_map(|(at, n)| at..at + n as i64)
                .collect()
        };
        let all = spread(map.pieces(840, 0, 2 * map.bytes()).collect());
        assert_eq!(all.len() as u64, 2 * map.bytes());
        for first in 0..all.len() {
            for bytes in [0, 1, 3, 4, 7, 41] {
                let to = all.len().min(first + bytes);
                let cut = spread(map.pieces(840, first as u64, (to - first) as u64).collect());
                assert_eq!(cut, all[first..to], "{first} {bytes}");
            }
        }
    }

    #[test]
    fn a_cyclic_array_is_dealt_out_completely_and_once() {
        let byte = TypeMap::contiguous(1);
        let mut seen = vec![0; 11 * 5];
        for (row, column) in (0..3).flat_map(|r| (0..2).map(move |c| (r, c))) {
            let dimension = |elements, block, processes, coordinate| Dimension {
                elements,
                block,
                processes,
                coordinate,
            };
            let dimensions = [dimension(11, 2, 3, row), dimension(5, 3, 2, column)];
            let map = TypeMap::distributed(&byte, 1, &dimensions).unwrap();
            for (at, bytes) in listed(&map) {
                (at..at + bytes as i64).for_each(|byte| seen[byte as usize] += 1);
            }
        }
        assert_eq!(seen, vec![1; 55]);
    }
}
