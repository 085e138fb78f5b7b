//! The bridge's side of an answer.

use crate::frame::{self, End, FrameKind, Head, MAX_FRAME_BYTES};
use crate::{Refusal, VERSION};
use serde::Serialize;
use std::fmt;
use std::io::{self, BufWriter, Write};

/// Bytes that are collected before they are written.
const BUFFER_BYTES: usize = 64 << 10;

/// Why an answer cannot go on.
#[derive(Debug)]
pub enum AnswerError {
    /// Nobody reads it any more, or has not for as long as the stream waits.
    Lost(io::Error),
    /// An item does not fit a frame. Holds why. The caller can still be told: [`AnswerWriter::refuse`].
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

/// An answer on its way. It holds one buffer and one item, however long it gets. Without
/// [`AnswerWriter::end`] or [`AnswerWriter::refuse`] the caller knows that it is incomplete.
pub struct AnswerWriter<W: Write> {
    out: BufWriter<W>,
    contents: Vec<u8>,
    items: u64,
}

impl<W: Write> AnswerWriter<W> {
    /// Begins an answer on `out`, which should give up when nobody reads for long.
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

    /// Sends one item, soon.
    ///
    /// # Errors
    /// Each of [`AnswerError`]; nothing of an unfit item is sent.
    pub fn item(&mut self, item: &impl Serialize) -> Result<(), AnswerError> {
        self.frame(FrameKind::Item, item)?;
        self.items += 1;
        Ok(())
    }

    /// Sends at once what waits to be sent.
    ///
    /// # Errors
    /// [`AnswerError::Lost`].
    pub fn flush(&mut self) -> Result<(), AnswerError> {
        self.out.flush().map_err(AnswerError::Lost)
    }

    /// Nothing more comes.
    ///
    /// # Errors
    /// [`AnswerError::Lost`].
    pub fn end(mut self) -> Result<(), AnswerError> {
        let items = self.items;
        self.frame(FrameKind::End, &End { items })?;
        self.flush()
    }

    /// Nothing more comes, because of this.
    ///
    /// # Errors
    /// [`AnswerError::Lost`].
    pub fn refuse(mut self, refusal: &Refusal) -> Result<(), AnswerError> {
        self.frame(FrameKind::Refusal, refusal)?;
        self.flush()
    }
}
