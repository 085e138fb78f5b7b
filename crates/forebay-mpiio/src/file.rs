//! The open files that this layer knows, by the handle of the MPI library, which stays the program's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_core::collective::{
    Access, Arrangement, CallToCapture, CarriedOutBy, LeftOut, MeasuredLocks, PfsFacts, Striping,
    View, Wishes,
};
use forebay_types::OneLine;
use rustix::io::Errno;

use crate::buffers::Buffers;
use crate::datatype::{self, Unfit};
use crate::exchange::Direction;
use crate::explain::{Explanation, Tally};
use crate::mpi::{Communicator, Failed, Mpi};
use crate::output;
use crate::settings;
use crate::storage::{self, Identity, Purpose, Storage};
use crate::trace;

static FILES: Mutex<BTreeMap<usize, Arc<Mutex<File>>>> = Mutex::new(BTreeMap::new());

/// What a file gets of a closed one is at most so many buffers of its own size, and with a second part of the file so many.
const BUFFERS: [u64; 2] = [3, 5];

/// Files that are open at a time, with a communicator each, of which an MPI library has a limited number (MPICH: 2,048 with those of
/// the program). Further ones are left to it.
const MAX_FILES: usize = 128;

/// An open file.
#[derive(Debug)]
pub struct File {
    /// The MPI library.
    pub mpi: Mpi,
    /// The handle of the program.
    pub handle: usize,
    /// The processes that have opened it, in a communicator of this layer.
    pub processes: Communicator,
    /// What the program opened it for.
    pub purpose: Purpose,
    /// The view of this process, if this layer understands it.
    pub view: Option<View>,
    /// Buffers that are kept from call to call.
    pub buffers: Buffers,
    /// A split collective call of this layer that has begun.
    pub begun: Option<Begun>,
    /// What became of its collective calls.
    pub tally: Tally,
    /// Why the first of them that is unfit was left to the MPI library, as far as this process knows.
    pub why_unfit: Option<&'static str>,
    /// What hints of the program ask for.
    asked: Wishes,
    /// They have changed since the file was arranged. Only what rank 0 has here counts.
    pub is_outdated: bool,
    /// What is to be told of the file. The same on all ranks.
    pub told: Told,
    /// How collective calls are carried out; `None` if by the MPI library. The same on all ranks, the storage aside.
    pub here: Option<Arc<Here>>,
    path: PathBuf,
    /// The file as it was when it was first arranged, however it is arranged now. The same on all ranks, the storage aside.
    kept: Option<Kept>,
}

/// A file that was arranged.
#[derive(Debug)]
struct Kept {
    /// What its path led to, as this process saw it. Another file may have that path since.
    identity: Identity,
    /// As this process has it open, from the first time on that it needs it: what was written by it is synced and closed by it.
    storage: Option<Arc<Storage>>,
}

/// What rank 0 wants to be told of a file.
#[derive(Debug, Clone, Copy)]
pub struct Told {
    /// It is explained when it is closed.
    explains: bool,
    /// Its collective calls are traced.
    pub traces: bool,
}

impl Told {
    fn to_word(self) -> u64 {
        u64::from(self.explains) | u64::from(self.traces) << 1
    }

    fn from_word(word: u64) -> Self {
        Told {
            explains: word & 1 != 0,
            traces: word & 2 != 0,
        }
    }
}

/// The arrangement, with the file as an aggregator has it open.
#[derive(Debug)]
pub struct Here {
    /// The arrangement.
    pub arrangement: Arrangement,
    /// Nodes that the processes are on.
    pub nodes: u32,
    /// With a process that reads and writes: the file. An aggregator without one can't do its work.
    pub storage: Option<Arc<Storage>>,
}

impl Here {
    /// Has this process to read or write the file?
    pub fn needs_storage(&self, rank: usize) -> bool {
        self.arrangement.is_free || self.arrangement.aggregators.contains(&(rank as u32))
    }
}

fn files() -> MutexGuard<'static, BTreeMap<usize, Arc<Mutex<File>>>> {
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file of a handle, if this layer knows it.
pub fn known(handle: usize) -> Option<Arc<Mutex<File>>> {
    files().get(&handle).cloned()
}

