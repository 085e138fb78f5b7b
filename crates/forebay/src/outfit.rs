//! What a command needs to be a part of a run: libraries, variables of its environment, and namespaces. The
//! command of a run and those that join it later get the same.

use crate::bridge::Bridge;
use crate::cli;
use crate::error::{Fault, fault};
use crate::place::{self, Place, plain};
use crate::program;
use crate::recorder::Recorder;
use forebay_core::doors::Door;
use forebay_core::path::below;
use forebay_sys::{self as sys, Errno, Namespace};
use forebay_wire::Devices;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Namespaces in which a command sees the buffer as a mount. While they are open here the mount stays.
pub struct Namespaces {
    /// That of the mount.
    pub mounts: OwnedFd,
    /// The user namespace in which that one is, unless it is that of this process.
    pub users: Option<OwnedFd>,
}

impl Namespaces {
    /// By what other processes find them.
    ///
    /// # Errors
    /// Those of `fstat`.
    pub fn links(&self) -> Result<Vec<NamespaceLink>, Errno> {
        let link = |fd: &OwnedFd, is_of_users| {
            Ok(NamespaceLink {
                // Not that of the command's process: its id may be somebody else's by the time it is read.
                path: format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd()).into(),
                inode: sys::stat(fd.as_fd(), b"")?.ino,
                is_of_users,
            })
        };
        let users = self.users.iter().map(|fd| link(fd, true));
        users.chain([link(&self.mounts, false)]).collect()
    }
}

/// By what another process finds a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceLink {
    /// Where it can be opened, from outside of it.
    pub path: PathBuf,
    /// Its inode number, by which a process knows whether it is in there.
    pub inode: u64,
    /// A user namespace; else one of mounts.
    pub is_of_users: bool,
}

impl NamespaceLink {
    fn about(&self) -> Namespace {
        match self.is_of_users {
            true => Namespace::Users,
            false => Namespace::Mounts,
        }
    }

    fn is_own(&self) -> Result<bool, Errno> {
        let own = sys::own_namespace(self.about())?;
        Ok(sys::stat(own.as_fd(), b"")?.ino == self.inode)
    }
}

/// Puts this process into the namespaces, in this order, as far as it is not in there.
fn enter_all(namespaces: &[NamespaceLink]) -> Result<(), Errno> {
    let mut opened = Vec::new();
    for namespace in namespaces {
        if !namespace.is_own()? {
            let fd = sys::open_path(&namespace.path, libc::O_RDONLY)?;
            opened.push((fd, namespace.about()));
        }
    }
    // From within a user namespace nothing of the processes outside can be opened.
    opened
        .iter()
        .try_for_each(|(fd, about)| sys::enter_namespace(fd, *about))
}

/// What a command of a run is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outfit {
    /// Canonical buffer root.
    pub root: PathBuf,
    /// Another path of the buffer root, if the user calls it by one.
    pub alias: Option<PathBuf>,
    /// Libraries to load, in this order.
    pub libraries: Vec<PathBuf>,
    /// Variables of the environment; `None` removes one.
    pub variables: Vec<(OsString, Option<OsString>)>,
    /// The namespaces in which the buffer is a mount, in the order in which they are entered. Without any the buffer is seen
    /// by the libraries alone.
    pub namespaces: Vec<NamespaceLink>,
    /// The library is not what shows the buffer.
    pub is_mounted: bool,
}

