//! The view through which a process sees a file: tiles of a file type, from a displacement on.

use super::{Access, AccessError, MAX_PIECES, TypeMap};

/// A file view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    displacement: u64,
    element_bytes: u64,
    tile: TypeMap,
    extent: i64,
    /// There is no second tile.
    is_single: bool,
}

impl View {
    /// The view of a file that was just opened: its bytes.
    pub fn bytes() -> Self {
        View {
            displacement: 0,
            element_bytes: 1,
            tile: TypeMap::contiguous(1),
            extent: 1,
            is_single: false,
        }
    }

    /// Tiles of `extent` bytes from a displacement on; positions count elements of `element_bytes`. Fails if the tile
    /// does not ascend. Where tiles would overlap there is only the first one: some MPI libraries give a type another extent than its
    /// data have.
    pub fn new(
        displacement: u64,
        element_bytes: u64,
        tile: TypeMap,
        extent: i64,
    ) -> Result<Self, AccessError> {
        let mut end = i128::from(i64::MIN);
        for run in tile.runs() {
            let (offset, stride) = (i128::from(run.offset), i128::from(run.stride));
            let block = i128::from(run.block);
            if offset < end || (run.count > 1 && stride < block) {
                return Err(AccessError::Overlap);
            }
            end = offset + stride * (i128::from(run.count) - 1) + block;
        }
        let mut is_single = false;
        if let Some(first) = tile.runs().first() {
            is_single = end - i128::from(first.offset) > i128::from(extent);
            let begin = i64::try_from(displacement)
                .ok()
                .and_then(|d| d.checked_add(first.offset));
            if begin.is_none_or(|begin| begin < 0) {
                return Err(AccessError::Outside);
            }
        }
        Ok(View {
            displacement,
            element_bytes,
            tile,
            extent,
            is_single,
        })
    }

    /// Is there no second tile? MPI libraries tell wrong positions then.
    pub fn is_single(&self) -> bool {
        self.is_single
    }

    /// Bytes of an element, the unit of positions.
    pub fn element_bytes(&self) -> u64 {
        self.element_bytes
    }

    /// What `bytes` bytes of data are in the file, from byte number `first` of the visible data on.
    pub fn access(&self, first: u64, bytes: u64) -> Result<Access, AccessError> {
        self.access_in(Access::default(), first, bytes)
    }

    /// The same in the memory of another access.
    pub fn access_in(&self, memory: Access, first: u64, bytes: u64) -> Result<Access, AccessError> {
        let mut access = memory;
        access.clear();
        let size = self.tile.bytes();
        if bytes == 0 {
            return Ok(access);
        }
        if size == 0 {
            return Err(AccessError::Outside);
        }
        let end = first.checked_add(bytes).ok_or(AccessError::TooLarge)?;
        if self.is_single && end > size {
            return Err(AccessError::Overlap);
        }
        let (tile, within) = (first / size, first % size);
        let (last, rest) = (end / size, end % size);
        if tile == last {
            self.add(&mut access, tile, within, bytes)?;
            return Ok(access);
        }
        if within > 0 {
            self.add(&mut access, tile, within, size - within)?;
        }
        let from = tile + u64::from(within > 0);
        if let [run] = self.tile.runs() {
            let inner = (run.count, run.stride.max(0) as u64);
            let levels = [(last - from, self.extent as u64), inner];
            if last > from {
                access.append(self.place(from, run.offset)?, run.block, &levels)?;
            }
        } else {
            // Each run is a piece at least.
            if (last - from).saturating_mul(self.tile.runs().len() as u64) > MAX_PIECES {
                return Err(AccessError::TooLarge);
            }
            for whole in from..last {
                self.add(&mut access, whole, 0, size)?;
            }
        }
        self.add(&mut access, last, 0, rest)?;
        Ok(access)
    }

    fn add(
        &self,
        access: &mut Access,
        tile: u64,
        first: u64,
        bytes: u64,
    ) -> Result<(), AccessError> {
        access.reserve(self.tile.runs_within(first, bytes).len());
        self.tile.cut(first, bytes).try_for_each(|run| {
            let start = self.place(tile, run.offset)?;
            match run.count {
                1 => access.append_piece(start, run.block),
                _ => access.append(start, run.block, &[(run.count, run.stride.max(0) as u64)]),
            }
        })
    }

    /// The offset in the file of a byte of a tile.
    fn place(&self, tile: u64, offset: i64) -> Result<u64, AccessError> {
        let begin = i128::from(tile) * i128::from(self.extent) + i128::from(offset);
        u64::try_from(begin + i128::from(self.displacement)).map_err(|_| AccessError::TooLarge)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Extent;
    use super::*;

    #[test]
    fn any_part_of_the_visible_data_is_found_in_the_file() {
        let int = TypeMap::contiguous(4);
        let tiles = [
            (
                TypeMap::subarray(&int, 4, &[(4, 2, 1), (6, 3, 2)]).unwrap(),
                96,
            ),
            (TypeMap::repeated(&int, 3, 8).unwrap(), 24),
            (TypeMap::contiguous(4), 4),
            (TypeMap::contiguous(4), 10),
        ];
        for (tile, extent) in tiles {
            let view = View::new(7, 4, tile.clone(), extent).unwrap();
            let whole: Vec<u64> = tile
                .pieces(extent, 0, 5 * tile.bytes())
                .flat_map(|(at, n)| 7 + at as u64..7 + at as u64 + n)
                .collect();
            for first in 0..whole.len() {
                for bytes in 0..whole.len() - first {
                    let access = view.access(first as u64, bytes as u64).unwrap();
                    let all = Extent::new(0, 1 << 20);
                    let got: Vec<u64> = access
                        .pieces_within(all)
                        .flat_map(|p| p.start..p.end)
                        .collect();
                    assert_eq!(got, whole[first..first + bytes]);
                }
            }
        }
    }

    #[test]
    fn a_tile_that_goes_back_is_no_view() {
        let mut back = TypeMap::contiguous(4);
        back.place(&TypeMap::contiguous(4), 16, 1, 0).unwrap();
        back.place(&TypeMap::contiguous(4), 8, 1, 0).unwrap();
        assert_eq!(View::new(0, 4, back, 32), Err(AccessError::Overlap));
    }

    #[test]
    fn of_tiles_that_overlap_there_is_the_first_one() {
        let wide = TypeMap::repeated(&TypeMap::contiguous(4), 2, 8).unwrap();
        let view = View::new(100, 4, wide, 8).unwrap();
        let access = view.access(2, 6).unwrap();
        assert_eq!(access.hull(), Some(Extent::new(102, 112)));
        assert_eq!(view.access(2, 7), Err(AccessError::Overlap));
        assert_eq!(view.access(8, 0).map(|none| none.bytes()), Ok(0));
    }
}
