//! The files of the stand-in.

use fuser::{Errno, FileAttr, FileType, INodeNo, Request};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::time::SystemTime;

const ROOT: u64 = 1;

/// A file, a directory or whatever.
pub(crate) struct Node {
    pub(crate) attr: FileAttr,
    pub(crate) xattrs: BTreeMap<OsString, Vec<u8>>,
    bytes: Vec<u8>,
    entries: BTreeMap<OsString, u64>,
    /// It has changed since it was synced.
    is_unsynced: bool,
}

fn kind(mode: u32) -> FileType {
    match mode & libc::S_IFMT {
        libc::S_IFDIR => FileType::Directory,
        libc::S_IFLNK => FileType::Symlink,
        libc::S_IFIFO => FileType::NamedPipe,
        libc::S_IFSOCK => FileType::Socket,
        libc::S_IFBLK => FileType::BlockDevice,
        libc::S_IFCHR => FileType::CharDevice,
        _ => FileType::RegularFile,
    }
}

impl Node {
    /// An empty one of whoever asks for it.
    pub(crate) fn new(mode: u32, request: &Request) -> Self {
        Node::owned(mode, request.uid(), request.gid())
    }

    fn owned(mode: u32, uid: u32, gid: u32) -> Self {
        let now = SystemTime::now();
        let kind = kind(mode);
        Node {
            attr: FileAttr {
                ino: INodeNo(0),
                size: 0,
                blocks: 0,
                atime: now,
                mtime: now,
                ctime: now,
                crtime: now,
                kind,
                perm: (mode & 0o7777) as u16,
                nlink: if kind == FileType::Directory { 2 } else { 1 },
                uid,
                gid,
                rdev: 0,
                blksize: 4096,
                flags: 0,
            },
            xattrs: BTreeMap::new(),
            bytes: Vec::new(),
            entries: BTreeMap::new(),
            is_unsynced: true,
        }
    }

    fn is_dir(&self) -> bool {
        self.attr.kind == FileType::Directory
    }

    pub(crate) fn set_text(&mut self, text: &[u8]) {
        self.bytes = text.to_vec();
        self.resized();
    }

    pub(crate) fn resize(&mut self, size: u64) -> Result<(), Errno> {
        let size = usize::try_from(size).map_err(|_| Errno::EFBIG)?;
        self.bytes.resize(size, 0);
        self.resized();
        Ok(())
    }

    fn resized(&mut self) {
        self.attr.size = self.bytes.len() as u64;
        self.attr.blocks = self.attr.size.div_ceil(512);
        self.changed();
    }

    fn changed(&mut self) {
        let now = SystemTime::now();
        (self.attr.mtime, self.attr.ctime) = (now, now);
        self.is_unsynced = true;
    }
}

/// All of them.
pub(crate) struct Files {
    nodes: HashMap<u64, Node>,
    last: u64,
    /// Files that were renamed before their bytes were synced.
    pub(crate) named_unsynced: u64,
}

impl Files {
    pub(crate) fn new() -> Self {
        let mut root = Node::owned(libc::S_IFDIR | 0o755, 0, 0);
        root.attr.ino = INodeNo(ROOT);
        Files {
            nodes: HashMap::from([(ROOT, root)]),
            last: ROOT,
            named_unsynced: 0,
        }
    }

    /// Files, and directories, that a power loss would damage.
    pub(crate) fn unsynced(&self) -> (usize, usize) {
        let of = |is_dir: bool| {
            let nodes = self.nodes.values();
            nodes
                .filter(|node| node.is_unsynced && node.attr.nlink > 0)
                .filter(|node| match is_dir {
                    true => node.is_dir(),
                    false => node.attr.kind == FileType::RegularFile,
                })
                .count()
        };
        (of(false), of(true))
    }

