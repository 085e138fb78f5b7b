//! Programs that the library of a run does not reach: what is remembered of them, and what a run says.

pub use forebay_types::Bypass;

/// So many programs are remembered by name.
const MOST: usize = 64;

/// Starts of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Starts {
    /// All.
    pub all: u64,
    /// Those with a working directory in the buffer, or an argument that names it. The others hardly look there.
    pub may_look: u64,
}

impl Starts {
    fn note(&mut self, may_look: bool) {
        self.all += 1;
        self.may_look += u64::from(may_look);
    }

    /// Those since an earlier moment.
    pub fn since(self, before: Starts) -> Self {
        Starts {
            all: self.all.saturating_sub(before.all),
            may_look: self.may_look.saturating_sub(before.may_look),
        }
    }
}

/// A program that ran without the library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BypassingProgram {
    /// Its path as it was given.
    pub path: Vec<u8>,
    /// Why.
    pub why: Bypass,
    /// How often it was started.
    pub starts: Starts,
}

/// The programs that were started without the library.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BypassingPrograms {
    /// In the order of their first starts.
    pub programs: Vec<BypassingProgram>,
    /// Further ones, which are not remembered by name.
    pub further: Starts,
}

impl BypassingPrograms {
    /// One more start. True if this program is new. `is_own`: a process of the bridge's own user tells of it. Any user may tell
    /// the bridge of root of anything: what others tell changes no exit status, and fills half of the places at most.
    pub fn note(&mut self, path: &[u8], why: Bypass, may_look: bool, is_own: bool) -> bool {
        let may_look = may_look && is_own;
        let mut known = self.programs.iter_mut();
        if let Some(program) = known.find(|known| known.path == path && known.why == why) {
            program.starts.note(may_look);
            return false;
        }
        let most = if is_own { MOST } else { MOST / 2 };
        if self.programs.len() >= most {
            self.further.note(may_look);
            return false;
        }
        let mut starts = Starts::default();
        starts.note(may_look);
        self.programs.push(BypassingProgram {
            path: path.to_vec(),
            why,
            starts,
        });
        true
    }
}

/// Would a run whose command has ended with 0 be wrong to do so? One of these starts may have looked into the buffer, and seen the PFS
/// instead; `is_allowed`: the user says that it has not.
pub fn spoils_success(starts: impl IntoIterator<Item = Starts>, is_allowed: bool) -> bool {
    !is_allowed && starts.into_iter().any(|starts| starts.may_look > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_new_once_and_counted_each_time() {
        let mut all = BypassingPrograms::default();
        assert!(all.note(b"./a", Bypass::Static, false, true));
        assert!(!all.note(b"./a", Bypass::Static, true, true));
        let built_anew = all.note(b"./a", Bypass::Go, false, true);
        assert!(built_anew);
        let [a, b] = &all.programs[..] else {
            panic!("{all:?}");
        };
        let starts = |all, may_look| Starts { all, may_look };
        assert_eq!((a.starts, b.starts), (starts(2, 1), starts(1, 0)));
        assert!(spoils_success([a.starts, b.starts], false));
        assert!(!spoils_success([a.starts, b.starts], true));
        assert!(!spoils_success([a.starts.since(starts(1, 1))], false));
    }

    #[test]
    fn the_memory_is_bounded_and_what_matters_is_counted() {
        let mut all = BypassingPrograms::default();
        for n in 0..MOST + 5 {
            all.note(format!("p{n}").as_bytes(), Bypass::Static, false, true);
        }
        assert!(!all.note(b"one more", Bypass::Go, true, true));
        assert_eq!(all.programs.len(), MOST);
        let further = Starts {
            all: 6,
            may_look: 1,
        };
        assert_eq!(all.further, further);
    }
    #[test]
    fn another_user_neither_takes_all_places_nor_spoils_the_end_of_a_run() {
        let mut all = BypassingPrograms::default();
        for n in 0..MOST {
            all.note(format!("theirs{n}").as_bytes(), Bypass::Static, true, false);
        }
        assert_eq!(all.programs.len(), MOST / 2);
        assert!(all.note(b"own", Bypass::Static, false, true));
        let starts = all.programs.iter().map(|program| program.starts);
        assert!(!spoils_success(starts.chain([all.further]), false));
    }
}
