//! How a command from elsewhere joins a run: the keeper of the run listens on a socket, notes which process comes, and gives it the
//! outfit of the run. From then on the end of the run waits for that process.

use crate::error::{Fault, fault};
use crate::outfit::{Namespaces, Outfit};
use crate::place::plain;
use forebay_admin::{make_run_socket_path, run_socket_path};
use forebay_report::text::printable;
use forebay_sys as sys;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Version of the messages. Raise it when one changes so that the other side would misread it.
const VERSION: u32 = 2;
/// Longest message in bytes.
const MAX_MESSAGE_BYTES: u64 = 1 << 20;
/// How long a message may take. Both sides are on one node and have nothing else to do.
const PATIENCE: Duration = Duration::from_secs(10);
/// The reception looks for its end so often, should it not be told.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Pause after a guest for whom there was no descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Who wants to join.
#[derive(Debug, Serialize, Deserialize)]
struct Wish {
    version: u32,
    /// The command as it was typed.
    command: Vec<String>,
}

/// The answer. A later version may leave out `outfit` for us.
#[derive(Debug, Serialize, Deserialize)]
struct Welcome {
    version: u32,
    outfit: Option<Outfit>,
}

/// A process that has joined the run. By then it is the command itself.
#[derive(Debug)]
pub struct Attached {
    /// Its id.
    pub pid: u32,
    /// The command as it was typed.
    pub command: String,
    process: sys::Process,
}

impl Attached {
    /// One line for people.
    pub fn text(&self) -> String {
        let command = printable(self.command.as_bytes());
        format!("{command} (process {})", self.pid)
    }

    /// Has it ended?
    pub fn has_ended(&self) -> bool {
        self.process.has_ended()
    }
}

type Guests = Arc<Mutex<Vec<Attached>>>;

/// The path of a socket, which goes with this.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The keeper's side before the command is started: who comes waits.
pub struct Entrance {
    socket: SocketFile,
    listener: UnixListener,
}

/// The keeper's side, from the start of the command to its end.
pub struct Reception {
    socket: SocketFile,
    close: Arc<OwnedFd>,
    guests: Guests,
    thread: JoinHandle<()>,
    _namespaces: Option<Namespaces>,
}

impl Entrance {
    /// Makes the socket. `bridge` is that of the bridge.
    pub fn open(bridge: &Path) -> Result<Entrance, Fault> {
        let path = make_run_socket_path(bridge, std::process::id())?;
        let failed = |e: std::io::Error| fault(format!("{}: {}", path.display(), plain(&e)));
        // One of a run that was killed, whose process id is ours now.
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Entrance {
            socket: SocketFile(path),
            listener,
        })
    }
}

impl Reception {
    /// Takes who comes, and gives them `outfit`. `namespaces` are those of the command, if it has some of its own.
    pub fn begin(
        entrance: Entrance,
        mut outfit: Outfit,
        namespaces: Option<Namespaces>,
    ) -> Result<Reception, Fault> {
        let Entrance { socket, listener } = entrance;
        let failed = |e: std::io::Error| fault(plain(&e));
        if let Some(namespaces) = &namespaces {
            outfit.namespaces = namespaces.links().map_err(|e| failed(e.into()))?;
        }
        let close = sys::eventfd().map_err(|e| failed(e.into()))?;
        let close = Arc::new(close);
        let guests = Guests::default();
        let thread = std::thread::Builder::new()
            .name("reception".to_owned())
            .spawn({
                let (close, guests) = (Arc::clone(&close), Arc::clone(&guests));
                move || receive(&listener, &close, &guests, &outfit)
            })
            .map_err(failed)?;
        Ok(Reception {
            socket,
            close,
            guests,
            thread,
            _namespaces: namespaces,
        })
    }

    /// Takes nobody any more. Gives those who have come: nobody else has the outfit.
    pub fn close(self) -> Vec<Attached> {
        drop(self.socket);
        sys::notify(self.close.as_fd());
        // It does not panic, and if it did, those who have come would count all the same.
        let _ = self.thread.join();
        let mut guests = self.guests.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *guests)
    }
}

