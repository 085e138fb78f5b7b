//! The summary for a terminal: one screen of 80 columns, plain text.

use crate::Report;
use crate::account::{TimeSplit, split_of};
use crate::findings::{Finding, NOTHING_RECORDED, Severity};
use crate::model::{BUCKET_NAMES, FileUse, Interface, Layer, Sharing};
use crate::sentences::{
    avoided_text, collective_text, coverage_text, fetched_text, is_unknown, nothing_found,
    waiting_writes,
};
use crate::text::{shorten, wrap};
use crate::units::{self, bytes, number, percent, share};
use std::fmt::Write as _;

/// Columns.
const WIDTH: usize = 80;
/// Columns of the names at the left.
const LABEL: usize = 12;
/// Findings in the summary.
const FINDINGS: usize = 3;
/// Files in the summary.
const FILES: usize = 3;

/// Lines with a name at the left.
struct Page(String);

impl Page {
    /// `  name         text`, wrapped.
    fn row(&mut self, name: &str, text: &str) {
        for (i, line) in wrap(text, WIDTH - LABEL - 3).iter().enumerate() {
            let name = if i == 0 { name } else { "" };
            let _ = writeln!(self.0, "{}", format!("  {name:<LABEL$} {line}").trim_end());
        }
    }

    fn line(&mut self, text: &str) {
        let _ = writeln!(self.0, "{}", text.trim_end());
    }
}

/// The whole screen; with `all` it has every finding with its evidence.
pub(crate) fn screen(report: &Report, all: bool) -> String {
    let mut page = Page(String::new());
    head(&mut page, report);
    page.line("");
    facts(&mut page, report);
    page.line("");
    interfaces(&mut page, report);
    page.line("");
    details(&mut page, report);
    page.line("");
    findings(&mut page, report, all);
    page.0
}

/// A few rows for the end of `forebay run`: what was moved, the time in I/O, what the numbers leave out, and the most
/// costly finding.
pub(crate) fn short(report: &Report) -> String {
    let mut page = Page(String::new());
    page.row("I/O", &moved(report));
    if report.account.slowest.is_some() {
        page.row("I/O time", &slowest_text(report));
    }
    for finding in report
        .findings
        .iter()
        .filter(|one| one.severity == Severity::Data)
        .take(2)
    {
        page.row("note", &finding.title);
    }
    let costly = report.costly();
    let Some(first) = costly.first() else {
        page.row("findings", &nothing_found(report));
        return page.0;
    };
    let more = match costly.len() - 1 {
        0 => String::new(),
        n => format!(" ({n} more: forebay report)"),
    };
    page.row(
        "findings",
        &format!("{}: {}{more}", first.cost_text(&report.job), first.title),
    );
    page.0
}

/// Columns of the title of a finding in one line.
const TITLE: usize = 70;

/// The most important of all, in one line.
pub(crate) fn warning(report: &Report) -> Option<&Finding> {
    let mut findings = report.findings.iter();
    findings.find(|one| matches!(one.code, NOTHING_RECORDED | "lost-data" | "contradiction"))
}

pub(crate) fn one_line(report: &Report) -> String {
    let account = &report.account;
    let mut text = warning(report).map_or(String::new(), |one| {
        format!("{}; ", one.title.to_uppercase())
    });
    let _ = write!(
        text,
        "read {}, wrote {}, {}",
        bytes(account.moved.bytes_read),
        bytes(account.moved.bytes_written),
        account.moved.files_text()
    );
    if account.slowest.is_some() {
        let _ = write!(text, "; {}", slowest_text(report));
    }
    if let Some(finding) = report.costly().first() {
        let _ = write!(
            text,
            "; {}: {}",
            finding.cost_text(&report.job),
            shorten(&finding.title, TITLE)
        );
    }
    text
}

