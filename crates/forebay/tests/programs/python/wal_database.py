"""sqlite3 in WAL mode: two processes, one database, shared memory in the buffer."""
import os
import sqlite3


def say(*what):
    print(*what, flush=True)


def connect():
    db = sqlite3.connect("state.db", timeout=60, isolation_level=None)
    db.execute("pragma synchronous=normal")
    return db


db = connect()
say(db.execute("pragma journal_mode=wal").fetchone())
db.execute("create table t (who text, n integer, primary key (who, n))")
db.close()
children = []
for who in ("a", "b", "c"):
    pid = os.fork()
    if pid == 0:
        db = connect()
        for n in range(100):
            db.execute("begin immediate")
            db.execute("insert into t values (?, ?)", (who, n))
            db.execute("commit")
        db.close()
        os._exit(0)
    children.append(pid)
say([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children])
db = connect()
say(db.execute("select who, count(*), sum(n) from t group by who order by who").fetchall())
say(sorted(os.listdir(".")))
say(db.execute("pragma integrity_check").fetchone())
say(db.execute("pragma wal_checkpoint(truncate)").fetchone())
db.execute("begin")
db.execute("delete from t")
db.execute("rollback")
say(db.execute("select count(*) from t").fetchone())
copy = sqlite3.connect("copy.db")
db.backup(copy)
say(copy.execute("pragma integrity_check").fetchone(), copy.execute("select count(*) from t").fetchone())
copy.close()
db.execute("vacuum")
db.close()
say(sorted(os.listdir(".")))
