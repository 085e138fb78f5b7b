//! `forebay probe`: measures which locks a file system has. [`forebay_core::collective`] says where to write and what the
//! times mean; this verb has two processes write there, and keeps the result for the collective layer.

use crate::cli::{self, exit};
use crate::error::{Fault, fault};
use crate::place::plain;
use crate::units;
use crate::verbs::probe_client::TOO_LARGE;
use crate::verbs::probe_folder::Folder;
use crate::verbs::tell;
use forebay_core::collective::{
    Arrangement, Judgement, KNOWN_FILE_SYSTEMS, LockProtocol, MeasuredLocks, Measuring, Pattern,
    PfsFacts, ProbeResult, Sample, TURNS, Wait, Wishes, believes_waiting, file_system_name,
    may_hide_waits, measurements_file, mount_name, protocol_of,
};
use forebay_sys as sys;
use serde_json::{Value, json};
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a client may say nothing before this process looks whether it is asked to end.
const LOOK: Duration = Duration::from_secs(1);
/// A longer probe shows its progress.
const QUIET: Duration = Duration::from_secs(2);
/// Another probe keeps its result in less.
const LONGEST_TURN: Duration = Duration::from_secs(5);
/// A client that is killed ends in less, unless it waits for the file system.
const LONGEST_END: Duration = Duration::from_secs(2);
const TURN_PAUSE: Duration = Duration::from_millis(10);
/// Aggregators of the example that the report gives.
const EXAMPLE_AGGREGATORS: u32 = 16;

/// Runs the verb.
pub fn probe(args: &cli::ProbeArgs) -> Result<u8, Fault> {
    let Some(dir) = args.dir.as_deref().filter(|_| !args.known) else {
        tell(&match args.json {
            true => format!("{:#}\n", known_json()),
            false => known_text(),
        })?;
        return Ok(exit::OK);
    };
    let place = Place::of(dir)?;
    sys::watch_signals();
    let measured = measure(args, &place)?;
    let kept = match (&measured.judged.seen, &place.mount) {
        (ProbeResult::Locks(measured), Some(mount)) => keep(mount, measured).map(Some),
        _ => Ok(None),
    };
    let (kept, lost) = match kept {
        Ok(kept) => (kept, None),
        Err(fault) => (None, Some(fault)),
    };
    let found = Found {
        place,
        measured,
        kept,
    };
    tell(&match args.json {
        true => format!("{:#}\n", found.json()),
        false => found.text(),
    })?;
    // What was measured is told even if nothing can be kept of it.
    if let Some(lost) = lost {
        return Err(lost);
    }
    Ok(match found.measured.judged.seen {
        ProbeResult::Unclear => exit::FAILURE,
        _ => exit::OK,
    })
}

/// How the clients write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Ordinary,
    /// For the servers, with O_SYNC.
    Waiting,
}

/// What was measured.
struct Measured {
    judged: Judgement,
    /// How many clients of the file system the two processes are.
    clients: u32,
    way: Way,
}

/// Measures, also with writes that wait for the servers if ordinary ones do not tell.
fn measure(args: &cli::ProbeArgs, place: &Place) -> Result<Measured, Fault> {
    let run = |way| -> Result<Measured, Fault> {
        let mut probe = Probe::start(args, place, way)?;
        Ok(Measured {
            judged: probe.measure()?,
            clients: probe.clients(),
            way,
        })
    };
    let ordinary = run(Way::Ordinary)?;
    if !may_hide_waits(&ordinary.judged, ordinary.clients) {
        return Ok(ordinary);
    }
    let waiting = run(Way::Waiting)?;
    Ok(match believes_waiting(&ordinary.judged, &waiting.judged) {
        true => waiting,
        false => ordinary,
    })
}

/// The file system that is measured.
struct Place {
    dir: PathBuf,
    fs_type: i64,
    /// What stands for it on all of its clients.
    mount: Option<String>,
}

impl Place {
    fn of(dir: &Path) -> Result<Self, Fault> {
        let cannot = |e: std::io::Error| fault(format!("{}: {}", dir.display(), plain(&e)));
        let dir = dir.canonicalize().map_err(cannot)?;
        let opened = sys::open_path(&dir, libc::O_RDONLY | libc::O_DIRECTORY);
        let opened = File::from(opened.map_err(|e| cannot(e.into()))?);
        let device = opened.metadata().map_err(cannot)?.dev();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Ok(Place {
            fs_type: sys::fs_type(opened.as_fd()).map_err(|e| cannot(e.into()))?,
            mount: mount_name(&mounts, (libc::major(device), libc::minor(device))),
            dir,
        })
    }

