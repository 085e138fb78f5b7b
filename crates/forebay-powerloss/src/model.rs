//! What a workload does, and the states of the tree that it goes through. The program `operate.py` does the same for real.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What makes a change durable at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sync {
    /// Nothing.
    None,
    /// `fsync` of the descriptor that was written to.
    Fsync,
    /// `fdatasync` of it.
    Fdatasync,
    /// The file was opened with O_SYNC.
    Osync,
    /// `msync` of the mapping.
    Msync,
}

/// How bytes get into a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// `pwrite`.
    Write,
    /// `pwrite` with O_DIRECT, whole blocks.
    Direct,
    /// A shared mapping, inside the file.
    Mmap,
}

/// One operation. Paths are relative to the tree; `.` is its root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Op {
    /// Makes an empty file.
    Creat {
        /// It.
        path: String,
    },
    /// Makes a directory.
    Mkdir {
        /// It.
        path: String,
    },
    /// Writes bytes that tell of which operation they are; makes the file if need be.
    Put {
        /// The file.
        path: String,
        /// Offset.
        at: usize,
        /// How many.
        bytes: usize,
        /// Differs from operation to operation.
        tag: u32,
        /// By what call.
        how: How,
        /// Durable when it returns?
        sync: Sync,
    },
    /// `fallocate` of zeros at the end.
    Falloc {
        /// The file.
        path: String,
        /// Offset.
        at: usize,
        /// How many.
        bytes: usize,
    },
    /// Sets the size.
    Truncate {
        /// The file.
        path: String,
        /// The size.
        bytes: usize,
    },
    /// Makes a hard link.
    Link {
        /// An existing name.
        from: String,
        /// The new one.
        to: String,
    },
    /// Removes a file's name.
    Unlink {
        /// It.
        path: String,
    },
    /// Removes an empty directory.
    Rmdir {
        /// It.
        path: String,
    },
    /// Gives another name.
    Rename {
        /// The old one.
        from: String,
        /// The new one.
        to: String,
    },
    /// Sets the attribute `user.t`.
    Setxattr {
        /// The file.
        path: String,
        /// Its value, as text.
        tag: u32,
    },
    /// Removes it.
    Removexattr {
        /// The file.
        path: String,
    },
    /// `fsync` of a file or directory, by a descriptor of its own.
    Fsync {
        /// It.
        path: String,
    },
    /// `fdatasync`.
    Fdatasync {
        /// It.
        path: String,
    },
    /// `sync`.
    Sync,
    /// `syncfs` of a descriptor.
    Syncfs {
        /// A file or directory.
        path: String,
    },
    /// A pause, for the file system's own writeback.
    Pause {
        /// How long.
        ms: u32,
    },
    /// The run ended and reported success; not an operation of the program.
    End,
}

/// What a path leads to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// Is it a directory?
    pub is_dir: bool,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The attribute `user.t`.
    pub attribute: Option<u32>,
}

/// The tree at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// All that ever was, by number. Equal numbers in several states are the same file.
    pub nodes: Vec<Node>,
    /// Path to number.
    pub names: BTreeMap<String, usize>,
}

