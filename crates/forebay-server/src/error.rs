//! Why a bridge can't start, can't be checked, or could not end in order.

use crate::format::FormatError;
use crate::instance::TABLES;
use forebay_admin::AdminError;
use forebay_core::claim::{Claim, Taken};
use forebay_core::process_limits::TooLow;
use forebay_core::record::ObjectName;
use forebay_core::reserve::Purpose;
use forebay_core::root_dir::RootNote;
use forebay_core::table::TableError;
use forebay_mover::Halt;
use forebay_objects::LabelError;
use forebay_sys::{self as sys, Errno};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Where a lock is that keeps a buffer from a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// In the directory itself.
    Here,
    /// In one that holds it.
    Above,
    /// In one that it holds.
    Below,
}

/// Why a bridge can't start, can't be checked, or could not end in order. One clear line.
#[derive(Debug)]
pub enum Error {
    /// Another bridge is using the storage.
    InUse {
        /// The instance directory.
        instance: PathBuf,
    },
    /// Others may change what is in this directory, or have made it.
    NotPrivate {
        /// The directory.
        dir: PathBuf,
        /// The user that it belongs to.
        owner: u32,
    },
    /// The storage holds the buffer over another directory.
    OtherRoot {
        /// The instance directory.
        instance: PathBuf,
        /// The buffer root that it is for.
        holds: PathBuf,
        /// The buffer root that it was to serve.
        asked: PathBuf,
    },
    /// The storage holds something for another directory than the one that has the path of the buffer root now.
    OtherDirectory {
        /// The instance directory.
        instance: PathBuf,
        /// The buffer root.
        root: PathBuf,
        /// The directory that it is for.
        noted: RootNote,
        /// The directory that is there now.
        now: RootNote,
    },
    /// Another buffer has the directory, or one above or in it.
    Locked {
        /// The buffer root that was to be served.
        asked: PathBuf,
        /// Where the lock is.
        place: Where,
        /// The directory with the lock.
        dir: PathBuf,
        /// What it says, and why it counts. `None`: it can't be read.
        by: Option<Box<(Claim, Taken)>>,
    },
    /// The buffer would hold itself.
    StorageInBuffer {
        /// The storage directory.
        storage: PathBuf,
        /// The buffer root.
        root: PathBuf,
    },
    /// What should be an instance directory is no directory.
    NoInstance {
        /// The path.
        instance: PathBuf,
    },
    /// An instance has no tables, and no objects to make them from.
    NoTables {
        /// The instance directory.
        instance: PathBuf,
    },
    /// An instance has lost its tables, or what they said last, while objects are there. No object has been changed.
    TablesLost {
        /// The instance directory.
        instance: PathBuf,
    },
    /// Only root may read the labels of this instance, and this process may not.
    LabelsOfRoot {
        /// The instance directory.
        instance: PathBuf,
    },
    /// An instance does not say which buffer root it is for.
    NoRoot {
        /// The instance directory.
        instance: PathBuf,
    },
    /// There is no safe place for the socket.
    Socket(AdminError),
    /// A system call on a file or directory failed.
    Io {
        /// What was tried, as "can't open".
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// A system call on something without a path failed.
    System {
        /// What was tried, as "can't set up signals".
        operation: &'static str,
        /// What the system said.
        cause: io::Error,
    },
    /// A system call on a backing object failed.
    Object {
        /// Which.
        object: ObjectName,
        /// What the system said.
        cause: Errno,
    },
    /// The label of a backing object can't be read.
    Label {
        /// Of which.
        object: ObjectName,
        /// Why.
        cause: LabelError,
    },
    /// A backing object can't be given its label.
    Unlabelled {
        /// Which.
        object: ObjectName,
        /// Why.
        why: String,
    },
    /// The storage has a format that this program can't use.
    Format(FormatError),
    /// The tables failed or are damaged.
    Tables(TableError),
    /// A limit of this process is too low.
    TooLow(TooLow),
    /// The storage is full, and this is how it showed.
    Full {
        /// The instance directory.
        instance: PathBuf,
        /// The buffer root.
        root: PathBuf,
        /// What the bridge was to be started for.
        purpose: Purpose,
        /// What failed.
        cause: Box<Error>,
    },
    /// What an earlier drain had begun could not be taken up.
    Drain(Halt),
    /// An event loop failed.
    EventLoop(Errno),
    /// An event loop met a broken assertion.
    EventLoopPanicked,
    /// The bridge ends while requests still wait.
    StillWaiting,
    /// The bridge ends while a control message is still being answered.
    StillAnswering,
}

impl Error {
    /// What the user can do, if that is not plain.
    pub fn hint(&self) -> Option<String> {
        if let Error::TooLow(why) = self {
            return Some(why.remedy().to_owned());
        }
        if let Error::Full {
            instance,
            root,
            purpose,
            ..
        } = self
        {
            let storage = instance.parent().unwrap_or(instance);
            return Some(match purpose {
                Purpose::Serve => format!(
                    "to bring what it holds to the PFS, run: forebay drain --buffer {} --storage {}",
                    root.display(),
                    storage.display()
                ),
                Purpose::BringAway | Purpose::EndEmpty => {
                    format!(
                        "free some space in the file system of {}",
                        storage.display()
                    )
                }
            });
        }
        if let Error::OtherDirectory { instance, root, .. } = self {
            return Some(format!(
                "mount it or move the directory back, and run the same command again. To bring the files to the directory that is there now, run: forebay drain --buffer {} --storage {} --root-has-moved",
                root.display(),
                instance.parent().unwrap_or(instance).display()
            ));
        }
        if let Error::TablesLost { instance } = self {
            // Of this instance alone: a rebuild of others could undo what their bridges did last.
            return Some(format!(
                "to make the tables anew from the labels of these files, run: forebay fsck --rebuild --storage {}",
                instance.display()
            ));
        }
        let Error::Locked { dir, by, .. } = self else {
            return None;
        };
        let unlock = format!("forebay unlock --buffer {}", dir.display());
        let Some((claim, why)) = by.as_deref() else {
            return Some(format!("if no buffer has this directory, run: {unlock}"));
        };
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let theirs = format!(
            "--buffer {} --storage {}",
            text(&claim.root),
            text(claim.storage_path())
        );
        Some(match why {
            Taken::Running => {
                format!("use it with {theirs}, or end it first: forebay down {theirs}")
            }
            Taken::Undrained => format!(
                "to bring them to the PFS and free the directory, run: forebay drain {theirs}"
            ),
            Taken::Closed => format!(
                "user {} frees the directory with: forebay drain {theirs}; if that storage is given up for good, run: {unlock}",
                claim.uid
            ),
            Taken::Missing => format!(
                "when it is there again, run: forebay drain {theirs}; if it is given up for good, run: {unlock}"
            ),
            Taken::Elsewhere => format!(
                "on host {} run: forebay drain {theirs}; if that storage is given up for good, run: {unlock}",
                text(&claim.host)
            ),
        })
    }

