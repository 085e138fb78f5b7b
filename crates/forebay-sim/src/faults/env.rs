//! What surrounds the bridges: time, the network, faults, and the record of all that.

use super::between::Deaths;
use super::hardship::Hardship;
use super::history::{Outcome, Texts, Thing, ino};
use super::plan::{Calm, Plan};
use super::random::Random;
use super::trace::{Trace, Way};
use forebay_core::bridge::{Body, Message};
use forebay_core::record::{BridgeId, Kind, ObjectId, ObjectName, PathRecord, Token};
use forebay_core::storage::StorageOrder;
use forebay_core::table::Change;
use std::collections::{BTreeMap, BTreeSet};

/// Something that happens at a moment. Times are virtual, in microseconds.
#[derive(Debug)]
pub(super) enum Event {
    /// A message between bridges arrives.
    Message {
        from: BridgeId,
        to: BridgeId,
        message: Message,
    },
    /// A call of a client arrives at its bridge.
    Call { client: usize, connection: u32 },
    /// An answer arrives at its client.
    Answer {
        client: usize,
        connection: u32,
        outcome: Outcome,
        /// A descriptor that comes along, of an object of the bridge of the client.
        fd: Option<u64>,
    },
    /// A client writes through a descriptor, and closes it after the last time.
    Write {
        bridge: BridgeId,
        fd: u64,
        times: u32,
    },
    /// Somebody who knows nothing of bridges changes the PFS.
    Intrude,
    /// Somebody asks for a drain, or for its end.
    Drain,
    /// The tables of a bridge are lost.
    LoseTables,
    /// A client notices that its connection is gone.
    Hangup { client: usize, connection: u32 },
    /// A client begins its next operation.
    Next { client: usize },
    /// Something at a bridge, if it still is in the same life.
    At {
        bridge: BridgeId,
        life: u32,
        what: Alarm,
    },
    /// A bridge dies.
    Crash { bridge: BridgeId },
    /// A bridge starts.
    Start { bridge: BridgeId },
    /// The machine of a bridge loses its power, or all of them do.
    LosePower { bridge: BridgeId },
    /// Somebody asks a bridge for a sync.
    Sync { bridge: BridgeId },
}

/// What a bridge has set itself an alarm for.
#[derive(Debug)]
pub(super) enum Alarm {
    Tick,
    /// A request is to be decided again.
    Again(Token),
    /// A piece of work of the disk is done.
    Disk(u64),
    /// A label could not be written yet.
    Label(ObjectName),
    /// It may be noted that a marker is made.
    Marked(ObjectName),
    /// An act of a drain has ended.
    Act(u64),
    /// The drain of this number goes on with its act of this ticket, which was refused.
    Refused(u64, u64),
    /// What took time for a request is carried out.
    Effect(Token),
    /// Records that nobody can see any more go.
    Part,
    /// It may be time for a sync point.
    Syncing,
    /// A step of the sync point of this number is done.
    SyncStep(u64),
}

/// How bad it is. Chances are in a million.
#[derive(Debug, Clone)]
pub(super) struct Weather {
    /// A message between bridges is lost.
    drop: u32,
    /// It comes twice.
    double: u32,
    /// It takes very long.
    slow: u32,
    slow_us: u64,
    /// From this message on two bridges can't reach each other for a while.
    cut: u32,
    cut_us: u64,
    /// A client loses its connection during a call.
    hangup: u32,
    /// A bridge dies, per output that it was asked for.
    crash: u32,
    /// The same right after it has written a batch.
    crash_after_write: u32,
    /// How long a bridge stays dead at most.
    down_us: u64,
    /// Work on the PFS fails.
    pfs_fails: u32,
}

impl Weather {
    const CALM: Weather = Weather {
        drop: 0,
        double: 0,
        slow: 0,
        slow_us: 1,
        cut: 0,
        cut_us: 0,
        hangup: 0,
        crash: 0,
        crash_after_write: 0,
        down_us: 1_000,
        pfs_fails: 0,
    };

