//! Programs over a PFS where each call takes 0.3 ms: the stand-in of `benches/`, which is no local file system and is never told
//! of a `syncfs`. Both runs are on it.

use crate::common::slow_pfs::SlowPfs;
use crate::common::{Case, need};
use crate::{PROJECT, git};

/// What a test does with a case on a slow PFS.
fn over_a_slow_pfs(test: impl FnOnce(Case)) {
    let Some(pfs) = SlowPfs::mount() else {
        return;
    };
    test(Case::below(&pfs.at, "case"));
}

#[test]
fn tar_packs_and_unpacks_over_a_slow_pfs() {
    need!("tar", "gzip");
    over_a_slow_pfs(|case| {
        case.start(PROJECT).same(
            r#"
            echo new > project/src/new; touch -d '2011-11-11' project/src/new
            tar cf all.tar --sort=name project private; tar tf all.tar
            mkdir into; tar xpf all.tar -C into; diff -r --no-dereference project/data into/project/data
            tar czf "$OUTSIDE/all.tgz" project; mkdir again; tar xzpf "$OUTSIDE/all.tgz" -C again
            tar cf moved.tar --remove-files again; ls -d again 2>&1
            # The headers of the archives hold times of directories that this run has made.
            rm all.tar moved.tar
            "#,
        );
    });
}

#[test]
fn rsync_mirrors_over_a_slow_pfs() {
    need!("rsync");
    over_a_slow_pfs(|case| {
        case.start(PROJECT).same(
            r#"
            rsync -aH project private mirror/; diff -r --no-dereference project/data mirror/project/data
            echo changed > project/src/text; rm project/data/block; echo extra > mirror/extra
            rsync -aH --delete --itemize-changes project private mirror/ | sort
            rsync -aH mirror/ "$OUTSIDE/out/"; echo more >> "$OUTSIDE/out/project/src/deep/er/leaf"
            rsync -aHc --inplace --no-whole-file "$OUTSIDE/out/" mirror/; cat mirror/project/src/deep/er/leaf
            rsync -a --link-dest="$PWD/mirror" mirror/ snapshot/; stat -c '%h' snapshot/project/data/numbers
            "#,
        );
    });
}

#[test]
fn git_commits_merges_and_packs_over_a_slow_pfs() {
    need!("git");
    over_a_slow_pfs(|case| {
        case.contents_change_in(git::INDEX)
            .afterwards(
                "git config --global safe.directory '*'; cd repo; git status --porcelain; git fsck --full --strict; git log --all --format='%H %s'",
            )
            .same(&format!(
                r#"{}
                git init -q repo; cd repo
                for i in $(seq 1 20); do mkdir -p d$((i % 7)); seq 1 $((i * 20)) > d$((i % 7))/f$i; done
                git add -A; git commit -qm first; git rev-parse HEAD
                git mv d1 renamed; git rm -q d2/f2; echo change >> d3/f3; git commit -qam second
                git checkout -qb side HEAD~1; echo side > side; git add side; git commit -qm side
                git checkout -q main; git merge -q -m merge side; git log --format='%H %s'
                git gc -q; git fsck; git count-objects -v | grep -v size; git status --porcelain
                "#,
                git::GIT
            ));
    });
}

#[test]
fn sqlite3_keeps_its_databases_over_a_slow_pfs() {
    need!("sqlite3");
    over_a_slow_pfs(|case| {
        case.contents_change_in([".db", ".db-journal"])
            .start("sqlite3 old.db 'create table t (k integer primary key, v text); insert into t values (1, 4711)'")
            .afterwards(
                "for db in *.db; do sqlite3 $db 'pragma integrity_check; select count(*), sum(k), max(v) from t'; done",
            )
            .same(
                r#"
                sqlite3 old.db "insert into t values (2, 'new'); select * from t; pragma integrity_check"
                for mode in delete truncate persist wal; do
                    sqlite3 $mode.db "
                        pragma journal_mode=$mode;
                        create table t (k integer primary key, v text);
                        begin;
                        with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000)
                            insert into t select i, printf('value %d', i * 7919 % 20011) from n;
                        commit;
                        delete from t where k % 2; vacuum; pragma integrity_check; select count(*), sum(k) from t"
                done
                ls
                "#,
            );
    });
}

#[test]
fn python_works_on_files_over_a_slow_pfs() {
    need!("python3");
    over_a_slow_pfs(|case| {
        case.start(PROJECT).same(
            r#"
            for program in mmap_files workers tree_tools; do
                $PYTHON "$PROGRAMS/python/$program.py" 2>&1 || echo "$program: $?"
            done
            "#,
        );
    });
}
