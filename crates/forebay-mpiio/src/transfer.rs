//! A collective read or write of the program: whether this layer carries it out, and what the program gets back.
#![allow(unsafe_code)]

use std::time::Instant;

use forebay_core::collective::{
    Access, AccessError, CarriedOutBy, LeftOut, MAX_PIECES, Share, Terms, TypeMap, Way, way,
};

use crate::datatype::{self, Datatype, Unfit};
use crate::exchange::{Call, Direction};
use crate::file::File;
use crate::memory::{self, Memory};
use crate::mpi::Failed;
use crate::output;
use crate::storage::Purpose;

/// The arguments of a collective read or write.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Read or write.
    pub direction: Direction,
    /// The explicit offset, in elements of the view; else the individual file pointer counts.
    pub offset: Option<i64>,
    /// The buffer.
    pub buffer: *mut u8,
    /// Elements in the buffer.
    pub count: i64,
    /// Their type.
    pub datatype: usize,
}

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carried {
    /// Nothing: the MPI library is to do it. All ranks get this.
    Not,
    /// So many bytes were moved.
    Bytes(u64),
    /// An error of this class occurred on some rank. All ranks get it.
    Error(i32),
}

/// What this process has to do.
struct Part {
    datatype: Datatype,
    /// The file pointer to set in the end.
    position_after: Option<i64>,
    first: u64,
    bytes: u64,
    access: Access,
}

/// Why a call is left to the MPI library.
const VIEW: &str = "a view that is not taken apart";
const DATATYPE: &str = "a data type that is not taken apart";
const ARGUMENTS: &str = "arguments that MPI has to judge";
const PIECES: &str = "more than a million pieces of a rank";

/// The first word of a share: this process could do its part of the call; it could not; it has to read or write the file, and has not got
/// it open.
const ABLE: u64 = 1;
const UNABLE: u64 = 0;
const UNEQUIPPED: u64 = 2;

/// Words of a share in a message. The last ones count if they are of rank 0: the file has to be arranged anew; calls are traced.
const WORDS: usize = 8;

