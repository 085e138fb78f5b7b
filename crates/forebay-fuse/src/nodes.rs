//! What the kernel's node ids stand for. A node lives as long as the kernel knows its id.
//!
//! A node is one inode: its device, number and type. Another inode that gets the number of an earlier one is told from it by its
//! birth, where the file system records that. A directory is held by a descriptor, so that a rename by anybody does not
//! lose it. Everything else is found by the names that it was looked up by, and whoever uses a name checks that the
//! inode is still there.

use crate::protocol::ROOT;
use forebay_types::{Attr, Timestamp};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Most names kept of one node; the oldest goes first.
const MOST_NAMES: usize = 8;

/// What an inode is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    dev: u64,
    ino: u64,
    kind: u32,
}

impl Identity {
    /// That of an inode with these attributes.
    pub fn of(attr: &Attr) -> Self {
        Identity {
            dev: attr.dev,
            ino: attr.ino,
            kind: attr.mode & libc::S_IFMT,
        }
    }

    /// The same inode, as a descriptor of it shows it. The backing object of a symbolic link is a regular file.
    pub fn is_backed_by(&self, object: &Attr) -> bool {
        (self.dev, self.ino) == (object.dev, object.ino)
    }
}

/// A name in a directory, which is a node.
pub type Name = (u64, Vec<u8>);

/// The number by which the kernel reads and writes a backing file itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backing {
    /// Given by the kernel.
    pub id: u32,
    /// Open files that use it.
    users: u32,
}

/// A node.
#[derive(Debug)]
struct Node {
    identity: Identity,
    /// Zero if it is not known.
    born: Timestamp,
    /// See [`Attr::copy_of`]. Only the bridge tells it.
    copy_of: u64,
    lookups: u64,
    /// The one looked up last is at the end.
    names: Vec<Name>,
    dir: Option<Arc<OwnedFd>>,
    open: Vec<Arc<OwnedFd>>,
    backing: Option<Backing>,
}

/// All nodes that the kernel knows.
#[derive(Debug)]
pub struct Nodes {
    nodes: HashMap<u64, Node>,
    by_identity: HashMap<Identity, u64>,
    by_name: HashMap<Name, u64>,
    last: u64,
}

impl Nodes {
    /// Only the root.
    pub fn new(root: OwnedFd, attr: &Attr) -> Self {
        let mut nodes = Nodes {
            nodes: HashMap::new(),
            by_identity: HashMap::new(),
            by_name: HashMap::new(),
            last: ROOT,
        };
        // The kernel never forgets it.
        nodes.add(ROOT, attr, Some(Arc::new(root)));
        nodes
    }

    fn add(&mut self, id: u64, attr: &Attr, dir: Option<Arc<OwnedFd>>) {
        let identity = Identity::of(attr);
        self.by_identity.insert(identity, id);
        let node = Node {
            identity,
            born: attr.btime,
            copy_of: attr.copy_of,
            lookups: 1,
            names: Vec::new(),
            dir,
            open: Vec::new(),
            backing: None,
        };
        self.nodes.insert(id, node);
    }

    /// The node of the inode with these attributes. One with the same number that was born at another time is gone.
    fn known(&self, attr: &Attr) -> Option<u64> {
        let id = *self.by_identity.get(&Identity::of(attr))?;
        let born = self.nodes.get(&id)?.born;
        let unknown = Timestamp::default();
        (born == attr.btime || [born, attr.btime].contains(&unknown)).then_some(id)
    }

    /// The kernel gets to know what is at `name`, which has these attributes. A directory comes with its descriptor.
    pub fn looked_up(&mut self, attr: &Attr, name: Name, dir: Option<Arc<OwnedFd>>) -> u64 {
        debug_assert!(dir.is_some() || attr.mode & libc::S_IFMT != libc::S_IFDIR);
        let id = match self.known(attr) {
            Some(id) => {
                if let Some(node) = self.nodes.get_mut(&id) {
                    node.lookups += 1;
                    if attr.copy_of != 0 {
                        node.copy_of = attr.copy_of;
                    }
                }
                id
            }
            None => {
                self.last += 1;
                self.add(self.last, attr, dir);
                self.last
            }
        };
        self.set_name(id, name);
        id
    }

