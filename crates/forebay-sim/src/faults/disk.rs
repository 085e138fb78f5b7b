//! The local disk of one bridge: backing objects with their labels, inodes and open descriptors.
//!
//! Work on it takes time. What was under way when the bridge died has happened
//! or not, as chance has it; what was finished stays. Descriptors of clients outlive the bridge. What outlives a loss of
//! power is in [`super::disk_log`].

use super::disk_log::{Change, DiskLog, State};
use super::random::Random;
use forebay_core::drain::Use;
use forebay_core::facts::{Attr, Label, Timestamp};
use forebay_core::record::{ObjectId, ObjectName};
use forebay_core::spares::RemovedFile;
use forebay_core::storage::StorageOrder;
use std::collections::BTreeMap;

/// One piece of work.
#[derive(Debug, Clone)]
pub(super) enum Work {
    /// A new object: its name, its label, and its inode unless it is a link to one.
    Make(ObjectName, Label, Option<Inode>),
    Unlink(ObjectName),
    Relabel(ObjectName, Label),
}

/// What an object is, apart from its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Inode {
    /// What users know it by, see [`super::pfs`].
    pub(super) identity: u64,
    pub(super) contents: u64,
    /// Time of its contents.
    pub(super) mtime: i64,
    /// Counts its changes.
    changed: i64,
}

impl Inode {
    pub(super) fn new(identity: u64, contents: u64) -> Self {
        Inode {
            identity,
            contents,
            mtime: contents as i64,
            changed: 0,
        }
    }
}

/// A descriptor of an object.
#[derive(Debug, Clone, Copy)]
struct Open {
    oid: ObjectId,
    /// A client has it, not only the bridge.
    by_client: bool,
}

/// Backing objects.
#[derive(Debug, Default)]
pub(super) struct Disk {
    pub(super) objects: BTreeMap<ObjectName, Label>,
    inodes: BTreeMap<ObjectId, Inode>,
    open: BTreeMap<u64, Open>,
    under_way: BTreeMap<u64, Work>,
    count: u64,
    clock: i64,
    /// Where the power may fail: what is durable.
    log: Option<DiskLog>,
    /// Objects in quarantine.
    pub(super) quarantine: BTreeMap<ObjectName, Inode>,
}

/// Simulated disks give directories odd numbers.
pub(super) fn is_dir(oid: ObjectId) -> bool {
    oid.seq() % 2 == 1
}

/// A removed file that its bridge looks at.
pub(super) struct Opened<'a> {
    disk: &'a Disk,
    object: ObjectName,
}

/// It is gone.
#[derive(Debug)]
pub(super) struct Gone;

impl RemovedFile for Opened<'_> {
    type Label = Label;
    type Error = Gone;

    fn attr(&self) -> Result<Attr, Gone> {
        let mut attr = self.disk.attr(self.object).ok_or(Gone)?;
        if attr.size == 0 {
            attr.blocks = 0;
        }
        Ok(attr)
    }

    fn is_open(&self) -> bool {
        self.disk.is_open(self.object.oid)
    }

    fn untouched(&self, _: Timestamp) -> Option<Label> {
        None
    }

    fn has_other_xattrs(&self) -> Result<bool, Gone> {
        Ok(false)
    }

    fn has_flags(&self) -> Result<bool, Gone> {
        Ok(false)
    }

    fn label(&self) -> Result<Option<Label>, Gone> {
        Ok(self.disk.objects.get(&self.object).cloned())
    }
}

impl Disk {
    /// Begins a piece of work; the number is for [`Disk::finish`].
    pub(super) fn begin(&mut self, work: Work) -> u64 {
        self.count += 1;
        self.under_way.insert(self.count, work);
        self.count
    }

    /// The work is done.
    pub(super) fn finish(&mut self, number: u64) {
        if let Some(work) = self.under_way.remove(&number) {
            self.carry_out(&work);
        }
    }

