//! Checks whether the tables and the backing objects agree, and makes lost tables anew from the labels on the objects.
//! `forebay_core::fsck` judges what is gathered here, and says how it is mended.

mod rebuild;

use crate::follow;
use crate::instance::{Instance, TABLES};
use crate::{Config, Error, OtherRoot, ServerHandle, recover};
use forebay_core::drain::StrayEntry;
use forebay_core::facts::{Facts, Label, LabelParent};
use forebay_core::fsck::{
    Adoption, Finding, FoundLabel, FoundObject, FoundRecord, Mend, Nameless, Spot, Unavailable,
    judge_label_beside, judge_object, judge_record,
};
use forebay_core::path::TreePath;
use forebay_core::record::{ObjectId, ObjectName, PathRecord};
use forebay_core::recovery::Past;
use forebay_core::repair::lost;
use forebay_core::reserve::Purpose;
use forebay_core::table::{Change, Tables};
use forebay_objects::{LabelError, Scanned, Shape, path_of_dir, shape};
use forebay_sys::Errno;
use forebay_tables::Journaled;
use rebuild::rebuild;
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
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
pub struct FsckReport {
    /// Names in the tables.
    pub records: usize,
    /// Backing files and directories.
    pub objects: usize,
    /// The last bridge did not end in order; what it left unfinished has been finished.
    pub recovered: bool,
    /// The format that the storage had before, if it was an older one.
    pub upgraded_from: Option<u32>,
    /// Names that were put back into the tables.
    pub rebuilt: usize,
    /// What is in quarantine, one sentence each.
    pub withheld: Vec<String>,
    /// Why nothing was done in the directory that has the path of the buffer root, if so: it is another one.
    pub left_alone: Option<String>,
    /// What does not fit, one sentence each.
    pub problems: Vec<String>,
    /// How many of these have been mended.
    pub mended: usize,
}

/// Checks an instance that no bridge is using.
///
/// # Errors
/// A bridge is using it, a later program has written it, or it can't be read at all.
pub fn fsck(instance: &Path, options: Options) -> Result<FsckReport, Error> {
    if !instance.is_dir() {
        return Err(Error::NoInstance {
            instance: instance.to_owned(),
        });
    }
    let mut lock = Instance::take(instance)?;
    let mut report = FsckReport::default();
    if !options.rebuild {
        lock.check_tables()?;
        if !instance.join(TABLES).is_dir() {
            return Err(Error::NoTables {
                instance: instance.to_owned(),
            });
        }
    }
    report.upgraded_from = lock.bring_up_to_date()?;
    if options.rebuild {
        rebuild(instance, lock.labels()?, lock.cache_life()?, &mut report)?;
    }
    let root = lock.root().ok_or_else(|| Error::NoRoot {
        instance: instance.to_owned(),
    })?;
    let config = Config {
        root: root.clone(),
        instance: instance.to_owned(),
        socket: Default::default(),
        log: Box::new(std::io::stderr()),
        pfs_may_wait: None,
        stay: true,
        longest_unsynced: crate::durability::longest_unsynced(),
        run: None,
        purpose: Purpose::BringAway,
        other_root: OtherRoot::LeaveAlone,
    };
    // How the last bridge ended is not to be seen in tables that were made anew.
    report.recovered = !options.rebuild && {
        let tables = Journaled::open(
            &instance.join(TABLES),
            lock.cache_life()?,
            Purpose::BringAway,
        )?;
        !Past::of(&tables)?.clean
    };
    let server = ServerHandle::open(config, lock)?;
    let withheld = server
        .objects
        .withheld()
        .map_err(|e| Error::system("can't list the quarantine", e))?;
    let told = |withheld: forebay_objects::Withheld| {
        let name = forebay_objects::withheld_as(withheld.object);
        let path = withheld.path_or_lost();
        format!(
            "{}: in quarantine as {name}",
            path.as_bytes().escape_ascii()
        )
    };
    report.withheld = withheld.into_iter().map(told).collect();
    report.left_alone = server.left_alone.clone();
    // What a drain that was resumed has left.
    server.sync_point()?;
    while server.unlink_removed() {}
    look_and_mend(&server, options.mend, &mut report)?;
    recover::end(&server)?;
    server.objects.sweep();
    Ok(report)
}

fn look_and_mend(server: &ServerHandle, mend: bool, report: &mut FsckReport) -> Result<(), Error> {
    let findings = server.with_look(|facts, _| look(server, facts, report))?;
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
    match mend {
        Mend::Relabel(object) => relabel(server, object)?,
        Mend::Adopt(object) => adopt(server, object)?,
        Mend::Forget(object) => server
            .objects
            .drop_label_beside(object)
            .map_err(|cause| Error::Object { object, cause })?,
        Mend::Drop(path, object) => server
            .namespace
            .mend(vec![Change::Delete { path, object }])?,
        Mend::Put(path, record) => server.namespace.mend(vec![Change::Put {
            path,
            record: *record,
        }])?,
    }
    Ok(())
}

fn relabel(server: &ServerHandle, object: ObjectName) -> Result<(), Error> {
    follow::try_to_relabel(server, object).map_err(|why| Error::Unlabelled {
        object,
        why: why.to_string(),
    })
}

