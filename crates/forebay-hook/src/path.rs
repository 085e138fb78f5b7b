//! Decides by its text whether a path lies in the buffer. Nothing is looked up on a file system.
//!
//! The rule is lexical (`..` removes the component before it), because a look-up
//! would cost a system call for every path of the program. It holds up to the root of the
//! buffer only: the bridge gets all that follows as written. It resolves `..` after a symbolic
//! link properly, and says where a path leads that leaves the buffer again.

pub use forebay_types::below;

/// Where an absolute path lies, after a quick look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Glance {
    /// The path begins with the root and needs no normalisation.
    Inside,
    /// The path lies elsewhere and needs no normalisation.
    Outside,
    /// The path holds `//`, `.` or `..`: [`enter`] decides.
    Unclear,
}

/// True if `path` has no `//`, and no component `.` or `..` after a slash.
pub fn is_plain(path: &[u8]) -> bool {
    let mut rest = path;
    while let Some(at) = rest.iter().position(|&b| b == b'/') {
        rest = &rest[at + 1..];
        match rest {
            [b'/', ..] | [b'.'] | [b'.', b'/', ..] | [b'.', b'.'] | [b'.', b'.', b'/', ..] => {
                return false;
            }
            _ => {}
        }
    }
    true
}

/// True if a component of `path` is `..`.
pub fn has_dotdot(path: &[u8]) -> bool {
    path.windows(2).any(|w| w == b"..") && path.split(|&b| b == b'/').any(|c| c == b"..")
}

/// A quick look at an absolute path.
///
/// This runs for every path of the program. So it searches eight bytes at a time for anything that might need
/// normalisation, and looks at single bytes only if it finds something.
#[inline]
pub fn glance(path: &[u8], root: &[u8], alias: &[u8]) -> Glance {
    if slash_before_dot_or_slash(path) && !is_plain(path) {
        Glance::Unclear
    } else if below(root, path).is_some() || (!alias.is_empty() && below(alias, path).is_some()) {
        Glance::Inside
    } else {
        Glance::Outside
    }
}

/// True if a slash is followed by a dot or another slash.
#[inline]
fn slash_before_dot_or_slash(path: &[u8]) -> bool {
    const STEP: usize = 8;
    let word = |at: usize| {
        let bytes: Option<&[u8; STEP]> = path.get(at..at + STEP).and_then(|b| b.try_into().ok());
        bytes.map(|b| u64::from_le_bytes(*b))
    };
    let mut at = 0;
    while let (Some(here), Some(next)) = (word(at), word(at + 1)) {
        if equal_bytes(here, b'/') & (equal_bytes(next, b'/') | equal_bytes(next, b'.')) != 0 {
            return true;
        }
        at += STEP;
    }
    path[at..]
        .windows(2)
        .any(|w| w[0] == b'/' && matches!(w[1], b'/' | b'.'))
}

/// The highest bit of every byte of `word` that equals `byte`; all other bits are 0.
#[inline(always)]
const fn equal_bytes(word: u64, byte: u8) -> u64 {
    const LOW_BITS: u64 = u64::MAX / 255 * 0x7f;
    let differs = word ^ (u64::MAX / 255 * byte as u64);
    !(((differs & LOW_BITS) + LOW_BITS) | differs | LOW_BITS)
}

/// Follows the components of a path, and tracks how far they match the root.
struct Walker<'r> {
    root: &'r [u8],
    root_depth: usize,
    depth: usize,
    matched: usize,
}

impl<'r> Walker<'r> {
    fn new(root: &'r [u8]) -> Self {
        Walker {
            root,
            root_depth: components(root).count(),
            depth: 0,
            matched: 0,
        }
    }

    /// At the root itself.
    fn is_there(&self) -> bool {
        self.matched == self.root_depth && self.depth == self.root_depth
    }

    /// At a directory above the root, or at the root.
    fn is_on_the_way(&self) -> bool {
        self.depth == self.matched
    }

    fn step(&mut self, component: &[u8]) {
        match component {
            b"" | b"." => {}
            b".." => {
                self.depth = self.depth.saturating_sub(1);
                self.matched = self.matched.min(self.depth);
            }
            name => {
                if self.depth == self.matched
                    && components(self.root).nth(self.matched) == Some(name)
                {
                    self.matched += 1;
                }
                self.depth += 1;
            }
        }
    }
}

fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&b| b == b'/').filter(|c| !c.is_empty())
}

