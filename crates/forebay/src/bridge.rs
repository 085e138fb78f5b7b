//! The bridge seen from the command line: find one, start one, ask it, end it.

use crate::cli::BridgeOptions;
use crate::error::{Fault, fault};
use crate::log_file;
use crate::place::{Place, plain};
use crate::units;
use forebay_admin::{
    AdminError, LOCK_FILE, LifetimeStatus, RootDir, StartFailure, StartReport, Verb, bridge_info,
    instance_dir, socket_dir, socket_path,
};
use forebay_client::Control;
use forebay_core::claim::{self, Claim};
use forebay_core::facts::Timestamp;
use forebay_core::reserve::Purpose;
use forebay_core::restarts::Restarts;
use forebay_core::root_dir::{self, Sight};
use forebay_sys as sys;
use forebay_wire::Devices;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// How long somebody else's bridge may take until it answers (it may have much to recover).
const OTHER_START: Duration = Duration::from_secs(30);
/// How long a bridge may take until it says who it is.
const FIRST_ANSWER: Duration = Duration::from_secs(5);
/// As many bridges in a row may be told to end by others right after they were started for us.
const LOST_STARTS: u32 = 5;
/// Longest time between two calls of what is done while a program runs. The end of a child comes before.
const MEANWHILE_EVERY: Duration = Duration::from_secs(2);
/// The end of a bridge may take so long before somebody is told that it does.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// A killed process that does not end within this time is stuck in the kernel.
const DYING: Duration = Duration::from_secs(2);
/// The option that [`crate::cli::MovedOptions`] has, for another process.
pub const ROOT_HAS_MOVED: &str = "--root-has-moved";
/// Somebody is told of a bridge that can't be started when the pause between two tries gets so long.
const TELL_FROM: Duration = Duration::from_secs(1);
/// Pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How long a new bridge is meant to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// It ends with the last run that uses it.
    LastRun,
    /// Until `forebay down`.
    Down,
}

/// How long a new bridge is meant to live, and what it is started for.
#[derive(Debug, Clone, Copy)]
struct Start {
    until: Until,
    purpose: Purpose,
    /// See [`crate::cli::MovedOptions`].
    root_has_moved: bool,
}

/// What the path of a bridge's buffer root leads to for this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlook {
    /// The buffer root.
    Same,
    /// Another directory, which has taken its place since.
    Replaced,
    /// Another directory than for the bridge, which sees other mounts.
    Elsewhere,
}

/// A bridge that answers.
pub struct Bridge {
    /// To ask it.
    pub control: Control,
    /// Where its data is.
    pub instance: PathBuf,
    /// Canonical buffer root.
    pub root: PathBuf,
    /// Which directory that is to the bridge; `None` if it does not say.
    root_dir: Option<RootDir>,
    /// Its process.
    pub pid: u32,
    /// Was it started by this very process?
    pub is_ours: bool,
}

impl Bridge {
    /// Connects to the bridge behind a socket; `None` if nobody answers there.
    ///
    /// # Errors
    /// [`AdminError::Version`], [`AdminError::OtherProtocol`]: somebody does, but not so that we understand each other.
    /// [`AdminError::Busy`]: it has too much to do.
    pub fn at_socket(socket: &Path) -> Result<Option<Bridge>, AdminError> {
        match Bridge::connect(socket) {
            Ok(bridge) => Ok(Some(bridge)),
            Err(e @ AdminError::Busy { .. }) => Err(e),
            Err(e) if e.is_other_version() => Err(e),
            Err(e) => {
                if e.is_timeout() {
                    eprintln!(
                        "forebay: the bridge behind {} has not answered for {} s; it may be stopped, or wait for its PFS",
                        socket.display(),
                        FIRST_ANSWER.as_secs()
                    );
                }
                Ok(None)
            }
        }
    }

    fn connect(socket: &Path) -> Result<Bridge, AdminError> {
        let mut control = Control::connect(socket)?;
        // One that is stuck must not hold up what is asked of others.
        control.set_answer_limit(Some(FIRST_ANSWER))?;
        let status = control.status()?;
        control.set_answer_limit(None)?;
        Ok(Bridge {
            control,
            instance: status.storage,
            root: status.root,
            root_dir: status.root_dir,
            pid: status.pid,
            is_ours: false,
        })
    }

