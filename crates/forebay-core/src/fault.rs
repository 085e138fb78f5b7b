//! What fails below a decision or a drain, so that it can't go on.

use crate::drain::Trouble;
use crate::path::TreePath;
use crate::record::ObjectName;
use crate::table::TableError;
use std::fmt;

/// Why a decision, a request or a drain can't go on. A program gets EIO, the log gets the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The tables failed.
    Tables(TableError),
    /// A record names this object, and it is not there.
    ObjectGone(ObjectName),
    /// What a record or a look at the PFS had named was gone, each time that it was tried.
    NamesVanish,
    /// The value of the bridge itself under this key is not what was written there.
    DamagedValue(Vec<u8>),
    /// An earlier drain was killed here, and the PFS does not show what it has done: this was tried.
    KilledDrain {
        /// The record that it had marked.
        path: TreePath,
        /// What a look came to.
        trouble: Trouble,
    },
    /// The local disk failed.
    Disk(Trouble),
    /// A machine and its driver do not understand each other, which is a mistake in this program. In words.
    Mistake(String),
}

impl Fault {
    /// Is it that there is no space?
    pub fn is_no_space(&self) -> bool {
        match self {
            Fault::Tables(e) => e.is_no_space(),
            Fault::Disk(trouble) => matches!(trouble.errno, libc::ENOSPC | libc::EDQUOT),
            _ => false,
        }
    }
}

impl From<TableError> for Fault {
    fn from(e: TableError) -> Self {
        Fault::Tables(e)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Tables(e) => e.fmt(f),
            Fault::ObjectGone(object) => write!(f, "backing object {object} is gone"),
            Fault::NamesVanish => f.write_str(
                "what a record or a look at the PFS has named was not there any more, each time",
            ),
            Fault::DamagedValue(key) => write!(f, "damaged value of {}", key.escape_ascii()),
            Fault::KilledDrain { path, trouble } => write!(
                f,
                "{path}: an earlier drain was killed here, and the PFS does not show what it has done: {trouble}"
            ),
            Fault::Disk(trouble) => trouble.fmt(f),
            Fault::Mistake(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_other_faults() {
        let disk = |errno| {
            let operation = "write";
            Fault::Disk(Trouble { operation, errno })
        };
        assert!(Fault::from(TableError::no_space()).is_no_space());
        assert!(disk(libc::ENOSPC).is_no_space() && disk(libc::EDQUOT).is_no_space());
        assert!(!disk(libc::EIO).is_no_space());
        assert!(!Fault::from(TableError::Failed("no space".into())).is_no_space());
    }
}
