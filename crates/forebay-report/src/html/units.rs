//! Numbers with their units as the page writes them: no line breaks between them.

use crate::units;

pub(super) use units::{count, date, number, share};

/// A blank at which no line breaks.
const NO_BREAK: &str = "\u{a0}";

/// Units that stand behind a number and a blank.
const UNITS: [&str; 19] = [
    "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "B/s", "KiB/s", "MiB/s", "GiB/s", "TiB/s",
    "PiB/s", "us", "ms", "s", "min", "h", "%",
];

/// [`units::bytes`] in one piece.
pub(super) fn bytes(n: u64) -> String {
    in_one_piece(&units::bytes(n))
}

/// [`units::rate`] in one piece.
pub(super) fn rate(bytes: u64, seconds: f64) -> String {
    in_one_piece(&units::rate(bytes, seconds))
}

/// [`units::seconds`] in one piece.
pub(super) fn seconds(s: f64) -> String {
    in_one_piece(&units::seconds(s))
}

/// [`units::percent`] in one piece.
pub(super) fn percent(share: f64) -> String {
    in_one_piece(&units::percent(share))
}

/// A text without a place to break a line at a blank.
pub(super) fn in_one_piece(text: &str) -> String {
    text.replace(' ', NO_BREAK)
}

/// A sentence that breaks nowhere between a number and its unit, nor within `4 min 05 s` and `< 1 %`.
pub(super) fn unbroken(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    let mut out = String::with_capacity(text.len() + 8);
    for (at, word) in words.iter().enumerate() {
        if at > 0 {
            let before = at.checked_sub(2).map_or("", |at| words[at]);
            let is_whole = belongs_to(words[at - 1], word) || is_clock(before, words[at - 1], word);
            out.push_str(if is_whole { NO_BREAK } else { " " });
        }
        out.push_str(word);
    }
    out
}

/// True for `5` before `MiB,`, and for `<` before `1`.
fn belongs_to(word: &str, next: &str) -> bool {
    let unit = next.trim_end_matches(|c: char| c.is_ascii_punctuation() && c != '%');
    let is_sign = matches!(word.trim_start_matches('('), "<" | ">");
    (word.ends_with(|c: char| c.is_ascii_digit()) && UNITS.contains(&unit))
        || (is_sign && next.starts_with(|c: char| c.is_ascii_digit()))
}

/// True for `min` between `4` and `05`.
fn is_clock(number: &str, unit: &str, next: &str) -> bool {
    let is_two = next.len() >= 2 && next.as_bytes()[..2].iter().all(u8::is_ascii_digit);
    number.ends_with(|c: char| c.is_ascii_digit()) && matches!(unit, "min" | "h") && is_two
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_its_unit_stay_on_one_line() {
        assert_eq!(bytes(5 << 20), "5.0\u{a0}MiB");
        assert_eq!(seconds(245.0), "4\u{a0}min\u{a0}05\u{a0}s");
        assert_eq!(percent(0.001), "<\u{a0}1\u{a0}%");
        assert_eq!(rate(10 << 20, 2.0), "5.0\u{a0}MiB/s");
        assert_eq!(
            unbroken("up to 50.1 GiB, 4 min 05 s (< 1 % of the run): 3 s. At 1,024 B/s"),
            "up to 50.1\u{a0}GiB, 4\u{a0}min\u{a0}05\u{a0}s (<\u{a0}1\u{a0}% of the run): 3\u{a0}s. At 1,024\u{a0}B/s"
        );
    }

    #[test]
    fn other_words_may_stand_on_two_lines() {
        for text in [
            "30 files",
            "rank 3 spends",
            "a < b",
            "",
            " ",
            "s 5",
            "5 sums",
            "2 h walk",
        ] {
            let expected = if text == "2 h walk" {
                "2\u{a0}h walk"
            } else {
                text
            };
            assert_eq!(unbroken(text), expected);
        }
    }
}
