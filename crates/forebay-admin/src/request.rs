//! The requests to a bridge, and their message format.

use crate::drain::DrainRequest;
use crate::{Refusal, RefusalKind, VERSION, Verb};
use serde::{Deserialize, Serialize};

/// Longest request in bytes. One of up to [`MAX_MESSAGE_BYTES`] travels in the place of a path, in one message; a longer one is announced by
/// such a message, and follows over the stream of the answer.
pub const MAX_REQUEST_BYTES: usize = 16 << 20;
/// Longest message in bytes.
pub const MAX_MESSAGE_BYTES: usize = 4096;
/// The name of a message that announces a longer one.
const LONG: &str = "long";

/// Drains of which a bridge can still tell how they ended, unless they have left very much.
pub const REPORTS_KEPT: usize = 16;

/// One request. Each variant names the items of its answer; "one" means exactly one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Request {
    /// The state of the bridge. One [`crate::Status`].
    Status,
    /// End the bridge. One `()`, sent before the bridge ends.
    Stop,
    /// Start a drain, unless one is at work. One [`crate::drain::DrainBegun`], at once.
    Drain(DrainRequest),
    /// The state of the drain. One [`crate::drain::DrainStatus`].
    DrainStatus,
    /// The state of a drain until it has ended. A [`crate::drain::DrainStatus`] several times a second. The last
    /// one shows the end of the drain, unless the bridge ends first. If very many follow drains, it is one, and whoever wants to
    /// know more asks again.
    FollowDrain {
        /// Of which one; `None`: the last one. Of more than [`REPORTS_KEPT`] the first is no longer known.
        #[serde(default)]
        number: Option<u64>,
    },
    /// End a drain after the files that it is copying. One [`crate::drain::DrainStatus`].
    DrainStop {
        /// As for [`Request::FollowDrain`].
        #[serde(default)]
        number: Option<u64>,
    },
    /// What a drain has not brought to the PFS. Any number of [`crate::drain::Left`], sorted by path.
    Left {
        /// As for [`Request::FollowDrain`].
        #[serde(default)]
        number: Option<u64>,
    },
    /// What is in the buffer. One [`crate::drain::Inventory`].
    Inventory,
    /// A run needs the bridge from now on. One [`crate::LifetimeStatus`].
    Attach {
        /// Process id of the run.
        pid: u32,
        /// What it is.
        #[serde(default)]
        verb: Verb,
    },
    /// A run no longer needs the bridge. One [`crate::LifetimeStatus`]. The last run stays attached as long as a program
    /// is connected, because the bridge can't end before.
    Detach {
        /// Process id of the run.
        pid: u32,
        /// The last run also stays attached if something is in the buffer that the PFS does not have. The bridge
        /// looks after the moment from which nobody can change anything.
        #[serde(default)]
        clean: bool,
    },
    /// How long the bridge lives. One [`crate::LifetimeStatus`].
    Lifetime,
    /// Change how long the bridge lives. One [`crate::LifetimeStatus`].
    SetStay {
        /// True: until it is told to end. False: as long as runs need it.
        stay: bool,
    },
}

/// Why a message is no request of this version. The bridge answers [`NoRequest::refusal`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoRequest {
    /// The peer speaks this other version; [`crate::VERSION_WITHOUT_NUMBER`] if the message names none.
    Version(u32),
    /// No request has this name. A newer peer may know it.
    Unknown(String),
    /// The message is not a request. Holds the reason.
    Malformed(String),
}

impl NoRequest {
    /// The refusal that answers the message.
    pub fn refusal(&self) -> Refusal {
        let (kind, message) = match self {
            NoRequest::Version(theirs) => (
                RefusalKind::Version,
                format!(
                    "it speaks version {VERSION} of the control messages, and you version {theirs}: use the `forebay` with which it was started"
                ),
            ),
            NoRequest::Unknown(name) => (
                RefusalKind::UnknownRequest,
                format!("it does not know this request ({name})"),
            ),
            NoRequest::Malformed(what) => {
                (RefusalKind::Malformed, format!("not a request: {what}"))
            }
        };
        Refusal { kind, message }
    }
}

