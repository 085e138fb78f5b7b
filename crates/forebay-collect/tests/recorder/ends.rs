//! No completed call is missing, whatever ends a process and whatever call makes its children.

use std::collections::HashMap;
use std::path::Path;

use forebay_count::{posix, read};

use crate::run::{Image, Place};

/// What a child of `killed` noted, in the order of the C struct.
struct Note {
    pid: i64,
    opens: i64,
    writes: i64,
    bytes: i64,
    reads: i64,
    file: i64,
}

fn notes(path: &Path) -> Vec<Note> {
    let bytes = std::fs::read(path).expect("notes");
    let words: Vec<i64> = bytes
        .chunks_exact(8)
        .map(|c| i64::from_ne_bytes(c.try_into().expect("eight bytes")))
        .collect();
    words
        .chunks_exact(6)
        .map(|w| Note {
            pid: w[0],
            opens: w[1],
            writes: w[2],
            bytes: w[3],
            reads: w[4],
            file: w[5],
        })
        .collect()
}

#[test]
fn a_thousand_processes_that_end_at_any_moment_leave_all_that_they_completed() {
    const CHILDREN: usize = 1000;
    let place = Place::new("killed");
    let program = place.compile("killed");
    std::fs::write(place.path("data/notes"), vec![0; CHILDREN * 48]).expect("notes");
    let out = place
        .command(&program)
        .arg(place.path("data"))
        .arg(CHILDREN.to_string())
        .env(forebay_count::ENV_RECORD_MEMORY, "131072")
        .output()
        .expect("timeout runs");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );

    let notes = notes(&place.path("data/notes"));
    // Every table can be read, or `images` fails.
    let mut images: HashMap<i64, Vec<Image>> = HashMap::new();
    for image in place.images() {
        images
            .entry(i64::from(image.process.pid))
            .or_default()
            .push(image);
    }
    let (mut checked, mut killed_at_work) = (0, 0);
    for note in notes.iter().filter(|n| n.pid != 0) {
        let name = place.text(&format!("data/f{}", note.file));
        let file = images
            .get(&note.pid)
            .and_then(|all| all.iter().find_map(|i| i.posix.get(&name).map(|f| (i, f))));
        let Some((image, file)) = file else {
            assert_eq!(
                (note.opens, note.writes, note.reads),
                (0, 0, 0),
                "file {}",
                note.file
            );
            continue;
        };
        // The last call may have been completed and not yet noted.
        for (what, noted, counter) in [
            ("opens", note.opens, posix::OPENS),
            ("writes", note.writes, posix::WRITES),
            ("reads", note.reads, posix::READS),
        ] {
            let counted = file.ints[counter];
            assert!(
                (noted..=noted + 1).contains(&counted),
                "file {}: {what} {noted} {counted}",
                note.file
            );
        }
        let more = file.ints[posix::BYTES_WRITTEN] - note.bytes;
        assert!((0..512).contains(&more), "file {}: {more} bytes", note.file);
        assert_eq!(image.unplaced, read::Totals::default());
        let end = match note.file % 6 {
            0 | 2 => read::End::Unsaid,
            1 => read::End::Abort,
            how => read::End::Exit(how as i32),
        };
        assert_eq!(image.process.end, end, "file {}", note.file);
        checked += 1;
        killed_at_work += usize::from(note.file % 6 == 0 && note.opens > 0);
    }
    println!(
        "{checked} children compared, {killed_at_work} of them killed in the middle of their work"
    );
    assert!(checked > CHILDREN * 6 / 10 && killed_at_work > 10);
}

