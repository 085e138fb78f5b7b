//! The bridge seen from the command line: find one, start one, ask it, end it.

use crate::cli::BridgeOptions;
use crate::error::{Fault, fault};
use crate::place::{Place, plain};
use crate::sys;
use anyhow::anyhow;
use forebay_client::Client;
use forebay_server::Status;
use forebay_server::mover::protocol::Users;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
    /// Connects to the bridge behind a socket; `None` if nobody answers there.
    pub fn at_socket(socket: &Path) -> Option<Bridge> {
        let client = Client::connect(socket).ok()?;
        let mut bridge = Bridge {
            client,
            socket: socket.to_owned(),
            instance: PathBuf::new(),
            root: PathBuf::new(),
            pid: 0,
            is_ours: false,
        };
        let status: Status = bridge.get(&json!({"cmd": "status"})).ok()?;
        bridge.root = status.root;
        bridge.instance = status.storage;
        bridge.pid = status.pid;
        Some(bridge)
    }

    /// The running bridge of a buffer, if there is one.
    pub fn find(place: &Place) -> Result<Option<Bridge>, Fault> {
        let instance = forebay_server::instance_dir(&place.storage, &place.root);
        let socket = forebay_server::socket_path(&instance).map_err(|e| fault(e.to_string()))?;
        Ok(Bridge::at_socket(&socket))
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
            let process = sys::Process::open(bridge.pid);
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
        let process = sys::Process::open(self.pid);
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
        let instance = forebay_server::instance_dir(&place.storage, &place.root);
        let log_dir = options.log_dir.as_ref().unwrap_or(&instance);
        fs::create_dir_all(&instance)
            .and_then(|()| fs::create_dir_all(log_dir))
            .map_err(|e| fault(format!("{}: {}", log_dir.display(), plain(&e))))?;
        let log_path = log_dir.join("bridge.log");
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log_path)
            .map_err(|e| fault(format!("log {}: {}", log_path.display(), plain(&e))))?;
        let exe = std::env::current_exe()
            .map_err(|e| fault("cannot find my own executable").because(e))?;
        let (ready, writer) =
            sys::ready_pipe().map_err(|e| fault("cannot make a pipe").because(e))?;
        let log_copy = log
            .try_clone()
            .map_err(|e| fault("cannot duplicate a descriptor").because(e))?;
        let mut command = Command::new(exe);
        command
            .arg("bridge")
            .arg("--root")
            .arg(&place.root)
            .arg("--storage")
            .arg(&place.storage)
            .args(["--mode", options.mode.name()])
            .arg("--ready-fd")
            .arg(std::os::fd::AsRawFd::as_raw_fd(&writer).to_string())
            // A bridge under a buffer would be its own client.
            .env_remove("LD_PRELOAD")
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log_copy)
            .stderr(log);
        if lifetime == Lifetime::Stay {
            command.arg("--stay");
        }
        sys::in_new_session(&mut command);
        let child = command
            .spawn()
            .map_err(|e| fault("cannot start the bridge process").because(e))?;
        drop(writer);
        // One line: "ready", or why not. End of file without one: it has died.
        let mut said = String::new();
        let _ = BufReader::new(fs::File::from(ready)).read_line(&mut said);
        let said = said.trim_end();
        if said != "ready" {
            let mut child = child;
            let status = child.wait().map(|s| s.to_string()).unwrap_or_default();
            // Another run was faster: its bridge is as good as ours.
            if let Ok(Some(bridge)) = Bridge::find(place) {
                return Ok(bridge);
            }
            let said = if said.is_empty() {
                format!("it ended with {status} before it was ready")
            } else {
                said.to_owned()
            };
            return Err(fault(format!("the bridge did not start: {said}"))
                .hint(format!("its log is {}", log_path.display())));
        }
        let mut bridge = Bridge::find(place)?.ok_or_else(|| {
            fault("the bridge has started but does not answer")
                .hint(format!("its log is {}", log_path.display()))
        })?;
        bridge.is_ours = true;
        Ok(bridge)
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
        let process = sys::Process::open(self.pid);
        self.ask(&json!({"cmd": "stop"}))?;
        drop(self.client);
        if let Some(process) = process {
            process.await_end();
        }
        Ok(())
    }
}

/// All bridges of this user that answer.
pub fn running() -> Vec<Bridge> {
    let mut found: Vec<Bridge> = forebay_server::socket_dir()
        .into_iter()
        .flat_map(fs::read_dir)
        .flatten()
        .flatten()
        .filter_map(|entry| Bridge::at_socket(&entry.path()))
        .collect();
    found.sort_by(|a, b| a.root.cmp(&b.root));
    found
}
