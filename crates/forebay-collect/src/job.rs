//! A job: its tables, the processes they are of, and what each process is in the log.

use crate::ranks::{self, Claim, Process, Ranks, Role};
use crate::recording::{CommandEnd, Note, Recording};
use crate::tables::{Image, Tables};
use crate::{Error, sharing};
use forebay_count::read::End;
use std::collections::{BTreeMap, BTreeSet};

/// A job, as its recordings tell it.
pub struct Job<'r> {
    /// The recordings, in the order of their start.
    pub notes: Vec<&'r Note>,
    /// The tables.
    pub tables: Tables,
    /// Tables of each process, in their order.
    images: Vec<Vec<usize>>,
    /// What each process is.
    pub ranks: Ranks,
    /// Ranks with the tables that belong to them, in the order of time.
    pub members: BTreeMap<u32, Vec<usize>>,
    /// Start of the job in nanoseconds since 1970.
    pub start_ns: u64,
    /// Its end.
    pub end_ns: u64,
}

impl<'r> Job<'r> {
    /// Reads all tables and finds out who is who.
    ///
    /// # Errors
    /// If a directory cannot be read, or no directory was given.
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

    /// The first recording, which tells whose the job is.
    pub fn note(&self) -> &Note {
        self.notes[0]
    }

    /// Processes that have left a table.
    pub fn processes(&self) -> u64 {
        self.images.len() as u64
    }

    /// The last table of each process.
    fn last_images(&self) -> impl Iterator<Item = &Image> {
        let last = self.images.iter().filter_map(|of| of.last());
        last.map(|&at| &self.tables.images[at])
    }

    /// Processes that go on.
    pub fn alive(&self) -> u64 {
        self.last_images().filter(|image| image.is_alive).count() as u64
    }

    /// Processes that ended without saying so, or by abort.
    pub fn abnormal_ends(&self) -> u64 {
        let is_abnormal = |image: &&Image| match image.end {
            End::Unsaid => !image.is_alive,
            End::Abort | End::MpiAbort(_) => true,
            End::Exit(_) | End::Exec => false,
        };
        self.last_images().filter(is_abnormal).count() as u64
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

    /// Names of the machines.
    pub fn hosts(&self) -> BTreeSet<&str> {
        let of_notes = self.notes.iter().map(|note| note.host.as_str());
        let of_tables = self.tables.images.iter().map(|image| image.host.as_str());
        of_notes.chain(of_tables).collect()
    }

    /// How the command ended; the first end that was no success, if there were several.
    pub fn end(&self) -> Option<CommandEnd> {
        let ends = || self.notes.iter().filter_map(|note| note.end);
        ends().find(|end| end.code != Some(0)).or(ends().next())
    }

    /// The program that the log is named after: that of rank 0 of the first launch, else the command.
    pub fn command_line(&self) -> String {
        let of_launch = (!self.ranks.launches.is_empty())
            .then(|| self.members.get(&0))
            .flatten();
        let images = of_launch.into_iter().flatten();
        let images: Vec<&Image> = images.map(|&at| &self.tables.images[at]).collect();
        let by_mpi = |image: &&&Image| image.claim.is_some_and(|c| c.by_mpi);
        let main = images.iter().find(by_mpi).or_else(|| {
            // Without MPI: the program that the launcher's shell ended in.
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

    /// Which ranks use which files.
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
        sharing
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
        // Not by their numbers: a program that is executed begins anew with 0.
        group.sort_by_key(|&at| (images[at].first_ns, images[at].serial));
    }
    groups
}

fn process_of<'i>(images: impl Iterator<Item = &'i Image> + Clone) -> Process {
    let Some(first) = images.clone().next() else {
        return Process::default();
    };
    // MPI knows better than the environment, and a later program better than an earlier one.
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
        io_ns: io_ns(images),
    }
}

/// When the first program began that has opened a file; if none has, the first that has asked for one.
fn io_ns<'i>(images: impl Iterator<Item = &'i Image> + Clone) -> Option<u64> {
    let opens = |image: &&Image| image.files.iter().any(|entry| entry.opened_ns > 0);
    let asks = |image: &&Image| !image.files.is_empty();
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
        // The recorder was killed: until the last sign of life.
        None => images.iter().map(|image| image.last_ns).max(),
    };
    (start, end.unwrap_or(start).max(start))
}
