//! `forebay quarantine`: shows what a power loss has left without a name, copies it out, or removes it.

use super::{command, drain_command, instance_of, quarantine_command};
use crate::bridge::Bridge;
use crate::cli::{self, BridgeOptions, QuarantineVerb, exit};
use crate::error::{Fault, fault};
use crate::place::{self, Place, plain};
use crate::units;
use forebay_admin::Verb;
use forebay_client::{Client, Error as ClientError};
use forebay_core::path::TreePath;
use forebay_core::reserve::Purpose;
use forebay_objects::{Quarantine, Refused, Withheld, withheld_as};
use forebay_pfs::Lower;
use forebay_report::text::printable;
use forebay_sys::{self as sys, Errno};
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Runs the verb.
pub fn quarantine(args: &cli::QuarantineArgs) -> Result<u8, Fault> {
    let place = place::settle(&args.place())?;
    let instance = instance_of(&place)?;
    check_owner(&instance)?;
    forebay_server::check_format(&instance).map_err(|e| fault(e.to_string()))?;
    let folder = Quarantine::path_in(&instance);
    let failed = |e: Errno| fault(format!("{}: {}", folder.display(), plain(&e.into())));
    let quarantine = Quarantine::open(&instance).map_err(failed)?;
    let is_change = !matches!(args.what, None | Some(QuarantineVerb::List));
    if let (true, Some(quarantine)) = (is_change, &quarantine) {
        quarantine.lock().map_err(|e| match e {
            Errno::WOULDBLOCK => fault(format!(
                "another forebay quarantine is at work in {}",
                folder.display()
            ))
            .hint("wait for its end"),
            e => failed(e),
        })?;
    }
    let files = match &quarantine {
        Some(quarantine) => quarantine.list().map_err(failed)?,
        None => Vec::new(),
    };
    let ward = Ward {
        place,
        folder,
        files,
        json: args.json,
    };
    match (&args.what, &quarantine) {
        (None | Some(QuarantineVerb::List), _) => ward.list(),
        (Some(QuarantineVerb::Drop { all: true, .. }), None) => ward.list(),
        (Some(QuarantineVerb::Take { which, .. } | QuarantineVerb::Drop { which, .. }), None) => {
            ward.select(which)?;
        }
        (Some(QuarantineVerb::Take { which, to }), Some(quarantine)) => {
            ward.take(quarantine, which, to.as_deref())?;
        }
        (Some(QuarantineVerb::Drop { which, all }), Some(quarantine)) => {
            ward.drop(quarantine, which, *all)?;
        }
    }
    Ok(exit::OK)
}

/// What is in an instance belongs to the user of its bridge, also the files of others that root's bridge served.
fn check_owner(instance: &Path) -> Result<(), Fault> {
    let shown = instance.display();
    let owner = std::fs::metadata(instance)
        .map_err(|e| fault(format!("{shown}: {}", plain(&e))))?
        .uid();
    let me = sys::my_ids().0;
    if me == 0 || me == owner {
        return Ok(());
    }
    let owner = sys::user_name(owner).unwrap_or_else(|| owner.to_string());
    Err(fault(format!("{shown} belongs to {owner}"))
        .hint(format!("only {owner} and root may look into it")))
}

/// What is in quarantine for one buffer, as it was when the command began.
struct Ward {
    place: Place,
    folder: PathBuf,
    files: Vec<Withheld>,
    json: bool,
}

/// Where a file goes.
struct Target {
    /// `O_PATH` descriptor of the directory.
    dir: OwnedFd,
    name: Vec<u8>,
    shown: String,
    /// Its path in the buffer, if it lies there.
    in_buffer: Option<TreePath>,
}

