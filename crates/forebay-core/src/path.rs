//! Paths inside a buffer.
//!
//! A [`TreePath`] names a place in the namespace of one buffer: relative to its
//! root, normalised, any bytes but NUL and `/` in a component. Paths as programs
//! write them (with `..`, `//`, symbolic links) become tree paths in
//! [`crate::walk`] only.

use std::fmt;

pub use forebay_types::below;

/// A normalised path below the buffer root; the empty path is the root.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TreePath(Vec<u8>);

impl TreePath {
    /// The buffer root.
    pub const fn root() -> Self {
        TreePath(Vec::new())
    }

    /// Takes bytes that are normalised already; `None` if they are not.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Option<Self> {
        let bytes = bytes.into();
        let ok = bytes.is_empty()
            || bytes
                .split(|&b| b == b'/')
                .all(|c| !c.is_empty() && c != b"." && c != b".." && !c.contains(&0));
        ok.then_some(TreePath(bytes))
    }

    /// The bytes, without a leading or closing slash.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Is this the root?
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The directory that holds this path, and the last component; `None` for the root.
    pub fn split(&self) -> Option<(TreePath, &[u8])> {
        if self.is_root() {
            return None;
        }
        Some(match self.0.iter().rposition(|&b| b == b'/') {
            Some(at) => (TreePath(self.0[..at].to_vec()), &self.0[at + 1..]),
            None => (TreePath::root(), &self.0[..]),
        })
    }

    /// The directory that holds this path; the root's parent is the root, as in POSIX.
    pub fn parent(&self) -> TreePath {
        self.split().map(|(p, _)| p).unwrap_or_default()
    }

    /// Last component; empty for the root.
    pub fn name(&self) -> &[u8] {
        let at = self.0.iter().rposition(|&b| b == b'/').map_or(0, |i| i + 1);
        &self.0[at..]
    }

    /// The path of `name` in this directory. `name` is one component.
    pub fn join(&self, name: &[u8]) -> TreePath {
        debug_assert!(
            !name.is_empty() && name != b"." && name != b"..",
            "no component: {}",
            name.escape_ascii()
        );
        debug_assert!(
            !name.iter().any(|&b| b == b'/' || b == 0),
            "not one component: {}",
            name.escape_ascii()
        );
        let mut v = Vec::with_capacity(self.0.len() + 1 + name.len());
        v.extend_from_slice(&self.0);
        if !v.is_empty() {
            v.push(b'/');
        }
        v.extend_from_slice(name);
        TreePath(v)
    }

    /// Is `self` equal to `dir` or below it?
    pub fn is_within(&self, dir: &TreePath) -> bool {
        self.relative_to(dir).is_some()
    }

    /// The part of `self` below `dir` (empty if equal), or `None` if it is not within it.
    pub fn relative_to(&self, dir: &TreePath) -> Option<&[u8]> {
        if dir.is_root() {
            return Some(&self.0);
        }
        let rest = self.0.strip_prefix(dir.as_bytes())?;
        match rest.first() {
            None => Some(rest),
            Some(b'/') => Some(&rest[1..]),
            Some(_) => None,
        }
    }

    /// `self`, which is within `from`, as it is called after `from` became `to`.
    pub fn rebase(&self, from: &TreePath, to: &TreePath) -> Option<TreePath> {
        let rest = self.relative_to(from)?;
        let mut v = to.0.clone();
        if !rest.is_empty() {
            if !v.is_empty() {
                v.push(b'/');
            }
            v.extend_from_slice(rest);
        }
        Some(TreePath(v))
    }

    /// Number of components.
    pub fn depth(&self) -> usize {
        if self.is_root() {
            0
        } else {
            1 + self.0.iter().filter(|&&b| b == b'/').count()
        }
    }

    /// The components from the root down.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|&b| b == b'/').filter(|c| !c.is_empty())
    }

    /// The table key: directory, NUL, name. So the children of one directory
    /// are one contiguous range, whatever lies below them.
    pub fn key(&self) -> Vec<u8> {
        let (dir, name) = match self.split() {
            Some((d, n)) => (d.0, n),
            None => (Vec::new(), &[][..]),
        };
        let mut k = Vec::with_capacity(dir.len() + 1 + name.len());
        k.extend_from_slice(&dir);
        k.push(0);
        k.extend_from_slice(name);
        k
    }

    /// The path that a table key names; `None` if it is no table key.
    pub fn from_key(key: &[u8]) -> Option<TreePath> {
        let nul = key.iter().position(|&b| b == 0)?;
        let (dir, name) = (&key[..nul], &key[nul + 1..]);
        let dir = TreePath::new(dir)?;
        if name.is_empty() {
            return dir.is_root().then_some(dir);
        }
        TreePath::new(name)
            .filter(|n| n.depth() == 1)
            .map(|_| dir.join(name))
    }
}

impl fmt::Debug for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.0.escape_ascii())
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            return f.write_str(".");
        }
        write!(f, "{}", String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(s: &str) -> TreePath {
        TreePath::new(s.as_bytes()).unwrap()
    }

    #[test]
    fn keys_lead_back_to_their_paths_and_children_are_one_range() {
        for s in ["", "a", "a/b", "a/b/c", "a_b"] {
            assert_eq!(TreePath::from_key(&p(s).key()), Some(p(s)));
        }
        let mut keys: Vec<_> = ["a", "a/b", "a/b/x", "a/c", "a!", "a!/b", "a0"]
            .iter()
            .map(|s| p(s).key())
            .collect();
        keys.sort();
        let children: Vec<_> = keys.iter().filter(|k| k.starts_with(b"a\0")).collect();
        assert_eq!(children, [&b"a\0b".to_vec(), &b"a\0c".to_vec()]);
    }

    #[test]
    fn a_path_is_below_a_root_by_whole_components() {
        assert_eq!(below(b"/pfs/run7", b"/pfs/run7"), Some(&b""[..]));
        assert_eq!(below(b"/pfs/run7", b"/pfs/run7/a/b"), Some(&b"a/b"[..]));
        assert_eq!(below(b"/pfs/run7", b"/pfs/run77/a"), None);
        assert_eq!(below(b"/pfs/run7", b"/pfs"), None);
    }

    #[test]
    fn what_is_not_normalised_is_refused() {
        for s in ["/", "/a", "a/", "a//b", ".", "a/..", "a\0b"] {
            assert_eq!(TreePath::new(s.as_bytes()), None, "{s:?}");
        }
    }

    #[test]
    #[should_panic(expected = "no component: ..")]
    fn the_way_up_is_no_component() {
        p("a").join(b"..");
    }

    #[test]
    #[should_panic(expected = "not one component: b/c")]
    fn two_components_are_not_joined_as_one() {
        p("a").join(b"b/c");
    }

    #[test]
    fn a_name_that_only_begins_alike_is_not_within() {
        assert!(!p("ab").is_within(&p("a")));
        assert!(p("a/b").is_within(&p("a")));
        assert_eq!(p("a/b/c").rebase(&p("a"), &p("x/y")), Some(p("x/y/b/c")));
        assert_eq!(p("a").rebase(&p("a"), &p("x")), Some(p("x")));
    }
}