    fn name(&self) -> String {
        let known = file_system_name(self.fs_type).map(str::to_owned);
        known.unwrap_or_else(|| format!("type {:#x}", self.fs_type))
    }
}

/// One of the two processes.
struct Client {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    /// Which client of the file system it is.
    identity: String,
}

impl Client {
    fn start(via: Option<&str>, dir: &Path, way: Way) -> Result<Self, Fault> {
        let exe = std::env::current_exe()
            .map_err(|e| fault(format!("the path of this program: {}", plain(&e))))?;
        let line = format!("{} \"$@\"", via.unwrap_or("exec"));
        let cannot = |e: std::io::Error| fault(format!("{line}: {}", plain(&e)));
        let mut process = Command::new("sh")
            .args(["-c", &line, "sh"])
            .arg(&exe)
            .arg("probe-client")
            .args((way == Way::Waiting).then_some("--waiting"))
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(cannot)?;
        let (to, from) = (process.stdin.take(), process.stdout.take());
        let (Some(to), Some(from)) = (to, from) else {
            return Err(fault(format!("{line}: no pipe")));
        };
        let mut client = Client {
            process,
            to,
            from: BufReader::new(from),
            identity: String::new(),
        };
        client.identity = client.says()?;
        Ok(client)
    }

    /// Its next line. A client that waits for the file system does not keep this process from its end.
    fn says(&mut self) -> Result<String, Fault> {
        let mut line = String::new();
        // It answers each question with one line: nothing is left of the last one.
        while !sys::is_readable(self.from.get_ref().as_fd()) {
            check_asked_to_end()?;
            sys::wait_any(&[self.from.get_ref()], LOOK);
        }
        let read = self.from.read_line(&mut line);
        // A signal from the terminal ends the clients, too.
        check_asked_to_end()?;
        match read {
            Ok(bytes) if bytes > 0 => Ok(line.trim_end().to_owned()),
            _ => Err(fault("a client of the probe has ended too early")),
        }
    }

    /// Has it open the folder. Returns whether it sees that, or why it could not look.
    fn open(&mut self, folder: &Folder) -> Result<Result<bool, String>, Fault> {
        writeln!(self.to, "{}", folder.told())
            .map_err(|e| fault(format!("a client of the probe: {}", plain(&e))))?;
        Ok(match self.says()?.as_str() {
            "1" => Ok(true),
            "0" => Ok(false),
            said => Err(said.trim_start_matches("error ").to_owned()),
        })
    }

    /// Has it write a page. Returns nanoseconds, or why it could not.
    fn write(&mut self, name: &str, offset: u64) -> Result<Result<u64, String>, Fault> {
        writeln!(self.to, "{name} {offset}")
            .map_err(|e| fault(format!("a client of the probe: {}", plain(&e))))?;
        let said = self.says()?;
        let number = said.parse::<u64>();
        Ok(number.map_err(|_| said.trim_start_matches("error ").to_owned()))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.process.kill();
        // It may wait for the file system, where no signal ends it.
        let begun = Instant::now();
        while matches!(self.process.try_wait(), Ok(None)) && begun.elapsed() < LONGEST_END {
            std::thread::sleep(TURN_PAUSE);
        }
    }
}

fn check_asked_to_end() -> Result<(), Fault> {
    match sys::signals_seen() {
        0 => Ok(()),
        _ => Err(fault("interrupted: nothing was measured")),
    }
}

/// A measurement.
struct Probe {
    clients: [Client; 2],
    folder: Folder,
    begin: Instant,
}

impl Probe {
    fn start(args: &cli::ProbeArgs, place: &Place, way: Way) -> Result<Self, Fault> {
        let other = match (&args.also, &args.via) {
            // On another node the path need not be there.
            (Some(dir), Some(_)) => dir.clone(),
            (Some(dir), None) => Place::of(dir)?.dir,
            (None, _) => place.dir.clone(),
        };
        let clients = [
            Client::start(None, &place.dir, way)?,
            Client::start(args.via.as_deref(), &other, way)?,
        ];
        let mut probe = Probe {
            clients,
            folder: Folder::new(&place.dir)?,
            begin: Instant::now(),
        };
        if probe.clients_see_one_directory()? {
            return Ok(probe);
        }
        let shown = (place.dir.display(), other.display());
        Err(fault(format!(
            "{} and, with the second process, {} are different directories",
            shown.0, shown.1
        ))
        .hint("is the file system mounted there?"))
    }

