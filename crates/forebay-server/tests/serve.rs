//! One bridge and its clients: what is granted, what is listed, what stays.

mod common;

use common::{Place, names, read, write};
use forebay_client::{Control, Error as Refused};
use forebay_server::Error;

#[test]
fn names_and_bytes_outlive_the_bridge() {
    let place = Place::new();
    let server = place.start();
    let mut client = place.client();
    write(&mut client, "a", b"first");
    write(&mut client, "b", b"second");
    write(&mut client, "gone", b"third");
    client.mkdir("dir", 0o750).unwrap();
    client.rename("a", "dir/c").unwrap();
    client.link("b", "dir/d").unwrap();
    client.symlink("dir/c", "link").unwrap();
    client.unlink("gone").unwrap();
    let before = client.stat("dir/c").unwrap();
    assert_eq!(before.size, 5);
    assert_eq!(names(&mut client, ""), ["b", "dir", "link"]);
    server.stop().unwrap();

    let server = place.start();
    // The same client: it finds the new bridge by itself.
    assert_eq!(client.stat("dir/c").unwrap(), before);
    assert_eq!(names(&mut client, ""), ["b", "dir", "link"]);
    assert_eq!(names(&mut client, "dir"), ["c", "d"]);
    assert_eq!(read(&mut client, "link"), b"first");
    assert_eq!(read(&mut client, "dir/d"), b"second");
    assert_eq!(client.readlink("link").unwrap(), b"dir/c");
    assert_eq!(client.stat("b").unwrap().nlink, 2);
    assert_eq!(client.stat("dir").unwrap().mode, libc::S_IFDIR | 0o750);
    assert_eq!(client.stat("gone").unwrap_err().errno(), Some(libc::ENOENT));
    server.stop().unwrap();
    assert_eq!(place.problems(), Vec::<String>::new());
    let below = std::fs::read_dir(place.root()).unwrap();
    let below: Vec<_> = below.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(below, [".forebay-lock"]);
}

#[test]
fn what_the_pfs_holds_is_merged_and_stays_as_it_is_there() {
    let place = Place::new();
    std::fs::create_dir_all(place.root().join("old/sub")).unwrap();
    std::fs::write(place.root().join("old/file"), b"below").unwrap();
    let server = place.start();
    let mut client = place.client();
    assert_eq!(read(&mut client, "old/file"), b"below");
    write(&mut client, "old/new", b"above");
    assert_eq!(names(&mut client, "old"), ["file", "new", "sub"]);
    client.rename("old", "young").unwrap();
    assert_eq!(names(&mut client, ""), ["young"]);
    assert_eq!(names(&mut client, "young"), ["file", "new", "sub"]);
    client.unlink("young/file").unwrap();
    client.rmdir("young/sub").unwrap();
    assert_eq!(names(&mut client, "young"), ["new"]);
    server.stop().unwrap();
    assert_eq!(place.problems(), Vec::<String>::new());
    assert_eq!(
        std::fs::read(place.root().join("old/file")).unwrap(),
        b"below"
    );
}

#[test]
fn the_first_write_to_a_file_of_the_pfs_stages_it() {
    let place = Place::new();
    let below = place.root().join("data");
    std::fs::write(&below, vec![7; 3 << 20]).unwrap();
    let server = place.start();
    let mut client = place.client();
    let fd = client.open("data", libc::O_RDWR, 0).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&std::fs::File::from(fd), b"x", 1).unwrap();
    let bytes = read(&mut client, "data");
    assert_eq!((bytes.len(), &bytes[..3]), (3 << 20, &b"\x07x\x07"[..]));
    assert_eq!(std::fs::read(&below).unwrap(), vec![7; 3 << 20]);
    server.stop().unwrap();
    assert_eq!(place.problems(), Vec::<String>::new());
}

#[test]
fn a_path_that_leaves_the_buffer_is_named() {
    let place = Place::new();
    let server = place.start();
    let mut client = place.client();
    client.symlink("/etc", "out").unwrap();
    for path in ["out/passwd", "../../etc/passwd"] {
        match client.stat(path) {
            Err(Refused::Redirect(to)) => assert!(to.is_absolute(), "{path}: {}", to.display()),
            other => panic!("{path}: {other:?}"),
        }
    }
    server.stop().unwrap();
}