    /// The weather of one seed: from calm to foul, and different faults in different seeds.
    pub(super) fn of(random: &mut Random) -> Self {
        let pick = |random: &mut Random, values: &[u32]| *random.pick(values);
        Weather {
            drop: pick(random, &[0, 0, 10_000, 50_000, 150_000]),
            double: pick(random, &[0, 20_000, 100_000, 300_000]),
            slow: pick(random, &[0, 20_000, 100_000]),
            slow_us: u64::from(pick(random, &[5_000, 100_000, 900_000])),
            cut: pick(random, &[0, 0, 2_000, 20_000]),
            cut_us: u64::from(pick(random, &[20_000, 2_000_000])),
            hangup: pick(random, &[0, 20_000, 100_000]),
            crash: pick(random, &[0, 500, 2_000]),
            crash_after_write: pick(random, &[0, 10_000, 30_000, 80_000]),
            down_us: u64::from(pick(random, &[2_000, 50_000, 1_500_000])),
            pfs_fails: pick(random, &[0, 0, 20_000, 100_000, 200_000]),
        }
    }

    /// The same weather without some of its kinds.
    fn without(mut self, calm: Calm) -> Self {
        let kinds = [
            (Calm::LOST, &mut self.drop),
            (Calm::DOUBLED, &mut self.double),
            (Calm::SLOW, &mut self.slow),
            (Calm::CUT, &mut self.cut),
            (Calm::HANGUP, &mut self.hangup),
            (Calm::CRASH, &mut self.crash),
            (Calm::CRASH_AFTER_WRITE, &mut self.crash_after_write),
            (Calm::PFS_FAILS, &mut self.pfs_fails),
        ];
        for (kind, chance) in kinds {
            if calm.has(kind) {
                *chance = 0;
            }
        }
        self
    }
}

/// What happens below the bridges; some of it only below one that is alone.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Habits {
    /// There are drains.
    pub(super) drains: bool,
    /// Others change the PFS.
    pub(super) intruders: bool,
    /// Tables of a bridge are lost.
    pub(super) loses_tables: bool,
    /// A drain is told who has a file open.
    pub(super) sees_writers: bool,
    /// How long an act takes at most.
    pub(super) act_us: u64,
    /// How long nobody asks for a drain at most.
    pub(super) rest_us: u64,
    /// Looks at the PFS take time.
    pub(super) slow_looks: bool,
    pub(super) spares: bool,
    pub(super) stage_limit: u64,
    /// So many records go with a directory of the PFS in one batch.
    pub(super) removed_at_once: usize,
    /// Things for which the PFS has room.
    pub(super) capacity: Option<usize>,
}

impl Habits {
    fn of(random: &mut Random, plan: &Plan) -> Self {
        let may = |kind: Calm| !plan.calm.has(kind);
        Habits {
            drains: random.chance(850_000) && may(Calm::DRAINS),
            loses_tables: random.chance(300_000) && may(Calm::TABLES),
            intruders: random.chance(200_000) && may(Calm::INTRUDERS),
            act_us: *random.pick(&[100, 1_000, 3_000]),
            rest_us: *random.pick(&[1_000, 2_000, 10_000]),
            sees_writers: random.chance(500_000),
            slow_looks: random.chance(400_000) && may(Calm::SLOW_PFS),
            spares: random.chance(350_000) && may(Calm::SPARES),
            stage_limit: match random.chance(500_000) && may(Calm::CONTENTS) {
                true => u64::MAX,
                false => 0,
            },
            removed_at_once: [usize::MAX, 0, 1][(plan.seed % 3) as usize],
            capacity: (random.chance(150_000) && may(Calm::PFS_FAILS)).then_some(6),
        }
    }
}

/// What the machines of bridges do without power.
#[derive(Debug, Clone, Copy)]
pub(super) struct Power {
    pub(super) storage: StorageOrder,
    /// A commit becomes durable so soon if nobody asks for it.
    pub(super) longest_us: u64,
    /// How often the death of the bridge is a loss of power, in a million.
    pub(super) instead: u32,
    /// How often a client syncs what it has written, in a million.
    pub(super) fsyncs: u32,
    /// Time between two syncs of a whole at most; 0 for none.
    pub(super) syncs_us: u64,
    /// Time between two losses at most.
    pub(super) apart_us: u64,
    /// How often all machines of several lose it together, in a million.
    together: u32,
}

