//! Every limit of the bridge, with what a client sees when it is reached. Of connections, lanes, and requests that wait for a
//! thread, one user may take only a part: [`forebay_core::share`].
//!
//! A granted descriptor is the client's own and counts against its own limit of open
//! files (EMFILE); what is on its way to clients is bounded by their queues and by the
//! kernel (EMFILE as well).

use std::time::Duration;

/// Connections at once, over all clients; less if the limit of descriptors is lower.
/// One more is closed at once, after a reply EMFILE.
pub const CONNECTIONS: usize = 16 * 1024;
/// Connections that are let in even if the limit of descriptors leaves no room for them.
pub const FEWEST_CONNECTIONS: u64 = 64;
/// Descriptors kept back from connections for backing objects, tables and the PFS.
pub const RESERVED_DESCRIPTORS: u64 = 1024;
/// How many of a client's descriptors are searched for one that it claims to hold, if its user could not open what that leads
/// to. Beyond that: EACCES.
pub const DESCRIPTORS_LOOKED_AT: usize = 256;
/// PFS files up to this size are staged when they are opened for writing; larger ones are written in place.
pub const STAGE_LIMIT_BYTES: u64 = 1 << 30;
/// So many records below a directory of the PFS go with it in one commit, which others wait for; more go in parts.
pub const REMOVED_AT_ONCE: usize = 256;
/// Connections of one process. One more is closed at once, after a reply EMFILE.
pub const CONNECTIONS_PER_PROCESS: usize = 1024;
/// Connections that share memory with the bridge, a page each. One more is refused it (ENOSPC) and goes on
/// by its socket alone.
pub const LANES: usize = 4096;
/// Lanes that one shard polls while it does not sleep; the clients of the others use their sockets meanwhile.
pub const ATTENDED_LANES: usize = 64;
/// Requests that wait for a thread that may block. One more is answered EAGAIN.
pub const BLOCKING_QUEUE: usize = 16 * 1024;
/// Threads that may block.
pub const BLOCKING_THREADS: usize = 16;
/// Listings of the PFS that are kept between the parts of a listing. The least recently used one goes first; its reader
/// gets a fresh one.
pub const LISTINGS: usize = 256;
/// Entries of all kept listings in sum.
pub const LISTING_ENTRIES: usize = 1 << 20;
/// Entries that one part of a listing asks for; what does not fit the reply comes in the next.
pub const ENTRIES_PER_REPLY: usize = 1500;
/// Entries of a PFS directory that a shard reads itself; a larger one is read where it may block.
pub const INLINE_LISTING: usize = 2048;
/// The same before it is removed: all of them are compared with records then, several times. And records below a directory
/// that a request reads there.
pub const INLINE_REMOVAL: usize = 256;
/// Bytes that a shard copies itself when it stages a file; a larger one is copied where it may block.
pub const INLINE_STAGE_BYTES: u64 = 256 << 10;
/// Pause of a request that lost a race.
pub const PAUSE: Duration = Duration::from_millis(1);
/// Answers to control messages that are being written. One more is refused EAGAIN.
pub const ANSWERS: usize = 64;
/// Of these, answers to callers that follow a drain, however long it takes. One more gets the state once, and asks again.
pub const FOLLOWERS: usize = ANSWERS / 2;
/// Longest pause of a caller in reading the answer to a control message; then the answer is cut off.
pub const ANSWER_PATIENCE: Duration = Duration::from_secs(30);
/// How long the end of the bridge waits for such answers before it cuts them off.
pub const LAST_ANSWERS_PATIENCE: Duration = Duration::from_secs(1);
/// Entries of the list of what a drain has left that are copied at a time, while it is locked.
pub const LEFT_PER_LOOK: usize = 256;
/// Most entries in all lists of what drains have left together. The oldest drains are forgotten to stay below; the last two never are.
pub const LEFT_LISTED: usize = 1 << 17;
/// An event loop that finds no descriptor for a new connection takes none for this time: it would be told of it again at once.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Listening backlog.
pub const BACKLOG: i32 = 1024;
/// Marks of finished work that one commit takes away.
pub const MARKS_PER_COMMIT: usize = 64;
/// Longest delay of a directory's times on disk.
pub const TOUCH_DELAY: Duration = Duration::from_millis(50);
/// A cause appears in the log at most once in this time; the next line says how many were left out.
pub const LOG_INTERVAL: Duration = Duration::from_secs(1);
/// How long the end of the bridge waits for requests that block.
pub const STOP_PATIENCE: Duration = Duration::from_secs(30);
/// Descriptors for which the kernel makes room at the start: clients, and the copies of a drain (some 2,500 with 32 movers).
pub const EXPECTED_DESCRIPTORS: u64 = 4096;
