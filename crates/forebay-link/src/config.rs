//! Reads from the environment where the buffer and its bridge are.

use forebay_hook::environment;
use forebay_wire::{
    Devices, ENV_ALIAS, ENV_BUFFER, ENV_DEVICES, ENV_SOCKET, ENV_STORAGE, MAX_PATH_BYTES,
};

/// Environment variable: seconds for which a library tries again to reach a lost bridge.
pub const ENV_RECONNECT: &str = "FOREBAY_RECONNECT_S";
const RECONNECT_DEFAULT_S: u64 = 10;
/// Longest path in `sockaddr_un`, without the NUL.
pub const MAX_SOCKET_PATH_BYTES: usize = 107;

/// A string in an array of fixed size. All zeroes is the empty string.
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    const EMPTY: Self = Text {
        bytes: [0; N],
        len: 0,
    };

    /// Copies `value`. False if the array cannot hold `value` and a NUL; the text stays as it was.
    #[must_use]
    pub fn set(&mut self, value: &[u8]) -> bool {
        let fits = value.len() < N;
        if fits {
            self.bytes[..value.len()].copy_from_slice(value);
            // An earlier, longer value may have left bytes here.
            self.bytes[value.len()] = 0;
            self.len = value.len();
        }
        fits
    }

    /// The bytes; a NUL follows them.
    #[inline]
    pub fn get(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Where the buffer and its bridge are. All zeroes is a valid, empty value.
pub struct Config {
    root: Text<{ MAX_PATH_BYTES + 1 }>,
    alias: Text<{ MAX_PATH_BYTES + 1 }>,
    socket: Text<{ MAX_SOCKET_PATH_BYTES + 1 }>,
    storage: Text<{ MAX_PATH_BYTES + 1 }>,
    devices: Devices,
    reconnect_ns: u64,
}

impl Config {
    /// No buffer.
    pub const EMPTY: Self = Config {
        root: Text::EMPTY,
        alias: Text::EMPTY,
        socket: Text::EMPTY,
        storage: Text::EMPTY,
        devices: Devices { storage: 0, pfs: 0 },
        reconnect_ns: 0,
    };

    /// Reads the entries `NAME=value` of an environment. False if there is no buffer: `FOREBAY_BUFFER` or
    /// `FOREBAY_SOCKET` is missing, too long or no absolute path.
    #[must_use]
    pub fn read<'e>(&mut self, entries: impl Iterator<Item = &'e [u8]>) -> bool {
        let mut fits = true;
        self.reconnect_ns = RECONNECT_DEFAULT_S * 1_000_000_000;
        for entry in entries {
            let value = |name: &str| environment::value(entry, name.as_bytes());
            if let Some(v) = value(ENV_BUFFER) {
                fits &= self.root.set(without_slash(v));
            } else if let Some(v) = value(ENV_ALIAS) {
                fits &= self.alias.set(without_slash(v));
            } else if let Some(v) = value(ENV_SOCKET) {
                fits &= self.socket.set(v);
            } else if let Some(v) = value(ENV_STORAGE) {
                fits &= self.storage.set(without_slash(v));
            } else if let Some(found) = value(ENV_DEVICES).and_then(devices) {
                self.devices = found;
            } else if let Some(s) = value(ENV_RECONNECT).and_then(decimal) {
                self.reconnect_ns = s.saturating_mul(1_000_000_000);
            }
        }
        let absolute = |p: &[u8]| p.first() == Some(&b'/');
        fits && absolute(self.root())
            && absolute(self.socket())
            && (self.alias().is_empty() || absolute(self.alias()))
    }

    /// Canonical path of the buffer root.
    #[inline]
    pub fn root(&self) -> &[u8] {
        self.root.get()
    }

    /// Another spelling of the buffer root; may be empty.
    #[inline]
    pub fn alias(&self) -> &[u8] {
        self.alias.get()
    }

    /// Path of the bridge's socket.
    pub fn socket(&self) -> &[u8] {
        self.socket.get()
    }

    /// Instance directory of the bridge.
    #[inline]
    pub fn storage(&self) -> &[u8] {
        self.storage.get()
    }

    /// The file systems of the buffer. Two equal numbers if they are not known: everything is shown as it is then.
    #[inline]
    pub fn devices(&self) -> Devices {
        self.devices
    }

    /// For how many nanoseconds a lost bridge is tried again.
    pub(crate) fn reconnect_ns(&self) -> u64 {
        self.reconnect_ns
    }
}