#[test]
fn a_bridge_says_who_it_is_and_how_it_is() {
    let place = Place::new();
    let server = place.start();
    let mut client = place.client();
    let hello = client.hello().unwrap();
    assert_eq!(
        (hello.root, hello.instance),
        (place.root(), place.instance())
    );
    write(&mut client, "f", b"1234");
    let mut control = Control::connect(&place.socket()).unwrap();
    let status = control.status().unwrap();
    assert_eq!(
        (status.root, status.storage),
        (place.root(), place.instance())
    );
    let inventory = control.inventory().unwrap();
    assert_eq!((inventory.dirty_files, inventory.dirty_bytes), (1, 4));
    server.stop().unwrap();
}

#[test]
fn one_instance_has_one_bridge() {
    let place = Place::new();
    let server = place.start();
    let second = forebay_server::start(place.config());
    assert!(matches!(second, Err(Error::InUse { ref instance }) if *instance == place.instance()));
    server.stop().unwrap();
}

#[test]
fn a_file_has_as_many_names_as_anyone_wants() {
    let place = Place::new();
    let server = place.start();
    let mut client = place.client();
    write(&mut client, "file", b"one of many");
    const NAMES: u32 = 500;
    for n in 1..NAMES {
        client
            .link("file", format!("a name that is not short {n}"))
            .unwrap();
    }
    assert_eq!(client.stat("file").unwrap().nlink, NAMES);
    client.unlink("file").unwrap();
    for n in 1..NAMES / 2 {
        client
            .unlink(format!("a name that is not short {n}"))
            .unwrap();
    }
    let (old, new) = ("a name that is not short 499", "another name");
    client.rename(old, new).unwrap();
    server.stop().unwrap();
    assert_eq!(place.problems(), Vec::<String>::new());
    std::fs::remove_dir_all(place.instance().join("meta")).unwrap();
    assert_eq!(place.rebuilt(), Vec::<String>::new());
    let server = place.start();
    assert_eq!(client.stat(new).unwrap().nlink, NAMES / 2);
    assert_eq!(read(&mut client, new), b"one of many");
    assert_eq!(client.list("").unwrap().len() as u32, NAMES / 2);
    server.stop().unwrap();
}

#[test]
fn paths_of_four_thousand_bytes_can_be_renamed_and_rebuilt() {
    let place = Place::new();
    let deep = ["d".repeat(240).as_str(); 16].join("/");
    std::fs::create_dir_all(place.root().join(&deep)).unwrap();
    std::fs::write(place.root().join(&deep).join("file"), b"deep").unwrap();
    let server = place.start();
    let mut client = place.client();
    let (file, dir) = (
        format!("{deep}/file"),
        format!("{deep}/{}", "n".repeat(100)),
    );
    client.mkdir(&dir, 0o755).unwrap();
    client.rename(&file, format!("{dir}/file")).unwrap();
    client.rename(&deep, "short").unwrap();
    let path = format!("short/{}/file", "n".repeat(100));
    assert_eq!(read(&mut client, &path), b"deep");
    server.stop().unwrap();
    assert_eq!(place.problems(), Vec::<String>::new());
    std::fs::remove_dir_all(place.instance().join("meta")).unwrap();
    assert_eq!(place.rebuilt(), Vec::<String>::new());
    let server = place.start();
    assert_eq!(read(&mut client, &path), b"deep");
    server.stop().unwrap();
}

#[test]
fn what_a_program_has_seen_of_a_directory_does_not_change_by_itself() {
    let place = Place::new();
    std::fs::create_dir(place.root().join("old")).unwrap();
    let server = place.start();
    let mut client = place.client();
    client.mkdir("new", 0o755).unwrap();
    for dir in ["new", "old"] {
        write(&mut client, &format!("{dir}/file"), b"x");
        let seen = client.stat(dir).unwrap();
        server.handle().objects.flush_touches();
        server.handle().lower.flush_touches();
        let again = client.stat(dir).unwrap();
        assert_eq!(
            (again.mtime, again.ctime),
            (seen.mtime, seen.ctime),
            "{dir}"
        );
    }
    server.stop().unwrap();
}