fn head(page: &mut Page, report: &Report) {
    let job = &report.job;
    let exe = if job.exe.is_empty() {
        "(no command in the log)"
    } else {
        &job.exe
    };
    page.line(&shorten(exe, WIDTH));
    let nodes = job.nodes.map_or("unknown number of nodes".to_owned(), |n| {
        units::count(n.into(), "node", "nodes")
    });
    let programs = match job.programs.len() as u64 {
        0 | 1 => String::new(),
        n => format!(" ({} programs run)", number(n)),
    };
    page.row(
        "job",
        &format!(
            "{}, {}{programs} on {nodes}, uid {}",
            job.job_id,
            job.all_text(),
            job.uid
        ),
    );
    let about = if job.run_seconds_rounded {
        " (whole seconds)"
    } else {
        ""
    };
    page.row(
        "ran",
        &format!(
            "{}, {}{about}",
            units::date(job.start),
            units::seconds(job.run_seconds)
        ),
    );
    let log = job.logs.first().map_or(String::new(), |log| {
        if job.logs.len() > 1 {
            format!(
                "{} joined, the first is {}",
                units::count(job.logs.len() as u64, "log", "logs"),
                log.name
            )
        } else {
            format!("{} (format {})", log.name, log.version)
        }
    });
    page.row("log", &shorten(&log, WIDTH - LABEL - 3));
    if let Some(exit) = job.metadata.get("exit") {
        page.row("ended", exit);
    }
}

fn moved(report: &Report) -> String {
    let sums = report.account.moved;
    if report.job.layers.is_empty() {
        return "none recorded".to_owned();
    }
    let counts = |one: &FileUse| one.is_lowest && !report.job.files[one.file].is_std_stream;
    let lowest: Vec<&str> = report
        .job
        .layers
        .iter()
        .filter(|layer| layer.uses.iter().any(counts))
        .map(|layer| layer.interface.name())
        .collect();
    let mut about = if lowest.is_empty() {
        String::new()
    } else {
        format!(" (counted at {})", lowest.join(" + "))
    };
    if report.account.std_streams > 0 {
        about += &format!(
            "; besides {} on standard streams",
            bytes(report.account.std_streams)
        );
    }
    let at_least = if report.job.layers.iter().any(|layer| layer.is_partial) {
        "at least "
    } else {
        ""
    };
    format!(
        "read {at_least}{}, wrote {at_least}{}, {}{about}",
        bytes(sums.bytes_read),
        bytes(sums.bytes_written),
        sums.files_text(),
    )
}

fn time(report: &Report) -> String {
    let TimeSplit {
        read,
        write,
        metadata,
        other,
    } = report.account.time;
    let of = |seconds: f64| percent(share(seconds, report.job.run_seconds));
    format!(
        "of the run time a mean {} reads {}, writes {}{}, is in metadata {}, not in I/O {}",
        report.job.who(),
        of(read),
        of(write),
        waiting_writes(report).map_or_else(String::new, |share| format!(
            " ({} of that in syncs)",
            percent(share)
        )),
        of(metadata),
        of(other)
    )
}

/// What the speed covers.
pub(crate) fn while_in_io(report: &Report) -> String {
    let seconds = units::seconds(report.account.io_seconds);
    if report.job.busy.is_some() && report.job.is_mpi() && report.job.ranks > 1 {
        return format!("while any rank does I/O ({seconds})");
    }
    let launches = report.job.launches.len() as u32 + report.job.serial_steps();
    match (launches, report.job.ranks) {
        (1, _) => format!("while the slowest rank does I/O ({seconds})"),
        (_, 0 | 1) => format!("while the process does I/O ({seconds})"),
        _ => format!("while any process does I/O ({seconds})"),
    }
}

/// What comes before the speed.
pub(crate) fn least_rate(report: &Report) -> &'static str {
    match report.account.may_overlap(&report.job) {
        true => "at least ",
        false => "",
    }
}

/// The slowest rank, and how much of the run it is in I/O.
fn slowest_text(report: &Report) -> String {
    let account = &report.account;
    let Some(slowest) = account.slowest else {
        return "no time was measured".to_owned();
    };
    // The name of a step is that of its program.
    let program = report.job.program_of(slowest.rank);
    let program =
        program.filter(|_| report.job.serial_steps() == 0 || report.job.is_rank(slowest.rank));
    let program = program.map_or(String::new(), |name| format!(" ({})", shorten(name, 24)));
    let mut text = format!(
        "{}{program}: {} in I/O, {} of the run time",
        report.job.name_of(slowest.rank),
        units::seconds(slowest.seconds),
        percent(account.slowest_share(&report.job))
    );
    if account.overlap >= OVERLAP {
        text += &format!(
            " (calls of threads overlap, up to {:.0} at once)",
            account.overlap
        );
    }
    text
}

/// A rank whose calls add up to this many times its seconds in I/O has threads that are worth a word.
const OVERLAP: f64 = 1.5;