/// Losses of power in one run at most: each takes a search of its own.
const MOST_LOSSES: u64 = 4;

impl Power {
    /// Draws from a source of its own: runs without losses of power are what they were before there were any.
    fn of(plan: &Plan, random: &mut Random) -> Option<Self> {
        let is_there = random.chance(500_000) && !plan.calm.has(Calm::POWER);
        is_there.then(|| Power {
            storage: *random.pick(&[
                StorageOrder::Ordered,
                StorageOrder::Ordered,
                StorageOrder::Unordered,
            ]),
            longest_us: *random.pick(&[2_000, 20_000, 500_000]),
            instead: *random.pick(&[50_000, 300_000]),
            fsyncs: *random.pick(&[0, 100_000, 400_000]),
            syncs_us: *random.pick(&[0, 5_000, 40_000]),
            apart_us: *random.pick(&[10_000, 50_000, 300_000]),
            together: *random.pick(&[0, 300_000, 1_000_000]),
        })
    }
}

/// What a file has held, one after the other.
#[derive(Debug, Clone, Default)]
struct Versions {
    all: Vec<u64>,
    /// The first of those that a loss of power may leave.
    durable: usize,
    /// What it may hold as well: something was done for a request that is not decided.
    undecided: Vec<u64>,
    /// When it was written last.
    written_us: u64,
}

/// Counts of one run.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    pub(super) messages: u64,
    pub(super) crashes: u64,
    pub(super) losses: u64,
    pub(super) rebuilds: u64,
    pub(super) events: u64,
    /// Deaths between two effects.
    pub(super) between: Deaths,
    /// Requests that ended with an errno of the PFS, of the storage or of the tables.
    pub(super) failures: u64,
}

/// The surroundings.
pub(super) struct Env {
    pub(super) now: u64,
    pub(super) random: Random,
    pub(super) weather: Weather,
    pub(super) trace: Trace,
    pub(super) counts: Counts,
    /// What a request made, as soon as some table names it.
    pub(super) made: BTreeMap<Token, Thing>,
    /// What bridges were asked to record of what requests made. That it was decided is known from an answer alone, if a loss
    /// of power undoes the decision before the record is written.
    pub(super) prepared: BTreeMap<Token, Thing>,
    /// Objects that any table has ever named.
    pub(super) objects: BTreeSet<ObjectName>,
    /// What was written last to what users know by this number.
    pub(super) contents: BTreeMap<u64, u64>,
    /// What users know objects by that are not what they were made as: copies of files of the PFS, and files used again.
    pub(super) identities: BTreeMap<ObjectId, u64>,
    /// Objects that are copies of files of the PFS, with what was read of those, until a table names them.
    pub(super) copies: BTreeMap<ObjectId, Option<u64>>,
    /// What symbolic links say.
    pub(super) texts: Texts,
    /// What drains and the PFS do in this seed.
    pub(super) drain: Habits,
    /// A grant takes time.
    pub(super) slow_grants: bool,
    /// What requests meet.
    pub(super) hardship: Hardship,
    /// Losses of power, if there are any.
    pub(super) power: Option<Power>,
    /// The next death of a bridge is one.
    power_fails: bool,
    /// What files have held, where the power may fail.
    versions: BTreeMap<u64, Versions>,
    /// What a bridge has answered before this moment a loss of power does not undo.
    durable_before: BTreeMap<BridgeId, u64>,
    is_calm: bool,
    /// Until when nothing works on the PFS.
    pfs_away: u64,
    /// Until then it answers.
    pfs_answers: u64,
    /// Bridges that can't reach each other, and until when.
    cuts: BTreeMap<(BridgeId, BridgeId), u64>,
    /// What should never happen, once it has.
    fault: Option<String>,
    queue: BTreeMap<(u64, u64), Event>,
    queued: u64,
    /// Messages and calls under way.
    under_way: u64,
}