    /// Gives a node a name, which another one may have had.
    fn set_name(&mut self, id: u64, name: Name) {
        if let Some(before) = self.by_name.insert(name.clone(), id)
            && let Some(node) = self.nodes.get_mut(&before)
        {
            node.names.retain(|known| *known != name);
        }
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        node.names.push(name);
        if node.names.len() > MOST_NAMES {
            let oldest = node.names.remove(0);
            self.by_name.remove(&oldest);
        }
    }

    /// The name is gone.
    pub fn removed(&mut self, name: &Name) -> Option<u64> {
        let id = self.by_name.remove(name)?;
        if let Some(node) = self.nodes.get_mut(&id) {
            node.names.retain(|known| known != name);
        }
        Some(id)
    }

    /// What was at `old` is at `new`, and the other way round if they were exchanged.
    pub fn renamed(&mut self, old: Name, new: Name, exchanged: bool) {
        let (moved, replaced) = (self.removed(&old), self.removed(&new));
        if let Some(id) = moved {
            self.set_name(id, new);
        }
        if let Some(id) = replaced.filter(|_| exchanged) {
            self.set_name(id, old);
        }
    }

    /// The kernel forgets this many look-ups of a node.
    pub fn forget(&mut self, id: u64, lookups: u64) {
        let Some(node) = self.nodes.get_mut(&id).filter(|_| id != ROOT) else {
            return;
        };
        debug_assert!(
            node.lookups >= lookups,
            "forgotten more often than looked up"
        );
        node.lookups = node.lookups.saturating_sub(lookups);
        if node.lookups > 0 {
            return;
        }
        let Some(node) = self.nodes.remove(&id) else {
            return;
        };
        // Another inode may have its number by now.
        if self.by_identity.get(&node.identity) == Some(&id) {
            self.by_identity.remove(&node.identity);
        }
        for name in &node.names {
            self.by_name.remove(name);
        }
    }

    /// The inode number of the file of the PFS that a node is a copy of; 0: of none.
    pub fn copy_of(&self, id: u64) -> u64 {
        self.nodes.get(&id).map_or(0, |node| node.copy_of)
    }

    /// The descriptor of a directory.
    pub fn dir(&self, id: u64) -> Option<Arc<OwnedFd>> {
        self.nodes.get(&id)?.dir.clone()
    }

    /// The descriptor of a directory that the kernel knows.
    pub fn known_dir(&self, attr: &Attr) -> Option<Arc<OwnedFd>> {
        self.dir(self.known(attr)?)
    }

    /// What a node is, and by which names it may be found, the best first.
    pub fn whereabouts(&self, id: u64) -> Option<(Identity, Vec<Name>)> {
        let node = self.nodes.get(&id)?;
        Some((node.identity, node.names.iter().rev().cloned().collect()))
    }

    /// A descriptor of the node that somebody has open.
    pub fn any_open(&self, id: u64) -> Option<Arc<OwnedFd>> {
        self.nodes.get(&id)?.open.last().cloned()
    }

    /// Somebody has opened the node. `back` asks the kernel for a number if there is none yet: all who have one file
    /// open must use the same. Gives the number.
    pub fn opened(
        &mut self,
        id: u64,
        file: &Arc<OwnedFd>,
        back: impl FnOnce() -> Option<u32>,
    ) -> Option<u32> {
        let node = self.nodes.get_mut(&id)?;
        node.open.push(file.clone());
        let backing = match node.backing {
            Some(known) => known,
            // Those who have it open without a number must stay among themselves.
            None if node.open.len() > 1 => return None,
            None => Backing {
                id: back()?,
                users: 0,
            },
        };
        let backing = Backing {
            users: backing.users + 1,
            ..backing
        };
        node.backing = Some(backing);
        Some(backing.id)
    }