/// Where a path enters the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'p> {
    /// The path up to the root.
    pub way: &'p [u8],
    /// What follows, with its `.` and `..`. It may lead out of the buffer again: only the bridge knows what `..` leads to.
    pub rest: &'p [u8],
    /// The way has a `..` after a component that may be a symbolic link. Only the kernel knows whether it leads to the root.
    pub is_doubtful: bool,
}

/// The place where `path` first enters the buffer. A relative `path` starts at the absolute directory `base`, which has
/// no links and is not in the buffer. `None` if the path stays outside.
///
/// `root` has no links, so a path that only touches it (`ROOT/../x`) stays outside. The `alias` may be a link: what comes after
/// it is never judged by its text. Empty: there is none.
pub fn enter<'p>(base: &[u8], path: &'p [u8], root: &[u8], alias: &[u8]) -> Option<Entry<'p>> {
    let mut at_root = Walker::new(root);
    let mut at_alias = (!alias.is_empty()).then(|| Walker::new(alias));
    let mut step = |component: &[u8]| {
        at_root.step(component);
        if let Some(walker) = &mut at_alias {
            walker.step(component);
        }
        let is_there = (
            at_root.is_there(),
            at_alias.as_ref().is_some_and(Walker::is_there),
        );
        (is_there, at_root.is_on_the_way())
    };
    let mut on_the_way = true;
    if path.first() != Some(&b'/') {
        components(base).for_each(|c| on_the_way = step(c).1);
    }
    let entry = |end: usize, is_doubtful: bool| {
        let rest = &path[end..];
        let slashes = rest.iter().take_while(|&&b| b == b'/').count();
        Entry {
            way: &path[..end],
            rest: &rest[slashes..],
            is_doubtful,
        }
    };
    let mut is_doubtful = false;
    // How many components of the path itself the next ones could remove.
    let mut written = 0usize;
    let mut touched = None;
    let mut at = 0;
    while at < path.len() {
        let end = path[at..]
            .iter()
            .position(|&b| b == b'/')
            .map_or(path.len(), |n| at + n);
        let component = &path[at..end];
        at = end + 1;
        match (component, touched) {
            (b"" | b".", _) => continue,
            (b"..", _) => {
                touched = None;
                is_doubtful |= written > 0 && !on_the_way;
                written = written.saturating_sub(1);
            }
            (_, Some(end)) => return Some(entry(end, is_doubtful)),
            _ => written += 1,
        }
        let (is_there, is_on_the_way) = step(component);
        on_the_way = is_on_the_way;
        match is_there {
            (true, _) => touched = Some(end),
            (false, true) => return Some(entry(end, is_doubtful)),
            (false, false) => {}
        }
    }
    touched.map(|end| entry(end, is_doubtful))
}

/// A path that goes on from an open directory of this process, or from its working directory (`None`): which one, and the
/// relative rest, `.` after a slash alone. `None` for any other path, and for that of the link itself.
pub fn through_own_link(path: &[u8]) -> Option<(Option<i32>, &[u8])> {
    let own = path.strip_prefix(b"/proc/");
    let own = own.and_then(|p| {
        p.strip_prefix(b"self/")
            .or_else(|| p.strip_prefix(b"thread-self/"))
    });
    let (number, rest) = match own {
        Some(inner) if inner.starts_with(b"cwd/") => (None, &inner[4..]),
        Some(inner) => split_number(inner.strip_prefix(b"fd/")?)?,
        None => split_number(path.strip_prefix(b"/dev/fd/")?)?,
    };
    match rest.iter().position(|&b| b != b'/') {
        Some(start) => Some((number, &rest[start..])),
        None => Some((number, b".")),
    }
}

/// A decimal number up to the next slash, and what follows that.
fn split_number(text: &[u8]) -> Option<(Option<i32>, &[u8])> {
    let end = text.iter().position(|&b| b == b'/')?;
    let mut number = 0i32;
    for &b in &text[..end] {
        let digit = (b as char).to_digit(10)?;
        number = number.checked_mul(10)?.checked_add(digit as i32)?;
    }
    (end > 0).then_some((Some(number), &text[end + 1..]))
}

/// What an open directory or file is, judged by the absolute path that the kernel shows for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spot<'a> {
    /// Outside the buffer. A relative path from here cannot enter it without `..`.
    Far,
    /// Outside the buffer, at a directory above the root.
    Above,
    /// A backing directory. Holds its object id.
    Dir(u128),
    /// A backing file. Holds its object id, and which of its hard links it was opened by (0 for the first name).
    File(u128, u32),
    /// On the parallel file system. Holds the path below the root, empty for the root itself.
    Lower(&'a [u8]),
}

