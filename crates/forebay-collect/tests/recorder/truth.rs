//! Programs with known input and output give exactly the counters that Darshan's definitions give.

use forebay_count::{posix, read};

use crate::run::Place;

#[test]
fn calls_on_descriptors_are_counted_as_darshan_defines_them() {
    let place = Place::new("posix");
    let program = place.compile("posix_calls");
    place.record(&program, [place.path("data")]);
    let image = place.image_of(&program);
    let file = |name: &str| image.posix_of(&place.text(&format!("data/{name}")));

    // The first access, at 0, is neither sequential nor consecutive. 10,000 bytes in pieces of 4,096 take three reads,
    // and one more at the end. One copy has an offset, the other is at the position.
    assert_eq!(
        file("plain"),
        [
            ("OPENS", 2),
            ("READS", 6),
            ("WRITES", 10),
            ("SEEKS", 1),
            ("STATS", 2),
            ("MMAPS", 1),
            ("FSYNCS", 1),
            ("FDSYNCS", 1),
            ("BYTES_READ", 14_000),
            ("BYTES_WRITTEN", 10_000),
            ("MAX_BYTE_READ", 9_999),
            ("MAX_BYTE_WRITTEN", 9_999),
            ("CONSEC_READS", 3),
            ("CONSEC_WRITES", 9),
            ("SEQ_READS", 3),
            ("SEQ_WRITES", 9),
            ("RW_SWITCHES", 1),
        ]
    );
    let plain = &image.posix[&place.text("data/plain")];
    assert_eq!(plain.ints[posix::MODE], 0o640);
    assert_eq!(plain.ints[posix::FILE_ALIGNMENT], 4096);
    assert_eq!(
        (plain.facts.size_at_open, plain.facts.created),
        (Some(0), Some(true))
    );
    assert_eq!(
        (plain.facts.mapped_bytes, plain.facts.copied_out),
        (10_000, (2, 4_000))
    );
    assert_eq!(plain.ints[posix::SIZE_READ..][..4], [1, 1, 4, 0]);
    assert_eq!(plain.ints[posix::ACCESS..][..4], [1000, 4096, 3000, 1808]);
    assert_eq!(plain.ints[posix::ACCESS_COUNT..][..4], [11, 2, 1, 1]);

    assert_eq!(
        file("strided"),
        [
            ("OPENS", 1),
            ("WRITES", 20),
            ("BYTES_WRITTEN", 2_000),
            ("MAX_BYTE_WRITTEN", 5_799),
            ("SEQ_WRITES", 19),
            ("STRIDE1", 200),
            ("STRIDE1_COUNT", 19),
        ]
    );
    let strided = &image.posix[&place.text("data/strided")];
    assert_eq!(
        (
            strided.ints[posix::MEM_NOT_ALIGNED],
            strided.ints[posix::FILE_NOT_ALIGNED]
        ),
        (20, 19)
    );

    // pwritev at 1000 leaves a gap of 400 behind 599; the read at the position begins where writev ended, at 600.
    assert_eq!(
        file("vectors"),
        [
            ("OPENS", 1),
            ("READS", 3),
            ("WRITES", 3),
            ("BYTES_READ", 500),
            ("BYTES_WRITTEN", 1_000),
            ("MAX_BYTE_READ", 699),
            ("MAX_BYTE_WRITTEN", 1_299),
            ("CONSEC_READS", 1),
            ("SEQ_READS", 2),
            ("SEQ_WRITES", 1),
            ("RW_SWITCHES", 1),
            ("STRIDE1", 400),
            ("STRIDE1_COUNT", 1),
        ]
    );
    assert_eq!(
        file("appended"),
        [
            ("OPENS", 2),
            ("WRITES", 3),
            ("BYTES_WRITTEN", 700),
            ("MAX_BYTE_WRITTEN", 699),
            ("CONSEC_WRITES", 2),
            ("SEQ_WRITES", 2),
        ]
    );
    assert_eq!(
        file("shared"),
        [
            ("OPENS", 3),
            ("DUPS", 2),
            ("WRITES", 3),
            ("BYTES_WRITTEN", 30),
            ("MAX_BYTE_WRITTEN", 29),
            ("CONSEC_WRITES", 2),
            ("SEQ_WRITES", 2),
        ]
    );
    assert_eq!(
        file("copied"),
        [
            ("OPENS", 1),
            ("WRITES", 2),
            ("RENAME_SOURCES", 1),
            ("BYTES_WRITTEN", 4_000),
            ("MAX_BYTE_WRITTEN", 3_999),
            ("CONSEC_WRITES", 1),
            ("SEQ_WRITES", 1),
        ]
    );
    assert_eq!(file("renamed"), [("RENAME_TARGETS", 1)]);
    let renamed = &image.posix[&place.text("data/renamed")];
    let copied = forebay_count::path::record_id(place.text("data/copied").as_bytes());
    assert_eq!(renamed.ints[posix::RENAMED_FROM] as u64, copied);
    assert_eq!(
        file("below"),
        [
            ("OPENS", 1),
            ("WRITES", 1),
            ("BYTES_WRITTEN", 6),
            ("MAX_BYTE_WRITTEN", 5)
        ]
    );

    let threads = &image.posix[&place.text("data/threads")];
    let counters = [
        posix::OPENS,
        posix::WRITES,
        posix::BYTES_WRITTEN,
        posix::MAX_BYTE_WRITTEN,
    ];
    assert_eq!(
        counters.map(|i| threads.ints[i]),
        [3, 2_000, 20_000, 19_999]
    );
    let lasted = threads.floats[posix::WRITE_END] - threads.floats[posix::WRITE_START];
    assert!(
        threads.floats[posix::WRITE_TIME] <= lasted,
        "overlapping time counts once"
    );

    for (name, calls) in [
        ("mkdir", 1),
        ("rmdir", 1),
        ("unlink", 2),
        ("rename", 1),
        ("open_failed", 1),
        ("map", 1),
    ] {
        assert_eq!(image.extras.get(name), Some(&calls), "{name}");
    }
    assert_eq!((image.excluded.opens, image.excluded.bytes_read), (1, 4096));
    assert_eq!(
        (image.no_files.bytes_read, image.no_files.bytes_written),
        (70, 70)
    );
    assert_eq!(image.unplaced, read::Totals::default());
    assert_eq!(image.process.end, read::End::Exit(0));
    assert!(image.process.io_last.wchar >= image.posix_sum(posix::BYTES_WRITTEN) as u64);
}

