//! Sync points of a simulated bridge, and what it does after its machine has lost the power.
//!
//! Tables in memory stand for those on the disk: a copy of them is what a sync point leaves. When the power fails the tables
//! are those of the last one, or of the one under way if all else of it is done.

use super::env::{Alarm, Env, Event};
use super::node::{NEVER_FAILS, Node};
use forebay_core::bridge::{Bridge, Mutation};
use forebay_core::drain::Act;
use forebay_core::facts::{Cred, Facts, Label, Stop};
use forebay_core::label::is_right;
use forebay_core::markers::Unmade;
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, Kind, ObjectId, ObjectName};
use forebay_core::recovery::{self, Fate, Loss, Stray};
use forebay_core::request::{Known, Look};
use forebay_core::storage::{Beside, Removal, StorageOrder, SyncRound, SyncStep, Syncing, Wish};
use forebay_core::table::{Change, Tables, WriteTables};
use forebay_core::walk::Walk;
use forebay_tables::Memory;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Somebody who waits for a sync point.
#[derive(Debug, Default)]
pub(super) struct Asker {
    /// When it asked.
    pub(super) moment: u64,
    /// How many versions of files are durable then.
    pub(super) versions: Vec<(u64, usize)>,
}

/// The one under way.
struct UnderWay {
    number: u64,
    tables: Memory,
    watermark: [Change; 1],
    askers: Vec<Asker>,
    whole: bool,
    removed: Vec<ObjectName>,
    left: Vec<SyncStep>,
    commits: u64,
    /// Of those, what messages to other bridges wait for.
    told: u64,
}

/// Nobody knows which commits are durable.
const NOTHING: u64 = u64::MAX;

/// What a bridge knows of its sync points, and what they have left.
pub(super) struct SyncPoints {
    storage: StorageOrder,
    longest_us: u64,
    syncing: Syncing<Asker>,
    /// The tables of the last one.
    tables: Memory,
    under_way: Option<UnderWay>,
    count: u64,
    /// The first sequence number that the last one can't know.
    begun: u64,
    /// Numbers of objects that no commit has named yet.
    unnamed: BTreeSet<u64>,
    /// Commits that are durable.
    durable: u64,
    /// When the first commit was made that is not durable.
    pub(super) since_us: Option<u64>,
    /// One has failed since.
    pub(super) has_failed: bool,
    /// Objects whose contents come from the bridge.
    own: Vec<ObjectId>,
    /// Removed objects that wait for the next one.
    removed: Vec<ObjectName>,
    /// Removed objects that may go.
    free: Vec<ObjectName>,
    /// Directories of the PFS with changed entries.
    changed_dirs: BTreeSet<TreePath>,
    /// There may be others.
    all_changed: bool,
    /// Labelled files with contents that a loss of power has left.
    survivors: BTreeMap<ObjectId, u64>,
}

impl SyncPoints {
    pub(super) fn new(storage: StorageOrder, longest_us: u64) -> Self {
        SyncPoints {
            storage,
            longest_us,
            syncing: Syncing::new(Duration::from_micros(longest_us)),
            tables: Memory::new(),
            under_way: None,
            count: 0,
            begun: 0,
            unnamed: BTreeSet::new(),
            durable: NOTHING,
            since_us: None,
            has_failed: false,
            own: Vec::new(),
            removed: Vec::new(),
            free: Vec::new(),
            changed_dirs: BTreeSet::new(),
            all_changed: false,
            survivors: BTreeMap::new(),
        }
    }

    /// May the last one know an object with this number?
    pub(super) fn may_know(&self, seq: u64) -> bool {
        self.storage.may_know(seq, self.begun)
    }
}

impl Node {
    /// Nothing waits for a sync point.
    pub(super) fn is_settled_down(&self) -> bool {
        let Some(points) = &self.sync_points else {
            return true;
        };
        points.under_way.is_none() && points.removed.is_empty() && points.free.is_empty()
    }

    /// The bridge itself has written the contents of an object, or copied it to the PFS: they are durable at the next sync
    /// point.
    pub(super) fn wrote_contents(&mut self, object: ObjectId) {
        if let Some(points) = &mut self.sync_points {
            points.own.push(object);
        }
    }

    /// An object is made, and has no name before a commit.
    pub(super) fn is_unnamed(&mut self, object: ObjectName) {
        if let Some(points) = self.sync_points.as_mut().filter(|_| object.link == 0) {
            points.unnamed.insert(object.oid.seq());
        }
    }

