//! One collective call: processes and aggregators exchange bytes in rounds, aggregators read or write the file.
//!
//! Nobody waits for all others between rounds. Whoever fails to read or write goes on with the exchange, so that nobody
//! waits for it, and says so in the end.
#![allow(unsafe_code)]

use forebay_core::collective::{
    Access, Coverage, ExchangePlan, Extent, FileDomain, FileDomains, READ_GAP_BYTES, Transfer,
    decode, encode,
};
use rustix::io::Errno;

use crate::file::Here;
use crate::memory::Memory;
use crate::mpi::{Communicator, Mpi, Requests, Result};
use crate::storage::Storage;

/// Memory that is kept from call to call, because fresh pages are slow.
#[derive(Debug, Default)]
pub struct Buffers {
    /// What an aggregator has of the file.
    window: Vec<u8>,
    /// What goes between an aggregator and processes, as they have it.
    inbox: Vec<u8>,
    /// What goes between a process and aggregators.
    pub(crate) outbox: Vec<u8>,
    coverage: Coverage,
}

/// How an aggregator got on with the file.
type Outcome = std::result::Result<(), Errno>;

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

/// A buffer of at least so many bytes. Old bytes in it are of no meaning.
pub(crate) fn room(buffer: &mut Vec<u8>, bytes: u64) -> &mut [u8] {
    if buffer.len() < bytes as usize {
        // Pages of zeros come from the kernel when they are touched.
        *buffer = vec![0; bytes as usize];
    }
    &mut buffer[..bytes as usize]
}