impl Outfit {
    /// What the command gets, and those that join the run.
    pub fn of_run(
        args: &cli::RunArgs,
        door: Door,
        place: &Place,
        bridge: &Bridge,
        libraries: Vec<PathBuf>,
        recorder: Option<&Recorder>,
    ) -> Outfit {
        let mut outfit = Outfit {
            root: place.root.clone(),
            alias: place.alias.clone(),
            libraries,
            variables: Vec::new(),
            namespaces: Vec::new(),
            is_mounted: door == Door::Mount,
        };
        if let Some(recorder) = recorder {
            let variables = recorder.variables().into_iter();
            outfit.variables = variables.map(|(name, value)| (name, Some(value))).collect();
            outfit.libraries.insert(0, recorder.library().to_owned());
        }
        if let Some(to) = &args.explain {
            let to = match to.to_str() {
                Some("-") => to.clone(),
                // Ranks may have other working directories.
                _ => std::path::absolute(to).unwrap_or_else(|_| to.clone()),
            };
            outfit.set("FOREBAY_COLLECTIVE_EXPLAIN", to);
        }
        if let Some(to) = &args.trace {
            let to = std::path::absolute(to).unwrap_or_else(|_| to.clone());
            outfit.set("FOREBAY_COLLECTIVE_TRACE", to);
        }
        if !outfit.is_mounted {
            outfit.point_to(bridge.socket(), &bridge.instance, bridge.devices());
        }
        outfit
    }

    /// Sets a variable.
    pub fn set(&mut self, name: &str, value: impl Into<OsString>) {
        self.variables.push((name.into(), Some(value.into())));
    }

    /// Sets the variables by which the preload library finds the bridge.
    pub fn point_to(&mut self, socket: &Path, instance: &Path, devices: Option<Devices>) {
        self.set(forebay_wire::ENV_BUFFER, self.root.clone());
        let alias = self.alias.clone().map(PathBuf::into_os_string);
        self.variables.push((forebay_wire::ENV_ALIAS.into(), alias));
        self.set(forebay_wire::ENV_SOCKET, socket);
        self.set(forebay_wire::ENV_STORAGE, instance);
        let devices = devices.map(|both| format!("{}:{}", both.storage, both.pfs).into());
        self.variables
            .push((forebay_wire::ENV_DEVICES.into(), devices));
    }

    /// The command that starts `program`, so equipped. It is to be started in [`Outfit::namespaces`].
    pub fn command(&self, program: &OsStr, arguments: &[OsString]) -> Command {
        let mut command = match self.is_mounted {
            true => Command::new(program),
            false => self.command_for(program),
        };
        command.args(arguments);
        for (name, value) in &self.variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let libraries: Vec<&Path> = self.libraries.iter().map(PathBuf::as_path).collect();
        program::load(&mut command, &libraries);
        command
    }

    /// Without a mount this process sees only the PFS, so it cannot execute a program that exists only in the buffer.
    /// Such a program is started by a shell that has the library loaded.
    fn command_for(&self, program: &OsStr) -> Command {
        let path = Path::new(program);
        let absolute = place::tidy(&std::env::current_dir().unwrap_or_default().join(path));
        let in_buffer = [Some(&self.root), self.alias.as_ref()]
            .into_iter()
            .flatten()
            .any(|root| {
                below(root.as_os_str().as_bytes(), absolute.as_os_str().as_bytes()).is_some()
            });
        if in_buffer && program.as_bytes().contains(&b'/') {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", "exec \"$0\" \"$@\""]).arg(program);
            command
        } else {
            Command::new(program)
        }
    }

    /// Enters the namespaces, if there are any, with the same path as working directory.
    ///
    /// # Errors
    /// A namespace is gone, or this user may not enter it; the working directory is not there.
    pub fn enter(&self) -> Result<(), Fault> {
        if self.namespaces.is_empty() {
            return Ok(());
        }
        let directory = std::env::current_dir();
        enter_all(&self.namespaces).map_err(|e| {
            fault(format!(
                "cannot join the mount of the run: {}",
                plain(&e.into())
            ))
        })?;
        match directory {
            Ok(path) => settle_in(&path),
            Err(_) => Ok(()),
        }
    }
}

