//! The programs of a job, for its log: who started whom, when each ran, how it ended, and for which rank it counts.
//! Forebay's own command is none of them: what it starts counts as started by its parent.

use crate::job::Job;
use crate::ranks::{FOREBAY, Role};
use crate::tables::{Image, ns_between};
use darshan_log::file_facts::{Program, ProgramEnd};
use forebay_count::read::End;
use std::collections::HashMap;

/// Most programs that a log holds: those that began first.
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
    let mut programs = Vec::with_capacity(all.len().min(MOST_PROGRAMS));
    for (role, image) in all {
        let at = programs.len() as u32;
        if programs.len() == MOST_PROGRAMS {
            break;
        }
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
    programs
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
