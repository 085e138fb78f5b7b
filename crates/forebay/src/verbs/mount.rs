//! `forebay mount` and `forebay umount`, and the process that serves the mount of a run.

use super::{PROGRAM, drain_command, own_command};
use crate::bridge::{Bridge, ROOT_HAS_MOVED};
use crate::cli::{self, exit};
use crate::error::{Fault, fault};
use crate::log_file;
use crate::looks;
use crate::place::{self, Place, plain};
use forebay_admin::{Verb, instance_dir};
use forebay_core::mounting::{MappedIds, Privilege};
use forebay_core::reserve::Purpose;
use forebay_core::restarts::Restarts;
use forebay_fuse::{Device, Server, server_of, unmount};
use forebay_sys as sys;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What a mount in the background says when it is there.
const READY: &str = "ready";
/// Longest time between two looks for a signal, which may come just before a wait begins.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Longest wait for the process of a mount, which has its bridge end.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// Refuses users who may not mount where others see it.
fn check_privilege() -> Result<(), Fault> {
    match looks::privilege() {
        Privilege::Root => Ok(()),
        Privilege::User => Err(fault("a mount that other processes see needs root").hint(
            "a mount for one command needs none: `forebay run --via mount -- CMD`, and `forebay attach` for further ones",
        )),
    }
}

fn device() -> Result<Device, Fault> {
    Device::open().map_err(|e| {
        fault(format!("/dev/fuse: {}", plain(&e.into())))
            .hint("load the kernel module: modprobe fuse")
    })
}

/// Checks a mount point, which must have nothing to do with the buffer directory: its drain goes there.
fn mountpoint(at: &Path, place: &Place) -> Result<PathBuf, Fault> {
    let shown = at.display();
    let at = fs::canonicalize(at).map_err(|e| fault(format!("{shown}: {}", plain(&e))))?;
    if !at.is_dir() {
        return Err(fault(format!("{shown} is not a directory")));
    }
    let instance = instance_dir(&place.storage, &place.root);
    for (dir, what) in [
        (&place.root, "the buffer directory"),
        (&instance, "the storage"),
    ] {
        if sys::is_within(&at, dir) || sys::is_within(dir, &at) {
            return Err(fault(format!("{shown} and {what} {} overlap", dir.display()))
                .hint("name a directory elsewhere; to have the buffer over its own directory, use `forebay run --via mount`"));
        }
    }
    Ok(at)
}

/// Runs the verb `mount`.
pub fn mount(args: &cli::MountArgs) -> Result<u8, Fault> {
    if !args.foreground {
        return in_background(args);
    }
    let ready = match args.ready_on_stdin {
        true => Some(sys::take_stdin().map_err(|e| fault("standard input").because(e))?),
        false => None,
    };
    let mut ready = ready.map(File::from);
    let served = serve_at_mountpoint(args, || {
        if let Some(mut pipe) = ready.take() {
            // Whoever has started it may be gone.
            let _ = writeln!(pipe, "{READY}");
        }
    });
    if let (Err(e), Some(mut pipe)) = (&served, ready) {
        let _ = writeln!(pipe, "{e}");
    }
    served
}

/// Starts the same verb in the background, and waits until the mount is there.
fn in_background(args: &cli::MountArgs) -> Result<u8, Fault> {
    check_privilege()?;
    let place = place::settle(&args.place)?;
    let at = mountpoint(&args.mountpoint, &place)?;
    let instance = instance_dir(&place.storage, &place.root);
    forebay_server::make_private(&instance).map_err(|e| fault(e.to_string()))?;
    let log_path = instance.join("mount.log");
    let failed = |e: std::io::Error| fault(format!("log {}: {}", log_path.display(), plain(&e)));
    let log = log_file::open(&log_path)?;
    let copy = log.try_clone().map_err(failed)?;
    let (reader, writer) = sys::pipe().map_err(|e| fault("cannot make a pipe").because(e))?;
    let mut command = own_command()?;
    command
        .current_dir("/")
        .args(["mount", "--foreground", "--ready-on-stdin", "--buffer"])
        .arg(&place.root)
        .arg("--storage")
        .arg(&place.storage)
        .arg(&at)
        .stdin(writer)
        .stdout(copy)
        .stderr(log);
    if let Some(dir) = &args.bridge.log_dir {
        command.arg("--log-dir").arg(dir);
    }
    if args.bridge.moved.root_has_moved {
        command.arg(ROOT_HAS_MOVED);
    }
    sys::in_new_session(&mut command);
    command
        .spawn()
        .map_err(|e| fault("cannot start the process of the mount").because(e))?;
    drop(command);
    let mut said = String::new();
    let _ = BufReader::new(File::from(reader)).read_line(&mut said);
    match said.trim_end() {
        READY => Ok(exit::OK),
        "" => Err(fault("the process of the mount has died")
            .hint(format!("its log is {}", log_path.display()))),
        why => Err(fault(why)),
    }
}

