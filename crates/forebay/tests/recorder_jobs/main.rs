//! Jobs of many kinds under `forebay record` and `forebay run`, and the one log that each of them leaves.

#[path = "../common/mod.rs"]
mod common;
#[path = "../cli_verbs/stage.rs"]
mod stage;

mod ends;
mod job;
mod logs;
mod mpi;
mod pools;
mod pydarshan;
mod runs;
mod sanitizers;
mod slow_node;
mod syncs;
mod trees;
