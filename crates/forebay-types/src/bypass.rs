//! Programs that a preloaded library does not reach.

/// Why the dynamic linker loads no library into a program, or loads it to no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Bypass {
    /// It is linked statically: there is no dynamic linker.
    Static = 1,
    /// It is a Go program: it makes its system calls without libc.
    Go = 2,
    /// It gets other rights than its caller has, by a set-user-id or set-group-id bit or by capabilities of the file. The dynamic
    /// linker then ignores preloaded libraries.
    Privileged = 3,
    /// It is for another machine than the library.
    Foreign = 4,
}

impl Bypass {
    /// The reason with this number.
    pub fn from_u32(number: u32) -> Option<Self> {
        let all = [
            Bypass::Static,
            Bypass::Go,
            Bypass::Privileged,
            Bypass::Foreign,
        ];
        all.into_iter().find(|why| *why as u32 == number)
    }

    /// What is said of such a program, after its name.
    pub const fn sentence(self) -> [&'static str; 3] {
        [
            " goes past the buffer (",
            self.in_words(),
            "): it sees the PFS as it is",
        ]
    }

    /// One word, or a few.
    pub const fn in_words(self) -> &'static str {
        match self {
            Bypass::Static => "static",
            Bypass::Go => "Go",
            Bypass::Privileged => "set-user-id or set-group-id",
            Bypass::Foreign => "for another machine",
        }
    }
}