/// The outer form of every request. The names of these two fields never change.
#[derive(Serialize)]
struct Outgoing<'a> {
    version: u32,
    #[serde(flatten)]
    request: &'a Request,
}

#[derive(Deserialize)]
struct Incoming {
    version: Option<u32>,
    request: Option<String>,
    /// With [`LONG`].
    bytes: Option<usize>,
}

/// What a message is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrived {
    /// A request.
    Whole(Request),
    /// A request of so many bytes follows over the stream of the answer.
    Announced(usize),
}

impl Request {
    /// Every name that [`Request::name`] returns.
    const NAMES: [&'static str; 12] = [
        "status",
        "stop",
        "drain",
        "drain-status",
        "follow-drain",
        "drain-stop",
        "left",
        "inventory",
        "attach",
        "detach",
        "lifetime",
        "set-stay",
    ];

    /// Name of the request in the message.
    pub fn name(&self) -> &'static str {
        match self {
            Request::Status => "status",
            Request::Stop => "stop",
            Request::Drain(_) => "drain",
            Request::DrainStatus => "drain-status",
            Request::FollowDrain { .. } => "follow-drain",
            Request::DrainStop { .. } => "drain-stop",
            Request::Left { .. } => "left",
            Request::Inventory => "inventory",
            Request::Attach { .. } => "attach",
            Request::Detach { .. } => "detach",
            Request::Lifetime => "lifetime",
            Request::SetStay { .. } => "set-stay",
        }
    }

    /// The request as it travels, with the version in it.
    ///
    /// # Panics
    /// If its name is not in `NAMES`.
    pub fn encode(&self) -> Vec<u8> {
        assert!(Self::NAMES.contains(&self.name()));
        let outgoing = Outgoing {
            version: VERSION,
            request: self,
        };
        serde_json::to_vec(&outgoing).expect("numbers, texts and lists of them")
    }

    /// The message that announces a request of so many bytes.
    pub fn announcement(bytes: usize) -> Vec<u8> {
        format!(r#"{{"version":{VERSION},"request":"{LONG}","bytes":{bytes}}}"#).into_bytes()
    }

    /// Reads what has come. Nothing in it is trusted.
    ///
    /// # Errors
    /// [`NoRequest`] says what is wrong with it.
    pub fn decode(message: &[u8]) -> Result<Arrived, NoRequest> {
        let too_long = |bytes: usize| match bytes > MAX_REQUEST_BYTES {
            true => Err(NoRequest::Malformed(format!(
                "{bytes} bytes are more than {MAX_REQUEST_BYTES}"
            ))),
            false => Ok(bytes),
        };
        too_long(message.len())?;
        let malformed = |e: serde_json::Error| NoRequest::Malformed(e.to_string());
        let incoming: Incoming = serde_json::from_slice(message).map_err(malformed)?;
        match (incoming.version, incoming.request) {
            (Some(VERSION), Some(name)) if Self::NAMES.contains(&name.as_str()) => {
                let whole = serde_json::from_slice(message).map_err(malformed);
                whole.map(Arrived::Whole)
            }
            (Some(VERSION), Some(name)) if name == LONG => {
                let bytes = incoming.bytes.unwrap_or(usize::MAX);
                too_long(bytes).map(Arrived::Announced)
            }
            (Some(VERSION), Some(name)) => Err(NoRequest::Unknown(shortened(&name))),
            (Some(VERSION), None) => Err(NoRequest::Malformed("it has no name".to_owned())),
            (Some(theirs), _) => Err(NoRequest::Version(theirs)),
            (None, _) => Err(NoRequest::Version(crate::VERSION_WITHOUT_NUMBER)),
        }
    }
}

