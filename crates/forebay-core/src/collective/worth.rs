//! Whether an exchange between processes is worth its cost for a call.

use super::Extent;

/// Pieces of at least this size are as good as any for a file system: 1 MiB.
const LARGE_PIECE_BYTES: u64 = 1 << 20;
/// Pieces of at least this size are written on their own if nobody else has bytes between them: 32 KiB.
const LONE_PIECE_BYTES: u64 = 32 << 10;

/// Where clients share no locks, a process writes pieces of at least this size on its own: 4 KiB. Smaller ones cost less to
/// exchange than the calls to write them.
const FREE_PIECE_BYTES: u64 = 4 << 10;
/// It reads on its own if all between its first byte and its last is at most this many times what it wants.
const MAX_SIEVE: u64 = 8;

/// Aggregators bridge gaps up to this size when they read: so much is read faster than another read begins. 64 KiB.
pub const READ_GAP_BYTES: u64 = 64 << 10;
/// The same for a process that reads from a file system on its own node: 4 KiB.
pub const FREE_READ_GAP_BYTES: u64 = 4 << 10;
/// A process on its own reads at most so much at once if it wants only pieces of it: 512 KiB, which stays in the cache of
/// the processor until the pieces are picked out.
pub const SIEVE_BYTES: u64 = 512 << 10;

/// What one process has to do in a collective call, in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Share {
    /// Offset of its first byte.
    pub start: u64,
    /// Offset after its last byte.
    pub end: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Its contiguous pieces.
    pub pieces: u64,
}

/// How a collective call is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By the MPI library.
    Native,
    /// Every process reads or writes its own pieces.
    Direct,
    /// By aggregators, for the part of the file from the first byte that anybody accesses to the last.
    Exchange(Extent),
}

/// What the choice of a way depends on, beside the shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Terms {
    /// The call reads.
    pub reads: bool,
    /// Clients share no locks, so any process may go to the file at any place.
    pub is_free: bool,
    /// Somebody wants the exchange, worth it or not.
    pub always: bool,
}

/// Decides from the shares of all processes, in the order of ranks.
pub fn way(shares: &[Share], terms: Terms) -> Way {
    let with_bytes = || shares.iter().filter(|share| share.bytes > 0);
    let Some(start) = with_bytes().map(|share| share.start).min() else {
        return Way::Native;
    };
    let end = with_bytes().map(|share| share.end).max().unwrap_or(start);
    let exchange = Way::Exchange(Extent::new(start, end));
    if terms.always {
        return exchange;
    }
    let sum = |of: fn(&Share) -> u64| with_bytes().map(of).fold(0, u64::saturating_add);
    let (bytes, pieces) = (sum(|s| s.bytes), sum(|s| s.pieces).max(1));
    let mut ends = 0;
    let mut mixed = false;
    for share in with_bytes() {
        mixed |= share.start < ends;
        ends = ends.max(share.end);
    }
    let lone = pieces == with_bytes().count() as u64;
    let large = bytes / pieces;
    if terms.is_free {
        // A process that reads all between its first byte and its last needs nobody else.
        let hulls = sum(|s| s.end - s.start);
        let dense = hulls / MAX_SIEVE <= bytes;
        let own = lone || large >= FREE_PIECE_BYTES || terms.reads && dense;
        return if own { Way::Direct } else { exchange };
    }
    let own = lone && !mixed || large >= LARGE_PIECE_BYTES || !mixed && large >= LONE_PIECE_BYTES;
    if own { Way::Native } else { exchange }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(start: u64, end: u64, bytes: u64, pieces: u64) -> Share {
        Share {
            start,
            end,
            bytes,
            pieces,
        }
    }

    const LOCKED: Terms = Terms {
        reads: false,
        is_free: false,
        always: false,
    };
    const FREE: Terms = Terms {
        is_free: true,
        ..LOCKED
    };

    #[test]
    fn small_pieces_that_are_mixed_are_exchanged() {
        let shares = [
            share(0, 1000, 500, 50),
            Share::default(),
            share(10, 1010, 500, 50),
        ];
        let exchange = Way::Exchange(Extent::new(0, 1010));
        assert_eq!(way(&shares, LOCKED), exchange);
        assert_eq!(way(&shares, FREE), exchange);
        let reads = Terms {
            reads: true,
            ..FREE
        };
        assert_eq!(way(&shares, reads), Way::Direct);
        let sparse = [share(0, 100_000, 500, 50), share(10, 101_010, 500, 50)];
        assert_eq!(way(&sparse, reads), Way::Exchange(Extent::new(0, 101_010)));
    }

    #[test]
    fn one_piece_of_each_process_in_order_needs_no_exchange() {
        let shares = [share(0, 10, 10, 1), share(10, 20, 10, 1)];
        assert_eq!(way(&shares, LOCKED), Way::Native);
        assert_eq!(way(&shares, FREE), Way::Direct);
        assert_eq!(way(&[Share::default(); 3], FREE), Way::Native);
        let mib = 1 << 20;
        let large = [
            share(0, 9 * mib, 4 * mib, 4),
            share(mib, 10 * mib, 4 * mib, 4),
        ];
        assert_eq!(way(&large, LOCKED), Way::Native);
    }
}
