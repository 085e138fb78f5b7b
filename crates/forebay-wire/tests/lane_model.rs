//! Tries every order in which client and bridge can take their steps on a lane. A store may reach the
//! other side late, as on a real processor.
//!
//! Both sides run the real code on words that stop before each step. A state is the memory, the stores
//! that have not arrived, and what each side has seen so far. From each state every next step is tried.

use forebay_wire::{Attention, LaneWords, Seen, Turned, Word};
use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};

const WORDS: usize = 8;
const ATTENTION: Attention = Attention {
    cpu: 3,
    crowded: false,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    Load(usize),
    Store(usize, u32),
    Exchange(usize, u32, u32),
    Barrier,
}

/// One run of one side: the results of its steps so far, and its first step without a result.
#[derive(Default)]
struct Replay {
    past: Vec<u32>,
    at: usize,
    next: Option<Step>,
}

thread_local! {
    static REPLAY: RefCell<Replay> = RefCell::default();
    static NAMES: Cell<usize> = const { Cell::new(0) };
}

fn step(step: Step) -> u32 {
    REPLAY.with_borrow_mut(|replay| {
        if let Some(&seen) = replay.past.get(replay.at) {
            replay.at += 1;
            return seen;
        }
        replay.next.get_or_insert(step);
        0
    })
}

struct Probe(usize);

impl Default for Probe {
    fn default() -> Self {
        Probe(NAMES.replace(NAMES.get() + 1))
    }
}

impl Word for Probe {
    fn load(&self) -> u32 {
        step(Step::Load(self.0))
    }
    fn store(&self, value: u32) {
        step(Step::Store(self.0, value));
    }
    fn exchange(&self, from: u32, to: u32) -> bool {
        step(Step::Exchange(self.0, from, to)) == 1
    }
    fn barrier(&self) {
        step(Step::Barrier);
    }
}

/// What became of a request, as its client sees it, or what the bridge did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Event {
    /// Answered in the lane.
    InLane(u32),
    /// The client reads the answer from the socket.
    FromSocket(u32),
    /// The client sends the request by the socket.
    BySocket(u32),
    /// The client waits in the lane and never turns.
    WaitsForEver(u32),
    Served(u32),
    SentBeside(u32),
}

type Side = fn(&LaneWords<Probe>) -> Vec<Event>;

fn reply_to(request: usize) -> usize {
    request * 10
}

/// Looks for the answer twice, then turns to the socket.
fn answer_to(lane: &LaneWords<Probe>, request: u32) -> Event {
    for look in 1..=3 {
        match lane.look() {
            Seen::Reply(len) => {
                lane.finish();
                assert!(len == reply_to(request as usize) || is_beyond());
                return Event::InLane(request);
            }
            Seen::Beside => {
                lane.finish();
                return Event::FromSocket(request);
            }
            Seen::Nothing if look == 2 => match lane.turn() {
                Turned::Withdrawn => return Event::BySocket(request),
                Turned::Waiting => return Event::FromSocket(request),
                Turned::Answered => {}
            },
            Seen::Nothing => {}
        }
    }
    assert!(is_beyond(), "it is answered, and there is no answer");
    Event::BySocket(request)
}

fn ask(lane: &LaneWords<Probe>, request: u32) -> Event {
    match lane.clear() && lane.post(request as usize, None) {
        true => answer_to(lane, request),
        false => Event::BySocket(request),
    }
}

fn client(lane: &LaneWords<Probe>) -> Vec<Event> {
    vec![ask(lane, 1), ask(lane, 2)]
}

/// Abandons its first request, as a jump out of a signal handler does, and makes another.
fn client_that_jumps(lane: &LaneWords<Probe>) -> Vec<Event> {
    lane.post(1, None);
    vec![ask(lane, 2)]
}

fn patient_client(lane: &LaneWords<Probe>) -> Vec<Event> {
    match lane.post(1, None) {
        true => vec![Event::WaitsForEver(1)],
        false => vec![Event::BySocket(1)],
    }
}

/// Has the run left its known results? Steps beyond them return nonsense, which no assertion may judge.
fn is_beyond() -> bool {
    REPLAY.with_borrow(|replay| replay.next.is_some())
}

fn serve(lane: &LaneWords<Probe>, beside: bool, events: &mut Vec<Event>) {
    let Some(request) = lane.take() else {
        return;
    };
    let number = request as u32;
    events.push(Event::Served(number));
    if beside {
        events.push(Event::SentBeside(number));
        lane.answered_beside();
    } else if !lane.answer(reply_to(request)) {
        events.push(Event::SentBeside(number));
    }
}

fn bridge(lane: &LaneWords<Probe>, looks: usize, beside: bool) -> Vec<Event> {
    let mut events = Vec::new();
    lane.attend(ATTENTION);
    for _ in 0..looks {
        serve(lane, beside, &mut events);
    }
    if lane.leave() {
        serve(lane, beside, &mut events);
    }
    events
}

