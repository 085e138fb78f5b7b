//! By which door programs come into the buffer on this node, and what there is to say about it. The driver looks and tries
//! ([`NodeFacts`]); what that means is judged here.

use crate::collective::file_system_name;
use crate::mounting::{Ailment, MountTrial, NamespaceSettings, Privilege};
use crate::pfs_kind::{SyncBy, sync_by};
use crate::process_limits::{TooLow, check_descriptors, check_file_bytes};

/// How programs get the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// A library that the dynamic linker loads: path calls cost little, and only programs that call libc see the buffer.
    Library,
    /// A mount over the directory: all programs see the buffer, and each path call goes through the kernel to a server.
    Mount,
}

/// The door to take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoorChoice {
    /// It works here.
    pub door: Door,
    /// One line: why it is this one, and not the other.
    pub reason: String,
}

/// Chooses a door. `library` is why the library is of no use here.
///
/// The mount is the better one where the kernel moves the bytes: no program goes past it. Without that the library is:
/// shared mappings work, and bytes cost what they cost natively.
///
/// # Errors
/// No door works: both reasons in one line.
pub fn choose(mount: &MountTrial, library: &Result<(), String>) -> Result<DoorChoice, String> {
    let of = |door, reason: String| Ok(DoorChoice { door, reason });
    match (mount.shortfall(), library, mount) {
        (None, ..) => of(
            Door::Mount,
            "all programs see it, static ones and those in Go as well".to_owned(),
        ),
        (Some(why), Ok(()), _) => of(Door::Library, format!("no mount: {why}")),
        (Some(why), Err(library), MountTrial::Plain(_)) => of(
            Door::Mount,
            format!("the library is of no use here ({library}), though {why}"),
        ),
        (Some(why), Err(library), _) => Err(format!("no mount: {why}; no library: {library}")),
    }
}

/// Local storage, as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    /// Its path.
    pub path: String,
    /// `statfs.f_type`.
    pub fs_type: i64,
    /// Size of its file system in bytes.
    pub size_bytes: u64,
    /// Free for this user, in bytes.
    pub free_bytes: u64,
    /// Inodes that are free for this user; `None` if the file system makes them as it needs them.
    pub free_inodes: Option<u64>,
}

/// Who holds a buffer directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// Nobody.
    Nobody,
    /// A bridge of this user runs here. Holds its process id.
    Ours(u32),
    /// An earlier buffer of this user on this node, whose bridge does not run. Holds its storage.
    Left(String),
    /// Another buffer; in one line, who.
    Other(String),
}

/// A directory of the PFS, as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buffer {
    /// Its path.
    pub path: String,
    /// `statfs.f_type`.
    pub fs_type: i64,
    /// Why this user cannot write to it.
    pub not_writable: Option<String>,
    /// Who has it.
    pub holder: Holder,
}

/// What was looked at and tried. Each `Err` is a reason in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// Effective user.
    pub uid: u32,
    /// Version of the kernel, as it says it.
    pub kernel: String,
    /// The storage that a bridge would use.
    pub storage: Result<Storage, String>,
    /// The directory of the sockets, and the type of its file system. A socket was made in it.
    pub sockets: Result<(String, i64), String>,
    /// A dynamically linked program was started with the library, and had it.
    pub library: Result<(), String>,
    /// Where the recorder would put its tables.
    pub tables: Result<String, String>,
    /// A mount was tried.
    pub mount: MountTrial,
    /// Where `fusermount3` is.
    pub fusermount: Option<String>,
    /// A user namespace was tried.
    pub user_namespace: Result<(), String>,
    /// Settings that may forbid one.
    pub namespace_settings: NamespaceSettings,
    /// Limits of open descriptors: now, and as far as a process may raise it.
    pub descriptors: (u64, u64),
    /// How large a file may be made, in bytes; `None`: there is no limit.
    pub file_bytes: Option<u64>,
    /// The directory that `--buffer` names.
    pub buffer: Option<Result<Buffer, String>>,
}

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// It works.
    Works,
    /// It works in part, or is not needed.
    Limited,
    /// It does not work.
    Fails,
}