#[test]
fn children_of_all_kinds_count_what_they_write_under_its_name() {
    let place = Place::new("families");
    let program = place.compile("families");
    place.record(&program, [place.path("data")]);
    let images = place.images();
    let written = |name: &str| {
        let name = place.text(&format!("data/{name}"));
        let records = images.iter().flat_map(|i| i.posix.get(&name));
        records.map(|f| f.ints[posix::BYTES_WRITTEN]).sum::<i64>()
    };
    for (name, bytes) in [
        ("parent", 1),
        ("forked", 2),
        ("grandchild", 3),
        ("cloned", 4),
        ("by_clone", 5),
        ("kept", 11),
        ("by_vfork", 8),
        ("by_spawn", 5),
        ("by_system", 10),
        ("before_exec", 17),
        ("after_exec", 6),
        ("passed", 60),
        // By the parent, its child, the parent, the shell that was spawned, the other descriptor, the next program.
        ("inherited", 100 + 30 + 7 + 3 + 13 + 8),
    ] {
        let size = std::fs::metadata(place.path("data").join(name))
            .expect(name)
            .len();
        assert_eq!(written(name), bytes, "{name}, {size} bytes in the file");
    }
    let inherited = place.text("data/inherited");
    let highest = images
        .iter()
        .flat_map(|i| i.posix.get(&inherited))
        .map(|f| f.ints[posix::MAX_BYTE_WRITTEN])
        .max();
    let size = std::fs::metadata(&inherited).expect("a file").len() as i64;
    assert_eq!(
        highest,
        Some(size - 1),
        "positions are right in parent and children"
    );
    for file in images.iter().flat_map(|i| i.posix.values()) {
        let [written, alignment] =
            [posix::BYTES_WRITTEN, posix::FILE_ALIGNMENT].map(|at| file.ints[at]);
        assert!(
            written == 0 || alignment == 4096,
            "a descriptor leads to its file system, too"
        );
    }
    // The program, its forked children with what they wrote, and the shells.
    let exe = program.as_os_str().as_encoded_bytes();
    let own: Vec<_> = images.iter().filter(|i| i.process.exe() == exe).collect();
    assert_eq!(own.iter().filter(|i| i.process.by_fork).count(), 4);
    let first = own
        .iter()
        .find(|i| !i.process.by_fork)
        .expect("the program's table");
    let passed = &first.posix[&place.text("data/passed")];
    assert_eq!(
        passed.ints[posix::MAX_BYTE_WRITTEN],
        59,
        "behind what its child wrote"
    );
    let after = images
        .iter()
        .filter(|i| i.process.pid == first.process.pid)
        .count();
    assert_eq!(after, 2, "one table before exec, one after");
    for child in own.iter().filter(|i| i.process.by_fork) {
        assert_eq!(child.process.end, read::End::Exit(0));
        assert!(own.iter().any(|i| i.process.pid == child.process.ppid));
    }
}

#[test]
fn a_child_that_only_closes_before_it_starts_a_program_has_no_table_of_its_own() {
    let place = Place::new("new-children");
    let program = place.compile("new_children");
    let fixed = place.compile_by("cc", "nothing.c", &["-static"]);
    place.record(&program, [place.path("data"), fixed]);
    let images = place.images();
    let exe = program.as_os_str().as_encoded_bytes();
    let (own, others): (Vec<&Image>, Vec<&Image>) =
        images.iter().partition(|i| i.process.exe() == exe);
    let started: Vec<_> = others.iter().map(|i| i.process.exe()).collect();
    assert_eq!(started.len(), 1, "true: {started:?}");
    let (children, parent): (Vec<&Image>, Vec<&Image>) =
        own.iter().partition(|i| i.process.by_fork);
    let parent = parent[0];
    // It tells whose child it was.
    assert_eq!(others[0].process.ppid, parent.process.pid);
    assert_eq!(parent.extras.get("unreached"), Some(&6));
    let closed = &parent.posix[&place.text("data/closed")];
    assert!(closed.floats[posix::CLOSE_END] > 0.0, "by a child");
    let writer = children
        .iter()
        .find(|i| i.posix.contains_key(&place.text("data/own")))
        .unwrap();
    for (name, bytes) in [("own", 7), ("kept", 3)] {
        let written = writer.posix[&place.text(&format!("data/{name}"))].ints[posix::BYTES_WRITTEN];
        assert_eq!(written, bytes, "{name}");
    }
    assert_eq!(children.len(), 101, "the writer, and those with a thread");
    let by_thread = place.text("data/by_thread");
    let by_threads = children.iter().filter_map(|i| i.posix.get(&by_thread));
    let by_threads: i64 = by_threads.map(|f| f.ints[posix::BYTES_WRITTEN]).sum();
    assert_eq!(by_threads, 500);
    let many = &parent.posix[&place.text("data/many0")];
    assert_eq!(
        many.ints[posix::BYTES_WRITTEN],
        2,
        "its parent still has it"
    );
}
