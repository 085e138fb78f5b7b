//! One collective call: processes and aggregators exchange bytes in rounds, aggregators read or write the file.
//!
//! Between rounds nobody waits for all others, unless groups of aggregators take turns. Whoever fails to read or write goes
//! on with the exchange, so that nobody waits for it, and says so in the end.
//!
//! An aggregator has at most, with buffers of `n` bytes: its part of the file (`n`), with a bit for each byte (`n / 8`), both twice
//! if it reads and writes beside the exchange; what waits to be put together or to be sent (`n`); and the lists of what processes
//! access (`n`, or 1 KiB for each process if that is more). A call whose lists are longer is carried out in parts.
#![allow(unsafe_code)]

use std::iter::Peekable;
use std::ops::Range;

use forebay_core::collective::{
    Access, ExchangePlan, Extent, FileDomain, FileDomains, Transfer, decode, encode,
};

use crate::beside::{Aggregator, FileOutcome, Task};
use crate::buffers::{Buffers, PartBuffer, Room};
use crate::explain::Meter;
use crate::file::Here;
use crate::memory::Memory;
use crate::mpi::{Communicator, Failed, Mpi, Requests, Result};

/// Where the bytes of a call go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the file.
    Read,
    /// To the file.
    Write,
}

/// One call.
pub struct Call<'a> {
    /// The MPI library.
    pub mpi: &'a Mpi,
    /// All processes of the file.
    pub processes: Communicator,
    /// The arrangement of the file.
    pub here: &'a Here,
    /// The buffer of the program.
    pub memory: Memory<'a>,
}

