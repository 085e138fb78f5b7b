//! The bridge seen from the command line: find one, start one, ask it, end it.

use crate::cli::BridgeOptions;
use crate::error::{Fault, fault};
use crate::place::{Place, plain};
use anyhow::anyhow;
use forebay_admin::drain::Users;
use forebay_client::Client;
use forebay_server::Status;
use forebay_sys as sys;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// How long somebody else's bridge may take until it answers (it may have much to recover).
const OTHER_START: Duration = Duration::from_secs(30);
/// What a server says whose storage is taken. A look at the lock by another run is enough for that.
const IN_USE: &str = "another bridge is using";
/// How long a bridge may take until it says who it is.
const FIRST_ANSWER: Duration = Duration::from_secs(5);
/// Pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How long a bridge is meant to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// It ends with the last run that uses it.
    Run,
    /// Until `forebay down`.
    Stay,
}

/// A connection to a bridge that answers.
pub struct Bridge {
    client: Client,
    /// Its socket.
    pub socket: PathBuf,
    /// Where its data is.
    pub instance: PathBuf,
    /// Canonical buffer root.
    pub root: PathBuf,
    /// Its process.
    pub pid: u32,
    /// Was it started by this very process?
    pub is_ours: bool,
}

impl Bridge {
    /// Connects to the bridge behind a socket; `None` if nobody answers there. One of another version is a fault.
    pub fn at_socket(socket: &Path) -> Result<Option<Bridge>, Fault> {
        let Ok(mut client) = Client::connect(socket) else {
            return Ok(None);
        };
        // Who restarts a bridge is us: waiting for one that has died would be for nothing.
        client.set_patience(Duration::ZERO);
        // One that is stuck must not hold up what is asked of others.
        if client.set_answer_limit(FIRST_ANSWER).is_err() {
            return Ok(None);
        }
        let mut bridge = Bridge {
            client,
            socket: socket.to_owned(),
            instance: PathBuf::new(),
            root: PathBuf::new(),
            pid: 0,
            is_ours: false,
        };
        let since = Instant::now();
        let status: Status = match bridge.get(&json!({"cmd": "status"})) {
            Ok(status) => status,
            Err(failed) => {
                let cause = failed.cause.as_ref().and_then(|c| c.downcast_ref());
                if let Some(version @ forebay_client::Error::Version { .. }) = cause {
                    return Err(fault(version.to_string()));
                }
                if since.elapsed() >= FIRST_ANSWER {
                    eprintln!(
                        "forebay: the bridge behind {} has not answered for {} s; it may be stopped, or wait for its PFS",
                        socket.display(),
                        FIRST_ANSWER.as_secs()
                    );
                }
                return Ok(None);
            }
        };
        if bridge.client.set_answer_limit(Duration::ZERO).is_err() {
            return Ok(None);
        }
        bridge.root = status.root;
        bridge.instance = status.storage;
        bridge.pid = status.pid;
        Ok(Some(bridge))
    }

    /// The directory that `--storage` names.
    pub fn storage(&self) -> &Path {
        self.instance.parent().unwrap_or(&self.instance)
    }

    /// The running bridge of a buffer, if there is one.
    pub fn find(place: &Place) -> Result<Option<Bridge>, Fault> {
        let instance = forebay_server::instance_dir(&place.storage, &place.root);
        let socket = forebay_server::socket_path(&instance).map_err(|e| fault(e.to_string()))?;
        Bridge::at_socket(&socket)
    }

    /// Finds the bridge of a buffer or starts one.
    pub fn find_or_start(
        place: &Place,
        options: &BridgeOptions,
        lifetime: Lifetime,
    ) -> Result<Bridge, Fault> {
        match Bridge::find(place)? {
            Some(bridge) => Ok(bridge),
            None => Bridge::start(place, options, lifetime),
        }
    }