    /// The directory that `--storage` names.
    pub fn storage(&self) -> &Path {
        self.instance.parent().unwrap_or(&self.instance)
    }

    /// The file systems of the buffer; `None` if this process can't look at one of them.
    pub fn devices(&self) -> Option<Devices> {
        let device = |path: &Path| fs::metadata(path).map(|about| about.dev()).ok();
        Some(Devices {
            storage: device(&self.instance)?,
            pfs: device(&self.root)?,
        })
    }

    /// Its socket.
    pub fn socket(&self) -> &Path {
        self.control.socket()
    }

    /// The running bridge over `root` with this instance directory, if both are of this user. The path may come from a lock,
    /// which anybody can make.
    pub fn at_instance(root: &Path, instance: &Path) -> Result<Option<Bridge>, Fault> {
        let me = sys::my_ids().0;
        let found = fs::symlink_metadata(instance);
        if !found.is_ok_and(|dir| dir.is_dir() && dir.uid() == me) {
            return Ok(None);
        }
        let socket = bridge_info(instance).map(|info| info.socket);
        let bridge = socket
            .map(|socket| Bridge::at_socket(&socket))
            .transpose()?;
        let is_it = |bridge: &Bridge| bridge.root == root && bridge.instance == instance;
        let bridge = bridge.flatten().filter(is_it);
        bridge.map(Bridge::over_same_directory).transpose()
    }

    /// The running bridge of a buffer, if there is one.
    pub fn find(place: &Place) -> Result<Option<Bridge>, Fault> {
        let instance = instance_dir(&place.storage, &place.root);
        let bridge = Bridge::at_socket(&socket_path(&instance)?)?;
        bridge.map(Bridge::over_same_directory).transpose()
    }

    /// This bridge, if its buffer root is the directory that has that path for this process, too. Before anything is asked of it
    /// that concerns what is in the buffer.
    pub fn over_same_directory(self) -> Result<Bridge, Fault> {
        let root = self.root.display();
        match self.outlook() {
            Outlook::Same => Ok(self),
            Outlook::Replaced => Err(fault(format!(
                "the bridge over {root} (process {}) has another directory than the one that is there now: is the PFS mounted?",
                self.pid
            ))
            .hint(format!(
                "mount it or move the directory back, and run the same command again. To end that bridge, which leaves what it has in {}, run: kill {}",
                self.storage().display(),
                self.pid
            ))),
            Outlook::Elsewhere => Err(fault(format!(
                "the bridge over {root} with the storage {} runs in another container or mount namespace, where {root} is another directory than here",
                self.storage().display()
            ))
            .hint("name a storage that the two do not share with --storage DIR")),
        }
    }

    /// May its paths lead elsewhere than those of this process? Asks no file system, which may hang.
    pub fn sees_other_mounts(&self) -> bool {
        let here = sys::mount_space();
        self.root_dir.is_some_and(|dir| here != Ok(dir.mount_space))
    }

    /// What the path of the buffer root leads to for this process.
    pub fn outlook(&self) -> Outlook {
        let Some(theirs) = self.root_dir else {
            return Outlook::Same;
        };
        let (sec, nsec) = theirs.born;
        let bridge = Sight {
            dev: theirs.dev,
            ino: theirs.ino,
            born: Timestamp { sec, nsec },
        };
        // Not by the standard library: a buffer in this process would answer.
        let dir = sys::open_path(&self.root, libc::O_PATH | libc::O_DIRECTORY);
        let is_same = dir.and_then(|dir| {
            let here = Sight::of(&sys::stat(dir.as_fd(), b"")?);
            Ok(root_dir::is_same(
                bridge,
                here,
                self.has_lock_in(dir.as_fd()),
            ))
        });
        // Where a mount of a run shows the buffer, its server asks the bridge.
        let is_mount = || forebay_fuse::server_of(&self.root).is_some();
        match is_same {
            // What can't be looked at is no other one.
            Ok(true) | Err(_) => Outlook::Same,
            Ok(false) if is_mount() => Outlook::Same,
            Ok(false) if self.sees_other_mounts() => Outlook::Elsewhere,
            Ok(false) => Outlook::Replaced,
        }
    }

