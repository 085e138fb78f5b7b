//! Operations that only look.

use super::change::{only, type_of};
use super::{Answer, Context, Decision, Entry, Path, Start};
use crate::access::READ;
use crate::batch;
use crate::bridge::Mutation;
use crate::facts::{CHILDREN_PER_PAGE, Facts, LowerEntry, LowerPage, Outcome, errno};
use crate::path::TreePath;
use crate::record::{Kind, PathRecord};
use crate::walk::{Dir, Follow, Found, Node, Place, RESERVED_PREFIX};
use std::sync::Arc;

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
        let node = match self.file_at_start(path)? {
            Some(file) => file,
            None => self.existing(path, follow_if(follow))?.1,
        };
        Ok(only(Answer::Attr(self.walk.attr(&node)?)))
    }

    /// The file of which the caller has a descriptor, if nothing else is asked for.
    fn file_at_start(&self, path: &Path) -> Outcome<Option<Node>> {
        let Start::Object(object) = path.start else {
            return Ok(None);
        };
        if !path.bytes.is_empty() {
            return Ok(None);
        }
        let Some(at) = self.facts.path_of(object)? else {
            return errno(libc::ENOENT);
        };
        let record = self.facts.record(&at)?;
        let Some(record) = record.filter(|r| r.kind == Kind::File) else {
            return Ok(None);
        };
        self.walk
            .check_object(object, &at, || self.facts.attr(object))?;
        Ok(Some(Node::Born(record)))
    }

    pub(super) fn readlink(&self, path: &Path) -> Outcome<Decision> {
        let (_, node) = self.existing(path, Follow::BeforeSlash)?;
        Ok(only(Answer::Bytes(self.walk.link_text(&node)?)))
    }

    pub(super) fn name_of(&self, start: &Start) -> Outcome<Decision> {
        let path = match start {
            // Any object has a name, not only a directory.
            Start::Object(object) => match self.facts.path_of(*object)? {
                Some(path) => {
                    self.walk
                        .check_object(*object, &path, || self.facts.attr(*object))?;
                    path
                }
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
            entries.push(self.dot(b".", &dir)?);
            entries.push(self.dot(b"..", &found.dir)?);
        }
        let mut reached = after.map(<[u8]>::to_vec);
        let mut below = match &dir.place {
            Place::Born(_) => None,
            Place::Merged(lower) => Some(LowerNames::new(self.facts, lower, after)),
        };
        let page = limit.min(CHILDREN_PER_PAGE);
        let mut above = self.facts.children(&dir.path, after, page)?;
        batch::assert_page(&above, after, page);
        let mut above_ends = above.len() < page;
        above.reverse();
        // Both sides are sorted; a record stands for the PFS entry of the same name.
        let more = loop {
            if above.is_empty() && !above_ends {
                above = self.facts.children(&dir.path, reached.as_deref(), page)?;
                batch::assert_page(&above, reached.as_deref(), page);
                above_ends = above.len() < page;
                above.reverse();
            }
            let next_below = match &mut below {
                Some(below) => below.peek()?,
                None => None,
            };
            let next_above = above.last().map(|(name, _)| name);
            let Some(name) = [next_above, next_below.map(|b| &b.name)]
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
            let shown_below = next_below.filter(|b| b.name == name);
            let shown_below = shown_below.map(|b| (b.ino, b.dtype));
            if let (Some(_), Some(below)) = (shown_below, &mut below) {
                below.advance();
            }
            match above.pop_if(|(n, _)| *n == name) {
                Some((_, record)) if !self.walk.belongs_elsewhere(&dir, &name, &record)? => {
                    entries.extend(self.entry(&name, &record)?);
                }
                _ => entries.extend(shown_below.map(|(ino, dtype)| Entry {
                    name: name.clone(),
                    ino,
                    dtype,
                })),
            }
            reached = Some(name);
        };
        Ok(only(Answer::Entries { entries, more }))
    }

    fn dot(&self, name: &[u8], dir: &Dir) -> Outcome<Entry> {
        let attr = self.settings.devices.shown_of(self.walk.dir_attr(dir)?);
        Ok(Entry {
            name: name.to_vec(),
            ino: attr.ino,
            dtype: libc::DT_DIR,
        })
    }

    fn entry(&self, name: &[u8], record: &PathRecord) -> Outcome<Option<Entry>> {
        let devices = &self.settings.devices;
        let stored = match record.copy_of {
            0 => devices.inode_of_stored(record.ino),
            original => original,
        };
        let (ino, dtype) = match (record.kind, &record.origin) {
            (Kind::Whiteout, _) => return Ok(None),
            (Kind::Moved, Some(_)) => match self.facts.renamed(record)? {
                Some(attr) => (attr.ino, dtype_of(type_of(&attr))),
                None => return Ok(None),
            },
            (Kind::Dir, _) => (stored, libc::DT_DIR),
            (Kind::Symlink, _) => (stored, libc::DT_LNK),
            (Kind::Special, _) => {
                let attr = devices.shown_of(self.facts.attr(record.object)?);
                (attr.ino, dtype_of(type_of(&attr)))
            }
            _ => (stored, libc::DT_REG),
        };
        Ok(Some(Entry {
            name: name.to_vec(),
            ino,
            dtype,
        }))
    }
}

/// The names of a PFS directory in their order, page after page, without those that the drain uses.
pub(super) struct LowerNames<'a> {
    facts: &'a dyn Facts,
    dir: &'a TreePath,
    page: Option<Arc<LowerPage>>,
    /// Place in the page.
    at: usize,
    reached: Option<Vec<u8>>,
}

impl<'a> LowerNames<'a> {
    pub(super) fn new(facts: &'a dyn Facts, dir: &'a TreePath, after: Option<&[u8]>) -> Self {
        LowerNames {
            facts,
            dir,
            page: None,
            at: 0,
            reached: after.map(<[u8]>::to_vec),
        }
    }

    /// The next entry, which stays the next one.
    pub(super) fn peek(&mut self) -> Outcome<Option<&LowerEntry>> {
        self.find_page()?;
        Ok(self.page.as_ref().and_then(|p| p.entries.get(self.at)))
    }

    /// Makes sure that the next entry is in the page, if there is one.
    fn find_page(&mut self) -> Outcome<()> {
        loop {
            let page = match &self.page {
                Some(page) => page,
                None => {
                    let after = self.reached.as_deref();
                    let page = self.facts.lower_list(self.dir, after)?;
                    debug_assert!(
                        page.covers(after),
                        "a page that knows nothing of what comes next"
                    );
                    self.at = page.entries.len() - page.entries_after(after).len();
                    self.page.insert(page)
                }
            };
            match page.entries.get(self.at) {
                Some(entry) if entry.name.starts_with(RESERVED_PREFIX) => self.at += 1,
                Some(_) => return Ok(()),
                None if page.ends => return Ok(()),
                None => {
                    self.reached = page.entries.last().map(|e| e.name.clone());
                    if Mutation::PagesLoseAName.is_in(|| self.facts.planted())
                        && let Some(reached) = &mut self.reached
                    {
                        reached.push(b'z');
                        reached[0] += 1;
                    }
                    self.page = None;
                }
            }
        }
    }

    /// Goes on to the entry after the one that was peeked at.
    pub(super) fn advance(&mut self) {
        self.at += 1;
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

/// `d_type` of file type bits (the kernel's own IFTODT).
fn dtype_of(mode: u32) -> u8 {
    ((mode & libc::S_IFMT) >> 12) as u8
}