    /// Finds or starts the bridge of a buffer and makes it live at least as long as this process
    /// needs it: until [`Bridge::detach`].
    pub fn attach(place: &Place, options: &BridgeOptions) -> Result<Bridge, Fault> {
        loop {
            let mut bridge = Bridge::find_or_start(place, options, Lifetime::Run)?;
            // Before it is asked, or it could be gone and its id be somebody else's.
            let process = sys::Process::open(bridge.pid).ok();
            let users: Users = bridge.get(&json!({"cmd": "attach", "pid": std::process::id()}))?;
            if !users.ending {
                return Ok(bridge);
            }
            // Another run was its last one. It is on its way out; the next one is ours.
            drop(bridge);
            if let Some(process) = process {
                process.await_end();
            }
        }
    }

    /// This process needs it no more. If nobody else does and it was not told to stay, it ends.
    pub fn detach(mut self) -> Result<(), Fault> {
        let process = sys::Process::open(self.pid).ok();
        let users: Users = self.get(&json!({"cmd": "detach", "pid": std::process::id()}))?;
        drop(self.client);
        if users.ending
            && let Some(process) = process
        {
            process.await_end();
        }
        Ok(())
    }

    fn start(place: &Place, options: &BridgeOptions, lifetime: Lifetime) -> Result<Bridge, Fault> {
        one_storage_only(place)?;
        let instance = forebay_server::instance_dir(&place.storage, &place.root);
        make_private(&instance)?;
        let log_path = match &options.log_dir {
            Some(dir) => {
                fs::create_dir_all(dir)
                    .map_err(|e| fault(format!("--log-dir {}: {}", dir.display(), plain(&e))))?;
                dir.join("bridge.log")
            }
            None => instance.join("bridge.log"),
        };
        let started = Instant::now();
        loop {
            // Another run may be starting one, or the last one is just ending.
            if let Some(bridge) = other_bridge(place, &instance, started)? {
                return Ok(bridge);
            }
            let said = match try_start(place, options, lifetime, &log_path)? {
                None => break,
                Some(said) => said,
            };
            if !(said.contains(IN_USE) && started.elapsed() < OTHER_START) {
                return Err(fault(format!("the bridge did not start: {said}"))
                    .hint(format!("its log is {}", log_path.display())));
            }
        }
        let mut bridge = Bridge::find(place)?.ok_or_else(|| {
            fault("the bridge has started but does not answer")
                .hint(format!("its log is {}", log_path.display()))
        })?;
        bridge.is_ours = true;
        Ok(bridge)
    }

    /// Is its process there?
    pub fn is_alive(&self) -> bool {
        sys::Process::open(self.pid).is_ok_and(|process| !process.has_ended())
    }

    /// Waits for the end of the bridge or of a program; true if the bridge was first.
    pub fn dies_before(&self, program: &sys::Process) -> bool {
        match sys::Process::open(self.pid) {
            Ok(bridge) => bridge.ends_before(program),
            // Dead already.
            Err(_) => !program.has_ended(),
        }
    }

    /// Asks and takes the answer apart.
    pub fn ask(&mut self, command: &Value) -> Result<Value, Fault> {
        let name = command["cmd"].as_str().unwrap_or_default().to_owned();
        let failed = |cause: anyhow::Error| {
            fault(format!("the bridge does not answer to `{name}`: {cause}"))
                .because(cause)
                .hint("`forebay status` shows which bridges run")
        };
        let bytes = self
            .client
            .admin(command.to_string())
            .map_err(|e| failed(anyhow!(e)))?;
        let answer: Value = serde_json::from_slice(&bytes).map_err(|e| failed(anyhow!(e)))?;
        match answer["error"].as_str() {
            Some(error) => Err(fault(format!("the bridge refuses `{name}`: {error}"))),
            None => Ok(answer),
        }
    }

    /// Asks for something of a known form.
    pub fn get<T: DeserializeOwned>(&mut self, command: &Value) -> Result<T, Fault> {
        let answer = self.ask(command)?;
        serde_json::from_value(answer).map_err(|e| {
            fault(format!(
                "the bridge's answer to {} is damaged",
                command["cmd"]
            ))
            .because(e)
        })
    }