    /// A commit has named it, or it goes. Objects of other bridges may have the same numbers.
    pub(super) fn settle(&mut self, object: ObjectName) {
        let is_own = object.oid.bridge() == self.id;
        if let Some(points) = self.sync_points.as_mut().filter(|_| is_own) {
            points.unnamed.remove(&object.oid.seq());
        }
    }

    /// What is above the watermark of an earlier life is not judged yet.
    pub(super) fn hold_watermark(&mut self, watermark: u64) {
        if let Some(points) = &mut self.sync_points {
            points.unnamed.insert(watermark);
        }
    }

    pub(super) fn release_watermark(&mut self, watermark: u64) {
        if let Some(points) = &mut self.sync_points {
            points.unnamed.remove(&watermark);
        }
    }

    /// Something was committed.
    pub(super) fn committed(&mut self, env: &mut Env) {
        if let Some(points) = &mut self.sync_points {
            points.since_us.get_or_insert(env.now);
            self.alarm(0, Alarm::Syncing, env);
        }
    }

    /// Somebody waits until everything that was committed is durable.
    pub(super) fn ask_for_sync(&mut self, asker: Asker, wish: Wish, env: &mut Env) {
        if !self.is_alive() {
            return;
        }
        if let Some(points) = &mut self.sync_points {
            points.syncing.ask(asker, wish);
            self.alarm(0, Alarm::Syncing, env);
        }
    }

    /// Does what comes next for sync points, unless one is under way.
    pub(super) fn go_on_syncing(&mut self, env: &mut Env) {
        let Some(points) = &mut self.sync_points else {
            return;
        };
        if points.under_way.is_some() {
            return;
        }
        if self
            .bridge
            .as_ref()
            .is_some_and(Bridge::waits_for_sync_point)
        {
            points.syncing.ask(Asker::default(), Wish::Durable);
        }
        let now = Duration::from_micros(env.now);
        let is_durable = points.durable == self.commits;
        if is_durable {
            points.free.append(&mut points.removed);
        }
        let beside = Beside {
            is_durable,
            has_removed: !points.free.is_empty(),
            // They have times of their own here.
            unmade: Unmade::None,
        };
        match points.syncing.next(now, beside) {
            SyncRound::Sync { askers, whole, .. } => self.begin_sync_point(askers, whole, env),
            SyncRound::Unlink => {
                for object in std::mem::take(&mut points.free) {
                    self.unlink_for_good(object, env);
                }
                self.alarm(0, Alarm::Syncing, env);
            }
            SyncRound::Wait(Some(until)) => {
                let delay = until.saturating_sub(now).as_micros() as u64;
                self.alarm(delay, Alarm::Syncing, env);
            }
            SyncRound::Mark | SyncRound::Wait(None) | SyncRound::End => {}
        }
    }

    fn begin_sync_point(&mut self, askers: Vec<Asker>, whole: bool, env: &mut Env) {
        let Some(points) = &mut self.sync_points else {
            return;
        };
        if points.durable == self.commits {
            // Names need nothing, and so the disk is not told to keep times either.
            if whole {
                self.disk.sync_all();
            }
            answer(self.id, askers, env);
            return self.alarm(0, Alarm::Syncing, env);
        }
        let spares = self.spares.take_for_sync_point(points.storage);
        let mut removed = std::mem::take(&mut points.removed);
        removed.extend(spares.into_iter().map(|spare| spare.object));
        points.begun = self.objects.get() + 2;
        let first = points.unnamed.first().copied().unwrap_or(points.begun);
        let tables = self.tables.clone();
        // The journal does not have it.
        let watermark = [Change::from(recovery::watermark(first))];
        tables.apply(&watermark).expect(NEVER_FAILS);
        points.count += 1;
        let steps = points.storage.sync_point(self.mutation).iter().rev();
        let mut under_way = UnderWay {
            number: points.count,
            tables,
            watermark,
            askers,
            whole,
            removed,
            left: steps.copied().collect(),
            commits: self.commits,
            told: self.bridge.as_ref().map_or(0, Bridge::commits),
        };
        let number = points.count;
        if Mutation::SyncsAreAnsweredEarly.is(self.mutation) {
            answer(self.id, std::mem::take(&mut under_way.askers), env);
        }
        points.under_way = Some(under_way);
        let delay = env.disk_us();
        self.alarm(delay, Alarm::SyncStep(number), env);
    }

    /// A step of the sync point under way is done.
    pub(super) fn on_sync_step(&mut self, number: u64, env: &mut Env) {
        let points = self.sync_points.as_ref();
        let under_way = points.and_then(|points| points.under_way.as_ref());
        if under_way.is_none_or(|u| u.number != number) {
            return;
        }
        let fails = env.fails_on_pfs().is_some();
        if self.sync_step(fails, env) {
            let delay = env.disk_us();
            return self.alarm(delay, Alarm::SyncStep(number), env);
        }
        self.alarm(0, Alarm::Syncing, env);
    }