/// Mounts and serves until the mount is gone, or until it is told to end.
fn serve_at_mountpoint(args: &cli::MountArgs, ready: impl FnOnce()) -> Result<u8, Fault> {
    check_privilege()?;
    let place = place::settle(&args.place)?;
    let at = mountpoint(&args.mountpoint, &place)?;
    sys::watch_signals();
    sys::raise_descriptor_limit();
    let mut bridge = Bridge::attach(&place, &args.bridge, Verb::Mount, Purpose::Serve)?;
    let server = Server::new(device()?, bridge.socket(), None).map_err(|e| fault(e.to_string()))?;
    let done = sys::eventfd().map_err(|e| fault("eventfd").because(e))?;
    server
        .device()
        .mount_shared(&at)
        .map_err(|e| fault(format!("{}: {}", at.display(), plain(&e.into()))))?;
    ready();
    let served = std::thread::scope(|scope| {
        let serve = || {
            let served = server.serve();
            sys::notify(done.as_fd());
            served
        };
        let serving = match std::thread::Builder::new().spawn_scoped(scope, serve) {
            Ok(serving) => serving,
            Err(e) => {
                fault("start a thread").because(e).tell(false);
                let _ = unmount(&at, true);
                std::process::exit(exit::FAILURE.into());
            }
        };
        let watched = watch(&at, &place, args, &mut bridge, done.as_fd());
        if let Err(e) = watched {
            e.tell(false);
            // Programs that wait for an answer would wait for as long as the bridge is away. They get ENOTCONN.
            let _ = unmount(&at, true);
            std::process::exit(exit::FAILURE.into());
        }
        serving.join()
    });
    if let Ok(Err(e)) = served {
        return Err(fault(e.to_string()));
    }
    if bridge.control.inventory()?.is_dirty() {
        println!("what was written is in {}", place.storage.display());
        println!("to bring it to the PFS, run: {}", drain_command(&place));
    }
    bridge.detach()?;
    Ok(exit::OK)
}

/// Waits until nothing is served any more (`done`). Unmounts at a signal. A bridge that has died is started again.
fn watch(
    at: &Path,
    place: &Place,
    args: &cli::MountArgs,
    bridge: &mut Bridge,
    done: BorrowedFd<'_>,
) -> Result<(), Fault> {
    let begin = Instant::now();
    let mut restarts = Restarts::default();
    let mut signals = 0;
    let mut unmount_at_signal = || {
        let seen = sys::signals_seen();
        if std::mem::replace(&mut signals, seen) < seen {
            // It may be gone already, and this process waits only for files that are open.
            let _ = unmount(at, true);
        }
    };
    while !sys::is_readable(done) {
        let process = sys::Process::open(bridge.pid).ok();
        let Some(process) = process.filter(|process| !process.has_ended()) else {
            // If it was a child, its id stays taken until it is reaped.
            sys::reap(bridge.pid);
            let mut is_over = |pause: Duration| {
                let until = Instant::now() + pause;
                while !sys::is_readable(done) && Instant::now() < until {
                    unmount_at_signal();
                    sys::wait_any(&[done], LOOK_AGAIN);
                }
                sys::is_readable(done)
            };
            let deaths = (&mut restarts, begin);
            match Bridge::revive(place, &args.bridge, Verb::Mount, deaths, &mut is_over) {
                Ok(fresh) => *bridge = fresh,
                // Nobody needs it any more: it was unmounted.
                Err(_) => break,
            }
            continue;
        };
        unmount_at_signal();
        sys::wait_any(&[process.as_fd(), done], LOOK_AGAIN);
    }
    Ok(())
}

/// Says that no buffer is mounted at `at`, and where some are: a directory above one may have another name now.
fn not_mounted(at: &Path, shown: &str) -> Fault {
    let what = match fs::symlink_metadata(at) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => "is not there",
        _ => "is no mount of a buffer",
    };
    let points = sys::mount_points().into_iter();
    let shared = points.filter(|at| server_of(at).is_some_and(|server| server > 0));
    let shared: Vec<_> = shared.map(|at| at.display().to_string()).collect();
    let failed = fault(format!("{shown} {what}"));
    match shared.is_empty() {
        true => failed.hint("no buffer is mounted here"),
        false => failed.hint(format!("buffers are mounted at {}", shared.join(", "))),
    }
}

/// Runs the verb `umount`.
pub fn umount(args: &cli::UmountArgs) -> Result<u8, Fault> {
    let shown = args.mountpoint.display();
    // The last component is not looked up: a mount whose server has died gives only errors.
    let absolute = std::path::absolute(&args.mountpoint)
        .map_err(|e| fault(format!("{shown}: {}", plain(&e))))?;
    let parent = absolute.parent().map(fs::canonicalize);
    let at = match (parent, absolute.file_name()) {
        (Some(Ok(parent)), Some(name)) => parent.join(name),
        _ => absolute,
    };
    let Some(pid) = server_of(&at) else {
        return Err(not_mounted(&at, &shown.to_string()));
    };
    // If it has died, its number may be somebody else's.
    let name = sys::process_name(pid);
    let server = sys::Process::open(pid).ok().filter(|_| name == PROGRAM);
    unmount(&at, args.lazy).map_err(|e| {
        let failed = fault(format!("{shown}: {}", plain(&e.into())));
        match e {
            sys::Errno::BUSY => failed.hint("end those who use it, or use --lazy"),
            _ => failed,
        }
    })?;
    if let Some(server) = server.filter(|_| !args.lazy) {
        // So that a drain which follows need not share the bridge with it.
        sys::wait_any(&[server], LAST_WORDS);
    }
    Ok(exit::OK)
}

/// Runs the verb `serve-mount`: serves the mount of a run, until no process of its namespace is left.
pub fn serve(args: &cli::ServeMountArgs) -> Result<u8, Fault> {
    let device = sys::take_stdin().map_err(|e| fault("standard input").because(e))?;
    sys::raise_descriptor_limit();
    let (uid, gid) = sys::my_ids();
    let mapped = match looks::privilege() {
        Privilege::Root => None,
        Privilege::User => Some(MappedIds { uid, gid }),
    };
    let server = Server::new(Device::from(device), &args.socket, mapped)
        .map_err(|e| fault(e.to_string()))?;
    server.serve().map_err(|e| fault(e.to_string()))?;
    Ok(exit::OK)
}
