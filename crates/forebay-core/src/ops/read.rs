//! Operations that only look.

use super::change::{only, type_of};
use super::{Answer, Context, Decision, Entry, Path, Start};
use crate::access::READ;
use crate::batch;
use crate::facts::{Outcome, errno};
use crate::path::TreePath;
use crate::record::{Kind, Record};
use crate::walk::{Follow, Found, Node, Place, RESERVED_PREFIX};

impl Context<'_> {
    /// What is at `path`; ENOENT if nothing is, ENOTDIR if a slash says it should be a directory.
    pub(super) fn existing(&self, path: &Path, follow: Follow) -> Outcome<(Found, Node)> {
        let found = self.walk.resolve(path, follow)?;
        let Some(node) = found.node.clone() else {
            return errno(libc::ENOENT);
        };
        if found.slash && !self.walk.is_dir(&node) {
            return errno(libc::ENOTDIR);
        }
        Ok((found, node))
    }

    pub(super) fn stat(&self, path: &Path, follow: bool) -> Outcome<Decision> {
        let (_, node) = self.existing(path, follow_if(follow))?;
        Ok(only(Answer::Attr(self.walk.attr(&node)?)))
    }

    pub(super) fn readlink(&self, path: &Path) -> Outcome<Decision> {
        let (_, node) = self.existing(path, Follow::BeforeSlash)?;
        Ok(only(Answer::Bytes(self.walk.link_text(&node)?)))
    }

    pub(super) fn name_of(&self, start: &Start) -> Outcome<Decision> {
        let path = match start {
            // Any object has a name, not only a directory.
            Start::Object(object) => match self.facts.path_of(*object)? {
                Some(path) => path,
                None => return errno(libc::ENOENT),
            },
            _ => self.walk.start(start)?.path,
        };
        Ok(only(Answer::Bytes(self.absolute(&path))))
    }

    pub(super) fn realpath(&self, path: &Path) -> Outcome<Decision> {
        let (found, _) = self.existing(path, Follow::Yes)?;
        Ok(only(Answer::Bytes(self.absolute(&found.path))))
    }

    fn absolute(&self, path: &TreePath) -> Vec<u8> {
        let mut bytes = self.settings.root.clone();
        if !path.is_root() {
            bytes.push(b'/');
            bytes.extend_from_slice(path.as_bytes());
        }
        bytes
    }

    pub(super) fn readdir(
        &self,
        path: &Path,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Outcome<Decision> {
        let (found, node) = self.existing(path, Follow::Yes)?;
        let dir = self.walk.enter(found.path.clone(), &node)?;
        self.walk.check_dir(&dir, READ)?;
        let mut entries = Vec::new();
        if after.is_none() {
            entries.push(dot(b".", self.walk.dir_attr(&dir)?.ino));
            entries.push(dot(b"..", self.walk.dir_attr(&found.dir)?.ino));
        }
        let mut reached = after.unwrap_or_default().to_vec();
        let lower = match &dir.place {
            Place::Born(_) => None,
            Place::Merged(lower) => Some(self.facts.lower_list(lower)?),
        };
        let mut below = lower
            .as_ref()
            .map_or(&[][..], |l| &l[..])
            .iter()
            .filter(|e| after.is_none_or(|a| e.name.as_slice() > a))
            .filter(|e| !e.name.starts_with(RESERVED_PREFIX))
            .peekable();
        let mut above = self.facts.children(&dir.path, after, limit)?;
        batch::assert_page(&above, after, limit);
        let mut above_ends = above.len() < limit;
        above.reverse();
        // Both sides are sorted; a record stands for the PFS entry of the same name.
        let more = loop {
            if above.is_empty() && !above_ends {
                above = self.facts.children(&dir.path, Some(&reached), limit)?;
                batch::assert_page(&above, Some(&reached), limit);
                above_ends = above.len() < limit;
                above.reverse();
            }
            let next = above.last().map(|(name, _)| name);
            let Some(name) = [next, below.peek().map(|b| &b.name)]
                .into_iter()
                .flatten()
                .min()
                .cloned()
            else {
                break false;
            };
            if entries.len() >= limit {
                break true;
            }
            let shown_below = below.next_if(|b| b.name == name);
            match above.pop_if(|(n, _)| *n == name) {
                Some((_, record)) => entries.extend(self.entry(&name, &record)?),
                None => entries.extend(shown_below.map(|b| Entry {
                    name: b.name.clone(),
                    ino: b.ino,
                    dtype: b.dtype,
                })),
            }
            reached = name;
        };
        Ok(only(Answer::Entries { entries, more }))
    }

    fn entry(&self, name: &[u8], record: &Record) -> Outcome<Option<Entry>> {
        let (ino, dtype) = match (record.kind, &record.origin) {
            (Kind::Whiteout, _) => return Ok(None),
            (Kind::Moved, Some(origin)) => match self.facts.lower(origin)? {
                Some(attr) => (attr.ino, dtype_of(type_of(&attr))),
                None => return Ok(None),
            },
            (Kind::Dir, _) => (record.ino, libc::DT_DIR),
            (Kind::Symlink, _) => (record.ino, libc::DT_LNK),
            (Kind::Special, _) => {
                let attr = self.facts.attr(record.object)?;
                (attr.ino, dtype_of(type_of(&attr)))
            }
            _ => (record.ino, libc::DT_REG),
        };
        Ok(Some(Entry {
            name: name.to_vec(),
            ino,
            dtype,
        }))
    }
}

/// `stat` or `lstat`.
pub(super) fn follow_if(follow: bool) -> Follow {
    if follow {
        Follow::Yes
    } else {
        Follow::BeforeSlash
    }
}

fn dot(name: &[u8], ino: u64) -> Entry {
    Entry {
        name: name.to_vec(),
        ino,
        dtype: libc::DT_DIR,
    }
}

/// `d_type` of file type bits (the kernel's own IFTODT).
fn dtype_of(mode: u32) -> u8 {
    ((mode & libc::S_IFMT) >> 12) as u8
}
