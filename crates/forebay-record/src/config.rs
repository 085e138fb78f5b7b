//! The settings from the environment. They are read and copied once, at the first hook, because a program may change
//! its environment.

use core::sync::atomic::{AtomicU32, Ordering};

use forebay_count::layout::{MAX_TABLE_BYTES, MIN_TABLE_BYTES};
use forebay_count::path::{is_left_out, is_within};
use forebay_count::{DEFAULT_TABLE_BYTES, ENV_RECORD_DIR, ENV_RECORD_INCLUDE, ENV_RECORD_MEMORY};
use forebay_hook::environment;

/// Longest directory for tables; a table's name follows it.
pub const MAX_DIR_BYTES: usize = 1024;
const MAX_INCLUDE_BYTES: usize = 4096;
const PAGE_BYTES: usize = 4096;

/// The settings. With all zeroes nothing is recorded.
pub struct Config {
    dir: [u8; MAX_DIR_BYTES],
    dir_len: usize,
    include: [u8; MAX_INCLUDE_BYTES],
    include_len: usize,
    /// Bytes of a table.
    pub table_bytes: usize,
    /// Rank and number of ranks (0 unknown) that the environment says.
    pub rank: Option<(u32, u32)>,
    job_key: [u8; 64],
    job_key_len: usize,
}

impl Config {
    /// Directory for tables.
    pub fn dir(&self) -> &[u8] {
        &self.dir[..self.dir_len]
    }

    /// What the launcher calls the job.
    pub fn job_key(&self) -> &[u8] {
        &self.job_key[..self.job_key_len]
    }

    /// True if this clean path is recorded.
    pub fn records(&self, path: &[u8]) -> bool {
        !is_left_out(path)
            || self.include[..self.include_len]
                .split(|&b| b == b':')
                .any(|dir| !dir.is_empty() && is_within(path, dir))
    }
}

const UNREAD: u32 = 0;
const BEING_READ: u32 = 1;
const ON: u32 = 2;
const OFF: u32 = 3;
static STATE: AtomicU32 = AtomicU32::new(UNREAD);
/// The thread that moves [`STATE`] from unread to on writes it; it is read after that.
static mut CONFIG: Config = Config {
    dir: [0; MAX_DIR_BYTES],
    dir_len: 0,
    include: [0; MAX_INCLUDE_BYTES],
    include_len: 0,
    table_bytes: 0,
    rank: None,
    job_key: [0; 64],
    job_key_len: 0,
};

/// The settings, if this process is to be recorded.
pub fn get() -> Option<&'static Config> {
    let mut state = STATE.load(Ordering::Acquire);
    if state == UNREAD {
        state = read();
    }
    // SAFETY: once the state is `ON`, nobody writes the settings any more.
    (state == ON).then(|| unsafe {
        let at = &raw const CONFIG;
        &*at
    })
}

#[cold]
fn read() -> u32 {
    if STATE
        .compare_exchange(UNREAD, BEING_READ, Ordering::AcqRel, Ordering::Acquire)
        .is_err()
    {
        return STATE.load(Ordering::Acquire);
    }
    // SAFETY: the exchange above lets a single thread come here, once.
    let config = unsafe {
        let at = &raw mut CONFIG;
        &mut *at
    };
    let state = if fill(config) { ON } else { OFF };
    STATE.store(state, Ordering::Release);
    state
}

fn fill(config: &mut Config) -> bool {
    let Some(dir) = variable(ENV_RECORD_DIR) else {
        return false;
    };
    if dir.first() != Some(&b'/') || dir.len() >= MAX_DIR_BYTES {
        return false;
    }
    config.dir[..dir.len()].copy_from_slice(dir);
    config.dir_len = dir.len();
    if let Some(include) = variable(ENV_RECORD_INCLUDE) {
        let len = include.len().min(MAX_INCLUDE_BYTES);
        config.include[..len].copy_from_slice(&include[..len]);
        config.include_len = len;
    }
    let bytes = variable(ENV_RECORD_MEMORY)
        .and_then(number)
        .unwrap_or(DEFAULT_TABLE_BYTES);
    config.table_bytes = bytes
        .clamp(MIN_TABLE_BYTES, MAX_TABLE_BYTES)
        .next_multiple_of(PAGE_BYTES);
    config.rank = rank();
    config.job_key_len = job_key(&mut config.job_key);
    true
}

/// Variables in which launchers say a rank and the number of ranks. The third one must be there for the first to mean a
/// rank: RANK alone may be anything, and a batch script of Slurm is no task.
const RANKS: [(&str, &str, &str); 5] = [
    ("PMI_RANK", "PMI_SIZE", "PMI_RANK"),
    (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_RANK",
    ),
    ("PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID"),
    ("RANK", "WORLD_SIZE", "WORLD_SIZE"),
];

fn rank() -> Option<(u32, u32)> {
    RANKS.iter().find_map(|(rank, ranks, needed)| {
        variable(needed)?;
        let rank = u32::try_from(variable(rank).and_then(number)?).ok()?;
        let ranks = variable(ranks).and_then(number).unwrap_or(0);
        Some((rank, u32::try_from(ranks).ok()?))
    })
}

/// Variables that are the same in all processes of a launch and in no others. Both of a tuple are joined with a dot.
const JOB_KEYS: [(&str, &str); 6] = [
    ("PMIX_NAMESPACE", ""),
    ("TORCHELASTIC_RUN_ID", ""),
    ("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ("PALS_APID", ""),
    ("PMI_JOBID", ""),
    ("MASTER_ADDR", "MASTER_PORT"),
];

fn job_key(out: &mut [u8; 64]) -> usize {
    for (first, second) in JOB_KEYS {
        let Some(a) = variable(first).filter(|a| !a.is_empty()) else {
            continue;
        };
        let b = if second.is_empty() {
            None
        } else {
            variable(second)
        };
        let mut len = 0;
        let dot = b.map(|_| b'.');
        let all = a
            .iter()
            .copied()
            .chain(dot)
            .chain(b.unwrap_or(&[]).iter().copied());
        for (to, from) in out.iter_mut().zip(all) {
            *to = from;
            len += 1;
        }
        return len;
    }
    0
}

fn number(text: &[u8]) -> Option<usize> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0usize, |n, &b| {
        let digit = (b as char).to_digit(10)?;
        n.checked_mul(10)?.checked_add(digit as usize)
    })
}

fn variable(name: &str) -> Option<&'static [u8]> {
    // This runs before the program, or in a program that calls a hook before it changes its environment.
    environment::variable(name.as_bytes())
}
