//! The programs of a job, for its log: who started whom, when each ran, how it ended, and for which rank it counts.
//! Forebay's own command is none of them: what it starts counts as started by its parent.

use crate::image::{Image, ns_between};
use crate::job::Job;
use crate::ranks::{FOREBAY, Role};
use darshan_log::file_facts::{Program, ProgramEnd, heaviest, weights};
use forebay_count::read::End;
use std::collections::HashMap;

/// Most programs that a log holds: those that weigh most, and all that started them.
const MOST_PROGRAMS: usize = 20_000;
/// Most bytes of a command.
const MOST_COMMAND_BYTES: usize = 256;

/// The programs, parents before children.
pub(crate) fn of(job: &Job) -> Vec<Program> {
    let mut all: Vec<(Role, &Image)> = job
        .roles()
        .flat_map(|(role, images)| images.into_iter().map(move |image| (role, image)))
        .collect();
    // A program is there before those that it starts, but two of them may begin in the same nanosecond.
    all.sort_by_key(|(_, image)| (image.first_ns, image.start_ticks, image.serial, image.pid));
    // By process id: the start of the latest process that has it, and what it runs.
    let mut latest: HashMap<(&str, u32), (u64, Option<u32>)> = HashMap::new();
    let mut programs = Vec::with_capacity(all.len());
    for (role, image) in all {
        let at = programs.len() as u32;
        let host = image.host.as_str();
        let before = latest.get(&(host, image.pid)).copied();
        let executed = before.filter(|(start_ticks, _)| *start_ticks == image.start_ticks);
        let parent = executed.or_else(|| latest.get(&(host, image.parent_pid)).copied());
        let parent = parent.and_then(|(_, program)| program);
        let is_own = image.program == FOREBAY;
        let shown = if is_own { parent } else { Some(at) };
        latest.insert((host, image.pid), (image.start_ticks, shown));
        if is_own {
            continue;
        }
        programs.push(program(
            job,
            role,
            image,
            parent.filter(|&parent| parent < at),
        ));
    }
    chosen(programs, MOST_PROGRAMS)
}

/// The programs that weigh most, at most so many, and all that started them. Parents stay before children.
fn chosen(programs: Vec<Program>, most: usize) -> Vec<Program> {
    if programs.len() <= most {
        return programs;
    }
    let weights = weights(programs.iter().map(|one| {
        let bytes = one.bytes_read.saturating_add(one.bytes_written);
        (bytes as f64, one.call_ns as f64)
    }));
    let parents: Vec<Option<usize>> = programs
        .iter()
        .map(|one| one.parent.map(|at| at as usize))
        .collect();
    let is_chosen = heaviest(&parents, &weights, most);
    // By the old index of a program its new one.
    let mut moved = vec![0u32; programs.len()];
    let mut kept = Vec::with_capacity(most);
    for (at, mut one) in programs.into_iter().enumerate() {
        if !is_chosen[at] {
            continue;
        }
        moved[at] = kept.len() as u32;
        one.parent = one.parent.map(|parent| moved[parent as usize]);
        kept.push(one);
    }
    kept
}

fn program(job: &Job, role: Role, image: &Image, parent: Option<u32>) -> Program {
    let since = |ns: u64| ns_between(job.start_ns, ns);
    let mut command = image.command.clone();
    let end = (0..=MOST_COMMAND_BYTES.min(command.len())).rev();
    let end = end.into_iter().find(|&at| command.is_char_boundary(at));
    command.truncate(end.unwrap_or(0));
    let bytes = image.file_bytes();
    Program {
        parent,
        pid: image.pid,
        rank: match role {
            Role::Rank(rank) => Some(rank),
            Role::Launcher | Role::Silent => None,
        },
        end: match image.end {
            _ if image.is_alive => ProgramEnd::Runs,
            End::Exit(code) => ProgramEnd::Exited(code),
            End::Exec => ProgramEnd::Executed,
            End::Unsaid | End::Abort | End::MpiAbort(_) => ProgramEnd::Killed,
        },
        start_ns: since(image.first_ns),
        end_ns: since(image.last_ns),
        bytes_read: bytes.0,
        bytes_written: bytes.1,
        call_ns: image.call_ns(),
        command,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_programs_the_heaviest_stay_with_those_that_started_them() {
        let one = |parent: Option<u32>, pid: u32, bytes_written: u64| Program {
            parent,
            pid,
            bytes_written,
            ..Program::default()
        };
        let mut programs = vec![one(None, 1, 0)];
        programs.extend((2..100).map(|pid| one(Some(0), pid, 1)));
        programs.push(one(Some(98), 100, 1 << 30));
        let kept = chosen(programs.clone(), 4);
        let pids: Vec<u32> = kept.iter().map(|one| one.pid).collect();
        assert_eq!(pids, [1, 2, 99, 100]);
        let parents: Vec<Option<u32>> = kept.iter().map(|one| one.parent).collect();
        assert_eq!(parents, [None, Some(0), Some(0), Some(2)]);
        assert_eq!(chosen(programs.clone(), 100), programs);
    }
}
