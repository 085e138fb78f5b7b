//! What surrounds the bridges: time, the network, faults, and the record of all that.

use super::history::Outcome;
use super::plan::{Calm, Plan};
use super::random::Random;
use super::trace::{Trace, Way};
use forebay_core::bridge::Message;
use forebay_core::record::{BridgeId, ObjectName, Token};
use std::collections::BTreeMap;

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
    },
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
            crash_after_write: pick(random, &[0, 5_000, 20_000, 60_000]),
            down_us: u64::from(pick(random, &[2_000, 50_000, 1_500_000])),
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
        ];
        for (kind, chance) in kinds {
            if calm.has(kind) {
                *chance = 0;
            }
        }
        self
    }
}

/// Counts of one run.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    pub(super) messages: u64,
    pub(super) crashes: u64,
    pub(super) events: u64,
}

/// The surroundings.
pub(super) struct Env {
    pub(super) now: u64,
    pub(super) random: Random,
    pub(super) weather: Weather,
    pub(super) trace: Trace,
    pub(super) counts: Counts,
    /// The object that a request made, as soon as some table names it.
    pub(super) made: BTreeMap<Token, ObjectName>,
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
        Env {
            now: 0,
            random,
            weather,
            trace,
            counts: Counts::default(),
            made: BTreeMap::new(),
            cuts: BTreeMap::new(),
            fault: None,
            queue: BTreeMap::new(),
            queued: 0,
            under_way: 0,
        }
    }

    /// No further faults. What is under way already stays late or lost.
    pub(super) fn calm_down(&mut self) {
        self.weather = Weather::CALM;
        self.cuts.clear();
    }

    /// Something happened that never should.
    pub(super) fn broken(&mut self, what: String) {
        self.fault.get_or_insert(what);
    }

    pub(super) fn fault(&mut self) -> Option<String> {
        self.fault.take()
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

    /// A number for the order of all that happens.
    pub(super) fn moment(&self) -> u64 {
        self.counts.events
    }

    /// A message goes out to another bridge, and arrives never, once or twice, at any time.
    pub(super) fn send(&mut self, from: BridgeId, to: BridgeId, message: Message) {
        self.counts.messages += 1;
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

    /// Does the connection break during this call?
    pub(super) fn breaks(&mut self) -> bool {
        self.random.chance(self.weather.hangup)
    }

    /// How long a bridge that died stays dead.
    pub(super) fn outage_us(&mut self) -> u64 {
        self.random.between(500, 500 + self.weather.down_us)
    }
}
