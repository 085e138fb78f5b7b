//! `forebay fsck`: checks, and mends, the storage of a bridge that is not running.

use crate::cli::{self, exit};
use crate::error::{Fault, fault};
use crate::place::plain;
use crate::units;
use forebay_server::fsck::{FsckReport, Options};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Runs the verb.
pub fn fsck(args: &cli::FsckArgs) -> Result<u8, Fault> {
    let instances = instances(&args.storage)?;
    let options = Options {
        mend: args.mend,
        rebuild: args.rebuild,
    };
    let mut code = exit::OK;
    let mut all = Vec::new();
    for instance in &instances {
        let outcome = forebay_server::fsck::fsck(instance, options);
        if !outcome.as_ref().is_ok_and(is_sound) {
            code = exit::FAILURE;
        }
        if args.json {
            all.push(match &outcome {
                Ok(report) => json!({
                    "instance": instance.to_string_lossy(),
                    "sound": is_sound(report),
                    "report": report,
                }),
                Err(e) => json!({
                    "instance": instance.to_string_lossy(),
                    "sound": false,
                    "error": e.to_string(),
                }),
            });
        } else {
            match &outcome {
                Ok(report) => print!("{}", text(instance, report)),
                Err(e) => {
                    println!("{}: {e}", instance.display());
                    if let Some(hint) = e.hint() {
                        println!("  hint: {hint}");
                    }
                }
            }
        }
    }
    if args.json {
        println!("{:#}", Value::from(all));
    }
    Ok(code)
}

/// True if nothing is wrong, or everything was mended.
fn is_sound(report: &FsckReport) -> bool {
    report.problems.len() <= report.mended
}

fn text(instance: &Path, report: &FsckReport) -> String {
    let mut text = format!(
        "{}: {}, {}",
        instance.display(),
        units::count(report.records as u64, "name", "names"),
        units::count(report.objects as u64, "object", "objects"),
    );
    if report.recovered {
        text.push_str("; the last bridge was killed, what it left unfinished is finished now");
    }
    if let Some(before) = report.upgraded_from {
        text.push_str(&format!(
            "; the storage had format {before} and has format {} now",
            forebay_server::STORAGE_FORMAT
        ));
    }
    if report.rebuilt > 0 {
        text.push_str(&format!(
            "; {} rebuilt from the objects",
            units::count(report.rebuilt as u64, "name", "names")
        ));
    }
    if report.problems.is_empty() {
        text.push_str("; nothing wrong\n");
    } else {
        text.push_str(&format!(
            "; {}, {} mended\n",
            units::count(report.problems.len() as u64, "problem", "problems"),
            report.mended
        ));
    }
    if let Some(why) = &report.left_alone {
        text.push_str(&format!("  only the storage was looked at: {why}\n"));
    }
    for problem in &report.problems {
        text.push_str(&format!("  {problem}\n"));
    }
    for withheld in &report.withheld {
        text.push_str(&format!(
            "  {withheld} since a power loss: forebay quarantine shows it\n"
        ));
    }
    text
}

/// True if the directory is an instance: it holds the files of a bridge.
fn is_instance(dir: &Path) -> bool {
    dir.join("lock").is_file() && dir.join("obj").is_dir()
}

fn instances(storage: &Path) -> Result<Vec<PathBuf>, Fault> {
    if is_instance(storage) {
        return Ok(vec![storage.to_owned()]);
    }
    let failed = |e| fault(format!("storage {}: {}", storage.display(), plain(&e)));
    let (mut found, mut closed) = (Vec::new(), None);
    for entry in std::fs::read_dir(storage).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_closed = |e: std::io::Error| e.kind() == std::io::ErrorKind::PermissionDenied;
        match is_instance(&path) {
            true => found.push(path),
            false if path.join("lock").symlink_metadata().is_err_and(is_closed) => {
                closed = Some(path);
            }
            false => {}
        }
    }
    if let Some(path) = closed.filter(|_| found.is_empty()) {
        let (storage, path) = (storage.display(), path.display());
        return Err(fault(format!(
            "{storage} holds no buffer that you may look into ({path} is closed to you)"
        ))
        .hint("run this as the user whose buffer it is, or as root"));
    }
    if found.is_empty() {
        return Err(fault(format!("{} holds no buffer", storage.display()))
            .hint("name the directory that --storage named, or one of the folders in it"));
    }
    found.sort();
    Ok(found)
}
