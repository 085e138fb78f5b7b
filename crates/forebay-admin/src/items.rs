//! The caller's side of an answer: reads it item by item, and trusts nothing in it.

use crate::frame::{self, End, FrameError, FrameKind, Head};
use crate::{AdminError, Garbled, Refusal, VERSION};
use serde::de::DeserializeOwned;
use std::io::{BufReader, Read};
use std::marker::PhantomData;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 64 << 10;

/// The items of an answer, in the order of their arrival. An error is the last item.
#[derive(Debug)]
pub struct Items<T, R: Read = UnixStream> {
    from: BufReader<R>,
    peer: PathBuf,
    request: &'static str,
    contents: Vec<u8>,
    state: State,
    items: u64,
    of: PhantomData<fn() -> T>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The head has not come yet.
    Begins,
    Goes,
    /// The answer has ended, well or not.
    Over,
}

impl<T: DeserializeOwned, R: Read> Items<T, R> {
    /// Reads the answer of `peer` to the request named `request` from the stream `from`.
    pub fn new(from: R, peer: &Path, request: &'static str) -> Self {
        Items {
            from: BufReader::with_capacity(BUFFER_BYTES, from),
            peer: peer.to_owned(),
            request,
            contents: Vec::new(),
            state: State::Begins,
            items: 0,
            of: PhantomData,
        }
    }

    /// The item of an answer that has exactly one.
    ///
    /// # Errors
    /// The errors of the items; [`Garbled::Count`] if there is not exactly one item.
    pub fn only(mut self) -> Result<T, AdminError> {
        let one = match self.next() {
            Some(item) => item?,
            None => return Err(self.garbled(Garbled::Count { got: 0, want: 1 })),
        };
        match self.next() {
            None => Ok(one),
            Some(Err(e)) => Err(e),
            Some(Ok(_)) => Err(self.garbled(Garbled::Count { got: 2, want: 1 })),
        }
    }

    fn garbled(&self, what: Garbled) -> AdminError {
        AdminError::Garbled {
            peer: self.peer.clone(),
            request: self.request,
            what,
        }
    }

    fn read_frame(&mut self) -> Result<FrameKind, AdminError> {
        frame::read(&mut self.from, &mut self.contents).map_err(|e| match e {
            FrameError::Io(cause) => AdminError::Lost {
                peer: self.peer.clone(),
                request: self.request,
                cause,
            },
            FrameError::Garbled(what) => self.garbled(what),
        })
    }

    fn parse<V: DeserializeOwned>(&self) -> Result<V, AdminError> {
        serde_json::from_slice(&self.contents)
            .map_err(|e| self.garbled(Garbled::Contents(e.to_string())))
    }

    fn take_head(&mut self) -> Result<(), AdminError> {
        match self.read_frame()? {
            FrameKind::Head => {}
            other => return Err(self.garbled(Garbled::Misplaced(other.name()))),
        }
        let head: Head = self.parse()?;
        if head.version != VERSION {
            return Err(AdminError::Version {
                peer: self.peer.clone(),
                theirs: head.version,
            });
        }
        self.state = State::Goes;
        Ok(())
    }

    fn take_next(&mut self) -> Result<Option<T>, AdminError> {
        if self.state == State::Begins {
            self.take_head()?;
        }
        match self.read_frame()? {
            FrameKind::Item => {
                self.items += 1;
                self.parse().map(Some)
            }
            FrameKind::End => {
                let End { items: want } = self.parse()?;
                let got = self.items;
                match got == want {
                    true => Ok(None),
                    false => Err(self.garbled(Garbled::Count { got, want })),
                }
            }
            FrameKind::Refusal => {
                let refusal: Refusal = self.parse()?;
                Err(AdminError::Refused {
                    peer: self.peer.clone(),
                    request: self.request,
                    refusal,
                })
            }
            FrameKind::Head => Err(self.garbled(Garbled::Misplaced("head"))),
        }
    }
}

impl<T: DeserializeOwned, R: Read> Iterator for Items<T, R> {
    type Item = Result<T, AdminError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state == State::Over {
            return None;
        }
        let outcome = self.take_next();
        if !matches!(outcome, Ok(Some(_))) {
            self.state = State::Over;
        }
        outcome.transpose()
    }
}

impl<T: DeserializeOwned, R: Read> std::iter::FusedIterator for Items<T, R> {}
