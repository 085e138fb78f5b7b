//! The bridge server: it keeps what programs write on local storage, and hands
//! out descriptors.
//!
//! Policy is `forebay-core`'s; here are the drivers: sockets ([`socket`],
//! [`connection`], [`shard`]), backing objects (`forebay-objects`), the PFS below
//! (`forebay-pfs`), the tables under their lock ([`namespace`]), and the requests that go
//! through all of them ([`work`]).
//!
//! ```no_run
//! use forebay_server::{Config, start};
//! let config = Config::new("/pfs/me/run7".as_ref(), "/scratch/me".as_ref()).unwrap();
//! let server = start(config).unwrap();
//! println!("{}", server.info().socket.display());
//! server.stop().unwrap();
//! ```
#![forbid(unsafe_code)]

mod admin;
mod answer;
mod claim;
mod connection;
mod durability;
mod durable;
mod error;
mod follow;
mod format;
pub mod fsck;
mod ground;
mod in_place;
mod inbox;
mod instance;
mod lane;
mod learn;
mod limits;
mod listen;
mod listings;
mod log;
mod name_board;
mod namespace;
mod passing;
mod pool;
mod recover;
mod settle;
mod shard;
mod socket;
mod spin;
mod status;
mod wakers;
mod work;
mod world;

use crate::inbox::Arrival;
use crate::instance::{Instance, TABLES};
use crate::limits::{REMOVED_AT_ONCE, STAGE_LIMIT_BYTES};
use crate::log::Log;
use forebay_admin::{BridgeInfo, instance_dir, socket_path};
use forebay_core::bypass::BypassingPrograms;
use forebay_core::facts::{Attr, Devices, Protections, Settings};
use forebay_core::path::TreePath;
use forebay_core::process_limits::{check_descriptors, check_file_bytes};
use forebay_core::record::BridgeId;
use forebay_core::recovery::{self, Past};
use forebay_core::request::Turns;
use forebay_core::reserve::Purpose;
use forebay_core::root_dir::{self, Meeting, RootNote, Sight, Standing};
use forebay_core::table::{Change, Tables, WriteTables};
use forebay_objects as objects;
use forebay_sys::{self as sys, Errno};
use forebay_tables::{Cached, Journaled};
use parking_lot::Mutex;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use admin::take_inventory;
pub use claim::{is_served, unlock};
pub use error::{Error, Where};
pub use format::{CURRENT as STORAGE_FORMAT, FormatError};
pub use instance::make_private;
pub use status::take as take_status;
pub use wakers::Waker;
pub use work::{Stand, Work};

/// Looks whether this program may change what is in an instance directory. Changes nothing.
///
/// # Errors
/// A later program has written it, or its format can't be told.
pub fn check_format(instance: &Path) -> Result<(), Error> {
    format::look(instance)?;
    Ok(())
}

/// Threads that serve clients.
const EVENT_LOOPS: usize = 2;

/// How a bridge runs.
pub struct Config {
    /// Canonical path of the buffer root.
    pub root: PathBuf,
    /// The instance directory.
    pub instance: PathBuf,
    /// Where to listen.
    pub socket: PathBuf,
    /// Where the log goes.
    pub log: Box<dyn std::io::Write + Send>,
    /// True if the PFS answers slowly, so that no event loop may wait for it. `None`: the type of its file system
    /// decides.
    pub pfs_may_wait: Option<bool>,
    /// True if the bridge runs until it is told to end; else it ends when no run needs it any more.
    pub stay: bool,
    /// A commit is made durable after this time, even if nobody asks for it.
    pub longest_unsynced: Duration,
    /// The process of a run that uses the bridge from the beginning. Without it, another run that comes and goes could end
    /// the bridge first.
    pub run: Option<u32>,
    /// What it is started for: this decides which part of the kept back room it may spend on a full storage.
    pub purpose: Purpose,
    /// What to do if the storage holds something for another directory than the one that has the path of the root now.
    pub other_root: OtherRoot,
}

/// What to do with a storage that holds something for another directory than the one that has the path of the root now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherRoot {
    /// Don't start.
    Refuse,
    /// Somebody says that the directory has taken the place of the other one.
    Adopt,
    /// Look at the storage alone: nothing is done in the directory.
    LeaveAlone,
}