    /// Somebody has closed a file; `backed` says whether it used the number. Gives the number if nobody does any more.
    pub fn closed(&mut self, id: u64, file: &Arc<OwnedFd>, backed: bool) -> Option<u32> {
        let node = self.nodes.get_mut(&id)?;
        node.open.retain(|open| !Arc::ptr_eq(open, file));
        let backing = node.backing.filter(|_| backed)?;
        let users = backing.users - 1;
        node.backing = (users > 0).then_some(Backing { users, ..backing });
        (users == 0).then_some(backing.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    fn file(ino: u64) -> Attr {
        Attr {
            dev: 1,
            ino,
            mode: libc::S_IFREG,
            ..Attr::default()
        }
    }

    fn nodes() -> Nodes {
        let root = Attr {
            dev: 1,
            ino: 2,
            mode: libc::S_IFDIR,
            ..Attr::default()
        };
        Nodes::new(descriptor(), &root)
    }

    fn name(name: &str) -> Name {
        (ROOT, name.as_bytes().to_vec())
    }

    #[test]
    fn a_node_lives_until_each_look_up_is_forgotten() {
        let mut nodes = nodes();
        let id = nodes.looked_up(&file(10), name("a"), None);
        assert_eq!(
            nodes.looked_up(&file(10), name("b"), None),
            id,
            "two names of one file"
        );
        nodes.forget(id, 1);
        let (_, names) = nodes.whereabouts(id).unwrap();
        assert_eq!(names, [name("b"), name("a")]);
        nodes.forget(id, 1);
        assert!(nodes.whereabouts(id).is_none());
        let again = nodes.looked_up(&file(10), name("a"), None);
        assert_ne!(again, id, "ids are not used again");
        nodes.forget(ROOT, u64::MAX);
        assert!(nodes.dir(ROOT).is_some());
    }

    #[test]
    fn an_inode_with_the_number_of_an_earlier_one_is_another_node() {
        let mut nodes = nodes();
        let born = |sec| Attr {
            btime: Timestamp { sec, nsec: 0 },
            ..file(10)
        };
        let old = nodes.looked_up(&born(1), name("a"), None);
        assert_eq!(nodes.looked_up(&born(1), name("a"), None), old);
        assert_eq!(
            nodes.looked_up(&born(0), name("a"), None),
            old,
            "an answer that does not tell the birth"
        );
        let new = nodes.looked_up(&born(2), name("b"), None);
        assert_ne!(new, old);
        nodes.forget(old, 3);
        assert!(nodes.whereabouts(old).is_none());
        assert_eq!(nodes.looked_up(&born(2), name("b"), None), new);
        let dir = |sec| Attr {
            mode: libc::S_IFDIR,
            ..born(sec)
        };
        nodes.looked_up(&dir(1), name("d"), Some(Arc::new(descriptor())));
        assert!(nodes.known_dir(&dir(1)).is_some());
        assert!(nodes.known_dir(&dir(2)).is_none());
    }

    #[test]
    fn a_name_belongs_to_the_node_that_had_it_last() {
        let mut nodes = nodes();
        let old = nodes.looked_up(&file(10), name("a"), None);
        let new = nodes.looked_up(&file(11), name("a"), None);
        assert_ne!(old, new);
        assert_eq!(nodes.whereabouts(old).unwrap().1, []);
        nodes.renamed(name("a"), name("b"), false);
        assert_eq!(nodes.whereabouts(new).unwrap().1, [name("b")]);
        let third = nodes.looked_up(&file(12), name("c"), None);
        nodes.renamed(name("b"), name("c"), true);
        assert_eq!(nodes.whereabouts(new).unwrap().1, [name("c")]);
        assert_eq!(nodes.whereabouts(third).unwrap().1, [name("b")]);
        nodes.renamed(name("b"), name("c"), false);
        assert_eq!(nodes.whereabouts(new).unwrap().1, []);
        assert_eq!(nodes.removed(&name("c")), Some(third));
        assert_eq!(nodes.removed(&name("c")), None);
    }

    #[test]
    fn all_who_have_a_file_open_share_one_number_and_the_last_gives_it_back() {
        let mut nodes = nodes();
        let id = nodes.looked_up(&file(10), name("a"), None);
        let (one, two) = (Arc::new(descriptor()), Arc::new(descriptor()));
        assert_eq!(nodes.opened(id, &one, || Some(7)), Some(7));
        assert_eq!(nodes.opened(id, &two, || unreachable!()), Some(7));
        assert_eq!(nodes.closed(id, &one, true), None);
        assert!(
            nodes
                .any_open(id)
                .is_some_and(|open| Arc::ptr_eq(&open, &two))
        );
        assert_eq!(nodes.closed(id, &two, true), Some(7));
        assert!(nodes.any_open(id).is_none());
        assert_eq!(nodes.opened(id, &one, || None), None);
        assert_eq!(
            nodes.opened(id, &two, || unreachable!()),
            None,
            "not both ways at once"
        );
    }
}
