//! A client that changes files at random and knows what has been acknowledged to it.

use super::{read, write};
use forebay_client::{Client, Error};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

/// xorshift64*: the same numbers for the same seed, everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % n
    }
    fn of<T: Clone>(&mut self, all: impl ExactSizeIterator<Item = T>) -> Option<T> {
        let mut all = all;
        let n = all.len() as u64;
        (n > 0).then(|| all.nth(self.below(n) as usize)).flatten()
    }
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Thing {
    /// A file by its number in [`Load::bytes`]: hard links share it.
    File(usize),
    Link(Vec<u8>),
}

/// One client at work in a folder of its own, `name/`, with two folders below it.
pub struct Load {
    pub client: Client,
    random: Random,
    home: String,
    things: BTreeMap<String, Thing>,
    dirs: BTreeSet<String>,
    bytes: Vec<Vec<u8>>,
    /// Descriptors that stay open whatever becomes of the bridge.
    grants: Vec<(usize, File)>,
    count: u64,
}

const LOWER_FILES: u64 = 12;

impl Load {
    /// Puts files of this client onto the PFS. Before a bridge starts.
    pub fn prepare(root: &std::path::Path, name: &str) {
        let home = root.join(name);
        std::fs::create_dir_all(home.join("sub")).unwrap();
        for n in 0..LOWER_FILES {
            let text = format!("from below {n}");
            std::fs::write(home.join(format!("sub/low{n}")), text).unwrap();
        }
    }

    pub fn new(client: Client, name: &str, seed: u64) -> Load {
        let mut load = Load {
            client,
            random: Random::new(seed),
            home: name.into(),
            things: BTreeMap::new(),
            dirs: BTreeSet::from(["sub".into()]),
            bytes: Vec::new(),
            grants: Vec::new(),
            count: 0,
        };
        for n in 0..LOWER_FILES {
            load.bytes.push(format!("from below {n}").into_bytes());
            load.things
                .insert(format!("sub/low{n}"), Thing::File(n as usize));
        }
        load
    }

    fn at(&self, path: &str) -> String {
        format!("{}/{path}", self.home)
    }

    /// A path that may or may not be free.
    fn place(&mut self) -> String {
        let dirs = self.dirs.len() as u64;
        let dir = match self.random.below(dirs + 1) {
            0 => String::new(),
            n => format!("{}/", self.dirs.iter().nth(n as usize - 1).unwrap()),
        };
        format!("{dir}n{}", self.random.below(40))
    }

    fn any_thing(&mut self) -> Option<(String, Thing)> {
        let found = self.random.of(self.things.keys())?.clone();
        let thing = self.things[&found].clone();
        Some((found, thing))
    }

    fn is_dir(&self, path: &str) -> bool {
        self.dirs.contains(path)
    }

    /// Does one thing, which must succeed as if the bridge had never been away.
    pub fn step(&mut self) {
        self.count += 1;
        match self.random.below(20) {
            0..=6 => self.create(),
            7..=9 => self.rename(),
            10..=12 => self.unlink(),
            13 => self.link(),
            14 => self.symlink(),
            15 => self.mkdir(),
            16 => self.rmdir(),
            17..=18 => self.write_on(),
            _ => self.overwrite(),
        }
    }

    fn expect(&self, what: &str, outcome: Result<(), Error>) {
        if let Err(e) = outcome {
            panic!("{} step {}: {what}: {e}", self.home, self.count);
        }
    }

    fn create(&mut self) {
        let path = self.place();
        if self.things.contains_key(&path) || self.is_dir(&path) {
            return;
        }
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
        let file = match self.client.open(self.at(&path), flags, 0o644) {
            Ok(fd) => File::from(fd),
            Err(e) => panic!("{} step {}: create {path}: {e}", self.home, self.count),
        };
        // An empty file may have been another one before, and may become one.
        let bytes = match self.random.below(3) {
            0 => Vec::new(),
            _ => format!("{path} made in step {}", self.count).into_bytes(),
        };
        (&file).write_all(&bytes).unwrap();
        self.things.insert(path, Thing::File(self.bytes.len()));
        if self.random.below(4) == 0 {
            self.grants.push((self.bytes.len(), file));
        }
        self.bytes.push(bytes);
        if self.grants.len() > 20 {
            self.grants.remove(0);
        }
    }

    fn rename(&mut self) {
        let Some((old, thing)) = self.any_thing() else {
            return;
        };
        let new = self.place();
        if self.is_dir(&new) || new == old || self.things.get(&new) == Some(&thing) {
            return;
        }
        let outcome = self.client.rename(self.at(&old), self.at(&new));
        self.expect(&format!("rename {old} {new}"), outcome);
        self.things.remove(&old);
        self.things.insert(new, thing);
    }