impl Config {
    /// The usual settings for a buffer over `root` with its data below `storage`.
    ///
    /// # Errors
    /// `root` is no directory, or there is no safe place for the socket.
    pub fn new(root: &Path, storage: &Path) -> Result<Self, Error> {
        let root = root
            .canonicalize()
            .map_err(|e| Error::io("can't find", root, e))?;
        std::fs::create_dir_all(storage).map_err(|e| Error::io("can't make", storage, e))?;
        let storage = storage
            .canonicalize()
            .map_err(|e| Error::io("can't find", storage, e))?;
        let instance = instance_dir(&storage, &root);
        if sys::is_within(&storage, &root) {
            return Err(Error::StorageInBuffer { storage, root });
        }
        let socket = socket_path(&instance).map_err(Error::Socket)?;
        Ok(Config {
            root,
            instance,
            socket,
            log: Box::new(std::io::stderr()),
            pfs_may_wait: None,
            stay: true,
            longest_unsynced: durability::longest_unsynced(),
            run: None,
            purpose: Purpose::Serve,
            other_root: OtherRoot::Refuse,
        })
    }
}

/// Everything that serves requests, without the threads that do it.
pub struct ServerHandle {
    /// The tables under their lock.
    pub namespace: namespace::Namespace,
    /// Backing objects on local storage.
    pub objects: Arc<objects::Objects>,
    pub(crate) settled: settle::Settled,
    /// The PFS below.
    pub lower: Arc<forebay_pfs::Lower>,
    /// Settings that policy depends on.
    pub settings: Settings,
    /// The log.
    pub log: Log,
    /// Counters.
    pub counters: status::Activity,
    /// Programs that started without the library.
    pub(crate) bypassing: Mutex<BypassingPrograms>,
    /// Threads that may block.
    pub pool: pool::Pool,
    pub(crate) listings: listings::Listings,
    pub(crate) in_place: in_place::InPlace,
    /// Backing directories on their way to clients.
    pub(crate) passing: passing::Passing,
    /// PFS files that are being copied.
    pub(crate) turns: Mutex<Turns<Waker>>,
    pub(crate) wakers: wakers::Wakers,
    pub(crate) clients: status::Clients,
    pub(crate) lanes: Arc<lane::Lanes>,
    pub(crate) durability: Arc<durability::Durability>,
    pub(crate) me: BridgeId,
    pub(crate) epoch: u32,
    pub(crate) started: Instant,
    admin: admin::Admin,
    pub(crate) hold: claim::Hold,
    /// Why nothing is done in the directory that has the path of the root.
    pub(crate) left_alone: Option<String>,
    notes: Vec<String>,
    instance: Instance,
    root: PathBuf,
    root_dir: Sight,
    stop: AtomicBool,
    stopped: std::os::fd::OwnedFd,
    inboxes: Mutex<Vec<Arc<inbox::Inbox>>>,
}

