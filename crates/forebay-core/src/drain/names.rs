//! Names that a drain uses on the PFS. All begin with [`RESERVED_PREFIX`], so none is in the namespace.

use crate::path::TreePath;
use crate::record::ObjectId;
use crate::walk::RESERVED_PREFIX;

/// The name under which a renamed thing waits in the root of the PFS directory.
pub fn waiting_name(oid: ObjectId) -> Vec<u8> {
    reserved(oid, ".moved")
}

/// The path of [`waiting_name`].
pub fn waiting_path(oid: ObjectId) -> TreePath {
    TreePath::root().join(&waiting_name(oid))
}

/// The object of the record that moved what waits under this name.
pub fn waits_under(name: &[u8]) -> Option<ObjectId> {
    let text = name
        .strip_prefix(RESERVED_PREFIX)?
        .strip_suffix(b".moved")?;
    let digits = std::str::from_utf8(text).ok().filter(|t| t.len() == 32)?;
    u128::from_str_radix(digits, 16).ok().map(ObjectId)
}

/// The name under which contents are written before they take their final name.
pub fn copy_name(oid: ObjectId) -> Vec<u8> {
    reserved(oid, ".tmp")
}

/// The temporary name in the directory of a final name.
pub fn copy_path(name: &TreePath, oid: ObjectId) -> TreePath {
    name.parent().join(&copy_name(oid))
}

/// The name of a hidden directory that only waits for its removal.
pub fn discarded_name(oid: ObjectId) -> Vec<u8> {
    reserved(oid, ".gone")
}

fn reserved(oid: ObjectId, suffix: &str) -> Vec<u8> {
    [RESERVED_PREFIX, format!("{oid}{suffix}").as_bytes()].concat()
}

/// Is this a name that an interrupted drain may have left, and that holds nothing of value?
/// (What waits under [`waiting_name`] is of value: only a note of [`super::abandon`] takes it away.)
///
/// Several bridges share a PFS: the name of a copy tells the object, whose bridge makes the copy, so a
/// driver that is not alone sweeps only what objects of its own have left.
pub fn is_leftover(name: &[u8]) -> bool {
    leftover_of(name).is_some()
}

/// The object that left this name behind, if it is a leftover.
pub fn leftover_of(name: &[u8]) -> Option<ObjectId> {
    let (oid, suffix) = name
        .strip_prefix(RESERVED_PREFIX)
        .and_then(|rest| rest.split_at_checked(32))?;
    if suffix != b".tmp" && !suffix.starts_with(b".gone") {
        return None;
    }
    let digits = std::str::from_utf8(oid).ok()?;
    u128::from_str_radix(digits, 16).ok().map(ObjectId)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::BridgeId;

    #[test]
    fn only_what_holds_nothing_of_value_is_a_leftover() {
        let oid = ObjectId::new(BridgeId(1), 2, 3);
        assert!(is_leftover(&copy_name(oid)));
        assert!(is_leftover(&discarded_name(oid)));
        assert!(is_leftover(&[&discarded_name(oid)[..], b"1"].concat()));
        assert!(!is_leftover(&waiting_name(oid)));
        assert!(!is_leftover(b".forebay-notes.tmp"));
        assert_eq!(waits_under(&waiting_name(oid)), Some(oid));
        assert_eq!(waits_under(&copy_name(oid)), None);
    }
}