/// Makes `path` the working directory anew, after a mount over it: the one from before is below the mount.
pub fn settle_in(path: &Path) -> Result<(), Fault> {
    std::env::set_current_dir(path).map_err(|e| fault(format!("{}: {}", path.display(), plain(&e))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outfit() -> Outfit {
        Outfit {
            root: "/pfs/run".into(),
            alias: Some("/link/run".into()),
            libraries: vec!["/lib/one.so".into()],
            variables: vec![("GONE".into(), None)],
            namespaces: Vec::new(),
            is_mounted: false,
        }
    }

    #[test]
    fn a_program_in_the_buffer_is_started_by_a_shell_unless_there_is_a_mount() {
        let program = |outfit: &Outfit, name: &str| {
            let command = outfit.command(OsStr::new(name), &["x".into()]);
            (command.get_program().to_owned(), command.get_args().count())
        };
        let library = outfit();
        for name in ["/pfs/run/bin/app", "/link/run/app", "/pfs/./run//app"] {
            assert_eq!(program(&library, name), ("/bin/sh".into(), 4), "{name}");
        }
        for name in ["/pfs/runs/app", "app", "/bin/true"] {
            assert_eq!(program(&library, name), (name.into(), 1));
        }
        let mount = Outfit {
            is_mounted: true,
            ..outfit()
        };
        assert_eq!(program(&mount, "/pfs/run/app"), ("/pfs/run/app".into(), 1));
    }

    #[test]
    fn the_environment_names_the_buffer_and_removes_what_does_not_apply() {
        let mut outfit = outfit();
        outfit.alias = None;
        let devices = Devices { storage: 7, pfs: 9 };
        outfit.point_to(
            Path::new("/s/socket"),
            Path::new("/s/instance"),
            Some(devices),
        );
        let command = outfit.command(OsStr::new("app"), &[]);
        let value = |name: &str| {
            let mut found = command.get_envs();
            let found = found.find(|(key, _)| *key == OsStr::new(name));
            found.map(|(_, value)| value.map(|v| v.to_string_lossy().into_owned()))
        };
        assert_eq!(
            value(forebay_wire::ENV_BUFFER),
            Some(Some("/pfs/run".into()))
        );
        assert_eq!(
            value(forebay_wire::ENV_SOCKET),
            Some(Some("/s/socket".into()))
        );
        assert_eq!(value(forebay_wire::ENV_DEVICES), Some(Some("7:9".into())));
        assert_eq!(value(forebay_wire::ENV_ALIAS), Some(None));
        assert_eq!(value("GONE"), Some(None));
        let preload = value("LD_PRELOAD").flatten().unwrap_or_default();
        assert!(preload.ends_with("/lib/one.so"), "{preload}");
    }

    #[test]
    fn a_process_that_is_in_a_namespace_already_need_not_enter_it() {
        let own = |about| sys::own_namespace(about).unwrap();
        let namespaces = Namespaces {
            mounts: own(Namespace::Mounts),
            users: Some(own(Namespace::Users)),
        };
        let mut links = namespaces.links().unwrap();
        let order: Vec<_> = links.iter().map(|link| link.is_of_users).collect();
        assert_eq!(order, [true, false], "the mounts belong to the users");
        for link in &mut links {
            assert!(link.path.exists());
            // From within, it could not be opened.
            link.path = "/nowhere".into();
        }
        assert_eq!(enter_all(&links), Ok(()));
        links[0].inode += 1;
        assert_eq!(enter_all(&links), Err(Errno::NOENT));
    }

    #[test]
    fn an_outfit_survives_its_way_to_another_process() {
        use std::os::unix::ffi::OsStringExt;
        let mut sent = outfit();
        sent.namespaces.push(NamespaceLink {
            path: "/proc/1/fd/9".into(),
            inode: 4_026_531_841,
            is_of_users: true,
        });
        sent.set("ODD", OsString::from_vec(b"\xff=\n".to_vec()));
        let text = serde_json::to_string(&sent).unwrap();
        assert_eq!(serde_json::from_str::<Outfit>(&text).unwrap(), sent);
    }
}
