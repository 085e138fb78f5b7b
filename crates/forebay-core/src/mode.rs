//! Consistency modes: what waits for the home, and when sizes are published.
//!
//! After HadaFS (TPDS'24), whose three modes are one choice per server spread
//! over a `switch` in every operation. Here a mode is one row of one table, per
//! path prefix, and the rest of the code asks the row.

use crate::path::TreePath;
use std::str::FromStr;

/// How much a change waits before it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// Nothing waits for the home; changes are published in the background.
    Async,
    /// Changes of names wait for the home; sizes are published on close and sync.
    #[default]
    Commit,
    /// As commit, and every write is published before it returns.
    Strong,
}

/// When the size of a file that grew becomes known to other bridges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PublishSize {
    /// In the background, after some time.
    InBackground,
    /// When the file is closed or synced, and in the background.
    OnCloseOrSync,
    /// Before a write returns.
    OnWrite,
}

/// What a mode means. One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Create, unlink, rename and truncate by path are answered only when the home has them.
    pub names_wait_for_home: bool,
    /// A look-up asks the home when the own tables don't know the path.
    pub lookup_asks_home: bool,
    /// Sizes.
    pub sizes: PublishSize,
    /// Longest time in microseconds that background publishing may lag behind.
    pub background_lag_us: u64,
}

impl Mode {
    /// The row of this mode.
    pub const fn rules(self) -> Rules {
        match self {
            Mode::Async => Rules {
                names_wait_for_home: false,
                lookup_asks_home: true,
                sizes: PublishSize::InBackground,
                background_lag_us: 800_000,
            },
            Mode::Commit => Rules {
                names_wait_for_home: true,
                lookup_asks_home: true,
                sizes: PublishSize::OnCloseOrSync,
                background_lag_us: 800_000,
            },
            Mode::Strong => Rules {
                names_wait_for_home: true,
                lookup_asks_home: true,
                sizes: PublishSize::OnWrite,
                background_lag_us: 0,
            },
        }
    }

    /// The name that the command line takes.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Async => "async",
            Mode::Commit => "commit",
            Mode::Strong => "strong",
        }
    }
}

/// Not the name of a mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownMode(pub String);

impl std::fmt::Display for UnknownMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "unknown mode {:?}: async, commit or strong", self.0)
    }
}

impl std::error::Error for UnknownMode {}

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(s: &str) -> Result<Self, UnknownMode> {
        [Mode::Async, Mode::Commit, Mode::Strong]
            .into_iter()
            .find(|m| m.name() == s)
            .ok_or_else(|| UnknownMode(s.to_owned()))
    }
}

/// The mode of every path: that of the longest prefix with one of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Modes {
    default: Mode,
    prefixes: Vec<(TreePath, Mode)>,
}

impl Modes {
    /// One mode for everything.
    pub fn new(default: Mode) -> Self {
        Modes {
            default,
            prefixes: Vec::new(),
        }
    }

    /// `prefix` and all below it have `mode`, unless a longer prefix says otherwise.
    pub fn set(&mut self, prefix: TreePath, mode: Mode) {
        self.prefixes.retain(|(p, _)| *p != prefix);
        self.prefixes.push((prefix, mode));
        // The longest first, so that the first hit is the answer.
        self.prefixes
            .sort_by_key(|(p, _)| std::cmp::Reverse(p.as_bytes().len()));
    }

    /// The mode of `path`.
    pub fn of(&self, path: &TreePath) -> Mode {
        self.prefixes
            .iter()
            .find(|(prefix, _)| path.is_within(prefix))
            .map_or(self.default, |(_, mode)| *mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(s: &str) -> TreePath {
        TreePath::new(s.as_bytes()).unwrap()
    }

    #[test]
    fn the_longest_prefix_decides_and_whole_components_count() {
        let mut modes = Modes::default();
        modes.set(p("ckpt"), Mode::Async);
        modes.set(p("ckpt/index"), Mode::Strong);
        assert_eq!(modes.of(&p("ckpt/rank0")), Mode::Async);
        assert_eq!(modes.of(&p("ckpt/index/a")), Mode::Strong);
        assert_eq!(modes.of(&p("ckpt2")), Mode::Commit);
        modes.set(p("ckpt"), Mode::Commit);
        assert_eq!(modes.of(&p("ckpt/rank0")), Mode::Commit);
    }

    #[test]
    fn every_mode_is_found_by_its_name_and_other_words_are_refused() {
        for mode in [Mode::Async, Mode::Commit, Mode::Strong] {
            assert_eq!(mode.name().parse(), Ok(mode));
        }
        assert!("m1".parse::<Mode>().is_err());
    }

    #[test]
    fn only_async_answers_before_the_home_knows() {
        assert!(!Mode::Async.rules().names_wait_for_home);
        assert!(Mode::Commit.rules().names_wait_for_home);
        assert_eq!(Mode::Strong.rules().sizes, PublishSize::OnWrite);
    }
}
