//! The tree of the programs that a job has run; it opens without scripts.

use super::units::{bytes, count, number, seconds};
use crate::model::Job;
use darshan_log::file_facts::{heaviest, weights};
use maud::{Markup, html};

/// Most programs in the page: those that weigh most, with all that started them.
const MOST_PROGRAMS: usize = 2_000;
/// Most levels that stand within each other; programs below follow one after the other, with the number of their level.
/// No browser nests without end, and no page is wide enough.
const MOST_LEVELS: usize = 20;

/// The section; empty if there is no more than one program.
pub(super) fn programs(job: &Job) -> Markup {
    if job.programs.len() < 2 {
        return html! {};
    }
    let tree = Tree::of(job);
    let left_out = job.programs.len() - tree.is_shown.iter().filter(|shown| **shown).count();
    html! {
        section aria-labelledby="programs" {
            h2 #programs { "Programs" }
            p .hint { "Who started whom. A program counts for the " (job.say("rank")) " that is named; helpers count for the one that "
                "started them. Times are seconds in calls on files. The way to the one that weighs most is open." }
            (tree.level(&tree.roots, 0))
            @if left_out > 0 {
                p { (number(left_out as u64)) " that did less I/O are left out." }
            }
        }
    }
}

/// The programs as a tree, and what of it is shown.
struct Tree<'a> {
    job: &'a Job,
    children: Vec<Vec<usize>>,
    roots: Vec<usize>,
    is_shown: Vec<bool>,
    /// The programs that lead to the one that weighs most.
    is_on_path: Vec<bool>,
}

impl<'a> Tree<'a> {
    fn of(job: &'a Job) -> Self {
        let (children, roots) = job.program_tree();
        let weights = weights(job.programs.iter().map(|one| {
            let bytes = one.bytes_read.saturating_add(one.bytes_written);
            (bytes as f64, one.call_seconds)
        }));
        let parents: Vec<Option<usize>> = job.programs.iter().map(|one| one.parent).collect();
        let is_shown = heaviest(&parents, &weights, MOST_PROGRAMS);
        let mut is_on_path = vec![false; parents.len()];
        let top = (0..parents.len())
            .rev()
            .max_by(|a, b| weights[*a].total_cmp(&weights[*b]));
        let path = std::iter::successors(top, |at| parents[*at]);
        for at in path.skip(1) {
            is_on_path[at] = true;
        }
        let mut tree = Tree {
            job,
            children,
            roots,
            is_shown,
            is_on_path,
        };
        // What a copy of a shell executed is in the line of the copy.
        let executed: Vec<usize> = (0..parents.len())
            .filter(|at| tree.is_shown[*at])
            .flat_map(|at| tree.of_one_process(at).0)
            .collect();
        for at in executed {
            tree.is_shown[at] = true;
        }
        tree
    }

