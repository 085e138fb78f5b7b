//! What this crate reads and writes, seen by PyDarshan 3.5.0.

mod common;

use common::dump::{Quirks, dump};
use common::{PyDarshan, TempFolder, every_module, raw, sample_logs};
use darshan_log::counters::{daos, dfs, h5d, h5f, mpiio, pnetcdf_file, pnetcdf_var, posix, stdio};
use darshan_log::*;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio as Pipe;

/// Lines of one log, by path; those before the first log stand under "".
type Dumps = HashMap<String, Vec<String>>;

/// Lets one Python process print all of `logs`.
fn pydarshan_dumps(pydarshan: &PyDarshan, logs: &[PathBuf], folder: &Path) -> Dumps {
    let output = folder.join("pydarshan.txt");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pydarshan_dump.py");
    let mut python = pydarshan
        .python()
        .arg(script)
        .stdin(Pipe::piped())
        .stdout(File::create(&output).unwrap())
        .spawn()
        .unwrap();
    let mut input = python.stdin.take().unwrap();
    for log in logs {
        writeln!(input, "{}", log.display()).unwrap();
    }
    drop(input);
    assert!(python.wait().unwrap().success());
    let mut dumps = Dumps::new();
    let mut current = String::new();
    for line in BufReader::new(File::open(&output).unwrap()).lines() {
        let line = line.unwrap();
        if let Some(path) = line.strip_prefix("log ") {
            current = path.to_owned();
        } else if line != "end" {
            dumps
                .entry(current.clone())
                .or_default()
                .push(line.trim_end().to_owned());
        }
    }
    assert_eq!(dumps.len(), logs.len() + 1, "PyDarshan stopped early");
    dumps
}

/// Compares lines, and the sums of modules as far as their rules allow.
fn assert_same(path: &Path, ours: &[String], theirs: &[String]) -> usize {
    assert_eq!(ours.len(), theirs.len(), "{}", path.display());
    let mut values = 0;
    for (our, their) in ours.iter().zip(theirs) {
        if let (Some(our), Some(their)) = (our.strip_prefix("sum "), their.strip_prefix("sum ")) {
            assert_same_sum(path, our, their);
        } else if our != their {
            panic!("{}\n  ours: {our}\ntheirs: {their}", path.display());
        }
        values += our.split(' ').count() - 1;
    }
    values
}

/// The lists of most frequent values are merged pairwise by darshan-util, so that counts get
/// lost; all other counters are equal.
fn assert_same_sum(path: &Path, our: &str, their: &str) {
    let parse = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let (mut our, mut their) = (parse(our), parse(their));
    // record, module, id, rank, extra
    let first_counter = 5;
    let lists: &[usize] = match our[1].as_str() {
        "POSIX" => &[49, 57],
        "MPI-IO" | "DFS" => &[39],
        "DAOS" => &[49],
        _ => &[],
    };
    for list in lists {
        let place = first_counter + list;
        let top = |line: &[String]| {
            let number = |i: usize| line[place + i].parse::<i64>().unwrap();
            (0..4)
                .map(|i| (number(i), number(i + 4)))
                .filter(|pair| pair.1 > 0)
                .collect::<Vec<_>>()
        };
        let (ours, theirs) = (top(&our), top(&their));
        if ours.len() < 4 {
            // No value was displaced, so none was lost. Their order may be that of arrival.
            let sorted = |mut list: Vec<(i64, i64)>| {
                list.sort();
                list
            };
            assert_eq!(
                sorted(ours),
                sorted(theirs),
                "{}: list at {list}",
                path.display()
            );
        } else {
            let sum = |list: &[(i64, i64)]| list.iter().map(|pair| pair.1).sum::<i64>();
            assert!(
                sum(&ours) >= sum(&theirs),
                "{}: {ours:?} {theirs:?}",
                path.display()
            );
        }
        our[place..place + 8].fill(String::new());
        their[place..place + 8].fill(String::new());
    }
    if our[1] == "DAOS" {
        // darshan-util forgets DAOS_NB_OPS.
        their[first_counter + daos::Counter::NbOps as usize] =
            our[first_counter + daos::Counter::NbOps as usize].clone();
    }
    // darshan-util clamps sums of "not collected" to -1 for POSIX only.
    for counter in their[first_counter..]
        .iter_mut()
        .filter(|counter| counter.starts_with('-'))
    {
        *counter = "-1".into();
    }
    assert_eq!(our, their, "{}: sum", path.display());
}

/// The lines without what a new format has to change: version and length of the format and of modules.
fn comparable(lines: &[String]) -> Vec<String> {
    lines
        .iter()
        .filter(|line| !line.starts_with("format "))
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["module", number, name, _, partial, _] => format!("{number} {name} {partial}"),
                // Before 3.41 there were 16 bytes more for the command line.
                ["exe", text] => format!("exe {}", &text[..text.len().min(2 * 3015)]),
                _ => line.clone(),
            }
        })
        .collect()
}

/// A log with every module, and logs of every format and record version. (PyDarshan's wheels can't
/// read bzip2; `formats.rs` compares those logs with the same ones in zlib.)
fn own_logs(folder: &Path) -> Vec<PathBuf> {
    let mut logs = vec![("every-module".to_owned(), every_module::bytes())];
    for endian in [Endian::Little, Endian::Big] {
        for compression in [Compression::Zlib, Compression::None] {
            for mut log in raw::every_version(endian, compression) {
                if endian == Endian::Big {
                    // darshan-util loses them.
                    log.partial = 0;
                }
                let name = format!("{}-{endian:?}-{compression:?}", log.version.as_str());
                logs.push((name, log.bytes()));
            }
        }
    }
    let store = |(name, bytes): (String, Vec<u8>)| {
        let path = folder.join(format!("{name}.darshan"));
        std::fs::write(&path, bytes).unwrap();
        path
    };
    logs.into_iter().map(store).collect()
}

