//! What a storage of Forebay holds, and what its commands say about it.

use crate::model::Node;
use crate::tree::{self, Entry, Tree};
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Attributes of Forebay's objects that say what they are: of a bridge of root, and of any other.
const LABELS: [&str; 2] = ["trusted.forebay.label", "user.forebay.label"];
/// Words by which fsck calls what a recovery has put aside.
const WITHHELD: [&str; 2] = ["quarantine", "withheld"];

/// Had a bridge written down for what its storage is?
pub fn has_instance(storage: &Path) -> bool {
    let mut entries = fs::read_dir(storage).into_iter().flatten().flatten();
    entries.any(|entry| entry.path().join("root").exists())
}

/// The labelled objects with something in them, by path in the storage, wherever in it they are.
pub fn objects(storage: &Path) -> Tree {
    let mut found = Tree::new();
    let mut dirs = vec![storage.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let (path, about) = (entry.path(), entry.metadata());
            let Ok(about) = about else { continue };
            if about.is_dir() {
                dirs.push(path);
                continue;
            }
            if about.len() == 0
                || !LABELS
                    .iter()
                    .any(|label| tree::attribute(&path, label).is_some())
            {
                continue;
            }
            let name = path.strip_prefix(storage).unwrap_or(&path);
            let node = Node {
                bytes: fs::read(&path).unwrap_or_default(),
                ..Node::default()
            };
            let inode = about.ino();
            found.insert(name.display().to_string(), Entry { node, inode });
        }
    }
    found
}

/// What commands have said.
#[derive(Debug, Default)]
pub struct Said {
    text: String,
    words: HashSet<String>,
}

impl Said {
    /// Adds what a command has said about a buffer.
    pub fn add(&mut self, text: &str, buffer: &Path) {
        let is_border = |c: char| c.is_whitespace() || "\"'`,;:()[]{}".contains(c);
        let prefix = format!("{}/", buffer.display());
        for word in text.split(is_border).filter(|word| !word.is_empty()) {
            let path = word.strip_prefix(&prefix).unwrap_or(word);
            // At the end of a sentence.
            self.words.insert(path.trim_end_matches('.').to_owned());
        }
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text);
    }

    /// All of it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Is this path named?
    pub fn names(&self, path: &str) -> bool {
        self.words.contains(path)
    }

    /// Is this object named, by the name of its file, a path that ends with it, or its number?
    pub fn names_object(&self, path: &str) -> bool {
        let file = path.rsplit('/').next().unwrap_or(path);
        let number = number_of(file);
        let is_it = |word: &String| {
            word == file || word.ends_with(&format!("/{file}")) || Some(word) == number.as_ref()
        };
        self.words.iter().any(is_it)
    }

    /// Are all problems that fsck lists things that a recovery has put aside?
    pub fn finds_only_withheld(&self) -> bool {
        let mut problems = self.text.lines().filter(|line| line.starts_with("  "));
        let is_withheld = |line: &str| WITHHELD.iter().any(|word| line.contains(word));
        problems.clone().next().is_some() && problems.all(is_withheld)
    }
}

/// The number of an object in its three parts, as messages show it: 1.3.3000 for
/// 00000001000000030000000000003000.
fn number_of(file: &str) -> Option<String> {
    let part = |range| u64::from_str_radix(file.get(range)?, 16).ok();
    let (first, second, third) = (part(0..8)?, part(8..16)?, part(16..32)?);
    Some(format!("{first:x}.{second:x}.{third:x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Said {
        let mut said = Said::default();
        said.add(text, Path::new("/pfs"));
        said
    }

    #[test]
    fn what_is_named_is_a_whole_word() {
        let said = said("  f10: no space\n\"path\": \"A/f2\"\n  /pfs/A/f3: obj/3/00ab.");
        assert!(said.names("f10") && said.names("A/f2") && said.names("A/f3"));
        assert!(!said.names("f1") && !said.names("f2"));
        assert!(said.names_object("instance/obj/3/00ab"));
        assert!(!said.names_object("instance/obj/3/0ab"));
        let object = "obj/3/00000001000000030000000000003000.c25";
        assert!(self::said("object 1.3.3000 (link 0)").names_object(object));
        assert!(!said.names_object(object));
    }

    #[test]
    fn a_problem_is_not_excused_by_what_is_withheld() {
        assert!(said("x: 2 names\n  object 1 is in quarantine").finds_only_withheld());
        assert!(!said("x\n  in quarantine: 1\n  f1 has no object").finds_only_withheld());
        assert!(!said("can't be read").finds_only_withheld());
    }
}