    fn unlink(&mut self) {
        let Some((path, _)) = self.any_thing() else {
            return;
        };
        let outcome = self.client.unlink(self.at(&path));
        self.expect(&format!("unlink {path}"), outcome);
        self.things.remove(&path);
    }

    fn link(&mut self) {
        let Some((old, thing @ Thing::File(_))) = self.any_thing() else {
            return;
        };
        let new = self.place();
        if self.is_dir(&new) || self.things.contains_key(&new) {
            return;
        }
        let outcome = self.client.link(self.at(&old), self.at(&new));
        self.expect(&format!("link {old} {new}"), outcome);
        self.things.insert(new, thing);
    }

    fn symlink(&mut self) {
        let path = self.place();
        if self.is_dir(&path) || self.things.contains_key(&path) {
            return;
        }
        let text = format!("to step {}", self.count).into_bytes();
        let outcome = self.client.symlink(&text, self.at(&path));
        self.expect(&format!("symlink {path}"), outcome);
        self.things.insert(path, Thing::Link(text));
    }

    fn mkdir(&mut self) {
        let path = format!("d{}", self.random.below(4));
        if self.is_dir(&path) {
            return;
        }
        let outcome = self.client.mkdir(self.at(&path), 0o755);
        self.expect(&format!("mkdir {path}"), outcome);
        self.dirs.insert(path);
    }

    fn rmdir(&mut self) {
        let Some(path) = self.random.of(self.dirs.iter()).cloned() else {
            return;
        };
        let inside = format!("{path}/");
        let empty = !self.things.keys().any(|t| t.starts_with(&inside));
        match self.client.rmdir(self.at(&path)) {
            Ok(()) if empty => {
                self.dirs.remove(&path);
            }
            Err(Error::Errno(libc::ENOTEMPTY)) if !empty => {}
            other => panic!("{} step {}: rmdir {path}: {other:?}", self.home, self.count),
        }
    }

    /// Through a descriptor that was granted long ago.
    fn write_on(&mut self) {
        let Some(n) = self.random.of(0..self.grants.len()) else {
            return;
        };
        let (file, handle) = &self.grants[n];
        let more = format!(" and step {}", self.count);
        let at = self.bytes[*file].len() as u64;
        handle.write_all_at(more.as_bytes(), at).unwrap();
        self.bytes[*file].extend_from_slice(more.as_bytes());
    }

    fn overwrite(&mut self) {
        let Some((path, Thing::File(n))) = self.any_thing() else {
            return;
        };
        let bytes = format!("overwritten in step {}", self.count).into_bytes();
        let at = self.at(&path);
        write(&mut self.client, &at, &bytes);
        self.bytes[n] = bytes;
    }

    /// Everything is as it was acknowledged.
    pub fn verify(&mut self) {
        let mut found = BTreeMap::new();
        let mut dirs = BTreeSet::new();
        let mut todo = vec![String::new()];
        while let Some(dir) = todo.pop() {
            for entry in self.client.list(self.at(&dir)).unwrap() {
                let name = String::from_utf8(entry.name).unwrap();
                let path = format!("{dir}{name}");
                match entry.dtype {
                    libc::DT_DIR => {
                        todo.push(format!("{path}/"));
                        dirs.insert(path);
                    }
                    libc::DT_LNK => {
                        let text = self.client.readlink(self.at(&path)).unwrap();
                        found.insert(path, Thing::Link(text));
                    }
                    _ => {
                        let n = match self.things.get(&path) {
                            Some(&Thing::File(n)) => n,
                            other => panic!("{}/{path} should be {other:?}", self.home),
                        };
                        let attr = self.client.lstat(self.at(&path)).unwrap();
                        let shown = match attr.copy_of {
                            0 => attr.ino,
                            original => original,
                        };
                        assert_eq!(shown, entry.ino, "{path}");
                        let names = self.things.values().filter(|t| **t == Thing::File(n));
                        assert_eq!(attr.nlink as usize, names.count(), "{path}");
                        let at = self.at(&path);
                        let bytes = read(&mut self.client, &at);
                        assert_eq!(
                            String::from_utf8(bytes).unwrap(),
                            String::from_utf8_lossy(&self.bytes[n]),
                            "{path}"
                        );
                        found.insert(path, Thing::File(n));
                    }
                }
            }
        }
        assert_eq!(found, self.things);
        assert_eq!(dirs, self.dirs);
    }
}
