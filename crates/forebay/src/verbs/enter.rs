//! The mount of a run. A child of the run makes namespaces of its own, mounts in there, and becomes the command. It hands
//! the connection to the kernel and the namespaces back, and the run starts the process that serves the mount, outside.

use super::own_command;
use crate::cli::{self, exit};
use crate::error::{Fault, fault};
use crate::looks;
use crate::outfit::{self, Namespaces};
use crate::place::plain;
use crate::program;
use forebay_core::mounting::{MountTrouble, Privilege};
use forebay_fuse::Device;
use forebay_sys::{self as sys, Namespace};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command};

/// The message with which the descriptors come. Any other is the reason why there are none.
const MOUNTED: &[u8] = b"mounted";
/// Longest reason in bytes.
const MAX_REASON_BYTES: usize = 4096;

/// A command in a mount of its own.
pub struct Entered {
    /// Its process.
    pub child: Child,
    /// Where it is.
    pub namespaces: Namespaces,
}

/// Starts `command` with a mount over `root` that it and its descendants see, and the process that serves it. That one is not a
/// child of the command, which may wait for all of its children. The error is an exit code and a message.
pub fn spawn(command: &Command, root: &Path, socket: &Path) -> Result<Entered, (u8, String)> {
    let failed = |what: &str, e: std::io::Error| {
        let text = format!("{what}: {}", plain(&e));
        (exit::NOT_STARTED, text)
    };
    let refused = |e: Fault| (exit::NOT_STARTED, e.message);
    let (ours, theirs) = sys::message_pair().map_err(|e| failed("a socket", e.into()))?;
    let keeper = sys::pass_on(theirs.as_fd()).map_err(|e| failed("a descriptor", e.into()))?;
    let mut enter = own_command().map_err(refused)?;
    enter
        .args(["enter", "--keeper", &keeper.to_string(), "--root"])
        .arg(root);
    for (name, value) in command.get_envs() {
        match (name.to_str(), value) {
            // It is for the command, not for this program.
            (Some("LD_PRELOAD"), Some(list)) => {
                enter.arg("--preload").arg(list);
            }
            (_, Some(value)) => {
                enter.env(name, value);
            }
            (_, None) => {
                enter.env_remove(name);
            }
        }
    }
    enter
        .arg("--")
        .arg(command.get_program())
        .args(command.get_args());
    let mut child = program::spawn(enter)?;
    drop(theirs);
    let (device, namespaces) = match receive(ours.as_fd()) {
        Ok(received) => received,
        Err(why) => {
            // It ends by itself: it has nothing else to do.
            let _ = child.wait();
            return Err((exit::NOT_STARTED, why));
        }
    };
    let mut server = own_command().map_err(refused)?;
    server
        .current_dir("/")
        .args(["serve-mount", "--socket"])
        .arg(socket)
        .stdin(device);
    sys::in_new_session(&mut server);
    // Without it the command gets ENOTCONN.
    if let Err(e) = server.spawn() {
        eprintln!("forebay: {}", failed("the server of the mount", e).1);
    }
    Ok(Entered { child, namespaces })
}

/// Waits for what the child has mounted: the connection to the kernel, and the namespaces. The error is its reason.
fn receive(socket: BorrowedFd<'_>) -> Result<(OwnedFd, Namespaces), String> {
    let mut room = [0; MAX_REASON_BYTES];
    let died = "the process that mounts the buffer has died";
    let (len, descriptors) = sys::receive_descriptors(socket, &mut room)
        .map_err(|e| format!("the mount: {}", plain(&e.into())))?;
    let mut descriptors = descriptors.into_iter();
    match (&room[..len], descriptors.next(), descriptors.next()) {
        (MOUNTED, Some(device), Some(mounts)) => {
            let users = descriptors.next();
            Ok((device, Namespaces { mounts, users }))
        }
        (b"" | MOUNTED, ..) => Err(died.to_owned()),
        (why, ..) => Err(String::from_utf8_lossy(why).into_owned()),
    }
}

/// Mounts, and hands over what the run needs.
fn mount(root: &Path, keeper: BorrowedFd<'_>) -> Result<(), Fault> {
    let privilege = looks::privilege();
    let as_user = privilege == Privilege::User;
    let device = Device::mount_private(root, as_user).map_err(|refused| {
        let trouble = looks::trouble(refused);
        let remedy = trouble.remedy(privilege, &looks::namespace_settings());
        let hint = match trouble {
            MountTrouble::Other(_) => remedy,
            _ => format!("{remedy}; or use --via preload"),
        };
        let (shown, why) = (root.display(), trouble.in_words());
        fault(format!("cannot mount the buffer over {shown}: {why}")).hint(hint)
    })?;
    let own = |about| {
        sys::own_namespace(about).map_err(|e| fault(format!("/proc/self/ns: {}", plain(&e.into()))))
    };
    let mounts = own(Namespace::Mounts)?;
    let users = as_user.then(|| own(Namespace::Users)).transpose()?;
    let mut all = vec![device.as_fd(), mounts.as_fd()];
    all.extend(users.as_ref().map(OwnedFd::as_fd));
    // The connection ends when its server does: it stays open nowhere else, and then nobody waits for answers.
    sys::send_descriptors(keeper, MOUNTED, &all).map_err(|e| {
        fault(format!(
            "cannot tell that the mount is there: {}",
            plain(&e.into())
        ))
    })
}

/// Runs the verb `enter`.
///
/// # Errors
/// The command cannot be started in its working directory.
pub fn enter(args: &cli::EnterArgs) -> Result<u8, Fault> {
    let keeper = sys::inherited_descriptor(args.keeper)
        .map_err(|e| fault("the socket of the run").because(e))?;
    let working_directory = std::env::current_dir();
    if let Err(e) = mount(&args.root, keeper.as_fd()) {
        let hint = e.hint.map(|hint| format!("\n  hint: {hint}"));
        let text = e.message + &hint.unwrap_or_default();
        let text = &text.as_bytes()[..text.len().min(MAX_REASON_BYTES)];
        // If the run is gone, nobody wants to know.
        let _ = sys::send_descriptors(keeper.as_fd(), text, &[]);
        return Ok(exit::NOT_STARTED);
    }
    drop(keeper);
    // The kernel gives its root to user 0 until it has asked for the owner, and lets nobody create in a directory whose owner has
    // no number in a user namespace. If there is no answer, the command hears so as well.
    let _ = std::fs::metadata(&args.root);
    if let Ok(path) = working_directory {
        outfit::settle_in(&path)?;
    }
    let (program, arguments) = args
        .command
        .split_first()
        .ok_or_else(|| fault("no command"))?;
    let mut command = Command::new(program);
    command.args(arguments);
    if let Some(list) = &args.preload {
        command.env("LD_PRELOAD", list);
    }
    let (code, message) = program::become_it(command);
    eprintln!("forebay: {message}");
    Ok(code)
}
