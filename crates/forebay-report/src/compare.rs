//! Two runs, before and after: figures side by side, and which findings are gone or new.

use crate::Report;
use crate::account::split_of;
use crate::findings::Finding;
use crate::model::Interface;
use crate::text::shorten;
use crate::units::{self, bytes, number};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The unit of a figure, which says how it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Seconds,
    Bytes,
    Count,
    Rate,
}

/// One figure of both runs; `None` where a run does not have it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figure {
    pub(crate) key: String,
    pub(crate) name: String,
    pub(crate) unit: Unit,
    pub(crate) before: Option<f64>,
    pub(crate) after: Option<f64>,
}

impl Figure {
    /// A value of this figure as text.
    pub(crate) fn show(&self, value: Option<f64>) -> String {
        let Some(value) = value else {
            return "unknown".to_owned();
        };
        match self.unit {
            Unit::Seconds => units::seconds(value),
            Unit::Bytes => bytes(value as u64),
            Unit::Count => number(value as u64),
            Unit::Rate => format!("{value:.1} MiB/s"),
        }
    }

    /// The change as text, such as `-37 %`, `x 2.5` or `same`.
    pub(crate) fn change(&self) -> String {
        let (Some(before), Some(after)) = (self.before, self.after) else {
            return "-".to_owned();
        };
        if (before - after).abs() <= 1e-9 * before.abs().max(after.abs()) {
            "same".to_owned()
        } else if before <= 0.0 {
            "new".to_owned()
        } else if after / before >= 2.0 {
            format!("x {:.1}", after / before)
        } else if after > 0.0 && after / before <= 0.005 {
            // Rounded it would be all of it.
            "< -99 %".to_owned()
        } else {
            format!("{:+.0} %", (after / before - 1.0) * 100.0)
        }
    }
}

/// A comparison of two runs.
#[derive(Debug)]
pub struct Comparison<'r> {
    /// The run before the change.
    pub before: &'r Report,
    /// The run after it.
    pub after: &'r Report,
    /// Why the runs can't be compared fairly; empty if they can.
    pub warnings: Vec<String>,
    pub(crate) figures: Vec<Figure>,
}

/// Compares two runs.
pub fn compare<'r>(before: &'r Report, after: &'r Report) -> Comparison<'r> {
    Comparison {
        before,
        after,
        warnings: warnings(before, after),
        figures: figures(before, after),
    }
}

/// The program without its arguments and folder.
fn program(report: &Report) -> &str {
    let first = report.job.exe.split(' ').next().unwrap_or_default();
    first.rsplit('/').next().unwrap_or_default()
}

fn warnings(before: &Report, after: &Report) -> Vec<String> {
    let mut warnings = Vec::new();
    if program(before) != program(after) {
        warnings.push(format!(
            "different programs: {} and {}",
            shorten(program(before), 60),
            shorten(program(after), 60)
        ));
    }
    if before.job.ranks != after.job.ranks {
        warnings.push(format!(
            "different numbers of processes: {} before, {} after",
            before.job.all_text(),
            after.job.all_text()
        ));
    }
    if let (Some(a), Some(b)) = (before.job.nodes, after.job.nodes)
        && a != b
    {
        warnings.push(format!("different numbers of nodes: {a} and {b}"));
    }
    let moved = |report: &Report| report.account.moved.bytes() as f64;
    let (a, b) = (moved(before), moved(after));
    if a.max(b) > 1.5 * a.min(b) {
        warnings.push(format!(
            "different amounts of data: {} and {}",
            bytes(a as u64),
            bytes(b as u64)
        ));
    }
    for (name, report) in [("before", before), ("after", after)] {
        let is_incomplete =
            report.job.layers.iter().any(|layer| layer.is_partial) || !report.job.damage.is_empty();
        if is_incomplete {
            warnings.push(format!("the log of the run {name} is incomplete"));
        }
    }
    warnings
}

/// A text that speaks of ranks, in words that fit the processes of both runs.
fn say(before: &Report, after: &Report, text: &str) -> String {
    before.job.say(&after.job.say(text))
}

