//! What must hold for the numbers of every report, whatever the log says. A report checks it, and says so if it does not
//! hold.

use crate::account::Account;
use crate::model::{Interface, Job, RankShare};

/// Rounding errors of sums, as a share.
const ROUNDING: f64 = 1e-6;

/// The identities that the numbers of a job break; empty if all is well.
pub(crate) fn broken(job: &Job, account: &Account) -> Vec<String> {
    let mut broken = Vec::new();
    bytes_count_once(job, account, &mut broken);
    times_fit_into_the_run(job, account, &mut broken);
    broken
}

fn bytes_count_once(job: &Job, account: &Account, broken: &mut Vec<String>) {
    let mut has_lower = vec![false; job.files.len()];
    let mut has_library = vec![false; job.files.len()];
    let (mut read, mut written) = (0u64, 0u64);
    for layer in &job.layers {
        for one in layer.uses.iter().filter(|one| one.is_lowest) {
            let file = &job.files[one.file];
            if file.is_std_stream {
                continue;
            }
            read += one.total.read.bytes;
            written += one.total.write.bytes;
            match layer.interface {
                Interface::Hdf5 | Interface::Pnetcdf => {
                    has_library[file.container.unwrap_or(one.file)] = true;
                }
                _ => has_lower[one.file] = true,
            }
        }
    }
    if (read, written) != (account.moved.bytes_read, account.moved.bytes_written) {
        broken.push("bytes moved are not the sum over files".to_owned());
    }
    let twice = has_lower.iter().zip(&has_library);
    let twice = twice.filter(|(lower, library)| **lower && **library);
    if twice.count() > 0 {
        broken.push("bytes of a file count at two interfaces".to_owned());
    }
    let of_classes: u64 = account.sharing.iter().map(|(_, moved)| moved.files).sum();
    let all: u64 = job.files.iter().map(|file| file.count()).sum();
    if account.moved.files > all || of_classes > all {
        broken.push("more files than there are".to_owned());
    }
}

fn times_fit_into_the_run(job: &Job, account: &Account, broken: &mut Vec<String>) {
    let run = job.run_seconds;
    let fits = |seconds: f64| seconds >= 0.0 && seconds <= run * (1.0 + ROUNDING);
    let time = &account.time;
    let parts = [time.read, time.write, time.metadata, time.other];
    if parts.iter().any(|part| !fits(*part))
        || (time.io() + time.other - run).abs() > run * ROUNDING
    {
        broken.push("shares of the run time do not add up to 100 %".to_owned());
    }
    let shares = account.ranks.iter().map(RankShare::seconds);
    if shares.clone().any(|seconds| !fits(seconds)) {
        broken.push("a rank is in I/O for longer than the job ran".to_owned());
    }
    let slowest = shares.fold(0.0, f64::max);
    let io = account.io_seconds;
    if !fits(io) || io < slowest * (1.0 - ROUNDING) {
        broken.push(
            "the I/O time of the job is not between that of a rank and the run time".to_owned(),
        );
    }
    if let Some(rate) = account.mib_per_second() {
        let bytes = account.moved.bytes() as f64;
        let moved = rate * f64::from(1 << 20) * io;
        if !rate.is_finite() || (moved - bytes).abs() > bytes * ROUNDING {
            broken.push("speed times seconds is not what was moved".to_owned());
        }
    }
}