    /// Is there the lock that this bridge has made?
    fn has_lock_in(&self, dir: BorrowedFd<'_>) -> bool {
        let text = sys::readlink(dir, claim::NAME).ok();
        let claim = text.as_deref().and_then(Claim::from_text);
        claim.is_some_and(|claim| {
            claim.pid == self.pid && claim.instance == self.instance.as_os_str().as_bytes()
        })
    }

    /// Finds or starts the bridge of a buffer and makes it live at least as long as this process
    /// needs it: until [`Bridge::detach`]. `purpose`: what it is started for.
    pub fn attach(
        place: &Place,
        options: &BridgeOptions,
        verb: Verb,
        purpose: Purpose,
    ) -> Result<Bridge, Fault> {
        let start = Start {
            until: Until::LastRun,
            purpose,
            root_has_moved: options.moved.root_has_moved,
        };
        Bridge::hold(place, options, start, |control| {
            control.attach(std::process::id(), verb)
        })
    }

    /// Starts the bridge again, which has died, and tries until that succeeds. `is_over` waits for the pause that it is given; true: nobody
    /// needs the bridge any more. `deaths` are those since `begin`.
    ///
    /// # Errors
    /// Nobody needs it any more; why it could not be started until then, if that was tried.
    pub fn revive(
        place: &Place,
        options: &BridgeOptions,
        verb: Verb,
        (deaths, begin): (&mut Restarts, Instant),
        mut is_over: impl FnMut(Duration) -> bool,
    ) -> Result<Bridge, Option<Fault>> {
        let mut trouble = None;
        let mut is_told = false;
        while let Some(pause) = deaths.start_after(begin.elapsed(), Purpose::Serve) {
            if pause >= TELL_FROM && !std::mem::replace(&mut is_told, true) {
                let why = match &trouble {
                    None => format!(
                        "dies again and again, and is started again in {}",
                        units::duration(pause)
                    ),
                    Some(trouble) => {
                        format!("has died and cannot be started now; it is tried again: {trouble}")
                    }
                };
                eprintln!("forebay: programs wait for the bridge or get EIO: it {why}");
            }
            if !pause.is_zero() && is_over(pause) {
                break;
            }
            match Bridge::attach(place, &options.again(), verb, Purpose::Serve) {
                Ok(bridge) => {
                    deaths.is_back();
                    if is_told {
                        eprintln!("forebay: the bridge was started again");
                    }
                    return Ok(bridge);
                }
                // It may have been killed as the one before it: the next one need not be.
                Err(e) => trouble = Some(e),
            }
        }
        Err(trouble)
    }

    /// Finds or starts the bridge of a buffer and makes it live until [`Bridge::stop`].
    pub fn keep(place: &Place, options: &BridgeOptions) -> Result<Bridge, Fault> {
        let start = Start {
            until: Until::Down,
            purpose: Purpose::Serve,
            root_has_moved: options.moved.root_has_moved,
        };
        Bridge::hold(place, options, start, |control| control.set_stay(true))
    }

    /// Finds or starts a bridge that agrees to live on when it is asked to.
    fn hold(
        place: &Place,
        options: &BridgeOptions,
        start: Start,
        ask: impl Fn(&mut Control) -> Result<LifetimeStatus, AdminError>,
    ) -> Result<Bridge, Fault> {
        let began = Instant::now();
        loop {
            let mut bridge = match Bridge::find(place)? {
                Some(bridge) => bridge,
                None => Bridge::start(place, options, start)?,
            };
            // Before it is asked, or it could be gone and its id be somebody else's.
            let process = sys::Process::open(bridge.pid).ok();
            match ask(&mut bridge.control) {
                Ok(life) if !life.ending => return Ok(bridge),
                Ok(_) => {}
                Err(e) if e.is_loss() && began.elapsed() < OTHER_START => {
                    // It ended before it could say so.
                    std::thread::sleep(LOOK_AGAIN);
                    continue;
                }
                Err(e) => return Err(e.into()),
            }
            // Another run was its last one. It is on its way out; the next one is ours.
            drop(bridge);
            if let Some(process) = process {
                process.await_end();
            }
        }
    }

    /// This process needs it no more. If nobody else does and it was not told to stay, it ends. As long as a program is
    /// connected to it, it goes on.
    pub fn detach(mut self) -> Result<(), Fault> {
        self.part(false).map(drop)
    }