impl Ward {
    fn list(&self) {
        if self.json {
            let files: Vec<Value> = self.files.iter().map(|file| self.value(file)).collect();
            self.print(json!({ "files": files }));
            return;
        }
        if self.files.is_empty() {
            println!("nothing is in quarantine for {}", self.place.root.display());
            return;
        }
        println!(
            "{} ({}) in quarantine for {}, kept in {}:",
            units::count(self.files.len() as u64, "file", "files"),
            units::bytes(self.files.iter().map(|file| file.bytes).sum()),
            self.place.root.display(),
            self.folder.display()
        );
        for file in &self.files {
            println!(
                "  {}  {}  {:>9}  {}",
                withheld_as(file.object),
                changed(file),
                units::bytes(file.bytes),
                named(file)
            );
        }
        println!(
            "to put one where it was, run: {} ID",
            command("quarantine take", &self.place)
        );
    }

    /// What JSON says about a file.
    fn value(&self, file: &Withheld) -> Value {
        let id = withheld_as(file.object);
        let path = file.path.as_ref();
        json!({
            "file": self.folder.join(&id).to_string_lossy(),
            "id": id,
            "path": path.map(|path| String::from_utf8_lossy(path.as_bytes())),
            "bytes": file.bytes,
            "changed_s": file.mtime.sec,
        })
    }

    fn print(&self, mut value: Value) {
        value["buffer"] = json!(self.place.root.to_string_lossy());
        println!("{value:#}");
    }

    /// The files that the user names, each once.
    fn select(&self, which: &[OsString]) -> Result<Vec<&Withheld>, Fault> {
        let mut chosen: Vec<&Withheld> = Vec::new();
        for word in which {
            let file = self.find(word)?;
            if !chosen.iter().any(|other| other.object == file.object) {
                chosen.push(file);
            }
        }
        Ok(chosen)
    }

    fn find(&self, word: &OsStr) -> Result<&Withheld, Fault> {
        let is_it = |file: &&Withheld| withheld_as(file.object).as_bytes() == word.as_bytes();
        if let Some(file) = self.files.iter().find(is_it) {
            return Ok(file);
        }
        let path = self.place.below(Path::new(word));
        let found: Vec<_> = self
            .files
            .iter()
            .filter(|file| path.as_ref() == Some(&file.path_or_lost()))
            .collect();
        let shown = printable(word.as_bytes());
        match found[..] {
            [file] => Ok(file),
            [] => Err(fault(format!("{shown}: not in quarantine")).hint(format!(
                "to see what is, run: {}",
                quarantine_command(&self.place)
            ))),
            _ => {
                let ids: Vec<_> = found.iter().map(|file| withheld_as(file.object)).collect();
                let count = units::count(ids.len() as u64, "file", "files");
                Err(
                    fault(format!("{shown}: {count} in quarantine had this path"))
                        .hint(format!("name one by its id: {}", ids.join(", "))),
                )
            }
        }
    }

    fn take(
        &self,
        quarantine: &Quarantine,
        which: &[OsString],
        to: Option<&Path>,
    ) -> Result<(), Fault> {
        let chosen = self.select(which)?;
        if let Some(to) = to
            && chosen.len() > 1
            && !to.is_dir()
        {
            return Err(fault(format!(
                "--to {}: several files need a directory",
                to.display()
            )));
        }
        let mut view = View::new(&self.place);
        let mut taken = Vec::new();
        let outcome = chosen.iter().try_for_each(|file| {
            let target = self.target(file, to)?;
            self.take_one(quarantine, file, &target, &mut view)?;
            let mut value = self.value(file);
            value["to"] = json!(target.shown);
            taken.push(value);
            Ok(())
        });
        let ended = view.end();
        if self.json {
            self.print(json!({ "taken": taken }));
        }
        outcome.and(ended)
    }

