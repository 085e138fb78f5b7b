//! The connection of one client: its credentials and its state.

use crate::ServerHandle;
use crate::lane::Lane;
use crate::log::Cause;
use crate::socket::{self, Peer, Received};
use crate::status::Speaker;
use forebay_core::callers::{Asked, may_ask};
use forebay_core::facts::Cred;
use forebay_sys::Sys;
use forebay_wire::REPLY_HEADER_BYTES;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A connection.
pub struct Connection {
    socket: Arc<OwnedFd>,
    /// The process that connected.
    pub peer: Peer,
    /// Credentials of the process that connected, with its groups.
    cred: Arc<Cred>,
    /// Credentials of the last message that carried others.
    other: Option<Arc<Cred>>,
    /// Who has asked something through it last.
    pub speaker: Speaker,
    /// A request of it is parked.
    pub waiting: bool,
    /// Memory that it shares with the bridge.
    pub lane: Option<Lane>,
}

impl Connection {
    /// Takes a new connection over.
    ///
    /// # Errors
    /// Of the socket.
    pub fn new(socket: OwnedFd) -> Sys<Self> {
        let peer = socket::peer(socket.as_fd())?;
        let groups = socket::peer_groups(socket.as_fd())?;
        Ok(Connection {
            socket: Arc::new(socket),
            peer,
            cred: Arc::new(Cred {
                uid: peer.uid,
                gid: peer.gid,
                groups,
            }),
            other: None,
            speaker: Speaker::Nobody,
            waiting: false,
            lane: None,
        })
    }

    /// The socket.
    pub fn socket(&self) -> &Arc<OwnedFd> {
        &self.socket
    }

    /// Answers by the way the request came; a descriptor always goes by the socket.
    ///
    /// # Errors
    /// As [`socket::send`]; nothing has been answered then.
    pub fn answer(
        &mut self,
        header: &[u8; REPLY_HEADER_BYTES],
        body: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Sys<()> {
        let lane = self.lane.as_mut().filter(|lane| lane.serving);
        let Some(lane) = lane else {
            return socket::send(self.socket.as_fd(), header, body, descriptor);
        };
        if descriptor.is_some() || !lane.answer(header, body) {
            socket::send(self.socket.as_fd(), header, body, descriptor)?;
            lane.words().answered_beside();
        }
        lane.serving = false;
        Ok(())
    }

    /// The credentials by which a message is judged: those it carries. The groups of the
    /// connection belong only to the ids of the connection.
    pub fn cred_of(&mut self, message: &Received) -> Option<Arc<Cred>> {
        let sender = message.sender?;
        if (sender.uid, sender.gid) == (self.cred.uid, self.cred.gid) {
            return Some(self.cred.clone());
        }
        if let Some(other) = &self.other
            && (other.uid, other.gid) == (sender.uid, sender.gid)
        {
            return Some(other.clone());
        }
        let cred = Arc::new(Cred {
            uid: sender.uid,
            gid: sender.gid,
            groups: Vec::new(),
        });
        self.other = Some(cred.clone());
        Some(cred)
    }
}

/// True if the bridge may serve this user.
pub fn serves(server: &ServerHandle, uid: u32) -> bool {
    if may_ask(Asked::Service, uid, server.uid()) {
        return true;
    }
    server.log.limited(
        Cause::Refused,
        format_args!(
            "refused user {uid}: a bridge that is not run by root serves only its own user {}",
            server.uid()
        ),
    );
    false
}