impl ServerHandle {
    /// Takes the instance, brings its tables in order, and is ready to serve.
    fn open(mut config: Config, mut instance: Instance) -> Result<Self, Error> {
        sys::clear_umask();
        sys::bound_heap();
        let descriptors = sys::raise_descriptor_limit();
        check_descriptors(descriptors).map_err(Error::TooLow)?;
        check_file_bytes(sys::raise_file_size_limit()).map_err(Error::TooLow)?;
        // Before the lock on the PFS, too: nothing may say that this storage serves.
        instance.check_tables()?;
        sys::make_room_for_descriptors(limits::EXPECTED_DESCRIPTORS);
        let log = Log::new(std::mem::replace(
            &mut config.log,
            Box::new(std::io::sink()),
        ));
        let lower = forebay_pfs::Lower::open_root(&config.root, config.pfs_may_wait)
            .map_err(|e| Error::io("can't open", &config.root, e))?;
        let lower = Arc::new(lower);
        let hold = claim::Hold::new(lower.clone(), &config.root, instance.dir())?;
        let left_alone = match check_root(&instance, &lower, &hold, &config)? {
            Some(e) if config.other_root == OtherRoot::LeaveAlone => Some(e.to_string()),
            Some(e) => return Err(e),
            None => None,
        };
        let notes = match left_alone {
            None => hold.take()?,
            Some(_) => Vec::new(),
        };
        for note in &notes {
            log.line(format_args!("{note}"));
        }
        instance.belong_to(&config.root)?;
        let root_dir = root_attr(&lower, &config.root)?;
        if left_alone.is_none() {
            // With its lock: on an overlay the first change in a directory gives it another birth.
            match instance.note_root(RootNote::of(&root_dir)) {
                // A full storage is to be drained. It has a note, or an earlier program has filled it.
                Err(e) if e.is_no_space() => log.line(format_args!("{e}")),
                noted => noted?,
            }
        }
        let life = instance.cache_life()?;
        if let Some(before) = instance.bring_up_to_date()? {
            log.line(format_args!(
                "the storage had format {before} and has format {STORAGE_FORMAT} now"
            ));
        }
        let tables = instance.private_dir(TABLES)?;
        let tables = Cached::new(Journaled::open(&tables, life, config.purpose)?);
        let past = Past::of(&tables)?;
        let newest = objects::Objects::newest_epoch(instance.dir())
            .map_err(|e| Error::system("can't list backing objects", e))?;
        if past.is_older_than_objects(newest) {
            return Err(Error::TablesLost {
                instance: instance.dir().to_owned(),
            });
        }
        let epoch = past.epoch.saturating_add(1);
        tables.apply(&recovery::begun(epoch))?;
        let last = objects::Objects::last_folder(instance.dir())
            .map_err(|e| Error::system("can't list backing objects", e))?;
        // No number is used twice, not even that of an object that is gone, or of a marker that is not made yet.
        let to_label = Tables::marks(&tables)?.relabel;
        let known = objects::folder_of(past.last_number(&to_label));
        let first = known.max(last.unwrap_or_default()) + 1;
        let me = BridgeId(1);
        let objects = objects::Objects::open(instance.dir(), instance.labels()?, me, epoch, first)
            .map_err(|e| Error::system("can't open the backing objects", e))?;
        let objects = Arc::new(objects);
        tables.below().settle_with(Arc::new(settle::Footing {
            objects: objects.clone(),
            lower: lower.clone(),
        }));
        let durability = durability::Durability::new(objects.storage(), config.longest_unsynced)
            .map_err(|e| Error::system("no memory to share with clients", e))?;
        let durability = Arc::new(durability);
        let room = descriptors
            .saturating_sub(limits::RESERVED_DESCRIPTORS)
            .max(limits::FEWEST_CONNECTIONS);
        let limit =
            usize::try_from(room).map_or(limits::CONNECTIONS, |n| n.min(limits::CONNECTIONS));
        let me_uid = sys::my_ids().0;
        let board = name_board::NameBoard::new(me, me_uid, durability.life())
            .map_err(|e| Error::system("no memory to share with clients", e))?;
        let own = std::fs::metadata(instance.dir())
            .map_err(|e| Error::io("can't look at", instance.dir(), e))?;
        let storage_type = objects
            .fs_type()
            .map_err(|e| Error::io("can't look at", instance.dir(), e))?;
        let devices = Devices {
            storage: own.dev(),
            pfs: root_dir.dev,
        };
        let server = ServerHandle {
            namespace: namespace::Namespace::open(tables, me, epoch, durability.clone(), board)?,
            objects,
            settled: settle::Settled::default(),
            settings: Settings {
                root: config.root.as_os_str().as_bytes().to_vec(),
                stage_limit_bytes: STAGE_LIMIT_BYTES,
                bridge_uid: me_uid,
                removed_at_once: REMOVED_AT_ONCE,
                devices,
                stamps_mapped_writes: forebay_core::pfs_kind::stamps_mapped_writes(storage_type),
                keeps_numbers: lower.keeps_numbers(),
                protections: protections(),
            },
            lower,
            log,
            counters: status::Activity::default(),
            bypassing: Mutex::default(),
            pool: pool::Pool::new(me_uid),
            listings: listings::Listings::default(),
            in_place: in_place::InPlace::new(epoch > 1),
            passing: passing::Passing::default(),
            turns: Mutex::default(),
            wakers: wakers::Wakers::default(),
            clients: status::Clients::new(limit, me_uid),
            lanes: Arc::default(),
            durability,
            me,
            epoch,
            started: Instant::now(),
            admin: admin::Admin::new(config.stay, config.run),
            hold,
            left_alone,
            notes,
            instance,
            root: config.root,
            root_dir: Sight::of(&root_dir),
            stop: AtomicBool::new(false),
            stopped: sys::eventfd().map_err(|e| Error::system("no descriptor", e))?,
            inboxes: Mutex::default(),
        };
        let recovered = recover::recover(&server, past)?;
        if server.left_alone.is_none() {
            // What it finds elsewhere is to be resumed.
            learn::learn(&server)?;
            learn::forget_dirs(&server, &root_dir)?;
            for remark in forebay_mover::resume(server.ground())? {
                server.log.line(format_args!("{remark}"));
            }
        }
        // Nothing is served that a power loss could take back to another life.
        server.namespace.sync()?;
        recover::report(&server, past, &recovered);
        Ok(server)
    }

