//! What Cargo has built for the tests: executables of the same profile as the tests, and libraries.

use std::path::PathBuf;
use std::process::Command;

/// A library that programs are started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// The preload library of the buffer.
    Preload,
    /// The recorder.
    Recorder,
    /// The collective layer.
    Collective,
}

impl Library {
    /// The environment variable that names another one, for the tests as for `forebay`.
    pub fn variable(self) -> &'static str {
        match self {
            Library::Preload => "FOREBAY_PRELOAD",
            Library::Recorder => "FOREBAY_RECORDER",
            Library::Collective => "FOREBAY_MPIIO",
        }
    }

    /// Where it is: as its variable says, or else as it was built. The first two are tested as they are installed; they can't be
    /// built with the tests.
    ///
    /// # Panics
    /// If it was not built.
    pub fn path(self) -> PathBuf {
        if let Some(path) = std::env::var_os(self.variable()) {
            return path.into();
        }
        let (path, makes) = match self {
            Library::Preload => (
                "../release/libforebay_preload.so",
                "build --release -p forebay-preload",
            ),
            Library::Recorder => (
                "../release/libforebay_record.so",
                "build --release -p forebay-record",
            ),
            Library::Collective => ("deps/libforebay_mpiio.so", "test -p forebay-mpiio --no-run"),
        };
        let path = own_build().join(path);
        assert!(
            path.exists(),
            "{} is missing: `cargo {makes}` makes it (make test does), or set {}",
            path.display(),
            self.variable()
        );
        path
    }
}

/// The folder of the executables of this profile.
fn own_build() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let folder = test.ancestors().nth(2);
    folder
        .expect("a test lies two folders below that of its profile")
        .to_path_buf()
}

/// An executable of another package than that of the test; it exists after `make test` or `cargo build`.
pub fn executable(name: &str) -> PathBuf {
    own_build().join(name)
}

/// The `forebay` command under test: what `FOREBAY_BIN` says, or that of this build.
pub fn forebay() -> PathBuf {
    std::env::var_os("FOREBAY_BIN").map_or_else(|| executable("forebay"), PathBuf::from)
}

/// Lets [`forebay`], or a program that starts it, find these libraries.
///
/// # Panics
/// If one was not built.
pub fn with_libraries<'a>(command: &'a mut Command, libraries: &[Library]) -> &'a mut Command {
    for library in libraries {
        command.env(library.variable(), library.path());
    }
    command
}
