//! What a bridge knows while it decides: what is at hand now ([`World`]), and what was obtained
//! for the request before ([`Known`]). Notes all that a decision relies on.

use super::known::{Known, Lists};
use crate::bridge::{
    Listed, RangeRead, ReadSet, SpeakersRead, digest, digest_of_children, range_digest,
};
use crate::facts::{
    Attr, CHILDREN_PER_PAGE, Facts, Fresh, LowerPage, Need, NewKind, NewObject, Outcome, PfsLook,
    Stop, Through, errno,
};
use crate::fault::Fault;
use crate::home::mix;
use crate::path::TreePath;
use crate::record::{BridgeId, ObjectName, PathRecord, Token};
use crate::speakers::{Lowers, Speaker, Word};
use crate::table::{TableError, Tables};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// What is at hand in a driver. Nothing here waits. While one step looks at it no commit happens that the step could see, or
/// the driver finds out and steps again.
pub trait World {
    /// The tables of this bridge.
    fn tables(&self) -> &dyn Tables;
    /// Is this bridge alone in its namespace?
    fn is_single(&self) -> bool;
    /// Is the record of this path in the own tables, and no undecided transaction about to change it?
    fn is_at_hand(&self, path: &TreePath) -> bool;
    /// Is an undecided transaction about to change an own record below this directory?
    fn is_held_below(&self, dir: &TreePath) -> bool;
    /// Where the record of an object of this bridge is, also if its home is another bridge.
    ///
    /// # Errors
    /// The tables failed.
    fn path_of(&self, object: ObjectName) -> Result<Option<TreePath>, TableError>;
    /// If there is no record at a path that is at hand: see [`crate::bridge::Bridge::absence`].
    fn absence(&self, _: &TreePath) -> u64 {
        0
    }
    /// See [`crate::bridge::Bridge::absences`].
    fn absences(&self, _: &Listed) -> u64 {
        0
    }
    /// See [`Facts::moved`]. Asked of a bridge that is alone.
    fn moved(&self, origin: &TreePath) -> Option<TreePath>;
    /// `fstat` of a backing object (for a node: of the node).
    ///
    /// # Errors
    /// The errno.
    fn attr(&self, object: ObjectName) -> Result<Attr, i32>;
    /// Text that a backing symbolic link holds.
    ///
    /// # Errors
    /// The errno.
    fn link_text(&self, object: ObjectName) -> Result<Vec<u8>, i32>;
    /// See [`Facts::has_strays`].
    ///
    /// # Errors
    /// The errno.
    fn has_strays(&self, _dir: ObjectName) -> Result<bool, i32> {
        Ok(false)
    }
    /// Is this a request to a bridge that serves several users? Then all that it sees of the PFS has to be in the directories that it
    /// was judged by: a user may exchange a directory for another one meanwhile.
    fn is_asked_for_several_users(&self) -> bool {
        false
    }
    /// See [`crate::facts::Settings::keeps_numbers`].
    fn keeps_numbers(&self) -> bool {
        true
    }
    /// `lstat` on the PFS; `None` where a look may wait. `through`: see [`Known::through`](super::Known::through).
    fn lower(&self, path: &TreePath, through: Option<Through>)
    -> Option<Result<Option<Attr>, i32>>;
    /// Text of a symbolic link on the PFS; `None` where a look may wait.
    fn lower_link(&self, path: &TreePath, through: Option<Through>)
    -> Option<Result<Vec<u8>, i32>>;
    /// See [`Facts::above_root`].
    ///
    /// # Errors
    /// The errno.
    fn above_root(&self) -> Result<Vec<Attr>, i32> {
        Ok(Vec::new())
    }
    /// See [`Facts::has_open`].
    fn has_open(&self, _: &Attr) -> bool {
        false
    }
    /// Is the object a plain file of this bridge, as opposed to a directory or a node?
    fn is_plain(&self, object: ObjectName) -> bool;
    /// Do times of directories wait to be written, so that `stat` of one would change by itself?
    fn times_wait(&self) -> bool;
    /// Next version number for records.
    fn next_version(&self) -> u64;
    /// See [`Facts::new_marker`].
    fn new_marker(&self) -> ObjectName;
    /// This bridge.
    fn me(&self) -> BridgeId;
    /// A number that grows with each commit of this bridge.
    fn moment(&self) -> u64;
    /// A number that grows with each change that this bridge itself makes on the PFS. Asked of a bridge that is alone:
    /// what several do there shows in records and absences.
    fn pfs_changes(&self) -> u64;
    /// Has an earlier try of this request changed the tables already?
    fn was_carried_out(&self, token: Token) -> bool;
    /// Is it still open what became of an earlier try of this request?
    fn is_undecided(&self, token: Token) -> bool;

