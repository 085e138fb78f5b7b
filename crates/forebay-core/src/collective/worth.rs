//! Whether an exchange between processes is worth its cost for a call.

use super::Extent;

/// Pieces of at least this size are as good as any for a file system: 1 MiB.
const LARGE_PIECE_BYTES: u64 = 1 << 20;
/// Pieces of at least this size are written on their own if nobody else has bytes between them: 32 KiB.
const LONE_PIECE_BYTES: u64 = 32 << 10;

/// Reads bridge gaps up to this size: so much is read faster than another read begins. 64 KiB.
pub const READ_GAP_BYTES: u64 = 64 << 10;

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
    /// By aggregators, for the part of the file from the first byte that anybody accesses to the last.
    Exchange(Extent),
}

/// Decides from the shares of all processes, in the order of ranks. `always` leaves only calls without bytes.
pub fn way(shares: &[Share], always: bool) -> Way {
    let with_bytes = || shares.iter().filter(|share| share.bytes > 0);
    let Some(start) = with_bytes().map(|share| share.start).min() else {
        return Way::Native;
    };
    let end = with_bytes().map(|share| share.end).max().unwrap_or(start);
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
    let own = lone && !mixed || large >= LARGE_PIECE_BYTES || !mixed && large >= LONE_PIECE_BYTES;
    match own && !always {
        true => Way::Native,
        false => Way::Exchange(Extent::new(start, end)),
    }
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

    #[test]
    fn small_pieces_that_are_mixed_are_exchanged() {
        let shares = [
            share(0, 1000, 500, 50),
            Share::default(),
            share(10, 1010, 500, 50),
        ];
        assert_eq!(way(&shares, false), Way::Exchange(Extent::new(0, 1010)));
    }

    #[test]
    fn one_piece_of_each_process_in_order_needs_no_exchange() {
        let shares = [share(0, 10, 10, 1), share(10, 20, 10, 1)];
        assert_eq!(way(&shares, false), Way::Native);
        assert_eq!(way(&[Share::default(); 3], true), Way::Native);
        let mib = 1 << 20;
        assert_eq!(
            way(
                &[
                    share(0, 9 * mib, 4 * mib, 4),
                    share(mib, 10 * mib, 4 * mib, 4)
                ],
                false
            ),
            Way::Native
        );
    }
}
