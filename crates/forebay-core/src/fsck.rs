//! Whether the tables and the backing objects agree, one record or one object at a time, and how it is mended.
//!
//! The driver (`forebay fsck`) gathers what is found and carries out the mends. Nothing here removes what may hold data.

use crate::facts::{Attr, Label, LabelParent};
use crate::label::is_void;
use crate::markers::may_be_unmade;
use crate::path::TreePath;
use crate::record::{BridgeId, Kind, ObjectName, PathRecord, Shape};
use crate::repair::{Survivor, is_marker, lost, record_of};

/// One thing that does not fit, and perhaps how to mend it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// For people, one sentence.
    pub text: String,
    /// `None`: it takes somebody who knows what is right.
    pub mend: Option<Mend>,
}

/// How something is mended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mend {
    /// Writes the label of the object from the tables.
    Relabel(ObjectName),
    /// Gives the object a name ([`Nameless`]).
    Adopt(ObjectName),
    /// Removes a label that is kept beside its object.
    Forget(ObjectName),
    /// Removes the record at this path, which names this object.
    Drop(TreePath, ObjectName),
    /// Writes this record at this path.
    Put(TreePath, Box<PathRecord>),
}

/// What was found of one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRecord {
    /// The local table leads from its object back to its path.
    pub leads_back: bool,
    /// How many records name its object.
    pub names: u32,
    /// A mark tells that its label is still to be written, or its marker to be made.
    pub is_label_due: bool,
    /// Its object.
    pub object: Result<FoundObject, Unavailable>,
}

/// The object of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundObject {
    /// What it is on the storage.
    pub shape: Shape,
    /// Its inode number.
    pub ino: u64,
    /// Number of its links.
    pub links: u32,
    /// Its label.
    pub label: FoundLabel,
}

/// Why an object can't be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    /// It is not there, and not only out of reach.
    pub is_gone: bool,
    /// For people.
    pub why: String,
}

/// The label of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundLabel {
    /// It says what the record does ([`crate::label::is_right`]).
    Right,
    /// It says something else.
    Other,
    /// There is none.
    Missing,
    /// It has a format that this program does not know.
    UnknownFormat,
    /// It can't be read; why.
    Unreadable(String),
    /// Nobody can tell what it should say; why.
    Untold(String),
}

/// Has the object of a record of this kind this shape?
fn fits(kind: Kind, shape: Shape) -> bool {
    match kind {
        Kind::Dir => shape == Shape::Dir,
        Kind::Special => shape == Shape::Node,
        // A directory that was made in the buffer and has opened to the PFS.
        Kind::Moved => shape != Shape::Node,
        Kind::File | Kind::Symlink | Kind::Whiteout => shape == Shape::File,
    }
}