#[test]
fn every_value_of_every_log_is_the_one_that_pydarshan_reads_before_and_after_rewriting() {
    let Some(pydarshan) = PyDarshan::find() else {
        return;
    };
    let folder = TempFolder::new("pydarshan");
    // Sample logs give more to compare; the test is complete without them.
    let samples = sample_logs().unwrap_or_else(|reason| {
        forebay_testkit::without_data(&reason);
        Vec::new()
    });
    let logs: Vec<PathBuf> = samples
        .into_iter()
        .chain(pydarshan.example_logs())
        .chain(own_logs(&folder.0))
        .collect();
    let copies: Vec<PathBuf> = (0..logs.len())
        .map(|i| folder.0.join(format!("copy-{i}.darshan")))
        .collect();
    for (path, copy) in logs.iter().zip(&copies) {
        let log = Log::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let writer = LogWriter::create(copy, &log.job, &log.exe, &log.mounts).unwrap();
        let (_, written, left_out) = rewrite(&log, writer).unwrap();
        assert!(left_out.is_empty());
        if log.header.version == FormatVersion::V3_41 {
            assert!(
                !written.exe_truncated && written.mounts_left_out == 0,
                "{}",
                path.display()
            );
        }
        assert_eq!(copy.metadata().unwrap().len(), written.bytes);
    }
    let all: Vec<PathBuf> = logs.iter().chain(&copies).cloned().collect();
    let dumps = pydarshan_dumps(&pydarshan, &all, &folder.0);
    let theirs = |path: &Path| &dumps[path.to_str().unwrap()];
    let mut values = 0;
    for (path, copy) in logs.iter().zip(&copies) {
        let log = Log::open(path).unwrap();
        values += assert_same(path, &dump(&log, Quirks::AsPyDarshan), theirs(path));
        let true_values = comparable(&dump(&log, Quirks::None));
        assert_same(path, &true_values, &comparable(theirs(copy)));
        let copied = Log::open(copy).unwrap();
        assert_same(copy, &dump(&copied, Quirks::None), theirs(copy));
        for module in log.modules().iter().filter(|module| !module.is_decoded()) {
            assert_eq!(raw_bytes(&log, module.id), raw_bytes(&copied, module.id));
        }
    }
    println!("{} logs, {values} values", logs.len());
    assert!(values > 2_000);
    assert_same_names(&dumps[""]);
}

fn raw_bytes(log: &Log, id: ModuleId) -> Vec<u8> {
    let mut all = Vec::new();
    log.raw_module(id, |bytes| {
        all.extend_from_slice(bytes);
        Ok(())
    })
    .unwrap();
    all
}

fn assert_same_names(lines: &[String]) {
    let of = |kind: &str, module: ModuleId, names: &[&str]| {
        assert!(
            lines.contains(&format!("{kind} {} {}", module.name(), names.join(" "))),
            "{kind} of {module}"
        );
    };
    let both = |module, names: &[&str], floats: &[&str]| {
        of("counters", module, names);
        of("fcounters", module, floats);
    };
    both(ModuleId::Posix, &posix::COUNTERS, &posix::FCOUNTERS);
    both(ModuleId::MpiIo, &mpiio::COUNTERS, &mpiio::FCOUNTERS);
    both(ModuleId::Stdio, &stdio::COUNTERS, &stdio::FCOUNTERS);
    both(ModuleId::H5f, &h5f::COUNTERS, &h5f::FCOUNTERS);
    both(ModuleId::H5d, &h5d::COUNTERS, &h5d::FCOUNTERS);
    both(
        ModuleId::PnetcdfFile,
        &pnetcdf_file::COUNTERS,
        &pnetcdf_file::FCOUNTERS,
    );
    both(
        ModuleId::PnetcdfVar,
        &pnetcdf_var::COUNTERS,
        &pnetcdf_var::FCOUNTERS,
    );
    both(ModuleId::Dfs, &dfs::COUNTERS, &dfs::FCOUNTERS);
    both(ModuleId::Daos, &daos::COUNTERS, &daos::FCOUNTERS);
    of("counters", ModuleId::Lustre, &LUSTRE_COMPONENT_COUNTERS);
}

#[test]
fn a_log_with_every_module_becomes_a_summary_without_a_warning() {
    let Some(pydarshan) = PyDarshan::find() else {
        return;
    };
    let folder = TempFolder::new("summary");
    let log = folder.0.join("every.darshan");
    std::fs::write(&log, every_module::bytes()).unwrap();
    let output = pydarshan
        .python()
        .args(["-m", "darshan", "summary", "every.darshan"])
        .current_dir(&folder.0)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert_eq!(said, "", "warnings");
    let page = std::fs::read_to_string(folder.0.join("every_report.html")).unwrap();
    for module in [
        "POSIX",
        "MPI-IO",
        "STDIO",
        "H5F",
        "H5D",
        "PNETCDF_FILE",
        "PNETCDF_VAR",
        "LUSTRE",
        "HEATMAP",
        "DXT_POSIX",
        "DXT_MPIIO",
    ] {
        assert!(page.contains(module), "{module}");
    }
}
