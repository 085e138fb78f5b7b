//! The bridge's side of an answer: writes it frame by frame, and holds one frame at a time.

use crate::frame::{self, End, FrameKind, Head, MAX_FRAME_BYTES};
use crate::{Refusal, VERSION};
use serde::Serialize;
use std::fmt;
use std::io::{self, BufWriter, Write};

/// Frames are collected up to this many bytes before they are written.
const BUFFER_BYTES: usize = 64 << 10;

/// Why an answer cannot go on.
#[derive(Debug)]
pub enum AnswerError {
    /// The reader is gone, or it has not read for as long as the stream waits.
    Lost(io::Error),
    /// An item cannot be put into a frame. Holds the reason. [`AnswerWriter::refuse`] can still tell the caller.
    Unfit(String),
}

impl fmt::Display for AnswerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnswerError::Lost(cause) => write!(f, "nobody reads the answer: {cause}"),
            AnswerError::Unfit(why) => write!(f, "the answer cannot be sent: {why}"),
        }
    }
}

impl std::error::Error for AnswerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            AnswerError::Lost(cause) => Some(cause),
            AnswerError::Unfit(_) => None,
        }
    }
}

/// An answer that is being written. Its memory is one buffer and one item, however long the answer gets. If neither
/// [`AnswerWriter::end`] nor [`AnswerWriter::refuse`] is called, the caller sees that the answer is incomplete.
pub struct AnswerWriter<W: Write> {
    out: BufWriter<W>,
    contents: Vec<u8>,
    items: u64,
}

impl<W: Write> AnswerWriter<W> {
    /// Begins an answer on `out`. Writes to `out` should time out, so that a stalled reader does not hold the writer.
    ///
    /// # Errors
    /// [`AnswerError::Lost`].
    pub fn begin(out: W) -> Result<Self, AnswerError> {
        let mut answer = AnswerWriter {
            out: BufWriter::with_capacity(BUFFER_BYTES, out),
            contents: Vec::new(),
            items: 0,
        };
        answer.frame(FrameKind::Head, &Head { version: VERSION })?;
        Ok(answer)
    }

    fn frame(&mut self, kind: FrameKind, value: &impl Serialize) -> Result<(), AnswerError> {
        self.contents.clear();
        serde_json::to_writer(&mut self.contents, value)
            .map_err(|e| AnswerError::Unfit(e.to_string()))?;
        if self.contents.len() > MAX_FRAME_BYTES {
            return Err(AnswerError::Unfit(format!(
                "an item of {} bytes is longer than {MAX_FRAME_BYTES}",
                self.contents.len()
            )));
        }
        frame::write(&mut self.out, kind, &self.contents).map_err(AnswerError::Lost)
    }

    /// Adds one item. It may stay in the buffer until the next [`AnswerWriter::flush`].
    ///
    /// # Errors
    /// Each of [`AnswerError`]. Nothing of an unfit item is sent.
    pub fn item(&mut self, item: &impl Serialize) -> Result<(), AnswerError> {
        self.frame(FrameKind::Item, item)?;
        self.items += 1;
        Ok(())
    }

    /// Sends the frames that are in the buffer.
    ///
    /// # Errors
    /// [`AnswerError::Lost`].
    pub fn flush(&mut self) -> Result<(), AnswerError> {
        self.out.flush().map_err(AnswerError::Lost)
    }

    /// Ends a complete answer.
    ///
    /// # Errors
    /// [`AnswerError::Lost`].
    pub fn end(mut self) -> Result<(), AnswerError> {
        let items = self.items;
        self.frame(FrameKind::End, &End { items })?;
        self.flush()
    }

    /// Ends the answer with a refusal.
    ///
    /// # Errors
    /// [`AnswerError::Lost`].
    pub fn refuse(mut self, refusal: &Refusal) -> Result<(), AnswerError> {
        self.frame(FrameKind::Refusal, refusal)?;
        self.flush()
    }
}
