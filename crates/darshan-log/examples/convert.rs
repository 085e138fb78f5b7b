//! Copies a Darshan log of any 3.x format into the current one:
//! `cargo run --example convert -- old.darshan new.darshan`.

use darshan_log::{Log, LogWriter, rewrite};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(from), Some(to)) = (arguments.next(), arguments.next()) else {
        return Err("usage: convert FROM.darshan TO.darshan".into());
    };
    let log = Log::open(from)?;
    let writer = LogWriter::create(to, &log.job, &log.exe, &log.mounts)?;
    let (_, written, left_out) = rewrite(&log, writer)?;
    println!(
        "format {} became 3.41, {} bytes",
        log.header.version.as_str(),
        written.bytes
    );
    for module in left_out {
        println!("{module} was left out");
    }
    if written.exe_truncated || written.mounts_left_out > 0 {
        println!(
            "command line cut: {}, mounts left out: {}",
            written.exe_truncated, written.mounts_left_out
        );
    }
    Ok(())
}