/// The name of an unknown request, cut to fit one line.
fn shortened(name: &str) -> String {
    const MOST_CHARS: usize = 40;
    let printable = name.chars().filter(|c| !c.is_control());
    printable.take(MOST_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::{Side, Take};

    fn each() -> Vec<Request> {
        vec![
            Request::Status,
            Request::Stop,
            Request::Drain(DrainRequest {
                keep: true,
                rate: Some(u64::MAX),
                workers: Some(3),
                patience_ms: 9,
                take: vec![Take {
                    path: b"out/\xff".to_vec(),
                    side: Side::Both,
                }],
            }),
            Request::DrainStatus,
            Request::FollowDrain { number: None },
            Request::DrainStop { number: Some(3) },
            Request::Left { number: Some(7) },
            Request::Inventory,
            Request::Attach {
                pid: u32::MAX,
                verb: Verb::Drain,
            },
            Request::Detach {
                pid: 1,
                clean: true,
            },
            Request::Lifetime,
            Request::SetStay { stay: true },
        ]
    }

    #[test]
    fn every_request_comes_back_from_its_message_and_has_the_name_in_it() {
        let names: Vec<_> = each().iter().map(Request::name).collect();
        assert_eq!(names, Request::NAMES);
        for request in each() {
            let message = request.encode();
            assert_eq!(
                Request::decode(&message),
                Ok(Arrived::Whole(request.clone()))
            );
            let value: serde_json::Value = serde_json::from_slice(&message).unwrap();
            assert_eq!(value["request"], request.name());
            assert_eq!(value["version"], VERSION);
        }
    }

    #[test]
    fn another_version_is_refused_in_a_line_that_names_both() {
        let decoded = Request::decode(br#"{"version":7,"request":"status"}"#);
        assert_eq!(decoded, Err(NoRequest::Version(7)));
        let refusal = decoded.unwrap_err().refusal();
        assert_eq!(refusal.kind, RefusalKind::Version);
        assert!(refusal.message.contains("version 3"), "{refusal:?}");
        assert!(refusal.message.contains("version 7"), "{refusal:?}");
        assert!(!refusal.message.contains('\n'));
        // A message of version 1.
        let decoded = Request::decode(br#"{"cmd":"stop"}"#);
        assert_eq!(decoded, Err(NoRequest::Version(1)));
        // A message that a later version may send.
        let decoded = Request::decode(br#"{"version":4,"request":{"stop":{}},"more":[1]}"#);
        assert!(decoded.is_err());
    }

    #[test]
    fn a_long_request_is_announced_and_one_that_is_too_long_is_not_taken() {
        let arrived = |bytes| Request::decode(&Request::announcement(bytes));
        for bytes in [0, MAX_REQUEST_BYTES] {
            assert_eq!(arrived(bytes), Ok(Arrived::Announced(bytes)));
        }
        let too_long = arrived(MAX_REQUEST_BYTES + 1);
        assert!(matches!(too_long, Err(NoRequest::Malformed(_))));
        let untold = Request::decode(br#"{"version":3,"request":"long"}"#);
        assert!(matches!(untold, Err(NoRequest::Malformed(_))));
    }

    #[test]
    fn a_request_of_a_newer_peer_is_unknown_and_not_malformed() {
        let decoded = Request::decode(br#"{"version":3,"request":"dance","with":{"whom":[1,2]}}"#);
        assert_eq!(decoded, Err(NoRequest::Unknown("dance".into())));
        assert_eq!(
            decoded.unwrap_err().refusal().kind,
            RefusalKind::UnknownRequest
        );
    }

    #[test]
    fn garbage_is_no_request() {
        let long = [
            &b"{\"version\":3,\"request\":\"status\",\"x\":\""[..],
            &[b'x'; MAX_REQUEST_BYTES],
            b"\"}",
        ];
        let deep = [b'['; 4000];
        for garbage in [
            &b""[..],
            b"\0\0\0",
            b"{",
            b"[]",
            b"null",
            b"{\"version\":3}",
            b"{\"version\":-1,\"request\":\"stop\"}",
            b"{\"version\":3,\"request\":\"attach\"}",
            b"{\"version\":3,\"request\":\"attach\",\"pid\":-1}",
            b"{\"version\":3,\"request\":\"set-stay\",\"stay\":1}",
            &long.concat(),
            &deep,
        ] {
            let decoded = Request::decode(garbage);
            assert!(
                matches!(decoded, Err(NoRequest::Malformed(_))),
                "{decoded:?} of {}",
                garbage.escape_ascii()
            );
        }
    }
}
