"""Inserts rows, each in a transaction of its own, and says so to the mark file.

usage: database.py DIRECTORY MARK ROWS JOURNAL SYNCHRONOUS
"""
import os
import sqlite3
import sys

directory, mark, rows, journal, synchronous = sys.argv[1:]
mark = os.open(mark, os.O_WRONLY)
base = sqlite3.connect(directory + "/base.db", isolation_level=None)
base.execute("pragma journal_mode=" + journal)
base.execute("pragma synchronous=" + synchronous)
base.execute("create table t (id integer primary key, text)")
for row in range(int(rows)):
    os.write(mark, b"begin %d" % row)
    base.execute("insert into t values (?, ?)", (row, "row %d " % row * 50))
    os.write(mark, b"ack %d" % row)