/// What does not fit of the record at `path`.
pub fn judge_record(path: &TreePath, record: &PathRecord, found: FoundRecord) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |text: String, mend: Option<Mend>| findings.push(Finding { text, mend });
    let object = record.object;
    if !found.leads_back {
        find(
            format!("{path}: the local table does not lead back from object {object}"),
            Some(Mend::Put(path.clone(), Box::new(record.clone()))),
        );
    }
    let there = match found.object {
        Ok(there) => there,
        Err(Unavailable { is_gone, why }) => {
            let mend = match record.kind {
                // The record says all that its marker would.
                Kind::Whiteout => Some(Mend::Relabel(object)),
                // Of a renamed thing it alone tells where that is on the PFS, and of a directory which names are in it.
                Kind::Moved | Kind::Dir => None,
                _ => Some(Mend::Drop(path.clone(), object)),
            };
            let comes_later = may_be_unmade(record.kind) && is_gone && found.is_label_due;
            if !comes_later {
                find(
                    format!("{path}: backing object {object} can't be had: {why}"),
                    mend.filter(|_| is_gone),
                );
            }
            return findings;
        }
    };
    if !fits(record.kind, there.shape) {
        find(format!("{path}: its object is of another kind"), None);
    }
    if !is_marker(record.kind) && record.ino != there.ino {
        let right = PathRecord {
            ino: there.ino,
            ..record.clone()
        };
        find(
            format!(
                "{path}: inode number {} in the table, {} in truth",
                record.ino, there.ino
            ),
            Some(Mend::Put(path.clone(), Box::new(right))),
        );
    }
    let (names, links) = (found.names, there.links);
    if there.shape != Shape::Dir && links != names {
        find(
            format!("{path}: {names} names, but {links} links to its object"),
            None,
        );
    }
    match there.label {
        FoundLabel::Right => {}
        // The tables know better, whatever it says.
        FoundLabel::Other => find(
            format!("{path}: the label on its object says something else"),
            Some(Mend::Relabel(object)),
        ),
        FoundLabel::Missing => find(
            format!("{path}: its object has no label, or a damaged one"),
            Some(Mend::Relabel(object)),
        ),
        FoundLabel::UnknownFormat => find(
            format!("{path}: the label on its object has a format that this program does not know"),
            Some(Mend::Relabel(object)),
        ),
        FoundLabel::Unreadable(why) => find(format!("{path}: no label can be read: {why}"), None),
        FoundLabel::Untold(why) => find(
            format!("{path}: nobody can tell what its label should say: {why}"),
            None,
        ),
    }
    findings
}

/// What does not fit of an object that was found. `is_named`: a record names it.
pub fn judge_object(object: ObjectName, is_named: bool) -> Option<Finding> {
    (!is_named).then(|| Finding {
        text: format!("backing object {object} has no name"),
        mend: Some(Mend::Adopt(object)),
    })
}

/// What does not fit of a label that is kept beside this object. `is_there`: the object is.
pub fn judge_label_beside(object: ObjectName, is_named: bool, is_there: bool) -> Option<Finding> {
    (!is_named && !is_there).then(|| Finding {
        text: format!("a label of {object}, which is not there"),
        mend: Some(Mend::Forget(object)),
    })
}

/// Is an object kept, out of reach of programs, of which a rebuild finds no label? It may be a part of a copy that a bridge
/// was making when it was killed; or its label is damaged, and it is somebody's file.
pub fn is_kept_without_label(shape: Shape, attr: &Attr) -> bool {
    shape == Shape::File && attr.size > 0
}

/// May an object of which a rebuild finds no label have been the mark of something that was renamed?
pub fn may_be_of_rename(shape: Shape, attr: &Attr) -> bool {
    shape != Shape::Node && !is_kept_without_label(shape, attr)
}

/// An object without a name. It may hold somebody's data, so it is given one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nameless(Survivor);

/// The place that the label of such an object tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    /// Its path.
    pub path: TreePath,
    /// A record has it.
    pub is_taken: bool,
    /// How a label there names the directory; `None`: there is no such directory.
    pub parent: Option<LabelParent>,
}

/// What becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Adoption {
    /// It gets this record at this path. Its label is to be written anew.
    Put(TreePath, Box<PathRecord>),
    /// It goes: a mark without a place hides nothing.
    Remove,
}

impl Nameless {
    /// The object of this shape, with what its label says, if it has one.
    pub fn new(object: ObjectName, shape: Shape, label: Option<Label>, ino: u64) -> Self {
        let label = label.unwrap_or_else(|| Label {
            kind: match shape {
                Shape::File => Kind::File,
                Shape::Dir => Kind::Dir,
                Shape::Node => Kind::Special,
            },
            parent: LabelParent::Lower(TreePath::root()),
            name: lost(object).name().to_vec(),
            origin: None,
            hides: None,
            renamed: None,
        });
        Nameless(Survivor { object, label, ino })
    }

    /// What its label says, or would.
    pub fn label(&self) -> &Label {
        &self.0.label
    }

