//! How much of a job's I/O the recorder has seen: the bytes in its tables, against the bytes that system calls
//! have moved by the kernel's count (`rchar` and `wchar` of proc(5)), and what it fetched from storage for them
//! (`read_bytes`).
//!
//! The kernel adds the count of a child to its parent's once the parent has waited for it. So the recorder's own
//! process has the count of the whole command, whatever was killed. If the recorder was killed, and for processes
//! that still run or ran on nodes without a recorder of their own, each process' own last look is used.

use crate::image::Image;
use crate::job::Job;
use crate::recording::CommandEnd;
use forebay_count::read::ProcIo;
use std::collections::HashMap;

/// Bytes read and written.
pub type Bytes = (u64, u64);

/// How many bytes were seen, and how many there were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Bytes in the tables.
    pub seen: Bytes,
    /// Bytes by the kernel's count.
    pub total: Bytes,
    /// Bytes fetched from storage; `None` if a recorder did not note them.
    pub fetched: Option<u64>,
    /// Those of them that processes had fetched when their programs made their first calls: code.
    pub fetched_at_start: u64,
}

/// Counts of `/proc/PID/io`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Moved {
    /// Bytes read and written by calls.
    calls: Bytes,
    /// Bytes fetched from storage.
    fetched: u64,
}

/// One process, as far as coverage needs it.
#[derive(Debug, Clone, Default)]
struct Counted {
    host: String,
    pid: u32,
    parent_pid: u32,
    start_ticks: u64,
    last_ns: u64,
    is_alive: bool,
    /// The kernel's count since the process began, at the last look.
    io: Moved,
    /// Bytes that the recorder itself has read, in all programs of the process. They are not in `io`.
    own_read: u64,
    /// Bytes fetched from storage before its programs made their first calls.
    fetched_at_start: u64,
}

/// The coverage of a job.
pub fn of(job: &Job) -> Coverage {
    let images = job.tables.images.iter();
    let seen = images.map(Image::seen_bytes).fold((0, 0), add);
    let processes: Vec<Counted> = job.by_process().map(|of| Counted::of(&of)).collect();
    let ends: Option<Vec<Moved>> = job
        .notes
        .iter()
        .map(|note| note.end.as_ref().map(Moved::of))
        .collect();
    // Without the notes all is known from the tables.
    let mut is_fetch_known = true;
    let total = match ends {
        Some(ends) => {
            let noted = |end: &CommandEnd| end.fetched_bytes.is_some();
            let mut of_notes = job.notes.iter().filter_map(|note| note.end.as_ref());
            is_fetch_known = of_notes.all(noted);
            let has_note = |p: &Counted| job.notes.iter().any(|note| note.host == p.host);
            let (here, remote): (Vec<&Counted>, Vec<&Counted>) =
                processes.iter().partition(|p| has_note(p));
            let alive = here.iter().filter(|p| p.is_alive).map(|p| p.io);
            let ended = here.iter().filter(|p| !p.is_alive).map(|p| p.own_read);
            let all = ends.into_iter().chain(alive).chain(own_bytes(&remote));
            let mut all = all.fold(Moved::default(), Moved::plus);
            let own = ended.fold(0, u64::saturating_add);
            all.calls.0 = all.calls.0.saturating_sub(own);
            all
        }
        None => own_bytes(&processes.iter().collect::<Vec<_>>())
            .into_iter()
            .fold(Moved::default(), Moved::plus),
    };
    let at_start = processes.iter().map(|p| p.fetched_at_start);
    Coverage {
        seen,
        total: total.calls,
        fetched: is_fetch_known.then_some(total.fetched),
        fetched_at_start: at_start.fold(0, u64::saturating_add),
    }
}

fn add(a: Bytes, b: Bytes) -> Bytes {
    (a.0.saturating_add(b.0), a.1.saturating_add(b.1))
}

impl Moved {
    fn of(end: &CommandEnd) -> Self {
        Moved {
            calls: (end.read_bytes, end.written_bytes),
            fetched: end.fetched_bytes.unwrap_or(0),
        }
    }

    fn of_process(io: &ProcIo) -> Self {
        Moved {
            calls: (io.rchar, io.wchar),
            fetched: io.read_bytes,
        }
    }

    fn plus(self, other: Moved) -> Self {
        Moved {
            calls: add(self.calls, other.calls),
            fetched: self.fetched.saturating_add(other.fetched),
        }
    }

