#!/usr/bin/env python3
"""Lines of code by crate at some commits: scripts/lines-of-code.py COMMIT...

Counts lines of Rust in src/ of each crate. Comments, blank lines, and tests (files and modules under `#[cfg(test)]`, files named
tests.rs or in a folder tests/) do not count.
"""
import re
import subprocess
import sys
from collections import Counter


def git(*args):
    return subprocess.run(["git", *args], check=True, capture_output=True, text=True).stdout


def code(text):
    """The lines that count of one file."""
    kept, depth, is_test, in_comment = 0, 0, False, False
    for line in text.splitlines():
        line = line.strip()
        if in_comment:
            in_comment = "*/" not in line
            continue
        if not line or line.startswith("//"):
            continue
        if line.startswith("/*"):
            in_comment = "*/" not in line
            continue
        if line.startswith("#[cfg(test)]") and depth == 0:
            is_test = True
            continue
        plain = re.sub(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])\'', "", line.split("//")[0])
        depth += plain.count("{") - plain.count("}")
        if is_test:
            # The item ends with its block, or without one.
            is_test = depth > 0 or not plain.endswith((";", "}"))
            continue
        kept += 1
    return kept


def by_crate(commit):
    lines = Counter()
    for path in git("ls-tree", "-r", "--name-only", commit, "crates").splitlines():
        found = re.fullmatch(r"crates/([^/]+)/src/(.*)\.rs", path)
        if found and not re.search(r"(^|/)tests(/|$)", found[2]):
            lines[found[1]] += code(git("show", f"{commit}:{path}"))
    return lines


def main():
    commits = sys.argv[1:] or ["HEAD"]
    counted = [by_crate(commit) for commit in commits]
    crates = sorted(set().union(*counted))
    print("| crate | " + " | ".join(commits) + " |")
    print("|---" * (len(commits) + 1) + "|")
    for crate in crates:
        print(f"| `{crate}` | " + " | ".join(f"{c[crate]:,}" if crate in c else "" for c in counted) + " |")
    print("| all | " + " | ".join(f"{sum(c.values()):,}" for c in counted) + " |")


main()