    /// Carries out the next step; true if others follow. `fails`: the PFS does.
    fn sync_step(&mut self, fails: bool, env: &mut Env) -> bool {
        let Some(points) = &mut self.sync_points else {
            return false;
        };
        let Some(mut under_way) = points.under_way.take() else {
            return false;
        };
        if std::mem::take(&mut under_way.whole) {
            self.disk.sync_all();
            points.under_way = Some(under_way);
            return true;
        }
        match under_way.left.pop() {
            Some(SyncStep::OwnContents) => {
                for oid in std::mem::take(&mut points.own) {
                    self.disk.sync_file(oid, false);
                }
            }
            Some(SyncStep::Storage) => self.disk.sync_all(),
            Some(SyncStep::PfsNames) if fails && !points.changed_dirs.is_empty() => {
                // Those who asked are told, and were promised nothing.
                points.has_failed = true;
                points.removed.append(&mut under_way.removed);
                return false;
            }
            Some(SyncStep::PfsNames) => {
                let mut pfs = self.lower.borrow_mut();
                if std::mem::take(&mut points.all_changed) {
                    pfs.sync_names();
                }
                for dir in std::mem::take(&mut points.changed_dirs) {
                    pfs.sync_dir(&dir);
                }
            }
            Some(SyncStep::Names) => {
                self.disk.sync_tables();
                points.tables = under_way.tables.clone();
                self.tables.apply(&under_way.watermark).expect(NEVER_FAILS);
            }
            None => {}
        }
        if !under_way.left.is_empty() {
            points.under_way = Some(under_way);
            return true;
        }
        points.free.append(&mut under_way.removed);
        points.durable = under_way.commits;
        points.has_failed = false;
        points.since_us = (points.durable != self.commits).then_some(env.now);
        answer(self.id, under_way.askers, env);
        if let Some(bridge) = &mut self.bridge {
            bridge.durable(under_way.told);
        }
        false
    }

    /// Messages to other bridges wait for a sync point, and there is none.
    pub(super) fn hurry_for_others(&self, env: &mut Env) {
        let is_idle = |points: &SyncPoints| points.under_way.is_none();
        let waits = self
            .bridge
            .as_ref()
            .is_some_and(Bridge::waits_for_sync_point);
        if waits && self.sync_points.as_ref().is_some_and(is_idle) {
            self.alarm(0, Alarm::Syncing, env);
        }
    }

    /// A sync point that its caller waits for: nothing else happens meanwhile.
    pub(super) fn sync_now(&mut self, env: &mut Env) {
        if self.sync_points.is_none() || !self.is_alive() {
            return;
        }
        while self.sync_step(false, env) {}
        self.alarm(0, Alarm::Syncing, env);
        let points = self.sync_points.as_ref();
        if points.is_some_and(|p| p.durable == self.commits && p.changed_dirs.is_empty()) {
            return;
        }
        self.begin_sync_point(Vec::new(), false, env);
        while self.sync_step(false, env) {}
    }

    /// Before an act changes names on the PFS everything committed is durable.
    pub(super) fn settle_before(&mut self, act: &Act, env: &mut Env) {
        let planted = Mutation::PfsChangesBeforeNamesAreDurable.is(self.mutation);
        if act.changes_names_of_pfs() && !planted {
            self.sync_now(env);
        }
    }

    /// What is said of a drain stays true.
    pub(super) fn settle_drain(&mut self, env: &mut Env) {
        if self.sync_points.is_none() {
            return;
        }
        if !Mutation::DrainsEndBeforeTheyAreDurable.is(self.mutation) {
            self.sync_now(env);
        }
        env.is_durable_before(self.id, env.moment());
        let pfs = self.lower.borrow();
        for (identity, contents) in pfs.durable_files() {
            env.synced_contents(identity, contents);
        }
    }

    pub(super) fn distrust_pfs(&mut self) {
        if let Some(points) = &mut self.sync_points {
            points.all_changed = true;
        }
    }

    /// Notes the directories of the PFS that an act changes.
    pub(super) fn note_changed_dirs(&mut self, act: &Act) {
        if let Some(points) = &mut self.sync_points {
            points.changed_dirs.extend(act.changed_dirs());
        }
    }

    /// May the last sync point know this object?
    pub(super) fn is_known(&self, object: ObjectName) -> bool {
        let points = self.sync_points.as_ref();
        points.is_some_and(|points| points.may_know(object.oid.seq()))
    }