/// May this process remember another file? Each may take a descriptor, of which the program is to keep most.
pub fn has_room() -> bool {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let descriptors = limit.map_or(usize::MAX, |limit| (limit / 8) as usize);
    files().len() < MAX_FILES.min(descriptors)
}

/// The first half of a split collective call, in which all is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// So many bytes were moved.
    Moved(u64),
    /// It has told its error.
    Failed,
}

/// Forgets a file.
pub fn forget(handle: usize) -> Option<Arc<Mutex<File>>> {
    files().remove(&handle)
}

/// What a program has opened.
pub struct Opened {
    /// The handle that it got.
    pub handle: usize,
    /// Its communicator.
    pub communicator: usize,
    /// The path.
    pub path: PathBuf,
    /// The modes.
    pub modes: i32,
    /// What its hints ask for.
    pub asked: Wishes,
}

/// Remembers a file that all processes of a communicator have opened. Collective.
pub fn remember(mpi: Mpi, opened: Opened) -> Result<(), Failed> {
    let [read, write, both] = mpi.abi.access_modes;
    let purpose = match opened.modes {
        modes if modes & both != 0 => Purpose::Both,
        modes if modes & write != 0 => Purpose::Write,
        modes if modes & read != 0 => Purpose::Read,
        _ => return Err(Failed),
    };
    // What is no array of bytes is left to the MPI library. All ranks know this.
    if opened.modes & mpi.abi.foreign_modes != 0 {
        return Ok(());
    }
    let processes = mpi.split(opened.communicator)?;
    let path = std::path::absolute(&opened.path).unwrap_or(opened.path);
    let mut kept = None;
    let arranged = arrange(&mpi, processes, &path, purpose, opened.asked, &mut kept);
    let (here, told) = arranged.inspect_err(|_| mpi.free(processes))?;
    let buffers = here.as_ref().map(|here| {
        let arranged = &here.arrangement;
        Buffers::new(BUFFERS[usize::from(arranged.overlaps)] * arranged.buffer_bytes)
    });
    let file = File {
        mpi,
        handle: opened.handle,
        processes,
        view: Some(View::bytes()),
        here: here.map(Arc::new),
        buffers: buffers.unwrap_or_default(),
        purpose,
        path,
        begun: None,
        tally: Tally::default(),
        why_unfit: None,
        asked: opened.asked,
        is_outdated: false,
        told,
        kept,
    };
    files().insert(opened.handle, Arc::new(Mutex::new(file)));
    Ok(())
}

/// What a process tells the others of a file, so that all arrange it alike.
#[derive(Debug)]
struct Word {
    /// The number of its node.
    node: u64,
    /// The inode to which its path leads, and the type of its file system, if this layer can take the file over there.
    file: Option<(u64, i64)>,
    /// Processors of its node.
    processors: u32,
    /// What the lock probe has measured. Of this and all that follows only what rank 0 tells counts.
    measured: Option<MeasuredLocks>,
    striping: Option<Striping>,
    told: Told,
    wishes: Wishes,
}

impl Word {
    /// What this process has to tell of the file, to which its path leads, and for which its program asks `asked`.
    fn of(path: &Path, identity: Option<Identity>, is_first: bool, mut asked: Wishes) -> Self {
        let mut word = Word {
            node: crate::node::number(),
            file: None,
            processors: crate::node::processors(),
            measured: None,
            striping: None,
            told: Told {
                explains: output::explains(),
                traces: output::traces(),
            },
            wishes: Wishes::default(),
        };
        if is_first {
            word.wishes = settings::wishes(asked, path);
        }
        let Some(identity) = identity.filter(|_| !word.wishes.is_off()) else {
            return word;
        };
        word.file = Some((identity.inode, identity.fs_type));
        if is_first {
            word.measured = settings::measured(identity.device);
            word.striping = storage::striping(path, &identity);
            if asked.yield_to(word.striping) {
                word.wishes = settings::wishes(asked, path);
            }
        }
        word
    }

    /// As many words whatever it tells: the messages of all processes are equally long.
    fn to_words(&self) -> Vec<u64> {
        let (inode, fs_type) = self.file.unwrap_or_default();
        let mut words = vec![self.node, self.file.is_some().into(), inode];
        words.extend([fs_type as u64, self.processors.into(), self.told.to_word()]);
        words.extend(MeasuredLocks::to_words(self.measured));
        words.extend(Striping::to_words(self.striping));
        words.extend(self.wishes.to_words());
        words
    }