impl Call<'_> {
    /// Carries out the call on this process, whose access is `mine`. The inner error is one of this process as an
    /// aggregator; the outer one is of the MPI library. Collective.
    pub fn perform(
        &self,
        direction: Direction,
        region: Extent,
        mine: &mut Access,
        buffers: &mut Buffers,
    ) -> Result<FileOutcome> {
        let arranged = &self.here.arrangement;
        let aggregators = arranged.aggregators.len() as u32;
        let mut outcome = Ok(());
        let mut parts = vec![region];
        while let Some(part) = parts.pop() {
            let domains = FileDomains::new(arranged.method, part, aggregators, arranged.layout);
            let halves = part.halves(arranged.layout.granule_bytes);
            let told = self.tell(&domains, mine, halves.is_some(), buffers)?;
            match (told, halves) {
                (None, Some((first, second))) => parts.extend([second, first]),
                (told, _) => {
                    let mut accesses = told.ok_or(Failed)?;
                    accesses[self.processes.rank] = std::mem::take(mine);
                    let done = self.perform_told(direction, domains, &accesses, buffers)?;
                    outcome = outcome.and(done);
                    *mine = std::mem::take(&mut accesses[self.processes.rank]);
                    buffers.keep_lists(accesses, arranged.buffer_bytes);
                }
            }
        }
        Ok(outcome)
    }

    /// Carries out a part of the call of which each process knows what it has to.
    fn perform_told(
        &self,
        direction: Direction,
        domains: FileDomains,
        accesses: &[Access],
        buffers: &mut Buffers,
    ) -> Result<FileOutcome> {
        let rank = self.processes.rank;
        let arranged = &self.here.arrangement;
        let plan = ExchangePlan::new(domains, arranged.buffer_bytes, accesses);
        let number = self.own_number();
        let storage = self.here.storage.as_ref().filter(|_| number.is_some());
        let parts = std::mem::take(&mut buffers.parts);
        let mut aggregator = storage.map(|storage| Aggregator::alone(storage, parts));
        let has_several = number.is_some_and(|number| plan.windows(number) > 1);
        std::thread::scope(|scope| {
            if arranged.overlaps && has_several {
                aggregator = aggregator.take().map(|it| it.with_thread(scope));
            }
            let rounds = plan.rounds_with_work(rank, number).peekable();
            let done = self.perform_rounds(direction, &plan, rounds, &mut aggregator, buffers);
            // Also after a failure: MPI may still use the buffers.
            let (outcome, parts, meter) = match aggregator.take() {
                Some(aggregator) => aggregator.end(),
                None => (Ok(()), Vec::new(), Meter::default()),
            };
            buffers.parts = parts;
            buffers.meter.add(meter);
            done.map(|()| outcome)
        })
    }

    fn perform_rounds(
        &self,
        direction: Direction,
        plan: &ExchangePlan,
        mut rounds: Peekable<impl Iterator<Item = u64>>,
        aggregator: &mut Option<Aggregator>,
        buffers: &mut Buffers,
    ) -> Result<()> {
        let mut turn = 0;
        let mut is_read = false;
        let is_beside = aggregator.as_ref().is_some_and(Aggregator::is_beside);
        while let Some(round) = rounds.next() {
            self.take_turns(&mut turn, plan.turn_of(round), aggregator)?;
            buffers.meter.rounds += 1;
            let own = self.own_part(plan, round).zip(aggregator.as_mut());
            if direction == Direction::Write {
                self.write_round(plan, round, own, buffers)?;
                continue;
            }
            let next = rounds.peek().filter(|_| is_beside && own.is_some());
            let next = next.filter(|&&next| plan.turn_of(next) == plan.turn_of(round));
            let next = next.and_then(|&next| self.own_part(plan, next));
            let own = own.map(|(part, aggregator)| Reading {
                part,
                is_read,
                next,
                aggregator,
            });
            self.read_round(plan, round, own, buffers)?;
            is_read = next.is_some();
        }
        self.take_turns(&mut turn, plan.turns() - 1, aggregator)
    }

    /// Waits for all processes before each turn up to this one.
    fn take_turns(
        &self,
        turn: &mut usize,
        to: usize,
        aggregator: &mut Option<Aggregator>,
    ) -> Result<()> {
        while *turn < to {
            if let Some(aggregator) = aggregator {
                aggregator.wait();
            }
            self.mpi.barrier(self.processes)?;
            *turn += 1;
        }
        Ok(())
    }

    /// Tells each aggregator what this process has in its domain. Returns the accesses of all processes as far as this
    /// one has to know them; `None` on all processes if those are more than one aggregator can hold and `may_refuse`.
    fn tell(
        &self,
        domains: &FileDomains,
        mine: &Access,
        may_refuse: bool,
        buffers: &mut Buffers,
    ) -> Result<Option<Vec<Access>>> {
        let Communicator { rank, size, .. } = self.processes;
        let mut messages = Vec::new();
        let mut lengths = vec![0; size];
        for (number, to) in self.aggregators() {
            let message = match to == rank {
                true => Vec::new(),
                false => encode(mine, &domains.domain(number)).map_err(|_| Failed)?,
            };
            lengths[to] = message.len() as u64;
            messages.push((to, message));
        }
        let lengths = self.mpi.alltoall(self.processes, &lengths)?;
        let told_bytes = lengths.iter().sum::<u64>() as i64;
        let most = list_bytes(self.here.arrangement.buffer_bytes, size);
        if self.mpi.largest(self.processes, told_bytes)? > most as i64 && may_refuse {
            return Ok(None);
        }
        let mut requests = self.mpi.requests();
        for (from, &bytes) in lengths.iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
            let bytes = bytes as usize;
            self.mpi
                .receive_message(self.processes, from, bytes, &mut requests)?;
        }
        for (to, message) in messages.into_iter().filter(|(_, m)| !m.is_empty()) {
            self.mpi
                .send_message(self.processes, to, message, &mut requests)?;
        }
        let mut told = self.mpi.wait_for_messages(requests)?.into_iter();
        let each = lengths.iter().map(|&bytes| match bytes {
            0 => Ok(Access::default()),
            _ => {
                let message = told.next().ok_or(Failed)?;
                let access = buffers.lists.pop().unwrap_or_default();
                decode(&message, access).map_err(|_| Failed)
            }
        });
        each.collect::<Result<_>>().map(Some)
    }

    /// The aggregators: number and rank of each.
    fn aggregators(&self) -> impl Iterator<Item = (u32, usize)> + '_ {
        let ranks = &self.here.arrangement.aggregators;
        (0..).zip(ranks.iter().map(|&rank| rank as usize))
    }

    /// The number of this process as an aggregator, if it is one.
    fn own_number(&self) -> Option<u32> {
        let mut all = self.aggregators();
        all.find_map(|(number, rank)| (rank == self.processes.rank).then_some(number))
    }

    /// What this process is to read or write in a round, if it is an aggregator.
    fn own_part(&self, plan: &ExchangePlan, round: u64) -> Option<FileDomain> {
        plan.window(self.own_number()?, round)
    }

    /// What goes between this process and other aggregators in a round.
    fn with_aggregators(&self, plan: &ExchangePlan, round: u64) -> Vec<Parcel> {
        let rank = self.processes.rank;
        let others = self.aggregators().filter(|&(_, to)| to != rank);
        let mut parcels = Vec::new();
        for (number, other) in others {
            let Some(window) = plan.window(number, round) else {
                continue;
            };
            let mut ranges: Vec<(u64, u64)> = Vec::new();
            for (begin, bytes) in plan.memory(rank, &window) {
                match ranges.last_mut() {
                    Some(last) if last.0 + last.1 == begin => last.1 += bytes,
                    _ => ranges.push((begin, bytes)),
                }
            }
            let bytes = ranges.iter().map(|range| range.1).sum();
            let direct = match ranges[..] {
                [(begin, _)] => self.memory.place(begin),
                _ => None,
            };
            if bytes > 0 {
                parcels.push(Parcel {
                    other,
                    bytes,
                    direct,
                    staged: 0,
                    ranges,
                });
            }
        }
        // These are bytes of this process, of which it has a copy at most.
        batches(&mut parcels, u64::MAX);
        parcels
    }

    /// What goes between this aggregator and other processes, in its part of the file.
    fn with_processes(
        &self,
        plan: &ExchangePlan,
        part: &FileDomain,
        buffer: &mut [u8],
    ) -> Vec<Parcel> {
        let mut parcels = Vec::new();
        for other in (0..self.processes.size).filter(|&other| other != self.processes.rank) {
            let mut transfers = plan.transfers(other, part);
            let Some(first) = transfers.next() else {
                continue;
            };
            let (bytes, direct) = match transfers.next() {
                None => (first.file.bytes(), Some(&raw mut buffer[place(&first)][0])),
                Some(_) => (plan.bytes(other, part), None),
            };
            parcels.push(Parcel {
                other,
                bytes,
                direct,
                staged: 0,
                ranges: Vec::new(),
            });
        }
        parcels
    }

    /// Begins to send or to receive parcels. Those that do not lie where they belong lie in `stage`.
    ///
    /// # Safety
    /// The bytes of all parcels stay, and nobody else uses them, until the requests are done.
    unsafe fn begin(
        &self,
        to_others: bool,
        parcels: &[Parcel],
        stage: &mut [u8],
        requests: &mut Requests,
    ) -> Result<()> {
        for parcel in parcels {
            let bytes = parcel.bytes as usize;
            let at = parcel
                .direct
                .unwrap_or_else(|| stage[parcel.in_stage()].as_mut_ptr());
            // SAFETY: the caller's promise.
            unsafe {
                match to_others {
                    true => self.mpi.send(
                        self.processes,
                        parcel.other,
                        (at.cast_const(), bytes),
                        requests,
                    )?,
                    false => {
                        self.mpi
                            .receive(self.processes, parcel.other, (at, bytes), requests)?
                    }
                }
            }
        }
        Ok(())
    }

    fn write_round(
        &self,
        plan: &ExchangePlan,
        round: u64,
        own: Option<(FileDomain, &mut Aggregator)>,
        buffers: &mut Buffers,
    ) -> Result<()> {
        let Some((part, aggregator)) = own else {
            let mut sends = self.gather(plan, round, None, buffers)?;
            return self.mpi.wait(&mut sends);
        };
        let mut buffer = aggregator.buffer();
        let gathered = self.gather(plan, round, Some((&part, &mut buffer)), buffers);
        let mut sends = match gathered {
            Ok(sends) => sends,
            Err(failed) => {
                // MPI may still use it.
                aggregator.give_back(buffer);
                return Err(failed);
            }
        };
        aggregator.begin(Task {
            direction: Direction::Write,
            part,
            buffer,
        });
        self.mpi.wait(&mut sends)
    }

    /// Begins to send what this process has for other aggregators in a round, and gathers what processes have of its own part. The
    /// program's buffer and `outbox` are left alone until the requests that it gives are done.
    fn gather(
        &self,
        plan: &ExchangePlan,
        round: u64,
        own: Option<(&FileDomain, &mut PartBuffer)>,
        buffers: &mut Buffers,
    ) -> Result<Requests> {
        let mut none = PartBuffer::default();
        let (part, (buffer, coverage)) = match own {
            Some((part, buffer)) => (Some(part), buffer.clear(part.bytes())),
            None => (None, none.clear(0)),
        };
        let mut arriving = match part {
            Some(part) => self.with_processes(plan, part, buffer),
            None => Vec::new(),
        };
        let batches = batches(&mut arriving, self.here.arrangement.buffer_bytes);
        let inbox = buffers.inbox.of(largest(&arriving, &batches));
        let (mut receives, mut sends) = (self.mpi.requests(), self.mpi.requests());
        if let Some(first) = batches.first() {
            // Before anything is sent: what arrives finds its place.
            // SAFETY: it goes into `buffer` and `inbox`, which are left alone until the wait is over. Of bytes that several
            // processes write, MPI leaves open whose stay.
            unsafe { self.begin(false, &arriving[first.clone()], inbox, &mut receives)? };
        }
        let leaving = self.with_aggregators(plan, round);
        let outbox = buffers.outbox.of(staged(&leaving));
        for parcel in leaving.iter().filter(|parcel| parcel.direct.is_none()) {
            let mut rest = &mut outbox[parcel.in_stage()];
            for &(begin, bytes) in &parcel.ranges {
                let (now, later) = rest.split_at_mut(bytes as usize);
                self.memory.gather(begin, now);
                rest = later;
            }
        }
        // SAFETY: `outbox` is left alone until the wait is over. The program keeps its buffer during the call.
        unsafe { self.begin(true, &leaving, outbox, &mut sends)? };
        let Some(part) = part else {
            return Ok(sends);
        };
        for (number, batch) in batches.into_iter().enumerate() {
            let batch = &arriving[batch];
            if number > 0 {
                // SAFETY: as for the first batch, whose bytes are where they belong now.
                unsafe { self.begin(false, batch, inbox, &mut receives)? };
            }
            self.mpi.wait(&mut receives)?;
            for parcel in batch {
                let mut rest = match parcel.direct {
                    Some(_) => &inbox[..0],
                    None => &inbox[parcel.in_stage()],
                };
                for transfer in plan.transfers(parcel.other, part) {
                    if parcel.direct.is_none() {
                        let (now, later) = rest.split_at(transfer.file.bytes() as usize);
                        buffer[place(&transfer)].copy_from_slice(now);
                        rest = later;
                    }
                    coverage.add(transfer.buffer, transfer.file.bytes());
                }
            }
        }
        for transfer in plan.transfers(self.processes.rank, part) {
            self.memory
                .gather(transfer.memory, &mut buffer[place(&transfer)]);
            coverage.add(transfer.buffer, transfer.file.bytes());
        }
        Ok(sends)
    }

    /// The task of reading what processes access of a part.
    fn reading(&self, plan: &ExchangePlan, part: FileDomain, mut buffer: PartBuffer) -> Task {
        let (_, coverage) = buffer.clear(part.bytes());
        for process in 0..self.processes.size {
            for transfer in plan.transfers(process, &part) {
                coverage.add(transfer.buffer, transfer.file.bytes());
            }
        }
        Task {
            direction: Direction::Read,
            part,
            buffer,
        }
    }

    fn read_round(
        &self,
        plan: &ExchangePlan,
        round: u64,
        own: Option<Reading>,
        buffers: &mut Buffers,
    ) -> Result<()> {
        let mut receives = self.mpi.requests();
        let arriving = self.with_aggregators(plan, round);
        let inbox = buffers.outbox.of(staged(&arriving));
        // SAFETY: what arrives goes to places of its own in the program's buffer and in `inbox`, which is left alone
        // until the wait is over.
        unsafe { self.begin(false, &arriving, inbox, &mut receives)? };
        if let Some(Reading {
            part,
            is_read,
            next,
            aggregator,
        }) = own
        {
            if !is_read {
                let buffer = aggregator.buffer();
                aggregator.begin(self.reading(plan, part, buffer));
            }
            aggregator.wait();
            let mut buffer = aggregator.buffer();
            if let Some(next) = next {
                let other = aggregator.buffer();
                aggregator.begin(self.reading(plan, next, other));
            }
            let handed_out = self.hand_out(plan, &part, buffer.both().0, &mut buffers.inbox);
            // Also after a failure: MPI may still use it, and so it goes the way of all buffers.
            aggregator.give_back(buffer);
            handed_out?;
        }
        self.mpi.wait(&mut receives)?;
        for parcel in arriving.iter().filter(|parcel| parcel.direct.is_none()) {
            let mut rest = &inbox[parcel.in_stage()];
            for &(begin, bytes) in &parcel.ranges {
                let (now, later) = rest.split_at(bytes as usize);
                self.memory.scatter(begin, now);
                rest = later;
            }
        }
        Ok(())
    }

    /// Sends processes what they access of a part of the file that was read.
    fn hand_out(
        &self,
        plan: &ExchangePlan,
        part: &FileDomain,
        buffer: &mut [u8],
        outbox: &mut Room,
    ) -> Result<()> {
        let mut sends = self.mpi.requests();
        let mut leaving = self.with_processes(plan, part, buffer);
        let batches = batches(&mut leaving, self.here.arrangement.buffer_bytes);
        let outbox = outbox.of(largest(&leaving, &batches));
        for batch in batches {
            let batch = &leaving[batch];
            for parcel in batch.iter().filter(|parcel| parcel.direct.is_none()) {
                let mut rest = &mut outbox[parcel.in_stage()];
                for transfer in plan.transfers(parcel.other, part) {
                    let (now, later) = rest.split_at_mut(transfer.file.bytes() as usize);
                    now.copy_from_slice(&buffer[place(&transfer)]);
                    rest = later;
                }
            }
            // SAFETY: `buffer` and `outbox` are left as they are until the wait is over.
            unsafe { self.begin(true, batch, outbox, &mut sends)? };
            self.mpi.wait(&mut sends)?;
        }
        for transfer in plan.transfers(self.processes.rank, part) {
            self.memory
                .scatter(transfer.memory, &buffer[place(&transfer)]);
        }
        Ok(())
    }
}

