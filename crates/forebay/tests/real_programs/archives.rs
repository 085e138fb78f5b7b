//! tar and rsync: they read every attribute and set every attribute.

use crate::PROJECT;
use crate::common::{self, case, need};

#[test]
fn tar_packs_and_unpacks_in_the_buffer() {
    need!("tar", "gzip");
    case!().start(PROJECT).same(
        r#"
        echo new > project/src/new; touch -d '2011-11-11' project/src/new
        tar cf all.tar --sort=name project private
        tar tf all.tar
        mkdir into; tar xpf all.tar -C into; diff -r --no-dereference project/data into/project/data
        tar czf "$OUTSIDE/all.tgz" project; mkdir again; tar xzpf "$OUTSIDE/all.tgz" -C again
        tar df all.tar --exclude=src 2>&1
        tar rf all.tar into/private; tar tf all.tar | tail -3
        tar xf all.tar -O project/src/text
        tar xpf all.tar --overwrite; tar xpf all.tar --skip-old-files; tar xpf all.tar --unlink-first --recursive-unlink
        tar cf - project | (mkdir piped; cd piped; tar xpf -)
        tar cf moved.tar --remove-files piped; ls -d piped 2>&1
        # The headers of the archives hold times of directories that this run has made.
        rm all.tar moved.tar
        "#,
    );
}

#[test]
fn tar_keeps_sparse_files_long_names_and_xattrs() {
    need!("tar", "setfattr", "getfattr");
    case!()
        .start("echo old > old; setfattr -n user.colour -v blue old")
        .same(
            r#"
            long=$(printf 'n%.0s' $(seq 1 200)); mkdir -p $long/$long; echo deep > $long/$long/$long
            truncate -s 3M sparse; echo end >> sparse
            echo new > new; setfattr -n user.colour -v red new
            tar cSf all.tar --xattrs old new sparse $long
            mkdir into; tar xSpf all.tar --xattrs --xattrs-include='*' -C into
            getfattr -d into/old into/new; cmp sparse into/sparse; cat into/$long/$long/$long
            rm all.tar
            "#,
        );
}

#[test]
fn tar_lists_only_what_changed_in_an_incremental_archive() {
    need!("tar");
    case!().start(PROJECT).same(
        r#"
        tar cf "$OUTSIDE/full.tar" -g "$OUTSIDE/snapshot" --no-check-device project 2>&1 | sort
        echo changed > project/src/text
        tar cf "$OUTSIDE/next.tar" -g "$OUTSIDE/snapshot" --no-check-device project 2>&1 | sort
        tar tf "$OUTSIDE/next.tar" | grep -v '/$' | sort
        "#,
    );
}

#[test]
fn directories_have_the_times_that_programs_give_them() {
    case!()
        .start("mkdir -p src/deep data; echo one > src/one")
        .same(common::TIMES_OF_DIRECTORIES);
}

#[test]
fn rsync_a_mirrors_into_and_out_of_the_buffer() {
    need!("rsync");
    case!().start(PROJECT).same(
        r#"
        rsync -aH project private mirror/; diff -r --no-dereference project/data mirror/project/data
        rsync -aHi project private mirror/
        echo changed > project/src/text; rm project/data/block; echo extra > mirror/extra
        rsync -aH --delete --itemize-changes project private mirror/ | sort
        rsync -aH mirror/ "$OUTSIDE/out/"; (cd "$OUTSIDE" && observe .)
        echo more >> "$OUTSIDE/out/project/src/deep/er/leaf"
        rsync -aHc --inplace --no-whole-file "$OUTSIDE/out/" mirror/; cat mirror/project/src/deep/er/leaf
        seq 1 30000 > project/data/numbers; rsync -a --no-whole-file project/data/numbers mirror/project/data/; wc -l mirror/project/data/numbers
        rsync -a --link-dest="$PWD/mirror" mirror/ snapshot/; stat -c '%h' snapshot/project/data/numbers
        rsync -a --remove-source-files snapshot/project/data/ gone/; ls snapshot/project/data gone
        rsync -an --delete project/empty/ mirror/project/; ls mirror
        rsync -aH --delay-updates --partial-dir=.partial project/ delayed/; ls -A delayed
        "#,
    );
}

#[test]
fn rsync_carries_xattrs_and_acls() {
    need!("rsync", "setfattr", "getfattr", "setfacl", "getfacl");
    case!()
        .start("echo a > a; setfattr -n user.k -v v a; setfacl -m u:1234:r a; mkdir d")
        .same(
            r#"
            echo b > b; mkdir e; echo in > e/in; setfacl -m g:78:r e/in; setfattr -n user.k -v new b; setfacl -m g:77:rw b; echo in > d/in
            mkdir to; rsync -aXA a b d e to/; getfattr -d to/a to/b; getfacl -n to/a to/b to/d to/d/in
            setfattr -x user.k a; getfattr -d a; setfacl -b b; getfacl -cn b
            "#,
        );
}

#[test]
fn programs_that_stay_on_one_file_system_go_into_every_directory() {
    need!("tar", "rsync", "python3");
    case!().compile("c/across.c", &[]).start(PROJECT).same(
        r#"
        mkdir -p new/a/b project/src/deep/new; echo 1 > new/a/b/file; echo 2 > project/src/deep/new/file
        cp -ax . "$OUTSIDE/copy"; (cd "$OUTSIDE/copy"; find . | sort)
        tar --one-file-system -cf "$OUTSIDE/all.tar" .; tar tf "$OUTSIDE/all.tar" | sort
        rsync -ax ./ "$OUTSIDE/synced"; (cd "$OUTSIDE/synced"; find . | sort)
        find . -xdev | sort
        du -x --inodes . | cut -f 2 | sort
        du -axl . | cut -f 2 | sort; du -sbx new/a/b/file; find . -mount -samefile new/a/b/file
        "$BIN/across" . | sort
        python3 - <<'END'
import os
root = os.stat('.').st_dev
for at, dirs, files in sorted(os.walk('.')):
    fd = os.open(at, os.O_RDONLY)
    by_path, by_fd = os.stat(at), os.fstat(fd)
    print(at, by_path.st_dev == root, os.path.samestat(by_path, by_fd), os.path.ismount(at))
    for entry in sorted(os.scandir(at), key=lambda entry: entry.name):
        by_name = entry.stat(follow_symlinks=False)
        print(entry.name, entry.inode() == by_name.st_ino, by_name.st_dev == root)
        if entry.is_file(follow_symlinks=False):
            with open(entry.path) as opened:
                print(os.path.samestat(by_name, os.fstat(opened.fileno())))
    os.close(fd)
END
        rm -r --one-file-system new project; ls
        "#,
    );
}
