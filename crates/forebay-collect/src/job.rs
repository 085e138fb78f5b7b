//! A job: its tables, the processes that wrote them, and the role of each process in the log.

use crate::image::Image;
use crate::ranks::{self, Claim, Process, Ranks, Role};
use crate::recording::{CommandEnd, Note, Recording};
use crate::tables::Tables;
use crate::{Error, sharing};
use forebay_count::read::{End, folded_key};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// A job as its recordings describe it.
pub struct Job<'r> {
    /// The recordings, in the order of their start.
    pub notes: Vec<&'r Note>,
    /// The tables.
    pub tables: Tables,
    /// Indices of the tables of each process, in the order of time.
    images: Vec<Vec<usize>>,
    /// The role of each process.
    pub ranks: Ranks,
    /// Indices of the tables of each rank, in the order of time.
    pub members: BTreeMap<u32, Vec<usize>>,
    /// Start of the job in nanoseconds since 1970.
    pub start_ns: u64,
    /// Its end.
    pub end_ns: u64,
}

impl<'r> Job<'r> {
    /// Reads all tables and gives every process its role.
    ///
    /// # Errors
    /// A directory can't be read, or no recording was given.
    pub fn read(recordings: &'r [Recording]) -> Result<Self, Error> {
        let mut notes: Vec<&Note> = recordings.iter().map(|r| &r.note).collect();
        notes.sort_by_key(|note| note.start_ns);
        if notes.is_empty() {
            return Err(Error::Nothing(
                "there is no recording to collect".to_owned(),
            ));
        }
        let mut tables = Tables::default();
        for recording in recordings {
            tables.read(recording)?;
        }
        let images = by_process(&tables.images);
        let processes: Vec<Process> = images
            .iter()
            .map(|of| process_of(of.iter().map(|&at| &tables.images[at])))
            .collect();
        let ranks = ranks::assign(&processes);
        let mut members: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (role, of) in ranks.roles.iter().zip(&images) {
            if let Role::Rank(rank) = role {
                // Forebay's own command is no program of the job.
                let of = of
                    .iter()
                    .filter(|&&at| tables.images[at].program != ranks::FOREBAY);
                members.entry(*rank).or_default().extend(of);
            }
        }
        for of in members.values_mut() {
            of.sort_by_key(|&at| (tables.images[at].first_ns, tables.images[at].serial));
        }
        let (start_ns, end_ns) = extent(&notes, &tables.images);
        Ok(Job {
            notes,
            tables,
            images,
            ranks,
            members,
            start_ns,
            end_ns,
        })
    }

    /// The note of the first recording, which says whose job it is.
    pub fn note(&self) -> &Note {
        self.notes[0]
    }

    /// How many processes have left a table.
    pub fn processes(&self) -> u64 {
        self.images.len() as u64
    }

    /// The last table of each process.
    fn last_images(&self) -> impl Iterator<Item = &Image> {
        let last = self.images.iter().filter_map(|of| of.last());
        last.map(|&at| &self.tables.images[at])
    }

    /// How many processes still run.
    pub fn alive(&self) -> u64 {
        self.last_images().filter(|image| image.is_alive).count() as u64
    }

    /// How many processes ended by abort, or without a note of their end.
    pub fn abnormal_ends(&self) -> u64 {
        let is_abnormal = |image: &&Image| match image.end {
            End::Unsaid => !image.is_alive,
            End::Abort | End::MpiAbort(_) => true,
            End::Exit(_) | End::Exec => false,
        };
        self.last_images().filter(is_abnormal).count() as u64
    }

    /// How many programs have left no table: those that a process executed at last, and those of children that had none themselves.
    pub fn unrecorded(&self) -> u64 {
        let executed = |image: &&Image| image.end == End::Exec && !image.is_alive;
        let executed = self.last_images().filter(executed).count() as u64;
        let unreached = self.tables.images.iter().map(Image::unreached);
        unreached.fold(executed, u64::saturating_add)
    }

    /// Tables of processes that only started others.
    pub fn launchers(&self) -> impl Iterator<Item = &Image> {
        let launchers = self.ranks.roles.iter().zip(&self.images);
        launchers
            .filter(|(role, _)| **role == Role::Launcher)
            .flat_map(|(_, of)| of.iter().map(|&at| &self.tables.images[at]))
    }

    /// Tables of each process, for [`crate::coverage`].
    pub fn by_process(&self) -> impl Iterator<Item = Vec<&Image>> {
        self.images
            .iter()
            .map(|of| of.iter().map(|&at| &self.tables.images[at]).collect())
    }

    /// The role of each process, with its tables in the order of time.
    pub fn roles(&self) -> impl Iterator<Item = (Role, Vec<&Image>)> {
        self.ranks.roles.iter().copied().zip(self.by_process())
    }

    /// Names of the machines on which ranks and workers ran; if there are none, of all that have left something.
    pub fn hosts(&self) -> BTreeSet<&str> {
        let of_ranks = self.members.values().flatten();
        let of_ranks: BTreeSet<&str> = of_ranks
            .map(|&at| self.tables.images[at].host.as_str())
            .collect();
        if !of_ranks.is_empty() {
            return of_ranks;
        }
        let of_notes = self.notes.iter().map(|note| note.host.as_str());
        let of_tables = self.tables.images.iter().map(|image| image.host.as_str());
        of_notes.chain(of_tables).collect()
    }