    fn level(&self, list: &[usize], depth: usize) -> Markup {
        let job = self.job;
        html! {
            ul .programs {
                @for &at in list.iter().filter(|at| self.is_shown[**at]) {
                    li {
                        @let (images, below) = self.of_one_process(at);
                        @let shown = below.iter().filter(|at| self.is_shown[**at]).count();
                        @if shown == 0 {
                            (line(job, &images))
                        } @else {
                            details open[images.iter().any(|at| self.is_on_path[*at]) || depth < 2 && shown <= 20] {
                                summary {
                                    (line(job, &images))
                                    " - " (count(below.len() as u64, "program below", "programs below"))
                                }
                                @if depth + 1 < MOST_LEVELS { (self.level(below, depth + 1)) } @else { (self.flat(below)) }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Everything from the level behind the last nested one on, one after the other.
    fn flat(&self, list: &[usize]) -> Markup {
        let mut lines = Vec::new();
        let mut waiting: Vec<(usize, usize)> = Vec::new();
        let mut next = (list, MOST_LEVELS + 1);
        loop {
            let (below, level) = next;
            let shown = below.iter().rev().filter(|at| self.is_shown[**at]);
            waiting.extend(shown.map(|at| (*at, level)));
            let Some((at, level)) = waiting.pop() else {
                break;
            };
            let (images, below) = self.of_one_process(at);
            lines.push((level, line(self.job, &images)));
            next = (below, level + 1);
        }
        html! {
            ul .programs .flat {
                @for (level, line) in lines { li { span .soft { "level " (level) ": " } (line) } }
            }
        }
    }

    /// What one process ran as one line, and what stands below it. A shell that wants to run a program makes a copy of
    /// itself, and the copy executes the program: the copy is no program of its own.
    fn of_one_process(&self, at: usize) -> (Vec<usize>, &[usize]) {
        let all = &self.job.programs;
        let one = &all[at];
        let is_copy = one
            .parent
            .is_some_and(|parent| all[parent].command == one.command && all[parent].pid != one.pid);
        match self.children[at].as_slice() {
            [next] if is_copy && all[*next].pid == one.pid => {
                (vec![at, *next], &self.children[*next])
            }
            below => (vec![at], below),
        }
    }
}

/// The line of what one process ran: the last of it, with the sums of all.
fn line(job: &Job, images: &[usize]) -> Markup {
    let all = || images.iter().map(|at| &job.programs[*at]);
    let (Some(first), Some(one)) = (all().next(), all().next_back()) else {
        return html! {};
    };
    let read: u64 = all().fold(0, |sum, one| sum.saturating_add(one.bytes_read));
    let written: u64 = all().fold(0, |sum, one| sum.saturating_add(one.bytes_written));
    let in_calls: f64 = all().map(|one| one.call_seconds).sum();
    html! {
        code .name { (one.command) }
        " "
        span .soft {
            "pid " (one.pid)
            @if let Some(rank) = one.rank { ", " (job.name_of(rank)) }
            ", from " (seconds(first.start_seconds)) " to " (seconds(one.end_seconds)) ", " (one.end)
            @if read > 0 { ", read " (bytes(read)) }
            @if written > 0 { ", wrote " (bytes(written)) }
            @if in_calls > 0.0 { ", " (seconds(in_calls)) " in I/O" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Program;
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
            "pid 7, process 0, from 500\u{a0}ms to 1.5\u{a0}s, exit 0, read 1.0\u{a0}KiB, 250\u{a0}ms in I/O"
        ));
    }

    #[test]
    fn a_tree_of_any_depth_and_width_stays_bounded() {
        let mut job = plain_job(1);
        for at in 0..10_000usize {
            job.programs.push(started_by(at.checked_sub(1), "deep"));
        }
        let page = programs(&job).into_string();
        assert_eq!(page.matches("deep").count(), MOST_PROGRAMS);
        assert_eq!(page.matches("<details").count(), MOST_LEVELS);
        assert!(page.contains("level 21: ") && page.contains("level 2000: "));
        assert!(page.contains("8,000 that did less I/O are left out"));
        for one in &mut job.programs {
            one.parent = None;
        }
        let page = programs(&job).into_string();
        assert_eq!(page.matches("deep").count(), MOST_PROGRAMS);
        assert!(page.contains("8,000 that did less I/O are left out"));
    }

    #[test]
    fn the_program_that_did_most_is_there_and_open_however_late_it_began() {
        let mut job = plain_job(1);
        job.programs = vec![started_by(None, "bash job.sh")];
        for pid in 0..5_000 {
            job.programs.push(Program {
                pid: 100 + pid,
                bytes_read: 0,
                call_seconds: 0.0,
                ..started_by(Some(0), "true")
            });
        }
        // A copy of the shell, and what it executes.
        job.programs.push(Program {
            pid: 9_000,
            ..started_by(Some(0), "bash job.sh")
        });
        job.programs.push(Program {
            pid: 9_000,
            bytes_written: 1 << 30,
            ..started_by(Some(5_001), "simulate")
        });
        let page = programs(&job).into_string();
        assert_eq!(page.matches("simulate").count(), 1);
        assert_eq!(
            page.matches("bash job.sh").count(),
            1,
            "the copy has a line"
        );
        assert_eq!(page.matches("<li>").count(), MOST_PROGRAMS - 1);
        assert!(page.contains("<details open"), "the way to it is closed");
        assert!(page.contains("read 2.0\u{a0}KiB, wrote 1.0\u{a0}GiB, 500\u{a0}ms in I/O"));
        assert!(page.contains("3,003 that did less I/O are left out"));
    }

    #[test]
    fn a_copy_of_a_shell_is_called_what_it_executed_even_if_that_did_nothing() {
        let mut job = plain_job(1);
        job.programs = vec![started_by(None, "bash job.sh")];
        for at in 0..3_000 {
            let copy = job.programs.len();
            job.programs.push(Program {
                pid: 100 + at,
                ..started_by(Some(0), "bash job.sh")
            });
            job.programs.push(Program {
                pid: 100 + at,
                bytes_read: 0,
                call_seconds: 0.0,
                ..started_by(Some(copy), "echo")
            });
        }
        let page = programs(&job).into_string();
        assert_eq!(page.matches("bash job.sh").count(), 1);
        assert_eq!(page.matches("echo").count(), MOST_PROGRAMS - 1);
    }
}
