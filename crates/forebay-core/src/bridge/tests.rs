//! The layer by itself, message by message. In company it is tested by the simulator.

use super::*;
use crate::facts::CHILDREN_PER_PAGE;
use crate::facts::Need;
use crate::record::{Kind, ObjectId, ObjectName};
use crate::table::WriteTables;
use std::cell::RefCell;

/// Tables that only know what these tests need.
#[derive(Default)]
pub(crate) struct Table(RefCell<State>);

#[derive(Default)]
struct State {
    records: BTreeMap<TreePath, PathRecord>,
    metas: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Tables for Table {
    fn get(&self, path: &TreePath) -> Result<Option<PathRecord>, TableError> {
        Ok(self.0.borrow().records.get(path).cloned())
    }
    fn children(
        &self,
        dir: &TreePath,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, PathRecord)>, TableError> {
        let state = self.0.borrow();
        let children = state.records.iter().filter(|(p, _)| {
            !p.is_root() && p.parent() == *dir && after.is_none_or(|after| p.name() > after)
        });
        let children = children.map(|(p, r)| (p.name().to_vec(), r.clone()));
        Ok(children.take(limit).collect())
    }
    fn page_below(
        &self,
        dir: &TreePath,
        after: Option<&TreePath>,
        limit: usize,
    ) -> Result<Vec<(TreePath, PathRecord)>, TableError> {
        let state = self.0.borrow();
        let below = state
            .records
            .iter()
            .filter(|(p, _)| *p != dir && p.is_within(dir))
            .filter(|(p, _)| after.is_none_or(|after| p.key() > after.key()));
        let mut below: Vec<_> = below.map(|(p, r)| (p.clone(), r.clone())).collect();
        below.sort_by_key(|(p, _)| p.key());
        below.truncate(limit);
        Ok(below)
    }
    fn page(
        &self,
        _: Option<&TreePath>,
        _: crate::table::Order,
        _: usize,
    ) -> Result<Vec<(TreePath, PathRecord)>, TableError> {
        Ok(Vec::new())
    }
    fn names_of(&self, _: ObjectId) -> Result<Vec<(ObjectName, TreePath)>, TableError> {
        Ok(Vec::new())
    }
    fn path_of(&self, object: ObjectName) -> Result<Option<TreePath>, TableError> {
        let state = self.0.borrow();
        let found = state.records.iter().find(|(_, r)| r.object == object);
        Ok(found.map(|(p, _)| p.clone()))
    }
    fn marks(&self) -> Result<crate::table::Marks, TableError> {
        Ok(crate::table::Marks::default())
    }
    fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, TableError> {
        Ok(self.0.borrow().metas.get(key).cloned())
    }
    fn metas(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>, TableError> {
        let state = self.0.borrow();
        let found = state.metas.iter().filter(|(k, _)| k.starts_with(prefix));
        Ok(found.map(|(k, v)| (k.clone(), v.clone())).collect())
    }
}

impl WriteTables for Table {
    fn apply(&self, batch: &[Change]) -> Result<(), TableError> {
        let mut state = self.0.borrow_mut();
        for change in batch.iter().cloned() {
            match change {
                Change::Put { path, record } => {
                    state.records.insert(path, record);
                }
                Change::Delete { path, .. } => {
                    state.records.remove(&path);
                }
                Change::Meta {
                    key,
                    value: Some(v),
                } => {
                    state.metas.insert(key, v);
                }
                Change::Meta { key, value: None } => {
                    state.metas.remove(&key);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn path(s: &str) -> TreePath {
    TreePath::new(s.as_bytes()).unwrap()
}

fn record(maker: u32, seq: u64) -> PathRecord {
    PathRecord {
        version: version(1, seq as u32, BridgeId(maker)),
        ino: seq,
        token: Token {
            client: 9,
            seq: seq as u32,
        },
        ..PathRecord::new(
            Kind::File,
            ObjectName {
                oid: ObjectId::new(BridgeId(maker), 1, seq),
                link: 0,
            },
            BridgeId(maker),
        )
    }
}

fn put(p: &TreePath, r: &PathRecord) -> Change {
    Change::Put {
        path: p.clone(),
        record: r.clone(),
    }
}

fn create(ticket: Ticket, p: &TreePath, r: &PathRecord) -> Proposal {
    let mut reads = ReadSet::default();
    reads.saw(p, None);
    Proposal {
        ticket,
        reads,
        batch: vec![put(p, r)],
        token: r.token,
        uncovers: false,
    }
}

/// Bridges with their tables and a network that keeps order and loses nothing.
struct Net {
    nodes: Vec<(Bridge, Table)>,
    /// Messages under way: to, from, message.
    wire: VecDeque<(usize, usize, Message)>,
    done: Vec<(usize, Ticket, Verdict)>,
    records: Vec<(usize, TreePath, Option<PathRecord>)>,
    children: Vec<Vec<(Vec<u8>, PathRecord)>>,
    below: Vec<OthersBelow>,
    facts: Vec<Fact>,
    sent: usize,
}

impl Net {
    fn new(n: u32) -> Self {
        let members: Vec<_> = (0..n).map(BridgeId).collect();
        let all = Membership::new(BridgeId(0), members.clone());
        let nodes = members
            .iter()
            .map(|b| {
                let table = Table::default();
                let mut bridge = Bridge::recover(all.seen_from(*b), 1, &table, 0).unwrap();
                bridge.durable(u64::MAX);
                (bridge, table)
            })
            .collect();
        Net {
            nodes,
            wire: VecDeque::new(),
            done: Vec::new(),
            records: Vec::new(),
            children: Vec::new(),
            below: Vec::new(),
            facts: Vec::new(),
            sent: 0,
        }
    }

    /// A path whose home is bridge `home`.
    fn path_at(&self, home: u32, tag: &str) -> TreePath {
        (0..)
            .map(|i| path(&format!("{tag}{i}")))
            .find(|p| self.nodes[0].0.membership().home(p) == BridgeId(home))
            .unwrap()
    }

    fn drain(&mut self, at: usize) {
        loop {
            let (bridge, table) = &mut self.nodes[at];
            match bridge.poll(table).unwrap() {
                None => return,
                Some(Output::Commit(changes)) => table.apply(&changes).unwrap(),
                Some(Output::Send { to, message }) => {
                    self.sent += 1;
                    self.wire.push_back((to.0 as usize, at, message));
                }
                Some(Output::Done { ticket, verdict }) => self.done.push((at, ticket, verdict)),
                Some(Output::Fetched { fact, .. }) => match fact {
                    Fact::Record { path, record, .. } => self.records.push((at, path, record)),
                    Fact::Children { children, .. } => self.children.push(children),
                    Fact::Below { others, .. } => self.below.push(others),
                    fact => self.facts.push(fact),
                },
            }
        }
    }

    fn propose(&mut self, at: usize, proposal: Proposal) {
        let (bridge, table) = &mut self.nodes[at];
        bridge.propose(proposal, table, 0).unwrap();
        self.drain(at);
    }

    fn deliver(&mut self) -> bool {
        let Some((to, from, message)) = self.wire.pop_front() else {
            return false;
        };
        let (bridge, table) = &mut self.nodes[to];
        bridge
            .message(BridgeId(from as u32), message, table, 0)
            .unwrap();
        self.drain(to);
        true
    }

    fn settle(&mut self) {
        while self.deliver() {}
    }

    fn restart(&mut self, at: usize, epoch: u32) {
        let membership = self.nodes[at].0.membership().clone();
        let (bridge, table) = &mut self.nodes[at];
        *bridge = Bridge::recover(membership, epoch, table, 0).unwrap();
        bridge.durable(u64::MAX);
        bridge.tick(1);
        self.drain(at);
    }

    fn get(&self, at: usize, p: &TreePath) -> Option<PathRecord> {
        self.nodes[at].1.get(p).unwrap()
    }
}

#[test]
fn alone_a_proposal_is_one_commit_and_done_and_nothing_else() {
    let table = Table::default();
    let mut bridge = Bridge::recover(Membership::single(BridgeId(0)), 1, &table, 0).unwrap();
    let (p, r) = (path("a"), record(0, 1));
    bridge.propose(create(5, &p, &r), &table, 0).unwrap();
    let Some(Output::Commit(changes)) = bridge.poll(&table).unwrap() else {
        panic!("the commit comes first");
    };
    assert_eq!(changes[0], put(&p, &r));
    assert!(matches!(changes[1..], [Change::Meta { .. }]), "its token");
    let done = Output::Done {
        ticket: 5,
        verdict: Verdict::Committed,
    };
    assert_eq!(bridge.poll(&table).unwrap(), Some(done));
    assert_eq!(bridge.poll(&table).unwrap(), None);
    assert!(bridge.is_quiet());
}

#[test]
fn what_was_carried_out_is_known_by_its_token_after_a_restart() {
    let table = Table::default();
    let single = Membership::single(BridgeId(0));
    let mut bridge = Bridge::recover(single.clone(), 1, &table, 0).unwrap();
    let r = record(0, 1);
    let batch = vec![Change::Delete {
        path: path("a"),
        object: r.object,
    }];
    let proposal = Proposal {
        ticket: 1,
        reads: ReadSet::default(),
        batch,
        token: r.token,
        uncovers: false,
    };
    bridge.propose(proposal, &table, 0).unwrap();
    while let Some(out) = bridge.poll(&table).unwrap() {
        if let Output::Commit(changes) = out {
            table.apply(&changes).unwrap();
        }
    }
    let bridge = Bridge::recover(single, 2, &table, 0).unwrap();
    assert!(bridge.was_carried_out(r.token));
}

#[test]
fn a_create_at_another_home_takes_one_round_trip_and_the_loser_learns_the_winner() {
    let mut net = Net::new(2);
    let p = net.path_at(1, "x");
    let (mine, theirs) = (record(0, 1), record(1, 1));
    net.propose(1, create(1, &p, &theirs));
    assert_eq!(net.done, [(1, 1, Verdict::Committed)], "at home at once");
    net.propose(0, create(2, &p, &mine));
    net.settle();
    assert_eq!(net.sent, 2, "there and back");
    let lost = Verdict::Conflict(vec![(p.clone(), Some(theirs))]);
    assert_eq!(net.done[1], (0, 2, lost));
    let q = net.path_at(1, "y");
    net.propose(0, create(3, &q, &mine));
    net.settle();
    assert_eq!(net.sent, 4);
    assert_eq!(net.done[2], (0, 3, Verdict::Committed));
    assert_eq!(net.get(1, &q), Some(mine));
}

fn rename(net: &mut Net, ticket: Ticket, from: u32, to: u32) -> (TreePath, TreePath, PathRecord) {
    let (a, b) = (net.path_at(from, "a"), net.path_at(to, "b"));
    let old = record(0, 1);
    net.nodes[from as usize].1.apply(&[put(&a, &old)]).unwrap();
    let new = PathRecord {
        version: version(1, 99, BridgeId(0)),
        ..old.clone()
    };
    let mut reads = ReadSet::default();
    reads.saw(&a, Some(&old));
    reads.saw(&b, None);
    let batch = vec![
        Change::Delete {
            path: a.clone(),
            object: old.object,
        },
        put(&b, &new),
    ];
    let token = Token { client: 7, seq: 7 };
    net.propose(
        0,
        Proposal {
            ticket,
            reads,
            batch,
            token,
            uncovers: false,
        },
    );
    (a, b, new)
}

#[test]
fn whoever_crashes_after_whatever_step_a_rename_has_one_outcome() {
    for victim in 0..3 {
        for steps in 0..12 {
            let mut net = Net::new(3);
            let (a, b, new) = rename(&mut net, 1, 1, 2);
            for _ in 0..steps {
                net.deliver();
            }
            // What was under way to or from the victim is lost with it.
            net.wire
                .retain(|(to, from, _)| *to != victim && *from != victim);
            net.restart(victim, 2);
            for round in 1..40 {
                net.settle();
                for at in 0..3 {
                    net.nodes[at].0.tick(round * RETRY_MOST_US);
                    net.drain(at);
                }
            }
            let outcome = (net.get(1, &a).is_some(), net.get(2, &b) == Some(new));
            assert!(
                matches!(outcome, (true, false) | (false, true)),
                "victim {victim} after {steps}: {outcome:?}"
            );
            assert!(
                net.nodes.iter().all(|(b, _)| b.is_quiet()),
                "{victim} {steps}"
            );
            if net.done.iter().any(|d| d.2 == Verdict::Committed) {
                assert_eq!(outcome, (false, true), "answered, so it has to stay");
            }
        }
    }
}

#[test]
fn a_reader_never_sees_a_rename_at_one_end_only() {
    let mut net = Net::new(3);
    let (a, b, _) = rename(&mut net, 1, 1, 2);
    for ticket in 10..50 {
        // Each look puts more messages behind those of the rename, in the order of the network.
        let p = if ticket % 2 == 0 { &a } else { &b };
        net.nodes[0].0.fetch(ticket, Need::Record(p.clone()), 0);
        net.drain(0);
        net.deliver();
    }
    net.settle();
    // In order of the answers a name that was seen absent stays absent, and the new one stays present.
    let mut gone = false;
    for (_, p, r) in &net.records {
        if *p == a {
            gone |= r.is_none();
        } else {
            assert!(!gone || r.is_some(), "old name gone, new one not there");
        }
    }
    assert!(gone);
}

#[test]
fn nothing_is_made_in_a_directory_that_has_ended() {
    let mut net = Net::new(3);
    let dir = net.path_at(1, "d");
    let dir_record = PathRecord {
        kind: Kind::Dir,
        ..record(0, 1)
    };
    net.nodes[1].1.apply(&[put(&dir, &dir_record)]).unwrap();
    let mut reads = ReadSet::default();
    reads.saw(&dir, Some(&dir_record));
    reads.ranges.push(RangeRead {
        dir: dir.clone(),
        seen: vec![(BridgeId(1), 0), (BridgeId(2), 0)],
    });
    let batch = vec![Change::Delete {
        path: dir.clone(),
        object: dir_record.object,
    }];
    let token = Token { client: 7, seq: 7 };
    net.propose(
        0,
        Proposal {
            ticket: 1,
            reads,
            batch,
            token,
            uncovers: false,
        },
    );
    net.settle();
    assert_eq!(net.done, [(0, 1, Verdict::Committed)]);
    for at in 0..3 {
        let child = dir.join(format!("c{at}").as_bytes());
        let r = record(at, 50);
        let mut late = create(2, &child, &r);
        late.reads.saw(&dir, Some(&dir_record));
        net.propose(at as usize, late);
        net.settle();
        assert!(matches!(
            net.done.last(),
            Some((_, 2, Verdict::Conflict(_)))
        ));
    }
}

#[test]
fn nothing_is_made_in_a_directory_that_its_record_has_covered_since_it_moved() {
    let mut net = Net::new(3);
    let dir = net.path_at(1, "d");
    let moved = PathRecord {
        kind: Kind::Moved,
        ..record(0, 1)
    };
    let whiteout = PathRecord {
        kind: Kind::Whiteout,
        ..record(0, 2)
    };
    let covered = dir.join(b"x");
    let mut reads = ReadSet::default();
    reads.saw(&dir, None);
    reads.ranges.push(RangeRead {
        dir: dir.clone(),
        seen: vec![(BridgeId(1), 0), (BridgeId(2), 0)],
    });
    // A directory of the PFS gets this path, with what hides one of its directories.
    let batch = vec![put(&dir, &moved), put(&covered, &whiteout)];
    let token = Token { client: 7, seq: 7 };
    let ticket = 1;
    net.propose(
        0,
        Proposal {
            ticket,
            reads,
            batch,
            token,
            uncovers: false,
        },
    );
    net.settle();
    assert_eq!(net.done, [(0, 1, Verdict::Committed)]);
    let child = (0..)
        .map(|n| covered.join(format!("c{n}").as_bytes()))
        .find(|p| {
            let membership = net.nodes[0].0.membership();
            membership.home(p) != membership.home(&covered)
        })
        .unwrap();
    // It has seen the new record of the directory, and what was there before in it.
    let mut late = create(2, &child, &record(2, 50));
    late.reads.saw(&dir, Some(&moved));
    late.reads.saw(&covered, None);
    net.propose(2, late);
    net.settle();
    assert!(matches!(
        net.done.last(),
        Some((_, 2, Verdict::Conflict(_)))
    ));
}

/// A directory `d` with many files at the homes where they belong.
fn wide_directory(files: usize) -> (Net, Vec<TreePath>) {
    let net = Net::new(3);
    let mut paths: Vec<_> = (0..files).map(|n| path(&format!("d/{n:05}"))).collect();
    for (n, p) in paths.iter().enumerate() {
        let home = net.nodes[0].0.membership().home(p);
        let r = record(home.0, n as u64 + 1);
        net.nodes[home.0 as usize].1.apply(&[put(p, &r)]).unwrap();
    }
    paths.sort();
    (net, paths)
}

impl Net {
    /// Delivers everything; each message is lost once and then doubled.
    fn settle_in_bad_weather(&mut self) {
        let mut now = 0;
        for round in 0..40 {
            let wire = std::mem::take(&mut self.wire);
            for (n, (to, from, message)) in wire.into_iter().enumerate() {
                check_size(&message);
                if round % 2 == 0 && n % 2 == 0 {
                    continue;
                }
                for _ in 0..2 {
                    let (bridge, table) = &mut self.nodes[to];
                    let from = BridgeId(from as u32);
                    bridge.message(from, message.clone(), table, now).unwrap();
                    self.drain(to);
                }
            }
            now += RETRY_MOST_US + 1;
            for at in 0..self.nodes.len() {
                self.nodes[at].0.tick(now);
                self.drain(at);
            }
        }
        assert!(self.nodes.iter().all(|(bridge, _)| bridge.is_quiet()));
    }
}

fn check_size(message: &Message) {
    match &message.body {
        Body::FetchedBelow { entries, .. } => assert!(entries.len() <= RECORDS_PER_MESSAGE),
        Body::FetchedChildren { children, .. } => assert!(children.len() <= CHILDREN_PER_PAGE),
        _ => {}
    }
}

#[test]
fn what_others_hold_below_comes_whole_in_bounded_messages_whatever_is_lost_or_doubled() {
    let (mut net, paths) = wide_directory(3 * RECORDS_PER_MESSAGE + 1_000);
    net.nodes[0].0.fetch(1, Need::Below(path("d")), 0);
    net.drain(0);
    net.settle_in_bad_weather();
    let membership = net.nodes[0].0.membership().clone();
    let others: Vec<_> = paths
        .into_iter()
        .filter(|p| !membership.is_home(p))
        .collect();
    assert_eq!(net.below.len(), 1, "one answer");
    let found: Vec<_> = net.below[0]
        .entries
        .iter()
        .map(|(p, _)| p.clone())
        .collect();
    assert_eq!(found, others);
    for (bridge, seen) in &net.below[0].seen {
        let table = &net.nodes[bridge.0 as usize].1;
        assert_eq!(*seen, digest(&table.subtree(&path("d")).unwrap()));
    }
}

#[test]
fn children_of_a_wide_directory_come_page_by_page_in_their_order() {
    let (mut net, paths) = wide_directory(2_500);
    let membership = net.nodes[0].0.membership().clone();
    let mut others = paths.iter().filter(|p| !membership.is_home(p));
    let mut after = None;
    for ticket in 0.. {
        let page = Need::Children {
            dir: path("d"),
            after: after.clone(),
            limit: 500,
        };
        net.nodes[0].0.fetch(ticket, page, 0);
        net.drain(0);
        net.settle_in_bad_weather();
        let page = net.children.pop().expect("an answer");
        for (name, _) in &page {
            assert_eq!(Some(&path("d").join(name)), others.next());
        }
        if page.len() < 500 {
            break;
        }
        after = page.last().map(|(name, _)| name.clone());
    }
    assert_eq!(others.next(), None, "nothing is left out");
}

#[test]
fn a_bridge_that_was_started_too_often_says_so_instead_of_using_versions_twice() {
    let table = Table::default();
    let single = Membership::single(BridgeId(0));
    assert!(Bridge::recover(single.clone(), MAX_EPOCH - 1, &table, 0).is_ok());
    let error = Bridge::recover(single, MAX_EPOCH, &table, 0).err().unwrap();
    assert!(error.to_string().contains("1048576 starts"), "{error}");
}

#[test]
#[should_panic(expected = "epoch 1048576 or bridge 1 does not fit into a version")]
fn a_version_of_a_start_that_cannot_be_is_a_broken_assertion() {
    version(MAX_EPOCH, 0, BridgeId(1));
}

#[test]
#[should_panic(expected = "a batch that is none: a is deleted after a put")]
fn a_proposal_that_deletes_after_a_put_is_a_broken_assertion() {
    let table = Table::default();
    let single = Membership::single(BridgeId(0));
    let mut bridge = Bridge::recover(single, 1, &table, 0).unwrap();
    let r = record(0, 1);
    let (token, object) = (r.token, r.object);
    let batch = vec![
        Change::Put {
            path: path("b"),
            record: r,
        },
        Change::Delete {
            path: path("a"),
            object,
        },
    ];
    let proposal = Proposal {
        ticket: 1,
        reads: ReadSet::default(),
        batch,
        token,
        uncovers: false,
    };
    let _ = bridge.propose(proposal, &table, 0);
}

/// A part that puts something back which it has taken away.
fn malformed_part(p: &TreePath, r: &PathRecord) -> Part {
    let delete = Change::Delete {
        path: p.clone(),
        object: r.object,
    };
    Part {
        changes: vec![put(p, r), delete],
        ..Part::default()
    }
}

#[test]
fn a_malformed_part_of_another_bridge_is_refused_and_nothing_of_it_happens() {
    let (r, from) = (record(1, 1), BridgeId(1));
    for is_last in [false, true] {
        let mut net = Net::new(2);
        let p = net.path_at(0, "f");
        let txn = TxnId {
            coordinator: from,
            seq: 1 << 32 | 1,
        };
        let part = malformed_part(&p, &r);
        let body = if is_last {
            Body::Commit { txn, part }
        } else {
            let primary = from;
            Body::Prepare { txn, primary, part }
        };
        net.wire.push_back((0, 1, Message { settled: 0, body }));
        net.deliver();
        let expected = if is_last {
            Body::Outcome {
                txn,
                committed: false,
                current: Vec::new(),
            }
        } else {
            let vote = Err(Vec::new());
            Body::Vote { txn, vote }
        };
        let answers: Vec<_> = net.wire.iter().map(|(_, _, m)| &m.body).collect();
        assert_eq!(answers, [&expected]);
        assert_eq!(net.get(0, &p), None);
        assert!(net.nodes[0].0.is_quiet());
    }
}

#[test]
fn a_malformed_batch_in_the_tables_is_damage() {
    let (p, r) = (path("f"), record(0, 1));
    let txn = TxnId {
        coordinator: BridgeId(1),
        seq: 1,
    };
    let part = malformed_part(&p, &r);
    let intent = persist::Intent {
        token: Token::default(),
        primary: BridgeId(1),
        participants: vec![BridgeId(1)],
        follow_up: part.changes.clone(),
        outcome: None,
    };
    let promise = persist::encode_prepared(BridgeId(1), &part);
    for (prefix, value) in [
        (persist::PREPARED, promise),
        (persist::INTENT, intent.encode()),
    ] {
        let table = Table::default();
        let kept = persist::set(persist::txn_key(prefix, txn), value);
        table.apply(&[kept]).unwrap();
        let membership = Membership::new(BridgeId(0), vec![BridgeId(0), BridgeId(1)]);
        let recovered = Bridge::recover(membership, 1, &table, 0);
        assert!(matches!(
            recovered.err(),
            Some(TableError::Damaged { what: "value", .. })
        ));
    }
}

#[test]
fn nobody_is_told_of_a_commit_before_it_is_durable_and_questions_do_not_wait() {
    let table = Table::default();
    let membership = Membership::new(BridgeId(0), vec![BridgeId(0), BridgeId(1)]);
    let mut bridge = Bridge::recover(membership, 1, &table, 0).unwrap();
    let poll = |bridge: &mut Bridge| -> Vec<Output> {
        std::iter::from_fn(|| bridge.poll(&table).unwrap()).collect()
    };
    let elsewhere = (0..)
        .map(|i| path(&format!("x{i}")))
        .find(|p| bridge.membership().home(p) == BridgeId(1))
        .unwrap();
    bridge.fetch(1, Need::Record(elsewhere.clone()), 0);
    let question = poll(&mut bridge);
    assert!(
        matches!(question[..], [Output::Send { .. }]),
        "{question:?}"
    );
    let proposal = create(2, &elsewhere, &record(0, 1));
    bridge.propose(proposal, &table, 0).unwrap();
    let began = bridge.commits();
    let first = poll(&mut bridge);
    assert!(matches!(first[..], [Output::Commit(_)]), "{first:?}");
    assert!(bridge.waits_for_sync_point());
    // A sync point that began before the commit says nothing of it.
    bridge.durable(began);
    assert_eq!(poll(&mut bridge), []);
    bridge.durable(bridge.commits());
    let told = poll(&mut bridge);
    assert!(matches!(told[..], [Output::Send { .. }]), "{told:?}");
    assert!(!bridge.waits_for_sync_point());
}
