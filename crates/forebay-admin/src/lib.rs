//! Control messages between the command and a bridge, as types.
//!
//! One exchange is one [`Request`] and one answer. The request travels as one message over the socket of the
//! bridge. The answer is a stream of its own, whose descriptor the bridge hands out like any other grant: a
//! head with the version, items, an end. So an answer has any length, both sides hold one frame of it at a
//! time, and a caller that stops reading holds up nobody but itself. The bridge writes an answer with
//! [`AnswerWriter`], a caller reads it with [`Items`]; `forebay_client::Control` is the caller's side.
//!
//! Here is also what both must know to find each other: [`instance_dir`], [`socket_path`], [`BridgeInfo`],
//! and what a bridge process says when it has started, or has not ([`StartReport`]).
//!
//! ```
//! use forebay_admin::{AnswerWriter, Items, Request};
//! use std::os::unix::net::UnixStream;
//! let (bridge, caller) = UnixStream::pair()?;
//! let message = Request::Attach { pid: 7 }.encode();
//! assert_eq!(Request::decode(&message), Ok(Request::Attach { pid: 7 }));
//! let mut answer = AnswerWriter::begin(bridge).unwrap();
//! answer.item(&"one").unwrap();
//! answer.item(&"two").unwrap();
//! answer.end().unwrap();
//! let items = Items::new(caller, "a bridge".as_ref(), "example");
//! assert_eq!(items.collect::<Result<Vec<String>, _>>().unwrap(), ["one", "two"]);
//! # Ok::<(), std::io::Error>(())
//! ```
#![forbid(unsafe_code)]

mod answer;
pub mod drain;
mod error;
mod frame;
mod instance;
mod items;
mod lifetime;
mod request;
mod start;
mod status;

pub use answer::{AnswerError, AnswerWriter};
pub use error::{AdminError, Garbled, Refusal, RefusalKind};
pub use frame::MAX_FRAME_BYTES;
pub use instance::{
    BridgeInfo, INFO_FILE, LOCK_FILE, SOCKET_PATH_BYTES, bridge_info, instance_dir, socket_dir,
    socket_path,
};
pub use items::Items;
pub use lifetime::LifetimeStatus;
pub use request::{MAX_REQUEST_BYTES, NoRequest, Request};
pub use start::{StartFailure, StartReport};
pub use status::Status;

/// Version of all messages in this crate. It changes when a message changes so that the other side would
/// understand it wrongly. Version 1 had one message of JSON as its answer.
pub const VERSION: u32 = 2;
/// What those speak who name no version.
pub const VERSION_WITHOUT_NUMBER: u32 = 1;