    /// Did it fail because a file system is full, or a quota is?
    pub(crate) fn is_no_space(&self) -> bool {
        match self {
            Error::Tables(e) => e.is_no_space(),
            Error::Drain(Halt::Fault(fault)) => fault.is_no_space(),
            Error::Io { cause, .. } | Error::System { cause, .. } => matches!(
                cause.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            ),
            _ => false,
        }
    }

    pub(crate) fn io(operation: &'static str, path: &Path, cause: impl Into<io::Error>) -> Self {
        Error::Io {
            operation,
            path: path.to_owned(),
            cause: cause.into(),
        }
    }

    pub(crate) fn system(operation: &'static str, cause: Errno) -> Self {
        Error::System {
            operation,
            cause: cause.into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::InUse { instance } => {
                write!(f, "another bridge is using {}", instance.display())
            }
            Error::NotPrivate { dir, owner } if *owner == sys::my_ids().0 => write!(
                f,
                "{} is no directory that only its owner can write to",
                dir.display()
            ),
            Error::NotPrivate { dir, owner } => {
                let name = sys::user_name(*owner).unwrap_or_else(|| owner.to_string());
                write!(
                    f,
                    "{} belongs to {name}, not to the user of this process",
                    dir.display()
                )
            }
            Error::OtherRoot {
                instance,
                holds,
                asked,
            } => write!(
                f,
                "{} holds the buffer over {}, not over {}",
                instance.display(),
                holds.display(),
                asked.display()
            ),
            Error::OtherDirectory {
                instance,
                root,
                noted,
                now,
            } => write!(
                f,
                "{} holds files for the directory that was {root} ({noted}), and another one is there now ({now}): is the PFS mounted?",
                instance.parent().unwrap_or(instance).display(),
                root = root.display(),
            ),
            Error::Locked {
                asked,
                place,
                dir,
                by,
            } => {
                let (asked, dir) = (asked.display(), dir.display());
                match place {
                    Where::Here => write!(f, "another buffer has {dir}")?,
                    Where::Above => {
                        write!(f, "{asked} lies in {dir}, which another buffer has")?;
                    }
                    Where::Below => write!(f, "in {asked} lies {dir}, which another buffer has")?,
                }
                match by.as_deref() {
                    Some((claim, why)) => write!(f, " ({claim}): {why}"),
                    None => f.write_str(": what its lock says can't be read"),
                }
            }
            Error::StorageInBuffer { storage, root } => write!(
                f,
                "the storage {} lies inside the buffer {}",
                storage.display(),
                root.display()
            ),
            Error::NoInstance { instance } => {
                write!(f, "{} is not a directory", instance.display())
            }
            Error::NoTables { instance } => write!(
                f,
                "{} has no tables, and nothing to make them from",
                instance.display()
            ),
            Error::LabelsOfRoot { instance } => write!(
                f,
                "the labels in {} can only be read by root with CAP_SYS_ADMIN, in the first user namespace",
                instance.display()
            ),
            Error::TablesLost { instance } => write!(
                f,
                "{} has lost its tables (in the directory {TABLES}), and holds files all the same",
                instance.display()
            ),
            Error::NoRoot { instance } => write!(
                f,
                "{} does not say which buffer it is for",
                instance.display()
            ),
            Error::Socket(e) => e.fmt(f),
            Error::Io {
                operation,
                path,
                cause,
            } => write!(f, "{operation} {}: {cause}", path.display()),
            Error::System { operation, cause } => write!(f, "{operation}: {cause}"),
            Error::Object { object, cause } => write!(f, "backing object {object}: {cause}"),
            Error::Label { object, cause } => write!(f, "label of backing object {object}: {cause}"),
            Error::Unlabelled { object, why } => {
                write!(f, "backing object {object} could not be labelled: {why}")
            }
            Error::Format(e) => e.fmt(f),
            Error::Tables(e) => e.fmt(f),
            Error::TooLow(why) => why.fmt(f),
            Error::Full {
                instance,
                purpose,
                cause,
                ..
            } => {
                let instance = instance.display();
                match purpose {
                    Purpose::Serve => write!(
                        f,
                        "the storage of {instance} is full, and the last of it is kept for a drain: {cause}"
                    ),
                    Purpose::BringAway | Purpose::EndEmpty => write!(f, "the storage of {instance} is full: {cause}"),
                }
            }
            Error::Drain(halt) => halt.fmt(f),
            Error::EventLoop(cause) => write!(f, "an event loop failed: {cause}"),
            Error::EventLoopPanicked => f.write_str("an event loop panicked"),
            Error::StillAnswering => f.write_str("a control message is still being answered"),
            Error::StillWaiting => f.write_str("requests could not be answered in time; their programs repeat them to the next bridge"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Socket(e) => Some(e),
            Error::Io { cause, .. } | Error::System { cause, .. } => Some(cause),
            Error::Format(e) => Some(e),
            Error::Label { cause, .. } => Some(cause),
            Error::Tables(e) => Some(e),
            Error::Full { cause, .. } => Some(cause),
            _ => None,
        }
    }
}

impl From<FormatError> for Error {
    fn from(e: FormatError) -> Self {
        Error::Format(e)
    }
}

impl From<TableError> for Error {
    fn from(e: TableError) -> Self {
        Error::Tables(e)
    }
}

impl From<Halt> for Error {
    fn from(halt: Halt) -> Self {
        Error::Drain(halt)
    }
}
