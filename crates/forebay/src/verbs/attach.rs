//! `forebay attach`: runs a command in a buffer that is in use, from another shell or launcher.

use crate::bridge::{self, Bridge};
use crate::cli;
use crate::error::{Fault, fault};
use crate::outfit::Outfit;
use crate::owner::{Owner, owner};
use crate::place::{self, plain};
use crate::{program, reception, recorder};
use forebay_admin::{LifetimeStatus, Verb, instance_dir};
use forebay_count::ENV_RECORD_DIR;
use forebay_sys as sys;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Runs the verb. Returns only if the command is not started: this process becomes it.
pub fn attach(args: &cli::AttachArgs) -> Result<u8, Fault> {
    let (program, arguments) = args
        .command
        .split_first()
        .ok_or_else(|| fault("no command"))?;
    let (root, alias) = place::buffer_root(&args.place.buffer)?;
    let mut bridge = find(&root, args.place.storage.as_deref())?;
    let mut outfit = join(args, &root, &mut bridge)?;
    if let Some(alias) = alias.filter(|_| !outfit.is_mounted) {
        outfit.set(forebay_wire::ENV_ALIAS, alias.clone());
        outfit.alias = Some(alias);
    }
    // A command of the run itself may attach, too: the recorder around it is that of the run.
    let around = std::env::var_os(ENV_RECORD_DIR);
    let is_own = |(name, dir): &(OsString, Option<OsString>)| {
        name == OsStr::new(ENV_RECORD_DIR) && *dir == around
    };
    if recorder::is_recorded_already() && !outfit.variables.iter().any(is_own) {
        eprintln!(
            "forebay: a recorder around this command records it, and the log of the run does not have it"
        );
        outfit
            .variables
            .retain(|(name, _)| name != OsStr::new(ENV_RECORD_DIR));
    }
    outfit.enter()?;
    let command = outfit.command(program, arguments);
    let (code, message) = program::become_it(command);
    eprintln!("forebay: {message}");
    Ok(code)
}

/// The outfit of the run that is to be joined, or one for a bridge that stays without a run.
fn join(args: &cli::AttachArgs, root: &Path, bridge: &mut Bridge) -> Result<Outfit, Fault> {
    let ends = || {
        fault(format!(
            "the buffer over {} is about to end and takes nobody any more",
            root.display()
        ))
        .hint(
            "a run can be joined until its command has ended; start another one with `forebay run`",
        )
    };
    let life = bridge.control.lifetime()?;
    let Some(run) = chosen(args, root, bridge, &life)? else {
        if !life.stay || life.ending {
            return Err(ends());
        }
        // It stays at least as long as this process, which is about to become the command.
        if bridge
            .control
            .attach(std::process::id(), Verb::Attach)?
            .ending
        {
            return Err(ends());
        }
        let mut outfit = Outfit {
            root: root.to_owned(),
            alias: None,
            libraries: vec![place::preload_library()?],
            variables: Vec::new(),
            namespaces: Vec::new(),
            is_mounted: false,
        };
        outfit.point_to(bridge.socket(), &bridge.instance, bridge.devices());
        return Ok(outfit);
    };
    let words = args.command.iter();
    let words = words.map(|word| word.to_string_lossy().into_owned());
    let joined = reception::join(bridge.socket(), run, words.collect())?;
    joined.ok_or_else(ends)
}

/// The run to join; `None` if there is none that takes anybody.
fn chosen(
    args: &cli::AttachArgs,
    root: &Path,
    bridge: &Bridge,
    life: &LifetimeStatus,
) -> Result<Option<u32>, Fault> {
    let open = life.runs.iter().copied();
    let open: Vec<u32> = open
        .filter(|run| reception::is_open(bridge.socket(), *run))
        .collect();
    let shown = root.display();
    match (args.run, open.as_slice()) {
        (Some(run), open) if open.contains(&run) => Ok(Some(run)),
        (Some(run), _) => Err(fault(format!(
            "process {run} is no run over {shown} whose command still runs"
        ))),
        (None, []) => Ok(None),
        (None, [run]) => Ok(Some(*run)),
        (None, several) => {
            let list: Vec<_> = several.iter().map(u32::to_string).collect();
            Err(fault(format!(
                "{} runs use the buffer over {shown}: processes {}",
                several.len(),
                list.join(", ")
            ))
            .hint("choose one with --run PID"))
        }
    }
}

/// The bridge over `root`. Says why there is none for this user on this node.
fn find(root: &Path, storage: Option<&Path>) -> Result<Bridge, Fault> {
    let shown = root.display();
    let instance = match (storage, owner(root)) {
        (Some(storage), _) => {
            let storage = fs::canonicalize(storage)
                .map_err(|e| fault(format!("storage {}: {}", storage.display(), plain(&e))))?;
            instance_dir(&storage, root)
        }
        (None, Owner::Mine(claim)) => PathBuf::from(OsStr::from_bytes(&claim.instance)),
        (None, Owner::Nobody) => {
            let mut running = bridge::running().into_iter();
            let found = running.find(|bridge| bridge.root == root);
            return found.ok_or_else(|| nobody(root))?.over_same_directory();
        }
        (None, Owner::Unknown) => {
            return Err(fault(format!(
                "the buffer over {shown} is of another version of forebay"
            ))
            .hint("use the `forebay` with which it was started"));
        }
        (None, Owner::Elsewhere(claim)) => {
            let host = String::from_utf8_lossy(&claim.host);
            return Err(fault(format!("the buffer over {shown} is on node {host}"))
                .hint("run the same command there"));
        }
        (None, Owner::OtherUser(claim)) => {
            let user = sys::user_name(claim.uid).unwrap_or_else(|| claim.uid.to_string());
            return Err(
                fault(format!("the buffer over {shown} belongs to user {user}"))
                    .hint("only its own user can join it"),
            );
        }
    };
    Bridge::at_instance(root, &instance)?.ok_or_else(|| nobody(root))
}

fn nobody(root: &Path) -> Fault {
    fault(format!("no bridge runs over {}", root.display()))
        .hint("`forebay run` or `forebay up` starts one; `forebay status` lists those that run")
}
