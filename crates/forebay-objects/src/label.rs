//! The format of the label that a backing object carries. By it the tables can be rebuilt.
//!
//! A label is short, because ext4 keeps about a hundred bytes of attributes
//! inside the inode, and needs a further block for more.

use forebay_core::facts::{Label, LabelParent};
use forebay_core::identity::Identity;
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, Kind, ObjectId};
use forebay_sys::{self as sys, Errno};
use forebay_types::MAX_NAME_BYTES;
pub use forebay_types::is_own_attribute;
use std::fmt;
use std::os::fd::BorrowedFd;

/// Who beside the bridge may change the labels of a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelsOf {
    /// Who owns an object: all are of the user of the bridge, or were made by a version that knew no other labels.
    Owners,
    /// Only root, with `CAP_SYS_ADMIN`; nobody else sees them. Objects are of several users, and tables made from labels that
    /// those had written would lead root astray.
    Root,
}

impl LabelsOf {
    /// The best for new objects in this directory.
    pub fn best(dir: BorrowedFd<'_>) -> Self {
        match sys::my_ids().0 == 0 && LabelsOf::Root.is_usable(dir) {
            true => LabelsOf::Root,
            false => LabelsOf::Owners,
        }
    }

    /// May this process read and write such labels there? Tries it with an attribute of its own on `dir`, which it removes again:
    /// the kernel shows no label to who may not. Any other failure, such as a full disk, says nothing about that.
    pub fn is_usable(self, dir: BorrowedFd<'_>) -> bool {
        if self == LabelsOf::Owners {
            return true;
        }
        let set = sys::set_xattr(dir, PROBE, b"1");
        let _ = sys::remove_xattr(dir, PROBE);
        !matches!(set, Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP))
    }

    /// Name of the attribute for an object's first name. For a further link, [`LabelsOf::attribute_of_link`] appends its number.
    pub fn attribute(self) -> &'static [u8] {
        match self {
            LabelsOf::Owners => b"user.forebay.label",
            LabelsOf::Root => b"trusted.forebay.label",
        }
    }

    /// Name of the attribute for one link of an object.
    pub fn attribute_of_link(self, link: u32) -> Vec<u8> {
        let first = self.attribute();
        match link {
            0 => first.to_vec(),
            link => [first, format!(".{link:x}").as_bytes()].concat(),
        }
    }
}

const PROBE: &[u8] = b"trusted.forebay.probe";
const FORMAT: u8 = 1;
/// A later format has a number below this. So text that a program has put there is damage, and not a format.
const FORMATS_END: u8 = 32;

/// Why bytes are no label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadLabel {
    /// They are no label of any format.
    Damaged,
    /// They are in a format that this program does not know: a later one has written them.
    Format(u8),
}

impl fmt::Display for BadLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadLabel::Damaged => f.write_str("damaged label"),
            BadLabel::Format(format) => write!(
                f,
                "a label of format {format}; this program reads format {FORMAT}"
            ),
        }
    }
}

impl std::error::Error for BadLabel {}

const PARENT_IS_LOWER: u8 = 1;
const HAS_ORIGIN: u8 = 2;
const HAS_HIDES: u8 = 4;
/// The hidden path equals the label's own place, so it is not written out.
const HIDES_SAME: u8 = 8;
const HAS_RENAMED: u8 = 16;

fn number(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// The path on the PFS for the label's own place, if its parent directory is on the PFS.
fn own_place(label: &Label) -> Option<TreePath> {
    match &label.parent {
        LabelParent::Lower(dir) if !label.name.is_empty() => {
            TreePath::new([dir.as_bytes(), b"/", &label.name].concat().as_slice())
                .or_else(|| TreePath::new(&label.name[..]))
        }
        _ => None,
    }
}

/// True if this can be the name in a label. Only the root has no name, and the root has no record.
fn is_one_name(name: &[u8]) -> bool {
    let is_component =
        !matches!(name, b"" | b"." | b"..") && !name.iter().any(|b| matches!(b, 0 | b'/'));
    name.len() <= MAX_NAME_BYTES && is_component
}

/// Encodes a label.
///
/// # Panics
/// If the name is no component of a path.
pub fn encode(label: &Label) -> Vec<u8> {
    assert!(
        is_one_name(&label.name),
        "no name for a label: {}",
        label.name.escape_ascii()
    );
    let mut flags = 0;
    if matches!(label.parent, LabelParent::Lower(_)) {
        flags |= PARENT_IS_LOWER;
    }
    if label.origin.is_some() {
        flags |= HAS_ORIGIN;
    }
    let same = label.hides.is_some() && label.hides == own_place(label);
    if same {
        flags |= HIDES_SAME;
    } else if label.hides.is_some() {
        flags |= HAS_HIDES;
    }
    if label.renamed.is_some() {
        flags |= HAS_RENAMED;
    }
    let mut out = Vec::with_capacity(64);
    out.extend_from_slice(&[FORMAT, label.kind.code(), flags]);
    match &label.parent {
        LabelParent::Object(oid) => {
            number(&mut out, u64::from(oid.bridge().0));
            number(&mut out, u64::from(oid.epoch()));
            number(&mut out, oid.seq());
        }
        LabelParent::Lower(path) => string(&mut out, path.as_bytes()),
    }
    string(&mut out, &label.name);
    if let Some(origin) = &label.origin {
        string(&mut out, origin.as_bytes());
    }
    if let Some(hides) = label.hides.as_ref().filter(|_| !same) {
        string(&mut out, hides.as_bytes());
    }
    if let Some(renamed) = label.renamed {
        out.extend_from_slice(&renamed.encode());
    }
    out
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }
    fn number(&mut self) -> Option<u64> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let b = self.byte()?;
            let part = u64::from(b & 0x7f);
            if part << shift >> shift != part {
                return None;
            }
            n |= part << shift;
            if b & 0x80 == 0 {
                return Some(n);
            }
        }
        None
    }
    fn string(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        if len > self.0.len() {
            return None;
        }
        let (head, rest) = self.0.split_at(len);
        self.0 = rest;
        Some(head)
    }
    fn path(&mut self) -> Option<TreePath> {
        TreePath::new(self.string()?)
    }
}