    /// How the command ended. Of several recordings, the first end that was no success.
    pub fn end(&self) -> Option<CommandEnd> {
        let ends = || self.notes.iter().filter_map(|note| note.end);
        ends().find(|end| end.code != Some(0)).or(ends().next())
    }

    /// The command line that the log is named after: that of rank 0 of the first launch, else that of the command.
    pub fn command_line(&self) -> String {
        let of_launch = (!self.ranks.launches.is_empty())
            .then(|| self.members.get(&0))
            .flatten();
        let images = of_launch.into_iter().flatten();
        let images: Vec<&Image> = images.map(|&at| &self.tables.images[at]).collect();
        let by_mpi = |image: &&&Image| image.claim.is_some_and(|c| c.by_mpi);
        let main = images.iter().find(by_mpi).or_else(|| {
            // Without MPI it is the program that the shell of the launcher executed last.
            let first = images.first()?;
            images
                .iter()
                .rev()
                .find(|image| image.pid == first.pid && image.host == first.host)
        });
        match main {
            Some(image) if !image.command.is_empty() => image.command.clone(),
            _ => self.note().command.join(" "),
        }
    }

    /// Finds out which ranks use which files.
    pub fn sharing(&self) -> sharing::FileUsers {
        let mut sharing = sharing::FileUsers::new(&self.ranks);
        for (&rank, of) in &self.members {
            for &at in of {
                for entry in &self.tables.images[at].files {
                    sharing.add(rank, entry);
                }
            }
        }
        sharing.finish();
        if let Some((files, counted)) = self.folded_once() {
            sharing.count_once(files, counted);
        }
        sharing
    }

    /// How many files have been folded by any process and have no record of their own, and how often they have been counted.
    /// `None` if not all of them are known.
    fn folded_once(&self) -> Option<(u64, u64)> {
        let members = self.members.values().flatten();
        let images: Vec<&Image> = members.map(|&at| &self.tables.images[at]).collect();
        let sum = |of: fn(&Image) -> u64| images.iter().map(|i| of(i)).fold(0, u64::saturating_add);
        let counted = sum(|image| image.folded_files);
        if counted == 0 || sum(|image| image.unsure_files) > 0 {
            return None;
        }
        let keys = images.iter().flat_map(|image| &image.folded_keys);
        let mut keys: HashSet<u64> = keys.copied().collect();
        for entry in images.iter().flat_map(|image| &image.files) {
            keys.remove(&folded_key(entry.kind, entry.id));
        }
        Some((keys.len() as u64, counted))
    }
}

/// Tables grouped by the process they are of, each group in the order of the tables.
fn by_process(images: &[Image]) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<(&str, u64, u32), Vec<usize>> = BTreeMap::new();
    for (at, image) in images.iter().enumerate() {
        let key = (image.host.as_str(), image.start_ticks, image.pid);
        groups.entry(key).or_default().push(at);
    }
    let mut groups: Vec<Vec<usize>> = groups.into_values().collect();
    for group in &mut groups {
        // Serial numbers don't serve, because an executed program begins with 0 again.
        group.sort_by_key(|&at| (images[at].first_ns, images[at].serial));
    }
    groups
}

fn process_of<'i>(images: impl Iterator<Item = &'i Image> + Clone) -> Process {
    let Some(first) = images.clone().next() else {
        return Process::default();
    };
    // MPI's word counts more than the environment's, and a later program's more than an earlier one's.
    let claims = images.clone().filter_map(|image| image.claim);
    let claim: Option<Claim> = claims.max_by_key(|claim| claim.by_mpi);
    let keyed = images.clone().filter_map(|image| image.claim);
    let key = keyed.map(|claim| claim.key).find(|&key| key != 0);
    Process {
        host: first.host.clone(),
        pid: first.pid,
        parent_pid: first.parent_pid,
        start_ticks: first.start_ticks,
        first_ns: first.first_ns,
        last_ns: images.clone().map(|image| image.last_ns).max().unwrap_or(0),
        programs: images.clone().map(|image| image.program.clone()).collect(),
        claim: claim.map(|claim| Claim {
            key: key.unwrap_or(0),
            ..claim
        }),
        io_ns: io_ns(images.clone()),
        weight: images.map(Image::weight).fold(0, u64::saturating_add),
    }
}

/// Nanoseconds from which on calls on names make a process one that did I/O, without any record.
const LEAST_NAME_CALL_NS: u64 = 1_000_000;

/// When the first program began that opened a file; if none did, the first that has a record, or asked for names for long.
fn io_ns<'i>(images: impl Iterator<Item = &'i Image> + Clone) -> Option<u64> {
    let opens = |image: &&Image| image.files.iter().any(|entry| entry.opened_ns > 0);
    let asks =
        |image: &&Image| !image.files.is_empty() || image.name_call_ns() >= LEAST_NAME_CALL_NS;
    let first = images.clone().find(opens).or(images.clone().find(asks))?;
    Some(first.first_ns)
}

fn extent(notes: &[&Note], images: &[Image]) -> (u64, u64) {
    let starts = notes.iter().map(|note| note.start_ns).filter(|&ns| ns > 0);
    let tables = images.iter().map(|image| image.first_ns);
    let start = starts.min().or(tables.min()).unwrap_or(0);
    let ends = notes.iter().map(|note| note.end.map(|end| end.end_ns));
    let end = match ends.collect::<Option<Vec<u64>>>() {
        Some(ends) => ends.into_iter().max(),
        // The recorder was killed, so the last sign of life must do.
        None => images.iter().map(|image| image.last_ns).max(),
    };
    (start, end.unwrap_or(start).max(start))
}