    /// Ends the bridge and waits until its process is gone.
    pub fn stop(mut self) -> Result<(), Fault> {
        // Before it is asked, or it could be gone and its id be somebody else's.
        let process = sys::Process::open(self.pid).ok();
        self.ask(&json!({"cmd": "stop"}))?;
        drop(self.client);
        if let Some(process) = process {
            process.await_end();
        }
        Ok(())
    }
}

/// Two bridges over one directory would not know of each other.
fn one_storage_only(place: &Place) -> Result<(), Fault> {
    match running().iter().find(|bridge| bridge.root == place.root) {
        Some(other) if other.storage() != place.storage => Err(fault(format!(
            "a bridge with its storage in {} runs over {} already",
            other.storage().display(),
            place.root.display()
        ))
        .hint("name that storage, or none at all; or end it with `forebay down` first")),
        _ => Ok(()),
    }
}

fn make_private(instance: &Path) -> Result<(), Fault> {
    use std::os::unix::fs::DirBuilderExt;
    match fs::DirBuilder::new().mode(0o700).create(instance) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(fault(format!("{}: {}", instance.display(), plain(&e))))
        }
        _ => Ok(()),
    }
}

/// Starts the server process; the descriptor tells how that went.
fn spawn(
    place: &Place,
    options: &BridgeOptions,
    lifetime: Lifetime,
    log_path: &Path,
) -> Result<(Child, OwnedFd), Fault> {
    let failed = |e| fault(format!("log {}: {}", log_path.display(), plain(&e)));
    let log = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(log_path)
        .map_err(failed)?;
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
        .args(["--mode", options.mode.name()])
        .arg("--ready-on-stdin")
        // A bridge under a buffer would be its own client.
        .env_remove("LD_PRELOAD")
        .current_dir("/")
        .stdin(writer)
        .stdout(copy)
        .stderr(log);
    if lifetime == Lifetime::Stay {
        command.arg("--stay");
    }
    sys::in_new_session(&mut command);
    let child = command
        .spawn()
        .map_err(|e| fault("cannot start the bridge process").because(e))?;
    Ok((child, ready))
}

/// Starts the server process and waits until it serves; if it does not, says why.
fn try_start(
    place: &Place,
    options: &BridgeOptions,
    lifetime: Lifetime,
    log_path: &Path,
) -> Result<Option<String>, Fault> {
    let (mut child, ready) = spawn(place, options, lifetime, log_path)?;
    // One line: "ready", or why not. End of file without one: it has died.
    let mut said = String::new();
    let _ = BufReader::new(fs::File::from(ready)).read_line(&mut said);
    if said.trim_end() == "ready" {
        return Ok(None);
    }
    let status = child.wait().map(|s| s.to_string()).unwrap_or_default();
    Ok(Some(match said.trim_end() {
        "" => format!("it ended with {status} before it was ready"),
        said => said.to_owned(),
    }))
}

/// The bridge that somebody else has started over the same storage, as soon as it answers; `None` if
/// nobody holds the storage.
fn other_bridge(place: &Place, instance: &Path, since: Instant) -> Result<Option<Bridge>, Fault> {
    loop {
        if let Some(bridge) = Bridge::find(place)? {
            return Ok(Some(bridge));
        }
        if !sys::is_locked(&instance.join("lock")) || since.elapsed() > OTHER_START {
            return Ok(None);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// All bridges of this user that answer.
pub fn running() -> Vec<Bridge> {
    let mut found: Vec<Bridge> = forebay_server::socket_dir()
        .into_iter()
        .flat_map(fs::read_dir)
        .flatten()
        .flatten()
        .filter_map(|entry| {
            Bridge::at_socket(&entry.path()).unwrap_or_else(|other_version| {
                other_version.tell(false);
                None
            })
        })
        .collect();
    found.sort_by(|a, b| a.root.cmp(&b.root));
    found
}
