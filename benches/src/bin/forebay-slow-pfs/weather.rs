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
    /// Every second one is carried out, and only its answer lost.
    Fails(Errno),
    /// All that fail are carried out.
    IsLost,
    /// It waits for the next line.
    Hangs,
}

/// Which calls are hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    /// One of so many.
    Every(u64),
    /// The first one after so many.
    After(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Line {
    kind: Kind,
    which: Which,
}

/// `ok`, `eio`, `estale`, `lost` or `hang`. A number N: only every Nth call is to fail or wait. `after N`: only the one after
/// the next N calls is to.
fn parse(line: &str) -> Option<Line> {
    let words: Vec<_> = line.split_whitespace().collect();
    let kind = match *words.first()? {
        "ok" => Kind::Works,
        "eio" => Kind::Fails(Errno::EIO),
        "estale" => Kind::Fails(Errno::ESTALE),
        "lost" => Kind::IsLost,
        "hang" => Kind::Hangs,
        _ => return None,
    };
    let which = match words[1..] {
        [] => Which::Every(1),
        [every] => Which::Every(every.parse().ok().filter(|n| *n > 0)?),
        ["after", calls] => Which::After(calls.parse().ok()?),
        _ => return None,
    };
    Some(Line { kind, which })
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
            which: Which::Every(1),
        };
        let state = State {
            line,
            lines: 0,
            calls: 0,
        };
        Weather(Arc::new((Mutex::new(state), Condvar::new())))
    }

    /// Does what the lines say, and answers each one with a line, which tells also how many calls came before it. Returns at
    /// their end; what the last one said goes on.
    pub(crate) fn listen(&self, lines: impl BufRead) {
        for text in lines.lines().map_while(Result::ok) {
            match parse(&text) {
                Some(line) => {
                    let calls = self.set(line);
                    println!("after {calls} calls: {text}");
                }
                None => println!("{text:?} is no weather"),
            }
        }
    }

    /// Returns how many calls have come since the last line.
    fn set(&self, line: Line) -> u64 {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.line = line;
        state.lines += 1;
        changed.notify_all();
        std::mem::take(&mut state.calls)
    }

    /// A call has come. Returns when it may go on.
    pub(crate) fn pass(&self) -> Fate {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.calls += 1;
        // Its number among those that are hit.
        let hit = match state.line.which {
            Which::Every(n) if state.calls.is_multiple_of(n) => state.calls / n,
            Which::After(n) if state.calls == n + 1 => 1,
            Which::Every(_) | Which::After(_) => return Fate::Goes,
        };
        match state.line.kind {
            Kind::Works => Fate::Goes,
            Kind::IsLost => Fate::Lost(Errno::EIO),
            Kind::Fails(errno) if hit.is_multiple_of(2) => Fate::Lost(errno),
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
        weather.listen(&b"lost after 1\n"[..]);
        expect(&[Fate::Goes, Fate::Lost(Errno::EIO), Fate::Goes]);
        weather.listen(&b"eio after 0\n"[..]);
        expect(&[Fate::Fails(Errno::EIO), Fate::Goes]);
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
