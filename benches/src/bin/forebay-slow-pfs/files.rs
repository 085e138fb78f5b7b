//! The files of the stand-in.

use fuser::{Errno, FileAttr, FileType, INodeNo, Request};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::time::SystemTime;

const ROOT: u64 = 1;
/// The largest file in bytes.
const MAX_SIZE: u64 = i64::MAX as u64;
/// Bytes of a page.
const PAGE: u64 = 64 << 10;

/// The bytes of a file. Pages that nobody has written take no memory.
#[derive(Default)]
struct Bytes {
    size: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Bytes {
    fn resize(&mut self, size: u64) {
        let kept = size.div_ceil(PAGE);
        self.pages.split_off(&kept);
        if let Some(last) = self.pages.get_mut(&(size / PAGE)) {
            last[(size % PAGE) as usize..].fill(0);
        }
        self.size = size;
    }

    fn read(&self, offset: u64, bytes: u64) -> Vec<u8> {
        let end = offset.saturating_add(bytes).min(self.size);
        let mut all = Vec::new();
        let mut at = offset;
        while at < end {
            let (within, more) = ((at % PAGE) as usize, (PAGE - at % PAGE).min(end - at));
            match self.pages.get(&(at / PAGE)) {
                Some(page) => all.extend(&page[within..within + more as usize]),
                None => all.resize(all.len() + more as usize, 0),
            }
            at += more;
        }
        all
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let within = (at % PAGE) as usize;
            let (now, later) = rest.split_at(rest.len().min(PAGE as usize - within));
            let page = self.pages.entry(at / PAGE);
            let page = page.or_insert_with(|| vec![0; PAGE as usize]);
            page[within..within + now.len()].copy_from_slice(now);
            at += now.len() as u64;
            rest = later;
        }
        if !bytes.is_empty() {
            self.size = self.size.max(at);
        }
    }
}

/// A file, a directory or whatever.
pub(crate) struct Node {
    pub(crate) attr: FileAttr,
    pub(crate) xattrs: BTreeMap<OsString, Vec<u8>>,
    bytes: Bytes,
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
            bytes: Bytes::default(),
            entries: BTreeMap::new(),
            is_unsynced: true,
        }
    }

    fn is_dir(&self) -> bool {
        self.attr.kind == FileType::Directory
    }

    pub(crate) fn set_text(&mut self, text: &[u8]) {
        self.bytes = Bytes::default();
        self.bytes.write(0, text);
        self.resized();
    }

    pub(crate) fn resize(&mut self, size: u64) -> Result<(), Errno> {
        if size > MAX_SIZE {
            return Err(Errno::EFBIG);
        }
        self.bytes.resize(size);
        self.resized();
        Ok(())
    }

    fn resized(&mut self) {
        self.attr.size = self.bytes.size;
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
        node.attr.ctime = SystemTime::now();
        if node.is_unsynced && !node.is_dir() && node.bytes.size > 0 {
            self.named_unsynced += 1;
        }
        let from = self.node(dir)?;
        from.entries.remove(name);
        from.changed();
        self.put(to, new, ino)
    }

    pub(crate) fn exchange(
        &mut self,
        (dir, name): (u64, &OsStr),
        (to, new): (u64, &OsStr),
    ) -> Result<(), Errno> {
        let (one, other) = (self.entry(dir, name)?, self.entry(to, new)?);
        for ino in [one, other] {
            self.node(ino)?.attr.ctime = SystemTime::now();
        }
        self.put(dir, name, other)?;
        self.put(to, new, one)
    }

    pub(crate) fn sync(&mut self, ino: u64) -> Result<(), Errno> {
        self.node(ino)?.is_unsynced = false;
        Ok(())
    }

    pub(crate) fn bytes(&mut self, ino: u64) -> Result<Vec<u8>, Errno> {
        let bytes = &self.node(ino)?.bytes;
        Ok(bytes.read(0, bytes.size))
    }

    pub(crate) fn read(&mut self, ino: u64, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        Ok(self.node(ino)?.bytes.read(offset, size.into()))
    }

    pub(crate) fn write(&mut self, ino: u64, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let node = self.node(ino)?;
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > MAX_SIZE) {
            return Err(Errno::EFBIG);
        }
        node.bytes.write(offset, bytes);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_hold_what_a_plain_list_of_bytes_holds() {
        let (mut bytes, mut plain) = (Bytes::default(), Vec::new());
        let mut seed = 3_u64;
        let mut below = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            (seed >> 33) % n
        };
        for step in 0..300 {
            let (at, length) = (below(5 * PAGE), below(2 * PAGE));
            match below(4) {
                0 => {
                    bytes.resize(at);
                    plain.resize(at as usize, 0);
                }
                1 => {
                    let from = (at as usize).min(plain.len());
                    let to = ((at + length) as usize).clamp(from, plain.len());
                    assert!(bytes.read(at, length) == plain[from..to], "step {step}");
                }
                _ => {
                    let written = vec![step as u8; length as usize];
                    if plain.len() < at as usize + written.len() && !written.is_empty() {
                        plain.resize(at as usize + written.len(), 0);
                    }
                    bytes.write(at, &written);
                    if !written.is_empty() {
                        plain[at as usize..at as usize + written.len()].copy_from_slice(&written);
                    }
                }
            }
            assert_eq!(bytes.size, plain.len() as u64, "step {step}");
        }
        assert!(bytes.read(0, bytes.size) == plain);
    }
}
