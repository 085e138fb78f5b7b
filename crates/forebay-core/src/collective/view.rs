//! The view through which a process sees a file: tiles of a file type, from a displacement on.

use super::{Access, AccessError, TypeMap};

/// A file view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    displacement: u64,
    element_bytes: u64,
    tile: TypeMap,
    extent: i64,
}

impl View {
    /// More parts than this are not kept for one call.
    const MAX_PARTS: u64 = 1 << 22;

    /// The view of a file that was just opened: its bytes.
    pub fn bytes() -> Self {
        View {
            displacement: 0,
            element_bytes: 1,
            tile: TypeMap::contiguous(1),
            extent: 1,
        }
    }

    /// Tiles of `extent` bytes from a displacement on; positions count elements of `element_bytes`. Fails if the tile
    /// does not ascend, or tiles overlap.
    pub fn new(
        displacement: u64,
        element_bytes: u64,
        tile: TypeMap,
        extent: i64,
    ) -> Result<Self, AccessError> {
        let mut end = i64::MIN;
        for run in tile.runs() {
            let block = run.block as i64;
            if run.offset < end || (run.count > 1 && run.stride < block) {
                return Err(AccessError::Overlap);
            }
            end = run.offset + run.stride * (run.count as i64 - 1) + block;
        }
        if let Some(first) = tile.runs().first() {
            if end - first.offset > extent {
                return Err(AccessError::Overlap);
            }
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
        })
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
            if (last - from).saturating_mul(self.tile.runs().len() as u64) > Self::MAX_PARTS {
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
        let wide = TypeMap::repeated(&TypeMap::contiguous(4), 2, 8).unwrap();
        assert_eq!(View::new(0, 4, wide, 8), Err(AccessError::Overlap));
    }
}
