//! `forebay status`: lists the running bridges and what their buffers hold.

use crate::background::{self, Background};
use crate::bridge::{self, Bridge, Outlook};
use crate::cli::{self, exit};
use crate::error::Fault;
use crate::place;
use crate::run_report::storage_text;
use crate::verbs::shell_path;
use crate::{recorder, units};
use forebay_admin::drain::{DrainState, DrainStatus, Inventory};
use forebay_admin::{AdminError, LifetimeStatus, Status};
use forebay_core::claim::{self, Claim};
use forebay_report::text::printable;
use forebay_sys as sys;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Runs the verb.
pub fn status(args: &cli::StatusArgs) -> Result<u8, Fault> {
    let only = match &args.buffer {
        Some(buffer) => Some(place::buffer_root(buffer)?.0),
        None => None,
    };
    let mut all = Vec::new();
    let mut strange = 0;
    for bridge in bridge::all() {
        let mut bridge = match bridge {
            Ok(bridge) => bridge,
            Err(e) => {
                eprintln!("forebay: {e}");
                strange += 1;
                continue;
            }
        };
        if only.as_ref().is_none_or(|root| *root == bridge.root) {
            if only.is_some() {
                bridge = bridge.over_same_directory()?;
            }
            // A bridge that ends just now is left out.
            if let Ok(state) = Snapshot::of(&mut bridge) {
                all.push((bridge, state));
            }
        }
    }
    all.sort_by(|(a, _), (b, _)| a.root.cmp(&b.root));
    recorder::tell_left();
    let mut ended = ended(args, only.as_deref());
    // What has a bridge is shown with it.
    ended.retain(|(instance, _)| all.iter().all(|(bridge, _)| bridge.instance != *instance));
    let ended: Vec<_> = ended.into_iter().map(|(_, run)| run).collect();
    let unserved = only
        .as_deref()
        .filter(|_| all.is_empty())
        .and_then(Unserved::over);
    if args.json {
        let list: Vec<Value> = all.iter().map(|(b, s)| s.json(b)).collect();
        let unserved = unserved.as_ref().map(Unserved::json);
        println!(
            "{:#}",
            json!({ "bridges": list, "ended": ended, "unserved": unserved })
        );
        return Ok(exit::OK);
    }
    if all.is_empty() && strange > 0 {
        println!("no bridge runs that this program understands");
    } else if all.is_empty() && unserved.as_ref().is_none_or(|it| it.process.is_none()) {
        println!("no bridge runs");
    }
    if let Some(unserved) = &unserved {
        println!("{}", unserved.text());
    }
    for (bridge, state) in &all {
        print!("{}", state.text(bridge));
    }
    for run in &ended {
        println!("{}\n  ended     {}", run.root.display(), run.text());
    }
    Ok(exit::OK)
}

/// What became of processes that runs have left in the background, by instance directory.
fn ended(args: &cli::StatusArgs, only: Option<&Path>) -> Vec<(PathBuf, Background)> {
    let storages = match &args.storage {
        Some(storage) => vec![storage.clone()],
        None => place::storage_candidates()
            .into_iter()
            .map(|(_, dir)| dir)
            .collect(),
    };
    let mut found: Vec<_> = storages
        .iter()
        .flat_map(|dir| background::all_in(dir))
        .filter(|(_, run)| only.is_none_or(|root| root == run.root))
        .collect();
    // Two variables may name one storage.
    let key =
        |(instance, run): &(PathBuf, Background)| (run.root.clone(), instance.clone(), run.keeper);
    found.sort_by_key(key);
    found.dedup_by_key(|one| key(one));
    found
}

/// A buffer over a directory that is locked for it, although no bridge answers for it here: its storage may hold something.
struct Unserved {
    root: PathBuf,
    storage: PathBuf,
    host: String,
    /// Who has made the lock.
    uid: u32,
    /// The bridge, if that runs: it is one of another user.
    process: Option<u32>,
}

impl Unserved {
    fn over(root: &Path) -> Option<Unserved> {
        let dir = sys::open_path(root, libc::O_PATH | libc::O_DIRECTORY).ok()?;
        let claim = Claim::from_text(&sys::readlink(dir.as_fd(), claim::NAME).ok()?)?;
        let instance = Path::new(OsStr::from_bytes(&claim.instance));
        Some(Unserved {
            root: root.to_owned(),
            storage: instance.parent()?.to_owned(),
            host: String::from_utf8_lossy(&claim.host).into_owned(),
            uid: claim.uid,
            process: forebay_server::is_served(&claim).then_some(claim.pid),
        })
    }

