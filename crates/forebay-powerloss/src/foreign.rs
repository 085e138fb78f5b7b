//! Programs that are judged by a check of their own: what they are given to do, and whether they find it again.

use crate::oracle::Progress;
use crate::recorder::{PYTHON, Places};
use crate::rig;
use crate::tree;
use crate::workload::Program;
use anyhow::Context;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Transactions of SQLite.
const ROWS: usize = 60;
/// Commits of git.
const COMMITS: usize = 10;
/// Rounds of pgbench, the clients of each, and the transactions of each client.
const ROUNDS: usize = 6;
const CLIENTS: usize = 2;
const TRANSACTIONS: usize = 10;
/// The directory of the archive that is removed again.
const REMOVED: &str = "source/d1";

/// Why a program can't run here, if it can't.
pub fn missing(program: Program) -> Option<String> {
    let needed: &[&str] = match program {
        Program::Git => &["git"],
        Program::Untar => &["tar"],
        Program::Pgbench => {
            return postgres()
                .is_none()
                .then(|| "PostgreSQL and pgbench are not installed".into());
        }
        _ => return None,
    };
    let missing = needed.iter().find(|name| rig::installed(name).is_none())?;
    Some(format!("{missing} is not installed"))
}

/// The directory with PostgreSQL's programs.
fn postgres() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut dirs: Vec<PathBuf> = versions
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .collect();
    dirs.sort();
    dirs.push("/usr/bin".into());
    dirs.into_iter().find(|dir| {
        ["initdb", "postgres", "pg_ctl", "pgbench"]
            .iter()
            .all(|name| dir.join(name).exists())
    })
}

/// The command that does the work. The first two arguments of each script are the tree and the mark file.
///
/// # Errors
/// What it needs can't be made.
pub fn command(
    program: Program,
    seed: u64,
    places: &Places,
    tree: &Path,
    mark: &Path,
) -> anyhow::Result<Vec<String>> {
    let rows = ROWS.to_string();
    let (script, more): (&str, Vec<String>) = match program {
        Program::Sqlite => (
            include_str!("foreign/database.py"),
            vec![rows, "wal".into(), "full".into()],
        ),
        Program::SqliteDelete => (
            include_str!("foreign/database.py"),
            vec![rows, "delete".into(), "extra".into()],
        ),
        Program::Git => (
            include_str!("foreign/repository.py"),
            vec![COMMITS.to_string()],
        ),
        Program::Untar => {
            let archive = pack(seed, places)?;
            (
                include_str!("foreign/unpack.py"),
                vec![archive.display().to_string(), REMOVED.into()],
            )
        }
        Program::Pgbench => {
            let programs = postgres().context("PostgreSQL is not installed")?;
            let numbers = [ROUNDS, CLIENTS, TRANSACTIONS].map(|number| number.to_string());
            let dirs = [programs, places.at("sockets")].map(|dir| dir.display().to_string());
            (
                include_str!("foreign/server.py"),
                dirs.into_iter().chain(numbers).collect(),
            )
        }
        _ => anyhow::bail!("{program:?} is made of operations"),
    };
    let path = places.at("program.py");
    fs::write(&path, script)?;
    let paths = [Path::new(PYTHON), &path, tree, mark].map(|path| path.display().to_string());
    Ok(paths.into_iter().chain(more).collect())
}

/// What must be there before the program begins.
///
/// # Errors
/// It can't be made.
pub fn prepare(program: Program, places: &Places, tree: &Path) -> anyhow::Result<()> {
    if program != Program::Pgbench {
        return Ok(());
    }
    let (data, sockets) = (tree.join("data"), places.at("sockets"));
    for dir in [&data, &sockets] {
        fs::create_dir_all(dir)?;
        own(dir)?;
    }
    as_nobody(
        "initdb",
        &[
            "-D".into(),
            data.clone().into(),
            "--wal-segsize=1".into(),
            "--no-sync".into(),
            "--auth=trust".into(),
            "--username=postgres".into(),
            "--no-locale".into(),
        ],
    )?;
    let settings = format!(
        "listen_addresses = ''\nunix_socket_directories = '{}'\nshared_buffers = 8MB\nmin_wal_size = 2MB\n\
         max_wal_size = 4MB\nmax_connections = 10\nautovacuum = off\n",
        sockets.display()
    );
    let file = data.join("postgresql.conf");
    let before = fs::read_to_string(&file)?;
    fs::write(&file, before + &settings)?;
    let control = |verb: &str| {
        let log = sockets.join("log");
        let fixed = ["-w", "-s", "-l"].map(OsString::from);
        let mut arguments = vec![OsString::from("-D"), data.clone().into()];
        arguments.extend(fixed);
        arguments.extend([log.into(), verb.into()]);
        as_nobody("pg_ctl", &arguments)
    };
    control("start")?;
    let fill = ["-i", "-s", "1", "-q", "-U", "postgres", "-h"].map(OsString::from);
    let mut fill = fill.to_vec();
    fill.extend([sockets.clone().into(), "postgres".into()]);
    as_nobody("pgbench", &fill)?;
    control("stop").map(drop)
}

