//! The `forebay` command as users and scripts see it: exit codes, messages, signals, and the files that it leaves.

#[path = "../common/mod.rs"]
mod common;

mod attach;
mod bridges;
mod bypass;
mod doctor;
mod drain;
mod durability;
mod formats;
mod kept;
mod memory;
mod neighbours;
mod one_buffer;
mod one_file;
mod past_the_buffer;
mod probe;
mod quarantine;
mod rebuilt;
mod root_dir;
mod run;
mod scarce;
mod stage;
mod wrong;
