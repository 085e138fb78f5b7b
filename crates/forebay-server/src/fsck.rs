//! Do the tables and the backing objects agree? And if the tables are lost: make
//! them anew from the labels on the objects.

use crate::execute;
use crate::facts::{Memo, RequestFacts};
use crate::instance::Instance;
use crate::label;
use crate::objects::{Objects, Shape, shape};
use crate::{Config, Error, ServerHandle, recover};
use forebay_core::facts::{Label, LabelParent};
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, Kind, ObjectId, ObjectName, Record, Token};
use forebay_core::table::{Change, Tables};
use forebay_store::{Cached, Rocks};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// What to do beside looking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Mend what can be mended.
    pub mend: bool,
    /// Throw the tables away and make them anew from the backing objects.
    pub rebuild: bool,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Report {
    /// Names in the tables.
    pub records: usize,
    /// Backing files and directories.
    pub objects: usize,
    /// The last bridge did not end in order; what it left unfinished has been finished.
    pub recovered: bool,
    /// Names that were put back into the tables.
    pub rebuilt: usize,
    /// What does not fit, one sentence each.
    pub problems: Vec<String>,
    /// How many of these have been mended.
    pub mended: usize,
}

/// Checks an instance that no bridge is using.
///
/// # Errors
/// A bridge is using it, or it can't be read at all.
pub fn fsck(instance: &Path, options: Options) -> Result<Report, Error> {
    if !instance.is_dir() {
        return Err(Error(format!("{} is not a directory", instance.display())));
    }
    let lock = Instance::take(instance)?;
    let mut report = Report::default();
    if options.rebuild {
        rebuild(instance, &mut report)?;
    } else if !instance.join("meta").is_dir() {
        return Err(Error(format!(
            "{} has no tables; --rebuild makes them from the backing objects",
            instance.display()
        )));
    }
    let root = lock.root().ok_or_else(|| {
        Error(format!(
            "{} does not say which buffer it is for",
            instance.display()
        ))
    })?;
    let config = Config {
        // Where the PFS is away the check goes on without it: it never looks there.
        root: root.clone(),
        instance: instance.to_owned(),
        socket: Default::default(),
        shards: 0,
        stage_limit_bytes: 0,
        log: Box::new(std::io::stderr()),
        admin: None,
    };
    report.recovered = !{
        let tables = Rocks::open(&instance.join("meta"))?;
        recover::past(&tables)?.clean
    };
    let server = ServerHandle::open(config, lock)?;
    check(&server, options.mend, &mut report)?;
    recover::end(&server)?;
    server.objects.sweep();
    Ok(report)
}

/// One thing that does not fit, and perhaps how to mend it.
struct Finding {
    text: String,
    mend: Option<Mend>,
}

enum Mend {
    Relabel(ObjectName),
    Remove(ObjectName),
    Drop(TreePath, ObjectName),
    Put(TreePath, Box<Record>),
}

fn check(server: &ServerHandle, mend: bool, report: &mut Report) -> Result<(), Error> {
    let findings = look(server, report)?;
    for finding in findings {
        if mend && let Some(how) = finding.mend {
            match apply(server, how) {
                Ok(()) => report.mended += 1,
                Err(e) => report.problems.push(format!("could not mend: {e}")),
            }
        }
        report.problems.push(finding.text);
    }
    Ok(())
}

fn apply(server: &ServerHandle, mend: Mend) -> Result<(), Error> {
    let io = |e: crate::sys::Errno| Error(e.to_string());
    match mend {
        Mend::Relabel(object) => execute::relabel(server, object),
        Mend::Remove(object) => server.objects.remove(object).map_err(io)?,
        Mend::Drop(path, object) => server.namespace.note(&[Change::Delete { path, object }])?,
        Mend::Put(path, record) => server.namespace.note(&[Change::Put {
            path,
            record: *record,
        }])?,
    }
    Ok(())
}

