//! Programs that go past the buffer because the library does not reach them: the command of a run itself, and what the bridge has
//! heard of others.

use crate::units;
use forebay_admin::BypassingProgram;
use forebay_core::bypass::{self, Bypass, Starts};
use forebay_hook::bypass::{HEAD_BYTES, is_privileged, is_program, of_file};
use forebay_hook::shebang::{self, Head};
use forebay_report::text::printable;
use forebay_sys as sys;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Looks at the command of a run, and says so at once if the library does not reach it.
pub fn of_command(
    program: &OsStr,
    arguments: &[OsString],
    root: &Path,
) -> Option<BypassingProgram> {
    let why = why(&found(program)?, 0)?;
    let root_bytes = root.as_os_str().as_bytes();
    let names = |text: &OsString| {
        let mut parts = text.as_bytes().windows(root_bytes.len());
        parts.any(|part| part == root_bytes)
    };
    let is_inside = std::env::current_dir().is_ok_and(|dir| dir.starts_with(root));
    let path = program.to_string_lossy().into_owned();
    eprintln!("{}", bypass::warning(&printable(path.as_bytes()), why));
    Some(BypassingProgram {
        path: Some(path),
        why: why.in_words().to_owned(),
        starts: 1,
        may_look: u64::from(is_inside || arguments.iter().any(names)),
    })
}

/// Where the program is, as `execvp` finds it.
fn found(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let list = std::env::var_os("PATH")?;
    let mut candidates = std::env::split_paths(&list).map(|dir| dir.join(program));
    candidates.find(|path| path.metadata().is_ok_and(|found| is_program(found.mode())))
}

fn why(path: &Path, depth: usize) -> Option<Bypass> {
    let file = File::open(path).ok()?;
    let attr = file.metadata().ok()?;
    let mut head = Vec::new();
    file.take(HEAD_BYTES as u64).read_to_end(&mut head).ok()?;
    if let Head::Script(line) = shebang::parse(&head[..head.len().min(shebang::HEAD_BYTES)]) {
        let interpreter = Path::new(OsStr::from_bytes(line.interpreter));
        return (depth < shebang::MAX_DEPTH).then(|| why(interpreter, depth + 1))?;
    }
    match is_privileged(attr.mode(), (attr.uid(), attr.gid()), sys::my_ids()) {
        true => Some(Bypass::Privileged),
        false => of_file(path.as_os_str().as_bytes(), &head),
    }
}

fn starts(program: &BypassingProgram) -> Starts {
    Starts {
        all: program.starts,
        may_look: program.may_look,
    }
}

/// What has come since an earlier moment.
pub fn since(now: Vec<BypassingProgram>, before: &[BypassingProgram]) -> Vec<BypassingProgram> {
    let is_same =
        |a: &BypassingProgram, b: &BypassingProgram| (&a.path, &a.why) == (&b.path, &b.why);
    let mut fresh = now;
    for program in &mut fresh {
        let earlier = before.iter().find(|earlier| is_same(earlier, program));
        let left = starts(program).since(earlier.map(starts).unwrap_or_default());
        (program.starts, program.may_look) = (left.all, left.may_look);
    }
    fresh.retain(|program| program.starts > 0);
    fresh
}

/// May one of them have looked for something in the buffer, and not have found it?
pub fn may_have_looked(programs: &[BypassingProgram]) -> bool {
    bypass::may_have_looked(programs.iter().map(starts))
}

/// `./a (static), ./b (Go) 3 times`
pub fn text(programs: &[BypassingProgram]) -> String {
    let one = |program: &BypassingProgram| {
        let times = match program.starts {
            1 => String::new(),
            n => format!(" {}", units::count(n, "time", "times")),
        };
        match &program.path {
            Some(path) => format!("{} ({}){times}", printable(path.as_bytes()), program.why),
            None => format!("others{times}"),
        }
    };
    let all: Vec<_> = programs.iter().map(one).collect();
    all.join(", ")
}
