//! Reads how long ranks were in I/O, as the recorder has noted it.

use super::counters::seconds;
use crate::model::Bounds;
use serde::Deserialize;

/// The name of the note.
pub(super) const NOTE: &str = "busy";
/// Most ranks that are read.
const MOST: usize = 1 << 20;

/// The note: bounds in nanoseconds, of the job and of ranks.
#[derive(Deserialize)]
struct Told {
    job: (u64, u64),
    ranks: Vec<(u32, u64, u64)>,
}

fn bounds(least_ns: u64, most_ns: u64) -> Bounds {
    let most = seconds(most_ns as f64 / 1e9);
    let least = seconds(least_ns as f64 / 1e9).min(most);
    Bounds { least, most }
}

/// The bounds of the job and of its ranks; `None` of a text that is none.
pub(super) fn of(note: &str) -> Option<(Bounds, Vec<(u32, Bounds)>)> {
    let told: Told = serde_json::from_str(note).ok()?;
    let ranks = told.ranks.into_iter().take(MOST);
    let ranks = ranks.map(|(rank, least, most)| (rank, bounds(least, most)));
    Some((bounds(told.job.0, told.job.1), ranks.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_note_of_times_is_none() {
        let (whole, ranks) =
            of(r#"{"job":[5000000000,3000000000],"ranks":[[7,1,2000000000]]}"#).expect("a note");
        assert_eq!((whole.least, whole.most), (3.0, 3.0), "least is no more");
        assert_eq!(ranks, [(7, bounds(1, 2_000_000_000))]);
        for nonsense in [
            "",
            "[]",
            "{}",
            r#"{"job":[1],"ranks":[]}"#,
            r#"{"job":[-1,1],"ranks":[]}"#,
        ] {
            assert_eq!(of(nonsense), None, "{nonsense}");
        }
    }
}