fn look(server: &ServerHandle, report: &mut Report) -> Result<Vec<Finding>, Error> {
    let tables = server.namespace.tables();
    let guard = server.namespace.read();
    let memo = Memo::default();
    let facts = RequestFacts {
        server,
        memo: &memo,
        state: &guard,
    };
    let mut findings = Vec::new();
    let mut find = |text: String, mend: Option<Mend>| findings.push(Finding { text, mend });
    let records = tables.subtree(&TreePath::root())?;
    report.records = records.len();
    let mut names: HashMap<ObjectId, u32> = HashMap::new();
    for (_, record) in &records {
        *names.entry(record.object.oid).or_default() += 1;
    }
    for (path, record) in &records {
        let object = record.object;
        if tables.path_of(object)?.as_ref() != Some(path) {
            find(
                format!("{path}: the local table does not lead back from object {object:?}"),
                Some(Mend::Put(path.clone(), Box::new(record.clone()))),
            );
        }
        let attr = match server.objects.attr(object) {
            Ok(attr) => attr,
            Err(e) => {
                find(
                    format!("{path}: backing object {object:?} can't be had: {e}"),
                    (e.0 == libc::ENOENT).then(|| Mend::Drop(path.clone(), object)),
                );
                continue;
            }
        };
        let fits = match record.kind {
            Kind::Dir => shape(object) == Shape::Dir,
            Kind::Special => shape(object) == Shape::Node,
            _ => shape(object) == Shape::File,
        };
        if !fits {
            find(
                format!("{path}: a {:?} with an object of another kind", record.kind),
                None,
            );
        }
        let has_ino = !matches!(record.kind, Kind::Moved | Kind::Whiteout);
        if has_ino && record.ino != attr.ino {
            let right = Record {
                ino: attr.ino,
                ..record.clone()
            };
            find(
                format!(
                    "{path}: inode number {} in the table, {} in truth",
                    record.ino, attr.ino
                ),
                Some(Mend::Put(path.clone(), Box::new(right))),
            );
        }
        let count = names.get(&object.oid).copied().unwrap_or_default();
        if record.kind != Kind::Dir && attr.nlink != count {
            find(
                format!(
                    "{path}: {count} names, but {} links to its object",
                    attr.nlink
                ),
                None,
            );
        }
        match execute::label_for(server, &facts, path, record) {
            Ok(label) => match server.objects.read_label(object) {
                Ok(Some(found)) if found == label => {}
                Ok(_) => find(
                    format!("{path}: the label on its object says something else"),
                    Some(Mend::Relabel(object)),
                ),
                Err(e) => find(format!("{path}: no label can be read: {e}"), None),
            },
            Err(text) => find(text, None),
        }
    }
    let scanned = server.objects.scan(0);
    for entry in scanned.map_err(|e| Error(format!("can't list backing objects: {e}")))? {
        report.objects += 1;
        match entry {
            Err(path) => find(format!("{path} is no backing object"), None),
            Ok((object, _)) => {
                let named = match tables.path_of(object)? {
                    Some(path) => tables.get(&path)?.is_some_and(|r| r.object == object),
                    None => false,
                };
                if !named {
                    find(
                        format!("backing object {object} has no name"),
                        Some(Mend::Remove(object)),
                    );
                }
            }
        }
    }
    Ok(findings)
}

/// A labelled object, on its way back into the tables.
struct Survivor {
    object: ObjectName,
    label: Label,
    ino: u64,
}

/// Makes the tables anew. The old ones, if there are any, are kept beside.
fn rebuild(instance: &Path, report: &mut Report) -> Result<(), Error> {
    let failed = |what: &str, e: &dyn std::fmt::Display| Error(format!("{what}: {e}"));
    let meta = instance.join("meta");
    if meta.exists() {
        let aside = (0..)
            .map(|n| instance.join(format!("meta.old{n}")))
            .find(|p| !p.exists())
            .unwrap_or_else(|| instance.join("meta.old"));
        std::fs::rename(&meta, &aside).map_err(|e| failed("can't put the old tables aside", &e))?;
    }
    let me = BridgeId(1);
    let objects =
        Objects::open(instance, me, 0, 0).map_err(|e| failed("can't open the objects", &e))?;
    let mut survivors = Vec::new();
    let mut epoch = 0;
    let mut seen = HashSet::new();
    let scanned = objects.scan(0);
    for entry in scanned.map_err(|e| failed("can't list backing objects", &e))? {
        let Ok((object, _)) = entry else { continue };
        epoch = epoch.max(object.oid.epoch());
        if !seen.insert(object) {
            continue;
        }
        let label = match objects.read_label(object) {
            Ok(Some(label)) => label,
            Ok(None) => {
                report
                    .problems
                    .push(format!("backing object {object} has no label"));
                continue;
            }
            // A node without its label file: it was being made or removed.
            Err(crate::sys::Errno(libc::ENOENT)) => continue,
            Err(e) => {
                report
                    .problems
                    .push(format!("backing object {object}: {e}"));
                continue;
            }
        };
        // A label file without its node likewise.
        let Ok(attr) = objects.attr(object) else {
            continue;
        };
        survivors.push(Survivor {
            object,
            label,
            ino: attr.ino,
        });
    }
    let batch = name_all(survivors, me, epoch, report);
    report.rebuilt = batch.len();
    let tables = Cached::new(Rocks::open(&meta)?);
    for part in batch.chunks(4096) {
        tables.apply(part)?;
    }
    recover::begin(&tables, epoch.max(1))?;
    Ok(())
}