    /// What a new object is, which is known only at the end of the work.
    pub(super) fn amend(&mut self, number: u64, inode: Inode) {
        if let Some(Work::Make(_, _, Some(planned))) = self.under_way.get_mut(&number) {
            *planned = inode;
        }
    }

    /// The work can't be done.
    pub(super) fn abandon(&mut self, number: u64) {
        self.under_way.remove(&number);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// The bridge dies.
    pub(super) fn crash(&mut self, random: &mut Random) {
        for (_, work) in std::mem::take(&mut self.under_way) {
            if random.chance(500_000) {
                self.carry_out(&work);
            }
        }
        self.open.retain(|_, open| open.by_client);
    }

    fn carry_out(&mut self, work: &Work) {
        match work {
            Work::Make(object, label, inode) => {
                if let Some(inode) = inode {
                    self.inodes.insert(object.oid, *inode);
                }
                if let (Some(log), Some(inode)) = (&mut self.log, inode) {
                    log.wrote(object.oid, inode.contents);
                }
                self.objects.insert(*object, label.clone());
                self.touch(object.oid, Some(*object));
            }
            Work::Unlink(object) => {
                if self.objects.remove(object).is_some() {
                    self.touch(object.oid, Some(*object));
                }
            }
            Work::Relabel(object, label) => {
                if let Some(old) = self.objects.get_mut(object) {
                    *old = label.clone();
                    self.touch(object.oid, Some(*object));
                }
            }
        }
    }

    /// An inode gets another change time, and nothing else.
    pub(super) fn change_time(&mut self, oid: ObjectId) {
        self.touch(oid, None);
    }

    /// Something has changed of an inode; of the name, too, if one is given.
    fn touch(&mut self, oid: ObjectId, name: Option<ObjectName>) {
        self.clock += 1;
        let mut inode = self.inodes.get_mut(&oid);
        if let Some(inode) = &mut inode {
            inode.changed = self.clock;
        }
        if let Some(log) = &mut self.log {
            log.did(Change {
                oid,
                name: name.map(|name| (name, self.objects.get(&name).cloned())),
                inode: inode.copied(),
            });
        }
    }

    /// From now on the power may fail.
    pub(super) fn may_lose_power(&mut self, storage: StorageOrder) {
        self.log = Some(DiskLog::new(storage));
    }

    /// The power fails, and nobody has anything open any more.
    pub(super) fn lose_power(&mut self, random: &mut Random) {
        self.open.clear();
        if let Some(log) = &mut self.log {
            let State { objects, inodes } = log.lose(random);
            self.objects = objects;
            self.inodes = inodes;
        }
    }

    /// `fsync`; without the times `fdatasync`.
    pub(super) fn sync_file(&mut self, oid: ObjectId, times: bool) {
        if let (Some(log), Some(inode)) = (&mut self.log, self.inodes.get(&oid)) {
            log.sync_contents(oid, inode.contents);
            if times {
                log.sync_times(oid);
            }
        }
    }

    pub(super) fn sync_all(&mut self) {
        if let Some(log) = &mut self.log {
            log.sync_all(&self.inodes);
        }
    }

    /// The tables were written and synced.
    pub(super) fn sync_tables(&mut self) {
        if let Some(log) = &mut self.log {
            log.sync_tables();
        }
    }

    /// An object that nobody names is put aside. That is durable at once.
    pub(super) fn withhold(&mut self, object: ObjectName) {
        if let Some(inode) = self.inodes.get(&object.oid) {
            self.quarantine.insert(object, *inode);
        }
        self.carry_out(&Work::Unlink(object));
        if let Some(log) = &mut self.log {
            log.sync_times(object.oid);
        }
    }

    /// Unlinks an object at once.
    pub(super) fn unlink(&mut self, object: ObjectName) {
        self.carry_out(&Work::Unlink(object));
    }

    /// A file gets a name again that it had.
    pub(super) fn link_again(&mut self, other: ObjectName, object: ObjectName) {
        if let Some(label) = self.objects.get(&other).cloned() {
            self.carry_out(&Work::Make(object, label, None));
        }
    }

    pub(super) fn inode(&self, oid: ObjectId) -> Option<&Inode> {
        self.inodes.get(&oid)
    }

    /// What users know the object by; 0 for none.
    pub(super) fn identity(&self, oid: ObjectId) -> u64 {
        self.inodes.get(&oid).map_or(0, |i| i.identity)
    }

    /// What users know files by that are here.
    pub(super) fn identities(&self) -> impl Iterator<Item = u64> {
        let files = self.objects.keys().filter(|object| !is_dir(object.oid));
        files.map(|object| self.identity(object.oid))
    }

    pub(super) fn links(&self, oid: ObjectId) -> usize {
        let first = ObjectName { oid, link: 0 };
        let last = ObjectName {
            oid,
            link: u32::MAX,
        };
        self.objects.range(first..=last).count()
    }

    /// `fstat` of an object; `None` if it is not there.
    pub(super) fn attr(&self, object: ObjectName) -> Option<Attr> {
        self.objects.get(&object)?;
        let inode = self.inodes.get(&object.oid)?;
        let dir = is_dir(object.oid);
        let kind = if dir { libc::S_IFDIR } else { libc::S_IFREG };
        let moment = |sec| Timestamp { sec, nsec: 0 };
        Some(Attr {
            mode: kind | 0o755,
            ino: inode.identity,
            size: if dir { 0 } else { inode.contents.min(1) },
            blocks: 8,
            nlink: self.links(object.oid) as u32,
            mtime: moment(if dir { 0 } else { inode.mtime }),
            ctime: moment(inode.changed),
            ..Attr::default()
        })
    }

    /// Somebody writes, by whatever descriptor.
    pub(super) fn write(&mut self, oid: ObjectId, contents: u64) {
        if let Some(inode) = self.inodes.get_mut(&oid) {
            inode.contents = contents;
            inode.mtime = contents as i64;
        }
        if let Some(log) = &mut self.log {
            log.wrote(oid, contents);
        }
        self.touch(oid, None);
    }

    /// The bridge opens an object; `None` if it is gone.
    pub(super) fn open(&mut self, object: ObjectName) -> Option<u64> {
        self.objects.get(&object)?;
        self.count += 1;
        let open = Open {
            oid: object.oid,
            by_client: false,
        };
        self.open.insert(self.count, open);
        Some(self.count)
    }

    /// The descriptor is on its way to a client.
    pub(super) fn pass(&mut self, fd: u64) {
        if let Some(open) = self.open.get_mut(&fd) {
            open.by_client = true;
        }
    }

    /// The object of a descriptor.
    pub(super) fn of(&self, fd: u64) -> Option<ObjectId> {
        self.open.get(&fd).map(|open| open.oid)
    }

    pub(super) fn close(&mut self, fd: u64) {
        self.open.remove(&fd);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn is_open(&self, oid: ObjectId) -> bool {
        self.open.values().any(|open| open.oid == oid)
    }

    /// Who has an object open?
    pub(super) fn users(&self, object: ObjectName) -> Option<Use> {
        let by = |client| {
            let mut all = self.open.values();
            all.any(|open| open.oid == object.oid && open.by_client == client)
        };
        match (by(true), by(false)) {
            (true, _) => Some(Use::Held),
            (_, true) => Some(Use::Passing),
            _ => self.attr(object).map(Use::Free),
        }
    }

    /// The file of a removed object, to be looked at.
    pub(super) fn opened(&self, object: ObjectName) -> Opened<'_> {
        Opened { disk: self, object }
    }

    /// A spare object becomes another file.
    pub(super) fn reuse(&mut self, object: ObjectName, label: Label, identity: u64) {
        self.objects.insert(object, label);
        self.inodes.insert(object.oid, Inode::new(identity, 0));
        self.touch(object.oid, Some(object));
    }
}
