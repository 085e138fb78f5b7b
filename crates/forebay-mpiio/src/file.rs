//! The open files that this layer knows, by the handle of the MPI library, which stays the program's.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_core::collective::{Arrangement, View, Wishes};
use rustix::io::Errno;

use crate::datatype;
use crate::exchange::Buffers;
use crate::mpi::{Communicator, Failed, Mpi, Result};
use crate::settings;
use crate::storage::{self, Identity, Purpose, Storage};

static FILES: Mutex<BTreeMap<usize, Arc<Mutex<File>>>> = Mutex::new(BTreeMap::new());

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
    /// A split collective call of this layer that has begun: the bytes that it moved.
    pub begun: Option<u64>,
    /// Collective calls that this layer carried out.
    pub taken: u64,
    /// Collective calls that it left to the MPI library.
    pub left: u64,
    path: PathBuf,
    /// On rank 0: what the path led to when the file was opened.
    identity: Option<Identity>,
    wishes: Wishes,
    arranged: Option<Arranged>,
}

/// How collective calls are carried out; the same on all ranks, the storage aside.
#[derive(Debug)]
enum Arranged {
    /// By the MPI library.
    Native,
    /// By this layer.
    Here(Arc<Here>),
}

/// The arrangement, with the file as an aggregator has it open.
#[derive(Debug)]
pub struct Here {
    /// The arrangement.
    pub arrangement: Arrangement,
    /// With an aggregator: the file.
    pub storage: Option<Storage>,
}

fn files() -> MutexGuard<'static, BTreeMap<usize, Arc<Mutex<File>>>> {
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file of a handle, if this layer knows it.
pub fn known(handle: usize) -> Option<Arc<Mutex<File>>> {
    files().get(&handle).cloned()
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
    /// What hints and environment ask for.
    pub wishes: Wishes,
}

/// Remembers a file that all processes of a communicator have opened. Collective.
pub fn remember(mpi: Mpi, opened: Opened) -> Result<()> {
    let [read, write, both] = mpi.abi.access_modes;
    let purpose = match opened.modes {
        modes if modes & both != 0 => Purpose::Both,
        modes if modes & write != 0 => Purpose::Write,
        modes if modes & read != 0 => Purpose::Read,
        _ => return Err(Failed),
    };
    // The handle may be that of a file whose close this layer did not see.
    forget(opened.handle);
    // With one process, or a file that is no array of bytes, all is left to the MPI library. All ranks know this.
    if opened.modes & mpi.abi.foreign_modes != 0 || mpi.size(opened.communicator)? < 2 {
        return Ok(());
    }
    let processes = mpi.split(opened.communicator)?;
    let path = std::path::absolute(&opened.path).unwrap_or(opened.path);
    let identity = match processes.rank {
        0 => storage::identify(&path).ok(),
        _ => None,
    };
    let file = File {
        mpi,
        handle: opened.handle,
        processes,
        purpose,
        view: Some(View::bytes()),
        buffers: Buffers::default(),
        begun: None,
        taken: 0,
        left: 0,
        path,
        identity,
        wishes: opened.wishes,
        arranged: None,
    };
    files().insert(opened.handle, Arc::new(Mutex::new(file)));
    Ok(())
}

impl File {
    /// Sets the view of this process.
    pub fn set_view(&mut self, displacement: i64, element: usize, tile: usize, native: bool) {
        let understand = || -> Result<View> {
            let displacement = u64::try_from(displacement).map_err(|_| Failed)?;
            let element = datatype::take_apart(&self.mpi, element)?.map.bytes();
            let tile = datatype::take_apart(&self.mpi, tile)?;
            if element == 0 {
                return Err(Failed);
            }
            Ok(View::new(displacement, element, tile.map, tile.extent)?)
        };
        self.view = match native {
            true => understand().ok(),
            false => None,
        };
    }

    /// How collective calls on this file are carried out; `None` if by the MPI library. Collective at the first call.
    pub fn here(&mut self) -> Result<Option<Arc<Here>>> {
        if self.arranged.is_none() {
            self.arranged = Some(self.arrange()?);
        }
        Ok(match &self.arranged {
            Some(Arranged::Here(here)) => Some(here.clone()),
            _ => None,
        })
    }

    /// Agrees with all processes. What rank 0 knows and wants is done.
    fn arrange(&self) -> Result<Arranged> {
        let (mpi, processes) = (&self.mpi, self.processes);
        let identity = self.identity.unwrap_or(Identity {
            inode: 0,
            fs_type: 0,
        });
        let wanted = self.identity.is_some() && !self.wishes.off;
        let mut mine = vec![
            crate::node::number(),
            u64::from(wanted),
            identity.inode,
            identity.fs_type as u64,
            crate::node::aggregators().into(),
        ];
        mine.extend(self.wishes.to_words());
        let all = mpi.allgather(processes, &mine)?;
        let first = &all[..mine.len()];
        if first[1] == 0 {
            return Ok(Arranged::Native);
        }
        let numbers: Vec<u64> = all.chunks(mine.len()).map(|each| each[0]).collect();
        let node = |number: &u64| numbers.iter().position(|other| other == number);
        let nodes: Vec<u32> = numbers.iter().filter_map(node).map(|n| n as u32).collect();
        let wishes = Wishes::from_words(&first[5..]);
        let (inode, fs_type) = (first[2], first[3] as i64);
        let arrangement = Arrangement::new(&wishes, fs_type, &nodes, first[4] as u32);
        let mut storage = Ok(None);
        if arrangement.aggregators.contains(&(processes.rank as u32)) {
            storage = Storage::open(&self.path, self.purpose, inode).map(Some);
        }
        let failed = mpi.largest(processes, storage.is_err().into())?;
        let here = |storage| {
            Arranged::Here(Arc::new(Here {
                arrangement,
                storage,
            }))
        };
        Ok(match (failed, storage) {
            (0, Ok(storage)) => here(storage),
            _ => Arranged::Native,
        })
    }

    /// Brings what aggregators wrote to the disks. The class of an error on any of them, or 0. Collective.
    pub fn sync(&self) -> Result<i32> {
        let Some(Arranged::Here(here)) = &self.arranged else {
            return Ok(0);
        };
        let done = here.storage.as_ref().map_or(Ok(()), Storage::sync);
        self.agree(done)
    }

    /// The class of an error on any process, or 0. Collective.
    pub fn agree(&self, done: std::result::Result<(), Errno>) -> Result<i32> {
        let class = done
            .err()
            .map_or(0, |error| self.mpi.abi.error_class(error));
        Ok(self.mpi.largest(self.processes, class.into())? as i32)
    }

    /// Adds a line about this file to the report, if one is wanted.
    fn report(&self) {
        let (method, aggregators) = match &self.arranged {
            Some(Arranged::Here(here)) => {
                let arranged = &here.arrangement;
                (arranged.method.in_words(), arranged.aggregators.len())
            }
            _ => ("native", 0),
        };
        settings::report(format_args!(
            "{}\t{method}\t{aggregators} aggregators\t{} calls taken over\t{} left\n",
            self.path.display(),
            self.taken,
            self.left
        ));
    }

    /// Gives back what belongs to this file. Collective.
    pub fn close(&mut self) {
        if self.processes.rank == 0 {
            self.report();
        }
        self.arranged = None;
        self.mpi.free(self.processes);
    }
}
