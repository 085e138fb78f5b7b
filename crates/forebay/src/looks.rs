//! Looks at what this node can do, and tries it. `core::doors` judges what is found.

use crate::bridge::Bridge;
use crate::error::{Fault, fault};
use crate::owner::{Owner, owner};
use crate::place::{self, plain};
use crate::verbs::own_command;
use crate::{cli, recorder};
use forebay_admin::socket_dir;
use forebay_core::doors::{Buffer, DoorChoice, Holder, NodeFacts, Storage, choose};
use forebay_core::mounting::{MountTrial, MountTrouble, NamespaceSettings, Privilege};
use forebay_fuse::{Refused, Trial};
use forebay_sys::{self as sys, Errno};
use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a trial says if all is well.
const WELL: &str = "well";

/// Looks at everything. `buffer` and `storage` are what the user has named.
pub fn facts(buffer: Option<&Path>, storage: Option<&Path>) -> NodeFacts {
    let root = buffer.map(place::buffer_root);
    let known = root.as_ref().and_then(|root| root.as_ref().ok());
    let known = known.map(|(root, _)| root.as_path());
    let storage = place::storage_for(storage, known).map_err(|e| e.message);
    let mount = match &storage {
        Ok(storage) => mount(storage),
        Err(_) => mount(&std::env::temp_dir()),
    };
    NodeFacts {
        uid: sys::my_ids().0,
        kernel: sys::kernel_version(),
        storage: storage.and_then(|path| storage_at(&path).map_err(|e| cannot(&path, e))),
        sockets: sockets(),
        library: library(),
        tables: recorder::base()
            .map(|dir| dir.display().to_string())
            .map_err(|e| e.message),
        mount,
        fusermount: fusermount(),
        user_namespace: tried(&["namespace"]).map(drop),
        namespace_settings: namespace_settings(),
        descriptors: sys::descriptor_limits(),
        file_bytes: sys::file_size_limit(),
        buffer: root.map(|root| {
            let (root, _) = root.map_err(|e| e.message)?;
            buffer_at(&root).map_err(|e| cannot(&root, e))
        }),
    }
}

/// The settings that may forbid a user namespace.
pub fn namespace_settings() -> NamespaceSettings {
    let setting = |name: &str| -> Option<u64> {
        let text = fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?;
        text.trim().parse().ok()
    };
    NamespaceSettings {
        userns_clone: setting("kernel/unprivileged_userns_clone"),
        max_user_namespaces: setting("user/max_user_namespaces"),
        apparmor_restricts: setting("kernel/apparmor_restrict_unprivileged_userns"),
    }
}

/// How this process may mount.
pub fn privilege() -> Privilege {
    Privilege::of(sys::my_ids().0)
}

/// Why a mount was refused.
pub fn trouble(refused: Refused) -> MountTrouble {
    let plain = |e: Errno| plain(&e.into());
    match refused {
        Refused::Namespace(e) => MountTrouble::NoNamespace(plain(e)),
        Refused::Device(Errno::NOENT | Errno::NXIO | Errno::NODEV) => MountTrouble::NoDevice,
        Refused::Device(Errno::ACCESS | Errno::PERM) => MountTrouble::DeviceDenied,
        Refused::Device(e) => MountTrouble::Other(format!("/dev/fuse: {}", plain(e))),
        Refused::Mount(Errno::ACCESS | Errno::PERM) => MountTrouble::NotPermitted,
        Refused::Mount(e) => MountTrouble::Other(format!("it cannot be mounted: {}", plain(e))),
    }
}

/// The door that `--via auto` takes with this storage.
pub fn door(storage: &Path) -> Result<DoorChoice, Fault> {
    let choice = choose(&mount(storage), &library());
    choice.map_err(|why| {
        fault(format!("no way for programs into the buffer: {why}"))
            .hint("`forebay doctor` says what can be done")
    })
}

fn cannot(path: &Path, e: Errno) -> String {
    format!("{}: {}", path.display(), plain(&e.into()))
}

fn type_at(path: &Path) -> Result<i64, Errno> {
    sys::open_path(path, libc::O_RDONLY | libc::O_DIRECTORY)
        .and_then(|dir| sys::fs_type(dir.as_fd()))
}

fn storage_at(path: &Path) -> Result<Storage, Errno> {
    let (size_bytes, free_bytes) = sys::space(path)?;
    Ok(Storage {
        path: path.display().to_string(),
        fs_type: type_at(path)?,
        size_bytes,
        free_bytes,
        free_inodes: sys::free_inodes(path)?,
    })
}

/// Makes a socket where those of bridges are, and connects to it.
fn sockets() -> Result<(String, i64), String> {
    let dir = socket_dir().map_err(|e| e.to_string())?;
    let path = dir.join(format!("doctor-{}", std::process::id()));
    let _ = fs::remove_file(&path);
    let tried = UnixListener::bind(&path).and_then(|_listener| UnixStream::connect(&path));
    let _ = fs::remove_file(&path);
    tried.map_err(|e| format!("{}: {}", path.display(), plain(&e)))?;
    let fs_type = type_at(&dir).map_err(|e| cannot(&dir, e))?;
    Ok((dir.display().to_string(), fs_type))
}

/// Starts a program, which is linked dynamically, with the library.
fn library() -> Result<(), String> {
    let library = place::preload_library().map_err(|e| e.message)?;
    let mut command = trial(&["library"])?;
    command.arg(&library).env("LD_PRELOAD", &library);
    said(command).map(drop)
}

