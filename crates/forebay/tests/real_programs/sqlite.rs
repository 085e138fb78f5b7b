//! The SQLite shell: byte-range locks, hot journals, shared-memory files.

use crate::common::{case, need};

/// These files hold change counters, the version of the writer, and the rest of a journal after a rollback.
const DATABASES: [&str; 2] = [".db", ".db-journal"];

#[test]
fn sqlite3_passes_its_integrity_check_in_every_journal_mode() {
    need!("sqlite3");
    case!()
        .contents_change_in(DATABASES)
        .start("sqlite3 old.db 'create table t (k integer primary key, v text); insert into t values (1, 4711)'")
        .afterwards(
            "for db in *.db; do sqlite3 $db 'pragma integrity_check; select count(*), sum(k), max(v) from t'; done",
        )
        .same(
            r#"
            sqlite3 old.db "insert into t values (2, 'new'); select * from t; pragma integrity_check"
            for mode in delete truncate persist wal memory off; do
                sqlite3 $mode.db "
                    pragma journal_mode=$mode;
                    create table t (k integer primary key, v text);
                    create index i on t (v);
                    begin;
                    with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
                        insert into t select i, printf('value %d', i * 7919 % 20011) from n;
                    commit;
                    begin; update t set v = v || '!' where k % 3 = 0; commit;
                    pragma integrity_check;
                    select count(*), sum(k), max(v) from t;
                    delete from t where k % 2; vacuum; pragma integrity_check"
            done
            sqlite3 delete.db 'begin; delete from t; rollback; select count(*) from t'
            sqlite3 wal.db '.backup copy.db' '.dump' | md5sum
            sqlite3 copy.db 'pragma integrity_check; pragma journal_mode'
            sqlite3 delete.db "attach 'wal.db' as w; select count(*) from main.t join w.t using (k)"
            printf 'a,b\n1,x\n2,y\n' > rows.csv; sqlite3 rows.db '.import --csv rows.csv t' '.mode json' 'select * from t'
            sqlite3 rows.db 'alter table t rename column a to k; alter table t rename column b to v'
            ls
            "#,
        );
}

#[test]
fn sqlite3_shells_take_turns_on_one_database() {
    need!("sqlite3");
    case!()
        .contents_change_in(DATABASES)
        .afterwards("sqlite3 shared.db 'pragma integrity_check; select who, count(*) from t group by who'")
        .same(
            r#"
            sqlite3 shared.db 'pragma journal_mode=wal; create table t (who, n)'
            for who in a b c d; do
                (for n in $(seq 1 40); do echo "begin immediate; insert into t values ('$who', $n); commit;"; done |
                    sqlite3 -cmd '.timeout 100000' shared.db) &
            done
            wait
            sqlite3 shared.db 'select who, count(*), sum(n) from t group by who; pragma integrity_check'
            "#,
        );
}

#[test]
fn sqlite3_rolls_back_the_hot_journal_of_a_killed_writer() {
    need!("sqlite3", "python3");
    case!()
        .contents_change_in(DATABASES)
        .same(
            r#"
            sqlite3 hot.db 'pragma page_size=1024; create table t (v); with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000) insert into t select i from n'
            # A cache of one page makes the writer spill into the database before it commits.
            { $PYTHON - <<'END'
import os, signal, sqlite3
db = sqlite3.connect("hot.db", isolation_level=None)
for command in ("pragma cache_size=1", "begin", "update t set v = -v"):
    db.execute(command)
os.kill(os.getpid(), signal.SIGKILL)
END
            } 2>/dev/null; echo $?; ls hot.db*
            sqlite3 hot.db 'select count(*), min(v) from t; pragma integrity_check'; ls hot.db*
            "#,
        );
}
