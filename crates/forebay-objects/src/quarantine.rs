//! What a recovery can't give a name and must not delete: files in `quarantine/`, beside a text that tells their path.

use super::{Name, Objects, Shape, folder_path, parse_name, shape};
use crate::folder_of;
use forebay_core::record::ObjectName;
use forebay_sys::{self as sys, Errno, Sys, errno_of};
use std::io::{Read, Write};
use std::os::fd::AsFd;

const FOLDER: &str = "quarantine";
/// Behind the name of the file: the text with its path.
const PATH: &[u8] = b".path";

/// One file in quarantine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Withheld {
    /// The object that it was. Its file is `quarantine/<object>` in the instance directory.
    pub object: ObjectName,
    /// Where in the buffer it was, as its label told.
    pub path: Vec<u8>,
    /// Its length.
    pub bytes: u64,
}

/// The name of a file in quarantine.
pub fn withheld_as(object: ObjectName) -> String {
    Name::new(object, false).escape_ascii().to_string()
}

fn place(object: ObjectName) -> Vec<u8> {
    [FOLDER.as_bytes(), b"/", &Name::new(object, false)].concat()
}

fn path_text(object: ObjectName) -> Vec<u8> {
    [&place(object)[..], PATH].concat()
}

impl Objects {
    /// Puts a file into quarantine. `path` is where it was in the buffer.
    ///
    /// # Errors
    /// Those of the file system; the object is where it was then.
    pub fn quarantine(&self, object: ObjectName, path: &[u8]) -> Sys<()> {
        assert_eq!(shape(object), Shape::File, "only a file holds data");
        sys::make_dir(self.instance.as_fd(), FOLDER.as_bytes())?;
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;
        let text = sys::open(self.instance.as_fd(), &path_text(object), flags, 0o600)?;
        let mut text = std::fs::File::from(text);
        text.write_all(path).map_err(errno_of)?;
        text.sync_all().map_err(errno_of)?;
        let folder = folder_path((Shape::File, folder_of(object.oid.seq())));
        let file = [folder.as_bytes(), b"/", &Name::new(object, false)].concat();
        let instance = self.instance.as_fd();
        sys::rename(instance, &file, instance, &place(object))
    }

    /// What is in quarantine.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn withheld(&self) -> Sys<Vec<Withheld>> {
        let names = match self.list(FOLDER) {
            Err(Errno::NOENT) => return Ok(Vec::new()),
            names => names?,
        };
        let mut found = Vec::new();
        for (object, _) in names.iter().filter_map(|name| parse_name(name)) {
            let bytes = sys::stat(self.instance.as_fd(), &place(object))?.size;
            let mut path = Vec::new();
            match sys::open(self.instance.as_fd(), &path_text(object), libc::O_RDONLY, 0) {
                Ok(text) => {
                    std::fs::File::from(text)
                        .read_to_end(&mut path)
                        .map_err(errno_of)?;
                }
                // The file itself counts.
                Err(Errno::NOENT) => {}
                Err(e) => return Err(e),
            }
            found.push(Withheld {
                object,
                path,
                bytes,
            });
        }
        found.sort_by(|a, b| a.path.cmp(&b.path).then(a.object.cmp(&b.object)));
        Ok(found)
    }
}
