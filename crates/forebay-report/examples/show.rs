//! Prints the summary of each job in the logs that are named: `cargo run --example show -- job.darshan`.

use std::path::PathBuf;

fn main() -> Result<(), forebay_report::Error> {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    for report in forebay_report::read(&paths)? {
        println!("{}", report.text());
    }
    Ok(())
}
