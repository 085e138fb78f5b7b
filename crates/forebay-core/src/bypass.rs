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
    /// One more start. True if this program is new.
    pub fn note(&mut self, path: &[u8], why: Bypass, may_look: bool) -> bool {
        let mut known = self.programs.iter_mut();
        if let Some(program) = known.find(|known| known.path == path && known.why == why) {
            program.starts.note(may_look);
            return false;
        }
        if self.programs.len() == MOST {
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

/// May one of these starts have looked into the buffer, and seen the PFS instead? A run that says nothing of it by its exit status
/// would be wrong about what its command did.
pub fn may_have_looked(starts: impl IntoIterator<Item = Starts>) -> bool {
    starts.into_iter().any(|starts| starts.may_look > 0)
}

/// What is said at once of a program that is about to start.
pub fn warning(path: &str, why: Bypass) -> String {
    format!(
        "forebay: {path} goes past the buffer ({}): it sees the PFS as it is",
        why.in_words()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_new_once_and_counted_each_time() {
        let mut all = BypassingPrograms::default();
        assert!(all.note(b"./a", Bypass::Static, false));
        assert!(!all.note(b"./a", Bypass::Static, true));
        assert!(all.note(b"./a", Bypass::Go, false), "it was built anew");
        let [a, b] = &all.programs[..] else {
            panic!("{all:?}");
        };
        let starts = |all, may_look| Starts { all, may_look };
        assert_eq!((a.starts, b.starts), (starts(2, 1), starts(1, 0)));
        assert!(may_have_looked([a.starts, b.starts]));
        assert!(!may_have_looked([a.starts.since(starts(1, 1))]));
    }

    #[test]
    fn the_memory_is_bounded_and_what_matters_is_counted() {
        let mut all = BypassingPrograms::default();
        for n in 0..MOST + 5 {
            all.note(format!("p{n}").as_bytes(), Bypass::Static, false);
        }
        assert!(!all.note(b"one more", Bypass::Go, true));
        assert_eq!(all.programs.len(), MOST);
        let further = Starts {
            all: 6,
            may_look: 1,
        };
        assert_eq!(all.further, further);
    }
}
