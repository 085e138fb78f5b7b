//! The mover: brings what is in the buffer to the PFS, and says what is left.
//!
//! [`forebay_core::drain`] decides everything; here are the threads that ask it for acts, and the system calls
//! that carry them out.
//!
//! | room | what it does |
//! |---|---|
//! | `pass`, `crew`, `ground` | threads that carry out acts; where they do |
//! | `pfs`, `pfs_acts` | names and directories of the PFS change |
//! | `known` | looks through its directories |
//! | `aside`, `removal`, `leftovers` | directories that go are put aside, and removed but for what others have put there; what earlier drains have left goes |
//! | `touched` | what the drain has changed itself, which is no change by others |
//! | `lent_dirs` | permissions that owners of directories have for an act |
//! | `copies`, `copy`, `throttle` | copies are made, synced, verified and named |
//! | `processes` | what programs have open |
//! | `counters`, `inventory` | what is told of it |
#![forbid(unsafe_code)]

mod aside;
mod copies;
mod copy;
mod counters;
mod crew;
mod ground;
mod inventory;
mod known;
mod leftovers;
mod lent_dirs;
mod pass;
mod pfs;
mod pfs_acts;
mod processes;
mod removal;
mod throttle;
mod touched;

pub use counters::Counters;
pub use ground::{Door, Ground, Halt, Points};
pub use inventory::take as take_inventory;
pub use known::know;
pub use pass::{Pass, refresh, release, resume};
pub use processes::{InUse, who_shows_in_proc, who_uses};