impl Health {
    /// One word.
    pub fn in_words(self) -> &'static str {
        match self {
            Health::Works => "works",
            Health::Limited => "limited",
            Health::Fails => "fails",
        }
    }
}

/// What a check looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// Local storage.
    Storage,
    /// The directory of the sockets.
    Sockets,
    /// The preload library.
    Library,
    /// The mount.
    Mount,
    /// The helper of FUSE for ordinary users.
    Fusermount,
    /// User namespaces.
    Namespaces,
    /// Where the recorder puts its tables.
    Recorder,
    /// Limits of open descriptors.
    Descriptors,
    /// The limit of a file's size.
    FileSize,
    /// The PFS directory.
    Buffer,
    /// Who has that.
    Lock,
}

impl About {
    /// One or two words.
    pub fn in_words(self) -> &'static str {
        match self {
            About::Storage => "storage",
            About::Sockets => "sockets",
            About::Library => "library",
            About::Mount => "mount",
            About::Fusermount => "fusermount3",
            About::Namespaces => "namespaces",
            About::Recorder => "recorder",
            About::Descriptors => "descriptors",
            About::FileSize => "file size",
            About::Buffer => "buffer",
            About::Lock => "lock",
        }
    }

    /// Is there no run without it? Of the doors one is enough.
    fn is_needed(self) -> bool {
        match self {
            About::Storage
            | About::Sockets
            | About::Descriptors
            | About::FileSize
            | About::Buffer
            | About::Lock => true,
            About::Library
            | About::Mount
            | About::Fusermount
            | About::Namespaces
            | About::Recorder => false,
        }
    }
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Of what.
    pub about: About,
    /// How it went.
    pub health: Health,
    /// What was found, in one line.
    pub found: String,
    /// How to mend it.
    pub remedy: Option<String>,
}

/// What a node is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// All checks.
    pub checks: Vec<Check>,
    /// The door that `--via auto` takes, or why there is none.
    pub choice: Result<DoorChoice, String>,
}

impl Diagnosis {
    /// Can a run be started here? A door alone is not enough.
    pub fn works(&self) -> bool {
        let stops = |check: &Check| check.health == Health::Fails && check.about.is_needed();
        self.choice.is_ok() && !self.checks.iter().any(stops)
    }
}

/// Storage with less free space than this is soon full.
const LITTLE_BYTES: u64 = 1 << 30;
/// Each file in the buffer is one inode; a directory and a hard link are one more.
const FEW_INODES: u64 = 100_000;
/// A bridge keeps descriptors of what it grants and of who asks.
const FEW_DESCRIPTORS: u64 = 4096;

/// The name of a type of file systems.
fn named(fs_type: i64) -> String {
    let known = file_system_name(fs_type).map(str::to_owned);
    known.unwrap_or_else(|| format!("a file system of type {fs_type:#x}"))
}

/// A size for people, rounded down.
fn gib(bytes: u64) -> String {
    match bytes >> 30 {
        0 => format!("{} MiB", bytes >> 20),
        gib => format!("{gib} GiB"),
    }
}

/// Judges what was found.
pub fn diagnose(facts: &NodeFacts) -> Diagnosis {
    let mut checks = vec![
        storage(&facts.storage),
        sockets(&facts.sockets),
        library(&facts.library),
        mount(facts),
        fusermount(facts),
        user_namespace(facts),
        recorder(&facts.tables),
        descriptors(facts.descriptors),
        file_size(facts),
    ];
    if let Some(buffer) = &facts.buffer {
        checks.extend(self::buffer(buffer));
    }
    Diagnosis {
        checks,
        choice: choose(&facts.mount, &facts.library),
    }
}