    /// `None` for words that no [`Word`] gives.
    fn from_words(words: &[u64]) -> Option<Self> {
        let &[
            node,
            has_file,
            inode,
            fs_type,
            processors,
            told,
            protocol,
            granule,
            servers,
            stripe_bytes,
            stripe_servers,
            ref wishes @ ..,
        ] = words
        else {
            return None;
        };
        Some(Word {
            node,
            file: (has_file == 1).then_some((inode, fs_type as i64)),
            processors: u32::try_from(processors).ok()?,
            measured: MeasuredLocks::from_words([protocol, granule, servers]),
            striping: Striping::from_words([stripe_bytes, stripe_servers]),
            told: Told::from_word(told),
            wishes: Wishes::from_words(wishes),
        })
    }
}

/// Agrees with all processes on how collective calls on a file are carried out, `None` if by the MPI library, and on what
/// is to be told of the file. What rank 0 knows and wants is done. Collective.
fn arrange(
    mpi: &Mpi,
    processes: Communicator,
    path: &Path,
    purpose: Purpose,
    asked: Wishes,
    kept: &mut Option<Kept>,
) -> Result<(Option<Here>, Told), Failed> {
    let identity = storage::identify(path).ok();
    let is_it = |now: &Identity| kept.as_ref().is_none_or(|kept| kept.identity.is(now));
    let identity = identity.filter(is_it);
    let mine = Word::of(path, identity, processes.rank == 0, asked).to_words();
    let all = mpi.allgather(processes, &mine)?;
    let all: Option<Vec<Word>> = all.chunks(mine.len()).map(Word::from_words).collect();
    let all = all.ok_or(Failed)?;
    let first = all.first().ok_or(Failed)?;
    let Some((_, fs_type)) = first.file else {
        return Ok((None, first.told));
    };
    // Where a file lies on the disk of one node, others may see it by NFS, or have another one there.
    let is_same = |each: &Word| each.file == first.file;
    let Some(identity) = identity.filter(|_| all.iter().all(is_same)) else {
        return Ok((None, first.told));
    };
    let kept = kept.get_or_insert(Kept {
        identity,
        storage: None,
    });
    let mut known = BTreeMap::new();
    let node = |each: &Word| {
        let next = known.len() as u32;
        *known.entry(each.node).or_insert(next)
    };
    let nodes: Vec<u32> = all.iter().map(node).collect();
    let pfs = PfsFacts {
        fs_type,
        striping: first.striping,
        measured: first.measured,
    };
    let arrangement = Arrangement::new(&first.wishes, pfs, &nodes, first.processors);
    let mut here = Here {
        arrangement,
        nodes: known.len() as u32,
        storage: None,
    };
    if here.needs_storage(processes.rank) {
        if kept.storage.is_none() {
            kept.storage = Storage::open(path, purpose, &kept.identity)
                .ok()
                .map(Arc::new);
        }
        here.storage.clone_from(&kept.storage);
    }
    Ok((Some(here), first.told))
}

impl File {
    /// Takes note of hints that the program gives for the open file. They count from the next collective call on. HDF5 gives
    /// the same ones with each view.
    pub fn take_hints(&mut self, info: usize) {
        let before = self.asked;
        settings::take_hints(&self.mpi, info, &mut self.asked);
        self.is_outdated |= self.asked != before;
    }

    /// Arranges the file anew, by what rank 0 is asked for now. Collective.
    pub fn rearrange(&mut self) -> Result<(), Failed> {
        let (here, _) = arrange(
            &self.mpi,
            self.processes,
            &self.path,
            self.purpose,
            self.asked,
            &mut self.kept,
        )?;
        self.here = here.map(Arc::new);
        self.is_outdated = false;
        Ok(())
    }

    /// Sets the view of this process.
    pub fn set_view(&mut self, displacement: i64, element: usize, tile: usize, native: bool) {
        let understand = || -> Result<View, Unfit> {
            let displacement = u64::try_from(displacement).map_err(|_| Unfit)?;
            let element = datatype::take_apart(&self.mpi, element)?.map.bytes();
            let tile = datatype::take_apart(&self.mpi, tile)?;
            if element == 0 {
                return Err(Unfit);
            }
            Ok(View::new(displacement, element, tile.map, tile.extent)?)
        };
        self.view = match native {
            true => understand().ok(),
            false => None,
        };
    }

