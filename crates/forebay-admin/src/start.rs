//! The report of a bridge process about its start: one line to the process that started it.

use serde::{Deserialize, Serialize};

/// Why a bridge did not start, as far as callers branch on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StartFailure {
    /// Another bridge is using the storage.
    InUse,
    /// Anything else.
    #[serde(other)]
    Other,
}

/// How the start of a bridge process went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "start", rename_all = "kebab-case")]
pub enum StartReport {
    /// The bridge serves.
    Ready {
        /// Lines for people: what they should know of the start.
        notes: Vec<String>,
    },
    /// The bridge could not start.
    Failed {
        /// What callers branch on.
        failure: StartFailure,
        /// One line for people.
        message: String,
        /// What people can do.
        hint: Option<String>,
    },
}

impl StartReport {
    /// The report as one line, without the newline.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a line; `None` if it is no report.
    pub fn from_line(line: &str) -> Option<Self> {
        serde_json::from_str(line.trim_end()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_one_line_that_comes_back() {
        for report in [
            StartReport::Ready {
                notes: vec!["one".into()],
            },
            StartReport::Failed {
                failure: StartFailure::InUse,
                message: "two\nlines, \"quoted\"".into(),
                hint: None,
            },
        ] {
            let line = report.to_line();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(StartReport::from_line(&format!("{line}\n")), Some(report));
        }
        assert_eq!(StartReport::from_line(""), None);
        assert_eq!(StartReport::from_line("ready"), None);
        let newer = r#"{"start":"failed","failure":"moon-phase","message":"m"}"#;
        assert!(matches!(
            StartReport::from_line(newer),
            Some(StartReport::Failed {
                failure: StartFailure::Other,
                ..
            })
        ));
    }
}