    /// So many records below a directory may be read in one step; with more it ends in
    /// [`Effect::TakesLong`](super::Effect::TakesLong). For a bridge that is alone.
    fn records_at_once(&self) -> usize {
        usize::MAX
    }

    /// Does a commit bring along what nobody can see any more, in parts of their own? A bridge that is alone may.
    fn commits_in_parts(&self) -> bool {
        false
    }

    /// See [`Mutation`](crate::bridge::Mutation).
    #[doc(hidden)]
    fn planted(&self) -> Option<crate::bridge::Mutation> {
        None
    }
}

/// [`Facts`] for one decision.
pub struct Look<'a> {
    world: &'a dyn World,
    known: &'a Known,
    /// Objects made for the request.
    fresh: &'a [(Arc<NewObject>, Fresh)],
    reads: RefCell<ReadSet>,
    /// Something was listed.
    has_listed: Cell<bool>,
    lists: RefCell<Lists>,
    /// An object was missing that a record names.
    missed: Cell<bool>,
    /// There were more records than may be read at once.
    is_much: Cell<bool>,
    /// It depends on what the PFS shows.
    saw_pfs: Cell<bool>,
}

impl<'a> Look<'a> {
    /// What is at hand in `world` and what is known already.
    pub fn new(world: &'a dyn World, known: &'a Known) -> Self {
        Look::with_fresh(world, known, &[])
    }

    pub(super) fn with_fresh(
        world: &'a dyn World,
        known: &'a Known,
        fresh: &'a [(Arc<NewObject>, Fresh)],
    ) -> Self {
        Look {
            world,
            known,
            fresh,
            reads: RefCell::default(),
            has_listed: Cell::new(false),
            lists: RefCell::default(),
            missed: Cell::new(false),
            is_much: Cell::new(false),
            saw_pfs: Cell::new(false),
        }
    }

    /// True if an answer that changes nothing rests on several records read one after the other. A record alone
    /// says all. Its absence does not, because the directories above may be on the PFS. Nor does a record say that a
    /// symbolic link still leads to it. One bridge reads everything at one moment.
    pub(super) fn rests_on_several(&self) -> bool {
        if self.world.is_single() {
            return false;
        }
        let reads = self.reads.borrow();
        let mut named = reads.records.iter().filter(|(p, _)| !p.is_root());
        let vacant =
            named.clone().count() > 1 && named.clone().any(|(_, seen)| seen.version.is_none());
        vacant
            || self.has_listed.get()
            || self.saw_pfs.get()
            || named.any(|(_, seen)| seen.followed)
    }

    /// True if the PFS was looked at.
    pub(super) fn saw_pfs(&self) -> bool {
        self.saw_pfs.get()
    }

    /// True if there were more records than may be read at once: there is no decision then.
    pub(super) fn is_too_much(&self) -> bool {
        self.is_much.get()
    }

    /// True if a record named a missing object. Another bridge may have told of the record before the object
    /// went.
    pub(super) fn missed_an_object(&self) -> bool {
        self.missed.get() && !self.world.is_single()
    }