/// Gives an object without a name one.
fn adopt(server: &ServerHandle, object: ObjectName) -> Result<(), Error> {
    let failed = |cause| Error::Object { object, cause };
    let label = server
        .objects
        .read_label(object)
        .map_err(|cause| Error::Label { object, cause })?;
    let ino = server.objects.attr(object).map_err(failed)?.ino;
    let nameless = Nameless::new(object, shape(object), label, ino);
    let record = nameless.record(server.me, server.namespace.next_version());
    let spot = spot_of(server, nameless.label(), &record)?;
    match nameless.adopted(record, spot) {
        Adoption::Remove => server.objects.remove(object).map_err(failed),
        Adoption::Put(path, record) => {
            let record = *record;
            server.namespace.mend(vec![Change::Put { path, record }])?;
            relabel(server, object)
        }
    }
}

/// The place that a label tells. `None`: its directory has no path.
fn spot_of(
    server: &ServerHandle,
    label: &Label,
    record: &PathRecord,
) -> Result<Option<Spot>, Error> {
    let tables = server.namespace.tables();
    let dir = match &label.parent {
        LabelParent::Object(oid) => tables.path_of(ObjectName { oid: *oid, link: 0 })?,
        LabelParent::Lower(path) => Some(path.clone()),
    };
    let Some(path) = dir.map(|dir| dir.join(&label.name)) else {
        return Ok(None);
    };
    let is_taken = tables.get(&path)?.is_some();
    let there = server.with_look(|facts, _| follow::label_for(server, facts, &path, record));
    Ok(Some(Spot {
        path,
        is_taken,
        parent: there.ok().map(|label| label.parent),
    }))
}

/// What lies in a backing directory although it was made past the buffer, one sentence each.
fn strays(server: &ServerHandle, dir: ObjectName) -> Result<Vec<String>, Error> {
    let tables = server.namespace.tables();
    let path = tables.path_of(dir)?.unwrap_or_else(|| lost(dir));
    let entries = match server.objects.entries(dir) {
        Ok(entries) => entries,
        Err(e) => return Ok(vec![format!("{path}: can't be listed: {e}")]),
    };
    let place = server.instance.dir().join(path_of_dir(dir));
    let told = |stray: StrayEntry| {
        let name = OsStr::from_bytes(&stray.name);
        format!(
            "{}: made past the buffer, it lies in {}",
            path.join(&stray.name),
            place.join(name).display()
        )
    };
    Ok(entries.into_iter().map(told).collect())
}

fn look(
    server: &ServerHandle,
    facts: &dyn Facts,
    report: &mut FsckReport,
) -> Result<Vec<Finding>, Error> {
    let tables = server.namespace.tables();
    let mut findings = Vec::new();
    let records = tables.subtree(&TreePath::root())?;
    report.records = records.len();
    let mut names: HashMap<ObjectId, u32> = HashMap::new();
    for (_, record) in &records {
        *names.entry(record.object.oid).or_default() += 1;
    }
    let to_label: HashSet<_> = tables.marks()?.relabel.into_iter().collect();
    for (path, record) in &records {
        let object = record.object;
        let found = FoundRecord {
            leads_back: tables.path_of(object)?.as_ref() == Some(path),
            names: names.get(&object.oid).copied().unwrap_or_default(),
            is_label_due: to_label.contains(&object),
            object: found_object(server, facts, path, record),
        };
        findings.extend(judge_record(path, record, found));
    }
    let is_named = |object: ObjectName| -> Result<bool, Error> {
        Ok(match tables.path_of(object)? {
            Some(path) => tables.get(&path)?.is_some_and(|r| r.object == object),
            None => false,
        })
    };
    let only_said = |text| Finding { text, mend: None };
    let scanned = server.objects.scan(0);
    for entry in scanned.map_err(|e| Error::system("can't list backing objects", e))? {
        report.objects += 1;
        match entry {
            Scanned::Strange(path) => {
                findings.push(only_said(format!("{path} is no backing object")));
            }
            Scanned::Object(object) => {
                if shape(object) == Shape::Dir {
                    findings.extend(strays(server, object)?.into_iter().map(only_said));
                }
                findings.extend(judge_object(object, is_named(object)?));
            }
        }
    }
    for object in server.objects.labels_beside() {
        // What is only out of reach is there.
        let is_there = server.objects.attr(object) != Err(Errno::NOENT);
        findings.extend(judge_label_beside(object, is_named(object)?, is_there));
    }
    Ok(findings)
}

/// The object of the record at `path`.
fn found_object(
    server: &ServerHandle,
    facts: &dyn Facts,
    path: &TreePath,
    record: &PathRecord,
) -> Result<FoundObject, Unavailable> {
    let object = record.object;
    let attr = server.objects.attr(object).map_err(|e| Unavailable {
        is_gone: e == Errno::NOENT,
        why: e.to_string(),
    })?;
    let label = match follow::label_for(server, facts, path, record) {
        Err(why) => FoundLabel::Untold(why.to_string()),
        Ok(_) => match server.objects.read_label(object) {
            Ok(Some(found)) if follow::is_right(server, facts, path, record, &found) => {
                FoundLabel::Right
            }
            Ok(Some(_)) => FoundLabel::Other,
            Ok(None) => FoundLabel::Missing,
            Err(LabelError::Format(_)) => FoundLabel::UnknownFormat,
            Err(e) => FoundLabel::Unreadable(e.to_string()),
        },
    };
    Ok(FoundObject {
        shape: shape(object),
        ino: attr.ino,
        links: attr.nlink,
        label,
    })
}