/// Gives a directory to the user that PostgreSQL runs as.
fn own(dir: &Path) -> anyhow::Result<()> {
    rig::run("chown", &["nobody:nogroup".as_ref(), dir.as_os_str()]).map(drop)
}

/// Runs a program of PostgreSQL, which refuses to run as root.
fn as_nobody(program: &str, arguments: &[OsString]) -> anyhow::Result<String> {
    let dir = postgres().context("PostgreSQL is not installed")?;
    let user = ["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"].map(OsString::from);
    let mut all = user.to_vec();
    all.push(dir.join(program).into());
    all.extend_from_slice(arguments);
    rig::run("setpriv", &all)
}

/// Does the program find again what it was told is safe? `dir` is its tree, or a copy of that.
///
/// # Errors
/// What it does not find.
pub fn check(
    program: Program,
    seed: u64,
    places: &Places,
    dir: &Path,
    progress: &Progress,
) -> Result<(), String> {
    match program {
        Program::Sqlite | Program::SqliteDelete => database(dir, progress),
        Program::Git => repository(dir, progress),
        Program::Untar => unpacked(&sources(seed), dir, progress),
        Program::Pgbench => server(places, dir, progress),
        _ => Ok(()),
    }
}

/// Is a count between what was acknowledged and what was begun?
fn fits(count: usize, each: usize, progress: &Progress) -> bool {
    (progress.acknowledged * each..=progress.begun * each).contains(&count)
}

/// Is the database whole, with every acknowledged row?
fn database(dir: &Path, progress: &Progress) -> Result<(), String> {
    let file = dir.join("base.db");
    let is_early = progress.acknowledged == 0;
    if !file.exists() {
        return if is_early {
            Ok(())
        } else {
            Err("there is no base.db".into())
        };
    }
    let question = "pragma integrity_check; select count(*), coalesce(max(id), -1) from t;";
    let answer = match rig::run("sqlite3", &[OsString::from(&file), question.into()]) {
        Err(_) if is_early => return Ok(()),
        Err(e) => return Err(format!("{e:#}")),
        Ok(answer) => answer,
    };
    let lines: Vec<&str> = answer.lines().collect();
    let rows: Vec<i64> = lines.last().map_or(Vec::new(), |last| {
        last.split('|').flat_map(str::parse).collect()
    });
    let is_right = match rows[..] {
        [count, last] => lines[0] == "ok" && count == last + 1 && fits(count as usize, 1, progress),
        _ => false,
    };
    is_right
        .then_some(())
        .ok_or_else(|| format!("{progress:?}: {answer}"))
}

/// Is the repository whole, with every acknowledged commit? Before the first there need be none.
fn repository(dir: &Path, progress: &Progress) -> Result<(), String> {
    if progress.begun == 0 {
        return Ok(());
    }
    let git = |arguments: &[&str]| {
        let dir = dir.display().to_string();
        let fixed = ["-c", "safe.directory=*", "-C", &dir];
        rig::run("git", &[&fixed, arguments].concat())
    };
    let said = git(&["fsck", "--full", "--strict"]).map_err(|e| format!("{progress:?}: {e:#}"))?;
    let count = match git(&["rev-list", "--count", "HEAD"]) {
        Ok(count) => count.parse().unwrap_or(0),
        Err(_) if progress.acknowledged == 0 => return Ok(()),
        Err(e) => return Err(format!("{progress:?}: {e:#}")),
    };
    fits(count, 1, progress)
        .then_some(())
        .ok_or_else(|| format!("{progress:?}: {count} commits; {said}"))
}

type Sources = BTreeMap<String, Vec<u8>>;

