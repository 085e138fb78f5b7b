//! Programs that go past the buffer because the library does not reach them: the command of a run itself, and what the bridge has
//! heard of others.

use crate::place::Place;
use crate::units;
use forebay_admin::BypassingProgram;
use forebay_core::bypass::{self, Bypass, Starts};
use forebay_hook::bypass::{HEAD_BYTES, Program, Verdict, is_program, judge, names};
use forebay_hook::shebang::MAX_DEPTH;
use forebay_report::text::printable;
use forebay_sys as sys;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Looks at the command of a run, and says so at once if the library does not reach it.
pub fn of_command(
    program: &OsStr,
    arguments: &[OsString],
    place: &Place,
) -> Option<BypassingProgram> {
    let why = past(&found(program)?, 0)?;
    let path = program.to_string_lossy().into_owned();
    let said = why.sentence().concat();
    eprintln!("forebay: {}{said}", printable(path.as_bytes()));
    Some(BypassingProgram {
        path: Some(path),
        why: why.in_words().to_owned(),
        starts: 1,
        may_look: u64::from(may_look(program, arguments, place)),
    })
}

/// Is the working directory in the buffer, or does an argument lead there or name it?
fn may_look(program: &OsStr, arguments: &[OsString], place: &Place) -> bool {
    let leads = |path: &Path| {
        let there = path.canonicalize();
        there.is_ok_and(|there| there.starts_with(&place.root))
    };
    let alias = place.alias.as_deref().unwrap_or(Path::new(""));
    let (root, alias) = (place.root.as_os_str(), alias.as_os_str());
    let mut all = arguments.iter().map(OsString::as_os_str).chain([program]);
    leads(Path::new("."))
        || all.any(|text| {
            let path = Path::new(text);
            // What it is to make is not there yet.
            leads(path)
                || path.parent().is_some_and(leads)
                || names(text.as_bytes(), root.as_bytes(), alias.as_bytes())
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

/// Why the library does not reach this program. What can't be read is judged by nobody, and whoever starts it hears of that.
fn past(path: &Path, depth: usize) -> Option<Bypass> {
    let file = File::open(path).ok()?;
    let attr = file.metadata().ok()?;
    let mut head = Vec::new();
    let mut start = (&file).take(HEAD_BYTES as u64);
    start.read_to_end(&mut head).ok()?;
    let program = Program {
        path: path.as_os_str().as_bytes(),
        head: &head,
        mode: attr.mode(),
        owner: (attr.uid(), attr.gid()),
    };
    let has_capabilities =
        || sys::get_xattr(file.as_fd(), b"security.capability").is_ok_and(|has| has.is_some());
    match judge(&program, sys::my_ids(), has_capabilities) {
        Verdict::Reached => None,
        Verdict::Past(why) => Some(why),
        Verdict::By(_) if depth == MAX_DEPTH => None,
        Verdict::By(interpreter) => past(Path::new(OsStr::from_bytes(interpreter)), depth + 1),
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

/// See [`bypass::spoils_success`].
pub fn spoils_success(programs: &[BypassingProgram], is_allowed: bool) -> bool {
    bypass::spoils_success(programs.iter().map(starts), is_allowed)
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