/// Decodes a label.
///
/// # Errors
/// [`BadLabel`] for anything else.
pub fn decode(bytes: &[u8]) -> Result<Label, BadLabel> {
    match bytes {
        [FORMAT, body @ ..] => read_body(body).ok_or(BadLabel::Damaged),
        [format @ FORMAT..FORMATS_END, ..] => Err(BadLabel::Format(*format)),
        _ => Err(BadLabel::Damaged),
    }
}

fn read_body(body: &[u8]) -> Option<Label> {
    let mut r = Reader(body);
    let kind = Kind::from_code(r.byte()?)?;
    let flags = r.byte()?;
    let parent = if flags & PARENT_IS_LOWER != 0 {
        LabelParent::Lower(r.path()?)
    } else {
        let bridge = u32::try_from(r.number()?).ok()?;
        let epoch = u32::try_from(r.number()?).ok()?;
        LabelParent::Object(ObjectId::new(BridgeId(bridge), epoch, r.number()?))
    };
    let name = r.string()?;
    if !is_one_name(name) {
        return None;
    }
    let mut label = Label {
        kind,
        parent,
        name: name.to_vec(),
        origin: None,
        hides: None,
        renamed: None,
    };
    if flags & HAS_ORIGIN != 0 {
        label.origin = Some(r.path()?);
    }
    if flags & HAS_HIDES != 0 {
        label.hides = Some(r.path()?);
    } else if flags & HIDES_SAME != 0 {
        label.hides = Some(own_place(&label)?);
    }
    if flags & HAS_RENAMED != 0 {
        let (identity, rest) = r.0.split_first_chunk()?;
        label.renamed = Some(Identity::decode(*identity));
        r.0 = rest;
    }
    r.0.is_empty().then_some(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(s: &str) -> TreePath {
        TreePath::new(s.as_bytes()).unwrap()
    }

    fn labels() -> Vec<Label> {
        let base = Label {
            kind: Kind::File,
            parent: LabelParent::Lower(p("run/out")),
            name: b"a name".to_vec(),
            origin: None,
            hides: None,
            renamed: None,
        };
        vec![
            base.clone(),
            Label {
                hides: Some(p("run/out/a name")),
                ..base.clone()
            },
            Label {
                parent: LabelParent::Lower(TreePath::root()),
                hides: Some(p("a name")),
                ..base.clone()
            },
            Label {
                kind: Kind::Moved,
                origin: Some(p("x/y")),
                hides: Some(p("elsewhere")),
                renamed: Some(Identity::NOTHING),
                parent: LabelParent::Object(ObjectId::new(BridgeId(3), 4, 1 << 40)),
                ..base
            },
        ]
    }

    #[test]
    fn a_label_survives_and_every_truncation_is_refused() {
        for label in labels() {
            let bytes = encode(&label);
            assert_eq!(decode(&bytes), Ok(label));
            for cut in 0..bytes.len() {
                assert_eq!(decode(&bytes[..cut]), Err(BadLabel::Damaged));
            }
        }
    }

    #[test]
    fn a_label_of_a_later_format_is_no_damage() {
        let mut bytes = encode(&labels()[0]);
        for (format, why) in [
            (2, BadLabel::Format(2)),
            (31, BadLabel::Format(31)),
            (0, BadLabel::Damaged),
            (b'x', BadLabel::Damaged),
        ] {
            bytes[0] = format;
            assert_eq!(decode(&bytes), Err(why));
        }
    }

    #[test]
    fn what_is_no_name_is_no_label() {
        let [mut label, ..] = <[Label; 4]>::try_from(labels()).unwrap();
        label.name = vec![b'n'; MAX_NAME_BYTES];
        let bytes = encode(&label);
        assert_eq!(decode(&bytes), Ok(label));
        // Make the name one byte longer than a name may be.
        let at = bytes.len() - MAX_NAME_BYTES - 2;
        assert_eq!(bytes[at..at + 2], [0xff, 1]);
        let longer = [&bytes[..at], &[0x80, 2, b'n'], &bytes[at + 2..]].concat();
        assert_eq!(decode(&longer), Err(BadLabel::Damaged));
    }

    #[test]
    #[should_panic(expected = "no name for a label: a/b")]
    fn a_label_with_a_path_for_a_name_is_a_broken_assertion() {
        let mut label = labels().remove(0);
        label.name = b"a/b".to_vec();
        encode(&label);
    }

    #[test]
    fn changed_bytes_are_refused_or_decode_to_something_valid() {
        for label in labels() {
            let bytes = encode(&label);
            for at in 0..bytes.len() {
                for value in 0..=255 {
                    let mut changed = bytes.clone();
                    changed[at] = value;
                    if let Ok(l) = decode(&changed) {
                        assert_eq!(decode(&encode(&l)), Ok(l));
                    }
                }
            }
        }
    }

    #[test]
    fn a_common_label_fits_into_an_inode_of_ext4() {
        let label = Label {
            kind: Kind::File,
            parent: LabelParent::Object(ObjectId::new(BridgeId(1), 9, 1 << 24)),
            name: b"checkpoint_0000123456.h5".to_vec(),
            origin: None,
            hides: None,
            renamed: None,
        };
        // An inode of 256 bytes has 96 bytes for attributes. Headers and the attribute's name take 40 of them.
        assert!(encode(&label).len() <= 56);
    }
}
