//! What happens, one step after the other, as a value and as text.

use crate::faults::history::Action;
use forebay_core::drain::Side;
use forebay_core::path::TreePath;
use forebay_core::record::Kind;
use std::fmt;
use std::str::FromStr;

/// A tree on the PFS, and what two writers do to it: the programs in the buffer and a neighbour on the PFS.
///
/// As text it is steps with semicolons between them: `start d/ d/a f; rename f x; drain keep; they write f`. The first ones
/// may be `start` with what the PFS holds (`/` ends a directory, `b=a` is another name of the file `a`), `stage`: files of the PFS are staged, `others` with what another
/// user owns, so that drains may change no names in it, and `sticky` with directories of another user in which everybody may make
/// names (`/` is the root).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// What the PFS holds in the beginning. Parents come first.
    pub(super) start: Vec<(TreePath, Entry)>,
    pub(super) stages: bool,
    /// What of that another user owns.
    pub(super) others: Vec<TreePath>,
    /// Directories of another user in which everybody may make names, and take away what is theirs.
    pub(super) sticky: Vec<TreePath>,
    pub(super) steps: Vec<Step>,
}

/// What lies at a path in the beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    Dir,
    File,
    /// The file at this path, by another name.
    NameOf(TreePath),
}

/// One step, which ends before the next one begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// A program calls.
    Call(Action),
    /// A program removes what it sees below a path, and then that.
    RemoveAll(TreePath),
    /// A whole pass of a drain. After `refused` changes of names the PFS refuses one.
    Drain { keep: bool, refused: Option<u32> },
    /// Somebody decides what becomes of a path; a drain that keeps copies does it.
    Take(Side, TreePath),
    /// The bridge dies and starts again.
    Restart,
    /// The neighbour.
    They(Act),
}

/// What the neighbour does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    Make(TreePath, Kind),
    /// Removes what is there, and makes something else under the same name.
    Replace(TreePath, Kind),
    /// Writes in place.
    Write(TreePath),
    /// A file or an empty directory.
    Remove(TreePath),
    /// A file, also over another one, or a directory with all that is in it.
    Rename(TreePath, TreePath),
    /// Another name for a file.
    Link(TreePath, TreePath),
}

/// What the PFS holds if a script does not say.
pub(super) const START: [&str; 8] = ["d/", "d/a", "d/s/", "d/s/b", "f", "g", "h", "i=h"];

pub(super) fn path(text: &str) -> Option<TreePath> {
    TreePath::new(text.as_bytes()).filter(|path| !path.is_root())
}

/// A directory, which may be the root.
fn place(text: &str) -> Option<TreePath> {
    match text {
        "/" => Some(TreePath::root()),
        text => path(text),
    }
}

/// An entry of the beginning.
pub(super) fn entry(text: &str) -> Option<(TreePath, Entry)> {
    Some(match (text.strip_suffix('/'), text.split_once('=')) {
        (Some(dir), _) => (path(dir)?, Entry::Dir),
        (None, Some((name, of))) => (path(name)?, Entry::NameOf(path(of)?)),
        (None, None) => (path(text)?, Entry::File),
    })
}

const SIDES: [(Side, &str); 3] = [
    (Side::Ours, "ours"),
    (Side::Theirs, "theirs"),
    (Side::Both, "both"),
];

fn side_word(side: Side) -> &'static str {
    let found = SIDES.iter().find(|(of, _)| *of == side);
    found.map_or("", |(_, word)| word)
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Dir => "directory",
        _ => "file",
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Act::Make(p, kind) => write!(f, "they make {} {p}", word(*kind)),
            Act::Replace(p, kind) => write!(f, "they replace {p} {}", word(*kind)),
            Act::Write(p) => write!(f, "they write {p}"),
            Act::Remove(p) => write!(f, "they remove {p}"),
            Act::Rename(a, b) => write!(f, "they rename {a} {b}"),
            Act::Link(a, b) => write!(f, "they link {a} {b}"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Call(action) => write!(f, "{action}"),
            Step::RemoveAll(p) => write!(f, "remove {p}"),
            Step::Drain { keep, refused } => {
                f.write_str("drain")?;
                if *keep {
                    f.write_str(" keep")?;
                }
                match refused {
                    Some(changes) => write!(f, " refused {changes}"),
                    None => Ok(()),
                }
            }
            Step::Take(side, p) => write!(f, "take {} {p}", side_word(*side)),
            Step::Restart => f.write_str("restart"),
            Step::They(act) => write!(f, "{act}"),
        }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("start")?;
        for (path, entry) in &self.start {
            match entry {
                Entry::Dir => write!(f, " {path}/")?,
                Entry::File => write!(f, " {path}")?,
                Entry::NameOf(of) => write!(f, " {path}={of}")?,
            }
        }
        if self.stages {
            f.write_str("; stage")?;
        }
        for (word, places) in [("others", &self.others), ("sticky", &self.sticky)] {
            if places.is_empty() {
                continue;
            }
            write!(f, "; {word}")?;
            for place in places {
                match place.is_root() {
                    true => f.write_str(" /")?,
                    false => write!(f, " {place}")?,
                }
            }
        }
        self.steps.iter().try_for_each(|step| write!(f, "; {step}"))
    }
}