/// Says what lies at the absolute `path` of an open directory or file.
///
/// `storage` is the instance directory of the bridge: backing directories are
/// `STORAGE/dir/<any>/<32 hex>`, backing files `STORAGE/obj/<any>/<32 hex>[.<link>][.node]`.
/// `/proc` may add " (deleted)" to the path. Everything else in the storage is outside the buffer, also what
/// lies in a backing directory: a call past the bridge made it.
pub fn classify<'a>(path: &'a [u8], root: &[u8], storage: &[u8]) -> Spot<'a> {
    if let Some(inner) = below(storage, path).filter(|_| !storage.is_empty()) {
        return backing(inner).unwrap_or(Spot::Far);
    }
    if let Some(inner) = below(root, path) {
        return Spot::Lower(inner);
    }
    if path == b"/" || below(path, root).is_some() {
        return Spot::Above;
    }
    Spot::Far
}

/// The object at the path `inner` below the instance directory.
fn backing(inner: &[u8]) -> Option<Spot<'static>> {
    let mut parts = inner.splitn(3, |&b| b == b'/');
    let (kind, _folder, name) = (parts.next()?, parts.next()?, parts.next()?);
    let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
    let (digits, rest) = name.split_at_checked(OBJECT_DIGITS)?;
    let oid = hex(digits)?;
    match kind {
        b"dir" if rest.is_empty() => Some(Spot::Dir(oid)),
        b"obj" => match rest.strip_suffix(b".node").unwrap_or(rest) {
            b"" => Some(Spot::File(oid, 0)),
            [b'.', link @ ..] => Some(Spot::File(oid, hex(link)?.try_into().ok()?)),
            _ => None,
        },
        _ => None,
    }
}

/// Digits of an object id in the name of a backing object.
const OBJECT_DIGITS: usize = 32;