    /// Has this removed object to wait for a sync point? It is gone already if it has other names.
    pub(super) fn waits_for_sync_point(&mut self, object: ObjectName, env: &mut Env) -> bool {
        let is_known = self.is_known(object);
        let Some(points) = &mut self.sync_points else {
            return false;
        };
        if !is_known || Mutation::KnownFilesAreUnlinked.is(self.mutation) {
            return false;
        }
        let links = self.disk.links(object.oid) as u32;
        match Removal::of(links, || self.disk.is_open(object.oid)) {
            Removal::AtOnce => {
                // Now, so that of two names that go the second one is the last.
                self.unlink_now(object);
                if env.power_strikes(500_000) {
                    env.after(1, Event::Crash { bridge: self.id });
                }
                return true;
            }
            Removal::Now => points.syncing.hurry(),
            Removal::Later => {}
        }
        points.removed.push(object);
        self.alarm(0, Alarm::Syncing, env);
        true
    }

    /// The process dies, and with it what it knew of sync points.
    pub(super) fn crash_sync_point(&mut self, env: &mut Env) {
        let Some(points) = &mut self.sync_points else {
            return;
        };
        if let Some(under_way) = points.under_way.take() {
            // The names are being written: that has happened or not.
            let is_last = under_way.left.last() == Some(&SyncStep::Names) && !under_way.whole;
            if is_last && env.random.chance(500_000) {
                self.disk.sync_tables();
                points.tables = under_way.tables;
                self.tables.apply(&under_way.watermark).expect(NEVER_FAILS);
            }
        }
        points.syncing = Syncing::new(Duration::from_micros(points.longest_us));
        points.removed.clear();
        points.free.clear();
        points.own.clear();
        points.changed_dirs.clear();
        points.all_changed = false;
        points.begun = 0;
        points.unnamed.clear();
        points.durable = NOTHING;
        points.since_us = None;
        points.has_failed = true;
    }

    /// The machine has lost its power: tables and objects are what is left of them.
    pub(super) fn lose_power(&mut self, env: &mut Env) {
        self.crash(env);
        let Some(points) = &mut self.sync_points else {
            return;
        };
        env.counts.losses += 1;
        self.tables = points.tables.clone();
        self.disk.lose_power(&mut env.random);
        self.in_place.lose_power();
        self.apply(&[Loss::Power.noted()]);
        self.note(env, || "loses its power".to_owned());
    }

    /// The tables are new, and durable with all that they tell of.
    pub(super) fn tables_are_durable(&mut self) {
        if let Some(points) = &mut self.sync_points {
            self.disk.sync_all();
            self.lower.borrow_mut().sync_names();
            points.tables = self.tables.clone();
        }
    }

    /// Before a recovery decides anything: what it must not lose.
    pub(super) fn note_survivors(&mut self) {
        let doomed = self.tables.marks().expect(NEVER_FAILS).doomed;
        let doomed: BTreeSet<_> = doomed.into_iter().map(|object| object.oid).collect();
        let is_file =
            |oid: ObjectId, label: &Label| label.kind == Kind::File && !doomed.contains(&oid);
        let files = self.disk.objects.iter().filter(|(o, l)| is_file(o.oid, l));
        let held = files.filter_map(|(object, _)| {
            let contents = self.disk.inode(object.oid)?.contents;
            (contents != 0).then_some((object.oid, contents))
        });
        let held = held.collect();
        if let Some(points) = &mut self.sync_points {
            points.survivors = held;
        }
    }

    pub(super) fn link_what_is_ahead(&mut self, on_disk: &[ObjectName]) {
        let records = self.records();
        for (_, object, others) in recovery::lost_names(&records, on_disk) {
            if let Some(other) = others.first() {
                self.disk.link_again(*other, object);
                self.relabel_after_loss(object);
            }
        }
        for object in self.named_elsewhere() {
            let others = recovery::lost_name(object, on_disk).unwrap_or_default();
            if let Some(other) = others.first() {
                self.disk.link_again(*other, object);
            }
        }
    }

    /// Objects that are kept here while their records are at other homes.
    pub(super) fn named_elsewhere(&self) -> Vec<ObjectName> {
        let named = self
            .bridge
            .as_ref()
            .map(|bridge| bridge.named_elsewhere(&self.tables));
        let named = named
            .map(|named| named.expect(NEVER_FAILS))
            .unwrap_or_default();
        named.into_iter().map(|(object, _)| object).collect()
    }