    /// As [`Bridge::detach`]. With `clean`, the bridge does not end, and this process stays attached, if
    /// something is not on the PFS at the moment from which nobody can change anything. False: it is still attached, for
    /// that or because a program is connected.
    ///
    /// # Errors
    /// Among others, the bridge has died: nobody has looked what is in the buffer, or it has not given the directory back.
    pub fn part(&mut self, clean: bool) -> Result<bool, Fault> {
        let me = std::process::id();
        let process = sys::Process::open(self.pid).ok();
        let life = match (self.control.detach(me, clean), &process) {
            // Another run was its last one a moment ago.
            (Err(e), Some(process)) if e.is_loss() && !clean => {
                sys::wait_any(&[process], END_PATIENCE);
                return match process.has_ended() {
                    true => self.ended_in_order().map(|()| true),
                    false => Err(e.into()),
                };
            }
            (life, _) => life?,
        };
        if life.ending
            && let Some(process) = process
        {
            sys::wait_any(&[&process], END_PATIENCE);
            if !process.has_ended() {
                eprintln!("forebay: waiting until the bridge has removed its copies and ended");
                process.await_end();
            }
            self.ended_in_order()?;
        }
        Ok(!life.runs.contains(&me))
    }

    /// Did the bridge, whose process is gone, do all that it does at its end?
    fn ended_in_order(&self) -> Result<(), Fault> {
        let is_there = bridge_info(&self.instance).is_some_and(|info| info.pid == self.pid);
        match is_there {
            true => Err(fault(format!(
                "the bridge over {} has not ended in order",
                self.root.display()
            ))
            .hint("the next one makes good what is left to do")),
            false => Ok(()),
        }
    }

    fn start(place: &Place, options: &BridgeOptions, start: Start) -> Result<Bridge, Fault> {
        let instance = instance_dir(&place.storage, &place.root);
        // Before the bridge is there: its log is in it.
        forebay_server::make_private(&instance).map_err(|e| fault(e.to_string()))?;
        let log_path = match &options.log_dir {
            Some(dir) => {
                fs::create_dir_all(dir)
                    .map_err(|e| fault(format!("--log-dir {}: {}", dir.display(), plain(&e))))?;
                dir.join("bridge.log")
            }
            None => instance.join("bridge.log"),
        };
        let started = Instant::now();
        let mut lost = 0;
        loop {
            // Another run may be starting one, or the last one is just ending.
            if let Some(bridge) = other_bridge(place, &instance, started)? {
                return Ok(bridge);
            }
            let (failure, message, hint) = match try_start(place, start, &log_path)? {
                StartReport::Ready { notes } => match Bridge::find(place)? {
                    Some(mut bridge) => {
                        for note in notes {
                            eprintln!("forebay: {note}");
                        }
                        bridge.is_ours = true;
                        return Ok(bridge);
                    }
                    None if lost < LOST_STARTS => {
                        lost += 1;
                        continue;
                    }
                    None => {
                        return Err(fault("the bridge has started but does not answer")
                            .hint(format!("its log is {}", log_path.display())));
                    }
                },
                StartReport::Failed {
                    failure,
                    message,
                    hint,
                } => (failure, message, hint),
            };
            // Another run that looks at the lock is enough for that.
            let is_taken = failure == StartFailure::InUse;
            if !(is_taken && started.elapsed() < OTHER_START) {
                let its_log = || format!("its log is {}", log_path.display());
                return Err(fault(format!("the bridge did not start: {message}"))
                    .hint(hint.unwrap_or_else(its_log)));
            }
        }
    }

    /// Is its process there?
    pub fn is_alive(&self) -> bool {
        sys::Process::open(self.pid).is_ok_and(|process| !process.has_ended())
    }

