//! System calls of the service and of the command, as safe functions.
//!
//! The crate decides nothing: arguments go in, a result or an errno comes out. Names are bytes without a closing NUL,
//! relative to a directory descriptor; a name with a NUL inside is EINVAL. New descriptors have `O_CLOEXEC`.
//!
//! `rustix` makes the calls. This crate adds what callers would otherwise repeat: the retry after a signal, the
//! substitute for a call that a file system lacks, and the types of `forebay-types`. The calls that `rustix` does not
//! have are in [`raw`], the only module with `unsafe`, which gives a reason for each.
#![deny(unsafe_code)]

mod attributes;
mod contents;
mod cpu;
mod errno;
mod events;
mod files;
mod filesystem;
mod listing;
mod mounts;
mod name_calls;
mod node;
mod passing;
mod process;
mod raw;
mod threads;
mod xattrs;

pub use attributes::{
    chmod, chmod_at, chmod_of_path, chown, has_inode_flags, now_coarse, proc_link, set_times,
    set_times_of_path, set_times_to_now, stat, stat_known,
};
pub use contents::{
    begin_writeback, copy, forget_pages, fsync, next_data, set_size, sync_names, syncfs, will_need,
    will_read_all, write_out,
};
pub use cpu::{cpu, let_others_run_first, move_to_other_cpu};
pub use errno::{Errno, Sys, errno_of};
pub use events::{
    EVENTS_PER_WAIT, Epoll, Event, drain, eventfd, has_hung_up, is_readable, notify, pipe,
    wait_any, wait_either,
};
pub use files::{
    check_access, create_anew, is_locked, keep_access_time, lock_file, open, open_at_once,
    open_beneath, open_path, reopen, scratch_file, unlock_file,
};
pub use filesystem::{cache_life, free_inodes, fs_space, fs_type, space, writes_in_place};
pub use listing::{RawEntry, read_dir};
pub use mounts::{
    Namespace, ancestors, enter_namespace, is_within, mount_points, mounted, own_namespace,
};
pub use name_calls::{
    exchange, link, link_file, make_dir, mkdir, mknod, readlink, rename, rename_noreplace, symlink,
    unlink,
};
pub use node::{
    boot_id, has_open, host_name, kernel_version, mount_space, pid_space, process_name,
    process_started,
};
pub use passing::{message_pair, receive_descriptors, send_descriptors};
pub use process::{
    Process, adopt_orphans, await_end, clear_umask, descriptor_limits, die_with_parent, exit_of,
    file_size_limit, free_descriptors, leave_terminal, live_without_parent,
    make_room_for_descriptors, my_groups, my_ids, pass_on, raise_descriptor_limit,
    raise_file_size_limit, random, reap, take_stdin,
};
pub use raw::accounts::{local_time, user_name};
pub use raw::fuse::{
    fuse_backing_close, fuse_backing_open, inherited_descriptor, unshare_mounts, unshare_users,
};
pub use raw::heap::{bound as bound_heap, trim as trim_heap};
pub use raw::lane::{LaneMemory, LaneView};
pub use raw::lease::{Openers, is_in_use, is_opened_once, was_opened_once};
pub use raw::memory::{MappedBytes, MappedWords, SparseWords};
pub use raw::peers::{Peer, Received, peer, peer_groups, receive};
pub use raw::queue::is_received;
pub use raw::session::{fork, in_new_session};
pub use raw::signals::{
    abort_at_panics, end_with_the_reader, hear_of_children, pass_signals_to, signals, signals_seen,
    watch_signals,
};
pub use raw::words::{DurabilityOwner, DurabilityWords, SharedNames};
pub use threads::start_threads;
pub use xattrs::{
    Xattr, copy_xattrs, copy_xattrs_of_path, get_xattr, get_xattr_of_path, has_only_xattr,
    list_xattr, read_xattrs, remove_xattr, set_xattr, write_xattrs,
};