    fn minus(self, other: Moved) -> Self {
        Moved {
            calls: (
                self.calls.0.saturating_sub(other.calls.0),
                self.calls.1.saturating_sub(other.calls.1),
            ),
            fetched: self.fetched.saturating_sub(other.fetched),
        }
    }
}

/// What a process had fetched before each of its programs made its first call: from its own begin, or from the last look
/// at the program before it. `looks` are those at the begin and at the end of each program.
fn fetched_at_start(looks: impl Iterator<Item = (u64, u64)>) -> u64 {
    let (sum, _) = looks.fold((0_u64, 0), |(sum, before), (first, last)| {
        (sum.saturating_add(first.saturating_sub(before)), last)
    });
    sum
}

impl Counted {
    fn of(images: &[&Image]) -> Self {
        let Some((first, last)) = images.first().zip(images.last()) else {
            return Counted::default();
        };
        Counted {
            host: first.host.clone(),
            pid: first.pid,
            parent_pid: first.parent_pid,
            start_ticks: first.start_ticks,
            last_ns: last.last_ns,
            is_alive: last.is_alive,
            io: Moved::of_process(&last.io.1),
            fetched_at_start: fetched_at_start(
                images
                    .iter()
                    .map(|i| (i.io.0.read_bytes, i.io.1.read_bytes)),
            ),
            own_read: images
                .iter()
                .map(|i| i.own_read)
                .fold(0, u64::saturating_add),
        }
    }
}

/// The bytes that each process has moved itself: its count less those of the children that had ended before its
/// last look.
fn own_bytes(processes: &[&Counted]) -> Vec<Moved> {
    let mut own: Vec<Moved> = processes.iter().map(|p| p.io).collect();
    let mut by_pid: HashMap<(&str, u32), Vec<usize>> = HashMap::new();
    for (at, process) in processes.iter().enumerate() {
        let same = by_pid.entry((&process.host, process.pid)).or_default();
        same.push(at);
    }
    for child in processes {
        let parents = by_pid.get(&(child.host.as_str(), child.parent_pid));
        let parent = parents
            .into_iter()
            .flatten()
            .filter(|&&at| processes[at].start_ticks <= child.start_ticks)
            .max_by_key(|&&at| processes[at].start_ticks);
        if let Some(&at) = parent
            && child.last_ns <= processes[at].last_ns
            && !child.is_alive
        {
            own[at] = own[at].minus(child.io);
        }
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, parent_pid: u32, last_ns: u64, io: Bytes) -> Counted {
        Counted {
            host: "h".to_owned(),
            pid,
            parent_pid,
            start_ticks: pid.into(),
            last_ns,
            is_alive: false,
            io: Moved {
                calls: io,
                // A page for each byte that is read.
                fetched: 4096 * io.0,
            },
            own_read: 0,
            fetched_at_start: 0,
        }
    }

    fn calls(family: &[Counted]) -> Vec<Bytes> {
        let own = own_bytes(&family.iter().collect::<Vec<_>>());
        for one in &own {
            assert_eq!(one.fetched, 4096 * one.calls.0);
        }
        own.iter().map(|one| one.calls).collect()
    }

    #[test]
    fn code_is_what_was_fetched_between_a_program_and_the_next() {
        assert_eq!(fetched_at_start([].into_iter()), 0);
        assert_eq!(fetched_at_start([(100, 150), (170, 400)].into_iter()), 120);
        // A look that is older than the one before it says nothing.
        assert_eq!(fetched_at_start([(100, 150), (120, 120)].into_iter()), 100);
    }

    #[test]
    fn what_a_child_has_moved_counts_once() {
        let family = [
            process(1, 0, 100, (1000, 70)),
            process(2, 1, 50, (300, 20)),
            process(3, 2, 40, (200, 5)),
        ];
        assert_eq!(calls(&family), [(700, 50), (100, 15), (200, 5)]);
    }

    #[test]
    fn a_child_that_outlived_its_parent_was_not_waited_for() {
        let mut family = [process(1, 0, 100, (1000, 0)), process(2, 1, 200, (300, 0))];
        assert_eq!(calls(&family), [(1000, 0), (300, 0)]);
        family[1].last_ns = 50;
        family[1].is_alive = true;
        assert_eq!(calls(&family), [(1000, 0), (300, 0)]);
    }
}