    fn take_one(
        &self,
        quarantine: &Quarantine,
        file: &Withheld,
        target: &Target,
        view: &mut View<'_>,
    ) -> Result<(), Fault> {
        let shown = &target.shown;
        if let Some(path) = &target.in_buffer {
            view.check(path, target)?;
        }
        let refused = quarantine
            .copy_out(file.object, target.dir.as_fd(), &target.name)
            .map_err(|e| not_taken(shown, e))?;
        for name in refused {
            eprintln!(
                "forebay: {shown}: the file system does not take the extended attribute {}",
                printable(name.as_bytes())
            );
        }
        quarantine.discard(file.object).map_err(|e| {
            not_taken(&named(file), e).hint(format!(
                "its copy is {shown}; the file is still in quarantine as well"
            ))
        })?;
        if !self.json {
            println!("took {} ({})", shown, units::bytes(file.bytes));
        }
        Ok(())
    }

    fn drop(&self, quarantine: &Quarantine, which: &[OsString], all: bool) -> Result<(), Fault> {
        let chosen = match all {
            true => self.files.iter().collect(),
            false => self.select(which)?,
        };
        let mut dropped = Vec::new();
        let mut bytes = 0;
        let outcome = chosen.iter().try_for_each(|file| {
            quarantine
                .discard(file.object)
                .map_err(|e| not_taken(&named(file), e))?;
            dropped.push(self.value(file));
            bytes += file.bytes;
            Ok(())
        });
        if self.json {
            self.print(json!({ "dropped": dropped, "bytes": bytes }));
        } else {
            println!(
                "dropped {}, {}",
                units::count(dropped.len() as u64, "file", "files"),
                units::bytes(bytes)
            );
        }
        outcome
    }

    /// Where a file goes: to `to`, into it if it is a directory, or to where the file was.
    fn target(&self, file: &Withheld, to: Option<&Path>) -> Result<Target, Fault> {
        let Some(to) = to else {
            return self.old_place(file);
        };
        let (dir, name) = match to.is_dir() {
            true => (to, file.path_or_lost().name().to_vec()),
            false => {
                let name = to.file_name().map(|name| name.as_bytes().to_vec());
                let parent = to.parent().filter(|dir| *dir != Path::new(""));
                (parent.unwrap_or(Path::new(".")), name.unwrap_or_default())
            }
        };
        let shown = dir.join(OsStr::from_bytes(&name));
        let failed = |e: std::io::Error| fault(format!("--to {}: {}", to.display(), plain(&e)));
        if name.is_empty() {
            return Err(failed(Errno::NOENT.into()));
        }
        let dir = dir.canonicalize().map_err(failed)?;
        if dir.starts_with(&self.place.storage) {
            return Err(fault(format!(
                "--to {} lies inside the storage {}",
                to.display(),
                self.place.storage.display()
            )));
        }
        let in_buffer = self.place.below(&dir).map(|dir| dir.join(&name));
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        Ok(Target {
            dir: sys::open_path(&dir, flags).map_err(|e| failed(e.into()))?,
            name,
            shown: printable(shown.as_os_str().as_bytes()),
            in_buffer,
        })
    }

    /// The path that the file had, on the PFS. No symbolic link on the way to it is followed.
    fn old_place(&self, file: &Withheld) -> Result<Target, Fault> {
        let Some(path) = &file.path else {
            return Err(fault(format!(
                "{}: nothing tells which path it had",
                withheld_as(file.object)
            ))
            .hint("name a place for it with --to"));
        };
        let root = &self.place.root;
        let shown = |path: &TreePath| {
            let path = root.join(OsStr::from_bytes(path.as_bytes()));
            printable(path.as_os_str().as_bytes())
        };
        let failed = |e: Errno| {
            fault(format!("{}: {}", shown(&path.parent()), plain(&e.into()))).hint(format!(
                "if the directory is still in the buffer, run first: {}; or name another place with --to",
                drain_command(&self.place)
            ))
        };
        let lower = Lower::open_root(root, None).map_err(failed)?;
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        Ok(Target {
            dir: lower.open(&path.parent(), flags).map_err(failed)?,
            name: path.name().to_vec(),
            shown: shown(path),
            in_buffer: Some(path.clone()),
        })
    }
}

