//! Which bytes of an aggregator's buffer hold data.

/// A set of bytes of a buffer.
#[derive(Debug, Clone, Default)]
pub struct Coverage {
    words: Vec<u64>,
    bytes: u64,
}

impl Coverage {
    /// Empties the set, for a buffer of so many bytes.
    pub fn clear(&mut self, bytes: u64) {
        self.words.clear();
        self.words.resize(bytes.div_ceil(64) as usize, 0);
        self.bytes = bytes;
    }

    /// Adds `bytes` bytes from `start` on.
    ///
    /// # Panics
    /// If they do not lie in the buffer.
    pub fn add(&mut self, start: u64, bytes: u64) {
        let end = start + bytes;
        assert!(end <= self.bytes, "bytes beyond the buffer");
        if bytes == 0 {
            return;
        }
        let (first, last) = ((start / 64) as usize, ((end - 1) / 64) as usize);
        let head = u64::MAX << (start % 64);
        let tail = u64::MAX >> (63 - (end - 1) % 64);
        if first == last {
            self.words[first] |= head & tail;
            return;
        }
        self.words[first] |= head;
        self.words[first + 1..last].fill(u64::MAX);
        self.words[last] |= tail;
    }

    /// The contiguous runs in `start..end`, as pairs of begin and end. Runs with no more than `gap` bytes between them
    /// count as one.
    pub fn runs(&self, start: u64, end: u64, gap: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut at = start;
        std::iter::from_fn(move || {
            let begin = self.next(at, end, true);
            if begin == end {
                return None;
            }
            let mut stop = self.next(begin, end, false);
            loop {
                let again = self.next(stop, end, true);
                if again == end || again - stop > gap {
                    break;
                }
                stop = self.next(again, end, false);
            }
            at = stop;
            Some((begin, stop))
        })
    }

    /// The first byte from `at` on that is in the set, or not; `end` if there is none before.
    fn next(&self, at: u64, end: u64, wanted: bool) -> u64 {
        let mut at = at;
        while at < end {
            let word = self.words[(at / 64) as usize];
            let rest = (if wanted { word } else { !word }) >> (at % 64);
            if rest != 0 {
                return end.min(at + u64::from(rest.trailing_zeros()));
            }
            at = (at / 64 + 1) * 64;
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_those_of_a_plain_list_of_bytes() {
        let mut seed = 7_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..300 {
            let size = 1 + next(400);
            let (mut set, mut plain) = (Coverage::default(), vec![false; size as usize]);
            set.clear(size);
            for _ in 0..next(8) {
                let start = next(size);
                let bytes = next(size - start + 1);
                set.add(start, bytes);
                plain[start as usize..(start + bytes) as usize].fill(true);
            }
            let (from, gap) = (next(size), next(5));
            let mut expected: Vec<(u64, u64)> = Vec::new();
            for at in (from..size).filter(|&at| plain[at as usize]) {
                match expected.last_mut() {
                    Some(last) if at - last.1 <= gap => last.1 = at + 1,
                    _ => expected.push((at, at + 1)),
                }
            }
            assert_eq!(set.runs(from, size, gap).collect::<Vec<_>>(), expected);
        }
    }
}
