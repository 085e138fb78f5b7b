//! What lies on the storage is read whatever has become of it: what a bridge writes, cut off and changed in every place.
//! The fuzzer does the same with any bytes, and begins with what this has seen (`FOREBAY_WRITE_SEEDS`).

#[path = "../../../fuzz/check_stored.rs"]
mod check_stored;
mod common;

use check_stored::anything_stored;
use common::{Place, write};
use forebay_core::path::TreePath;
use forebay_core::table::{Change, Tables};
use forebay_sys as sys;
use forebay_tables::Rocks;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::Path;

/// So much of a journal: its head and some entries.
const JOURNAL_BYTES: usize = 2048;

/// What a bridge has written, by names of what it is.
fn samples() -> BTreeMap<String, Vec<u8>> {
    let place = Place::new();
    std::fs::write(place.root().join("theirs"), "on the PFS").unwrap();
    let server = place.start();
    let mut client = place.client();
    write(&mut client, "file", b"x");
    client.mkdir("dir", 0o755).unwrap();
    client.rename("file", "dir/file").unwrap();
    client.link("dir/file", "link").unwrap();
    client.symlink("text", "symbolic").unwrap();
    client.rename("theirs", "ours").unwrap();
    client.unlink("link").unwrap();
    let mut found = BTreeMap::new();
    let lock = std::fs::read_link(place.root().join(".forebay-lock")).unwrap();
    found.insert(
        "claim".to_owned(),
        lock.into_os_string().into_encoded_bytes(),
    );
    for file in ["journal.0", "journal.1"] {
        let mut bytes = std::fs::read(place.instance().join("meta").join(file)).unwrap();
        bytes.truncate(JOURNAL_BYTES);
        found.insert(file.to_owned(), bytes);
    }
    server.stop().unwrap();
    labels(&place.instance(), place.label_attribute(), &mut found);
    let tables = Rocks::open(&place.instance().join("meta")).unwrap();
    let mut batch = Vec::new();
    for (n, (path, record)) in tables
        .subtree(&TreePath::root())
        .unwrap()
        .into_iter()
        .enumerate()
    {
        found.insert(format!("record-{n}"), record.encode());
        batch.push(Change::Put { path, record });
    }
    let mut bytes = Vec::new();
    forebay_core::encoding::encode_batch(&batch, &mut bytes);
    found.insert("batch".to_owned(), bytes);
    found
}

fn labels(dir: &Path, attribute: &[u8], found: &mut BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            labels(&entry.path(), attribute, found);
        } else if let Ok(file) = std::fs::File::open(entry.path())
            && let Ok(Some(label)) = sys::get_xattr(file.as_fd(), attribute)
        {
            found.insert(format!("label-{}", found.len()), label);
        }
    }
}

#[test]
fn what_is_cut_off_or_changed_is_read_or_refused() {
    let samples = samples();
    let kinds = ["batch", "claim", "journal", "label", "record"];
    for kind in kinds {
        assert!(
            samples.keys().any(|name| name.starts_with(kind)),
            "{kind}: {:?}",
            samples.keys()
        );
    }
    let journals = samples
        .iter()
        .filter(|(name, _)| name.starts_with("journal"));
    let entries =
        journals.map(|(_, bytes)| forebay_tables::payloads_of_journal(bytes, false).len());
    let most = entries.max().unwrap();
    assert!(most > 3, "the journals have {most} entries");
    for (name, bytes) in &samples {
        if let Some(dir) = std::env::var_os("FOREBAY_WRITE_SEEDS") {
            std::fs::write(Path::new(&dir).join(name), bytes).unwrap();
        }
        with_all_changes(bytes);
    }
}

fn with_all_changes(bytes: &[u8]) {
    anything_stored(bytes);
    for at in 0..bytes.len() {
        anything_stored(&bytes[..at]);
        for bits in [1, 0x80, 0xff] {
            let mut changed = bytes.to_vec();
            changed[at] ^= bits;
            anything_stored(&changed);
        }
    }
}

#[test]
fn the_seeds_of_the_fuzzer_are_read_or_refused() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/stored");
    let seeds: Vec<_> = std::fs::read_dir(seeds).unwrap().collect();
    assert!(seeds.len() > 10, "{} seeds", seeds.len());
    for seed in seeds {
        with_all_changes(&std::fs::read(seed.unwrap().path()).unwrap());
    }
}
