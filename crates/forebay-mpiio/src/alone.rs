//! A call in which every process reads or writes its own pieces.

use forebay_core::collective::{Access, Extent, FREE_READ_GAP_BYTES, SIEVE_BYTES};
use rustix::io::Errno;

use crate::buffers::Buffers;
use crate::exchange::{Call, Direction};
use crate::storage::Storage;

impl Call<'_> {
    /// Carries out the call on this process.
    pub fn alone(
        &self,
        direction: Direction,
        mine: &Access,
        buffers: &mut Buffers,
    ) -> Result<(), Errno> {
        let Some(hull) = mine.hull() else {
            return Ok(());
        };
        let storage = self.here.storage.as_ref().ok_or(Errno::BADF)?;
        match direction {
            Direction::Write => self.write_alone(storage, mine, hull, buffers),
            Direction::Read => self.read_alone(storage, mine, hull, buffers),
        }
    }

    /// Writes piece by piece. What lies between pieces is neither read nor written.
    fn write_alone(
        &self,
        storage: &Storage,
        mine: &Access,
        hull: Extent,
        buffers: &mut Buffers,
    ) -> Result<(), Errno> {
        let most = self.here.arrangement.buffer_bytes;
        let mut memory = 0;
        for mut piece in mine.pieces_within(hull) {
            if let Some(bytes) = self.memory.solid(memory, piece.bytes()) {
                buffers.meter.time(|| storage.write(bytes, piece.start))?;
                memory += piece.bytes();
                continue;
            }
            while !piece.is_empty() {
                let bytes = piece.bytes().min(most);
                let buffer = buffers.outbox.of(bytes);
                self.memory.gather(memory, buffer);
                buffers.meter.time(|| storage.write(buffer, piece.start))?;
                memory += bytes;
                piece = Extent::new(piece.start + bytes, piece.end);
            }
        }
        Ok(())
    }

    /// Reads a buffer after the other, small gaps between pieces included, and picks out the pieces.
    fn read_alone(
        &self,
        storage: &Storage,
        mine: &Access,
        hull: Extent,
        buffers: &mut Buffers,
    ) -> Result<(), Errno> {
        let most = SIEVE_BYTES.min(self.here.arrangement.buffer_bytes);
        let mut memory = 0;
        let mut pieces = mine.pieces_within(hull).peekable();
        let mut group = Vec::new();
        while let Some(first) = pieces.next() {
            let mut end = first.end;
            group.clear();
            group.push(first);
            while let Some(next) = pieces.next_if(|next| {
                next.start - end <= FREE_READ_GAP_BYTES && next.end - first.start <= most
            }) {
                end = next.end;
                group.push(next);
            }
            if let [only] = group[..] {
                memory = self.read_one(storage, only, memory, buffers)?;
                continue;
            }
            let buffer = buffers.outbox.of(end - first.start);
            buffers.meter.time(|| storage.read(buffer, first.start))?;
            for piece in &group {
                let at = (piece.start - first.start) as usize;
                let bytes = &buffer[at..at + piece.bytes() as usize];
                self.memory.scatter(memory, bytes);
                memory += piece.bytes();
            }
        }
        Ok(())
    }

    /// Reads a piece of any size to byte number `memory`. Returns the number of the byte after it.
    fn read_one(
        &self,
        storage: &Storage,
        piece: Extent,
        memory: u64,
        buffers: &mut Buffers,
    ) -> Result<u64, Errno> {
        if let Some(bytes) = self.memory.solid_mut(memory, piece.bytes()) {
            buffers.meter.time(|| storage.read(bytes, piece.start))?;
            return Ok(memory + piece.bytes());
        }
        let (mut rest, mut memory) = (piece, memory);
        while !rest.is_empty() {
            let bytes = rest.bytes().min(self.here.arrangement.buffer_bytes);
            let buffer = buffers.outbox.of(bytes);
            buffers.meter.time(|| storage.read(buffer, rest.start))?;
            self.memory.scatter(memory, buffer);
            memory += bytes;
            rest = Extent::new(rest.start + bytes, rest.end);
        }
        Ok(memory)
    }
}