    /// The canonical buffer root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// How the buffer root looks to the bridge.
    pub(crate) fn root_dir(&self) -> Sight {
        self.root_dir
    }

    /// The instance directory.
    pub fn instance_dir(&self) -> &Path {
        self.instance.dir()
    }

    /// The user that runs the bridge.
    pub fn uid(&self) -> u32 {
        self.settings.bridge_uid
    }

    /// Is the bridge about to end?
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Asks the bridge to end.
    pub fn ask_to_stop(&self) {
        self.stop.store(true, Ordering::Release);
        for inbox in self.inboxes.lock().iter() {
            inbox.wake();
        }
        sys::notify(self.stopped.as_fd());
    }

    /// The inbox of a shard.
    fn inbox(&self, shard: usize) -> Option<Arc<inbox::Inbox>> {
        self.inboxes.lock().get(shard).cloned()
    }

    /// Lets a parked request go on: what it waited for has happened.
    fn wake(&self, waker: Waker) {
        if let Some(inbox) = self.inbox(waker.shard) {
            inbox.push(Arrival::Woken(waker.ticket));
        }
    }

    /// Wakes the requests that wait for a record that a committed batch has changed.
    pub(crate) fn wake_for(&self, batch: &[Change]) {
        for waker in self.wakers.changed_by(batch) {
            self.wake(waker);
        }
    }

    /// The answer to `Hello`.
    fn hello(&self) -> Vec<u8> {
        let mut bytes = self.settings.root.clone();
        bytes.push(0);
        bytes.extend_from_slice(self.instance.dir().as_os_str().as_bytes());
        bytes
    }
}

fn root_attr(lower: &forebay_pfs::Lower, root: &Path) -> Result<Attr, Error> {
    let found = lower.attr(&TreePath::root());
    found
        .and_then(|attr| attr.ok_or(Errno::NOENT))
        .map_err(|e| Error::io("can't look at", root, e))
}

/// Is the directory that has the path of the root another one than that for which the storage holds something? Asked before the
/// lock is made, which is one of the signs.
fn check_root(
    instance: &Instance,
    lower: &forebay_pfs::Lower,
    hold: &claim::Hold,
    config: &Config,
) -> Result<Option<Error>, Error> {
    let now = root_attr(lower, &config.root)?;
    let noted = instance.root_note();
    let standing = root_dir::judge(Meeting {
        noted,
        now: &now,
        holds: instance.holds_something()?,
        has_own_lock: noted.is_some_and(|noted| hold.is_there(noted.ino())),
        has_moved: config.other_root == OtherRoot::Adopt,
    });
    Ok(match standing {
        Standing::Root => None,
        Standing::Another(noted) => Some(Error::OtherDirectory {
            instance: instance.dir().to_owned(),
            root: config.root.clone(),
            noted,
            now: RootNote::of(&now),
        }),
    })
}

/// A running bridge.
pub struct Server {
    handle: Arc<ServerHandle>,
    info: BridgeInfo,
    listener: listen::Listener,
    threads: Vec<JoinHandle<sys::Sys<bool>>>,
    sync: JoinHandle<()>,
}

/// What this node forbids beyond POSIX. One that can't be read counts as the strictest; where the settings are hidden, links are protected
/// and nothing else.
fn protections() -> Protections {
    let level = |name: &str| -> u8 {
        match std::fs::read_to_string(format!("/proc/sys/fs/protected_{name}")) {
            Ok(text) => text.trim().parse().unwrap_or(2),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => u8::from(name.ends_with("links")),
            Err(_) => 2,
        }
    };
    Protections {
        symlinks: level("symlinks") > 0,
        hardlinks: level("hardlinks") > 0,
        fifos: level("fifos"),
        regular: level("regular"),
    }
}

/// Starts a bridge in threads of this process.
///
/// # Errors
/// It can't start; the text says why.
pub fn start(config: Config) -> Result<Server, Error> {
    let (root, instance, purpose) = (config.root.clone(), config.instance.clone(), config.purpose);
    start_with_room(config).map_err(|e| match e.is_no_space() {
        true => Error::Full {
            instance,
            root,
            purpose,
            cause: Box::new(e),
        },
        false => e,
    })
}

