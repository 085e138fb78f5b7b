//! Names that a drain uses on the PFS. All begin with [`RESERVED_PREFIX`], so none is in the namespace.

use super::drain_facts::DrainFacts;
use super::name_secret::NameSecret;
use crate::path::TreePath;
use crate::record::{BridgeId, ObjectId};
use crate::walk::RESERVED_PREFIX;

/// Hexadecimal digits of an object in a name.
const OBJECT_DIGITS: usize = 32;
/// Hexadecimal digits of the part of a name that nobody can tell in advance.
const TOKEN_DIGITS: usize = 16;
/// Comes before that part.
const TOKEN_MARK: u8 = b'-';
/// Ends the name of what waits for its final name.
const WAITING: &str = ".moved";
/// Ends the name of a copy.
const COPY: &str = ".tmp";
/// Ends the name of a directory that is on its way out; a number may follow.
const DISCARDED: &str = ".gone";
/// Ends the name of the directory in which a new one is made, where others can't get at it.
const NEW: &str = ".new";
/// Ends the name that a file has for a moment on its way out.
const GOING: &str = ".out";
/// Ends the name of what earlier versions made beside what waits for its removal, as a note. Nobody believes it any more.
pub(super) const OLD_NOTE: &[u8] = b".from";
/// Ends the name of what is made for a moment to read the clock of the PFS.
pub(super) const CLOCK: &[u8] = b".clock";

/// The name under which a renamed thing waits in the root of the PFS directory.
pub fn waiting_name(oid: ObjectId) -> Vec<u8> {
    reserved(oid, WAITING)
}

/// The path of [`waiting_name`].
pub fn waiting_path(oid: ObjectId) -> TreePath {
    TreePath::root().join(&waiting_name(oid))
}

/// The object of the record that moved what waits under this name.
pub(crate) fn waits_under(name: &[u8]) -> Option<ObjectId> {
    let (oid, suffix) = reserved_parts(name)?;
    (suffix == WAITING.as_bytes()).then_some(oid)
}

/// Makes the temporary names of one pass. Nobody can tell them in advance: in a directory that others may write to somebody could
/// take them first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TemporaryNames {
    /// The bridge that makes what has them, if it is one of several.
    pub(super) maker: Option<BridgeId>,
    pub(super) secret: NameSecret,
}

impl TemporaryNames {
    /// Of the pass that has this secret.
    pub(super) fn of_pass(facts: &dyn DrainFacts, secret: NameSecret) -> Self {
        TemporaryNames {
            maker: (!facts.is_single()).then(|| facts.me()),
            secret,
        }
    }

    /// The temporary name of the copy that is made of this object at this attempt, counted from 0. A bridge that is alone makes it
    /// in the directory of its final name, where the PFS keeps it as it would keep the file itself. Of several bridges another one
    /// may be moving that directory: there it is in the root, and its name tells the bridge that makes it, because two can be at it
    /// when a file gets a name at another home.
    pub(super) fn of_copy(&self, name: &TreePath, oid: ObjectId, attempt: u32) -> TreePath {
        copy_path(name, oid, self.maker, &self.token(oid, attempt))
    }

    /// The name, beside its final one, of the directory in which the one of this object is made apart: there it gets what the PFS
    /// gives a new directory of the one around it.
    pub(super) fn of_dir(&self, dir: &TreePath, oid: ObjectId) -> TreePath {
        let maker = self.maker.map(|maker| format!(".{}", maker.0));
        let (maker, token) = (maker.unwrap_or_default(), self.token(oid, 0));
        dir.parent()
            .join(&reserved(oid, &format!("{maker}{token}{NEW}")))
    }

    fn token(&self, oid: ObjectId, attempt: u32) -> String {
        let (mark, token) = (char::from(TOKEN_MARK), self.secret.token(oid, attempt));
        format!("{mark}{token:016x}")
    }
}

/// The temporary name that older programs gave a copy.
pub(super) fn old_copy_path(name: &TreePath, oid: ObjectId, maker: Option<BridgeId>) -> TreePath {
    copy_path(name, oid, maker, "")
}