impl Env {
    pub(super) fn new(plan: &Plan, trace: Trace) -> Self {
        let mut random = Random::new(plan.seed);
        let weather = Weather::of(&mut random).without(plan.calm);
        let drain = Habits::of(&mut random, plan);
        let mut of_power = Random::new(plan.seed.rotate_left(32));
        let power = Power::of(plan, &mut of_power);
        let slow_grants = random.chance(700_000) && !plan.calm.has(Calm::SLOW_PFS);
        Env {
            now: 0,
            random,
            weather,
            trace,
            counts: Counts::default(),
            made: BTreeMap::new(),
            prepared: BTreeMap::new(),
            objects: BTreeSet::new(),
            contents: BTreeMap::new(),
            identities: BTreeMap::new(),
            copies: BTreeMap::new(),
            texts: Texts::new(),
            drain,
            slow_grants,
            hardship: Hardship::of(plan),
            power,
            power_fails: false,
            versions: BTreeMap::new(),
            durable_before: BTreeMap::new(),
            is_calm: false,
            pfs_away: 0,
            pfs_answers: 0,
            cuts: BTreeMap::new(),
            fault: None,
            queue: BTreeMap::new(),
            queued: 0,
            under_way: 0,
        }
    }

    /// No further faults. What is under way already stays late or lost.
    pub(super) fn calm_down(&mut self) {
        self.is_calm = true;
        self.weather = Weather::CALM;
        self.hardship.calm_down();
        self.pfs_away = 0;
        self.cuts.clear();
    }

    /// There are no further faults.
    pub(super) fn is_calm(&self) -> bool {
        self.is_calm
    }

    /// Something happened that never should.
    pub(super) fn broken(&mut self, what: String) {
        self.fault.get_or_insert(what);
    }

    pub(super) fn fault(&mut self) -> Option<String> {
        self.fault.take()
    }

    /// What users know an object by, whichever bridge keeps it.
    pub(super) fn identity(&self, oid: ObjectId) -> u64 {
        self.identities
            .get(&oid)
            .copied()
            .unwrap_or_else(|| ino(oid))
    }

    /// Somebody has written to what users know by this number. `counts`: that has to be seen from now on.
    pub(super) fn wrote(&mut self, identity: u64, contents: u64, counts: bool) {
        if self.power.is_some() {
            let before = self.contents.get(&identity).copied().unwrap_or(0);
            let versions = self.versions.entry(identity).or_default();
            versions.written_us = self.now;
            if versions.all.is_empty() {
                versions.all.push(before);
            }
            if counts {
                versions.undecided.clear();
                versions.all.push(contents);
            } else {
                versions.undecided.push(contents);
            }
        }
        if counts {
            self.contents.insert(identity, contents);
        }
    }

    /// Is it a copy that no table names yet?
    pub(super) fn is_new_copy(&self, oid: ObjectId) -> bool {
        self.copies.get(&oid).is_some_and(Option::is_some)
    }

    /// A copy is committed: what was read of it before is what it holds.
    pub(super) fn copy_counts(&mut self, oid: ObjectId) {
        if let Some(read) = self.copies.get_mut(&oid).and_then(Option::take) {
            let identity = self.identity(oid);
            if self.contents.get(&identity) != Some(&read) {
                self.wrote(identity, read, true);
            }
        }
    }

    /// How many versions there are of each file.
    pub(super) fn versions_now(&self) -> Vec<(u64, usize)> {
        let counts = self.versions.iter().map(|(ino, v)| (*ino, v.all.len()));
        counts.collect()
    }

    /// The last of so many versions of a file is durable.
    pub(super) fn synced(&mut self, identity: u64, versions: usize) {
        if let Some(all) = self.versions.get_mut(&identity) {
            all.durable = all.durable.max(versions - 1);
        }
    }

    /// These contents of a file are durable.
    pub(super) fn synced_contents(&mut self, identity: u64, contents: u64) {
        // It may have been empty more than once, so that says nothing.
        let versions = self.versions.get(&identity).filter(|_| contents != 0);
        let found = versions.and_then(|v| v.all.iter().position(|c| *c == contents));
        if let Some(at) = found {
            self.synced(identity, at + 1);
        }
    }

