//! Which format a storage has: `format.json` in the instance directory.
//!
//! The *storage format* is everything that a bridge finds there at its start: names of files and directories, labels,
//! tables, records, the journal. It has one number. A program knows the formats up to [`CURRENT`] and brings an older
//! storage up to it, step by step. It touches nothing of a newer one, and nothing of one whose format it can't tell.
//!
//! | format | what is new |
//! |---|---|
//! | 1 | no `format.json` |
//! | 2 | `format.json` |
//! | 3 | the journal is in two files; `quarantine/` |
//! | 4 | copies of PFS files have ids of their own |
//! | 5 | labels may be such that only root changes them |
//! | 6 | the marker of a removal may have no file yet: a mark in the tables says so |
//! | 7 | the label of something renamed tells what it was |

use crate::durable;
use crate::instance::holds_objects;
use forebay_objects::label::LabelsOf;
use forebay_sys as sys;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// The format that this program writes.
pub const CURRENT: u32 = 7;

const FORMAT_FILE: &str = "format.json";
/// More than any program will write there.
const MAX_FORMAT_BYTES: u64 = 4096;
/// What lies in the directory of an instance that a bridge has served from, in any format.
const TRACES: [&str; 4] = ["root", "meta", "obj", "dir"];

/// This program, as it signs.
const PROGRAM: &str = concat!("forebay ", env!("CARGO_PKG_VERSION"));

/// The contents of the file. Later formats may add to it, so what is not known is passed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Format {
    /// The number.
    format: u32,
    /// The program that wrote the file.
    written_by: String,
    /// Only root changes the labels.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    labels_of_root: bool,
}

/// What a look at an instance directory says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing of a bridge is there.
    New,
    /// A storage in this format, which is at most [`CURRENT`], with these labels.
    Known(u32, LabelsOf),
}

/// Why a storage can't be used. Nothing in it has been changed then.
#[derive(Debug)]
pub enum FormatError {
    /// A later program wrote it.
    Newer {
        /// The instance directory.
        dir: PathBuf,
        /// Its format.
        format: u32,
        /// The program that wrote it.
        written_by: String,
    },
    /// The file does not say what it should.
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// The file system says no.
    Io {
        /// On what.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// A step to a later format has failed. The storage is in the format before it.
    Step {
        /// The instance directory.
        dir: PathBuf,
        /// The format before the step.
        from: u32,
        /// Why.
        cause: io::Error,
    },
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FormatError::Newer {
                dir,
                format,
                written_by,
            } => write!(
                f,
                "{} has storage format {format}, written by {written_by}; this is {PROGRAM}, which knows formats up to \
                 {CURRENT}: use {written_by} or later for it",
                dir.display()
            ),
            FormatError::Damaged { path, cause } => write!(
                f,
                "{} is damaged ({cause}), so the format of the storage is not known; if no later program than {PROGRAM} \
                 has used the storage, remove this file and start again",
                path.display()
            ),
            FormatError::Io { path, cause } => write!(f, "{}: {cause}", path.display()),
            FormatError::Step { dir, from, cause } => write!(
                f,
                "can't bring {} from storage format {from} to {}: {cause}",
                dir.display(),
                from + 1
            ),
        }
    }
}

impl std::error::Error for FormatError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            FormatError::Io { cause, .. } | FormatError::Step { cause, .. } => Some(cause),
            FormatError::Newer { .. } | FormatError::Damaged { .. } => None,
        }
    }
}

/// Brings a storage from one format to the next. A step must find its work done, in part or as a whole: the program may
/// have died after it.
type Step = fn(&Path) -> io::Result<()>;

/// The steps, by the format that they begin with: the first one leads from format 1 to 2.
const STEPS: [Step; CURRENT as usize - 1] = [
    begin_format_2,
    begin_format_3,
    begin_format_4,
    begin_format_5,
    begin_format_6,
    begin_format_7,
];

/// Format 2 has the file, and that is written after each step. All else is as in format 1.
fn begin_format_2(_dir: &Path) -> io::Result<()> {
    Ok(())
}

/// The tables take the journal of format 2 over when they are opened.
fn begin_format_3(_dir: &Path) -> io::Result<()> {
    Ok(())
}

/// Only new copies are otherwise.
fn begin_format_4(_dir: &Path) -> io::Result<()> {
    Ok(())
}

/// Its labels stay as they are.
fn begin_format_5(_dir: &Path) -> io::Result<()> {
    Ok(())
}

/// All of its files are there.
fn begin_format_6(_dir: &Path) -> io::Result<()> {
    Ok(())
}

/// Labels of older formats are still right.
fn begin_format_7(_dir: &Path) -> io::Result<()> {
    Ok(())
}