    pub(crate) fn node(&mut self, ino: u64) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&ino).ok_or(Errno::ESTALE)
    }

    pub(crate) fn attr(&self, ino: u64) -> Result<FileAttr, Errno> {
        self.nodes
            .get(&ino)
            .map(|node| node.attr)
            .ok_or(Errno::ESTALE)
    }

    pub(crate) fn entry(&self, dir: u64, name: &OsStr) -> Result<u64, Errno> {
        let dir = self.nodes.get(&dir).ok_or(Errno::ESTALE)?;
        dir.entries.get(name).copied().ok_or(Errno::ENOENT)
    }

    pub(crate) fn add(&mut self, dir: u64, name: &OsStr, node: Node) -> Result<FileAttr, Errno> {
        if self.entry(dir, name).is_ok() {
            return Err(Errno::EEXIST);
        }
        self.last += 1;
        let ino = self.last;
        self.nodes.insert(ino, node);
        self.node(ino)?.attr.ino = INodeNo(ino);
        self.put(dir, name, ino)?;
        self.attr(ino)
    }

    fn put(&mut self, dir: u64, name: &OsStr, ino: u64) -> Result<(), Errno> {
        let at = self.node(dir)?;
        at.entries.insert(name.to_owned(), ino);
        at.changed();
        Ok(())
    }

    pub(crate) fn link(&mut self, dir: u64, name: &OsStr, ino: u64) -> Result<FileAttr, Errno> {
        if self.entry(dir, name).is_ok() {
            return Err(Errno::EEXIST);
        }
        self.put(dir, name, ino)?;
        self.node(ino)?.attr.nlink += 1;
        self.attr(ino)
    }

    pub(crate) fn remove(&mut self, dir: u64, name: &OsStr) -> Result<(), Errno> {
        let ino = self.entry(dir, name)?;
        let node = self.node(ino)?;
        if !node.entries.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        // Who has it open goes on with it, so it stays in memory.
        let left = if node.is_dir() {
            0
        } else {
            node.attr.nlink - 1
        };
        node.attr.nlink = left;
        let at = self.node(dir)?;
        at.entries.remove(name);
        at.changed();
        Ok(())
    }

    pub(crate) fn rename(
        &mut self,
        (dir, name): (u64, &OsStr),
        (to, new): (u64, &OsStr),
    ) -> Result<(), Errno> {
        let ino = self.entry(dir, name)?;
        match self.entry(to, new) {
            // Two names of one file stay.
            Ok(there) if there == ino => return Ok(()),
            Ok(_) => self.remove(to, new)?,
            Err(_) => {}
        }
        let node = self.node(ino)?;
        if node.is_unsynced && !node.is_dir() && !node.bytes.is_empty() {
            self.named_unsynced += 1;
        }
        let from = self.node(dir)?;
        from.entries.remove(name);
        from.changed();
        self.put(to, new, ino)
    }

    pub(crate) fn sync(&mut self, ino: u64) -> Result<(), Errno> {
        self.node(ino)?.is_unsynced = false;
        Ok(())
    }

    pub(crate) fn bytes(&mut self, ino: u64) -> Result<Vec<u8>, Errno> {
        Ok(self.node(ino)?.bytes.clone())
    }

    pub(crate) fn read(&mut self, ino: u64, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        let bytes = &self.node(ino)?.bytes;
        let from = (offset as usize).min(bytes.len());
        let end = from.saturating_add(size as usize).min(bytes.len());
        Ok(bytes[from..end].to_vec())
    }

    pub(crate) fn write(&mut self, ino: u64, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let node = self.node(ino)?;
        let from = usize::try_from(offset).map_err(|_| Errno::EFBIG)?;
        let end = from.checked_add(bytes.len()).ok_or(Errno::EFBIG)?;
        if node.bytes.len() < end {
            node.bytes.resize(end, 0);
        }
        node.bytes[from..end].copy_from_slice(bytes);
        node.resized();
        Ok(())
    }

    pub(crate) fn list(&mut self, ino: u64) -> Result<Vec<(u64, FileType, OsString)>, Errno> {
        let dir = self.node(ino)?;
        let mut all = vec![
            (ino, FileType::Directory, ".".into()),
            (ino, FileType::Directory, "..".into()),
        ];
        let entries: Vec<_> = dir
            .entries
            .iter()
            .map(|(name, ino)| (name.clone(), *ino))
            .collect();
        for (name, ino) in entries {
            all.push((ino, self.attr(ino)?.kind, name));
        }
        Ok(all)
    }
}
