//! The policy of Forebay, and nothing else.
//!
//! Everything that *decides* is here: which bridge is home of a path, who wins
//! a create, what a listing shows, what has to be drained in which order. There
//! are no sockets, files, threads, clocks or environment variables: facts come
//! in through traits, decisions go out as values. The same code runs in the
//! real servers (`forebay-server`) and under the seeded fault simulator
//! (`forebay-sim`).
#![forbid(unsafe_code)]
// Which ones, and why: clippy.toml beside Cargo.toml.
#![deny(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros
)]

mod access;
pub mod access_list;
pub mod batch;
pub mod bridge;
pub mod bypass;
pub mod callers;
pub mod claim;
pub mod collective;
pub mod doors;
pub mod drain;
pub mod encoding;
pub mod facts;
pub mod fault;
pub mod fsck;
pub mod home;
pub mod identity;
pub mod in_place;
pub mod label;
pub mod lifetime;
pub mod markers;
pub mod membership;
pub mod mounting;
pub mod ops;
pub mod path;
pub mod pfs_kind;
pub mod process_limits;
pub mod record;
pub mod recovery;
pub mod repair;
pub mod request;
pub mod reserve;
pub mod restarts;
pub mod root_dir;
pub mod share;
pub mod shown;
pub mod spares;
pub mod speakers;
pub mod storage;
pub mod table;
pub mod walk;