fn figures(before: &Report, after: &Report) -> Vec<Figure> {
    let mut all = Vec::new();
    let mut add = |key: String, name: String, unit: Unit, of: &dyn Fn(&Report) -> Option<f64>| {
        all.push(Figure {
            key,
            name: say(before, after, &name),
            unit,
            before: of(before),
            after: of(after),
        });
    };
    type Lookup = fn(&Report) -> Option<f64>;
    let whole_job: [(&str, &str, Unit, Lookup); 9] = [
        ("run_seconds", "run time", Unit::Seconds, |r| {
            Some(r.job.run_seconds)
        }),
        (
            "slowest_rank_seconds",
            "I/O time, slowest rank",
            Unit::Seconds,
            |r| r.account.slowest.map(|s| s.seconds),
        ),
        (
            "mean_read_seconds",
            "reading, mean rank",
            Unit::Seconds,
            |r| Some(r.account.time.read),
        ),
        (
            "mean_write_seconds",
            "writing, mean rank",
            Unit::Seconds,
            |r| Some(r.account.time.write),
        ),
        (
            "mean_metadata_seconds",
            "metadata, mean rank",
            Unit::Seconds,
            |r| Some(r.account.time.metadata),
        ),
        ("mib_per_second", "speed", Unit::Rate, |r| {
            r.account.mib_per_second()
        }),
        ("bytes_read", "read", Unit::Bytes, |r| {
            Some(r.account.moved.bytes_read as f64)
        }),
        ("bytes_written", "written", Unit::Bytes, |r| {
            Some(r.account.moved.bytes_written as f64)
        }),
        ("files", "files", Unit::Count, |r| {
            Some(r.account.moved.files as f64)
        }),
    ];
    for (key, name, unit, of) in whole_job {
        add(key.to_owned(), name.to_owned(), unit, &of);
    }
    let interfaces: BTreeSet<Interface> = [before, after]
        .iter()
        .flat_map(|r| r.job.layers.iter().map(|l| l.interface))
        .collect();
    for interface in interfaces {
        let name = interface.name();
        let key = |what: &str| format!("{}_{what}", name.to_lowercase().replace('-', "_"));
        let total = |r: &Report| r.job.layer(interface).map(|layer| layer.total());
        add(key("reads"), format!("{name} reads"), Unit::Count, &|r| {
            total(r).map(|t| t.read.ops as f64)
        });
        add(key("writes"), format!("{name} writes"), Unit::Count, &|r| {
            total(r).map(|t| t.write.ops as f64)
        });
        add(key("opens"), format!("{name} opens"), Unit::Count, &|r| {
            total(r).map(|t| t.opens as f64)
        });
        add(
            key("seconds"),
            format!("{name} time, mean rank"),
            Unit::Seconds,
            &|r| {
                r.job
                    .layer(interface)
                    .map(|_| split_of(&r.job, interface).io())
            },
        );
        add(
            key("mib_per_second"),
            format!("{name} MiB/s by slowest"),
            Unit::Rate,
            &|r| {
                r.job
                    .layer(interface)?
                    .by_slowest
                    .map(|rate| rate.mib_per_second)
            },
        );
    }
    all
}

impl Comparison<'_> {
    /// Findings that only the run before has.
    pub fn gone(&self) -> Vec<&Finding> {
        missing(&self.before.findings, &self.after.findings)
    }

    /// Findings that only the run after has.
    pub fn new_ones(&self) -> Vec<&Finding> {
        missing(&self.after.findings, &self.before.findings)
    }

    /// Findings that both runs have.
    pub fn still(&self) -> Vec<(&Finding, &Finding)> {
        let in_after = |code| self.after.findings.iter().find(|one| one.code == code);
        self.before
            .findings
            .iter()
            .filter_map(|one| Some((one, in_after(one.code)?)))
            .collect()
    }

    /// The comparison as text for a terminal.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (name, report) in [("before", self.before), ("after", self.after)] {
            let log = report.job.logs.first().map_or("", |log| log.name.as_str());
            let _ = writeln!(out, "{name:<7} {}", shorten(&report.job.exe, 72));
            let _ = writeln!(out, "        {}", shorten(log, 72));
        }
        for warning in &self.warnings {
            let _ = writeln!(out, "NOT FAIRLY COMPARABLE: {warning}");
        }
        let _ = writeln!(
            out,
            "\n  {:<28} {:>15} {:>15} {:>10}",
            "", "before", "after", "change"
        );
        for figure in &self.figures {
            let _ = writeln!(
                out,
                "  {:<28} {:>15} {:>15} {:>10}",
                figure.name,
                figure.show(figure.before),
                figure.show(figure.after),
                figure.change()
            );
        }
        let mut list = |title: &str, findings: Vec<&Finding>| {
            let _ = writeln!(
                out,
                "\n{title}{}",
                if findings.is_empty() { ": none" } else { "" }
            );
            for one in findings {
                let _ = writeln!(out, "  {:<9} {}", lost(one), shorten(&one.title, 68));
            }
        };
        list("Findings gone", self.gone());
        list("Findings new", self.new_ones());
        let _ = writeln!(
            out,
            "\nFindings in both{}",
            if self.still().is_empty() {
                ": none"
            } else {
                ""
            }
        );
        for (before, after) in self.still() {
            let _ = writeln!(
                out,
                "  {:>9} -> {:<9} {}",
                lost(before),
                lost(after),
                before.code
            );
        }
        out
    }

    /// The comparison as JSON for scripts; docs/REPORT.md has the schema.
    pub fn json(&self) -> Value {
        let codes =
            |findings: Vec<&Finding>| findings.iter().map(|one| one.code).collect::<Vec<_>>();
        json!({
            "forebay_job_comparison": crate::json::FORMAT,
            "comparable": self.warnings.is_empty(),
            "warnings": self.warnings,
            "figures": self.figures.iter().map(|figure| (figure.key.clone(), json!({
                "before": figure.before,
                "after": figure.after,
            }))).collect::<serde_json::Map<_, _>>(),
            "findings_gone": codes(self.gone()),
            "findings_new": codes(self.new_ones()),
            "findings_in_both": self.still().iter().map(|(before, after)| json!({
                "code": before.code,
                "seconds_lost_before": before.seconds_lost,
                "seconds_lost_after": after.seconds_lost,
            })).collect::<Vec<_>>(),
            "before": self.before.json(),
            "after": self.after.json(),
        })
    }

    /// The comparison as one HTML page, with both heat maps.
    pub fn html(&self) -> String {
        crate::html::compare_page(self)
    }
}

