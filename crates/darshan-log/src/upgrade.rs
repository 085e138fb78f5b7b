//! Converts records of older versions to current ones, as darshan-util does. A counter that the
//! old version lacks becomes -1, or 0 if it can't be negative.

/// How records of a module grew. A record is a sequence of 8-byte words: id, rank, then what
/// the version has.
pub struct Upgrade {
    /// Entry `i` is for version `i + 1`: words of a record, and the step to version `i + 2`.
    pub(crate) older: &'static [(usize, Step)],
}

/// Turns the words of one version into those of the next; `false` drops the record.
pub(crate) type Step = fn(&mut Vec<u64>) -> bool;

const MINUS_ONE: u64 = u64::MAX;
/// The bits of -1.0.
const MINUS_ONE_F: u64 = 0xbff0_0000_0000_0000;

impl Upgrade {
    /// Words of a record of `version`, where the newest version has `newest` words.
    pub(crate) fn words(&self, version: u32, newest: usize) -> usize {
        self.older
            .get(version as usize - 1)
            .map_or(newest, |(words, _)| *words)
    }

    /// Converts `words` from `version` to the newest one; `false` drops the record.
    pub(crate) fn apply(&self, version: u32, words: &mut Vec<u64>) -> bool {
        self.older
            .iter()
            .skip(version as usize - 1)
            .all(|(_, step)| step(words))
    }
}

fn insert(words: &mut Vec<u64>, at: usize, new: &[u64]) -> bool {
    words.splice(at..at, new.iter().copied());
    true
}

fn unchanged(_: &mut Vec<u64>) -> bool {
    true
}

pub(crate) static POSIX: Upgrade = Upgrade {
    older: &[
        (85, |words| {
            // Four counters of C streams stood among the others. A record of a stream can't
            // become a POSIX record; darshan-util leaves it out, too.
            let is_stream = words[8] as i64 > 0;
            words.drain(8..12);
            !is_stream
        }),
        // F_CLOSE_START_TIMESTAMP, F_OPEN_END_TIMESTAMP
        (81, |words| insert(words, 69, &[MINUS_ONE_F; 2])),
        (83, |words| {
            // FILENOS, DUPS; RENAME_SOURCES, RENAME_TARGETS, RENAMED_FROM
            insert(words, 3, &[MINUS_ONE; 2]);
            insert(words, 12, &[MINUS_ONE, MINUS_ONE, 0])
        }),
    ],
};

pub(crate) static MPIIO: Upgrade = Upgrade {
    older: &[
        (68, unchanged),
        (68, |words| insert(words, 56, &[MINUS_ONE_F; 2])),
    ],
};

pub(crate) static STDIO: Upgrade = Upgrade {
    older: &[(30, |words| insert(words, 3, &[MINUS_ONE]))],
};

pub(crate) static H5F: Upgrade = Upgrade {
    older: &[
        (5, |words| insert(words, 4, &[MINUS_ONE_F; 2])),
        (7, |words| {
            insert(words, 3, &[MINUS_ONE; 2]);
            words.push(MINUS_ONE_F);
            true
        }),
    ],
};

pub(crate) static H5D: Upgrade = Upgrade {
    older: &[(113, |words| insert(words, 2, &[0]))],
};

pub(crate) static PNETCDF_FILE: Upgrade = Upgrade {
    older: &[
        (6, |words| insert(words, 5, &[MINUS_ONE_F; 2])),
        (8, |words| {
            // Independent and collective opens became one counter.
            let opens = words[2].wrapping_add(words[3]);
            let (starts, ends) = ([words[4], words[5]], [words[6], words[7]]);
            words.truncate(2);
            words.extend([MINUS_ONE, opens]);
            words.extend([MINUS_ONE; 7]);
            words.extend(starts);
            words.push(MINUS_ONE_F);
            words.extend(ends);
            words.extend([MINUS_ONE_F; 3]);
            true
        }),
    ],
};

// Version 1 had one more word before the counters.
pub(crate) static BGQ: Upgrade = Upgrade {
    older: &[(15, |words| {
        words.remove(2);
        true
    })],
};

pub(crate) static PNETCDF_VAR: Upgrade = Upgrade { older: &[] };
pub(crate) static DFS: Upgrade = Upgrade { older: &[] };
pub(crate) static DAOS: Upgrade = Upgrade { older: &[] };