    /// What the decision relied on; empty for one bridge, whose decisions are carried out at the
    /// moment at which they are made. And what it has listed.
    pub(super) fn into_reads(self) -> (ReadSet, Lists) {
        (self.reads.into_inner(), self.lists.into_inner())
    }

    fn saw(&self, path: &TreePath, record: Option<&PathRecord>, absence: u64) {
        if !self.world.is_single() {
            self.reads.borrow_mut().saw_since(path, record, absence);
        }
    }

    /// Notes a list: a digest of the own records in it, and those of other bridges.
    fn listed(&self, of: Listed, own: u64, others: &[u64]) {
        let own = range_digest(own, self.world.absences(&of));
        let seen = others.iter().fold(own, |digest, seen| mix(digest, *seen));
        self.lists.borrow_mut().insert(of, seen);
    }

    /// Who speaks of exactly this path of the PFS, as all bridges say.
    fn speakers_of(&self, lower: &TreePath) -> Outcome<Vec<Speaker>> {
        let of = Lowers::At(lower.clone());
        let Some(page) = self.known.others.speakers(&of, None) else {
            let limit = CHILDREN_PER_PAGE;
            let before = None;
            return Err(Stop::Need(Need::Speakers { of, before, limit }));
        };
        self.has_listed.set(true);
        let seen = page.seen.clone();
        self.reads
            .borrow_mut()
            .speakers
            .push(SpeakersRead { of, seen });
        Ok(page.speakers.clone())
    }

    fn keeps_to_dirs(&self) -> bool {
        self.known
            .keeps_to_dirs(self.world.is_asked_for_several_users())
    }

    fn through(&self, look: &PfsLook) -> Option<Through> {
        match self.keeps_to_dirs() {
            true => self.known.through(look),
            false => None,
        }
    }

    /// `lstat` of what is at `path` on the PFS, as `look` says.
    fn attr_there(&self, path: &TreePath, look: PfsLook) -> Outcome<Option<Attr>> {
        match self.world.lower(path, self.through(&look)) {
            // Another directory is in the place of the one that it was judged by: all is looked at anew.
            Some(Err(libc::ENOENT)) | None => Err(Stop::Need(Need::Look(look))),
            Some(attr) => {
                let attr = attr.map_err(Stop::Errno)?;
                if !self.world.is_single() || self.keeps_to_dirs() {
                    // The second look at the records tells whether it holds, so it is not taken anew then.
                    self.known.put_attr(look, attr);
                }
                Ok(attr)
            }
        }
    }

    /// A record names the object, so it has to be there.
    fn missing(&self, object: ObjectName, e: i32) -> Stop {
        self.missed.set(e == libc::ENOENT);
        match e {
            libc::ENOENT => Fault::ObjectGone(object).into(),
            other => Stop::Errno(other),
        }
    }
}

