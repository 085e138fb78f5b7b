//! The mover: brings what is in the buffer to the PFS, and says what is left.
//!
//! [`forebay_core::drain`] decides everything; here are the threads that ask it for acts, and the system calls
//! that carry them out: [`pfs_acts`] change on the PFS, [`known`] looks through its directories, [`leftovers`] of earlier
//! drains go from them, [`copies`] are made, synced, verified and named, and [`processes`] tell what programs have open.
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

pub use counters::Counters;
pub use ground::{Door, Ground, Halt, Points};
pub use inventory::take as take_inventory;
pub use pass::{Pass, refresh, release, resume};
pub use processes::{InUse, who_shows_in_proc, who_uses};