fn check(about: About, health: Health, found: impl Into<String>, remedy: Option<&str>) -> Check {
    Check {
        about,
        health,
        found: found.into(),
        remedy: remedy.map(str::to_owned),
    }
}

fn storage(found: &Result<Storage, String>) -> Check {
    let name_one = Some("name a directory on a local disk: --storage DIR, or $FOREBAY_STORAGE");
    let storage = match found {
        Ok(storage) => storage,
        Err(why) => return check(About::Storage, Health::Fails, why, name_one),
    };
    let inodes = match storage.free_inodes {
        Some(free) => format!("{free} inodes free"),
        None => "inodes as needed".to_owned(),
    };
    let text = format!(
        "{} on {}, {} of {} free, {inodes}",
        storage.path,
        named(storage.fs_type),
        gib(storage.free_bytes),
        gib(storage.size_bytes),
    );
    let mut limits = Vec::new();
    if sync_by(storage.fs_type) == SyncBy::Nothing {
        limits.push("it is memory, which programs need as well, and a power loss leaves nothing");
    }
    if storage.free_bytes < LITTLE_BYTES {
        limits.push("it is nearly full");
    }
    if storage.free_inodes.is_some_and(|free| free < FEW_INODES) {
        limits.push("it has room for few files");
    }
    match limits.is_empty() {
        true => check(About::Storage, Health::Works, text, None),
        false => {
            let text = format!("{text}; {}", limits.join("; "));
            check(About::Storage, Health::Limited, text, name_one)
        }
    }
}

fn sockets(found: &Result<(String, i64), String>) -> Check {
    match found {
        Ok((dir, fs_type)) => {
            let text = format!("can be made in {dir}, on {}", named(*fs_type));
            check(About::Sockets, Health::Works, text, None)
        }
        Err(why) => {
            let remedy =
                "let $XDG_RUNTIME_DIR name a directory of yours on this node, with a short path";
            check(About::Sockets, Health::Fails, why, Some(remedy))
        }
    }
}

fn library(found: &Result<(), String>) -> Check {
    match found {
        Ok(()) => check(
            About::Library,
            Health::Works,
            "a dynamically linked program loads it",
            None,
        ),
        Err(why) => check(
            About::Library,
            Health::Fails,
            why,
            Some(
                "install it beside the command, or let $FOREBAY_PRELOAD name it; LD_PRELOAD must be allowed here",
            ),
        ),
    }
}

fn mount(facts: &NodeFacts) -> Check {
    let health = match &facts.mount {
        MountTrial::Native => {
            let text = format!(
                "the kernel ({}) reads and writes files of the storage itself (passthrough)",
                facts.kernel
            );
            return check(About::Mount, Health::Works, text, None);
        }
        MountTrial::Plain(_) => Health::Limited,
        MountTrial::Failed(_) => Health::Fails,
    };
    let remedy = match &facts.mount {
        MountTrial::Failed(trouble) => {
            trouble.remedy(Privilege::of(facts.uid), &facts.namespace_settings)
        }
        MountTrial::Plain(_) | MountTrial::Native => {
            "passthrough needs Linux 6.9 or newer, CAP_SYS_ADMIN, and storage that is not stacked (overlayfs)".to_owned()
        }
    };
    let found = facts.mount.shortfall().unwrap_or_default();
    let found = format!("{found}; kernel {}", facts.kernel);
    check(About::Mount, health, found, Some(&remedy))
}

/// A mount is made without it.
const NOT_USED: &str = "not used by forebay yet";

fn fusermount(facts: &NodeFacts) -> Check {
    match &facts.fusermount {
        Some(path) => check(
            About::Fusermount,
            Health::Works,
            format!("{path}; {NOT_USED}"),
            None,
        ),
        None => check(
            About::Fusermount,
            Health::Limited,
            format!("is not installed; {NOT_USED}"),
            Some("install the package fuse3"),
        ),
    }
}

