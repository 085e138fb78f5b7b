//! `forebay collect`: writes the log of a job whose recorder was interrupted, or that ran on several nodes.

use crate::cli::{self, exit};
use crate::error::Fault;
use crate::recorder::{log_text, recordings_of, write_log};

/// Runs the verb.
pub fn collect(args: &cli::CollectArgs) -> Result<u8, Fault> {
    let log = match &args.log {
        Some(log) => Some(crate::recorder::new_log(log)?),
        None => None,
    };
    let collected = write_log(recordings_of(&args.dirs)?, log.as_deref())?;
    println!("log {}", log_text(&collected));
    for remark in &collected.remarks {
        eprintln!("forebay: {remark}");
    }
    Ok(exit::OK)
}
