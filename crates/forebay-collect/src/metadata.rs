//! The `key=value` lines of a log. A log has 1,024 bytes for them, so they are ordered by importance, and a last
//! line says how many did not fit.

/// Bytes for all lines; the last one ends the text with a NUL.
const ROOM: usize = 1024 - 1;
/// The line that says how many lines are missing. Its length is always kept free.
const CUT: &str = "cut=";
/// Bytes that are kept free for it: a number of four digits and a newline.
const CUT_ROOM: usize = CUT.len() + 4 + 1;
/// Most bytes of a value that is a list, so that one line does not take all the room.
const MOST_LIST_BYTES: usize = 160;

/// The lines, the most important first.
#[derive(Debug, Clone, Default)]
pub struct Lines(Vec<(String, String)>);

impl Lines {
    /// Adds a line that is less important than all before it.
    pub fn add(&mut self, key: &str, value: impl ToString) {
        // A line ends with its first newline, and the whole text with its first NUL.
        let value = value.to_string().replace(['\n', '\r', '\0'], " ");
        self.0.push((key.to_owned(), value));
    }

    /// Adds a line if `condition` is true.
    pub fn add_if(&mut self, condition: bool, key: &str, value: impl ToString) {
        if condition {
            self.add(key, value);
        }
    }

    /// Adds a list: as many elements as there is room for, then how many more there are.
    pub fn add_list(&mut self, key: &str, elements: &[String]) {
        let mut value = String::new();
        for (n, element) in elements.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            if value.len() + comma.len() + element.len() > MOST_LIST_BYTES {
                value += &format!("{comma}+{}", elements.len() - n);
                break;
            }
            value += comma;
            value += element;
        }
        self.add_if(!elements.is_empty(), key, value);
    }

    /// All lines.
    pub fn all(self) -> Vec<(String, String)> {
        self.0
    }

    /// The lines that fit into a log. If not all do, the last line says how many were cut.
    pub fn fitted(self) -> Vec<(String, String)> {
        let length = |(key, value): &(String, String)| key.len() + 1 + value.len() + 1;
        let total: usize = self.0.iter().map(length).sum();
        if total <= ROOM {
            return self.0;
        }
        let mut left = ROOM - CUT_ROOM;
        let mut missing = 0;
        let mut fitted = Vec::new();
        for line in self.0 {
            if missing == 0 && length(&line) <= left {
                left -= length(&line);
                fitted.push(line);
            } else {
                missing += 1;
            }
        }
        fitted.push((CUT.trim_end_matches('=').to_owned(), missing.to_string()));
        debug_assert!(fitted.iter().map(length).sum::<usize>() <= ROOM);
        fitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(lines: &[(String, String)]) -> usize {
        lines.iter().map(|(k, v)| k.len() + v.len() + 2).sum()
    }

    #[test]
    fn lines_that_fit_are_all_there_in_their_order() {
        let mut lines = Lines::default();
        lines.add("nnodes", 2);
        lines.add_if(false, "degraded", "x");
        lines.add("exit", "signal 9\nsecond line");
        let fitted = lines.fitted();
        assert_eq!(fitted[0], ("nnodes".to_owned(), "2".to_owned()));
        assert_eq!(fitted[1].1, "signal 9 second line");
        assert_eq!(fitted.len(), 2);
    }

    #[test]
    fn what_is_cut_is_the_least_important_and_is_counted() {
        let mut lines = Lines::default();
        for n in 0..40 {
            lines.add(&format!("key{n}"), "x".repeat(50));
        }
        let fitted = lines.fitted();
        assert!(bytes(&fitted) <= ROOM, "{}", bytes(&fitted));
        let (last, kept) = fitted.split_last().unwrap();
        assert_eq!(last.0, "cut");
        assert_eq!(last.1, (40 - kept.len()).to_string());
        assert_eq!(kept[0].0, "key0");
        assert!(kept.len() > 10);
    }

    #[test]
    fn lines_that_fill_the_room_to_the_last_byte_are_not_cut() {
        let mut lines = Lines::default();
        lines.add("k", "x".repeat(ROOM - 3));
        assert_eq!(lines.clone().fitted().len(), 1);
        lines.add("k2", "");
        assert_eq!(lines.fitted(), [("cut".to_owned(), "2".to_owned())]);
    }

    #[test]
    fn a_long_list_says_how_many_more_there_are() {
        let hosts: Vec<String> = (0..100).map(|n| format!("node{n:04}")).collect();
        let mut lines = Lines::default();
        lines.add_list("hosts", &hosts);
        let value = &lines.fitted()[0].1;
        assert!(value.starts_with("node0000,node0001,"), "{value}");
        assert!(value.ends_with(",+83"), "{value}");
    }
}
