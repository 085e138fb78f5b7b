//! Which interface of a file counts: its bytes and its time count once, whatever interfaces have seen them.

use super::{Interface, Job};

impl Job {
    /// Decides at which interface each file's bytes and time count, see [`super::FileUse::is_lowest`].
    ///
    /// MPI-IO lies over POSIX and DFS. HDF5 and PnetCDF lie over the calls on their container. DFS lies over DAOS
    /// objects. What a lower interface may have counted without saying for which file (DAOS objects, DFS, sums over the
    /// files of a directory) counts there alone: nothing counts twice.
    pub fn settle_layers(&mut self) {
        self.settle_directories();
        let below = Below::of(self);
        for layer in &mut self.layers {
            for one in &mut layer.uses {
                if self.files[one.file].is_std_stream {
                    // What waits on a pipe does no I/O.
                    (one.is_lowest, one.is_highest) = (false, false);
                    continue;
                }
                let container = self.files[one.file].container;
                (one.is_lowest, one.is_highest) = match layer.interface {
                    Interface::MpiIo => {
                        let hidden = below.may_hide(&self.files[one.file].name);
                        let is_known = below.has_base[one.file];
                        (!is_known && !hidden, is_known || !hidden)
                    }
                    Interface::Hdf5 | Interface::Pnetcdf => {
                        let is_below = match container {
                            Some(file) => {
                                below.has_base[file]
                                    || below.has_mpi_io[file]
                                    || below.may_hide(&self.files[file].name)
                            }
                            None => below.has_any,
                        };
                        (!is_below, !is_below)
                    }
                    Interface::Daos => (!below.has_dfs, !below.has_dfs),
                    Interface::Posix | Interface::Stdio | Interface::Dfs => {
                        (true, !below.has_mpi_io[one.file])
                    }
                };
            }
        }
    }
}

impl Job {
    /// Finds what was opened by system calls and neither read nor written, mapped or searched, see
    /// [`super::File::is_only_opened`].
    fn settle_directories(&mut self) {
        let mut only_opened = vec![false; self.files.len()];
        for layer in &self.layers {
            for one in &layer.uses {
                let total = &one.total;
                let used = [total.ops(), total.bytes(), total.mmaps, total.seeks];
                only_opened[one.file] =
                    layer.interface == Interface::Posix && total.opens > 0 && used == [0; 4];
            }
        }
        for file in &self.files {
            if let Some(container) = file.container {
                only_opened[container] = false;
            }
        }
        for (file, only_opened) in self.files.iter_mut().zip(only_opened) {
            let is_file = file.size_at_open.is_some() || file.created.is_some() || file.is_made;
            let stands_alone = !file.is_std_stream && !file.is_calls;
            file.is_only_opened = only_opened && !is_file && stands_alone;
        }
    }
}

/// What the interfaces below the libraries have seen.
struct Below {
    /// By file: whether POSIX, C streams or DFS have a record of it.
    has_base: Vec<bool>,
    /// By file: whether MPI-IO has a record of it.
    has_mpi_io: Vec<bool>,
    has_dfs: bool,
    /// True if there are DFS or DAOS records, whose names are not those of files.
    has_daos: bool,
    /// True if any of them has a record of a file, beside standard streams.
    has_any: bool,
    /// Directories whose files have been summed.
    summed: Vec<String>,
}

impl Below {
    fn of(job: &Job) -> Self {
        let mut below = Below {
            has_base: vec![false; job.files.len()],
            has_mpi_io: vec![false; job.files.len()],
            has_dfs: false,
            has_daos: false,
            has_any: false,
            summed: Vec::new(),
        };
        for layer in &job.layers {
            for one in &layer.uses {
                let file = &job.files[one.file];
                if file.is_calls {
                    continue;
                }
                match layer.interface {
                    Interface::Hdf5 | Interface::Pnetcdf => continue,
                    Interface::MpiIo => below.has_mpi_io[one.file] = true,
                    _ => {
                        below.has_base[one.file] = true;
                        below
                            .summed
                            .extend(file.summed_directory().map(str::to_owned));
                    }
                }
                below.has_any |= !file.is_std_stream;
            }
            let is_used = !layer.uses.is_empty();
            below.has_dfs |= is_used && layer.interface == Interface::Dfs;
            below.has_daos |=
                is_used && matches!(layer.interface, Interface::Dfs | Interface::Daos);
        }
        below
    }

    /// True if the bytes of a file may be in a record of another name.
    fn may_hide(&self, name: &str) -> bool {
        self.has_daos
            || self
                .summed
                .iter()
                .any(|directory| name.starts_with(directory.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use crate::account::Account;
    use crate::model::{Interface, Job};
    use crate::sample::*;

    fn written(job: &Job) -> u64 {
        Account::of(job).moved.bytes_written
    }

    fn add(job: &mut Job, interface: Interface, name: &str, bytes: u64) {
        by_rank(job, interface, name, 0, writes(1, bytes, 1.0));
    }

    #[test]
    fn a_data_set_counts_only_where_nothing_below_it_can_have_counted_its_bytes() {
        let mut job = plain_job(1);
        add(&mut job, Interface::Hdf5, "/pfs/a.h5:/x", 10);
        assert_eq!(written(&job), 10);
        // Of an unknown file: it may be this one.
        add(&mut job, Interface::Posix, "/pfs/a.h5", 15);
        assert_eq!(written(&job), 15);
        // Of a file that nothing below has seen.
        add(&mut job, Interface::Hdf5, "/pfs/b.h5", 0);
        job.files[0].container = Some(2);
        job.settle_layers();
        assert_eq!(written(&job), 25);
        job.files[0].container = Some(1);
        job.settle_layers();
        assert_eq!(written(&job), 15);
    }

    #[test]
    fn what_a_sum_over_a_directory_may_hold_counts_there() {
        let mut job = plain_job(1);
        add(&mut job, Interface::MpiIo, "/pfs/many/a", 10);
        add(&mut job, Interface::Posix, "/pfs/many/<other files>", 100);
        assert_eq!(written(&job), 110);
        job.files[1].rest = Some(5);
        job.settle_layers();
        assert_eq!(written(&job), 100);
        add(&mut job, Interface::MpiIo, "/pfs/manyfold/b", 7);
        assert_eq!(written(&job), 107);
    }

    #[test]
    fn what_goes_through_daos_counts_there_whatever_its_name() {
        let mut job = plain_job(1);
        add(&mut job, Interface::MpiIo, "daos:/pool/a", 10);
        add(&mut job, Interface::Dfs, "/a", 12);
        add(&mut job, Interface::Daos, "oid 1", 14);
        assert_eq!(written(&job), 12);
    }
}
