//! Names of logs, as Darshan's tools and sites expect them.

use std::path::{Path, PathBuf};

/// Most bytes of a program's name in the name of a log, so that the whole stays below 255 bytes.
const MOST_PROGRAM_BYTES: usize = 100;
/// Most bytes of a user name in it.
const MOST_USER_BYTES: usize = 32;

/// A moment in the calendar of the machine's time zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Year.
    pub year: i64,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
    /// Seconds since midnight.
    pub second_of_day: u32,
}

/// What a log is named after.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    /// User name.
    pub user: &'a str,
    /// The program, with or without directories.
    pub program: &'a str,
    /// Id of the batch job, or the process id of the command.
    pub job_id: i64,
    /// Process id of the command.
    pub pid: u32,
    /// Start of the job.
    pub start: Moment,
    /// A number that differs between jobs that agree in all else.
    pub hash: u64,
    /// How many seconds the job took.
    pub seconds: u64,
}

/// `<user>_<program>_id<jobid>-<pid>_<month>-<day>-<second of day>-<hash>_<seconds>.darshan`, numbers without
/// padding (darshan-runtime, "log file naming").
pub fn file_name(named: &Named) -> String {
    let program = named.program.rsplit('/').next().unwrap_or_default();
    let Moment {
        month,
        day,
        second_of_day,
        ..
    } = named.start;
    format!(
        "{}_{}_id{}-{}_{month}-{day}-{second_of_day}-{}_{}.darshan",
        plain(named.user, MOST_USER_BYTES, "user"),
        plain(program, MOST_PROGRAM_BYTES, "program"),
        named.job_id,
        named.pid,
        named.hash,
        named.seconds,
    )
}

/// `<dir>/<year>/<month>/<day>`, where Darshan's sites look for the logs of a day.
pub fn day_dir(dir: &Path, start: Moment) -> PathBuf {
    dir.join(start.year.to_string())
        .join(start.month.to_string())
        .join(start.day.to_string())
}

/// Replaces characters that a shell or a line-based tool would stumble over, and cuts the name.
fn plain(name: &str, most_bytes: usize, otherwise: &str) -> String {
    let plain: String = name
        .chars()
        .map(|c| match c {
            c if c.is_ascii_alphanumeric() || "._+-".contains(c) => c,
            _ => '-',
        })
        .take(most_bytes)
        .collect();
    match plain.trim_start_matches('.') {
        "" => otherwise.to_owned(),
        plain => plain.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = Moment {
        year: 2026,
        month: 3,
        day: 9,
        second_of_day: 301,
    };

    fn named<'a>(user: &'a str, program: &'a str) -> Named<'a> {
        Named {
            user,
            program,
            job_id: 4711,
            pid: 99,
            start: START,
            hash: 18_446_744_073_709_551_615,
            seconds: 12,
        }
    }

    #[test]
    fn a_log_is_named_as_darshan_names_it() {
        assert_eq!(
            file_name(&named("ada", "/opt/x/sim")),
            "ada_sim_id4711-99_3-9-301-18446744073709551615_12.darshan"
        );
        assert_eq!(
            day_dir(Path::new("/logs"), START),
            Path::new("/logs/2026/3/9")
        );
    }

    #[test]
    fn names_that_would_leave_the_directory_or_break_a_line_do_not() {
        let name = file_name(&named("../x", "a b\n;é/.."));
        assert_eq!(
            name,
            "-x_program_id4711-99_3-9-301-18446744073709551615_12.darshan"
        );
        let long = "x".repeat(10_000);
        assert!(file_name(&named(&long, &long)).len() < 255);
    }
}