    fn json(&self) -> Value {
        json!({ "storage": self.storage, "host": self.host, "uid": self.uid, "process": self.process })
    }

    fn text(&self) -> String {
        let path = |path: &Path| shell_path(path.as_os_str().as_bytes());
        let storage = printable(self.storage.as_os_str().as_bytes());
        let (root, uid) = (self.root.display(), self.uid);
        match self.process {
            // It would have answered.
            Some(process) if uid == sys::my_ids().0 => {
                format!("{root}\n  its bridge (process {process}) begins or ends just now")
            }
            Some(process) => format!(
                "{root}\n  served by the bridge of user {uid} (process {process}), with its storage in {storage}\n  only that user can ask it: forebay status --buffer {}",
                path(&self.root),
            ),
            None => format!(
                "{root}\n  locked for the buffer of user {uid} in {storage} on {}, which may hold what the PFS does not have\n  to bring it to the PFS, run there as that user: forebay drain --buffer {} --storage {}",
                printable(self.host.as_bytes()),
                path(&self.root),
                path(&self.storage),
            ),
        }
    }
}

/// Everything that one bridge reports about itself.
struct Snapshot {
    server: Status,
    lifetime: LifetimeStatus,
    inventory: Inventory,
    drain: DrainStatus,
}

impl Snapshot {
    fn of(bridge: &mut Bridge) -> Result<Self, AdminError> {
        let control = &mut bridge.control;
        Ok(Snapshot {
            server: control.status()?,
            lifetime: control.lifetime()?,
            inventory: control.inventory()?,
            drain: control.drain_status()?,
        })
    }

    fn json(&self, bridge: &Bridge) -> Value {
        let (size, free) = sys::space(&bridge.instance).unwrap_or_default();
        json!({
            "buffer": bridge.root.to_string_lossy(),
            "pid": bridge.pid,
            "socket": bridge.socket().to_string_lossy(),
            "instance": bridge.instance.to_string_lossy(),
            "storage_size_bytes": size,
            "storage_free_bytes": free,
            "server": self.server,
            "users": self.lifetime,
            "inventory": self.inventory,
            "drain": self.drain,
            "background": Background::all(&bridge.instance),
        })
    }

    fn text(&self, bridge: &Bridge) -> String {
        let inv = &self.inventory;
        let life = match (self.lifetime.stay, self.lifetime.runs.len()) {
            (true, 0) => "stays until `forebay down`".to_owned(),
            (true, n) => format!("stays; used by {}", units::count(n as u64, "run", "runs")),
            (false, n) => format!("ends with {}", units::count(n as u64, "run", "runs")),
        };
        let drain = match self.drain.state {
            DrainState::Running => format!(
                "\n  draining  {}/{} files, {} of {}",
                self.drain.files_done,
                self.drain.files_total,
                units::bytes(self.drain.bytes_done),
                units::bytes(self.drain.bytes_total)
            ),
            _ => String::new(),
        };
        let runs = Background::all(&bridge.instance).into_iter();
        let background: String = runs
            .map(|run| format!("\n  goes on   {}", run.text()))
            .collect();
        // Only then: the directory may be on a file system that hangs.
        let here = match bridge.sees_other_mounts() && bridge.outlook() != Outlook::Same {
            true => {
                "\n  here      this path is another directory than for the bridge, which sees other mounts"
            }
            false => "",
        };
        format!(
            "{}\n  process   {} ({life})\n  storage   {}\n  dirty     {}, {}; {} to rename, {} to remove\n  copies    {}, {} that are on the PFS, too{drain}{background}{here}\n",
            bridge.root.display(),
            bridge.pid,
            storage_text(bridge.instance.parent().unwrap_or(&bridge.instance)),
            units::count(inv.dirty_files, "file", "files"),
            units::bytes(inv.dirty_bytes),
            inv.renamed,
            inv.removed,
            units::count(inv.clean_files, "file", "files"),
            units::bytes(inv.clean_bytes),
        )
    }
}
