//! Memory that is kept from call to call, and from file to file, because fresh pages are slow.

use std::sync::{Mutex, PoisonError};

use forebay_core::collective::{Access, Coverage};

use crate::explain::Meter;

/// Those of a file that was closed, for the next one that is opened.
static LEFT: Mutex<Option<Buffers>> = Mutex::new(None);

/// Memory for the collective calls on a file.
#[derive(Debug, Default)]
pub struct Buffers {
    /// What an aggregator has of the file.
    pub parts: Vec<PartBuffer>,
    /// What goes between an aggregator and processes, as they have it.
    pub inbox: Room,
    /// What goes between a process and aggregators.
    pub outbox: Room,
    /// What this process accesses.
    pub list: Access,
    /// What other processes have told an aggregator of theirs.
    pub lists: Vec<Access>,
    /// What was done with them.
    pub meter: Meter,
}

impl Buffers {
    /// For a file that is opened, if they take no more than so many bytes.
    pub fn new(most_bytes: u64) -> Self {
        let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
        let fitting = left.take().filter(|left| left.bytes() <= most_bytes);
        fitting.unwrap_or_default()
    }

    /// Those of a file that is closed.
    pub fn leave(mut self) {
        self.meter = Meter::default();
        let rooms = [&mut self.inbox, &mut self.outbox].into_iter();
        let parts = self.parts.iter_mut().map(|part| &mut part.room);
        rooms.chain(parts).for_each(|room| room.most_bytes = 0);
        *LEFT.lock().unwrap_or_else(PoisonError::into_inner) = Some(self);
    }

    /// What this process has done with the file.
    pub fn meter(&self) -> Meter {
        let rooms = self.inbox.most_bytes + self.outbox.most_bytes;
        let parts: u64 = self.parts.iter().map(PartBuffer::most_bytes).sum();
        Meter {
            buffer_bytes: rooms + parts,
            ..self.meter
        }
    }

    /// Bytes of memory that they take.
    fn bytes(&self) -> u64 {
        let rooms = self.inbox.bytes.len() + self.outbox.bytes.len();
        let parts = self.parts.iter().map(|part| part.room.bytes.len() / 8 * 9);
        let lists = self.lists.iter().chain([&self.list]);
        let lists = lists.map(Access::memory_bytes);
        (rooms + parts.sum::<usize>() + lists.sum::<usize>()) as u64
    }

    /// Keeps the memory of the list of this process for the next call, unless it is too large beside buffers of so many bytes.
    pub fn keep_list(&mut self, list: Access, buffer_bytes: u64) {
        let mut kept = kept(vec![list], buffer_bytes);
        self.list = kept.pop().unwrap_or_default();
    }

    /// The same for the lists of others, as far as all of them are not too large.
    pub fn keep_lists(&mut self, lists: Vec<Access>, buffer_bytes: u64) {
        self.lists = kept(lists, buffer_bytes);
    }
}

/// Of these the memory of as many as take a quarter of a buffer of so many bytes.
fn kept(lists: Vec<Access>, buffer_bytes: u64) -> Vec<Access> {
    let mut left = (buffer_bytes / 4) as usize;
    let emptied = lists.into_iter().map(|mut list| {
        list.clear();
        list
    });
    let fits = |list: &Access| {
        let bytes = list.memory_bytes();
        let fits = bytes > 0 && bytes <= left;
        left -= if fits { bytes } else { 0 };
        fits
    };
    emptied.filter(fits).collect()
}

/// Bytes of one purpose.
#[derive(Debug, Default)]
pub struct Room {
    bytes: Vec<u8>,
    /// The most that were wanted.
    most_bytes: u64,
}

impl Room {
    /// So many bytes. Old ones in it are of no meaning.
    pub fn of(&mut self, bytes: u64) -> &mut [u8] {
        self.most_bytes = self.most_bytes.max(bytes);
        if self.bytes.len() < bytes as usize {
            // Pages of zeros come from the kernel when they are touched.
            self.bytes = vec![0; bytes as usize];
        }
        &mut self.bytes[..bytes as usize]
    }
}

/// The buffer of an aggregator for a part of the file.
#[derive(Debug, Default)]
pub struct PartBuffer {
    room: Room,
    /// Which bytes of it count.
    pub coverage: Coverage,
}

impl PartBuffer {
    /// Room for so many bytes, of which none counts yet.
    pub fn clear(&mut self, bytes: u64) -> (&mut [u8], &mut Coverage) {
        self.coverage.clear(bytes);
        (self.room.of(bytes), &mut self.coverage)
    }

    /// Its bytes, and those of them that count.
    pub fn both(&mut self) -> (&mut [u8], &Coverage) {
        (&mut self.room.bytes, &self.coverage)
    }

    /// Bytes of memory that it takes at most, with a bit for each byte.
    fn most_bytes(&self) -> u64 {
        let bytes = self.room.most_bytes;
        bytes + bytes.div_ceil(64) * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_closed_file_leaves_goes_to_the_next_one_unless_it_is_too_large() {
        let mut first = Buffers::default();
        first.inbox.of(1000);
        first.outbox.of(500);
        first.outbox.of(400);
        first.meter.rounds = 3;
        assert_eq!(
            (first.meter().buffer_bytes, first.meter().rounds),
            (1500, 3)
        );
        first.leave();
        let mut next = Buffers::new(1500);
        assert_eq!(next.bytes(), 1500);
        next.inbox.of(10);
        assert_eq!((next.meter().buffer_bytes, next.meter().rounds), (10, 0));
        assert_eq!(Buffers::new(1500).bytes(), 0);
        next.leave();
        assert_eq!(Buffers::new(1499).bytes(), 0);
        assert_eq!(Buffers::new(1500).bytes(), 0);
    }

    #[test]
    fn lists_are_kept_up_to_a_number_of_bytes() {
        let list = |pieces: u64| {
            let mut access = Access::default();
            access.reserve(pieces as usize);
            access
        };
        let (small, large) = (list(10).memory_bytes(), list(1000).memory_bytes());
        let mut buffers = Buffers::default();
        let lists = vec![
            Access::default(),
            list(1000),
            list(10),
            list(1000),
            list(10),
        ];
        buffers.keep_lists(lists, 4 * (large + 2 * small) as u64);
        assert_eq!(buffers.bytes(), (large + 2 * small) as u64);
        assert_eq!(buffers.lists.len(), 3);
    }
}