/// Finds the path of every survivor through the chain of its parents.
struct Naming<'a> {
    survivors: &'a [Survivor],
    dirs: HashMap<ObjectId, usize>,
    moved: HashMap<&'a TreePath, usize>,
    paths: HashMap<usize, Option<TreePath>>,
}

impl Naming<'_> {
    fn path(&mut self, index: usize) -> Option<TreePath> {
        if let Some(known) = self.paths.get(&index) {
            return known.clone();
        }
        // Whoever comes back here while it is being worked out is his own ancestor.
        self.paths.insert(index, None);
        let label = &self.survivors[index].label;
        let parent = match &label.parent {
            LabelParent::Object(oid) => {
                let dir = *self.dirs.get(oid)?;
                self.path(dir)
            }
            LabelParent::Lower(lower) => self.path_of_lower(lower, index),
        };
        let path = parent.map(|p| p.join(&label.name));
        self.paths.insert(index, path.clone());
        path
    }

    /// Where a directory of the PFS is in the buffer, given what was renamed.
    fn path_of_lower(&mut self, lower: &TreePath, asker: usize) -> Option<TreePath> {
        let mut at = lower.clone();
        loop {
            match self.moved.get(&at).copied() {
                Some(index) if index != asker => {
                    let now = self.path(index)?;
                    return lower.rebase(&at, &now);
                }
                _ => {}
            }
            if at.is_root() {
                return Some(lower.clone());
            }
            at = at.parent();
        }
    }
}

fn name_all(
    mut survivors: Vec<Survivor>,
    me: BridgeId,
    epoch: u32,
    report: &mut Report,
) -> Vec<Change> {
    // Of two that claim one path the younger wins, and it comes first here.
    survivors.sort_by_key(|s| {
        let oid = s.object.oid;
        std::cmp::Reverse((oid.epoch(), oid.seq(), s.object.link))
    });
    let mut naming = Naming {
        survivors: &survivors,
        dirs: HashMap::new(),
        moved: HashMap::new(),
        paths: HashMap::new(),
    };
    for (i, s) in survivors.iter().enumerate() {
        if s.label.kind == Kind::Dir {
            naming.dirs.insert(s.object.oid, i);
        }
        if let (Kind::Moved, Some(origin)) = (s.label.kind, &s.label.origin) {
            naming.moved.insert(origin, i);
        }
    }
    let mut taken = HashSet::new();
    let mut batch = Vec::new();
    for (i, survivor) in survivors.iter().enumerate() {
        let label = &survivor.label;
        let mut path = naming.path(i).unwrap_or_else(|| {
            report.problems.push(format!(
                "{}: its directory is lost; it is now in the root",
                label.name.escape_ascii()
            ));
            TreePath::root().join(format!("lost-{}", survivor.object.oid).as_bytes())
        });
        let marker = matches!(label.kind, Kind::Moved | Kind::Whiteout);
        if !taken.insert(path.clone()) {
            if marker {
                continue;
            }
            report
                .problems
                .push(format!("{path}: two objects have this name"));
            path = path.parent().join(
                format!(
                    "conflict-{}.{:x}",
                    survivor.object.oid, survivor.object.link
                )
                .as_bytes(),
            );
            taken.insert(path.clone());
        }
        batch.push(Change::Put {
            path,
            record: Record {
                version: u64::from(epoch) << 40 | i as u64,
                kind: label.kind,
                object: survivor.object,
                owner: me,
                ino: if marker { 0 } else { survivor.ino },
                origin: label.origin.clone(),
                hides: label.hides.clone(),
                token: Token::default(),
                drained: None,
            },
        });
    }
    batch
}

/// The attribute that labels are kept in, for messages.
pub fn label_attribute() -> String {
    String::from_utf8_lossy(label::XATTR).into_owned()
}
