"""Inserts rows, each in a transaction of its own, and says so to the mark file.

usage: database.py ROWS DIRECTORY MARK
"""
import os
import sqlite3
import sys

rows, mark = int(sys.argv[1]), os.open(sys.argv[3], os.O_WRONLY)
base = sqlite3.connect(sys.argv[2] + "/base.db", isolation_level=None)
base.execute("pragma journal_mode=wal")
base.execute("pragma synchronous=full")
base.execute("create table t (id integer primary key, text)")
for row in range(rows):
    os.write(mark, b"begin %d" % row)
    base.execute("insert into t values (?, ?)", (row, "row %d " % row * 50))
    os.write(mark, b"ack %d" % row)
