//! A machine that loses power, for tests.
//!
//! A disk ([`disk`]) writes down in one sequence what reaches it: writes, flushes, and what a workload says that it does.
//! From this log come the images that a power loss may leave ([`image`], [`pick`]): everything before the last flush,
//! and any part of what was written since. Each image is mounted, recovered and judged against a model of what the
//! workload did ([`oracle`]; [`rebuilt`] after a rebuild of the tables), or by a program that looks for its own data ([`foreign`]).
//! A recovery is a workload, too: it can be recorded, and lose the power ([`case`]).
//!
//! What decides (which images, what is right) is pure; [`rig`], [`recorder`] and [`judge`] carry it out. Needs root, FUSE and
//! loop devices. All of it lives in mount and process namespaces of its own, so nothing is left when it ends, however it
//! ends.
#![forbid(unsafe_code)]

pub mod case;
pub mod disk;
mod durable;
mod foreign;
pub mod hunt;
mod image;
pub mod judge;
mod log;
mod model;
pub mod oracle;
pub mod pick;
pub mod preset;
mod programs;
mod rebuilt;
pub mod recorder;
pub mod rig;
mod sequences;
mod storage;
mod tree;
mod verdict;
pub mod workload;
