//! How long ranks waited in syncs, by file. The recorder notes it beside the records, in which it is a part of the time of writes.

use super::Seat;
use crate::model::{Counters, Flushing};
use serde::Deserialize;
use std::collections::HashMap;

/// The name of the note.
pub(super) const NOTE: &str = "syncs";
/// Most rows that are read of a note.
const MOST: usize = 1 << 20;
/// Sums over ranks are rounded, by less than this factor.
const ROUNDING: f64 = 1.0 + 1e-6;

/// Rank; record id in hexadecimal; nanoseconds in syncs; writes with `O_SYNC` or `O_DSYNC`, nanoseconds; requests with `O_DIRECT`.
#[derive(Deserialize)]
struct Row(u32, String, u64, u64, u64, u64);

/// What the note of one log tells, by record id.
#[derive(Default)]
pub(super) struct Noted(HashMap<u64, Vec<(u32, Flushing)>>);

impl Noted {
    /// Reads a note. What is none tells nothing.
    pub(super) fn of(note: &str) -> Self {
        let rows: Vec<Row> = serde_json::from_str(note).unwrap_or_default();
        let mut noted = Noted::default();
        for Row(rank, id, sync_ns, synced_writes, synced_ns, direct) in rows.into_iter().take(MOST)
        {
            let Ok(id) = u64::from_str_radix(&id, 16) else {
                continue;
            };
            let told = Flushing {
                timed_syncs: 0,
                sync_seconds: sync_ns as f64 / 1e9,
                synced_writes,
                synced_seconds: synced_ns as f64 / 1e9,
                direct,
            };
            noted.0.entry(id).or_default().push((rank, told));
        }
        noted
    }

    /// Adds what is told of a record to its counters: of one rank, or of the ranks of launches together if `rank` is negative. Returns the
    /// seconds that each rank of the job waited.
    pub(super) fn complete(
        &self,
        counters: &mut Counters,
        id: u64,
        rank: i64,
        seat: Seat,
    ) -> Vec<(u32, f64)> {
        let (Some(told), waits) = self.of_record(id, rank, seat) else {
            return Vec::new();
        };
        // A part is not more than the whole.
        if told.seconds() > ROUNDING * counters.write.seconds {
            return Vec::new();
        }
        counters.flushing = Flushing {
            timed_syncs: counters.syncs,
            ..told
        };
        waits
    }

    /// The sum over the ranks of a record, and by rank of the job the seconds that it waited.
    fn of_record(&self, id: u64, rank: i64, seat: Seat) -> (Option<Flushing>, Vec<(u32, f64)>) {
        let rows = self.0.get(&id).map_or(&[][..], Vec::as_slice);
        let is_meant = |of: u32| match rank < 0 {
            true => of < seat.launched,
            false => i64::from(of) == rank,
        };
        let (mut sum, mut waits) = (None, Vec::new());
        for (of, told) in rows.iter().filter(|(of, _)| is_meant(*of)) {
            sum.get_or_insert_with(Flushing::default).add(told);
            if told.seconds() > 0.0 {
                waits.push((seat.rank(i64::from(*of)), told.seconds()));
            }
        }
        (sum, waits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEAT: Seat = Seat {
        first_rank: 10,
        ranks: 4,
        launched: 2,
        shift: 0.0,
    };

    #[test]
    fn a_record_of_one_rank_has_what_it_waited_and_a_sum_what_all_of_a_launch_did() {
        let note = r#"[[0,"ff",1000000000,0,0,0],[1,"ff",0,3,500000000,7],[2,"ff",9000000000,0,0,0],[0,"zz",1,1,1,1]]"#;
        let noted = Noted::of(note);
        let (sum, waits) = noted.of_record(255, 1, SEAT);
        let sum = sum.unwrap();
        assert_eq!(
            (sum.synced_writes, sum.direct, sum.synced_seconds),
            (3, 7, 0.5)
        );
        assert_eq!(waits, [(11, 0.5)]);
        let (sum, waits) = noted.of_record(255, -1, SEAT);
        assert_eq!(sum.unwrap().seconds(), 1.5);
        assert_eq!(waits, [(10, 1.0), (11, 0.5)]);
        assert_eq!(noted.of_record(255, 3, SEAT), (None, Vec::new()));
        assert_eq!(noted.of_record(7, 0, SEAT), (None, Vec::new()));
    }

    #[test]
    fn syncs_take_no_longer_than_all_writes() {
        let noted = Noted::of(r#"[[0,"1",2000000000,0,0,0]]"#);
        let of = |seconds| {
            let mut counters = Counters {
                syncs: 4,
                ..Counters::default()
            };
            counters.write.seconds = seconds;
            let waits = noted.complete(&mut counters, 1, 0, SEAT);
            (
                counters.has_timed_syncs(),
                counters.plain_write_seconds(),
                waits,
            )
        };
        assert_eq!(of(2.5), (true, 0.5, vec![(10, 2.0)]));
        assert_eq!(of(1.5), (false, 1.5, vec![]));
    }

    #[test]
    fn what_is_no_note_tells_nothing() {
        for nonsense in [
            "",
            "{}",
            "[[0]]",
            "[[-1,\"1\",1,1,1,1]]",
            "[[0,\"1\",1e99,0,0,0]]",
        ] {
            assert!(Noted::of(nonsense).0.is_empty(), "{nonsense}");
        }
    }
}