    /// Do both see the folder? Otherwise they would never wait for each other.
    fn clients_see_one_directory(&mut self) -> Result<bool, Fault> {
        for client in &mut self.clients {
            match client.open(&self.folder)? {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(text) => return Err(fails(self.folder.path(), &text)),
            }
        }
        Ok(true)
    }

    /// How many clients of the file system the two processes are.
    fn clients(&self) -> u32 {
        let [one, other] = &self.clients;
        1 + u32::from(one.identity != other.identity)
    }

    fn measure(&mut self) -> Result<Judgement, Fault> {
        let mut measuring = Measuring::default();
        while let Some(pattern) = measuring.next_pattern() {
            let sample = self.sample(pattern)?;
            measuring.measured(sample);
        }
        if std::io::stderr().is_terminal() && self.begin.elapsed() > QUIET {
            eprint!("\r\x1b[K");
        }
        Ok(measuring.judgement(self.clients()))
    }

    /// The times of a pattern; `None` if the file system has no files as large as that.
    fn sample(&mut self, pattern: Pattern) -> Result<Option<Sample>, Fault> {
        let names = [self.folder.new_name(), self.folder.new_name()];
        let mut sample = Sample {
            pattern,
            nanos: Vec::new(),
        };
        for (turn, client) in (0..TURNS).flat_map(|turn| [(turn, 0), (turn, 1)]) {
            let (file, offset) = pattern.place(client, turn);
            let (client, name) = (&mut self.clients[client as usize], &names[file as usize]);
            match (client.write(name, offset)?, pattern) {
                (Ok(time), _) => sample.nanos.push(time),
                (Err(text), Pattern::Interleaved { .. } | Pattern::Strided { .. })
                    if text == TOO_LARGE =>
                {
                    return Ok(None);
                }
                (Err(text), _) => {
                    return Err(fails(&self.folder.path().join(name), &text));
                }
            }
            if sample.is_complete() {
                break;
            }
        }
        if std::io::stderr().is_terminal() && self.begin.elapsed() > QUIET {
            eprint!("\r{} patterns measured ", self.folder.files() / 2);
        }
        Ok(Some(sample))
    }
}

fn fails(path: &Path, text: &str) -> Fault {
    fault(format!("{}: {text}", path.display()))
}

/// Keeps a measurement for the collective layer. Returns where.
fn keep(mount: &str, measured: &MeasuredLocks) -> Result<PathBuf, Fault> {
    let path = measurements_file(|name| std::env::var(name).ok())
        .ok_or_else(|| fault("no place to keep the result").hint("set FOREBAY_LOCKS to a file"))?;
    keep_in(PathBuf::from(path), mount, measured)
}

/// The same in this file, with all else that is in it. Others may use it: its mode, and a link to it, stay.
fn keep_in(path: PathBuf, mount: &str, measured: &MeasuredLocks) -> Result<PathBuf, Fault> {
    let path = path.canonicalize().unwrap_or(path);
    let cannot = |e: std::io::Error| fault(format!("{}: {}", path.display(), plain(&e)));
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir).map_err(cannot)?;
    // Another probe may be keeping its result.
    let turn = sys::open_path(dir, libc::O_RDONLY | libc::O_DIRECTORY);
    let turn = turn.map_err(|e| cannot(e.into()))?;
    let begun = Instant::now();
    while let Err(e) = sys::lock_file(turn.as_fd()) {
        if begun.elapsed() > LONGEST_TURN {
            return Err(cannot(e.into()));
        }
        std::thread::sleep(TURN_PAUSE);
    }
    // A pipe would keep it waiting.
    let about = fs::metadata(&path);
    if about.is_ok_and(|about| !about.is_file()) {
        return Err(cannot(std::io::Error::other("no regular file")));
    }
    let (before, permissions) = match fs::read_to_string(&path) {
        Ok(before) => (
            before,
            Some(fs::metadata(&path).map_err(cannot)?.permissions()),
        ),
        Err(e) if e.kind() == ErrorKind::NotFound => (String::new(), None),
        Err(e) => return Err(cannot(e)),
    };
    let is_of_other =
        |line: &&str| MeasuredLocks::from_line(line).is_none_or(|(of, _)| of != mount);
    let others = before.lines().filter(is_of_other);
    let mut text: String = others.flat_map(|line| [line, "\n"]).collect();
    text += &measured.to_line(mount);
    text.push('\n');
    let mut new = tempfile::Builder::new();
    // As any file that is made: less what the umask takes.
    new.permissions(Permissions::from_mode(0o666));
    let mut new = new.tempfile_in(dir).map_err(cannot)?;
    new.write_all(text.as_bytes()).map_err(cannot)?;
    if let Some(permissions) = permissions {
        new.as_file().set_permissions(permissions).map_err(cannot)?;
    }
    new.persist(&path).map_err(|e| cannot(e.error))?;
    Ok(path)
}

