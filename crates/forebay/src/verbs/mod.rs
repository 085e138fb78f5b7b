//! One module for each verb of the command line. A verb decides nothing about paths or data.

pub mod bridge;
pub mod collect;
pub mod down;
pub mod drain;
pub mod fsck;
pub mod record;
pub mod report;
pub mod run;
pub mod sim;
pub mod status;
pub mod up;

use crate::cli::exit;
use crate::drain::Drained;
use crate::place::Place;

/// The exact command that continues a drain.
fn drain_command(place: &Place) -> String {
    let quoted = |path: &std::path::Path| shell_word(&path.to_string_lossy());
    format!(
        "forebay drain --buffer {} --storage {}",
        quoted(&place.root),
        quoted(&place.storage)
    )
}

/// Quotes a word for a shell, if it needs quotes.
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
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
    use super::shell_word;

    #[test]
    fn a_word_with_spaces_or_quotes_survives_the_shell() {
        assert_eq!(shell_word("/a/b-c.d"), "/a/b-c.d");
        assert_eq!(shell_word("a b"), "'a b'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word(""), "''");
    }
}