/// Looks which format the storage in `dir` has. Changes nothing.
///
/// # Errors
/// It is newer than this program, or can't be told.
pub(crate) fn look(dir: &Path) -> Result<Found, FormatError> {
    let path = dir.join(FORMAT_FILE);
    let failed = |cause| FormatError::Io {
        path: path.clone(),
        cause,
    };
    let damaged = |cause: &dyn fmt::Display| FormatError::Damaged {
        path: path.clone(),
        cause: cause.to_string(),
    };
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let used = TRACES.iter().any(|name| dir.join(name).exists());
            return Ok(if used {
                Found::Known(1, LabelsOf::Owners)
            } else {
                Found::New
            });
        }
        Err(e) => return Err(failed(e)),
    };
    let mut bytes = Vec::new();
    file.take(MAX_FORMAT_BYTES)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.is_empty() {
        return Err(damaged(&"it is empty"));
    }
    let says: Format = serde_json::from_slice(&bytes).map_err(|e| damaged(&e))?;
    // A file that calls itself format 1 can't be: that one has no file.
    if says.format < 2 {
        return Err(damaged(&format_args!("it names format {}", says.format)));
    }
    if says.written_by.chars().any(char::is_control) {
        return Err(damaged(&"the name of the program is none"));
    }
    if says.format > CURRENT {
        return Err(FormatError::Newer {
            dir: dir.to_owned(),
            format: says.format,
            written_by: says.written_by,
        });
    }
    let labels = match says.labels_of_root {
        true => LabelsOf::Root,
        false => LabelsOf::Owners,
    };
    Ok(Found::Known(says.format, labels))
}

/// Brings the storage in `dir` up to [`CURRENT`] and writes that down after each step. The caller holds the lock of the
/// instance. Gives which labels it has, and the format that it had, if that was another one.
///
/// # Errors
/// The file system says no. The storage is whole, in the format before or in one on the way.
pub(crate) fn bring_up_to_date(
    dir: &Path,
    found: Found,
) -> Result<(LabelsOf, Option<u32>), FormatError> {
    // Without objects there are no labels yet.
    let best = || {
        let failed = |cause| FormatError::Io {
            path: dir.to_owned(),
            cause,
        };
        if holds_objects(dir).unwrap_or(true) {
            return Ok(None);
        }
        let opened = sys::open_path(dir, libc::O_RDONLY | libc::O_DIRECTORY);
        let opened = opened.map_err(|e| failed(e.into()))?;
        Ok(Some(LabelsOf::best(opened.as_fd())))
    };
    match found {
        Found::New => {
            let labels = best()?.unwrap_or(LabelsOf::Owners);
            write(dir, CURRENT, labels).map(|()| (labels, None))
        }
        Found::Known(before, labels) => {
            climb(dir, before, labels, &STEPS)?;
            let now = best()?.unwrap_or(labels);
            if now != labels {
                write(dir, CURRENT, now)?;
            }
            Ok((now, (before != CURRENT).then_some(before)))
        }
    }
}

/// Takes the steps from format `before` on, the first of which begins with format 1.
fn climb(dir: &Path, before: u32, labels: LabelsOf, steps: &[Step]) -> Result<(), FormatError> {
    assert!(before >= 1, "the formats begin with 1");
    for (from, step) in (1..).zip(steps).skip(before as usize - 1) {
        step(dir).map_err(|cause| FormatError::Step {
            dir: dir.to_owned(),
            from,
            cause,
        })?;
        write(dir, from + 1, labels)?;
    }
    Ok(())
}

