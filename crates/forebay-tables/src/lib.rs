//! The metadata store of a bridge behind [`forebay_core::table::Tables`].
//!
//! [`Rocks`] keeps the tables in RocksDB. A server uses it behind [`Journaled`], which
//! takes changes in at the price of one small write, and that behind [`Cached`], because
//! most lookups ask for the same directories again.
//! [`Memory`] keeps them in memory, for tests and for the simulator, and is the
//! model that the others are compared with.
//!
//! ```
//! use forebay_core::{path::TreePath, table::{Change, Tables, WriteTables}};
//! use forebay_tables::Memory;
//! let tables = Memory::new();
//! let put = Change::Meta { key: b"epoch".to_vec(), value: Some(vec![1]) };
//! tables.apply(&[put]).unwrap();
//! assert_eq!(tables.meta(b"epoch").unwrap(), Some(vec![1]));
//! assert_eq!(tables.get(&TreePath::root()).unwrap(), None);
//! ```
#![forbid(unsafe_code)]

mod cached;
mod journal;
mod journaled;
mod map;
mod memory;
mod net;
mod old_journal;
mod reserve;
mod rocks;

pub use cached::Cached;
pub use journal::Life;
#[doc(hidden)]
pub use journal::payloads_of_journal;
pub use journaled::{Journaled, Settling};
pub use memory::Memory;
pub use net::{Base, Net};
pub use rocks::{Rocks, are_in};

#[cfg(test)]
mod tests;
