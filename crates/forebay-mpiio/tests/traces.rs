//! Traces of collective calls: what real programs access, and what becomes of a trace that can't be written.

mod common;

use std::fs;

use common::{Mpi, Ran, Stage, with_each};
use forebay_core::collective::{
    CapturedAccesses, CarriedOutBy, Decomposition, LeftOut, LockProtocol, LockSource,
    MAX_TRACE_BYTES, Method, cut_off_line,
};
use forebay_sim::collective::{CapturedCall, Trace, array_blocks};

const TRACE: &str = "FOREBAY_COLLECTIVE_TRACE";
const HINTS: &str = "FOREBAY_COLLECTIVE_HINTS";
const EXCHANGE: (&str, &str) = (HINTS, "forebay_collective=always");
/// The benchmark of the paper.
const COLL_PERF: &str = "../../../../benches/programs/coll_perf.c";

/// Runs a program with the layer and a trace. Returns the calls in the trace.
fn traced(
    stage: &Stage,
    mpi: &Mpi,
    ranks: u32,
    command: &[&str],
    hints: (&str, &str),
) -> Vec<CapturedCall> {
    let trace = stage.path("calls.json");
    let environment = [(TRACE, trace.as_str()), hints];
    let ran = stage.run_with(mpi, ranks, true, command, &environment);
    assert!(!ran.succeeded().err.contains("forebay: "));
    let text = fs::read(trace).unwrap();
    Trace::parse(&text).unwrap_or_else(|e| panic!("{e}")).calls
}

#[test]
fn a_trace_of_an_array_in_blocks_is_the_benchmark_of_the_laboratory_at_any_scale() {
    with_each(|mpi| {
        let stage = Stage::new();
        let program = stage.compile(&mpi.c, COLL_PERF);
        let file = stage.path("array");
        let command = [&program, &file, "20", "20", "20", "0", "0", "0", "2"];
        let hints =
            "forebay_collective=always;forebay_locks=token;striping_unit=4096;cb_config_list=*:2";
        let calls = traced(&stage, mpi, 8, &command, (HINTS, hints));
        let expected = CapturedAccesses::of(&array_blocks(10, 8));
        assert_eq!(calls.len(), 4);
        for (call, reads) in calls.iter().zip([false, true, false, true]) {
            assert_eq!((call.reads, call.number, call.processes), (reads, 1, 8));
            assert_eq!(call.file, file);
            assert_eq!((call.nodes, call.by), (1, CarriedOutBy::Aggregators));
            assert_eq!(call.accesses.as_ref(), Ok(&expected));
            let settings = call.settings.as_ref().unwrap();
            assert_eq!(settings.locks, LockProtocol::ClientToken);
            assert_eq!(settings.locks_known, LockSource::Asked);
            assert_eq!(settings.layout.granule_bytes, 4096);
            assert_eq!(
                (settings.aggregators, settings.method),
                (2, Method::Aligned)
            );
        }
        let division = Decomposition::of(&calls[0].accesses.as_ref().unwrap().accesses());
        let scaled = CapturedAccesses::of(&division.scaled(512).unwrap());
        assert_eq!(scaled, CapturedAccesses::of(&array_blocks(10, 512)));
    });
}

#[test]
fn calls_that_are_left_to_the_mpi_library_or_done_by_each_rank_are_traced_as_well() {
    with_each(|mpi| {
        for (hint, by) in [
            ("forebay_locks=server", CarriedOutBy::MpiLibrary),
            ("forebay_locks=none", CarriedOutBy::EachRank),
        ] {
            let stage = Stage::new();
            let program = stage.compile(&mpi.c, COLL_PERF);
            let file = stage.path("array");
            // Ranks have one piece each, in order.
            let command = [&program, &file, "40", "20", "20", "4", "1", "1", "1"];
            let calls = traced(&stage, mpi, 4, &command, (HINTS, hint));
            for call in &calls {
                assert_eq!(call.by, by, "{hint}");
                let accesses = call.accesses.as_ref().unwrap().accesses();
                let division = Decomposition::of(&accesses);
                assert!(
                    division
                        .in_words()
                        .starts_with("blocks one behind the other")
                );
                assert_eq!(accesses[3].bytes(), 10 * 20 * 20 * 4);
            }
            assert_eq!(calls.len(), 2);
        }
        let stage = Stage::new();
        let program = stage.compile(&mpi.c, "errors.c");
        let off = (HINTS, "forebay_collective=off");
        let calls = traced(&stage, mpi, 3, &[&program, &stage.path("file"), "end"], off);
        assert!(!calls.is_empty());
        for call in calls {
            assert_eq!((call.by, call.settings), (CarriedOutBy::MpiLibrary, None));
            assert_eq!(call.accesses, Err(LeftOut::Unknown));
        }
    });
}

#[test]
fn what_lies_behind_the_end_of_a_file_is_not_in_the_trace_of_a_read() {
    with_each(|mpi| {
        let stage = Stage::new();
        let program = stage.compile(&mpi.c, "errors.c");
        let file = stage.path("file");
        let calls = traced(&stage, mpi, 3, &[&program, &file, "end"], EXCHANGE);
        let read = calls.iter().find(|call| call.reads).expect("it reads");
        let accesses = read.accesses.as_ref().unwrap().accesses();
        let bytes: Vec<u64> = accesses.iter().map(|access| access.bytes()).collect();
        assert_eq!(bytes, [16_010, 16_000, 16_000]);
    });
}

