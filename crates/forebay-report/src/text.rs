//! Makes text from logs harmless. File names and command lines may hold anything but NUL.

pub use forebay_types::is_deceptive;
use std::fmt::Write as _;

/// Makes a name printable and unambiguous. Bytes that are not UTF-8 become `\xNN`. Control characters (and so terminal
/// escapes) and characters that turn, hide or join text become `\u{N}`. The rest stays as it is.
pub fn printable(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_deceptive(c) {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            } else {
                out.push(c);
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// Shortens a text in the middle to at most `width` characters. The end stays, because file names differ there.
pub fn shorten(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    if width <= 3 {
        return "...".chars().take(width).collect();
    }
    let head = (width - 3) / 3;
    let tail = width - 3 - head;
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(length - tail).collect();
    format!("{start}...{end}")
}

/// Makes JSON safe in a `<script>` element: nothing in it can end the element or open a comment.
pub fn json_in_html(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

/// The same text with processes in the place of ranks.
pub(crate) fn speak_of_processes(text: &str) -> String {
    let words = text.split_inclusive(|c: char| !c.is_alphanumeric());
    let mut is_in_path = false;
    let words = words.map(|word| {
        let bare = word.trim_end_matches(|c: char| !c.is_alphanumeric());
        let end = &word[bare.len()..];
        let is_part = is_in_path || end.starts_with('/');
        is_in_path = end.ends_with('/');
        match bare {
            _ if is_part => word.to_owned(),
            "rank" => format!("process{end}"),
            "ranks" => format!("processes{end}"),
            _ => word.to_owned(),
        }
    });
    words.collect()
}

/// Wraps a text between words into lines of at most `width` characters. A longer word gets a line of its own.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut length = 0;
    for word in text.split_whitespace() {
        let word_length = word.chars().count();
        if length > 0 && length + 1 + word_length > width {
            lines.push(String::new());
            length = 0;
        }
        let line = lines.last_mut().expect("there is always a line");
        if length > 0 {
            line.push(' ');
            length += 1;
        }
        line.push_str(word);
        length += word_length;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_escapes_and_broken_utf8_become_visible() {
        assert_eq!(
            printable(b"a\x1b[31mred\x07\xff.dat"),
            "a\\u{1b}[31mred\\u{7}\\xff.dat"
        );
        assert_eq!(
            printable("caf\u{e9}/\u{4f60}".as_bytes()),
            "caf\u{e9}/\u{4f60}"
        );
        // A name that would show as "exe.dat" while it ends in ".exe".
        assert_eq!(printable("\u{202e}tad.exe".as_bytes()), "\\u{202e}tad.exe");
        assert_eq!(printable(b"a\nb\tc"), "a\\u{a}b\\u{9}c");
    }

    #[test]
    fn shortening_keeps_the_end_of_a_name() {
        assert_eq!(shorten("short", 10), "short");
        let long = shorten("/pfs/project/user/run/checkpoint.0001", 20);
        assert_eq!(long.chars().count(), 20);
        assert!(long.ends_with("point.0001"), "{long}");
        assert_eq!(shorten("abcdef", 2), "..");
        assert_eq!(
            shorten("\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}", 6)
                .chars()
                .count(),
            6
        );
    }

    #[test]
    fn no_text_can_leave_its_place_in_the_page() {
        let json = json_in_html("\"</script><!--<script>&\"");
        assert!(!json.contains('<') && !json.contains('&'), "{json}");
        assert!(json.contains("\\u003c/script\\u003e"));
    }

    #[test]
    fn ranks_are_called_processes_and_other_words_stay() {
        assert_eq!(
            speak_of_processes("the mean rank's time; all ranks (rank 3), ranked, 'frank'"),
            "the mean process's time; all processes (process 3), ranked, 'frank'"
        );
    }

    #[test]
    fn lines_are_wrapped_between_words() {
        assert_eq!(wrap("aa bb cc dd", 5), ["aa bb", "cc dd"]);
        assert_eq!(wrap("a verylongword b", 4), ["a", "verylongword", "b"]);
        assert_eq!(wrap("", 4), [""]);
    }
}