/// Mounts over `storage` where nobody sees it.
fn mount(storage: &Path) -> MountTrial {
    let other = |why| MountTrial::Failed(MountTrouble::Other(why));
    let said = match trial(&["mount"]).and_then(|mut command| {
        command.arg(storage);
        said(command)
    }) {
        Ok(said) => said,
        Err(why) => return other(why),
    };
    let (word, why) = said.split_once(' ').unwrap_or((&said, ""));
    match word {
        "device" => MountTrial::Failed(MountTrouble::NoDevice),
        "denied" => MountTrial::Failed(MountTrouble::DeviceDenied),
        "namespace" => MountTrial::Failed(MountTrouble::NoNamespace(why.to_owned())),
        "permission" => MountTrial::Failed(MountTrouble::NotPermitted),
        WELL => MountTrial::Native,
        "plain" => MountTrial::Plain(why.to_owned()),
        _ => other(why.to_owned()),
    }
}

/// What the trial of a mount says: a word, and a reason.
fn words(trial: Result<Trial, Errno>) -> String {
    let plain = |e: Errno| plain(&e.into());
    match trial {
        Ok(Trial::Native) => WELL.to_owned(),
        Ok(Trial::TooOld) => "plain the kernel has no passthrough".to_owned(),
        Ok(Trial::NotTaken(Errno::PERM)) => "plain passthrough is not permitted".to_owned(),
        Ok(Trial::NotTaken(Errno::LOOP)) => {
            "plain the storage is on a stacked file system".to_owned()
        }
        Ok(Trial::NotTaken(e)) => {
            format!("plain passthrough of a file in the storage: {}", plain(e))
        }
        Ok(Trial::Refused(refused)) => match trouble(refused) {
            MountTrouble::NoDevice => "device".to_owned(),
            MountTrouble::DeviceDenied => "denied".to_owned(),
            MountTrouble::NoNamespace(why) => format!("namespace {why}"),
            MountTrouble::NotPermitted => "permission".to_owned(),
            MountTrouble::Other(why) => format!("other {why}"),
        },
        Err(e) => format!("other the trial of a mount: {}", plain(e)),
    }
}

fn trial(arguments: &[&str]) -> Result<Command, String> {
    let mut command = own_command().map_err(|e| e.message)?;
    command.arg("try").args(arguments);
    Ok(command)
}

fn tried(arguments: &[&str]) -> Result<String, String> {
    said(trial(arguments)?)
}

/// The line that a trial prints, or why it has failed.
fn said(mut command: Command) -> Result<String, String> {
    let ran = command.stdin(Stdio::null()).output();
    let ran = ran.map_err(|e| format!("a process cannot be started: {}", plain(&e)))?;
    let line = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    match ran.status.success() {
        true => Ok(line(&ran.stdout)),
        false => {
            let why = line(&ran.stderr).replace('\n', "; ");
            Err(why.strip_prefix("forebay: ").unwrap_or(&why).to_owned())
        }
    }
}

/// Runs the verb `try`, in a process of its own because a trial changes it.
pub fn attempt(what: &cli::Attempt) -> Result<u8, Fault> {
    let said = match what {
        cli::Attempt::Library { library } => {
            let maps = fs::read("/proc/self/maps").unwrap_or_default();
            let name = library.as_os_str().as_bytes();
            if !maps.windows(name.len()).any(|at| at == name) {
                return Err(fault(format!(
                    "LD_PRELOAD is not obeyed: {} is not in a program that was started with it",
                    library.display()
                )));
            }
            WELL.to_owned()
        }
        cli::Attempt::Mount { dir } => {
            let as_user = privilege() == Privilege::User;
            words(forebay_fuse::attempt(dir, as_user))
        }
        cli::Attempt::Namespace => {
            sys::unshare_users().map_err(|e| fault(plain(&e.into())))?;
            WELL.to_owned()
        }
    };
    println!("{said}");
    Ok(cli::exit::OK)
}

fn fusermount() -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|dir| dir.join("fusermount3"));
    let found = found.find(|path| sys::check_access(path, libc::X_OK).is_ok());
    found.map(|path| path.display().to_string())
}

fn buffer_at(root: &Path) -> Result<Buffer, Errno> {
    let writable = sys::check_access(root, libc::W_OK | libc::X_OK);
    Ok(Buffer {
        path: root.display().to_string(),
        fs_type: type_at(root)?,
        not_writable: writable.err().map(|e| plain(&e.into())),
        holder: holder(root),
    })
}

fn holder(root: &Path) -> Holder {
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    match owner(root) {
        Owner::Mine(claim) => match Bridge::at_instance(root, &path(&claim.instance)) {
            Ok(Some(bridge)) => Holder::Ours(bridge.pid),
            Ok(None) => Holder::Left(path(claim.storage_path()).display().to_string()),
            Err(e) => Holder::Other(e.message),
        },
        Owner::Elsewhere(claim) | Owner::OtherUser(claim) => {
            Holder::Other(format!("another buffer has the directory: {claim}"))
        }
        Owner::Unknown => Holder::Other("another version of forebay has the directory".to_owned()),
        Owner::Nobody => sys::ancestors(root)
            .into_iter()
            .find(|dir| !matches!(owner(dir), Owner::Nobody))
            .map_or(Holder::Nobody, |dir| {
                Holder::Other(format!(
                    "a buffer has {}, which holds this directory",
                    dir.display()
                ))
            }),
    }
}
