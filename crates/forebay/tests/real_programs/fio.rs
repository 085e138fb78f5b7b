//! fio writes patterns with several engines and verifies every block.

use crate::common::{case, need};

/// These files differ between runs, because each verified block holds the time at which it was written.
const DATA: [&str; 9] = [".0", ".1", ".2", ".3", ".4", ".5", ".6", ".7", ".state"];

#[test]
fn fio_verifies_what_each_engine_has_written() {
    need!("fio");
    case!().contents_change_in(DATA).same(
        r#"
        run() {
            fio --name="$1" --size=8M --bs=4k-64k --verify=crc32c --verify_fatal=1 --randseed=7 \
                --output-format=json --output="$OUTSIDE/$1.json" "${@:2}"
            echo "$1: $?"; grep -c '"error" : 0' "$OUTSIDE/$1.json"
        }
        for engine in sync psync pvsync mmap libaio io_uring posixaio; do
            run $engine-random --ioengine=$engine --rw=randwrite --iodepth=8 2>&1
        done
        run direct --ioengine=libaio --direct=1 --bs=4k --rw=randwrite --iodepth=16 2>&1
        run mixed --ioengine=psync --rw=randrw --fsync=64 2>&1
        run trimmed --ioengine=psync --rw=write --fallocate=keep 2>&1
        run jobs --ioengine=psync --rw=randwrite --numjobs=4 --nrfiles=8 --size=4M --group_reporting 2>&1
        "#,
    );
}

#[test]
fn fio_reads_back_in_a_second_process_what_the_first_has_written() {
    need!("fio");
    case!().contents_change_in(DATA).same(
        r#"
        job="--name=two --size=16M --bs=16k --rw=randwrite --verify=md5 --randseed=11 --ioengine=psync --output=$OUTSIDE/fio.txt"
        fio $job --do_verify=0; echo $?
        mkdir moved; mv two.0.0 moved/; mv moved/two.0.0 two.0.0
        fio $job --verify_only; echo $?
        printf broken | dd of=two.0.0 bs=1 seek=100000 conv=notrunc status=none
        fio $job --verify_only >/dev/null 2>&1; test $? != 0 && echo noticed
        "#,
    );
}
