//! One module for each verb of the command line. A verb decides nothing about paths or data.

pub mod attach;
pub mod bridge;
pub mod collect;
pub mod doctor;
pub mod down;
pub mod drain;
pub mod enter;
pub mod fsck;
pub mod mount;
pub mod probe;
pub mod probe_client;
pub mod probe_folder;
pub mod quarantine;
pub mod record;
pub mod report;
pub mod run;
pub mod sim;
pub mod status;
pub mod unlock;
pub mod up;

use crate::cli::exit;
use crate::drain::Drained;
use crate::error::{Fault, fault};
use crate::place::{Place, plain};
use forebay_admin::instance_dir;
use forebay_report::text::is_deceptive;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name of this program, as the kernel shows it for its processes.
const PROGRAM: &str = "forebay";

/// This program, for another process.
pub fn own_command() -> Result<Command, Fault> {
    let exe =
        std::env::current_exe().map_err(|e| fault("cannot find my own executable").because(e))?;
    let mut command = Command::new(exe);
    // Under a buffer it would be its own client.
    command.env_remove("LD_PRELOAD");
    Ok(command)
}

/// The exact command that continues a drain.
pub fn drain_command(place: &Place) -> String {
    command("drain", place)
}

/// The exact command that lists what is in quarantine.
pub fn quarantine_command(place: &Place) -> String {
    command("quarantine", place)
}

/// The exact command of a verb for this buffer.
fn command(verb: &str, place: &Place) -> String {
    let quoted = |path: &Path| shell_word(path.as_os_str().as_encoded_bytes());
    format!(
        "forebay {verb} --buffer {} --storage {}",
        quoted(&place.root),
        quoted(&place.storage)
    )
}

/// The instance directory of a buffer, which a run has left.
fn instance_of(place: &Place) -> Result<PathBuf, Fault> {
    let instance = instance_dir(&place.storage, &place.root);
    match instance.is_dir() {
        true => Ok(instance),
        false => Err(fault(format!(
            "{} holds nothing for {}",
            place.storage.display(),
            place.root.display()
        ))
        .hint("name the storage of the run with --storage DIR")),
    }
}

/// Prints to standard output. If the reader closes it early, that is no error.
fn tell(text: &str) -> Result<(), Fault> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(fault(format!("standard output: {}", plain(&e))))
        }
        _ => Ok(()),
    }
}

/// Quotes a word for a shell, if it needs quotes.
pub fn shell_word(word: impl AsRef<[u8]>) -> String {
    let word = word.as_ref();
    let is_plain = |c: &u8| c.is_ascii_alphanumeric() || b"/._-+=:,@%".contains(c);
    match std::str::from_utf8(word) {
        Ok(text) if !word.is_empty() && word.iter().all(is_plain) => text.to_owned(),
        Ok(text) if !text.contains(is_deceptive) => {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
        // Nothing that a terminal obeys.
        _ => format!("$'{}'", word.escape_ascii()),
    }
}

/// A path as an argument that is no option, quoted for a shell.
pub fn shell_path(path: &[u8]) -> String {
    match path {
        [b'-', ..] => shell_word([b"./", path].concat()),
        path => shell_word(path),
    }
}

/// The exit code of a verb that drained.
fn drain_code(drained: &Drained) -> u8 {
    if drained.is_complete() {
        exit::OK
    } else {
        exit::DATA_LEFT
    }
}

#[cfg(test)]
mod tests {
    use super::{shell_path, shell_word};

    #[test]
    fn a_word_with_spaces_or_quotes_survives_the_shell() {
        assert_eq!(shell_word("/a/b-c.d"), "/a/b-c.d");
        assert_eq!(shell_word("a b"), "'a b'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word(""), "''");
        assert_eq!(shell_word("größe"), "'größe'");
    }

    #[test]
    fn a_word_that_a_terminal_obeys_or_that_is_no_text_is_written_in_escapes() {
        assert_eq!(shell_word("\x1b[2Jit's\n"), r"$'\x1b[2Jit\'s\n'");
        assert_eq!(shell_word(b"\xff a"), r"$'\xff a'");
    }

    #[test]
    fn a_path_that_looks_like_an_option_is_none() {
        assert_eq!(shell_path(b"--take"), "./--take");
        assert_eq!(shell_path(b"d/-x"), "d/-x");
    }
}