/// The files of an archive, by path.
fn sources(seed: u64) -> Sources {
    let mut random = fastrand::Rng::with_seed(seed);
    let one = |number: usize| {
        let dir = ["", "d1/", "d1/e/", "d2/", "d3/e/f/"][number % 5];
        let line = format!("line of file {number}\n").into_bytes();
        let bytes = line
            .into_iter()
            .cycle()
            .take(random.usize(..9000))
            .collect();
        (format!("source/{dir}f{number}.c"), bytes)
    };
    (0..80).map(one).collect()
}

fn pack(seed: u64, places: &Places) -> anyhow::Result<PathBuf> {
    let (from, archive) = (places.at("packed"), places.at("archive.tar"));
    for (path, bytes) in sources(seed) {
        let path = from.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&from))?;
        fs::write(path, bytes)?;
    }
    let arguments = ["--sort=name", "-C"].map(OsString::from);
    let mut arguments = arguments.to_vec();
    arguments.extend([from.into(), "-cf".into(), archive.clone().into()]);
    arguments.push("source".into());
    rig::run("tar", &arguments)?;
    Ok(archive)
}

/// Steps of `unpack.py`: tar, sync, rm, sync.
fn unpacked(sources: &Sources, dir: &Path, progress: &Progress) -> Result<(), String> {
    let found = tree::read(dir).map_err(|e| format!("{e:#}"))?;
    let is_in = |path: &str, dir: &str| path == dir || path.starts_with(&format!("{dir}/"));
    for (path, entry) in &found {
        let bytes = &entry.node.bytes;
        match sources.get(path) {
            None if entry.node.is_dir && sources.keys().any(|name| is_in(name, path)) => {}
            None => return Err(format!("{path} is not in the archive")),
            Some(wanted) => {
                let is_part = bytes.len() <= wanted.len()
                    && bytes
                        .iter()
                        .zip(wanted)
                        .all(|(byte, wanted)| byte == wanted || *byte == 0);
                let is_synced = progress.acknowledged >= 2;
                if !is_part || (is_synced && bytes != wanted) {
                    return Err(format!("{path} is not as in the archive"));
                }
            }
        }
    }
    let removed = |path: &str| is_in(path, REMOVED);
    if progress.acknowledged >= 4 && found.keys().any(|path| removed(path)) {
        return Err(format!("{progress:?}: what was removed is there again"));
    }
    let must_be_there = |path: &str| match progress.acknowledged {
        0 | 1 => false,
        _ => progress.begun == 2 || !removed(path),
    };
    let lost = sources
        .keys()
        .find(|path| must_be_there(path) && !found.contains_key(*path));
    match lost {
        Some(path) => Err(format!("{progress:?}: {path} is lost")),
        None => Ok(()),
    }
}

/// Does PostgreSQL start on a copy, with every acknowledged transaction, and do its sums agree?
fn server(places: &Places, dir: &Path, progress: &Progress) -> Result<(), String> {
    let (from, copy) = (dir.join("data"), places.at("copy-of-data"));
    let failed = |e: anyhow::Error| format!("{progress:?}: {e:#}");
    let _ = fs::remove_dir_all(&copy);
    rig::run("cp", &["-a".as_ref(), from.as_os_str(), copy.as_os_str()]).map_err(failed)?;
    let _ = fs::remove_file(copy.join("postmaster.pid"));
    let question = places.at("question.sql");
    let text = "select count(*), coalesce(sum(delta), 0) from pgbench_history;\n\
                select sum(abalance) from pgbench_accounts;\nselect sum(tbalance) from pgbench_tellers;\n\
                select sum(bbalance) from pgbench_branches;\n";
    fs::write(&question, text).map_err(|e| e.to_string())?;
    // One process, no socket; it replays its log first.
    let dir = postgres().unwrap_or_default();
    let command = format!(
        "setpriv --reuid nobody --regid nogroup --clear-groups {}/postgres --single -D {} postgres < {}",
        dir.display(),
        copy.display(),
        question.display()
    );
    let answer = rig::run("sh", &["-c", &command]);
    let _ = fs::remove_dir_all(&copy);
    let answer = answer.map_err(failed)?;
    let numbers: Vec<i64> = answer
        .lines()
        .filter(|line| line.contains(" = \""))
        .filter_map(|line| line.split('"').nth(1)?.parse().ok())
        .collect();
    let is_right = match numbers[..] {
        [count, delta, accounts, tellers, branches] => {
            let agree = delta == accounts && delta == tellers && delta == branches;
            agree && fits(count as usize, CLIENTS * TRANSACTIONS, progress)
        }
        _ => false,
    };
    is_right
        .then_some(())
        .ok_or_else(|| format!("{progress:?}: {numbers:?} {answer}"))
}