    /// Is it dead, or dying? A killed process closes its sockets some time before it has ended.
    pub fn has_died(&self) -> bool {
        let Ok(process) = sys::Process::open(self.pid) else {
            return true;
        };
        let until = Instant::now() + DYING;
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            if process.has_ended() || rest.is_zero() {
                return process.has_ended();
            }
            // A signal ends the wait as well.
            sys::wait_any(std::slice::from_ref(&process), rest);
        }
    }

    /// Waits for the end of the bridge or of a program; true if the bridge was first. Calls `meanwhile` now and then.
    pub fn dies_before(&self, program: &sys::Process, meanwhile: impl Fn()) -> bool {
        let Ok(bridge) = sys::Process::open(self.pid) else {
            // Dead already.
            return !program.has_ended();
        };
        loop {
            match (bridge.has_ended(), program.has_ended()) {
                (_, true) => return false,
                (true, false) => return true,
                (false, false) => {}
            }
            sys::wait_any(&[&bridge, program], MEANWHILE_EVERY);
            meanwhile();
        }
    }

    /// Ends the bridge and waits until its process is gone.
    pub fn stop(mut self) -> Result<(), Fault> {
        // Before it is asked, or it could be gone and its id be somebody else's.
        let process = sys::Process::open(self.pid).ok();
        self.control.stop()?;
        if let Some(process) = process {
            process.await_end();
        }
        self.ended_in_order()
    }
}

/// Starts the server process; the descriptor tells how that went.
fn spawn(place: &Place, start: Start, log_path: &Path) -> Result<(Child, OwnedFd), Fault> {
    let failed = |e| fault(format!("log {}: {}", log_path.display(), plain(&e)));
    let log = log_file::open(log_path)?;
    let copy = log.try_clone().map_err(failed)?;
    let exe =
        std::env::current_exe().map_err(|e| fault("cannot find my own executable").because(e))?;
    let (ready, writer) = sys::pipe().map_err(|e| fault("cannot make a pipe").because(e))?;
    let mut command = Command::new(exe);
    command
        .arg("bridge")
        .arg("--root")
        .arg(&place.root)
        .arg("--storage")
        .arg(&place.storage)
        .arg("--ready-on-stdin")
        // A bridge under a buffer would be its own client.
        .env_remove("LD_PRELOAD")
        .current_dir("/")
        .stdin(writer)
        .stdout(copy)
        .stderr(log);
    if start.purpose == Purpose::BringAway {
        command.arg("--bring-away");
    }
    if start.root_has_moved {
        command.arg(ROOT_HAS_MOVED);
    }
    match start.until {
        Until::Down => command.arg("--stay"),
        // Another run could find it, use it and leave before we have asked it to live on.
        Until::LastRun => command.args(["--run", &std::process::id().to_string()]),
    };
    sys::in_new_session(&mut command);
    let child = command
        .spawn()
        .map_err(|e| fault("cannot start the bridge process").because(e))?;
    Ok((child, ready))
}

/// Starts the server process and waits until it serves; if it does not, says why.
fn try_start(place: &Place, start: Start, log_path: &Path) -> Result<StartReport, Fault> {
    let (mut child, ready) = spawn(place, start, log_path)?;
    // One line. End of file without one: it has died.
    let mut said = String::new();
    let _ = BufReader::new(fs::File::from(ready)).read_line(&mut said);
    let report = StartReport::from_line(&said);
    if let Some(ready @ StartReport::Ready { .. }) = report {
        return Ok(ready);
    }
    let status = child.wait().map(|s| s.to_string()).unwrap_or_default();
    Ok(report.unwrap_or_else(|| StartReport::Failed {
        failure: StartFailure::Other,
        message: format!("it ended with {status} before it was ready"),
        hint: None,
    }))
}

/// The bridge that somebody else has started over the same storage, as soon as it answers; `None` if
/// nobody holds the storage.
fn other_bridge(place: &Place, instance: &Path, since: Instant) -> Result<Option<Bridge>, Fault> {
    loop {
        if let Some(bridge) = Bridge::find(place)? {
            return Ok(Some(bridge));
        }
        if !sys::is_locked(&instance.join(LOCK_FILE)) || since.elapsed() > OTHER_START {
            return Ok(None);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// All bridges of this user that answer, and those that speak another version.
pub fn all() -> Vec<Result<Bridge, AdminError>> {
    socket_dir()
        .into_iter()
        .flat_map(fs::read_dir)
        .flatten()
        .flatten()
        .filter_map(|entry| Bridge::at_socket(&entry.path()).transpose())
        .collect()
}

/// All bridges of this user that answer. Those that speak another version are named on standard error.
pub fn running() -> Vec<Bridge> {
    let mut found: Vec<Bridge> = all()
        .into_iter()
        .filter_map(|bridge| bridge.map_err(|e| Fault::from(e).tell(false)).ok())
        .collect();
    found.sort_by(|a, b| a.root.cmp(&b.root));
    found
}