fn copy_path(name: &TreePath, oid: ObjectId, maker: Option<BridgeId>, token: &str) -> TreePath {
    match maker {
        None => name
            .parent()
            .join(&reserved(oid, &format!("{token}{COPY}"))),
        Some(maker) => {
            let name = reserved(oid, &format!(".{}{token}{COPY}", maker.0));
            TreePath::root().join(&name)
        }
    }
}

/// The name of a hidden directory that only waits for its removal.
pub fn discarded_name(oid: ObjectId) -> Vec<u8> {
    reserved(oid, DISCARDED)
}

/// Is it the name of a directory in which another one is made apart?
pub fn is_apart(name: &[u8]) -> bool {
    reserved_parts(name).is_some_and(|(oid, suffix)| maker_of(oid, suffix, NEW).is_some())
}

/// The name, beside its own one, by which a file goes: on behalf of this object, in the pass that has this secret.
pub(super) fn going_path(file: &TreePath, oid: ObjectId, secret: NameSecret) -> TreePath {
    let mark = char::from(TOKEN_MARK);
    let token = secret.token(oid, 0);
    file.parent()
        .join(&reserved(oid, &format!("{mark}{token:016x}{GOING}")))
}

/// Is it such a name? What is under it was another name of its directory: a drain that was killed has noted which, and the next
/// one looks what it is.
pub fn is_going(name: &[u8]) -> bool {
    let token = reserved_parts(name).and_then(|(_, suffix)| suffix.strip_suffix(GOING.as_bytes()));
    token.is_some_and(|token| !token.is_empty() && without_token(token).is_empty())
}

fn reserved(oid: ObjectId, suffix: &str) -> Vec<u8> {
    [RESERVED_PREFIX, format!("{oid}{suffix}").as_bytes()].concat()
}

/// The object of a name made by [`reserved`], and what follows it.
fn reserved_parts(name: &[u8]) -> Option<(ObjectId, &[u8])> {
    let rest = name.strip_prefix(RESERVED_PREFIX)?;
    let (digits, suffix) = rest.split_at_checked(OBJECT_DIGITS)?;
    let digits = std::str::from_utf8(digits).ok()?;
    let oid = u128::from_str_radix(digits, 16).ok()?;
    Some((ObjectId(oid), suffix))
}

/// Is this a name that an interrupted drain may have left, and that holds nothing of value?
/// (What waits under [`waiting_name`] is of value: only a note of [`super::abandon`] takes it away.)
///
/// Several bridges share a PFS: one of them sweeps only what [`is_leftover_of`] names.
pub fn is_leftover(name: &[u8]) -> bool {
    leftover_of(name).is_some()
}

/// The object that left this name behind, if it is a leftover.
pub(super) fn leftover_of(name: &[u8]) -> Option<ObjectId> {
    let (oid, suffix) = reserved_parts(name)?;
    let is_made = [COPY, NEW].map(|end| maker_of(oid, suffix, end).is_some());
    (is_made.contains(&true) || is_discarded(suffix)).then_some(oid)
}

/// Is this a name that an interrupted drain of this bridge may have left, or that any drain is done with?
pub fn is_leftover_of(name: &[u8], maker: BridgeId) -> bool {
    reserved_parts(name).is_some_and(|(oid, suffix)| {
        let mut ends = [COPY, NEW].into_iter();
        ends.any(|end| maker_of(oid, suffix, end) == Some(maker)) || is_discarded(suffix)
    })
}

/// Of what waits for its removal, maybe beside others with a number, or of what was made beside it.
fn is_discarded(suffix: &[u8]) -> bool {
    let rest = suffix.strip_prefix(DISCARDED.as_bytes());
    rest.is_some_and(|rest| {
        let ends = [OLD_NOTE, CLOCK];
        let number = ends.iter().find_map(|end| rest.strip_suffix(*end));
        number.unwrap_or(rest).iter().all(u8::is_ascii_digit)
    })
}

/// The bridge whose drain makes what has a name that ends so.
fn maker_of(oid: ObjectId, suffix: &[u8], end: &str) -> Option<BridgeId> {
    let maker = without_token(suffix.strip_suffix(end.as_bytes())?);
    if maker.is_empty() {
        return Some(oid.bridge());
    }
    let digits = std::str::from_utf8(maker.strip_prefix(b".")?).ok()?;
    digits.parse().ok().map(BridgeId)
}

