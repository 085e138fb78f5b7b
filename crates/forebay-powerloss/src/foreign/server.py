"""Starts PostgreSQL, lets pgbench work for some rounds, and says so to the mark file.

usage: server.py DIRECTORY MARK PROGRAMS SOCKETS ROUNDS CLIENTS TRANSACTIONS
"""
import os
import subprocess
import sys

directory, mark, programs, sockets, rounds, clients, transactions = sys.argv[1:]
mark = os.open(mark, os.O_WRONLY)
# It refuses to run as root.
user = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]


def run(program, *arguments):
    command = user + [os.path.join(programs, program)] + list(arguments)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, cwd="/")


def control(verb, *more):
    run("pg_ctl", "-D", directory + "/data", "-w", "-s", "-l", sockets + "/log", verb, *more)


control("start")
for number in range(int(rounds)):
    os.write(mark, b"begin %d" % number)
    run("pgbench", "-h", sockets, "-U", "postgres", "-n", "-c", clients, "-t", transactions, "postgres")
    os.write(mark, b"ack %d" % number)
control("stop", "-m", "fast")
