//! Control messages between the command and a bridge, as types.
//!
//! One exchange is one [`Request`] and one answer. The request travels as one message over the socket of the
//! bridge. The answer is a separate stream, whose descriptor the bridge hands out as a grant: a head with the
//! version, items, an end. So an answer may have any length. Both sides hold one frame of it at a time. A caller that
//! stops reading delays nobody else. The bridge writes an answer with [`AnswerWriter`], a caller reads it with
//! [`Items`]. `forebay_client::Control` is the caller's side.
//!
//! The crate also holds what both sides need to find each other ([`instance_dir`], [`socket_path`], [`BridgeInfo`]),
//! and the report of a bridge process about its start ([`StartReport`]).
//!
//! ```
//! use forebay_admin::{AnswerWriter, Arrived, Items, Request, Verb};
//! use std::os::unix::net::UnixStream;
//! let (bridge, caller) = UnixStream::pair()?;
//! let request = Request::Attach { pid: 7, verb: Verb::Run };
//! assert_eq!(Request::decode(&request.encode()), Ok(Arrived::Whole(request)));
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
    BridgeInfo, INFO_FILE, LOCK_FILE, SOCKET_PATH_BYTES, bridge_info, instance_dir,
    make_run_socket_path, run_socket_path, socket_dir, socket_path,
};
pub use items::Items;
pub use lifetime::{LifetimeStatus, Verb};
pub use request::{
    Arrived, MAX_MESSAGE_BYTES, MAX_REQUEST_BYTES, NoRequest, REPORTS_KEPT, Request,
};
pub use start::{StartFailure, StartReport};
pub use status::{BypassingProgram, RootDir, Status};

/// Version of all messages in this crate. Raise it when a message changes so that the other side would misread it.
/// In version 1 the answer was one JSON message; up to version 2 a [`Status`] also counted what was in the buffer.
pub const VERSION: u32 = 3;
/// The version of a peer whose messages name none.
pub const VERSION_WITHOUT_NUMBER: u32 = 1;