#[test]
fn a_call_of_too_many_parts_is_noted_without_them() {
    with_each(|mpi| {
        let stage = Stage::new();
        let program = stage.compile(&mpi.c, "bounds.c");
        let command = [&program, &stage.path("file"), "irregular"];
        let calls = traced(&stage, mpi, 5, &command, EXCHANGE);
        assert_eq!(calls.len(), 2);
        for call in calls {
            assert_eq!(call.accesses, Err(LeftOut::Irregular));
            assert_eq!(call.by, CarriedOutBy::Aggregators);
        }
    });
}

/// Runs two rounds of the benchmark with a trace there, which has to succeed.
fn with_trace_at(stage: &Stage, mpi: &Mpi, trace: &str) -> Ran {
    let program = stage.compile(&mpi.c, COLL_PERF);
    let file = stage.path("array");
    let command = [&program, &file, "8", "8", "8", "0", "0", "0", "2"];
    let ran = stage.run_with(mpi, 3, true, &command, &[EXCHANGE, (TRACE, trace)]);
    ran.succeeded()
}

#[test]
fn a_trace_that_cannot_be_written_is_said_once_and_the_program_goes_on() {
    with_each(|mpi| {
        let stage = Stage::new();
        let fifo = stage.path("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.unwrap().success());
        for (trace, why) in [
            ("/dev/full", "No space left on device"),
            (&stage.path("no/such/folder"), "No such file or directory"),
            (&stage.path(""), "Is a directory"),
            (&fifo, "No such device or address"),
        ] {
            let said = with_trace_at(&stage, mpi, trace).err;
            let told = format!("forebay: trace of collective calls {trace}: {why}");
            assert_eq!(said.matches(&told).count(), 1, "{said}");
            assert_eq!(said.matches("forebay: ").count(), 1, "{said}");
        }
    });
}

#[test]
fn a_limit_of_file_sizes_ends_what_the_layer_writes_and_not_the_program() {
    with_each(|mpi| {
        let stage = Stage::new();
        let program = stage.compile(&mpi.c, COLL_PERF);
        let file = stage.path("array");
        let [trace, report, explained] = ["calls.json", "report", "explained"].map(|name| {
            let path = stage.path(name);
            fs::File::create(&path).unwrap().set_len(32 << 20).unwrap();
            path
        });
        // In units of 512 bytes.
        let script = format!("ulimit -f 65536; exec '{program}' '{file}' 8 8 8 0 0 0 1");
        let environment = [
            EXCHANGE,
            (TRACE, trace.as_str()),
            ("FOREBAY_COLLECTIVE_REPORT", report.as_str()),
            ("FOREBAY_COLLECTIVE_EXPLAIN", explained.as_str()),
        ];
        let ran = stage.run_with(mpi, 3, true, &["sh", "-c", &script], &environment);
        let said = ran.succeeded().err;
        let told = format!("forebay: trace of collective calls {trace}: File too large");
        assert_eq!(said.matches(&told).count(), 1, "{said}");
    });
}

#[test]
fn a_trace_ends_with_a_mark_when_it_is_full() {
    with_each(|mpi| {
        let stage = Stage::new();
        let trace = stage.path("full.json");
        let before = fs::File::create(&trace).unwrap();
        before.set_len(MAX_TRACE_BYTES - 20).unwrap();
        let said = with_trace_at(&stage, mpi, &trace).err;
        let told = format!("{trace}: it has 64 MiB, the most that it may have");
        assert_eq!(said.matches(&told).count(), 1, "{said}");
        let text = fs::read(&trace).unwrap();
        let mark = cut_off_line();
        assert!(text.ends_with(mark.as_bytes()));
        // The zeros before it are no whole line.
        let parted = 1 + mark.len() as u64;
        assert_eq!(text.len() as u64, MAX_TRACE_BYTES - 20 + parted);
    });
}

#[test]
fn a_line_that_another_process_could_not_finish_stays_alone() {
    with_each(|mpi| {
        let stage = Stage::new();
        let trace = stage.path("calls.json");
        let half = r#"{"forebay_collective_trace":1,"file":"/a"#;
        fs::write(&trace, half).unwrap();
        with_trace_at(&stage, mpi, &trace);
        let read = Trace::parse(&fs::read(&trace).unwrap()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((read.unfinished, read.calls.len()), (vec![1], 4));
    });
}

#[test]
fn programs_that_trace_at_once_pass_no_limit_and_break_no_line() {
    with_each(|mpi| {
        let stage = Stage::new();
        let program = stage.compile(&mpi.c, COLL_PERF);
        let trace = stage.path("calls.json");
        let blank = "\n".repeat((MAX_TRACE_BYTES - 10_000) as usize);
        fs::write(&trace, blank).unwrap();
        let files = ["a", "b", "c"].map(|name| stage.path(name));
        let commands = files
            .each_ref()
            .map(|file| [&program, file, "8", "8", "8", "0", "0", "0", "8"].to_vec());
        let commands = commands.each_ref().map(|command| &command[..]);
        let environment = [EXCHANGE, (TRACE, trace.as_str())];
        for ran in stage.run_together(mpi, 2, true, &commands, &environment) {
            ran.succeeded();
        }
        let text = fs::read(&trace).unwrap();
        let marks = 3 * cut_off_line().len() as u64;
        assert!(text.len() as u64 <= MAX_TRACE_BYTES + marks);
        let read = Trace::parse(&text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(
            (read.cut_off_at, read.unfinished.len()),
            (Some(MAX_TRACE_BYTES), 0)
        );
        assert!(!read.calls.is_empty());
    });
}