/// Writes the bytes of an operation: its tag, again and again, as text of 9 bytes.
pub fn fill(place: &mut [u8], at: usize, tag: u32) {
    let text = format!("{tag:08x}\n").into_bytes();
    for (index, byte) in place.iter_mut().enumerate() {
        *byte = text[(at + index) % text.len()];
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or(".", |(parent, _)| parent)
}

impl State {
    fn make(&mut self, path: &str, is_dir: bool) -> Option<usize> {
        if self.names.contains_key(path) || !self.is_dir(parent(path)) {
            return None;
        }
        self.nodes.push(Node {
            is_dir,
            ..Node::default()
        });
        self.names.insert(path.to_owned(), self.nodes.len() - 1);
        Some(self.nodes.len() - 1)
    }

    fn is_dir(&self, path: &str) -> bool {
        path == "."
            || self
                .names
                .get(path)
                .is_some_and(|node| self.nodes[*node].is_dir)
    }

    fn file(&mut self, path: &str) -> Option<&mut Node> {
        let number = *self.names.get(path)?;
        Some(&mut self.nodes[number]).filter(|node| !node.is_dir)
    }

    fn has_children(&self, path: &str) -> bool {
        let prefix = format!("{path}/");
        self.names.keys().any(|name| name.starts_with(&prefix))
    }

    /// Carries out an operation; `None`, and no change, if it would fail.
    pub fn apply(&mut self, op: &Op) -> Option<()> {
        match op {
            Op::Creat { path } => self.make(path, false).map(drop),
            Op::Mkdir { path } => self.make(path, true).map(drop),
            Op::Put {
                path,
                at,
                bytes,
                tag,
                how,
                ..
            } => {
                let end = at + bytes;
                if *how == How::Mmap && self.file(path)?.bytes.len() < end {
                    return None;
                }
                if !self.names.contains_key(path) {
                    self.make(path, false)?;
                }
                let node = self.file(path)?;
                let size = node.bytes.len().max(end);
                node.bytes.resize(size, 0);
                fill(&mut node.bytes[*at..end], *at, *tag);
                Some(())
            }
            Op::Falloc { path, at, bytes } => {
                let node = self.file(path)?;
                let end = node.bytes.len().max(at + bytes);
                node.bytes.resize(end, 0);
                Some(())
            }
            Op::Truncate { path, bytes } => {
                self.file(path)?.bytes.resize(*bytes, 0);
                Some(())
            }
            Op::Link { from, to } => {
                self.file(from)?;
                if self.names.contains_key(to) || !self.is_dir(parent(to)) {
                    return None;
                }
                let number = *self.names.get(from)?;
                self.names.insert(to.clone(), number);
                Some(())
            }
            Op::Unlink { path } => {
                self.file(path)?;
                self.names.remove(path).map(drop)
            }
            Op::Rmdir { path } => {
                let is_empty_dir = self.is_dir(path) && path != "." && !self.has_children(path);
                is_empty_dir.then(|| self.names.remove(path)).map(drop)
            }
            Op::Rename { from, to } => self.rename(from, to),
            Op::Setxattr { path, tag } => {
                self.file(path)?.attribute = Some(*tag);
                Some(())
            }
            Op::Removexattr { path } => self.file(path)?.attribute.take().map(drop),
            Op::Fsync { path } | Op::Fdatasync { path } | Op::Syncfs { path } => {
                (path == "." || self.names.contains_key(path)).then_some(())
            }
            Op::Sync | Op::Pause { .. } | Op::End => Some(()),
        }
    }

    fn rename(&mut self, from: &str, to: &str) -> Option<()> {
        let number = *self.names.get(from)?;
        let is_dir = self.nodes[number].is_dir;
        let below = format!("{from}/");
        if from == to || !self.is_dir(parent(to)) || to.starts_with(&below) {
            return None;
        }
        if let Some(over) = self.names.get(to) {
            // Two names of one file: a rename that does nothing.
            if *over == number || self.nodes[*over].is_dir != is_dir || self.has_children(to) {
                return None;
            }
        }
        let moved: Vec<String> = self
            .names
            .keys()
            .filter(|name| *name == from || name.starts_with(&below))
            .cloned()
            .collect();
        for name in moved {
            let number = self.names.remove(&name)?;
            self.names
                .insert(format!("{to}{}", &name[from.len()..]), number);
        }
        Some(())
    }
}

/// The states before the first operation, after it, after the second, and so on; `None` if one of them would fail.
pub fn states(ops: &[Op]) -> Option<Vec<State>> {
    let mut state = State::default();
    let mut all = vec![state.clone()];
    for op in ops {
        state.apply(op)?;
        all.push(state.clone());
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_directory_takes_what_is_in_it_along() {
        let text = r#"[{"op":"mkdir","path":"A"},{"op":"creat","path":"A/foo"},{"op":"rename","from":"A","to":"B"}]"#;
        let ops: Vec<Op> = serde_json::from_str(text).unwrap();
        let last = states(&ops).unwrap().pop().unwrap();
        assert_eq!(last.names.keys().collect::<Vec<_>>(), ["B", "B/foo"]);
    }

    #[test]
    fn what_the_kernel_would_refuse_is_refused() {
        let creat = |path: &str| Op::Creat { path: path.into() };
        assert!(states(&[creat("A/foo")]).is_none());
        assert!(states(&[creat("foo"), creat("foo")]).is_none());
        assert!(
            states(&[
                Op::Mkdir { path: "A".into() },
                creat("A/b"),
                Op::Rmdir { path: "A".into() }
            ])
            .is_none()
        );
    }
}
