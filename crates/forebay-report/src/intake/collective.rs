//! Reads what the collective layer has told the recorder.

use super::counters::seconds;
use crate::model::{Collective, Prediction};
use crate::text::printable;

/// The name of the note.
pub(super) const NOTE: &str = "collective";
/// Most files that it may tell of.
const MOST: usize = 1000;

/// The files of a note; none of a text that is none.
pub(super) fn of(note: &str) -> Vec<Collective> {
    let told: Vec<Collective> = serde_json::from_str(note).unwrap_or_default();
    told.into_iter().take(MOST).map(printable_all).collect()
}

/// The same with texts that a terminal can show.
fn printable_all(one: Collective) -> Collective {
    let text = |text: String| printable(text.as_bytes());
    Collective {
        path: text(one.path),
        method: one.method.map(text),
        reason: one.reason.map(text),
        locks: one.locks.map(text),
        // Within what every sum may hold.
        pieces: one.pieces.min(1 << 60),
        bytes: one.bytes.min(1 << 60),
        seconds: seconds(one.seconds),
        file_share: seconds(one.file_share).min(1.0),
        predicted: one
            .predicted
            .into_iter()
            .map(|prediction| Prediction {
                method: text(prediction.method),
                ..prediction
            })
            .collect(),
        ..one
    }
}
