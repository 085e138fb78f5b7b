//! What a drain sees in a directory of the PFS that is to go.

use crate::facts::Attr;
use crate::identity::Identity;
use crate::path::TreePath;

/// Files of a directory that are told one by one. Where there are more, none is.
const MOST_FILES: usize = 1 << 16;

/// What a directory is known by, with what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownDir {
    /// Itself.
    pub is: Identity,
    /// The files in it.
    pub files: KnownFiles,
}

/// A file somewhere in the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownFile {
    pub(super) attr: Attr,
    /// See [`Identity::contents_at`].
    pub(super) contents: u64,
}

/// The files in a directory, as long as there is room for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownFiles {
    /// Names on the way to the directory.
    depth: usize,
    files: Option<Vec<KnownFile>>,
}

impl KnownFiles {
    /// None yet of those in `dir`. `are_asked_for`: else none will be told.
    pub fn new(dir: &TreePath, are_asked_for: bool) -> Self {
        KnownFiles {
            depth: dir.components().count(),
            files: are_asked_for.then(Vec::new),
        }
    }

    /// There is one of this name, with these attributes, in the directory or in `parent` below it.
    pub fn add(&mut self, attr: &Attr, parent: &TreePath, name: &[u8]) {
        self.files = self.files.take().filter(|files| files.len() < MOST_FILES);
        if let Some(files) = &mut self.files {
            let dirs: Vec<_> = parent.components().skip(self.depth).collect();
            files.push(KnownFile {
                attr: *attr,
                contents: Identity::of_copy(attr).contents_at(dirs.into_iter().chain([name])),
            });
        }
    }

    /// All of them; `None` if they are not told.
    pub(super) fn all(&self) -> Option<&[KnownFile]> {
        self.files.as_deref()
    }
}