/// What an aggregator has to do in a round of a read.
struct Reading<'r, 's> {
    part: FileDomain,
    /// It was begun beside the round before.
    is_read: bool,
    /// What is to be read beside this round.
    next: Option<FileDomain>,
    aggregator: &'r mut Aggregator<'s>,
}

/// The bytes between this process and another one in a round.
struct Parcel {
    other: usize,
    bytes: u64,
    /// Where they belong, if they have no gaps there.
    direct: Option<*mut u8>,
    /// Where they begin in the stage otherwise.
    staged: u64,
    /// Where they belong in the buffer of the program: begin and length.
    ranges: Vec<(u64, u64)>,
}

impl Parcel {
    fn in_stage(&self) -> Range<usize> {
        self.staged as usize..(self.staged + self.bytes) as usize
    }
}

/// Bytes of the stage that parcels need.
fn staged(parcels: &[Parcel]) -> u64 {
    let staged = parcels.iter().filter(|parcel| parcel.direct.is_none());
    staged.map(|parcel| parcel.bytes).sum()
}

/// Cuts parcels into batches that fill at most `most` bytes of the stage each, or hold one parcel, and says for each parcel
/// where it begins there.
fn batches(parcels: &mut [Parcel], most: u64) -> Vec<Range<usize>> {
    let mut batches = Vec::new();
    let (mut first, mut filled) = (0, 0);
    for (number, parcel) in parcels.iter_mut().enumerate() {
        let bytes = if parcel.direct.is_none() {
            parcel.bytes
        } else {
            0
        };
        if filled > 0 && filled + bytes > most {
            batches.push(first..number);
            (first, filled) = (number, 0);
        }
        parcel.staged = filled;
        filled += bytes;
    }
    if first < parcels.len() {
        batches.push(first..parcels.len());
    }
    batches
}

/// Bytes of the stage that the largest batch needs.
fn largest(parcels: &[Parcel], batches: &[Range<usize>]) -> u64 {
    let each = batches.iter().map(|batch| staged(&parcels[batch.clone()]));
    each.max().unwrap_or(0)
}

/// The most bytes of messages about accesses that an aggregator takes at once. Decoded they take at most 36 times that, and a
/// quarter of a buffer may be kept from the call before.
fn list_bytes(buffer_bytes: u64, processes: usize) -> u64 {
    (buffer_bytes / 48).max(32 * processes as u64)
}

/// Where a piece lies in the buffer of the aggregator.
fn place(transfer: &Transfer) -> Range<usize> {
    transfer.buffer as usize..(transfer.buffer + transfer.file.bytes()) as usize
}
