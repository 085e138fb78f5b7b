//! Unmodified programs behave under `forebay run` as they do natively: they have the same exit code
//! and output, and after the drain they have made the same tree.

#[path = "../common/mod.rs"]
mod common;

mod archives;
mod compilers;
mod coreutils;
mod fio;
mod git;
mod mpi;
mod names;
mod node;
mod python;
mod shell;
mod slow_pfs;
mod sqlite;

/// Runs after [`PROJECT`], and makes two files of the two names of one file. For a file on the PFS the kernel counts
/// the names, so a name that is removed in the buffer still counts until the drain.
const UNLINKED: &str = "
    cp -p project/src/text project/src/other; mv project/src/other project/src/text-again
    touch -d '2019-05-06 07:08:09.123456789' project/src/text project/src/text-again
";

/// A start tree like that of a user on the PFS: several modes, ages, links and kinds.
const PROJECT: &str = r#"
    mkdir -p project/src/deep/er project/empty project/data private
    printf 'first\nsecond\nthird\n' > project/src/text
    seq 1 20000 > project/data/numbers
    head -c 300000 /dev/zero | tr '\0' 'x' > project/data/block
    printf '#!/bin/sh\necho "ran with $*"\n' > project/src/tool
    : > project/empty/nothing
    echo deep > project/src/deep/er/leaf
    chmod 755 project/src/tool
    chmod 600 project/src/text
    chmod 4711 project/src/deep/er/leaf
    chmod 1777 project/empty
    chmod 700 private
    echo secret > private/key; chmod 400 private/key
    ln project/src/text project/src/text-again
    ln -s text project/src/soft
    ln -s ../../private project/src/into-private
    ln -s no-such-file project/src/dangling
    ln -s loop-b project/src/loop-a; ln -s loop-a project/src/loop-b
    mkfifo project/src/pipe
    touch -d '1999-12-31 23:59:59.5' project/data/numbers
    touch -h -d '2001-02-03 04:05:06' project/src/soft
    touch -d '1985-10-26' project/data
"#;
