//! How much of a job's I/O the recorder has seen: the bytes in its tables, against the bytes that system calls
//! have moved by the kernel's count (`rchar` and `wchar` of proc(5)).
//!
//! The kernel adds the count of a child to its parent's once the parent has waited for it. So the recorder's own
//! process has the count of the whole command, whatever was killed. If the recorder was killed, and for processes
//! that still run or ran on nodes without a recorder of their own, each process' own last look is used.

use crate::job::Job;
use crate::tables::Image;
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
    io: Bytes,
    /// Bytes that the recorder itself has read, in all programs of the process. They are not in `io`.
    own_read: u64,
}

/// The coverage of a job.
pub fn of(job: &Job) -> Coverage {
    let images = job.tables.images.iter();
    let seen = images.map(Image::seen_bytes).fold((0, 0), add);
    let processes: Vec<Counted> = job.by_process().map(|of| Counted::of(&of)).collect();
    let ends: Option<Vec<Bytes>> = job
        .notes
        .iter()
        .map(|note| note.end.map(|end| (end.read_bytes, end.written_bytes)))
        .collect();
    let total = match ends {
        Some(ends) => {
            let has_note = |p: &Counted| job.notes.iter().any(|note| note.host == p.host);
            let (here, remote): (Vec<Counted>, Vec<Counted>) =
                processes.into_iter().partition(has_note);
            let alive = here.iter().filter(|p| p.is_alive).map(|p| p.io);
            let ended = here.iter().filter(|p| !p.is_alive).map(|p| p.own_read);
            let all = ends.into_iter().chain(alive).chain(own_bytes(&remote));
            let (read, written) = all.fold((0, 0), add);
            let own = ended.fold(0, u64::saturating_add);
            (read.saturating_sub(own), written)
        }
        None => own_bytes(&processes).into_iter().fold((0, 0), add),
    };
    Coverage { seen, total }
}

fn add(a: Bytes, b: Bytes) -> Bytes {
    (a.0.saturating_add(b.0), a.1.saturating_add(b.1))
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
            io: (last.io.1.rchar, last.io.1.wchar),
            own_read: images
                .iter()
                .map(|i| i.own_read)
                .fold(0, u64::saturating_add),
        }
    }
}

/// The bytes that each process has moved itself: its count less those of the children that had ended before its
/// last look.
fn own_bytes(processes: &[Counted]) -> Vec<Bytes> {
    let mut own: Vec<Bytes> = processes.iter().map(|p| p.io).collect();
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
            own[at].0 = own[at].0.saturating_sub(child.io.0);
            own[at].1 = own[at].1.saturating_sub(child.io.1);
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
            io,
            own_read: 0,
        }
    }

    #[test]
    fn what_a_child_has_moved_counts_once() {
        let family = [
            process(1, 0, 100, (1000, 70)),
            process(2, 1, 50, (300, 20)),
            process(3, 2, 40, (200, 5)),
        ];
        assert_eq!(own_bytes(&family), [(700, 50), (100, 15), (200, 5)]);
    }

    #[test]
    fn a_child_that_outlived_its_parent_was_not_waited_for() {
        let mut family = [process(1, 0, 100, (1000, 0)), process(2, 1, 200, (300, 0))];
        assert_eq!(own_bytes(&family), [(1000, 0), (300, 0)]);
        family[1].last_ns = 50;
        family[1].is_alive = true;
        assert_eq!(own_bytes(&family), [(1000, 0), (300, 0)]);
    }
}