/// What was found.
struct Found {
    place: Place,
    measured: Measured,
    kept: Option<PathBuf>,
}

impl Found {
    fn measured_locks(&self) -> Option<&MeasuredLocks> {
        match &self.measured.judged.seen {
            ProbeResult::Locks(measured) => Some(measured),
            _ => None,
        }
    }

    /// How the collective layer would go about a file there, if each aggregator were on a node of its own.
    fn arrangement(&self) -> Arrangement {
        let pfs = PfsFacts {
            measured: self.measured_locks().copied(),
            ..PfsFacts::of_type(self.place.fs_type)
        };
        let nodes: Vec<u32> = (0..EXAMPLE_AGGREGATORS).collect();
        Arrangement::new(&Wishes::default(), pfs, &nodes, 1)
    }

    fn seen(&self) -> &'static str {
        match &self.measured.judged.seen {
            ProbeResult::Locks(measured) => measured.protocol.name(),
            ProbeResult::OneClient => "one-client",
            ProbeResult::Unclear => "unclear",
        }
    }

    fn reason(&self) -> &'static str {
        match self.measured.judged.seen {
            ProbeResult::OneClient if protocol_of(self.place.fs_type) == LockProtocol::None => {
                "no lock traffic, as the type of the file system says"
            }
            _ => self.measured.judged.reason,
        }
    }

    fn text(&self) -> String {
        let mut rows = vec![
            ("file system", {
                let mount = self.place.mount.as_deref().unwrap_or("mount not known");
                format!("{} ({mount})", self.place.name())
            }),
            ("known", {
                let protocol = protocol_of(self.place.fs_type).name();
                match about(self.place.fs_type) {
                    Some(about) => format!("{protocol}: {about}"),
                    None => protocol.to_owned(),
                }
            }),
            (
                "clients",
                match self.measured.clients {
                    1 => "1: both processes use one mount on one node".to_owned(),
                    _ => "2".to_owned(),
                },
            ),
            (
                "seen",
                match &self.measured.judged.seen {
                    ProbeResult::OneClient => self.reason().to_owned(),
                    _ => format!("{}: {}", self.seen(), self.measured.judged.reason),
                },
            ),
        ];
        if self.measured.way == Way::Waiting {
            rows.push((
                "written",
                "as programs do, which does not tell; then so that each write waits for the servers (O_SYNC)".to_owned(),
            ));
        }
        if let Some(measured) = self.measured_locks() {
            if let Some(granule) = measured.granule_bytes {
                rows.push(("granule", units::bytes(granule)));
            }
            if let Some(servers) = measured.servers {
                rows.push(("servers", format!("{servers}, or a multiple")));
            }
            let time = |nanos| units::duration(Duration::from_nanos(nanos));
            let mut costs = time(measured.write_nanos);
            if measured.handover_nanos > 0 {
                let more = time(measured.handover_nanos);
                costs += &format!("; {more} more when the other client has to give up a lock");
            }
            rows.push(("a write", costs));
        }
        let arrangement = self.arrangement();
        rows.push((
            "method",
            format!(
                "{} with {} of {EXAMPLE_AGGREGATORS} aggregators: {}",
                arrangement.method.in_words(),
                arrangement.aggregators.len(),
                arrangement.reason
            ),
        ));
        rows.push((
            "kept",
            match &self.kept {
                Some(path) => format!("{}, for the collective layer", path.display()),
                None => {
                    "nothing: the collective layer goes by the type of the file system".to_owned()
                }
            },
        ));
        let mut text = format!("forebay probe {}\n", self.place.dir.display());
        for (name, value) in rows {
            text += &format!("  {name:<12} {value}\n");
        }
        text
    }

    fn json(&self) -> Value {
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        let pattern = |&(pattern, median, wait): &(Pattern, u64, Wait)| {
            let (name, bytes, step) = match pattern {
                Pattern::Apart => ("apart", None, None),
                Pattern::Fixed { distance } => ("fixed", Some(distance), None),
                Pattern::Interleaved { block } => ("interleaved", Some(block), None),
                Pattern::Strided { block, step } => ("strided", Some(block), Some(step)),
            };
            let wait = match wait {
                Wait::Free => "free",
                Wait::Waits => "waits",
                Wait::Unclear => "unclear",
            };
            json!({
                "pattern": name, "bytes": bytes, "step": step, "median_seconds": seconds(median), "wait": wait,
            })
        };
        let measured = self.measured_locks();
        let arrangement = self.arrangement();
        json!({
            "dir": self.place.dir,
            "file_system": self.place.name(),
            "fs_type": self.place.fs_type,
            "mount": self.place.mount,
            "known": { "protocol": protocol_of(self.place.fs_type).name(), "about": about(self.place.fs_type) },
            "clients": self.measured.clients,
            "seen": self.seen(),
            "waits_for_servers": self.measured.way == Way::Waiting,
            "reason": self.reason(),
            "granule_bytes": measured.and_then(|m| m.granule_bytes),
            "servers": measured.and_then(|m| m.servers),
            "write_seconds": measured.map(|m| seconds(m.write_nanos)),
            "handover_seconds": measured.map(|m| seconds(m.handover_nanos)),
            "method": { "name": arrangement.method.in_words(), "reason": arrangement.reason,
                        "of_aggregators": EXAMPLE_AGGREGATORS, "aggregators": arrangement.aggregators.len() },
            "patterns": self.measured.judged.patterns.iter().map(pattern).collect::<Vec<_>>(),
            "kept": self.kept,
        })
    }
}

