//! Who waits while a drain changes the PFS, and who goes on.

mod world;

use forebay_core::facts::{Facts, Need, Stop};
use forebay_core::ops::{Answer, Op, Path, Start};
use forebay_core::path::TreePath;
use forebay_core::record::Transit;
use world::{Lower, World, p, path};

fn open(s: &str, flags: i32) -> Op {
    Op::Open {
        path: path(s),
        flags,
        mode: 0o644,
    }
}

fn stat(s: &str) -> Op {
    Op::Stat {
        path: path(s),
        follow: true,
    }
}

fn link(old: &str, new: &str) -> Op {
    Op::Link {
        old: path(old),
        new: path(new),
        follow: false,
    }
}

fn unlink(s: &str) -> Op {
    Op::Unlink {
        path: path(s),
        dir: false,
    }
}

fn rename(a: &str, b: &str) -> Op {
    Op::Rename {
        old: path(a),
        new: path(b),
        flags: 0,
    }
}

fn list(s: &str) -> Op {
    Op::ReadDir {
        path: path(s),
        after: None,
        limit: 100,
    }
}

fn mkdir(s: &str) -> Op {
    Op::Mkdir {
        path: path(s),
        mode: 0o755,
    }
}

/// A file `new` and a directory `dir` with a file, all made in the buffer; `there` of the PFS renamed to `moved`.
fn world() -> World {
    let mut w = World::with_lower(&[
        ("there", Lower::Dir),
        ("there/f", Lower::File(1)),
        ("other", Lower::File(1)),
    ]);
    let create = libc::O_CREAT | libc::O_WRONLY;
    w.run(open("new", create)).unwrap();
    w.run(mkdir("dir")).unwrap();
    w.run(open("dir/f", create)).unwrap();
    w.run(rename("there", "moved")).unwrap();
    w
}

fn mark(w: &mut World, path: &str, transit: Transit) {
    w.table.get_mut(&p(path)).unwrap().transit = Some(transit);
}

fn waits(answer: Result<Answer, Stop>, for_path: &str) {
    let settled = Stop::Need(Need::Settled(p(for_path)));
    assert_eq!(answer.unwrap_err(), settled);
}

#[test]
fn a_look_at_something_renamed_waits_while_it_moves_on_the_pfs() {
    let mut w = world();
    mark(&mut w, "moved", Transit::Placing);
    waits(w.run(stat("moved")), "moved");
    waits(w.run(stat("moved/f")), "moved");
    waits(w.run(open("moved/f", libc::O_RDONLY)), "moved");
    waits(w.run(list("moved")), "moved");
    waits(w.run(list("")), "moved");
    waits(w.run(mkdir("moved/sub")), "moved");
    // Others have nothing to do with it.
    w.run(stat("new")).unwrap();
    w.run(open("dir/f", libc::O_RDWR)).unwrap();
    w.run(unlink("other")).unwrap();
    w.run(list("dir")).unwrap();
}

#[test]
fn a_directory_that_is_known_by_its_place_on_the_pfs_is_waited_for_at_both_places() {
    let mut w = world();
    mark(&mut w, "moved", Transit::Placing);
    let there = Facts::lower(&w, &p("there")).unwrap().unwrap().inode();
    let below = |place: TreePath| Op::Stat {
        path: Path {
            start: Start::Lower(place, there),
            bytes: b"f".to_vec(),
        },
        follow: true,
    };
    waits(w.run(below(p("there"))), "moved");
    // The PFS has renamed it, and the record does not say so yet.
    let oid = w.table[&p("moved")].object.oid;
    let waiting = forebay_core::drain::waiting_name(oid);
    let waiting = TreePath::root().join(&waiting);
    waits(w.run(below(waiting.clone())), "moved");
    // What is on its way out is in the namespace no more.
    w.table.get_mut(&p("moved")).unwrap().transit = None;
    let gone = w.run(below(waiting)).unwrap_err();
    assert_eq!(gone, Stop::Errno(forebay_types::START_MOVED));
}

#[test]
fn a_change_of_a_record_in_transit_waits_and_its_use_goes_on() {
    let mut w = world();
    mark(&mut w, "new", Transit::Placing);
    waits(w.run(unlink("new")), "new");
    waits(w.run(rename("new", "newer")), "new");
    waits(w.run(rename("dir/f", "new")), "new");
    w.run(open("new", libc::O_RDWR)).unwrap();
    w.run(stat("new")).unwrap();
    w.run(list("")).unwrap();
    // With a directory all that lies in it changes its place.
    mark(&mut w, "dir/f", Transit::Placing);
    waits(w.run(rename("dir", "elsewhere")), "dir/f");
}

#[test]
fn a_grant_of_what_is_being_released_waits() {
    let mut w = world();
    mark(&mut w, "new", Transit::Releasing);
    waits(w.run(open("new", libc::O_RDONLY)), "new");
    waits(w.run(open("new", libc::O_CREAT | libc::O_WRONLY)), "new");
    waits(w.run(open("new", libc::O_PATH)), "new");
    waits(w.run(unlink("new")), "new");
    waits(w.run(link("new", "second")), "new");
    w.run(stat("new")).unwrap();
    // An entry of a directory that is being released is no longer made there.
    mark(&mut w, "dir", Transit::Releasing);
    waits(w.run(open("dir", libc::O_RDONLY)), "dir");
    waits(w.run(mkdir("dir/sub")), "dir");
    waits(w.run(unlink("dir/f")), "dir");
    waits(w.run(rename("other", "dir/other")), "dir");
    w.run(open("dir/f", libc::O_RDWR)).unwrap();
    w.run(list("dir")).unwrap();
}