/// Writes the file. It is durable when this returns, and whole at any moment.
fn write(dir: &Path, format: u32, labels: LabelsOf) -> Result<(), FormatError> {
    let path = dir.join(FORMAT_FILE);
    let says = Format {
        format,
        written_by: PROGRAM.to_owned(),
        labels_of_root: labels == LabelsOf::Root,
    };
    let text = serde_json::to_vec(&says).map_err(io::Error::from);
    text.and_then(|mut bytes| {
        bytes.push(b'\n');
        durable::replace(&path, &bytes)
    })
    .map_err(|cause| FormatError::Io { path, cause })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::DirBuilderExt;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A folder of its own, removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let n = NUMBER.fetch_add(1, Ordering::Relaxed);
            let dir = std::env::temp_dir().join(format!("fby-format-{}-{n}", std::process::id()));
            fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
            Folder(dir)
        }
        fn with(bytes: &[u8]) -> Self {
            let folder = Folder::new();
            fs::write(folder.0.join(FORMAT_FILE), bytes).unwrap();
            folder
        }
        fn names(&self) -> Vec<String> {
            let mut names: Vec<_> = fs::read_dir(&self.0)
                .unwrap()
                .map(|e| e.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_new_storage_gets_the_current_format() {
        let folder = Folder::new();
        fs::write(folder.0.join("lock"), "").unwrap();
        assert_eq!(look(&folder.0).unwrap(), Found::New);
        let (labels, before) = bring_up_to_date(&folder.0, Found::New).unwrap();
        assert_eq!(before, None);
        assert_eq!(look(&folder.0).unwrap(), Found::Known(CURRENT, labels));
        assert_eq!(folder.names(), ["format.json", "lock"]);
        let text = fs::read_to_string(folder.0.join(FORMAT_FILE)).unwrap();
        let of_root = match labels {
            LabelsOf::Root => ",\"labels_of_root\":true",
            LabelsOf::Owners => "",
        };
        assert_eq!(
            text,
            format!("{{\"format\":{CURRENT},\"written_by\":\"{PROGRAM}\"{of_root}}}\n")
        );
    }

    #[test]
    fn a_storage_without_the_file_has_format_1_and_is_brought_up() {
        for trace in TRACES {
            let folder = Folder::new();
            fs::write(folder.0.join(trace), "").unwrap();
            // What a program has left that died while it wrote the file.
            fs::write(folder.0.join("format.json.new"), "{\"for").unwrap();
            let found = look(&folder.0).unwrap();
            assert_eq!(found, Found::Known(1, LabelsOf::Owners), "{trace}");
            // What can't be listed may hold objects.
            let labels = match trace {
                "obj" | "dir" => LabelsOf::Owners,
                _ => LabelsOf::best(fs::File::open(&folder.0).unwrap().as_fd()),
            };
            let known = bring_up_to_date(&folder.0, found).unwrap();
            assert_eq!(known, (labels, Some(1)));
            assert_eq!(look(&folder.0).unwrap(), Found::Known(CURRENT, labels));
            assert_eq!(folder.names().len(), 2, "the file and {trace}");
        }
    }

    #[test]
    fn a_newer_storage_is_refused_and_both_versions_are_named() {
        let newer = CURRENT + 1;
        let told =
            format!(r#"{{"format": {newer}, "shards": [1, 2], "written_by": "forebay 3.1.4"}}"#);
        let folder = Folder::with(told.as_bytes());
        let error = look(&folder.0).unwrap_err();
        assert!(matches!(error, FormatError::Newer { format, .. } if format == newer));
        let text = error.to_string();
        let formats = [format!("format {newer}"), format!("up to {CURRENT}")];
        for part in [&formats[0], &formats[1], "forebay 3.1.4", PROGRAM] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(text.lines().count(), 1);
        assert_eq!(folder.names(), ["format.json"]);
    }

    #[test]
    fn a_file_that_does_not_tell_the_format_is_an_error() {
        let cases: [&[u8]; 9] = [
            b"",
            b"2",
            b"{}",
            b"{\"format\":2,\"writ",
            b"{\"format\":1,\"written_by\":\"forebay 0.1.0\"}",
            b"{\"format\":0,\"written_by\":\"forebay 0.1.0\"}",
            b"{\"format\":9,\"written_by\":\"fore\\nbay\"}",
            b"{\"format\":-2,\"written_by\":\"forebay 0.1.0\"}",
            &[0; 5000],
        ];
        for bytes in cases {
            let folder = Folder::with(bytes);
            let error = look(&folder.0).unwrap_err();
            assert!(matches!(error, FormatError::Damaged { .. }), "{error}");
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
            assert_eq!(fs::read(folder.0.join(FORMAT_FILE)).unwrap(), bytes);
        }
    }

    #[test]
    fn steps_are_taken_in_order_and_the_format_is_written_after_each() {
        fn note(dir: &Path, name: &str) -> io::Result<()> {
            let Found::Known(format, _) = look(dir).unwrap() else {
                panic!("no storage");
            };
            fs::write(dir.join(name), format.to_string())
        }
        let first: Step = |dir| note(dir, "first");
        let second: Step = |dir| note(dir, "second");
        let folder = Folder::new();
        fs::write(folder.0.join("root"), "/pfs").unwrap();
        // The last one leads to a format that `look` refuses.
        climb(
            &folder.0,
            1,
            LabelsOf::Owners,
            &[
                first,
                begin_format_3,
                begin_format_4,
                begin_format_5,
                begin_format_6,
                begin_format_7,
                second,
            ],
        )
        .unwrap();
        let noted = |name| fs::read_to_string(folder.0.join(name)).unwrap();
        assert_eq!(
            (noted("first"), noted("second")),
            ("1".into(), CURRENT.to_string())
        );
        let error = look(&folder.0).unwrap_err();
        assert!(matches!(error, FormatError::Newer { format, .. } if format == CURRENT + 1));

        // Begun later, the earlier steps are not taken.
        let folder = Folder::with(br#"{"format": 2, "written_by": "forebay 0.1.0"}"#);
        climb(&folder.0, 2, LabelsOf::Root, &[first, second]).unwrap();
        assert_eq!(folder.names(), ["format.json", "second"]);
        assert_eq!(look(&folder.0).unwrap(), Found::Known(3, LabelsOf::Root));
    }

    #[test]
    fn a_step_that_fails_leaves_the_format_before_it() {
        let fails: Step = |_| Err(io::ErrorKind::StorageFull.into());
        let folder = Folder::new();
        fs::write(folder.0.join("root"), "/pfs").unwrap();
        let error = climb(&folder.0, 1, LabelsOf::Owners, &[begin_format_2, fails]).unwrap_err();
        assert!(matches!(error, FormatError::Step { from: 2, .. }));
        assert!(error.to_string().contains("from storage format 2 to 3"));
        assert_eq!(look(&folder.0).unwrap(), Found::Known(2, LabelsOf::Owners));
    }
}