fn about(fs_type: i64) -> Option<&'static str> {
    let of = KNOWN_FILE_SYSTEMS.iter().find(|fs| fs.fs_type == fs_type);
    of.map(|fs| fs.about)
}

fn known_text() -> String {
    let row = |name: &str, locks: &str, about: &str| format!("{name:<12} {locks:<12} {about}\n");
    let rows = KNOWN_FILE_SYSTEMS.iter();
    let rows = rows.map(|fs| row(fs.name, fs.protocol.name(), fs.about));
    row("type", "locks", "").trim_end().to_owned() + "\n" + &rows.collect::<String>()
}

fn known_json() -> Value {
    let row = |fs: &forebay_core::collective::KnownFileSystem| json!({ "name": fs.name, "fs_type": fs.fs_type, "protocol": fs.protocol.name(), "about": fs.about });
    KNOWN_FILE_SYSTEMS.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_measurement_takes_the_place_of_the_one_before_and_of_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("shared"), dir.path().join("link"));
        let before = "# of all\nserver:/a\tnone\t-\t-\t1\t1\nserver:/b\tnone\t-\t-\t2\t2\n";
        fs::write(&file, before).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o664)).unwrap();
        symlink("shared", &link).unwrap();
        let line = "server:/a\twhole-file\t-\t-\t3\t3";
        let (mount, measured) = MeasuredLocks::from_line(line).unwrap();
        let kept = keep_in(link.clone(), mount, &measured).unwrap();
        assert_eq!(kept, file.canonicalize().unwrap());
        assert!(link.is_symlink());
        let after = "# of all\nserver:/b\tnone\t-\t-\t2\t2\nserver:/a\twhole-file\t-\t-\t3\t3\n";
        assert_eq!(fs::read_to_string(&file).unwrap(), after);
        let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            (mode, fs::read_dir(dir.path()).unwrap().count()),
            (0o664, 2)
        );
        // Where none was kept before, also the directories are made.
        let new = dir.path().join("a/b/locks");
        keep_in(new.clone(), mount, &measured).unwrap();
        assert_eq!(fs::read_to_string(new).unwrap(), format!("{line}\n"));
    }
}