/// Without the part that nobody can tell in advance. Older programs made names without one.
fn without_token(text: &[u8]) -> &[u8] {
    let split = text.len().checked_sub(TOKEN_DIGITS + 1);
    match split.map(|at| text.split_at(at)) {
        Some((rest, [TOKEN_MARK, token @ ..])) if token.iter().all(u8::is_ascii_hexdigit) => rest,
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_directory_was_made_apart_is_swept_by_its_maker() {
        let oid = ObjectId::new(BridgeId(2), 1, 5);
        let dir = TreePath::new("a/d").unwrap();
        for (maker, swept_by) in [(None, 2), (Some(BridgeId(1)), 1)] {
            let names = TemporaryNames { maker, ..NAMES };
            let made = names.of_dir(&dir, oid);
            let name = made.name();
            assert_eq!(made.parent(), dir.parent());
            assert!(is_apart(name) && is_leftover(name));
            for bridge in [1, 2] {
                assert_eq!(is_leftover_of(name, BridgeId(bridge)), bridge == swept_by);
            }
        }
        let copy = NAMES.of_copy(&dir, oid, 0);
        let others = [&discarded_name(oid)[..], copy.name(), b"d.new"];
        assert!(others.iter().all(|name| !is_apart(name)));
    }

    const NAMES: TemporaryNames = TemporaryNames {
        maker: None,
        secret: NameSecret([1, 2]),
    };

    fn file() -> TreePath {
        TreePath::root().join(b"f")
    }

    #[test]
    fn only_what_holds_nothing_of_value_is_a_leftover() {
        let oid = ObjectId::new(BridgeId(1), 2, 3);
        assert!(is_leftover(&discarded_name(oid)));
        assert!(is_leftover(&[&discarded_name(oid)[..], b"1"].concat()));
        assert!(!is_leftover(&waiting_name(oid)));
        let going = going_path(&file(), oid, NAMES.secret);
        assert!(is_going(going.name()) && !is_leftover(going.name()));
        assert_eq!(going.parent(), file().parent());
        for other in [discarded_name(oid), waiting_name(oid), reserved(oid, GOING)] {
            assert!(!is_going(&other));
        }
        for maker in [None, Some(BridgeId(1)), Some(BridgeId(12))] {
            let names = TemporaryNames { maker, ..NAMES };
            let old = old_copy_path(&file(), oid, maker);
            for copy in [old, names.of_copy(&file(), oid, 0)] {
                let maker = maker.unwrap_or(oid.bridge());
                assert!(is_leftover(copy.name()), "{copy}");
                assert!(is_leftover_of(copy.name(), maker), "{copy}");
                assert!(!is_leftover_of(copy.name(), BridgeId(2)), "{copy}");
                assert_eq!(waits_under(copy.name()), None);
            }
        }
        for maker in [BridgeId(1), BridgeId(12)] {
            assert!(is_leftover_of(&discarded_name(oid), maker));
            assert!(!is_leftover_of(&waiting_name(oid), maker));
        }
        let copy = NAMES.of_copy(&file(), oid, 0);
        let shorter = [&copy.name()[..copy.name().len() - 5], COPY.as_bytes()].concat();
        assert!(!is_leftover(&shorter));
        assert!(!is_leftover(b".forebay-notes.tmp"));
        assert_eq!(waits_under(&waiting_name(oid)), Some(oid));
    }

    #[test]
    fn each_copy_of_each_pass_has_a_name_of_its_own() {
        let mut seen = std::collections::BTreeSet::new();
        for secret in [[1, 2], [1, 3], [2, 2]].map(NameSecret) {
            for (seq, attempt) in [(3, 0), (3, 1), (4, 0), (4, 1)] {
                let oid = ObjectId::new(BridgeId(1), 2, seq);
                let names = TemporaryNames { secret, ..NAMES };
                seen.insert(names.secret.token(oid, attempt));
                assert_eq!(
                    names.of_copy(&file(), oid, attempt),
                    names.of_copy(&file(), oid, attempt)
                );
            }
        }
        assert_eq!(seen.len(), 12);
    }
}