fn without_slash(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

fn devices(text: &[u8]) -> Option<Devices> {
    let colon = text.iter().position(|&b| b == b':')?;
    Some(Devices {
        storage: decimal(&text[..colon])?,
        pfs: decimal(&text[colon + 1..])?,
    })
}

fn decimal(text: &[u8]) -> Option<u64> {
    let mut n = 0u64;
    for &b in text {
        let digit = (b as char).to_digit(10)?;
        n = n.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    (!text.is_empty()).then_some(n)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::boxed::Box;
    use std::{format, string::String, vec};

    fn read(entries: &[&str]) -> Option<Box<Config>> {
        let mut config = Box::new(Config::EMPTY);
        config
            .read(entries.iter().map(|e| e.as_bytes()))
            .then_some(config)
    }

    #[test]
    fn every_variable_lands_in_its_place() {
        let config = read(&[
            "HOME=/root",
            "FOREBAY_BUFFER=/pfs/run/",
            "FOREBAY_ALIAS=/home/me/run",
            "FOREBAY_SOCKET=/run/socket",
            "FOREBAY_STORAGE_DIR=/var/tmp/x/",
            "FOREBAY_DEVICES=65024:27",
            "FOREBAY_RECONNECT_S=3",
        ])
        .unwrap();
        assert_eq!(config.root(), b"/pfs/run");
        assert_eq!(config.alias(), b"/home/me/run");
        assert_eq!(config.socket(), b"/run/socket");
        assert_eq!(config.storage(), b"/var/tmp/x");
        let devices = Devices {
            storage: 65024,
            pfs: 27,
        };
        assert_eq!(config.devices(), devices);
        assert_eq!(config.reconnect_ns(), 3_000_000_000);
    }

    #[test]
    fn a_missing_or_impossible_root_or_socket_means_no_buffer() {
        let (buffer, socket) = ("FOREBAY_BUFFER=/b", "FOREBAY_SOCKET=/s");
        assert!(read(&[buffer, socket]).is_some());
        assert!(read(&[buffer]).is_none() && read(&[socket]).is_none());
        assert!(read(&["FOREBAY_BUFFER=relative", socket]).is_none());
        assert!(read(&[buffer, socket, "FOREBAY_ALIAS=relative"]).is_none());
        let long = |name: &str, len: usize| format!("{name}=/{}", vec!["x"; len].concat());
        let fits: String = long("FOREBAY_SOCKET", MAX_SOCKET_PATH_BYTES - 1);
        assert!(read(&[buffer, &fits]).is_some());
        assert!(read(&[buffer, &long("FOREBAY_SOCKET", MAX_SOCKET_PATH_BYTES)]).is_none());
        assert!(read(&[socket, &long("FOREBAY_BUFFER", MAX_PATH_BYTES)]).is_none());
    }

    #[test]
    fn devices_that_are_no_two_numbers_are_not_known() {
        let (buffer, socket) = ("FOREBAY_BUFFER=/b", "FOREBAY_SOCKET=/s");
        for text in ["", "7", ":", "7:", ":9", "7:x", "7:9:11"] {
            let config = read(&[buffer, socket, &format!("FOREBAY_DEVICES={text}")]).unwrap();
            assert_eq!(config.devices(), Devices::default(), "{text}");
        }
    }

    #[test]
    fn a_patience_that_is_no_number_is_the_default() {
        let (buffer, socket) = ("FOREBAY_BUFFER=/b", "FOREBAY_SOCKET=/s");
        for (text, ns) in [
            ("", 10_000_000_000),
            ("ten", 10_000_000_000),
            ("99999999999999999999999", 10_000_000_000),
            ("0", 0),
            ("18446744073709551615", u64::MAX),
        ] {
            let patience = format!("FOREBAY_RECONNECT_S={text}");
            assert_eq!(
                read(&[buffer, socket, &patience]).unwrap().reconnect_ns(),
                ns
            );
        }
    }
}
