//! The tree of the programs that a job has run; it opens without scripts.

use crate::model::{Job, Program};
use crate::units::{bytes, count, number, seconds};
use maud::{Markup, html};

/// Most programs in the page: those that began first.
const MOST_PROGRAMS: usize = 2_000;
/// Most levels; programs below are left out. No browser nests without end.
const MOST_LEVELS: usize = 40;

/// The section; empty if there is no more than one program.
pub(super) fn programs(job: &Job) -> Markup {
    if job.programs.len() < 2 {
        return html! {};
    }
    let tree = job.program_tree();
    html! {
        section aria-labelledby="programs" {
            h2 #programs { "Programs" }
            p .hint { "Who started whom. A program counts for the rank or process that is named; helpers count for the one that "
                "started them. Times are seconds in calls on files." }
            (level(job, &tree.0, &tree.1, 0))
            @if job.programs.len() > MOST_PROGRAMS {
                p { (number((job.programs.len() - MOST_PROGRAMS) as u64)) " that began later are left out." }
            }
        }
    }
}

fn level(job: &Job, children: &[Vec<usize>], list: &[usize], depth: usize) -> Markup {
    let shown = || list.iter().filter(|at| **at < MOST_PROGRAMS);
    html! {
        ul .programs {
            @for &at in shown() {
                li {
                    @let below = &children[at];
                    @if below.iter().all(|at| *at >= MOST_PROGRAMS) || depth >= MOST_LEVELS {
                        (line(job, &job.programs[at]))
                    } @else {
                        details open[depth < 2 && below.len() <= 20] {
                            summary {
                                (line(job, &job.programs[at]))
                                " - " (count(below.len() as u64, "program below", "programs below"))
                            }
                            (level(job, children, below, depth + 1))
                        }
                    }
                }
            }
        }
    }
}

fn line(job: &Job, one: &Program) -> Markup {
    html! {
        code .name { (one.command) }
        " "
        span .soft {
            "pid " (one.pid)
            @if let Some(rank) = one.rank { ", " (job.name_of(rank)) }
            ", from " (seconds(one.start_seconds)) " to " (seconds(one.end_seconds)) ", " (one.end)
            @if one.bytes_read > 0 { ", read " (bytes(one.bytes_read)) }
            @if one.bytes_written > 0 { ", wrote " (bytes(one.bytes_written)) }
            @if one.call_seconds > 0.0 { ", " (seconds(one.call_seconds)) " in I/O" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::plain_job;

    fn started_by(parent: Option<usize>, command: &str) -> Program {
        Program {
            parent,
            pid: 7,
            rank: Some(0),
            end: "exit 0".to_owned(),
            start_seconds: 0.5,
            end_seconds: 1.5,
            bytes_read: 1024,
            bytes_written: 0,
            call_seconds: 0.25,
            command: command.to_owned(),
        }
    }

    #[test]
    fn programs_stand_below_those_that_started_them() {
        let mut job = plain_job(1);
        job.programs = vec![started_by(None, "bash job.sh")];
        assert_eq!(programs(&job).into_string(), "");
        job.programs
            .push(started_by(Some(0), "<script>alert(1)</script>"));
        job.programs.push(started_by(Some(1), "gzip x"));
        let page = programs(&job).into_string();
        assert!(!page.contains("<script"), "{page}");
        assert_eq!(page.matches("1 program below").count(), 2, "{page}");
        let at = |text: &str| {
            page.find(text)
                .unwrap_or_else(|| panic!("{text} in {page}"))
        };
        assert!(at("bash job.sh") < at("alert(1)") && at("alert(1)") < at("gzip x"));
        assert!(page.contains(
            "pid 7, process 0, from 500 ms to 1.5 s, exit 0, read 1.0 KiB, 250 ms in I/O"
        ));
    }

    #[test]
    fn a_tree_of_any_depth_and_width_stays_bounded() {
        let mut job = plain_job(1);
        for at in 0..10_000usize {
            job.programs.push(started_by(at.checked_sub(1), "deep"));
        }
        assert!(programs(&job).into_string().matches("deep").count() <= MOST_LEVELS + 1);
        for one in &mut job.programs {
            one.parent = None;
        }
        let page = programs(&job).into_string();
        assert_eq!(page.matches("deep").count(), MOST_PROGRAMS);
        assert!(page.contains("8,000 that began later are left out"));
    }
}