impl Facts for Look<'_> {
    fn record(&self, path: &TreePath) -> Outcome<Option<PathRecord>> {
        let (record, absence) = if self.world.is_at_hand(path) {
            let record = self.world.tables().get(path).map_err(Stop::from)?;
            (record, self.world.absence(path))
        } else {
            match self.known.others.record(path) {
                Some(told) => told.clone(),
                None => return Err(Stop::Need(Need::Record(path.clone()))),
            }
        };
        self.saw(path, record.as_ref(), absence);
        Ok(record)
    }

    fn children(
        &self,
        dir: &TreePath,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Outcome<Vec<(Vec<u8>, PathRecord)>> {
        self.has_listed.set(true);
        let tables = self.world.tables();
        if self.world.is_single() {
            return tables.children(dir, after, limit).map_err(Stop::from);
        }
        let others = self.known.others.children(dir, after);
        let Some((others, seen)) = others.filter(|_| !self.world.is_held_below(dir)) else {
            return Err(Stop::Need(Need::Children {
                dir: dir.clone(),
                after: after.map(<[u8]>::to_vec),
                limit,
            }));
        };
        let mut all = tables.children(dir, after, limit).map_err(Stop::from)?;
        let of = Listed::Children {
            dir: dir.clone(),
            after: after.map(<[u8]>::to_vec),
        };
        self.listed(of, digest_of_children(&all), &[*seen]);
        all.extend(others.iter().cloned());
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all.truncate(limit);
        for (name, record) in &all {
            self.saw(&dir.join(name), Some(record), 0);
        }
        Ok(all)
    }

    fn subtree(&self, dir: &TreePath) -> Outcome<Vec<(TreePath, PathRecord)>> {
        self.has_listed.set(true);
        let tables = self.world.tables();
        if self.world.is_single() {
            let most = self.world.records_at_once();
            if most < usize::MAX {
                let page = tables.page_below(dir, None, most + 1).map_err(Stop::from)?;
                self.is_much.set(self.is_much.get() || page.len() > most);
                return Ok(page);
            }
            return tables.subtree(dir).map_err(Stop::from);
        }
        let mut all = tables.subtree(dir).map_err(Stop::from)?;
        let others = self
            .known
            .others
            .below(dir)
            .filter(|_| !self.world.is_held_below(dir));
        let Some(others) = others else {
            return Err(Stop::Need(Need::Below(dir.clone())));
        };
        let seen: Vec<_> = others.seen.iter().map(|(_, seen)| *seen).collect();
        self.listed(Listed::Below(dir.clone()), digest(&all), &seen);
        all.extend(others.entries.iter().cloned());
        all.sort_by(|a, b| a.0.cmp(&b.0));
        let mut reads = self.reads.borrow_mut();
        for (path, record) in &all {
            reads.saw(path, Some(record));
        }
        reads.ranges.push(RangeRead {
            dir: dir.clone(),
            seen: others.seen.clone(),
        });
        Ok(all)
    }

    fn path_of(&self, object: ObjectName) -> Outcome<Option<TreePath>> {
        if self.world.is_single() || object.oid.bridge() == self.world.me() {
            return self.world.path_of(object).map_err(Stop::from);
        }
        let Some(names) = self.known.others.names(object.oid) else {
            return Err(Stop::Need(Need::Names(object.oid)));
        };
        let name = names.iter().find(|(name, _)| *name == object);
        Ok(name.map(|(_, path)| path.clone()))
    }

    fn moved(&self, origin: &TreePath) -> Outcome<Option<TreePath>> {
        if self.world.is_single() {
            return Ok(self.world.moved(origin));
        }
        let speakers = self.speakers_of(origin)?;
        let mut moved = speakers.into_iter().filter(|s| s.word == Word::Origin);
        Ok(moved.next().map(|speaker| speaker.path))
    }

    fn attr(&self, object: ObjectName) -> Outcome<Attr> {
        if let Some(attr) = self.known.object(object) {
            return Ok(attr);
        }
        let attr = self.world.attr(object);
        let attr = attr.map_err(|e| self.missing(object, e))?;
        self.known.put_object(object, attr);
        Ok(attr)
    }

    fn link_text(&self, object: ObjectName) -> Outcome<Vec<u8>> {
        let text = self.world.link_text(object);
        text.map_err(|e| self.missing(object, e))
    }

    fn has_strays(&self, dir: ObjectName) -> Outcome<bool> {
        let has = self.world.has_strays(dir);
        has.map_err(|e| self.missing(dir, e))
    }

    fn lower(&self, path: &TreePath) -> Outcome<Option<Attr>> {
        self.saw_pfs.set(true);
        match self.known.attr(path) {
            Some(attr) => Ok(attr),
            None => self.attr_there(path, PfsLook::Attr(path.clone())),
        }
    }

    fn renamed(&self, record: &PathRecord) -> Outcome<Option<Attr>> {
        let Some(origin) = &record.origin else {
            return Ok(None);
        };
        self.saw_pfs.set(true);
        let keeps_numbers = self.world.keeps_numbers();
        let found = match self.known.renamed(origin) {
            Some(attr) => attr,
            None => {
                let knows_dirs = keeps_numbers || self.world.is_asked_for_several_users();
                let look = PfsLook::Renamed {
                    origin: origin.clone(),
                    out_of: record.dirs().out_of.filter(|_| knows_dirs),
                };
                self.attr_there(origin, look)?
            }
        };
        // What others have put in its place was not renamed, unless somebody has chosen that it goes along.
        let known = record.arriving.as_deref();
        let known = known.filter(|_| keeps_numbers && !record.adopts);
        Ok(found.filter(|attr| known.is_none_or(|known| known.is_inode_of(attr))))
    }

    fn lower_link(&self, path: &TreePath) -> Outcome<Vec<u8>> {
        self.saw_pfs.set(true);
        if let Some(text) = self.known.link(path) {
            return Ok(text);
        }
        let look = PfsLook::Link(path.clone());
        match self.world.lower_link(path, self.through(&look)) {
            Some(Err(libc::ENOENT)) | None => Err(Stop::Need(Need::Look(look))),
            Some(text) => {
                let text = text.map_err(Stop::Errno)?;
                if !self.world.is_single() {
                    self.known.put_link(path.clone(), text.clone());
                }
                Ok(text)
            }
        }
    }

    fn lower_list(&self, path: &TreePath, after: Option<&[u8]>) -> Outcome<Arc<LowerPage>> {
        self.saw_pfs.set(true);
        // Even a local directory can be large: it is never read while a step waits for it.
        match self.known.list(path, after) {
            Some(page) => Ok(page.clone()),
            None => Err(Stop::Need(Need::Look(PfsLook::List {
                dir: path.clone(),
                after: after.map(<[u8]>::to_vec),
            }))),
        }
    }

    fn followed(&self, path: &TreePath) {
        if let Some(seen) = self.reads.borrow_mut().records.get_mut(path) {
            seen.followed = true;
        }
    }

    fn levels_above(&self) -> usize {
        self.known.levels_above
    }

    fn is_held_in_place(&self, path: &TreePath) -> bool {
        self.known.is_held_in_place(path)
    }

    fn above_root(&self) -> Outcome<Vec<Attr>> {
        self.world.above_root().map_err(Stop::Errno)
    }

    fn has_open(&self, what: &Attr) -> bool {
        self.world.has_open(what)
    }

    fn fresh(&self, spec: &NewObject) -> Outcome<Fresh> {
        let source = match &spec.what {
            NewKind::Staged { lower, .. } => {
                let file = match self.known.shown(lower) {
                    Some(file) => Some(file),
                    None => self.lower(lower)?,
                };
                file.map(|file| (file.ino, file.ctime))
            }
            _ => None,
        };
        // A drain may have put another file there since that was copied.
        let is_it = |fresh: &Fresh| source.is_none() || self.known.source(fresh.object) == source;
        let mut made = self
            .fresh
            .iter()
            .filter(|(for_spec, _)| **for_spec == *spec);
        match made.find(|(_, fresh)| is_it(fresh)) {
            Some((_, fresh)) => Ok(*fresh),
            None => {
                self.known.will_copy(source);
                Err(Stop::Need(Need::Object(Arc::new(spec.clone()))))
            }
        }
    }

    fn new_marker(&self) -> ObjectName {
        self.world.new_marker()
    }

    fn next_version(&self) -> u64 {
        self.world.next_version()
    }

    fn me(&self) -> BridgeId {
        self.world.me()
    }

    fn was_carried_out(&self, token: Token) -> Outcome<bool> {
        if token == Token::default() {
            return errno(libc::EINVAL);
        }
        Ok(self.world.was_carried_out(token))
    }

    fn planted(&self) -> Option<crate::bridge::Mutation> {
        self.world.planted()
    }
}