impl File {
    /// Carries out a call, if that is worth it. Collective.
    ///
    /// # Safety
    /// The arguments are those of the program's call.
    pub unsafe fn carry_out(&mut self, request: &Request) -> Result<Carried, Failed> {
        let begin = Instant::now();
        let (mpi, processes) = (self.mpi, self.processes);
        let direction = request.direction;
        let unknown = |reason| (CarriedOutBy::MpiLibrary, Err(reason));
        let Some(here) = self.here.clone() else {
            self.tally.unfit += 1;
            self.why_unfit.get_or_insert("the file is left as a whole");
            self.trace(direction, unknown(LeftOut::Unknown))?;
            return Ok(Carried::Not);
        };
        if mpi.atomicity(self.handle)? {
            self.tally.atomic += 1;
            self.trace(direction, unknown(LeftOut::Atomic))?;
            return Ok(Carried::Not);
        }
        let equipped = here.storage.is_some() || !here.needs_storage(processes.rank);
        let part = self.part(request);
        let size = match (request.direction, &here.storage) {
            (Direction::Read, Some(storage)) => storage.size().map_err(|_| ARGUMENTS),
            _ => Ok(0),
        };
        let share = part.as_ref().map_or(Share::default(), Part::share);
        let able = match part.is_ok() && size.is_ok() {
            _ if !equipped => UNEQUIPPED,
            true => ABLE,
            false => UNABLE,
        };
        let mine: [u64; WORDS] = [
            able,
            share.start,
            share.end,
            share.bytes,
            share.pieces,
            size.unwrap_or(0),
            self.is_outdated.into(),
            output::traces().into(),
        ];
        let all = mpi.allgather(processes, &mine)?;
        self.told.traces &= all[WORDS - 1] == 1;
        if all[WORDS - 2] == 1 {
            self.rearrange()?;
            // SAFETY: the caller's promise.
            return unsafe { self.carry_out(request) };
        }
        let is_any = |word| all.chunks(WORDS).any(|one| one[0] == word);
        let why = match (&part, &size) {
            _ if is_any(UNEQUIPPED) => "a rank can't open the file a second time",
            (Err(why), _) | (_, Err(why)) => why,
            _ => "what another rank has",
        };
        let Some(mut part) = part
            .ok()
            .filter(|_| all.chunks(WORDS).all(|one| one[0] == ABLE))
        else {
            if is_any(UNEQUIPPED) {
                // Nor would a later call find the file open there.
                self.here = None;
            }
            self.why_unfit.get_or_insert(why);
            self.tally.unfit += 1;
            self.trace(direction, unknown(LeftOut::Unknown))?;
            return Ok(Carried::Not);
        };
        let largest = |word: usize| all.chunks(WORDS).map(|one| one[word]).max();
        let size = match (request.direction, largest(2), largest(5)) {
            (Direction::Write, ..) => u64::MAX,
            (Direction::Read, Some(reaches), Some(told)) if reaches <= told => told,
            // Who told it may have come before another process had written what is behind that end. All are here now.
            (Direction::Read, _, told) => {
                let told = told.unwrap_or(0);
                let now = here.storage.as_ref().and_then(|file| file.size().ok());
                let now = i64::try_from(now.unwrap_or(told)).unwrap_or(i64::MAX);
                mpi.largest(processes, now)?.unsigned_abs()
            }
        };
        let shares: Vec<Share> = all
            .chunks(WORDS)
            .map(|one| share_below(one, size))
            .collect();
        let terms = Terms {
            reads: request.direction == Direction::Read,
            is_free: here.arrangement.is_free,
            always: here.arrangement.always,
        };
        if self.told.traces {
            self.cut_off(&mut part, size)?;
        }
        let region = match way(&shares, terms) {
            Way::Native => {
                self.tally.as_good += 1;
                self.trace(direction, (CarriedOutBy::MpiLibrary, Ok(&part.access)))?;
                let buffer_bytes = here.arrangement.buffer_bytes;
                self.buffers.keep_list(part.access, buffer_bytes);
                return Ok(Carried::Not);
            }
            Way::Direct => {
                self.tally.direct += 1;
                self.trace(direction, (CarriedOutBy::EachRank, Ok(&part.access)))?;
                None
            }
            Way::Exchange(region) => {
                self.tally.exchanged += 1;
                let largest = self.tally.largest.filter(|l| l.bytes() >= region.bytes());
                self.tally.largest = largest.or(Some(region));
                self.trace(direction, (CarriedOutBy::Aggregators, Ok(&part.access)))?;
                Some(region)
            }
        };
        self.cut_off(&mut part, size)?;
        let moved = part.access.bytes();
        let call = Call {
            mpi: &mpi,
            processes,
            here: &here,
            // SAFETY: this is what the program says of its buffer.
            memory: unsafe { Memory::new(request.buffer, &part.datatype) },
        };
        let mut buffers = std::mem::take(&mut self.buffers);
        buffers.meter.pieces += part.access.pieces();
        buffers.meter.piece_bytes += moved;
        let outcome = match region {
            Some(region) => call.perform(request.direction, region, &mut part.access, &mut buffers),
            None => Ok(call.alone(request.direction, &part.access, &mut buffers)),
        };
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(failed) => {
                self.buffers.meter = buffers.meter;
                // MPI may still use them.
                std::mem::forget(buffers);
                return Err(failed);
            }
        };
        buffers.keep_list(part.access, here.arrangement.buffer_bytes);
        self.buffers = buffers;
        let class = self.agree(outcome)?;
        self.buffers.meter.call_nanos += begin.elapsed().as_nanos() as u64;
        if let Some(position) = part.position_after {
            mpi.seek(self.handle, position)?;
        }
        Ok(match class {
            0 => Carried::Bytes(moved),
            class => Carried::Error(class),
        })
    }

    /// Leaves away what lies behind the end of a file of this size: it is not read. Every part of the access is known to fit.
    fn cut_off(&self, part: &mut Part, size: u64) -> Result<(), Failed> {
        if part.access.hull().is_some_and(|hull| hull.end > size) {
            let visible = part.access.bytes_below(size);
            let view = self.view.as_ref().ok_or(Failed)?;
            part.access = view.access(part.first, visible).map_err(|_| Failed)?;
        }
        Ok(())
    }

    /// What this process has to do. Fails with a reason if this layer can't do it, or MPI has something to say about it.
    fn part(&mut self, request: &Request) -> Result<Part, &'static str> {
        let (mpi, view) = (&self.mpi, self.view.as_ref().ok_or(VIEW)?);
        let forbidden = match request.direction {
            Direction::Read => Purpose::Write,
            Direction::Write => Purpose::Read,
        };
        let count = u64::try_from(request.count).map_err(|_| ARGUMENTS)?;
        if self.purpose == forbidden || self.begun.is_some() {
            return Err(ARGUMENTS);
        }
        let datatype = match count {
            // MPI libraries hang if the type of one rank is wrong then.
            0 => Datatype {
                map: TypeMap::default(),
                extent: 0,
            },
            _ => {
                let committed = mpi.check_committed(self.processes, request.datatype);
                committed.map_err(|_| ARGUMENTS)?;
                datatype::take_apart(mpi, request.datatype).map_err(|Unfit| DATATYPE)?
            }
        };
        if memory::is_nowhere(request.buffer, &datatype) {
            return Err(ARGUMENTS);
        }
        let bytes = datatype.map.bytes().checked_mul(count).ok_or(ARGUMENTS)?;
        let elements = bytes / view.element_bytes();
        if bytes % view.element_bytes() != 0 {
            return Err("no whole elements of the view");
        }
        let position = match request.offset {
            Some(offset) => offset,
            None if view.is_single() => return Err(VIEW),
            None => mpi.position(self.handle).map_err(|_| ARGUMENTS)?,
        };
        let first = u64::try_from(position).map_err(|_| ARGUMENTS)?;
        let first = first.checked_mul(view.element_bytes());
        let first = first.ok_or(ARGUMENTS)?;
        let after = position.checked_add(elements as i64).ok_or(ARGUMENTS)?;
        let list = std::mem::take(&mut self.buffers.list);
        let access = view.access_in(list, first, bytes).map_err(|e| match e {
            AccessError::TooLarge => PIECES,
            _ => VIEW,
        })?;
        if access.pieces() > MAX_PIECES {
            return Err(PIECES);
        }
        Ok(Part {
            datatype,
            position_after: request.offset.is_none().then_some(after),
            first,
            bytes,
            access,
        })
    }
}

impl Part {
    fn share(&self) -> Share {
        let Some(hull) = self.access.hull() else {
            return Share::default();
        };
        Share {
            start: hull.start,
            end: hull.end,
            bytes: self.bytes,
            pieces: self.access.pieces(),
        }
    }
}

/// The share in a message, as far as it lies before the end of a file of this size.
fn share_below(words: &[u64], size: u64) -> Share {
    let share = Share {
        start: words[1],
        end: words[2].min(size),
        bytes: words[3],
        pieces: words[4],
    };
    match share.start < share.end {
        true => share,
        false => Share::default(),
    }
}