/// A number of hexadecimal digits, at most [`OBJECT_DIGITS`].
fn hex(digits: &[u8]) -> Option<u128> {
    let mut number = 0u128;
    for &b in digits {
        number = number << 4 | u128::from((b as char).to_digit(16)?);
    }
    (1..=OBJECT_DIGITS)
        .contains(&digits.len())
        .then_some(number)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::format;

    const ROOT: &[u8] = b"/pfs/me/run7";

    #[test]
    fn paths_through_links_of_the_process_itself_go_on_from_a_descriptor() {
        let through = |path: &'static str| through_own_link(path.as_bytes());
        assert_eq!(through("/proc/self/cwd/a/b"), Some((None, &b"a/b"[..])));
        assert_eq!(through("/proc/thread-self/cwd//a"), Some((None, &b"a"[..])));
        assert_eq!(through("/proc/self/fd/17/a"), Some((Some(17), &b"a"[..])));
        assert_eq!(through("/dev/fd/3/a/"), Some((Some(3), &b"a/"[..])));
        assert_eq!(through("/proc/self/cwd/"), Some((None, &b"."[..])));
        assert_eq!(through("/proc/self/fd/3//"), Some((Some(3), &b"."[..])));
        for other in [
            "/proc/self/cwd",
            "/proc/self/fd/3",
            "/proc/self/fd//a",
            "/proc/self/fd/x/a",
            "/proc/self/fd/99999999999/a",
            "/proc/1/cwd/a",
            "/proc/self/exe",
            "/dev/fdx/3/a",
            "/pfs/me",
        ] {
            assert_eq!(through(other), None, "{other}");
        }
    }

    #[test]
    fn plain_paths_are_told_from_those_that_need_a_walk() {
        for plain in [
            "/a/b",
            "a",
            "/a/.hidden",
            "/a/..b",
            "/a/b/",
            "/",
            "/a/...",
            "..a/.b",
        ] {
            assert!(is_plain(plain.as_bytes()), "{plain}");
        }
        for not in ["//a", "/a//b", "/./a", "/a/.", "/a/..", "/a/../b", "a/./b"] {
            assert!(!is_plain(not.as_bytes()), "{not}");
        }
    }

    #[test]
    fn the_quick_look_sees_every_place_where_a_dot_or_a_slash_follows_a_slash() {
        for len in 2..40 {
            for at in 0..len - 1 {
                for pair in [b"//", b"/.", b"/a", b"a/", b"./", b"\x2f\xaf", b"\xaf\x2e"] {
                    let mut path = [b'x'; 40];
                    let path = &mut path[..len];
                    path[at..at + 2].copy_from_slice(pair);
                    let expected = matches!(pair, b"//" | b"/.");
                    assert_eq!(slash_before_dot_or_slash(path), expected, "{path:?}");
                }
            }
        }
        assert!(!slash_before_dot_or_slash(b"/"));
        assert!(!slash_before_dot_or_slash(b""));
    }

    #[test]
    fn a_name_that_only_begins_like_the_root_is_outside() {
        assert_eq!(glance(b"/pfs/me/run7x", ROOT, b""), Glance::Outside);
        assert_eq!(glance(b"/pfs/me/run7", ROOT, b""), Glance::Inside);
        assert_eq!(glance(b"/pfs/me/run7/", ROOT, b""), Glance::Inside);
        assert_eq!(glance(b"/home/run7/x", ROOT, b"/home/run7"), Glance::Inside);
        assert_eq!(glance(b"/home/../pfs", ROOT, b""), Glance::Unclear);
    }

    /// What follows the root, and whether the way there is doubtful.
    fn entered(base: &str, path: &'static str, alias: &str) -> Option<(&'static str, bool)> {
        let entry = enter(base.as_bytes(), path.as_bytes(), ROOT, alias.as_bytes())?;
        let text = |bytes| core::str::from_utf8(bytes).unwrap();
        assert!(path.starts_with(text(entry.way)), "{path}");
        assert!(path.ends_with(text(entry.rest)), "{path}");
        Some((text(entry.rest), entry.is_doubtful))
    }

    #[test]
    fn the_part_below_the_root_keeps_its_dots() {
        let enter = |path| entered("/", path, "").map(|(rest, _)| rest);
        assert_eq!(enter("/tmp/../pfs/me//run7/./a/../b/"), Some("./a/../b/"));
        assert_eq!(enter("/pfs/me/run7/."), Some("."));
        assert_eq!(enter("/pfs/me/run7//"), Some(""));
        assert_eq!(enter("//pfs//me/run7///x//y"), Some("x//y"));
        assert_eq!(enter("/../../pfs/me/run7/x/.."), Some("x/.."));
    }

    #[test]
    fn what_leads_through_the_buffer_is_left_to_the_bridge_and_what_touches_its_root_is_not() {
        let enter = |path| entered("/", path, "").map(|(rest, _)| rest);
        assert_eq!(enter("/pfs/me/run7/a/../../other"), Some("a/../../other"));
        assert_eq!(
            enter("/pfs/me/run7/./a/../../run7/b"),
            Some("./a/../../run7/b")
        );
        assert_eq!(enter("/pfs/me/run7/../run7/x"), Some("x"));
        assert_eq!(enter("/pfs/me/run7/.."), None);
        assert_eq!(enter("/pfs/me/run7/./../other"), None);
        assert_eq!(enter("/pfs/me/run7/../../me"), None);
    }

    #[test]
    fn a_relative_path_may_enter_from_above_or_beside() {
        let enter = |base, path| entered(base, path, "");
        assert_eq!(enter("/pfs", "me/run7/x"), Some(("x", false)));
        assert_eq!(enter("/pfs/me/other", "../run7/x"), Some(("x", false)));
        assert_eq!(enter("/pfs/me", "run8/x"), None);
        assert_eq!(enter("/", "pfs/me/run7"), Some(("", false)));
        assert_eq!(
            enter("/pfs/me", "run7/a/../../x"),
            Some(("a/../../x", false))
        );
    }

    #[test]
    fn all_that_follows_the_other_spelling_is_left_to_the_bridge() {
        let enter = |path| entered("/", path, "/home/run").map(|(rest, _)| rest);
        assert_eq!(enter("/home/run/../x"), Some("../x"));
        assert_eq!(enter("/home//run/"), Some(""));
        assert_eq!(
            enter("/home/run/../../pfs/me/run7/y"),
            Some("../../pfs/me/run7/y")
        );
        assert_eq!(
            enter("/pfs/me/run7/a/../../../../home/run/b"),
            Some("a/../../../../home/run/b")
        );
        assert_eq!(enter("/home/runs/../x"), None);
    }

    #[test]
    fn a_way_is_doubtful_where_a_component_that_was_removed_may_be_a_link() {
        let doubtful = |base, path, alias| entered(base, path, alias).map(|(_, doubtful)| doubtful);
        for certain in [
            "/pfs/me/run7/x/../y",
            "/pfs/../pfs/me/run7",
            "/pfs/me/run7/../run7/link/../x",
            "/../pfs/./me/run7",
        ] {
            assert_eq!(doubtful("/", certain, ""), Some(false), "{certain}");
        }
        for doubt in ["/tmp/../pfs/me/run7", "/pfs/me/a/b/../../run7/x"] {
            assert_eq!(doubtful("/", doubt, ""), Some(true), "{doubt}");
        }
        assert_eq!(doubtful("/pfs/x/y", "../../me/run7", ""), Some(false));
        assert_eq!(doubtful("/pfs/x", "y/../../me/run7", ""), Some(true));
        assert_eq!(
            doubtful("/", "/home/../home/run/x", "/home/run"),
            Some(true)
        );
    }

    #[test]
    fn open_directories_are_recognised_by_their_path() {
        let storage = b"/var/tmp/forebay-0/run7-0123456789abcdef";
        let classify = |p: &'static str| classify(p.as_bytes(), ROOT, storage);
        let dir =
            "/var/tmp/forebay-0/run7-0123456789abcdef/dir/000/000000000000000000000000000000ff";
        assert_eq!(classify(dir), Spot::Dir(255));
        let gone = "/var/tmp/forebay-0/run7-0123456789abcdef/dir/000/000000000000000000000000000000ff (deleted)";
        assert_eq!(classify(gone), Spot::Dir(255));
        let link =
            "/var/tmp/forebay-0/run7-0123456789abcdef/obj/000/000000000000000000000000000000fe.2";
        assert_eq!(classify(link), Spot::File(254, 2));
        assert_eq!(
            classify("/var/tmp/forebay-0/run7-0123456789abcdef/meta"),
            Spot::Far
        );
        assert_eq!(classify("/pfs/me/run7"), Spot::Lower(b""));
        assert_eq!(classify("/pfs/me/run7/a/b"), Spot::Lower(b"a/b"));
        assert_eq!(classify("/pfs/me"), Spot::Above);
        assert_eq!(classify("/"), Spot::Above);
        assert_eq!(classify("/pfs/me/run"), Spot::Far);
    }

    #[test]
    fn only_objects_of_the_bridge_are_the_buffers_in_its_storage() {
        let at = |inner: &str| {
            let path = format!("/st/{inner}");
            match classify(path.as_bytes(), ROOT, b"/st") {
                Spot::Dir(oid) => Some((oid, None)),
                Spot::File(oid, link) => Some((oid, Some(link))),
                Spot::Far => None,
                other => panic!("{path} is {other:?}"),
            }
        };
        let id = "000000000000000000000000000000ff";
        assert_eq!(at(&format!("dir/0/{id}")), Some((255, None)));
        assert_eq!(at(&format!("dir/0/{id} (deleted)")), Some((255, None)));
        assert_eq!(at(&format!("obj/1f/{id}")), Some((255, Some(0))));
        assert_eq!(at(&format!("obj/0/{id}.1f")), Some((255, Some(31))));
        assert_eq!(at(&format!("obj/0/{id}.node")), Some((255, Some(0))));
        assert_eq!(
            at(&format!("obj/0/{id}.2.node (deleted)")),
            Some((255, Some(2)))
        );
        for made_past_the_bridge in [
            format!("dir/0/{id}/sub"),
            format!("dir/0/{id}/result (deleted)"),
            format!("dir/0/{id}/"),
            format!("dir/0/{id}.1"),
            format!("dir/0/{id}x"),
            format!("obj/0/{id}/x"),
            format!("obj/0/{id}."),
            format!("obj/0/{id}.x"),
            format!("obj/0/{id}.1ffffffff"),
            format!("obj/0/{id}.node.node"),
            format!("obj/0/{id} (deleted) (deleted)"),
            format!("obj/{id}"),
            format!("other/0/{id}"),
            "obj/0/ff".into(),
        ] {
            assert_eq!(at(&made_past_the_bridge), None, "{made_past_the_bridge}");
        }
    }

    #[test]
    fn only_a_whole_component_counts_as_dotdot() {
        assert!(has_dotdot(b".."));
        assert!(has_dotdot(b"a/../b"));
        assert!(has_dotdot(b"a/.."));
        assert!(!has_dotdot(b"a..b/..c"));
    }
}