fn receive(listener: &UnixListener, close: &OwnedFd, guests: &Guests, outfit: &Outfit) {
    while !sys::is_readable(close.as_fd()) {
        sys::wait_any(&[listener.as_fd(), close.as_fd()], LOOK_AGAIN);
        loop {
            match listener.accept() {
                // Without an outfit nobody has joined, and whoever asked says why not.
                Ok((guest, _)) => {
                    if let Some(attached) = meet(&guest, outfit) {
                        let mut guests = guests.lock().unwrap_or_else(PoisonError::into_inner);
                        guests.push(attached);
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    // There is no descriptor for a guest, and the listener would say at once that one waits.
                    sys::wait_any(&[close.as_fd()], ACCEPT_PAUSE);
                    break;
                }
            }
        }
    }
}

/// Hears who it is and hands out the outfit. `None` if that has failed.
fn meet(guest: &UnixStream, outfit: &Outfit) -> Option<Attached> {
    let peer = sys::peer(guest.as_fd()).ok()?;
    // A socket of root can be reached by others. A process id of 0 is one that is not seen from here.
    let pid = u32::try_from(peer.pid).ok().filter(|pid| *pid != 0)?;
    if peer.uid != sys::my_ids().0 {
        return None;
    }
    let process = sys::Process::open(pid).ok()?;
    let wish: Wish = read(guest).ok()?;
    let outfit = (wish.version == VERSION).then(|| outfit.clone());
    let is_taken = outfit.is_some();
    let welcome = Welcome {
        version: VERSION,
        outfit,
    };
    // Noted even if the answer is not delivered: whether it was read cannot be known, and who dies is not waited for.
    let _ = write(guest, &welcome);
    is_taken.then(|| Attached {
        pid,
        command: wish.command.join(" "),
        process,
    })
}

fn write(mut to: &UnixStream, message: &impl Serialize) -> std::io::Result<()> {
    to.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)
}

fn read<T: for<'a> Deserialize<'a>>(from: &UnixStream) -> std::io::Result<T> {
    from.set_nonblocking(false)?;
    from.set_read_timeout(Some(PATIENCE))?;
    let mut line = Vec::new();
    BufReader::new(from.take(MAX_MESSAGE_BYTES)).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&line)?)
}

/// Can the run of process `run` be joined?
pub fn is_open(bridge: &Path, run: u32) -> bool {
    run_socket_path(bridge, run).exists()
}

/// Joins the run of process `run` for `command`, which this process is about to become. `None`: the run takes nobody any more.
pub fn join(bridge: &Path, run: u32, command: Vec<String>) -> Result<Option<Outfit>, Fault> {
    let path = run_socket_path(bridge, run);
    let Ok(stream) = UnixStream::connect(&path) else {
        return Ok(None);
    };
    // Its libraries are about to run as this user.
    let owner = sys::peer(stream.as_fd()).map(|peer| peer.uid);
    if owner != Ok(sys::my_ids().0) {
        return Err(fault(format!("{} belongs to another user", path.display())));
    }
    let wish = Wish {
        version: VERSION,
        command,
    };
    let welcome = write(&stream, &wish).and_then(|()| read::<Welcome>(&stream));
    match welcome {
        Ok(Welcome {
            outfit: Some(outfit),
            ..
        }) => Ok(Some(outfit)),
        Ok(Welcome { version, .. }) => Err(fault(format!(
            "the run (process {run}) speaks version {version} of these messages, and this program version {VERSION}"
        ))
        .hint("use the `forebay` with which the run was started")),
        Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => Err(fault(format!(
            "the run (process {run}) does not answer; it may be stopped"
        ))),
        // It closes when its command has ended.
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outfit() -> Outfit {
        Outfit {
            root: "/pfs".into(),
            alias: None,
            libraries: Vec::new(),
            variables: Vec::new(),
            namespaces: Vec::new(),
            is_mounted: true,
        }
    }

    #[test]
    fn who_comes_in_time_gets_the_outfit_and_is_known_and_nobody_comes_after_the_end() {
        let storage = tempfile::tempdir().unwrap();
        let (bridge, me) = (&storage.path().join("bridge"), std::process::id());
        assert!(join(bridge, me, vec![]).unwrap().is_none());
        let entrance = Entrance::open(bridge).unwrap();
        assert!(is_open(bridge, me));
        let reception = Reception::begin(entrance, outfit(), None).unwrap();
        let command = || vec!["./app".to_owned(), "-n".to_owned()];
        assert_eq!(join(bridge, me, command()).unwrap(), Some(outfit()));
        // One that says nothing of sense joins nothing, and the next one is served.
        let path = run_socket_path(bridge, me);
        UnixStream::connect(&path)
            .unwrap()
            .write_all(b"?\n")
            .unwrap();
        assert_eq!(join(bridge, me, command()).unwrap(), Some(outfit()));
        let guests = reception.close();
        let known: Vec<_> = guests.iter().map(|g| (g.pid, g.command.as_str())).collect();
        assert_eq!(known, [(me, "./app -n"), (me, "./app -n")]);
        assert!(!guests[0].has_ended() && !is_open(bridge, me));
        assert!(join(bridge, me, vec![]).unwrap().is_none());
    }

    #[test]
    fn another_version_is_refused_in_a_line_that_names_both() {
        let storage = tempfile::tempdir().unwrap();
        let bridge = &storage.path().join("bridge");
        let path = make_run_socket_path(bridge, 1).unwrap();
        let listener = UnixListener::bind(&path).unwrap();
        let newer = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let _: Wish = read(&stream).unwrap();
            (&stream)
                .write_all(b"{\"version\":3,\"more\":[]}\n")
                .unwrap();
        });
        let refused = join(bridge, 1, vec!["x".to_owned()]).unwrap_err();
        newer.join().unwrap();
        assert!(
            refused.message.contains("version 3") && refused.message.contains("version 2"),
            "{refused}"
        );
    }
}
