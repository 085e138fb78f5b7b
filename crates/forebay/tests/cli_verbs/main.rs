//! The `forebay` command as its users and their scripts meet it: exit codes, messages, signals, and what is
//! left behind.

#[path = "../common/mod.rs"]
mod common;

mod bridges;
mod drain;
mod formats;
mod one_file;
mod run;
mod stage;
mod wrong;
