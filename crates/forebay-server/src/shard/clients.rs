//! Connections of a shard: accepted, found by their keys, read, closed.

use super::{Look, Shard, Slot};
use crate::connection::Connection;
use crate::inbox::Arrival;
use crate::limits::CONNECTIONS_PER_PROCESS;
use crate::log::Cause;
use crate::socket;
use crate::status::Unwelcome;
use forebay_sys::Errno;
use forebay_wire::{DecodeError, Reply, Request};
use std::os::fd::AsFd;

/// Largest generation of a slot. With one bit less than there is room for, no key is that of the listener or the inbox.
const GENERATIONS: u32 = 0x7fff_ffff;

impl Shard {
    pub(super) fn accept(&mut self) {
        let Some(listener) = self.listener.clone() else {
            return;
        };
        // One connection per event; the other shards take the others.
        let socket = match socket::accept(listener.as_fd()) {
            Ok(socket) => socket,
            Err(Errno::AGAIN) => return,
            Err(e) => {
                self.server.log.limited(
                    Cause::Limit,
                    format_args!("a connection could not be accepted: {e}"),
                );
                self.go_deaf();
                return;
            }
        };
        let Ok(connection) = Connection::new(socket) else {
            return;
        };
        let clients = &self.server.clients;
        let admitted = clients.admit(connection.peer, CONNECTIONS_PER_PROCESS);
        // It is gone without an answer, as with a bridge that has ended: so the client tries again.
        if admitted == Err(Unwelcome::Closed) {
            return;
        }
        if let Err(Unwelcome::Limit(what)) = admitted {
            self.server.log.limited(
                Cause::Limit,
                format_args!(
                    "refused a connection of process {} of user {}: {what}",
                    connection.peer.pid, connection.peer.uid
                ),
            );
            let refusal = Reply::status(0, libc::EMFILE).header();
            let _ = socket::send(connection.socket().as_fd(), &refusal, b"", None);
            socket::turn_away(connection.socket().as_fd());
            return;
        }
        // Goes to the shard with the fewest clients: a shard that is awake would take all of them.
        let number = self.load.least_busy(self.spin.number());
        match self.server.inbox(number) {
            Some(other) if number != self.spin.number() => other.push(Arrival::Client(connection)),
            _ => self.own(connection),
        }
    }

    /// Serves an admitted connection from now on.
    pub(super) fn own(&mut self, connection: Connection) {
        self.load.gain(self.spin.number());
        let slot = self.free.pop().unwrap_or_else(|| {
            self.connections.push(Slot {
                generation: 0,
                connection: None,
            });
            self.connections.len() - 1
        });
        let key = (u64::from(self.connections[slot].generation) << 32) | slot as u64;
        let added = self
            .epoll
            .add(connection.socket().as_fd(), key, libc::EPOLLIN as u32);
        self.connections[slot].connection = Some(connection);
        if added.is_err() {
            self.close(key);
        }
    }

    pub(super) fn connection(&mut self, key: u64) -> Option<&mut Connection> {
        let slot = self.connections.get_mut(key as u32 as usize)?;
        if u64::from(slot.generation) != key >> 32 {
            return None;
        }
        slot.connection.as_mut()
    }

    pub(super) fn close(&mut self, key: u64) {
        let index = key as u32 as usize;
        if self.connection(key).is_none() {
            return;
        }
        let slot = &mut self.connections[index];
        slot.generation = slot.generation.wrapping_add(1) & GENERATIONS;
        if let Some(connection) = slot.connection.take() {
            let clients = &self.server.clients;
            clients.leave(connection.peer, connection.speaker);
            self.load.lose(self.spin.number());
            if connection.waiting {
                self.waiting -= 1;
            }
        }
        self.free.push(index);
        self.attended.retain(|&attended| attended != key);
        self.spin.forget(key);
    }

    /// Takes one message from a connection and serves it.
    pub(super) fn look(&mut self, key: u64) -> Look {
        let mut buffer = std::mem::take(&mut self.buffer);
        let look = self.look_with(key, &mut buffer);
        self.buffer = buffer;
        look
    }

    pub(super) fn look_with(&mut self, key: u64, buffer: &mut [u8]) -> Look {
        let Some(connection) = self.connection(key).filter(|c| !c.waiting) else {
            return Look::Nothing;
        };
        let received = match socket::receive(connection.socket().as_fd(), buffer) {
            Ok(received) if received.len > 0 => received,
            Err(Errno::AGAIN | Errno::INTR) => return Look::Nothing,
            _ => {
                self.close(key);
                return Look::Nothing;
            }
        };
        let cred = connection.cred_of(&received);
        let request = if received.truncated {
            Err(DecodeError::TooLong(received.len))
        } else {
            Request::decode(&buffer[..received.len])
        };
        self.serve(key, request, cred);
        Look::Served
    }
}