    /// Brings what aggregators wrote to the disks. The class of an error on any of them, or 0. Collective.
    pub fn sync(&self) -> Result<i32, Failed> {
        let Some(kept) = &self.kept else {
            return Ok(0);
        };
        let done = kept.storage.as_ref().map_or(Ok(()), |it| it.sync());
        self.agree(done)
    }

    /// The class of an error on any process, or 0. Collective.
    pub fn agree(&self, done: Result<(), Errno>) -> Result<i32, Failed> {
        let class = done
            .err()
            .map_or(0, |error| self.mpi.abi.error_class(error));
        Ok(self.mpi.largest(self.processes, class.into())? as i32)
    }

    /// Adds the last call to the trace, if one is wanted. `mine` is what this process accesses, or why that is not known: on all
    /// processes alike. Collective.
    pub fn trace(
        &self,
        direction: Direction,
        (by, mine): (CarriedOutBy, Result<&Access, LeftOut>),
    ) -> Result<(), Failed> {
        if !self.told.traces {
            return Ok(());
        }
        let gathered = match mine {
            Ok(mine) => trace::gather(&self.mpi, self.processes, mine)?,
            Err(reason) => Err(reason),
        };
        if self.processes.rank == 0 {
            let call = CallToCapture {
                file: &self.path.to_string_lossy(),
                number: self.tally.taken() + self.tally.left(),
                reads: direction == Direction::Read,
                ranks: self.processes.size,
                nodes: self.here.as_ref().map_or(0, |here| here.nodes),
                by,
                arrangement: self.here.as_ref().map(|here| &here.arrangement),
                accesses: gathered.as_ref().map_err(|reason| *reason),
            };
            output::trace(&call.to_line());
        }
        Ok(())
    }

    /// Adds a line about this file to the report, if one is wanted.
    fn report(&self) {
        let (method, aggregators, locks) = match &self.here {
            Some(here) => {
                let arranged = &here.arrangement;
                let source = arranged.source.in_words();
                let locks = format!("{}, {source}", arranged.protocol.name());
                (
                    arranged.method.in_words(),
                    arranged.aggregators.len(),
                    locks,
                )
            }
            None => ("native", 0, "unknown".to_owned()),
        };
        output::report(format_args!(
            "{}\t{method}\t{aggregators} aggregators\t{} calls taken over\t{} left\tlocks: {locks}\n",
            OneLine(&self.path.to_string_lossy()),
            self.tally.taken(),
            self.tally.left()
        ));
    }

    /// Tells what became of the calls, if that is wanted. Collective.
    fn explain(&self) -> Result<(), Failed> {
        if self.told.explains && self.tally.taken() + self.tally.left() > 0 {
            let mine = self.buffers.meter().to_words();
            let meters = self.mpi.allgather(self.processes, &mine)?;
            if self.processes.rank == 0 {
                output::explain(&Explanation {
                    path: &self.path,
                    arrangement: self.here.as_ref().map(|here| &here.arrangement),
                    tally: self.tally,
                    why_unfit: self.why_unfit,
                    meters: &meters,
                });
            }
        }
        Ok(())
    }

    /// Gives back what belongs to this file. The class of an error on any process, or 0: some file systems tell only now that they could
    /// not write. Collective.
    pub fn close(&mut self) -> i32 {
        if self.processes.rank == 0 {
            self.report();
        }
        // Nobody waits for an explanation that fails.
        let _ = self.explain();
        let buffers = std::mem::take(&mut self.buffers);
        if self.here.take().is_some() {
            buffers.leave();
        }
        let class = match self.kept.take() {
            Some(kept) if self.purpose != Purpose::Read => {
                let storage = kept.storage.and_then(Arc::into_inner);
                let closed = storage.map_or(Ok(()), Storage::close);
                self.agree(closed).unwrap_or(self.mpi.abi.io_error())
            }
            _ => 0,
        };
        self.mpi.free(self.processes);
        class
    }
}