fn bridge_in_lane(lane: &LaneWords<Probe>) -> Vec<Event> {
    bridge(lane, 2, false)
}

fn bridge_beside(lane: &LaneWords<Probe>) -> Vec<Event> {
    bridge(lane, 2, true)
}

fn bridge_that_leaves(lane: &LaneWords<Probe>) -> Vec<Event> {
    bridge(lane, 0, false)
}

#[derive(Clone, PartialEq, Eq, Hash, Default)]
struct State {
    memory: [u32; WORDS],
    /// Stores of each side that the other side does not see yet.
    under_way: [VecDeque<(usize, u32)>; 2],
    past: [Vec<u32>; 2],
}

impl State {
    /// The next step of a side, or its events if it has ended.
    fn next(&self, side: usize, code: Side) -> Result<Step, Vec<Event>> {
        REPLAY.set(Replay {
            past: self.past[side].clone(),
            ..Replay::default()
        });
        NAMES.set(0);
        let lane = LaneWords::<Probe>::default();
        let events = code(&lane);
        REPLAY.with_borrow(|replay| replay.next.ok_or(events))
    }

    fn arrive(&mut self, side: usize) -> bool {
        match self.under_way[side].pop_front() {
            Some((word, value)) => {
                self.memory[word] = value;
                true
            }
            None => false,
        }
    }

    fn take(&mut self, side: usize, step: Step, barriers: bool) {
        let seen = match step {
            Step::Load(word) => {
                let own = self.under_way[side].iter().rev().find(|s| s.0 == word);
                own.map_or(self.memory[word], |s| s.1)
            }
            Step::Store(word, value) => {
                self.under_way[side].push_back((word, value));
                0
            }
            Step::Exchange(word, from, to) => {
                while self.arrive(side) {}
                let hit = self.memory[word] == from;
                if hit {
                    self.memory[word] = to;
                }
                u32::from(hit)
            }
            Step::Barrier => {
                while barriers && self.arrive(side) {}
                0
            }
        };
        self.past[side].push(seen);
    }
}

/// All ways in which the two can end.
fn ends(sides: [Side; 2], barriers: bool) -> HashSet<[Vec<Event>; 2]> {
    let mut ends = HashSet::new();
    let mut known = HashSet::new();
    let mut open = vec![State::default()];
    while let Some(state) = open.pop() {
        if !known.insert(state.clone()) {
            continue;
        }
        let mut done = Vec::new();
        for (side, code) in sides.into_iter().enumerate() {
            let mut late = state.clone();
            if late.arrive(side) {
                open.push(late);
            }
            match state.next(side, code) {
                Ok(step) => {
                    let mut after = state.clone();
                    after.take(side, step, barriers);
                    open.push(after);
                }
                Err(events) => done.push(events),
            }
        }
        if let Ok(both) = <[Vec<Event>; 2]>::try_from(done)
            && state.under_way.iter().all(VecDeque::is_empty)
        {
            ends.insert(both);
        }
    }
    ends
}

fn count(events: &[Event], event: Event) -> usize {
    events.iter().filter(|&&e| e == event).count()
}

/// Checks that each request is served once, by one way, and that its answer goes where its client looks.
fn check(client: &[Event], bridge: &[Event]) {
    let all = format!("client {client:?}, bridge {bridge:?}");
    for &event in client {
        let (request, served, sent) = match event {
            Event::InLane(request) => (request, 1, 0),
            Event::FromSocket(request) => (request, 1, 1),
            Event::BySocket(request) => (request, 0, 0),
            other => panic!("{other:?}: {all}"),
        };
        assert_eq!(count(bridge, Event::Served(request)), served, "{all}");
        assert_eq!(count(bridge, Event::SentBeside(request)), sent, "{all}");
    }
}

#[test]
fn each_request_is_served_once_and_answered_where_its_client_looks() {
    for side in [bridge_in_lane, bridge_beside, bridge_that_leaves] {
        let ends = ends([client, side], true);
        assert!(ends.len() > 3, "{ends:?}");
        for [client, bridge] in &ends {
            check(client, bridge);
        }
    }
}

#[test]
fn a_request_that_was_left_behind_does_not_disturb_the_next_one() {
    for side in [bridge_in_lane, bridge_beside] {
        let ends = ends([client_that_jumps, side], true);
        assert!(ends.len() > 3, "{ends:?}");
        for [client, bridge] in &ends {
            check(client, bridge);
        }
    }
}

#[test]
fn a_bridge_that_leaves_takes_what_a_client_has_posted() {
    let lost = |barriers| {
        ends([patient_client, bridge_that_leaves], barriers)
            .into_iter()
            .filter(|[client, bridge]| {
                client[0] == Event::WaitsForEver(1) && !bridge.contains(&Event::Served(1))
            })
            .count()
    };
    assert_eq!(lost(true), 0);
    // Without the barriers, a request can be lost.
    assert!(lost(false) > 0);
}