fn facts(page: &mut Page, report: &Report) {
    let (job, account) = (&report.job, &report.account);
    if is_unknown(report) {
        page.row("moved", "unknown: nothing was recorded");
        if let Some(coverage) = job.coverage {
            page.row("coverage", &coverage_text(&coverage));
        }
        return;
    }
    page.row("moved", &moved(report));
    page.row(
        "speed",
        &account.mib_per_second().map_or("-".to_owned(), |rate| {
            let per_node = account
                .mib_per_second_per_node(job)
                .map_or("per node unknown".to_owned(), |rate| {
                    format!("{rate:.1} MiB/s per node")
                });
            format!(
                "{}{rate:.1} MiB/s {}; {per_node}",
                least_rate(report),
                while_in_io(report)
            )
        }),
    );
    page.row("time", &time(report));
    page.row("slowest", &slowest_text(report));
    if let Some(coverage) = job.coverage {
        page.row("coverage", &coverage_text(&coverage));
        if let Some(fetched) = coverage.fetched {
            page.row("storage", &fetched_text(&fetched));
        }
    }
}

fn interfaces(page: &mut Page, report: &Report) {
    let job = &report.job;
    if job.layers.is_empty() {
        page.line("  no interface was used, or none was recorded");
        return;
    }
    let who = format!("s of a mean {}", report.job.who());
    page.line(&row(["", "", "", "", "", &who, "MiB/s by"]));
    page.line(&row([
        "interface",
        "read",
        "written",
        "reads",
        "writes",
        "read/write/meta",
        "slowest",
    ]));
    for (layer, total) in job.layers.iter().zip(&report.account.totals) {
        let split = split_of(job, layer.interface);
        let mark = if layer.is_partial { "*" } else { "" };
        let rate = layer
            .by_slowest
            .map_or("-".to_owned(), |rate| format!("{:.1}", rate.mib_per_second));
        page.line(&row([
            &format!("{}{mark}", layer.interface.name()),
            &bytes(total.read.bytes),
            &bytes(total.write.bytes),
            &compact(total.read.ops),
            &compact(total.write.ops),
            &format!(
                "{}/{}/{}",
                few(split.read),
                few(split.write),
                few(split.metadata)
            ),
            &rate,
        ]));
    }
    let has = |interface| job.layer(interface).is_some();
    if has(Interface::MpiIo) && has(Interface::Posix) {
        page.line(
            "  MPI-IO goes through POSIX: \"moved\" counts it once, \"time\" is that of MPI-IO.",
        );
    }
    for library in [Interface::Hdf5, Interface::Pnetcdf] {
        let layer = job.layer(library).into_iter();
        if layer
            .flat_map(|layer| &layer.uses)
            .any(|one| !one.is_highest)
        {
            let name = library.name();
            page.line(&format!(
                "  {name} goes through the interfaces above: its own time is in \"not in I/O\"."
            ));
        }
    }
    if job.layers.iter().any(|layer| layer.is_partial) {
        page.line("  * incomplete: lower bounds");
    }
}

/// A row of the table of interfaces.
fn row([name, read, written, reads, writes, seconds, rate]: [&str; 7]) -> String {
    format!("  {name:<10}{read:>10}{written:>10}{reads:>8}{writes:>8}  {seconds:<20}{rate:>10}")
}

/// At most 7 characters.
fn compact(n: u64) -> String {
    match n {
        0..=999_999 => n.to_string(),
        1_000_000..=999_999_999 => format!("{:.1}M", n as f64 / 1e6),
        _ => format!("{:.1}G", n as f64 / 1e9),
    }
}

/// Seconds in few characters.
fn few(seconds: f64) -> String {
    if seconds >= 99.95 {
        format!("{seconds:.0}")
    } else if seconds >= 0.095 {
        format!("{seconds:.1}")
    } else if seconds >= 0.000_95 {
        format!("{seconds:.3}")
    } else if seconds > 0.0 {
        "<.001".to_owned()
    } else {
        "0".to_owned()
    }
}

