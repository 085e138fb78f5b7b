//! The buffer of the program in one call, as its data type describes it.
#![allow(unsafe_code)]

use std::slice;

use crate::datatype::Datatype;

/// Nothing is mapped below this address.
const LOWEST: usize = 4096;

/// Is there nothing where the first byte of this type would be in a buffer at `base`? That may be NULL where the type has addresses.
pub fn is_nowhere(base: *mut u8, datatype: &Datatype) -> bool {
    let first = datatype.map.pieces(datatype.extent, 0, 1).next();
    first.is_some_and(|(offset, _)| base.wrapping_offset(offset as isize).addr() < LOWEST)
}

/// The buffer of the program.
#[derive(Debug)]
pub struct Memory<'a> {
    base: *mut u8,
    datatype: &'a Datatype,
    /// Where the bytes begin if there are no gaps between them.
    solid: Option<i64>,
}

impl<'a> Memory<'a> {
    /// The buffer at `base`, with elements of a type.
    ///
    /// # Safety
    /// While this lives, the bytes that the type describes there may be read, and written if [`Memory::scatter`] or
    /// [`Memory::place`] is used for that.
    pub unsafe fn new(base: *mut u8, datatype: &'a Datatype) -> Self {
        Memory {
            base,
            datatype,
            solid: datatype.map.solid(datatype.extent),
        }
    }

    /// Where byte number `first` is, if the bytes from there on have no gaps between them.
    pub fn place(&self, first: u64) -> Option<*mut u8> {
        let offset = self.solid?.wrapping_add(first as i64);
        Some(self.base.wrapping_offset(offset as isize))
    }

    /// The bytes from number `first` on, if they have no gaps between them.
    pub fn solid(&self, first: u64, bytes: u64) -> Option<&[u8]> {
        let at = self.place(first)?;
        // SAFETY: they lie in the buffer, which the program leaves alone during the call.
        Some(unsafe { slice::from_raw_parts(at, bytes as usize) })
    }

    /// The same, to be written.
    #[expect(clippy::mut_from_ref)]
    pub fn solid_mut(&self, first: u64, bytes: u64) -> Option<&mut [u8]> {
        let at = self.place(first)?;
        // SAFETY: as above; this layer has no other reference to bytes that it reads from a file.
        Some(unsafe { slice::from_raw_parts_mut(at, bytes as usize) })
    }

    /// Copies bytes of the buffer, from number `first` on.
    pub fn gather(&self, first: u64, to: &mut [u8]) {
        let mut rest = to;
        self.each(first, rest.len() as u64, |at, bytes| {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(bytes);
            // SAFETY: the piece lies in the buffer, and `to` is memory of this layer.
            now.copy_from_slice(unsafe { slice::from_raw_parts(at, bytes) });
            rest = later;
        });
    }

    /// Copies bytes into the buffer, from number `first` on.
    pub fn scatter(&self, first: u64, from: &[u8]) {
        let mut rest = from;
        self.each(first, from.len() as u64, |at, bytes| {
            let (now, later) = rest.split_at(bytes);
            // SAFETY: the piece lies in the buffer, and `from` is memory of this layer.
            unsafe { at.copy_from_nonoverlapping(now.as_ptr(), bytes) };
            rest = later;
        });
    }

    fn each(&self, first: u64, bytes: u64, mut visit: impl FnMut(*mut u8, usize)) {
        if let Some(at) = self.place(first) {
            visit(at, bytes as usize);
            return;
        }
        let Datatype { map, extent } = self.datatype;
        for (offset, bytes) in map.pieces(*extent, first, bytes) {
            visit(self.base.wrapping_offset(offset as isize), bytes as usize);
        }
    }
}
