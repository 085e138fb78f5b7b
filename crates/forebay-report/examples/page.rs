//! Writes the page of the first job to standard output: `cargo run --example page -- job.darshan > job.html`.

use std::path::PathBuf;

fn main() -> Result<(), forebay_report::Error> {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if let Some(report) = forebay_report::read(&paths)?.first() {
        print!("{}", report.html());
    }
    Ok(())
}