    /// What this bridge has answered before this moment, or before one that was named earlier, is durable.
    pub(super) fn is_durable_before(&mut self, bridge: BridgeId, moment: u64) {
        let before = self.durable_before.entry(bridge).or_default();
        *before = moment.max(*before);
    }

    pub(super) fn durable_before(&self, bridge: BridgeId) -> u64 {
        self.durable_before.get(&bridge).copied().unwrap_or(0)
    }

    /// Nobody needs to know any more what files have held.
    pub(super) fn forget_versions(&mut self) {
        self.versions.clear();
    }

    /// Files hold these contents after a loss of power at `lost_us`, unless they were written since, by clients of a bridge
    /// that came back before others. `is_late`: some may have been. Gives what they may not hold, for people.
    pub(super) fn took_up(
        &mut self,
        files: &[(u64, u64)],
        is_late: bool,
        lost_us: u64,
    ) -> Option<String> {
        let mut wrong = None;
        for (identity, holds) in files {
            let versions = self.versions.get(identity);
            let is_written = |v: &Versions| is_late || v.written_us > lost_us;
            let written = versions.filter(|v| is_written(v));
            if written.and_then(|v| v.all.last()) == Some(holds) {
                continue;
            }
            let may = match self.versions.remove(identity) {
                Some(v) => [&v.all[v.durable..], &v.undecided].concat(),
                None => vec![self.contents.get(identity).copied().unwrap_or(0)],
            };
            if !may.contains(holds) {
                wrong = Some(format!(
                    "{identity:x} holds {holds}, and not one of {may:?}"
                ));
            }
            self.contents.insert(*identity, *holds);
        }
        wrong
    }

    /// Is the death of a bridge a loss of power?
    pub(super) fn loses_power_instead(&mut self) -> bool {
        if !self.may_lose_power() {
            return false;
        }
        let chance = self.power.map_or(0, |power| power.instead);
        std::mem::take(&mut self.power_fails) || self.random.chance(chance)
    }

    /// Do all machines lose their power together?
    pub(super) fn all_lose_power(&mut self) -> bool {
        let chance = self.power.map_or(0, |power| power.together);
        self.random.chance(chance)
    }

    /// Does the power fail at a moment at which there is most to get wrong?
    pub(super) fn power_strikes(&mut self, parts: u32) -> bool {
        let may = self.power.is_some() && self.may_lose_power();
        let strikes = may && self.random.chance(parts);
        self.power_fails |= strikes;
        strikes
    }

    fn may_lose_power(&self) -> bool {
        !self.is_calm && self.counts.losses < MOST_LOSSES
    }

    /// The time until the next loss of power.
    pub(super) fn power_us(&mut self) -> Option<u64> {
        let power = self.power.filter(|_| self.may_lose_power())?;
        Some(self.random.between(1_000, power.apart_us))
    }

    /// Does anything travel?
    pub(super) fn is_silent(&self) -> bool {
        self.under_way == 0
    }

    pub(super) fn after(&mut self, delay: u64, event: Event) {
        self.queued += 1;
        self.under_way += u64::from(matches!(event, Event::Message { .. }));
        self.queue.insert((self.now + delay, self.queued), event);
    }

    /// The next event; time moves on to it.
    pub(super) fn next(&mut self) -> Option<Event> {
        let ((time, _), event) = self.queue.pop_first()?;
        self.now = time;
        self.counts.events += 1;
        self.under_way -= u64::from(matches!(event, Event::Message { .. }));
        Some(event)
    }

    /// What comes now is later than all that was.
    pub(super) fn next_moment(&mut self) {
        self.counts.events += 1;
    }

    /// A number for the order of all that happens.
    pub(super) fn moment(&self) -> u64 {
        self.counts.events
    }