/// The buffer as programs see it. A bridge answers: the one that runs, or one that is started for this.
struct View<'a> {
    place: &'a Place,
    bridge: Option<(Bridge, Client)>,
}

impl<'a> View<'a> {
    fn new(place: &'a Place) -> Self {
        View {
            place,
            bridge: None,
        }
    }

    fn client(&mut self) -> Result<&mut Client, Fault> {
        if self.bridge.is_none() {
            let options = BridgeOptions::default();
            let bridge =
                Bridge::attach(self.place, &options, Verb::Quarantine, Purpose::BringAway)?;
            let client = Client::connect(bridge.socket()).map_err(|e| fault(e.to_string()))?;
            self.bridge = Some((bridge, client));
        }
        match &mut self.bridge {
            Some((_, client)) => Ok(client),
            None => unreachable!("it was connected above"),
        }
    }

    /// Refuses a place where programs see something else than the PFS has: the next drain would move or remove what is
    /// put there, or leave out what the buffer has there.
    fn check(&mut self, path: &TreePath, target: &Target) -> Result<(), Fault> {
        let shown = &target.shown;
        let client = self.client()?;
        match client.lstat(path.as_bytes()) {
            Ok(_) => return Err(is_taken(shown)),
            Err(ClientError::Errno(libc::ENOENT | libc::ENOTDIR)) => {}
            Err(e) => return Err(fault(format!("{shown}: {e}"))),
        }
        let dir = path.parent();
        if dir.is_root() {
            return Ok(());
        }
        let on_pfs = sys::stat(target.dir.as_fd(), b"")
            .map_err(|e| fault(format!("{shown}: {}", plain(&e.into()))))?;
        let is_same = match client.lstat(dir.as_bytes()) {
            Ok(seen) => seen.inode() == on_pfs.inode(),
            Err(ClientError::Errno(libc::ENOENT | libc::ENOTDIR)) => false,
            Err(e) => return Err(fault(format!("{shown}: {e}"))),
        };
        match is_same {
            true => Ok(()),
            false => Err(fault(format!(
                "{shown}: its directory has been removed or renamed in the buffer, and not yet on the PFS"
            ))
            .hint(format!(
                "run first: {}; or name another place with --to",
                drain_command(self.place)
            ))),
        }
    }

    /// Leaves the bridge, which ends if nobody else uses it.
    fn end(self) -> Result<(), Fault> {
        match self.bridge {
            Some((bridge, client)) => {
                drop(client);
                bridge.detach()
            }
            None => Ok(()),
        }
    }
}

fn is_taken(shown: &str) -> Fault {
    fault(format!("{shown}: something is there now"))
        .hint("name another place with --to; the file stays in quarantine")
}

fn not_taken(shown: &str, refused: Refused) -> Fault {
    match refused.errno {
        Errno::EXIST => is_taken(shown),
        Errno::BUSY => fault(format!(
            "{shown}: a process still has the file open for writing"
        ))
        .hint("wait for its end; the file stays in quarantine"),
        errno => fault(format!(
            "{shown}: {}: {}",
            refused.operation,
            plain(&errno.into())
        ))
        .hint("the file stays in quarantine"),
    }
}

/// The path of a file for a terminal.
fn named(file: &Withheld) -> String {
    match &file.path {
        Some(path) => printable(path.as_bytes()),
        None => "(nothing tells which path it had)".to_owned(),
    }
}

/// The last change, in local time.
fn changed(file: &Withheld) -> String {
    let seconds = u64::try_from(file.mtime.sec).unwrap_or(0);
    let at = sys::local_time(seconds.saturating_mul(1_000_000_000));
    let minutes = at.second_of_day / 60;
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}",
        at.year,
        at.month,
        at.day,
        minutes / 60,
        minutes % 60
    )
}