fn user_namespace(facts: &NodeFacts) -> Check {
    let use_of_it = match Privilege::of(facts.uid) {
        Privilege::Root => "root mounts without one",
        Privilege::User => "a mount is made in one",
    };
    match &facts.user_namespace {
        Ok(()) => {
            let text = format!("can be made; {use_of_it}");
            check(About::Namespaces, Health::Works, text, None)
        }
        Err(why) => {
            let Ailment { what, how } = facts.namespace_settings.ailment();
            let text = format!("a user namespace cannot be made ({why}): {what}; {use_of_it}");
            check(About::Namespaces, Health::Limited, text, Some(how))
        }
    }
}

fn recorder(found: &Result<String, String>) -> Check {
    match found {
        Ok(dir) => check(
            About::Recorder,
            Health::Works,
            format!("its tables go to {dir}"),
            None,
        ),
        Err(why) => check(
            About::Recorder,
            Health::Limited,
            format!("runs would not be recorded: {why}"),
            Some("let $FOREBAY_TABLES name a directory on this node"),
        ),
    }
}

fn descriptors((now, most): (u64, u64)) -> Check {
    let text = format!("{now} open files for each process, {most} for a bridge");
    if let Err(why) = check_descriptors(most) {
        let found = format!("{why}: it does not start");
        return check(About::Descriptors, Health::Fails, found, Some(why.remedy()));
    }
    match most < FEW_DESCRIPTORS {
        false => check(About::Descriptors, Health::Works, text, None),
        true => check(
            About::Descriptors,
            Health::Limited,
            text,
            Some(TooLow::Descriptors(most).remedy()),
        ),
    }
}

fn file_size(facts: &NodeFacts) -> Check {
    match (check_file_bytes(facts.file_bytes), facts.file_bytes) {
        (Err(why), _) => {
            let found = format!("{why}: it does not start");
            check(About::FileSize, Health::Fails, found, Some(why.remedy()))
        }
        (Ok(()), None) => check(About::FileSize, Health::Works, "no limit", None),
        (Ok(()), Some(bytes)) => {
            let remedy = TooLow::FileBytes(bytes).remedy();
            let found = format!("a larger file than {} is not drained", gib(bytes));
            check(About::FileSize, Health::Limited, found, Some(remedy))
        }
    }
}

fn buffer(found: &Result<Buffer, String>) -> Vec<Check> {
    let buffer = match found {
        Ok(buffer) => buffer,
        Err(why) => return vec![check(About::Buffer, Health::Fails, why, None)],
    };
    let text = format!(
        "{} on {}; a drain makes what it copies durable by: {}",
        buffer.path,
        named(buffer.fs_type),
        sync_by(buffer.fs_type).in_words()
    );
    let mut checks = vec![match &buffer.not_writable {
        None => check(About::Buffer, Health::Works, text, None),
        Some(why) => check(
            About::Buffer,
            Health::Fails,
            format!("{text}; nothing can be drained there: {why}"),
            Some("have somebody give you the right to write there"),
        ),
    }];
    let (health, text, remedy) = match &buffer.holder {
        Holder::Nobody => (Health::Works, "nobody has the directory".to_owned(), None),
        Holder::Ours(pid) => (
            Health::Works,
            format!("your own bridge has the directory (process {pid}); runs use it"),
            None,
        ),
        Holder::Left(storage) => (
            Health::Limited,
            format!(
                "an earlier buffer of yours has the directory; its bridge does not run, its storage is {storage}"
            ),
            Some(
                "a run with this storage goes on with it, and `forebay drain` brings it to the PFS",
            ),
        ),
        Holder::Other(who) => (
            Health::Fails,
            who.clone(),
            Some("wait for its drain; if it is given up for good, `forebay unlock`"),
        ),
    };
    checks.push(check(About::Lock, health, text, remedy));
    checks
}
