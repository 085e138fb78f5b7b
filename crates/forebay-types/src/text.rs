//! Text that somebody else has written, for a log or a terminal.

/// True for characters that would deceive who reads a name: control characters, line separators, bidirectional controls, zero-width
/// characters, tags; and for those that no text has.
pub fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(u32::from(c),
            0xad | 0x61c | 0x180e | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f
            | 0xfeff | 0xfff9..=0xfffb | 0xfffe | 0xffff | 0xe0000..=0xe007f)
}

/// A text in one line, with its deceptive characters as escapes of Rust.
#[derive(Debug, Clone, Copy)]
pub struct OneLine<'a>(pub &'a str);

impl core::fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        use core::fmt::Write as _;
        for c in self.0.chars() {
            match is_deceptive(c) {
                true => write!(f, "{}", c.escape_default())?,
                false => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::ToString;

    #[test]
    fn a_text_makes_one_line_and_turns_nothing() {
        let told = OneLine("a\nroot::0:0::/:/bin/sh\n\u{1b}[2J \u{202e}\u{ffff} b").to_string();
        assert_eq!(
            told,
            "a\\nroot::0:0::/:/bin/sh\\n\\u{1b}[2J \\u{202e}\\u{ffff} b"
        );
    }
}