impl FromStr for Script {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut script = Script {
            start: START.iter().filter_map(|text| entry(text)).collect(),
            stages: false,
            others: Vec::new(),
            sticky: Vec::new(),
            steps: Vec::new(),
        };
        for line in text.split([';', '\n']) {
            let words: Vec<_> = line.split_whitespace().collect();
            match &words[..] {
                [] => {}
                ["stage"] => script.stages = true,
                ["start", entries @ ..] => {
                    let read = entries.iter().map(|text| entry(text));
                    let read: Option<_> = read.collect();
                    script.start = read.ok_or_else(|| format!("{line:?} has no paths"))?;
                }
                [word @ ("others" | "sticky"), places @ ..] => {
                    let read: Option<_> = places.iter().map(|text| place(text)).collect();
                    let read = read.ok_or_else(|| format!("{line:?} has no paths"))?;
                    match *word {
                        "others" => script.others = read,
                        _ => script.sticky = read,
                    }
                }
                words => {
                    let step = step(words).ok_or_else(|| format!("{line:?} is no step"))?;
                    script.steps.push(step);
                }
            }
        }
        Ok(script)
    }
}

fn step(words: &[&str]) -> Option<Step> {
    let kind = |word: &str| match word {
        "file" => Some(Kind::File),
        "directory" => Some(Kind::Dir),
        _ => None,
    };
    Some(match words {
        ["create", p] => Step::Call(Action::Create(path(p)?, 0)),
        ["truncate", p] => Step::Call(Action::Truncate(path(p)?, 0)),
        ["mkdir", p] => Step::Call(Action::Mkdir(path(p)?)),
        ["link", a, b] => Step::Call(Action::Link(path(a)?, path(b)?)),
        ["unlink", p] => Step::Call(Action::Unlink(path(p)?)),
        ["rmdir", p] => Step::Call(Action::Rmdir(path(p)?)),
        ["rename", a, b] => Step::Call(Action::Rename(path(a)?, path(b)?, 0)),
        ["exchange", a, b] => Step::Call(Action::Rename(path(a)?, path(b)?, libc::RENAME_EXCHANGE)),
        ["remove", p] => Step::RemoveAll(path(p)?),
        ["drain", rest @ ..] => {
            let (keep, rest) = match rest {
                ["keep", rest @ ..] => (true, rest),
                rest => (false, rest),
            };
            let refused = match rest {
                [] => None,
                ["refused", changes] => Some(changes.parse().ok()?),
                _ => return None,
            };
            Step::Drain { keep, refused }
        }
        ["take", side, p] => {
            let (side, _) = SIDES.iter().find(|(_, word)| word == side)?;
            Step::Take(*side, path(p)?)
        }
        ["restart"] => Step::Restart,
        ["they", "make", what, p] => Step::They(Act::Make(path(p)?, kind(what)?)),
        ["they", "replace", p, what] => Step::They(Act::Replace(path(p)?, kind(what)?)),
        ["they", "write", p] => Step::They(Act::Write(path(p)?)),
        ["they", "remove", p] => Step::They(Act::Remove(path(p)?)),
        ["they", "rename", a, b] => Step::They(Act::Rename(path(a)?, path(b)?)),
        ["they", "link", a, b] => Step::They(Act::Link(path(a)?, path(b)?)),
        _ => return None,
    })
}
