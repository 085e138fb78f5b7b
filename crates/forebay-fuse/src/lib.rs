//! The buffer as a mount: every program sees it, in whatever way it makes its system calls.
//!
//! A [`Server`] reads the requests of the kernel from `/dev/fuse` and turns each into a request to a running bridge, by
//! [`forebay_link`], listings by [`forebay_client`]. It keeps no attributes, and of an inode that the kernel knows a few names, by which
//! it asks; so the bridge stays the one truth of its node. Bytes go to the descriptors that the bridge grants. Where the kernel has passthrough it reads and writes them itself,
//! and this server is asked only to open and to close.
//!
//! - `protocol` decodes requests, `reply` encodes answers. Both are pure.
//! - `nodes` knows what the kernel's node ids stand for.
//! - `door` asks the bridge.
//! - `server`, `name_requests`, `files` and `attributes` carry requests out.
//! - `device` opens `/dev/fuse` and mounts; `trial` finds out whether that works here.
//!
//! # Nothing is cached
//! Entries and attributes are valid for no time at all, so the kernel asks again at each look. What other programs change
//! through the preload library is seen at once. A node whose file is no longer where it was gives ESTALE, at which the
//! kernel looks its path up anew.
//!
//! # Why not the crate `fuser`
//! Its protocol (0.18) ends before TMPFILE, STATX and SYNCFS, it cannot ask the kernel to send requests again after a
//! restart (RESEND), and it makes the node id the inode number. An inode number changes when a file is staged, and node
//! ids must not.
#![forbid(unsafe_code)]

mod attributes;
mod device;
mod door;
mod files;
mod name_requests;
mod nodes;
mod protocol;
mod reply;
mod server;
mod trial;

pub use device::{Device, Refused, server_of, unmount};
pub use server::{Error, Server};
pub use trial::{Trial, attempt};
