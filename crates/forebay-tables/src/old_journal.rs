//! The journal of storage formats 1 and 2, to be taken over once.
//!
//! One file of a mebibyte, written from its start to its end and then anew, each time with the number of a new lap. If the
//! lap that the store tells of has no entries, those of the lap before it are taken up.

use crate::journal::entries;
use forebay_core::table::TableError;
use std::io::ErrorKind;
use std::path::Path;

/// The entries of the journal at `path`; `None` if there is none.
///
/// # Errors
/// It can't be read.
pub(crate) fn read(path: &Path, lap: u64) -> Result<Option<Vec<Vec<u8>>>, TableError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(TableError::Failed(format!("journal: {e}"))),
    };
    let (mut found, _) = entries(&bytes, 0, |_| lap)?;
    if found.is_empty() && lap > 0 {
        (found, _) = entries(&bytes, 0, |_| lap - 1)?;
    }
    Ok(Some(found))
}