    /// A label is written later here: a mark tells a next start of it.
    fn relabel_after_loss(&mut self, object: ObjectName) {
        self.apply(&[Change::Relabel(object)]);
        self.relabel(object);
    }

    /// Puts an object aside if somebody may have written what is in it.
    pub(super) fn withhold(&mut self, object: ObjectName, env: &mut Env) -> bool {
        let Some(attr) = self.disk.attr(object) else {
            return false;
        };
        let label = self.disk.objects.get(&object);
        let hides = label.and_then(|label| label.hides.as_ref());
        let pfs = self.lower.borrow();
        let original = hides.and_then(|path| pfs.attr(path));
        let is_same = || {
            let below = hides.and_then(|path| pfs.contents(path));
            below == self.disk.inode(object.oid).map(|inode| inode.contents)
        };
        let stray = Stray::of(label, &attr, original.as_ref(), is_same);
        drop(pfs);
        if stray.fate() == Fate::Remove {
            return false;
        }
        self.note(env, || format!("puts {:?} into quarantine", object.oid));
        self.disk.withhold(object);
        true
    }

    fn unlink_now(&mut self, object: ObjectName) {
        self.disk.unlink(object);
        self.apply(&[Change::Undoom(object)]);
    }

    /// A start unlinks what marks speak of, and what nobody needs.
    pub(super) fn unlink_at_start(&mut self, object: ObjectName, env: &mut Env) {
        if self.sync_points.is_none() {
            return self.unlink_for_good(object, env);
        }
        self.unlink_now(object);
    }

    pub(super) fn relabel_what_is_ahead(&mut self, objects: &[ObjectName], env: &mut Env) {
        for object in objects {
            if !self.has_right_label(*object, env) {
                self.relabel_after_loss(*object);
            }
        }
        for object in self.named_elsewhere() {
            self.relabel_after_loss(object);
        }
    }

    /// True also for an object that nobody names.
    fn has_right_label(&self, object: ObjectName, env: &Env) -> bool {
        let path = self.tables.path_of(object).expect(NEVER_FAILS);
        let record = path.and_then(|path| {
            let record = self.tables.get(&path).expect(NEVER_FAILS);
            record.map(|record| (path, record))
        });
        let (Some((path, record)), Some(bridge), Some(label)) =
            (record, self.bridge.as_ref(), self.disk.objects.get(&object))
        else {
            return true;
        };
        let pfs = self.lower.borrow();
        let hand = super::look::Hand {
            is_slow: false,
            ..self.hand(bridge, &pfs, env)
        };
        let known = Known::default();
        let look = Look::new(&hand, &known);
        let facts: &dyn Facts = &look;
        let settings = super::request::settings(0, usize::MAX);
        let cred = Cred::default();
        let walk = Walk::new(&cred, &settings, facts, false);
        is_right(&walk, &path, &record, label).unwrap_or(false)
    }

    pub(super) fn doubt_what_was_drained(&mut self, env: &mut Env) {
        let mut changes = Vec::new();
        for (path, record) in self.records() {
            let Some(now) = self
                .disk
                .attr(record.object)
                .filter(|_| record.drained.is_some())
            else {
                continue;
            };
            let found = match env.fails_on_pfs() {
                Some(errno) => Err(Stop::Errno(errno)),
                None => Ok(self.lower.borrow().attr(&path)),
            };
            if let Some(record) = recovery::undrained_by_loss(&path, &record, &now, found) {
                changes.push(Change::Put { path, record });
            }
        }
        self.apply(&changes);
        for object in self.named_elsewhere() {
            self.disk.change_time(object.oid);
        }
    }

    /// What the last loss of power has left must be somewhere after the recovery.
    pub(super) fn check_survivors(&mut self, env: &mut Env) {
        let Some(points) = &mut self.sync_points else {
            return;
        };
        let survivors = std::mem::take(&mut points.survivors);
        let withheld: BTreeSet<_> = self.disk.quarantine.keys().map(|o| o.oid).collect();
        let pfs = self.lower.borrow();
        for (oid, contents) in survivors {
            let is_kept = self.disk.links(oid) > 0 || withheld.contains(&oid);
            let is_below = || pfs.durable_files().any(|(_, held)| held == contents);
            if !is_kept && !is_below() {
                env.broken(format!(
                    "a recovery has removed {oid}, which holds {contents}"
                ));
            }
        }
    }
}

/// They can rely on it now.
fn answer(bridge: BridgeId, askers: Vec<Asker>, env: &mut Env) {
    for asker in askers {
        env.is_durable_before(bridge, asker.moment);
        for (identity, versions) in asker.versions {
            env.synced(identity, versions);
        }
    }
}