/// The seconds lost as text, such as `12.3 s`; `data` for findings about the data.
pub(crate) fn lost(finding: &Finding) -> String {
    finding
        .seconds_lost
        .map_or("data".to_owned(), units::seconds)
}

fn missing<'f>(these: &'f [Finding], those: &[Finding]) -> Vec<&'f Finding> {
    these
        .iter()
        .filter(|one| those.iter().all(|other| other.code != one.code))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Thresholds;
    use crate::model::{Job, Timeline, TimelineSource};
    use crate::sample::*;

    fn report(mut job: Job) -> Report {
        for rank in 0..job.ranks {
            let counters = writes(20_000, 2_000_000, f64::from(rank + 1) * 10.0);
            let name = format!("/pfs/out.{rank}");
            by_rank(&mut job, Interface::Posix, &name, rank, counters);
        }
        let cells = job.ranks as usize * 2;
        job.timelines.push(Timeline {
            interface: Interface::Posix,
            source: TimelineSource::Heatmap,
            bin_seconds: 50.0,
            bins: 2,
            ranks_per_row: 1,
            read: vec![0.0; cells],
            written: vec![1e6; cells],
            last_active: vec![None; job.ranks as usize],
        });
        Report::new(job, &Thresholds::default())
    }

    /// True if a text speaks of ranks, outside of tags and of what scripts read.
    fn speaks_of_ranks(text: &str) -> bool {
        let shown = text.split("<script").next().unwrap_or_default();
        let shown = shown.split("</style>").last().unwrap_or_default();
        let shown = shown.split('<').map(|part| match part.split_once('>') {
            Some((_, text)) => text,
            None => part,
        });
        shown
            .flat_map(|part| part.split(|c: char| !c.is_alphanumeric()))
            .any(|word| matches!(word, "rank" | "ranks"))
    }

    #[test]
    fn without_mpi_nothing_speaks_of_ranks() {
        let (before, after) = (report(plain_job(3)), report(plain_job(1)));
        let comparison = compare(&before, &after);
        assert_eq!(
            comparison.warnings[0],
            "different numbers of processes: 3 processes before, 1 process after"
        );
        let html = comparison.html();
        for text in [
            &comparison.text(),
            &html,
            &before.html(),
            &before.long_text(),
        ] {
            assert!(!speaks_of_ranks(text), "{text}");
        }
        assert!(comparison.text().contains("I/O time, slowest process"));
        assert!(html.contains(r#""who":"process""#) && !html.contains(r#""who":"rank""#));
        // The names of figures in the JSON do not depend on the job.
        assert!(comparison.json()["figures"]["slowest_rank_seconds"].is_object());
    }

    #[test]
    fn a_change_is_never_rounded_to_all_of_it() {
        let change = |before, after| {
            let figure = Figure {
                key: String::new(),
                name: String::new(),
                unit: Unit::Count,
                before: Some(before),
                after: Some(after),
            };
            figure.change()
        };
        assert_eq!(change(40_194.0, 62.0), "< -99 %");
        assert_eq!(change(100.0, 1.0), "-99 %");
        assert_eq!(change(100.0, 0.0), "-100 %");
        assert_eq!(change(1.0, 22.1), "x 22.1");
    }

    #[test]
    fn ranks_stay_ranks_and_are_processes_beside_those_of_a_plain_job() {
        let (mpi, plain) = (report(mpi_job(2)), report(plain_job(1)));
        assert!(
            compare(&mpi, &mpi)
                .text()
                .contains("I/O time, slowest rank")
        );
        assert!(speaks_of_ranks(&mpi.html()));
        let mixed = compare(&mpi, &plain);
        assert!(mixed.text().contains("I/O time, slowest process"));
        assert!(mixed.warnings[0].ends_with("2 ranks before, 1 process after"));
    }
}
