//! What becomes of all calls: they work, fail, or wait. Lines on the standard input say so.

use fuser::Errno;
use std::io::BufRead;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// What becomes of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is carried out.
    Goes,
    /// It fails, and nothing has happened.
    Fails(Errno),
    /// It is carried out, and its caller is told that it has failed: the answer was lost.
    Lost(Errno),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Works,
    Fails(Errno),
    /// It waits for the next line.
    Hangs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Line {
    kind: Kind,
    /// Of so many calls one is hit.
    every: u64,
}

/// `ok`, `eio`, `estale` or `hang`, and a number N if only every Nth call is to fail or wait.
fn parse(line: &str) -> Option<Line> {
    let mut words = line.split_whitespace();
    let kind = match words.next()? {
        "ok" => Kind::Works,
        "eio" => Kind::Fails(Errno::EIO),
        "estale" => Kind::Fails(Errno::ESTALE),
        "hang" => Kind::Hangs,
        _ => return None,
    };
    let every = words.next().map_or(Some(1), |n| n.parse().ok())?;
    (every > 0).then_some(Line { kind, every })
}

struct State {
    line: Line,
    /// Lines that have come.
    lines: u64,
    /// Calls that have come since the last line.
    calls: u64,
}

/// The weather that all calls share.
#[derive(Clone)]
pub(crate) struct Weather(Arc<(Mutex<State>, Condvar)>);

impl Weather {
    /// Fine until a line says something else.
    pub(crate) fn new() -> Self {
        let line = Line {
            kind: Kind::Works,
            every: 1,
        };
        let state = State {
            line,
            lines: 0,
            calls: 0,
        };
        Weather(Arc::new((Mutex::new(state), Condvar::new())))
    }

    /// Does what the lines say, and answers each one with a line. Returns at their end; what the last one said goes on.
    pub(crate) fn listen(&self, lines: impl BufRead) {
        for text in lines.lines().map_while(Result::ok) {
            match parse(&text) {
                Some(line) => {
                    self.set(line);
                    println!("from now on: {text}");
                }
                None => println!("{text:?} is no weather"),
            }
        }
    }

    fn set(&self, line: Line) {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.line, state.calls) = (line, 0);
        state.lines += 1;
        changed.notify_all();
    }

    /// A call has come. Returns when it may go on. Of those that fail, every second one is carried out.
    pub(crate) fn pass(&self) -> Fate {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.calls += 1;
        if !state.calls.is_multiple_of(state.line.every) {
            return Fate::Goes;
        }
        match state.line.kind {
            Kind::Works => Fate::Goes,
            Kind::Fails(errno) if (state.calls / state.line.every).is_multiple_of(2) => {
                Fate::Lost(errno)
            }
            Kind::Fails(errno) => Fate::Fails(errno),
            Kind::Hangs => {
                let before = state.lines;
                while state.lines == before {
                    state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                Fate::Goes
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_becomes_of_all_calls_or_of_every_nth() {
        let weather = Weather::new();
        let expect = |fates: &[Fate]| {
            for fate in fates {
                assert_eq!(weather.pass(), *fate);
            }
        };
        expect(&[Fate::Goes, Fate::Goes]);
        weather.listen(&b"eio\n"[..]);
        expect(&[Fate::Fails(Errno::EIO), Fate::Lost(Errno::EIO)]);
        weather.listen(&b"sunny\nestale 2\n"[..]);
        expect(&[Fate::Goes, Fate::Fails(Errno::ESTALE), Fate::Goes]);
        weather.listen(&b"ok\n"[..]);
        expect(&[Fate::Goes, Fate::Goes, Fate::Goes]);
    }

    #[test]
    fn a_call_that_hangs_goes_on_with_the_next_line() {
        let weather = Weather::new();
        weather.listen(&b"hang\n"[..]);
        let other = weather.clone();
        let waits = std::thread::spawn(move || other.pass());
        // Whether it hangs already or comes later, this line lets it go on.
        weather.listen(&b"ok\n"[..]);
        assert_eq!(waits.join().expect("it ends"), Fate::Goes);
    }
}