    /// The record that it gets.
    pub fn record(&self, owner: BridgeId, version: u64) -> PathRecord {
        record_of(&self.0, owner, version)
    }

    /// It gets the name that its label tells, if its directory is there and the name is free; else one in the root. `spot`:
    /// the place that its label tells; `None`: its directory has no path.
    pub fn adopted(self, record: PathRecord, spot: Option<Spot>) -> Adoption {
        let Nameless(Survivor { object, label, .. }) = self;
        if is_void(&label) {
            return Adoption::Remove;
        }
        let is_right = |spot: &Spot| !spot.is_taken && spot.parent.as_ref() == Some(&label.parent);
        let path = match spot.filter(is_right) {
            Some(spot) => spot.path,
            None if is_marker(record.kind) => return Adoption::Remove,
            None => lost(object),
        };
        Adoption::Put(path, Box::new(record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::ObjectId;

    const OBJECT: ObjectName = ObjectName {
        oid: ObjectId(8),
        link: 0,
    };

    fn path(text: &str) -> TreePath {
        TreePath::new(text.as_bytes()).unwrap()
    }

    fn label(kind: Kind) -> Label {
        Label {
            kind,
            parent: LabelParent::Object(ObjectId(5)),
            name: b"f".to_vec(),
            origin: (kind == Kind::Moved).then(|| path("old")),
            hides: None,
            renamed: None,
        }
    }

    fn record_of_kind(kind: Kind) -> PathRecord {
        let survivor = Survivor {
            object: OBJECT,
            label: label(kind),
            ino: 70,
        };
        record_of(&survivor, BridgeId(1), 9)
    }

    fn shape_of(kind: Kind) -> Shape {
        match kind {
            Kind::Dir => Shape::Dir,
            Kind::Special => Shape::Node,
            _ => Shape::File,
        }
    }

    /// All is well.
    fn found(kind: Kind) -> FoundRecord {
        FoundRecord {
            leads_back: true,
            names: 1,
            is_label_due: false,
            object: Ok(FoundObject {
                shape: shape_of(kind),
                ino: 70,
                links: 1,
                label: FoundLabel::Right,
            }),
        }
    }

    fn there(kind: Kind, change: impl FnOnce(&mut FoundObject)) -> FoundRecord {
        let mut found = found(kind);
        found.object.as_mut().map(change).unwrap();
        found
    }

    /// The only finding.
    fn only(kind: Kind, found: FoundRecord) -> Finding {
        let mut findings = judge_record(&path("d/f"), &record_of_kind(kind), found);
        assert_eq!(findings.len(), 1, "{findings:?}");
        findings.remove(0)
    }

    #[test]
    fn what_may_be_a_file_of_somebody_is_kept_without_its_label() {
        let of = |size| Attr {
            size,
            ..Attr::default()
        };
        assert!(is_kept_without_label(Shape::File, &of(1)));
        assert!(!is_kept_without_label(Shape::File, &of(0)));
        assert!(may_be_of_rename(Shape::File, &of(0)) && may_be_of_rename(Shape::Dir, &of(9)));
        assert!(!may_be_of_rename(Shape::File, &of(1)) && !may_be_of_rename(Shape::Node, &of(0)));
        for shape in [Shape::Dir, Shape::Node] {
            assert!(!is_kept_without_label(shape, &of(4096)));
        }
    }

    #[test]
    fn nothing_is_found_where_all_fits() {
        for kind in Kind::ALL {
            let findings = judge_record(&path("d/f"), &record_of_kind(kind), found(kind));
            assert_eq!(findings, [], "{kind:?}");
        }
        // It was made in the buffer, and has opened to the PFS. The links of a directory say nothing.
        let opened = there(Kind::Moved, |o| (o.shape, o.links) = (Shape::Dir, 2));
        assert_eq!(
            judge_record(&path("d"), &record_of_kind(Kind::Moved), opened),
            []
        );
    }

    #[test]
    fn a_record_whose_object_is_gone_goes_and_one_whose_object_is_out_of_reach_stays() {
        for is_gone in [true, false] {
            let found = FoundRecord {
                object: Err(Unavailable {
                    is_gone,
                    why: "no".to_owned(),
                }),
                ..found(Kind::File)
            };
            let mend = only(Kind::File, found).mend;
            let drop = Mend::Drop(path("d/f"), OBJECT);
            assert_eq!(mend, is_gone.then_some(drop));
        }
    }

    #[test]
    fn what_the_local_table_has_lost_is_put_back_even_without_its_object() {
        let lost = FoundRecord {
            leads_back: false,
            ..found(Kind::Dir)
        };
        let put = Mend::Put(path("d/f"), Box::new(record_of_kind(Kind::Dir)));
        assert_eq!(only(Kind::Dir, lost).mend, Some(put.clone()));
        for kind in Kind::ALL {
            let gone = FoundRecord {
                leads_back: false,
                object: Err(Unavailable {
                    is_gone: true,
                    why: "no".to_owned(),
                }),
                ..found(kind)
            };
            let findings = judge_record(&path("d/f"), &record_of_kind(kind), gone);
            let mends: Vec<_> = findings.into_iter().map(|f| f.mend).collect();
            let put = Mend::Put(path("d/f"), Box::new(record_of_kind(kind)));
            // Of a renamed thing, and of a directory, the record tells more than the object holds, and of a removal as much.
            let then = match kind {
                Kind::Moved | Kind::Dir => None,
                Kind::Whiteout => Some(Mend::Relabel(OBJECT)),
                _ => Some(Mend::Drop(path("d/f"), OBJECT)),
            };
            assert_eq!(mends, [Some(put), then], "{kind:?}: it goes last");
        }
    }

    #[test]
    fn a_marker_that_is_still_to_be_made_is_no_damage() {
        let problems = |kind, is_gone| {
            let found = FoundRecord {
                is_label_due: true,
                object: Err(Unavailable {
                    is_gone,
                    why: "no".to_owned(),
                }),
                ..found(kind)
            };
            judge_record(&path("d/f"), &record_of_kind(kind), found).len()
        };
        for kind in Kind::ALL {
            let is_removal = kind == Kind::Whiteout;
            assert_eq!(problems(kind, true) == 0, is_removal, "{kind:?}");
            assert_eq!(problems(kind, false), 1);
        }
    }

    #[test]
    fn a_wrong_inode_number_is_put_right_unless_the_object_is_a_mark() {
        for kind in Kind::ALL {
            let moved = there(kind, |o| o.ino = 71);
            if is_marker(kind) {
                assert_eq!(judge_record(&path("d/f"), &record_of_kind(kind), moved), []);
                continue;
            }
            let right = PathRecord {
                ino: 71,
                ..record_of_kind(kind)
            };
            let put = Mend::Put(path("d/f"), Box::new(right));
            assert_eq!(only(kind, moved).mend, Some(put));
        }
    }

    #[test]
    fn what_nobody_can_know_is_only_said() {
        let said = [
            (Kind::File, there(Kind::File, |o| o.links = 2)),
            (Kind::Special, there(Kind::Special, |o| o.links = 0)),
            (Kind::File, there(Kind::File, |o| o.shape = Shape::Node)),
            (Kind::Dir, there(Kind::Dir, |o| o.shape = Shape::File)),
            (Kind::Moved, there(Kind::Moved, |o| o.shape = Shape::Node)),
            (
                Kind::File,
                there(Kind::File, |o| {
                    o.label = FoundLabel::Unreadable("no".to_owned());
                }),
            ),
            (
                Kind::File,
                there(Kind::File, |o| {
                    o.label = FoundLabel::Untold("no directory".to_owned());
                }),
            ),
        ];
        for (kind, found) in said {
            assert_eq!(only(kind, found).mend, None);
        }
        let names = FoundRecord {
            names: 2,
            ..found(Kind::File)
        };
        assert_eq!(only(Kind::File, names).mend, None);
    }

    #[test]
    fn a_label_is_written_from_the_tables_whatever_it_says() {
        for (label, text) in [
            (FoundLabel::Other, "says something else"),
            (FoundLabel::Missing, "has no label"),
            (FoundLabel::UnknownFormat, "has a format"),
        ] {
            let finding = only(Kind::File, there(Kind::File, |o| o.label = label));
            assert_eq!(finding.mend, Some(Mend::Relabel(OBJECT)));
            assert!(finding.text.contains(text), "{}", finding.text);
        }
    }

    #[test]
    fn what_no_record_names_is_adopted_and_a_label_of_nothing_is_forgotten() {
        assert_eq!(judge_object(OBJECT, true), None);
        let mend = judge_object(OBJECT, false).and_then(|f| f.mend);
        assert_eq!(mend, Some(Mend::Adopt(OBJECT)));
        for (is_named, is_there) in [(true, true), (true, false), (false, true)] {
            assert_eq!(judge_label_beside(OBJECT, is_named, is_there), None);
        }
        let mend = judge_label_beside(OBJECT, false, false).and_then(|f| f.mend);
        assert_eq!(mend, Some(Mend::Forget(OBJECT)));
    }

    fn spot() -> Spot {
        Spot {
            path: path("d/f"),
            is_taken: false,
            parent: Some(label(Kind::File).parent),
        }
    }

    fn adopted(kind: Kind, spot: Option<Spot>) -> Option<TreePath> {
        let nameless = Nameless::new(OBJECT, shape_of(kind), Some(label(kind)), 70);
        let record = nameless.record(BridgeId(1), 9);
        assert_eq!(record, record_of_kind(kind));
        match nameless.adopted(record.clone(), spot) {
            Adoption::Put(path, put) => {
                assert_eq!(*put, record);
                Some(path)
            }
            Adoption::Remove => None,
        }
    }

    #[test]
    fn what_speaks_of_nothing_is_no_name() {
        let void = crate::label::void_label(&path("d/f"));
        let nameless = Nameless::new(OBJECT, Shape::File, Some(void), 70);
        let record = nameless.record(BridgeId(1), 9);
        assert_eq!(nameless.adopted(record, Some(spot())), Adoption::Remove);
    }

    #[test]
    fn what_has_no_name_gets_the_name_of_its_label_if_that_is_free() {
        for kind in Kind::ALL {
            assert_eq!(adopted(kind, Some(spot())), Some(path("d/f")));
        }
    }

    #[test]
    fn what_has_no_name_without_its_place_goes_to_the_root_and_a_mark_goes_away() {
        let elsewhere = Spot {
            parent: Some(LabelParent::Lower(path("d"))),
            ..spot()
        };
        let nowhere = Spot {
            parent: None,
            ..spot()
        };
        let taken = Spot {
            is_taken: true,
            ..spot()
        };
        for spot in [None, Some(elsewhere), Some(nowhere), Some(taken)] {
            for kind in Kind::ALL {
                let place = (!is_marker(kind)).then(|| lost(OBJECT));
                assert_eq!(adopted(kind, spot.clone()), place, "{kind:?} {spot:?}");
            }
        }
    }

    #[test]
    fn what_has_no_name_without_a_label_is_what_its_object_is() {
        for (shape, kind) in [
            (Shape::File, Kind::File),
            (Shape::Dir, Kind::Dir),
            (Shape::Node, Kind::Special),
        ] {
            let nameless = Nameless::new(OBJECT, shape, None, 70);
            assert_eq!(nameless.label().kind, kind);
            assert_eq!(
                nameless.label().parent,
                LabelParent::Lower(TreePath::root())
            );
            let name = path("x").parent().join(&nameless.label().name);
            assert_eq!(name, lost(OBJECT));
        }
    }
}
