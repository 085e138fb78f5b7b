//! pjdfstest, the POSIX conformance suite for file systems, natively and through the buffer.
//!
//! A case that passes natively must pass in the buffer, unless `tests/pjdfstest-differences.txt` gives a reason. If a
//! listed case passes, the test fails, so that it leaves the list. `FOREBAY_WRITE_TABLE=1` writes `docs/pjdfstest.md`.

mod common;

use common::{Case, Outcome, need};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const CONFIGURATION: &str = r#"
[features]
posix_fallocate = {}
utimensat = {}
utime_now = {}
rename_ctime = {}
[settings]
naptime = 0.01
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

/// This case makes 65,000 links and takes as long as all others together. (It passes.)
const TOO_SLOW: &str = "link::link_count_max";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
    /// The case needs what neither run has: a second file system, file flags, a remount.
    Skipped,
}

/// The lines `group::case::kind    ok` of a run.
fn verdicts(outcome: &Outcome) -> BTreeMap<String, Verdict> {
    let mut found = BTreeMap::new();
    for line in outcome.text().lines() {
        let mut words = line.split_whitespace();
        let (Some(name), Some(verdict), None) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let verdict = match verdict {
            "ok" => Verdict::Passed,
            "FAILED" => Verdict::Failed,
            "skipped" => Verdict::Skipped,
            _ => continue,
        };
        if name.contains("::") {
            found.insert(name.to_owned(), verdict);
        }
    }
    found
}

/// The cases that are known to differ, with the reason. A `*` at the end of a name stands for any ending, one at the
/// beginning for any beginning.
fn differences() -> Vec<(String, String)> {
    let text = fs::read_to_string(tests_dir().join("pjdfstest-differences.txt"))
        .expect("read the list of differences");
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (name, reason) = line
                .split_once(char::is_whitespace)
                .expect("a name and a reason");
            (name.to_owned(), reason.trim().to_owned())
        })
        .collect()
}

fn stands_for(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => name.ends_with(end),
        (_, Some(beginning)) => name.starts_with(beginning),
        _ => name == pattern,
    }
}

fn tests_dir() -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    dir.canonicalize().expect("the folder of this file")
}

/// One row for each group of cases, and one for each that differs.
fn table(
    native: &BTreeMap<String, Verdict>,
    buffered: &BTreeMap<String, Verdict>,
    reasons: &[(String, String)],
) -> String {
    let mut groups: BTreeMap<&str, [usize; 5]> = BTreeMap::new();
    let mut differing = String::new();
    for (name, verdict) in native {
        let counts = groups
            .entry(name.split("::").next().unwrap_or(name))
            .or_default();
        let through = buffered.get(name).copied().unwrap_or(Verdict::Failed);
        counts[0] += usize::from(*verdict == Verdict::Passed);
        counts[1] += usize::from(*verdict == Verdict::Failed);
        counts[2] += usize::from(through == Verdict::Passed);
        counts[3] += usize::from(through == Verdict::Failed);
        counts[4] += usize::from(*verdict == Verdict::Skipped);
        if *verdict != through {
            let reason = reasons.iter().find(|(p, _)| stands_for(p, name));
            let reason = reason.map_or("not explained yet", |(_, reason)| reason);
            let _ = writeln!(
                differing,
                "| `{name}` | {verdict:?} | {through:?} | {reason} |"
            );
        }
    }
    let mut text = String::from(
        "# pjdfstest\n\n\
         The conformance suite, release 0.2.2, run by root natively on ext4 and through the buffer over it.\n\
         Written by `FOREBAY_WRITE_TABLE=1 cargo test -p forebay --test pjdfstest`; the test fails when a case that\n\
         passes natively fails in the buffer and is not in `crates/forebay/tests/pjdfstest-differences.txt`.\n\
         Skipped are cases that need a second file system, file flags or a remount.\n\n\
         | group | native: passed | failed | buffer: passed | failed | skipped |\n|---|---|---|---|---|---|\n",
    );
    let mut sum = [0; 5];
    let mut row = |name: &str, counts: &[usize; 5]| {
        let [a, b, c, d, e] = counts;
        let _ = writeln!(text, "| {name} | {a} | {b} | {c} | {d} | {e} |");
    };
    for (group, counts) in &groups {
        row(group, counts);
        for (total, count) in sum.iter_mut().zip(counts) {
            *total += count;
        }
    }
    row("**all**", &sum);
    text += "\n## Differences\n\n| case | native | buffer | reason |\n|---|---|---|---|\n";
    text + &differing
}

#[test]
fn whatever_passes_natively_passes_in_the_buffer() {
    need!("pjdfstest");
    forebay_testkit::skip_unless!(
        forebay_testkit::is_root(),
        "pjdfstest changes users, which needs root"
    );
    // The path of a socket has 107 bytes.
    let case = Case::below(Path::new("/var/tmp"), "pjd").without_walk();
    fs::write(case.dir().join("pjdfstest.toml"), CONFIGURATION).expect("write the configuration");
    // Its own exit code says only whether every case passed.
    let script = r#""$TOOLS/pjdfstest" -c "$OUTSIDE/../pjdfstest.toml" -p "$PWD""#;
    let mut native = verdicts(&case.native(&format!("{script}; exit 0")));
    native.remove(TOO_SLOW);
    let names: Vec<_> = native.keys().map(String::as_str).collect();
    let outcome = case.buffered(&format!("{script} {}; exit 0", names.join(" ")));
    let buffered = verdicts(&outcome);
    assert!(native.len() > 300, "only {} cases have run", native.len());

    let reasons = differences();
    if std::env::var_os("FOREBAY_WRITE_TABLE").is_some() {
        let table = table(&native, &buffered, &reasons);
        fs::write(tests_dir().join("../../../docs/pjdfstest.md"), table)
            .expect("write docs/pjdfstest.md");
    }
    let mut wrong = Vec::new();
    for (name, verdict) in &native {
        let passes = buffered.get(name) == Some(verdict);
        let listed = reasons.iter().any(|(pattern, _)| stands_for(pattern, name));
        if *verdict == Verdict::Passed && !passes && !listed {
            wrong.push(format!("{name}: {:?}", buffered.get(name)));
        }
    }
    for (pattern, _) in &reasons {
        let still = native.iter().any(|(name, verdict)| {
            stands_for(pattern, name)
                && *verdict == Verdict::Passed
                && buffered.get(name) != Some(verdict)
        });
        if !still {
            wrong.push(format!("{pattern}: listed, but nothing differs any more"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{}\n{}",
        wrong.join("\n"),
        common::tail(&outcome.text())
    );
    case.passes();
}
