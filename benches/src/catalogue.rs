//! The rows of the table: what is measured, in which unit, and with which target.

/// The unit in which a row is shown. The measurement itself is always in seconds per operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds per operation.
    Micros,
    /// MiB per second; one operation moves 1 MiB.
    MibPerSecond,
}

/// The target of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// Native time over buffered time is at least this.
    Ratio(f64),
    /// One operation takes at most this many microseconds more than the native one.
    AddedMicros(f64),
    /// The difference to native is not larger than that between two native runs.
    NotMeasurable,
}

/// A line of the table.
#[derive(Debug)]
pub struct Row {
    /// Name in the JSON forms.
    pub name: &'static str,
    /// Title in the table.
    pub title: &'static str,
    /// Unit in the table.
    pub unit: Unit,
    /// The target, for storage on a disk file system.
    pub target: Option<Target>,
}

/// One workload of `forebay-load`, and the rows that it fills.
#[derive(Debug)]
pub struct Workload {
    /// Argument of `forebay-load`.
    pub name: &'static str,
    /// What its numbers cover.
    pub covers: &'static str,
    /// The rows, in the order of measurement.
    pub rows: &'static [Row],
}

const fn micros(name: &'static str, title: &'static str, target: Option<Target>) -> Row {
    Row {
        name,
        title,
        unit: Unit::Micros,
        target,
    }
}

const fn rate(name: &'static str, title: &'static str) -> Row {
    Row {
        name,
        title,
        unit: Unit::MibPerSecond,
        target: DATA_PATH,
    }
}

const DATA_PATH: Option<Target> = Some(Target::Ratio(0.97));
const NAMESPACE: Option<Target> = Some(Target::Ratio(0.25));
const NOT_MEASURABLE: Option<Target> = Some(Target::NotMeasurable);

/// All workloads, in the order of the table.
pub const WORKLOADS: &[Workload] = &[
    Workload {
        name: "blocks",
        covers: "random 4 KiB blocks of a 64 MiB file in the page cache; open is not timed",
        rows: &[
            micros("pread-4k", "4 KiB pread", DATA_PATH),
            micros("pwrite-4k", "4 KiB pwrite", DATA_PATH),
        ],
    },
    Workload {
        name: "sequential",
        covers: "1 MiB calls on one file, to and from the page cache, no fsync; open is not timed",
        rows: &[
            rate("write-new", "1 MiB write, new file"),
            rate("write-again", "1 MiB write, rewrite"),
            rate("read", "1 MiB read"),
        ],
    },
    Workload {
        name: "mmap",
        covers: "every page of a shared mapping of a cached 64 MiB file; mmap, page faults and munmap are timed",
        rows: &[
            rate("mmap-write", "mmap write"),
            rate("mmap-read", "mmap read"),
        ],
    },
    Workload {
        name: "one-file",
        covers: "one existing file over and over, so both ends are awake",
        rows: &[
            micros("open-close", "open + close", Some(Target::AddedMicros(6.0))),
            micros("stat", "stat", Some(Target::AddedMicros(4.0))),
        ],
    },
    Workload {
        name: "idle",
        covers: "one open + close after a pause of 3 ms: the bridge has gone to sleep and is woken",
        rows: &[micros(
            "open-close-idle",
            "open + close after a pause",
            None,
        )],
    },
    Workload {
        name: "files-1",
        covers: FILES,
        rows: &[
            micros("create-1", "create, 1 process", None),
            micros("stat-1", "stat, 1 process", None),
            micros("remove-1", "remove, 1 process", None),
        ],
    },
    Workload {
        name: "files-2",
        covers: FILES,
        rows: &[
            micros("create-2", "create, 2 processes", None),
            micros("stat-2", "stat, 2 processes", None),
            micros("remove-2", "remove, 2 processes", None),
        ],
    },
    Workload {
        name: "files-4",
        covers: FILES,
        rows: &[
            micros("create-4", "create, 4 processes", None),
            micros("stat-4", "stat, 4 processes", None),
            micros("remove-4", "remove, 4 processes", None),
        ],
    },
    Workload {
        name: "triple-1",
        covers: TRIPLE,
        rows: &[micros(
            "triple-1",
            "create+stat+unlink, 1 process",
            NAMESPACE,
        )],
    },
    Workload {
        name: "triple-2",
        covers: TRIPLE,
        rows: &[micros(
            "triple-2",
            "create+stat+unlink, 2 processes",
            NAMESPACE,
        )],
    },
    Workload {
        name: "triple-4",
        covers: TRIPLE,
        rows: &[micros(
            "triple-4",
            "create+stat+unlink, 4 processes",
            NAMESPACE,
        )],
    },
    Workload {
        name: "small-files",
        covers: "create + write 4 KiB + close per file in one directory, then open + read + close; page cache, no fsync",
        rows: &[
            micros("small-write", "4 KiB file, written", None),
            micros("small-read", "4 KiB file, read back", None),
        ],
    },
    Workload {
        name: "outside",
        covers: "an existing file outside the buffer: what the library costs a program where it has nothing to do",
        rows: &[
            micros("outside-open", "open + close, outside", NOT_MEASURABLE),
            micros("outside-stat", "stat, outside", NOT_MEASURABLE),
            micros(
                "outside-stat-relative",
                "stat of a relative path, outside",
                NOT_MEASURABLE,
            ),
        ],
    },
    Workload {
        name: "exec",
        covers: "posix_spawn of /bin/true and wait; the child, too, has the library loaded",
        rows: &[micros(
            "exec",
            "start and end of a process",
            Some(Target::AddedMicros(100.0)),
        )],
    },
];

const FILES: &str = "as mdtest: empty files, one directory per process, phases start together; \
    wall time over the files of all processes";
const TRIPLE: &str = "one name over and over, one directory per process, all start together; \
    wall time over the loops of all processes";

/// How much is done per workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Scale {
    /// Enough work per round for a figure; several rounds make it stable.
    Full,
    /// A rough figure within a minute.
    Quick,
    /// Only shows that every call works; the times mean nothing.
    Smoke,
}

impl Scale {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Scale::Full => "full",
            Scale::Quick => "quick",
            Scale::Smoke => "smoke",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_rows_share_a_name_or_a_title() {
        let rows: Vec<&Row> = WORKLOADS.iter().flat_map(|w| w.rows).collect();
        let names: BTreeSet<_> = rows.iter().map(|r| r.name).collect();
        let titles: BTreeSet<_> = rows.iter().map(|r| r.title).collect();
        assert_eq!(names.len(), rows.len());
        assert_eq!(titles.len(), rows.len());
    }
}