fn details(page: &mut Page, report: &Report) {
    let classes: Vec<String> = report
        .account
        .sharing
        .iter()
        .filter(|(_, moved)| moved.files > 0)
        .map(|(class, moved)| {
            format!(
                "{}: {}, {}",
                class.name(),
                units::count(moved.files, "file", "files"),
                bytes(moved.bytes())
            )
        })
        .collect();
    let sharing = if report.job.ranks < 2 {
        "one process".to_owned()
    } else if classes.is_empty() {
        "no files".to_owned()
    } else {
        classes.join("; ")
    };
    page.row("sharing", &sharing);
    for (one, avoided) in report
        .job
        .collective
        .iter()
        .zip(&report.avoided)
        .take(FILES)
    {
        page.row(
            "collective",
            &format!("{}: {}", one.path, collective_text(one)),
        );
        if let Some(avoided) = avoided {
            page.row("", &avoided_text(avoided));
        }
    }
    let more = report.job.collective.len().saturating_sub(FILES);
    if more > 0 {
        page.row("", &format!("{more} more files with --html or --json"));
    }
    let layers = report.job.layers.iter().zip(&report.account.totals);
    for (layer, total) in layers.filter(|(layer, _)| !layer.interface.is_library()) {
        for (noun, flow) in [("reads", &total.read), ("writes", &total.write)] {
            if let Some(text) = sizes(&flow.sizes) {
                page.row(
                    "sizes",
                    &format!("{} {noun}: {text}", layer.interface.name()),
                );
            }
        }
    }
    let slowest = report.slowest_files(FILES);
    for (i, (layer, one)) in slowest.iter().enumerate() {
        let name = if i == 0 { "slow files" } else { "" };
        page.row(name, &slow_file(report, layer, one));
    }
}

/// The three largest buckets.
fn sizes(buckets: &[u64; 10]) -> Option<String> {
    let all: u64 = buckets.iter().sum();
    let mut order: Vec<(u64, usize)> = buckets
        .iter()
        .copied()
        .zip(0..)
        .filter(|(n, _)| *n > 0)
        .collect();
    order.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    let parts: Vec<String> = order
        .iter()
        .take(3)
        .map(|(n, at)| {
            format!(
                "{} {}",
                BUCKET_NAMES[*at],
                percent(share(*n as f64, all as f64))
            )
        })
        .collect();
    (!parts.is_empty()).then(|| format!("{} (of {})", parts.join(", "), number(all)))
}

fn slow_file(report: &Report, layer: &Layer, one: &FileUse) -> String {
    let seconds = one.slowest().map_or(0.0, |slowest| slowest.seconds);
    let numbers = format!(
        "{} {}, {}",
        units::seconds(seconds),
        layer.interface.name(),
        if one.sharing == Sharing::Unique {
            "unique"
        } else {
            "shared"
        }
    );
    let room = WIDTH - LABEL - 3 - numbers.chars().count() - 2;
    let file = &report.job.files[one.file];
    if file.is_calls {
        return format!("{} {numbers}", file.name);
    }
    // Wrapping would lose blanks in names. The name is for reading, not for copying.
    format!(
        "{}  {numbers}",
        shorten(&file.name, room).replace(' ', "\u{b7}")
    )
}

fn findings(page: &mut Page, report: &Report, all: bool) {
    for finding in report
        .findings
        .iter()
        .filter(|one| one.severity == Severity::Data)
    {
        page.row("DATA", &finding.title);
        for evidence in finding
            .evidence
            .iter()
            .take(if all { usize::MAX } else { 1 })
        {
            page.row("", evidence);
        }
    }
    let costly = report.costly();
    let shown = if all {
        report.timed()
    } else {
        costly.iter().copied().take(FINDINGS).collect()
    };
    if shown.is_empty() {
        page.row("findings", &nothing_found(report));
        return;
    }
    let rest = report.timed().len() - shown.len();
    let more = if rest > 0 {
        format!("; {rest} more with -v or --html")
    } else {
        String::new()
    };
    page.line(&format!(
        "Findings by seconds lost (estimates that overlap){more}"
    ));
    if let Some(unexplained) = &report.unexplained {
        page.row("", unexplained);
    }
    for finding in shown {
        page.row(
            &finding.severity.name().to_uppercase(),
            &format!("{}: {}", finding.cost_text(&report.job), finding.title),
        );
        if all {
            for evidence in &finding.evidence {
                page.row("", &format!("- {evidence}"));
            }
            for file in &finding.files {
                page.row("", &format!("- {}: {}", file.name, file.detail));
            }
            page.row(
                "",
                &format!(
                    "estimate ({} confidence): {}",
                    finding.confidence.name(),
                    finding.estimate
                ),
            );
        }
        page.row("", &format!("-> {}", finding.advice));
        if let Some(setting) = &finding.setting {
            page.row("", &format!("-> {setting}"));
        }
    }
}