fn start_with_room(config: Config) -> Result<Server, Error> {
    let instance = Instance::take(&config.instance)?;
    let socket = config.socket.clone();
    let handle = Arc::new(ServerHandle::open(config, instance)?);
    let listener = listen::Listener::open(&socket)?;
    let info = BridgeInfo {
        pid: std::process::id(),
        socket,
        root: handle.root.clone(),
        storage: handle.instance_dir().to_owned(),
        epoch: handle.epoch,
    };
    const NO_LOOP: &str = "can't start an event loop";
    let failed = |e| Error::system(NO_LOOP, e);
    let load = Arc::new(spin::Load::new(EVENT_LOOPS));
    let sync = start_sync(&handle)?;
    let mut threads = Vec::new();
    for n in 0..EVENT_LOOPS {
        let inbox = inbox::Inbox::new().map_err(failed)?;
        handle.inboxes.lock().push(inbox.clone());
        let shard = shard::Shard::new(handle.clone(), listener.socket(), inbox, load.clone())
            .map_err(failed)?;
        let thread = std::thread::Builder::new()
            .name(format!("shard{n}"))
            .spawn(move || shard.run())
            .map_err(|cause| Error::System {
                operation: NO_LOOP,
                cause,
            })?;
        threads.push(thread);
    }
    // Comes last: a client that reads it may connect at once.
    handle.instance.publish(&info)?;
    handle.log.line(format_args!(
        "bridge {} serves {} from {}",
        info.pid,
        info.root.display(),
        info.storage.display()
    ));
    Ok(Server {
        handle,
        info,
        listener,
        threads,
        sync,
    })
}

/// Starts the thread that makes commits durable. Clients that connect after this can rely on its words.
fn start_sync(handle: &Arc<ServerHandle>) -> Result<JoinHandle<()>, Error> {
    let server = handle.clone();
    let ready = Arc::new(Barrier::new(2));
    let in_thread = ready.clone();
    let thread = std::thread::Builder::new()
        .name("sync".into())
        .spawn(move || {
            server.durability.run(&server, || {
                in_thread.wait();
            });
        })
        .map_err(|cause| Error::System {
            operation: "can't start the thread that makes names durable",
            cause,
        })?;
    ready.wait();
    Ok(thread)
}

impl Server {
    /// Where it is.
    pub fn info(&self) -> &BridgeInfo {
        &self.info
    }

    /// What the user should know of its start.
    pub fn notes(&self) -> &[String] {
        &self.handle.notes
    }

    /// What it serves with.
    pub fn handle(&self) -> &Arc<ServerHandle> {
        &self.handle
    }

    /// Ends the bridge: requests that have arrived are answered, everything is written down.
    ///
    /// # Errors
    /// It could not end in order; the next start recovers.
    pub fn stop(self) -> Result<(), Error> {
        let by = Instant::now() + limits::STOP_PATIENCE;
        self.handle.ask_to_stop();
        // Requests may wait for it.
        self.handle.admin.stop_drain();
        drop(self.listener);
        let mut outcome = Ok(());
        for thread in self.threads {
            match thread.join() {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => outcome = Err(Error::StillWaiting),
                Ok(Err(e)) => outcome = Err(Error::EventLoop(e)),
                Err(_) => outcome = Err(Error::EventLoopPanicked),
            }
        }
        self.handle.admin.close();
        if !self.handle.pool.stop(by) {
            outcome = Err(Error::StillWaiting);
        }
        if !self.handle.admin.await_end(by) {
            outcome = Err(Error::StillAnswering);
        }
        // Nobody waits for it any more.
        self.handle.durability.end();
        if self.sync.join().is_err() {
            outcome = Err(Error::EventLoopPanicked);
        }
        self.handle.objects.flush_touches();
        self.handle.lower.flush_touches();
        if outcome.is_ok() {
            recover::end(&self.handle)?;
            self.handle.objects.sweep();
            self.handle.instance.withdraw();
        }
        self.handle
            .log
            .line(format_args!("bridge {} has ended", self.info.pid));
        outcome
    }
}

/// Runs a bridge until SIGTERM or the command `stop`. For a process of its own: it
/// changes how this process takes signals.
///
/// # Errors
/// It can't start, or could not end in order.
pub fn run(config: Config, ready: impl FnOnce(&Server)) -> Result<(), Error> {
    let signals = sys::signals().map_err(|e| Error::system("can't set up signals", e))?;
    let server = start(config)?;
    ready(&server);
    while !server.handle.stopping() {
        sys::wait_either(signals.as_fd(), server.handle.stopped.as_fd());
        if sys::is_readable(signals.as_fd()) {
            break;
        }
    }
    server.stop()
}