impl Call<'_> {
    /// Carries out the call on this process, whose access is `mine`. The inner error is one of this process as an
    /// aggregator; the outer one is of the MPI library. Collective.
    pub fn perform(
        &self,
        direction: Direction,
        region: Extent,
        mine: Access,
        buffers: &mut Buffers,
    ) -> Result<Outcome> {
        let arranged = &self.here.arrangement;
        let aggregators = arranged.aggregators.len() as u32;
        let domains = FileDomains::new(arranged.method, region, aggregators, arranged.layout);
        let accesses = self.tell(&domains, mine)?;
        let plan = ExchangePlan::new(domains, arranged.buffer_bytes, &accesses);
        let mut outcome = Ok(());
        for round in 0..plan.rounds() {
            if plan.begins_turn(round) {
                self.mpi.barrier(self.processes)?;
            }
            let done = match direction {
                Direction::Write => self.write_round(&plan, round, buffers)?,
                Direction::Read => self.read_round(&plan, round, buffers)?,
            };
            outcome = outcome.and(done);
        }
        Ok(outcome)
    }

    /// Tells each aggregator what this process has in its domain. Returns the accesses of all processes as far as this
    /// one has to know them.
    fn tell(&self, domains: &FileDomains, mine: Access) -> Result<Vec<Access>> {
        let Communicator { rank, size, .. } = self.processes;
        let mut messages = Vec::new();
        let mut lengths = vec![0; size];
        for (number, to) in self.aggregators() {
            let message = match to == rank {
                true => Vec::new(),
                false => encode(&mine, &domains.domain(number))?,
            };
            lengths[to] = message.len() as u64;
            messages.push((to, message));
        }
        let lengths = self.mpi.alltoall(self.processes, &lengths)?;
        let mut requests = self.mpi.requests();
        let mut told: Vec<Vec<u8>> = lengths.iter().map(|&n| vec![0; n as usize]).collect();
        for (from, message) in told.iter_mut().enumerate().filter(|(_, m)| !m.is_empty()) {
            let to = (message.as_mut_ptr(), message.len());
            // SAFETY: the message stays until all requests are done.
            unsafe { self.mpi.receive(self.processes, from, to, &mut requests)? };
        }
        for (to, message) in messages.iter().filter(|(_, m)| !m.is_empty()) {
            let from = (message.as_ptr(), message.len());
            // SAFETY: the message stays until all requests are done.
            unsafe { self.mpi.send(self.processes, *to, from, &mut requests)? };
        }
        self.mpi.wait(&mut requests)?;
        let decoded: std::result::Result<Vec<Access>, _> =
            told.iter().map(|message| decode(message)).collect();
        let mut accesses = decoded?;
        accesses[rank] = mine;
        Ok(accesses)
    }

    /// The aggregators: number and rank of each.
    fn aggregators(&self) -> impl Iterator<Item = (u32, usize)> + '_ {
        let ranks = &self.here.arrangement.aggregators;
        (0..).zip(ranks.iter().map(|&rank| rank as usize))
    }

    /// What this process is to read or write in a round, if it is an aggregator.
    fn own_window(&self, plan: &ExchangePlan, round: u64) -> Option<(FileDomain, &Storage)> {
        let storage = self.here.storage.as_ref()?;
        let (number, _) = self
            .aggregators()
            .find(|&(_, rank)| rank == self.processes.rank)?;
        Some((plan.window(number, round)?, storage))
    }

    /// What goes between this process and other aggregators in a round.
    fn with_aggregators(&self, plan: &ExchangePlan, round: u64) -> Vec<Parcel> {
        let rank = self.processes.rank;
        let others = self.aggregators().filter(|&(_, to)| to != rank);
        let mut parcels = Vec::new();
        let mut staged = 0;
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
                    staged,
                    ranges,
                });
                staged += if direct.is_none() { bytes } else { 0 };
            }
        }
        parcels
    }

    /// What goes between this aggregator and other processes, in its window.
    fn with_processes(
        &self,
        plan: &ExchangePlan,
        window: &FileDomain,
        buffer: &mut [u8],
    ) -> Vec<Parcel> {
        let mut parcels = Vec::new();
        let mut staged = 0;
        for other in (0..self.processes.size).filter(|&other| other != self.processes.rank) {
            let mut transfers = plan.transfers(other, window);
            let Some(first) = transfers.next() else {
                continue;
            };
            let (bytes, direct) = match transfers.next() {
                None => (first.file.bytes(), Some(&raw mut buffer[place(&first)][0])),
                Some(_) => (plan.bytes(other, window), None),
            };
            parcels.push(Parcel {
                other,
                bytes,
                direct,
                staged,
                ranges: Vec::new(),
            });
            staged += if direct.is_none() { bytes } else { 0 };
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
        buffers: &mut Buffers,
    ) -> Result<Outcome> {
        let own = self.own_window(plan, round);
        let mut requests = self.mpi.requests();
        let mut arriving = Vec::new();
        let size = own.map_or(0, |(window, _)| window.bytes());
        let buffer = room(&mut buffers.window, size);
        if let Some((window, _)) = &own {
            arriving = self.with_processes(plan, window, buffer);
        }
        let inbox = room(&mut buffers.inbox, staged(&arriving));
        let leaving = self.with_aggregators(plan, round);
        let outbox = room(&mut buffers.outbox, staged(&leaving));
        for parcel in leaving.iter().filter(|parcel| parcel.direct.is_none()) {
            let mut rest = &mut outbox[parcel.in_stage()];
            for &(begin, bytes) in &parcel.ranges {
                let (now, later) = rest.split_at_mut(bytes as usize);
                self.memory.gather(begin, now);
                rest = later;
            }
        }
        // SAFETY: what arrives goes to places of its own in `buffer` and `inbox`; they and `outbox` are left alone until
        // the wait is over. The program keeps its buffer during the call.
        unsafe {
            self.begin(false, &arriving, inbox, &mut requests)?;
            self.begin(true, &leaving, outbox, &mut requests)?;
        }
        self.mpi.wait(&mut requests)?;
        let Some((window, storage)) = own else {
            return Ok(Ok(()));
        };
        let coverage = &mut buffers.coverage;
        coverage.clear(size);
        for transfer in plan.transfers(self.processes.rank, &window) {
            self.memory
                .gather(transfer.memory, &mut buffer[place(&transfer)]);
            coverage.add(transfer.buffer, transfer.file.bytes());
        }
        for parcel in &arriving {
            let mut rest = match parcel.direct {
                Some(_) => &inbox[..0],
                None => &inbox[parcel.in_stage()],
            };
            for transfer in plan.transfers(parcel.other, &window) {
                if parcel.direct.is_none() {
                    let (now, later) = rest.split_at(transfer.file.bytes() as usize);
                    buffer[place(&transfer)].copy_from_slice(now);
                    rest = later;
                }
                coverage.add(transfer.buffer, transfer.file.bytes());
            }
        }
        let write = |(begin, end, offset): (u64, u64, u64)| {
            storage.write(&buffer[begin as usize..end as usize], offset)
        };
        Ok(in_file(&window, coverage, 0).try_for_each(write))
    }

    fn read_round(
        &self,
        plan: &ExchangePlan,
        round: u64,
        buffers: &mut Buffers,
    ) -> Result<Outcome> {
        let mut requests = self.mpi.requests();
        let arriving = self.with_aggregators(plan, round);
        let inbox = room(&mut buffers.outbox, staged(&arriving));
        // SAFETY: what arrives goes to places of its own in the program's buffer and in `inbox`, which is left alone
        // until the wait is over.
        unsafe { self.begin(false, &arriving, inbox, &mut requests)? };
        let mut outcome = Ok(());
        if let Some((window, storage)) = self.own_window(plan, round) {
            let buffer = room(&mut buffers.window, window.bytes());
            let leaving = self.with_processes(plan, &window, buffer);
            let coverage = &mut buffers.coverage;
            coverage.clear(window.bytes());
            let others = leaving.iter().map(|parcel| parcel.other);
            for process in others.chain([self.processes.rank]) {
                for transfer in plan.transfers(process, &window) {
                    coverage.add(transfer.buffer, transfer.file.bytes());
                }
            }
            let read = |(begin, end, offset): (u64, u64, u64)| {
                storage.read(&mut buffer[begin as usize..end as usize], offset)
            };
            outcome = in_file(&window, coverage, READ_GAP_BYTES).try_for_each(read);
            let outbox = room(&mut buffers.inbox, staged(&leaving));
            for parcel in leaving.iter().filter(|parcel| parcel.direct.is_none()) {
                let mut rest = &mut outbox[parcel.in_stage()];
                for transfer in plan.transfers(parcel.other, &window) {
                    let (now, later) = rest.split_at_mut(transfer.file.bytes() as usize);
                    now.copy_from_slice(&buffer[place(&transfer)]);
                    rest = later;
                }
            }
            // SAFETY: `buffer` and `outbox` are left as they are until the wait is over.
            unsafe { self.begin(true, &leaving, outbox, &mut requests)? };
            for transfer in plan.transfers(self.processes.rank, &window) {
                self.memory
                    .scatter(transfer.memory, &buffer[place(&transfer)]);
            }
            self.mpi.wait(&mut requests)?;
        }
        self.mpi.wait(&mut requests)?;
        for parcel in arriving.iter().filter(|parcel| parcel.direct.is_none()) {
            let mut rest = &inbox[parcel.in_stage()];
            for &(begin, bytes) in &parcel.ranges {
                let (now, later) = rest.split_at(bytes as usize);
                self.memory.scatter(begin, now);
                rest = later;
            }
        }
        Ok(outcome)
    }
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
    fn in_stage(&self) -> std::ops::Range<usize> {
        self.staged as usize..(self.staged + self.bytes) as usize
    }
}

/// Bytes of the stage that parcels need.
fn staged(parcels: &[Parcel]) -> u64 {
    let staged = parcels.iter().filter(|parcel| parcel.direct.is_none());
    staged.map(|parcel| parcel.bytes).sum()
}

/// Where a piece lies in the buffer of the aggregator.
fn place(transfer: &Transfer) -> std::ops::Range<usize> {
    transfer.buffer as usize..(transfer.buffer + transfer.file.bytes()) as usize
}

/// What of a window is covered: begin and end in the buffer, and the offset in the file.
fn in_file<'a>(
    window: &FileDomain,
    coverage: &'a Coverage,
    gap: u64,
) -> impl Iterator<Item = (u64, u64, u64)> + 'a {
    let window = *window;
    window.pieces().flat_map(move |piece| {
        let first = window.bytes_below(piece.start);
        let runs = coverage.runs(first, first + piece.bytes(), gap);
        runs.map(move |(begin, end)| (begin, end, piece.start + (begin - first)))
    })
}