#[test]
fn calls_on_streams_are_counted_as_darshan_defines_them() {
    use std::io::Write;
    use std::process::Stdio;
    let place = Place::new("stdio");
    let program = place.compile("streams");
    let mut child = place
        .command(&program)
        .arg(place.path("data"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("timeout runs");
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(b"99\n")
        .expect("a reader");
    let out = child.wait_with_output().expect("it ends");
    assert_eq!(
        (out.status.code(), &out.stdout[..], &out.stderr[..]),
        (Some(0), &b"out 7\nput\n"[..], &b"err\n"[..])
    );
    let image = place.image_of(&program);
    let file = |name: &str| image.stdio_of(&place.text(&format!("data/{name}")));

    // Read: 500, one, the one put back, and one after the rewind. The byte put back is read twice.
    assert_eq!(
        file("plain"),
        [
            ("OPENS", 1),
            ("READS", 4),
            ("WRITES", 5),
            ("SEEKS", 2),
            ("FLUSHES", 1),
            ("BYTES_WRITTEN", 1_036),
            ("BYTES_READ", 503),
            ("MAX_BYTE_READ", 500),
            ("MAX_BYTE_WRITTEN", 1_035),
        ]
    );
    // scanf takes the newline; getline at the end counts for nothing.
    assert_eq!(
        file("numbers"),
        [
            ("OPENS", 2),
            ("READS", 3),
            ("WRITES", 1),
            ("BYTES_WRITTEN", 24),
            ("BYTES_READ", 24),
            ("MAX_BYTE_READ", 23),
            ("MAX_BYTE_WRITTEN", 23),
        ]
    );
    assert_eq!(
        file("appended"),
        [
            ("OPENS", 2),
            ("WRITES", 2),
            ("BYTES_WRITTEN", 150),
            ("MAX_BYTE_WRITTEN", 149)
        ]
    );
    assert_eq!(
        file("adopted"),
        [
            ("OPENS", 1),
            ("FDOPENS", 1),
            ("WRITES", 1),
            ("BYTES_WRITTEN", 20),
            ("MAX_BYTE_WRITTEN", 29)
        ]
    );
    let numbered = &image.posix[&place.text("data/numbered")];
    assert_eq!(numbered.ints[posix::FILE_ALIGNMENT], 4096);
    let posix = |name: &str| image.posix_of(&place.text(&format!("data/{name}")));
    assert_eq!(
        posix("adopted"),
        [
            ("OPENS", 1),
            ("WRITES", 1),
            ("BYTES_WRITTEN", 10),
            ("MAX_BYTE_WRITTEN", 9)
        ]
    );
    assert_eq!(
        posix("numbered"),
        [
            ("OPENS", 1),
            ("FILENOS", 1),
            ("WRITES", 1),
            ("BYTES_WRITTEN", 7),
            ("MAX_BYTE_WRITTEN", 6)
        ]
    );
    // What libc writes for a stream is not counted again.
    assert!(!image.posix.contains_key(&place.text("data/plain")));
    assert_eq!(
        image.stdio_of("<STDOUT>"),
        [
            ("WRITES", 2),
            ("BYTES_WRITTEN", 10),
            ("MAX_BYTE_WRITTEN", 9)
        ]
    );
    assert_eq!(
        image.stdio_of("<STDERR>"),
        [("WRITES", 1), ("BYTES_WRITTEN", 4), ("MAX_BYTE_WRITTEN", 3)]
    );
}

#[test]
fn launchers_say_the_rank_in_the_environment() {
    for (variables, rank, key) in [
        (
            &[("PMI_RANK", "3"), ("PMI_SIZE", "8")][..],
            Some((3, 8)),
            "",
        ),
        (
            &[
                ("OMPI_COMM_WORLD_RANK", "1"),
                ("OMPI_COMM_WORLD_SIZE", "2"),
                ("PMIX_NAMESPACE", "job-7"),
            ],
            Some((1, 2)),
            "job-7",
        ),
        (
            &[
                ("RANK", "5"),
                ("WORLD_SIZE", "6"),
                ("MASTER_ADDR", "n1"),
                ("MASTER_PORT", "29500"),
            ],
            Some((5, 6)),
            "n1.29500",
        ),
        (
            &[
                ("SLURM_PROCID", "2"),
                ("SLURM_STEP_NUM_TASKS", "4"),
                ("SLURM_STEP_ID", "0"),
                ("SLURM_JOB_ID", "99"),
            ],
            Some((2, 4)),
            "99.0",
        ),
        // A batch script, and a variable of somebody's own.
        (&[("SLURM_PROCID", "0"), ("SLURM_JOB_ID", "99")], None, "99"),
        (&[("RANK", "colonel")], None, ""),
        (&[("RANK", "1")], None, ""),
    ] {
        let place = Place::new("rank");
        let mut command = place.command("/bin/true");
        let known = [
            "PMI_RANK",
            "OMPI_COMM_WORLD_RANK",
            "PMIX_RANK",
            "PMIX_NAMESPACE",
            "SLURM_JOB_ID",
            "WORLD_SIZE",
        ];
        known.iter().for_each(|name| {
            command.env_remove(name);
        });
        let status = command
            .envs(variables.iter().copied())
            .status()
            .expect("timeout runs");
        assert!(status.success());
        let images = place.images();
        let image = images
            .iter()
            .find(|i| i.process.exe().ends_with(b"true"))
            .expect("a table");
        let expected = rank.map(|(rank, ranks)| (rank, ranks, read::RankSource::Environment));
        assert_eq!(image.process.rank, expected, "{variables:?}");
        assert_eq!(image.process.job_key(), key.as_bytes(), "{variables:?}");
    }
}

#[test]
fn calls_that_few_programs_make_are_counted_too() {
    let place = Place::new("rare");
    let program = place.compile("rare_calls");
    place.record(&program, [place.path("data")]);
    let image = place.image_of(&program);
    let posix = |name: &str, counters: &[usize]| {
        let file = &image.posix[&place.text(&format!("data/{name}"))];
        counters.iter().map(|&i| file.ints[i]).collect::<Vec<_>>()
    };
    use forebay_count::posix::{
        BYTES_READ, BYTES_WRITTEN, MAX_BYTE_READ, MAX_BYTE_WRITTEN, OPENS, SEQ_READS, STATS,
    };
    let moved = [BYTES_READ, BYTES_WRITTEN, MAX_BYTE_READ, MAX_BYTE_WRITTEN];
    assert_eq!(posix("aio", &moved), [300, 1000, 799, 1499]);
    assert_eq!(posix("flagged", &moved), [0, 115, 0, 114]);
    assert_eq!(posix("printed", &moved), [0, 8, 0, 7]);
    assert_eq!(posix("spliced", &moved), [0, 200, 0, 249]);
    assert_eq!(posix("again", &moved), [0, 3, 0, 2]);
    assert_eq!(posix("ranged", &[OPENS]), [2]);
    assert_eq!(posix("two", &moved), [60, 200, 59, 199]);
    assert_eq!(posix("two", &[SEQ_READS, STATS]), [1, 3]);
    assert_eq!(posix("moved", &[posix::RENAME_TARGETS]), [1]);

    let stdio = |name: &str| image.stdio_of(&place.text(&format!("data/{name}")));
    assert_eq!(
        stdio("stream"),
        [
            ("OPENS", 1),
            ("READS", 2),
            ("WRITES", 2),
            ("SEEKS", 2),
            ("BYTES_WRITTEN", 5),
            ("BYTES_READ", 5),
            ("MAX_BYTE_READ", 4),
            ("MAX_BYTE_WRITTEN", 4),
        ]
    );
    let wrote = |n| {
        [
            ("OPENS", 1),
            ("WRITES", 1),
            ("BYTES_WRITTEN", n),
            ("MAX_BYTE_WRITTEN", n - 1),
        ]
    };
    assert_eq!(stdio("first"), wrote(3));
    assert_eq!(stdio("second"), wrote(5));
    let names: Vec<&str> = image
        .stdio
        .keys()
        .map(|n| n.rsplit('/').next().unwrap_or(n))
        .collect();
    assert!(
        names.iter().any(|n| n.starts_with('#')),
        "the temporary file is in {names:?}"
    );
    assert_eq!(image.no_files.bytes_read, 15);

    for (name, calls) in [
        ("aio", 2),
        ("splice", 1),
        ("opendir", 1),
        ("access", 1),
        ("attributes", 1),
        ("truncate", 1),
        ("link", 1),
        ("symlink", 1),
        ("readlink", 1),
        ("rename", 1),
        ("xattr", 1),
        ("allocate", 1),
        ("lock", 4),
        ("opened_pipe", 1),
    ] {
        assert_eq!(image.extras.get(name), Some(&calls), "{name}");
    }
    assert!(image.extras["readdir"] > 10);
}

#[test]
fn fortran_records_are_counted() {
    let place = Place::new("fortran");
    let program = place.compile_by("gfortran", "fortran_io.f90", &["-O1"]);
    place.record(&program, [place.path("data")]);
    let image = place.image_of(&program);
    let direct = &image.posix[&place.text("data/direct")];
    assert_eq!(
        [posix::BYTES_WRITTEN, posix::OPENS].map(|i| direct.ints[i]),
        [16 * 1024, 1]
    );
    let text = &image.posix[&place.text("data/text")];
    assert_eq!(
        [posix::BYTES_WRITTEN, posix::MAX_BYTE_WRITTEN].map(|i| text.ints[i]),
        [900, 899]
    );
}

#[test]
fn python_files_are_counted_under_the_names_the_program_uses() {
    let place = Place::new("python");
    let script = "
import os, sys, tempfile
os.symlink('data', 'link'); os.chdir('link')
with open('../link/./a', 'wb') as f: f.write(bytes(100000))
with open('a', 'rb') as f: assert len(f.read()) == 100000
fd = os.open('b', os.O_CREAT | os.O_RDWR)
os.pwrite(fd, b'x' * 10, 90); assert os.pread(fd, 100, 0)[89:91] == b'\\0x'
os.close(fd)
os.replace('b', 'c'); os.truncate('c', 5); os.listdir('.')
";
    place.record("/usr/bin/python3", ["-S", "-c", script]);
    let images = place.images();
    let image = images
        .iter()
        .find(|i| i.process.exe().ends_with(b"python3.11"))
        .expect("a table");
    assert_eq!(
        image
            .posix_of(&place.text("data/../link/a"))
            .iter()
            .find(|c| c.0 == "BYTES_WRITTEN"),
        Some(&("BYTES_WRITTEN", 100_000))
    );
    let read = &image.posix[&place.text("data/a")];
    assert_eq!(read.ints[posix::BYTES_READ], 100_000);
    assert_eq!(read.facts.size_at_open, Some(100_000));
    let b = &image.posix[&place.text("data/b")];
    assert_eq!(
        [posix::BYTES_READ, posix::BYTES_WRITTEN].map(|i| b.ints[i]),
        [100, 10]
    );
    assert_eq!(
        image.posix_of(&place.text("data/c"))[0],
        ("RENAME_TARGETS", 1)
    );
    assert_eq!(image.extras["truncate"], 1);
}

#[test]
fn times_are_those_of_the_kernel_s_clock() {
    /// By so much a clock may be wrong that is held against the kernel's every 25 ms, while that changes its rate.
    const ERROR_S: f64 = 60e-6;
    let place = Place::new("clock");
    let program = place.compile("clock");
    place.record(&program, [place.path("data")]);
    let image = place.image_of(&program);
    for name in ["a", "b"] {
        let expected = std::fs::read_to_string(place.path(&format!("data/{name}.expected")));
        let expected = expected.expect("the program told");
        let (least, most) = expected.split_once(' ').expect("two");
        let [least, most] = [least, most].map(|ns| ns.parse::<f64>().expect("a number") * 1e-9);
        let floats = &image.posix[&place.text(&format!("data/{name}"))].floats;
        let span = floats[posix::WRITE_END] - floats[posix::WRITE_START];
        assert!(span >= least - ERROR_S, "{span} {least}");
        assert!(span <= most + ERROR_S, "{span} {most}");
        assert!(floats[posix::WRITE_TIME] <= span + ERROR_S);
    }
}

#[test]
fn the_program_s_own_counters_of_the_kernel_agree() {
    let place = Place::new("kernel");
    let script = "
import os
for n in range(50):
    with open(f'f{n}', 'wb', buffering=0) as f:
        for k in range(20): f.write(bytes(1000 + n))
    with open(f'f{n}', 'rb', buffering=0) as f:
        while f.read(3000): pass
";
    place.record("/usr/bin/python3", ["-S", "-c", script]);
    let images = place.images();
    let image = images
        .iter()
        .find(|i| i.process.exe().ends_with(b"python3.11"))
        .expect("a table");
    let seen = image.posix_sum(posix::BYTES_WRITTEN) as u64
        + image.excluded.bytes_written
        + image.no_files.bytes_written;
    let written: i64 = (0..50).map(|n| 20 * (1000 + n)).sum();
    assert_eq!(seen, written as u64);
    assert_eq!(
        image.process.io_last.wchar - image.process.io_first.wchar,
        seen
    );
    assert_eq!(image.posix_sum(posix::BYTES_READ), written);
    let seen = image.posix_sum(posix::BYTES_READ) as u64
        + image.excluded.bytes_read
        + image.no_files.bytes_read;
    // The loader reads the heads of libraries without a hook.
    let read = image.process.io_last.rchar - image.process.io_first.rchar;
    assert!(
        (seen..seen + 20_000).contains(&read),
        "{read} bytes read, {seen} seen"
    );
}