    /// A message goes out to another bridge, and arrives never, once or twice, at any time.
    pub(super) fn send(&mut self, from: BridgeId, to: BridgeId, message: Message) {
        self.counts.messages += 1;
        if let Body::Prepare { part, .. } = &message.body {
            self.note_prepared(&part.changes);
        }
        if self.random.chance(self.weather.drop) || self.is_cut(from, to) {
            self.trace.message(Way::Lost, from, to, self.now, &message);
            return;
        }
        self.trace.message(Way::Sent, from, to, self.now, &message);
        let copies = 1 + u32::from(self.random.chance(self.weather.double));
        for _ in 0..copies {
            let delay = self.travel_us();
            let message = message.clone();
            self.after(delay, Event::Message { from, to, message });
        }
    }

    fn note_prepared(&mut self, changes: &[Change]) {
        for change in changes {
            if let Change::Put { record, .. } = change
                && let Some(thing) = self.made_by(record)
            {
                self.prepared.insert(record.token, thing);
            }
        }
    }

    /// What the request of a record has made, unless that is a copy of what was there before.
    pub(super) fn made_by(&self, record: &PathRecord) -> Option<Thing> {
        let is_shown = !matches!(record.kind, Kind::Moved | Kind::Whiteout);
        (is_shown && !self.copies.contains_key(&record.object.oid)).then_some(Thing {
            ino: record.ino,
            kind: record.kind,
        })
    }

    fn is_cut(&mut self, from: BridgeId, to: BridgeId) -> bool {
        let pair = (from.min(to), from.max(to));
        if self.random.chance(self.weather.cut) {
            let end = self.now + self.random.between(1_000, 1_000 + self.weather.cut_us);
            self.cuts.insert(pair, end);
        }
        self.cuts.get(&pair).is_some_and(|end| self.now < *end)
    }

    fn travel_us(&mut self) -> u64 {
        if self.random.chance(self.weather.slow) {
            self.random.between(1_000, 1_000 + self.weather.slow_us)
        } else {
            self.random.between(20, 300)
        }
    }

    /// A call or an answer between a client and the bridge of its node: a socket, which loses
    /// nothing but breaks.
    pub(super) fn socket_us(&mut self) -> u64 {
        self.random.between(2, 50)
    }

    pub(super) fn disk_us(&mut self) -> u64 {
        self.random.between(10, 2_000)
    }

    /// Does the bridge die now? Right after a write there is most to get wrong.
    pub(super) fn strikes(&mut self, in_between: bool) -> bool {
        let parts = if in_between {
            self.weather.crash_after_write
        } else {
            self.weather.crash
        };
        self.random.chance(parts)
    }

    /// An act of a drain, or a look at a PFS.
    pub(super) fn act_us(&mut self) -> u64 {
        self.random.between(10, self.drain.act_us)
    }

    /// Of work on the PFS that has failed like this: was it done, and the answer alone lost, as a network file system loses
    /// it? Then the PFS can be asked soon after.
    pub(super) fn is_answer_lost(&mut self, errno: i32) -> bool {
        let is_lost =
            errno == libc::EIO && self.now >= self.pfs_away && self.random.chance(500_000);
        if is_lost {
            self.pfs_answers = self.now + 2_000;
        }
        is_lost
    }

    /// Does nothing work on the PFS now?
    pub(super) fn is_pfs_away(&self) -> bool {
        self.now < self.pfs_away
    }

    /// The errno with which this work on the PFS fails, if it does.
    pub(super) fn fails_on_pfs(&mut self) -> Option<i32> {
        if self.now < self.pfs_answers {
            return None;
        }
        if self.now < self.pfs_away {
            return Some(libc::EIO);
        }
        if !self.random.chance(self.weather.pfs_fails) {
            return None;
        }
        if self.random.chance(300_000) {
            self.pfs_away = self.now + self.random.between(500, 20_000);
        }
        let errnos = [libc::EIO, libc::ENOSPC, libc::EACCES];
        Some(*self.random.pick(&errnos))
    }

    /// Does the connection break during this call?
    pub(super) fn breaks(&mut self) -> bool {
        self.random.chance(self.weather.hangup)
    }

    /// How long a bridge that died stays dead.
    pub(super) fn outage_us(&mut self) -> u64 {
        self.random.between(500, 500 + self.weather.down_us)
    }
}
