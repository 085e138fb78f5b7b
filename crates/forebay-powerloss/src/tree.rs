//! A tree as it is found after a power loss.

use crate::model::Node;
use anyhow::Context;
use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Largest file that is read; workloads make none that is larger.
const LARGEST_FILE_BYTES: u64 = 64 << 20;

/// What was found at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Kind, bytes, attribute.
    pub node: Node,
    /// Number of its inode: equal for names of the same file.
    pub inode: u64,
}

/// Path to what is there.
pub type Tree = BTreeMap<String, Entry>;

/// Reads a tree, but not what the file system or Forebay keeps for itself.
///
/// # Errors
/// Something in it can't be read.
pub fn read(root: &Path) -> anyhow::Result<Tree> {
    let mut found = Tree::new();
    below(root, "", &mut found)?;
    Ok(found)
}

fn below(dir: &Path, prefix: &str, found: &mut Tree) -> anyhow::Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("can't list {}", dir.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if (prefix.is_empty() && name == "lost+found") || name.starts_with(".forebay-") {
            continue;
        }
        let (at, path) = (entry.path(), format!("{prefix}{name}"));
        let about = entry.metadata()?;
        let is_dir = about.is_dir();
        anyhow::ensure!(
            about.len() <= LARGEST_FILE_BYTES,
            "{path} has {} bytes",
            about.len()
        );
        let bytes = if about.is_file() {
            fs::read(&at).with_context(|| format!("can't read {path}"))?
        } else {
            Vec::new()
        };
        let attribute =
            attribute(&at, "user.t").and_then(|value| String::from_utf8(value).ok()?.parse().ok());
        let node = Node {
            is_dir,
            bytes,
            attribute,
        };
        found.insert(
            path.clone(),
            Entry {
                node,
                inode: about.ino(),
            },
        );
        if is_dir {
            below(&at, &format!("{path}/"), found)?;
        }
    }
    Ok(())
}

/// Equal for trees that look alike: names, kinds, bytes, attributes.
pub fn hash(tree: &Tree) -> String {
    let mut hasher = DefaultHasher::new();
    for (path, Entry { node, .. }) in tree {
        (path, node.is_dir, &node.bytes, node.attribute).hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
}

/// An extended attribute; `None` if there is none.
pub fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 4096];
    let length = rustix::fs::lgetxattr(path, name, value.as_mut_slice()).ok()?;
    value.truncate(length);
    Some(value)
}
