//! Traces of collective calls: what the layer writes is read again as it was, what is wrong is told with its line, and a
//! replay with the captured processes is the call itself.

use forebay_core::collective::{
    Access, Arrangement, CallToCapture, CapturedAccesses, CarriedOutBy, Decomposition, LeftOut,
    Method, PfsFacts, Wishes, cut_off_line,
};
use forebay_sim::collective::{
    Locks, Parameters, Replay, System, Trace, alike, array_blocks, chart_replays, measure,
};

const LUSTRE: i64 = 0x0bd0_0bd0;

fn arrangement(hints: &str) -> Arrangement {
    let mut wishes = Wishes::default();
    wishes.set_all(hints);
    Arrangement::new(&wishes, PfsFacts::of_type(LUSTRE), &[0, 0, 1, 1], 1)
}

fn call<'a>(
    arrangement: Option<&'a Arrangement>,
    accesses: Result<&'a CapturedAccesses, LeftOut>,
) -> CallToCapture<'a> {
    CallToCapture {
        file: "/pfs/a \"file\"\n",
        number: 7,
        reads: false,
        ranks: accesses.map_or(4, |captured| captured.at().len()),
        nodes: 2,
        by: CarriedOutBy::Aggregators,
        arrangement,
        accesses,
    }
}

/// The line of a write of these accesses.
fn line(accesses: &[Access]) -> String {
    call(None, Ok(&CapturedAccesses::of(accesses))).to_line()
}

fn parsed(text: &str) -> Trace {
    Trace::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn system() -> System {
    Parameters::default().systems["lustre"].clone()
}

#[test]
fn what_is_written_is_read_again_as_it_was() {
    let arranged =
        arrangement("striping_unit=65536;striping_factor=4;forebay_partition=group-cyclic");
    let captured = CapturedAccesses::of(&array_blocks(5, 12));
    let mut text = call(Some(&arranged), Ok(&captured)).to_line();
    for (reason, _) in LeftOut::NAMES {
        text += &call(None, Err(reason)).to_line();
    }
    text += &cut_off_line();
    let trace = parsed(&text);
    assert_eq!(trace.cut_off_at, Some(64 << 20));
    let first = &trace.calls[0];
    assert_eq!(first.accesses, Ok(captured));
    assert_eq!(
        (first.line, first.number, first.processes, first.nodes),
        (1, 7, 12, 2)
    );
    assert_eq!(
        (first.file.as_str(), first.reads),
        ("/pfs/a \"file\"\n", false)
    );
    let settings = first.settings.as_ref().unwrap();
    assert_eq!(settings.layout, arranged.layout);
    assert_eq!(settings.locks, arranged.protocol);
    assert_eq!(settings.method, arranged.method);
    assert_eq!(settings.locks_known, arranged.source);
    assert_eq!(settings.aggregators as usize, arranged.aggregators.len());
    let left_out: Vec<_> = trace.calls[1..]
        .iter()
        .map(|c| c.accesses.clone())
        .collect();
    assert_eq!(left_out, LeftOut::NAMES.map(|(reason, _)| Err(reason)));
}

#[test]
fn whatever_is_wrong_with_a_trace_is_an_error_with_its_line() {
    let good = line(&array_blocks(4, 2));
    let with = |from: &str, to: &str| {
        assert!(good.contains(from), "{from} in {good}");
        good.replace(from, to)
    };
    let shapes = &good[good.find(",\"shapes\"").unwrap()..];
    let other = |new: &str| with(shapes, &format!("{new}}}\n"));
    let cases = [
        (String::new(), "there is no collective call in it"),
        (cut_off_line(), "there is no collective call in it"),
        ("hello\n".to_owned(), "line 1: expected value"),
        (
            "{}\n".to_owned(),
            "line 1: missing field `forebay_collective_trace`",
        ),
        (
            good[..good.len() / 2].to_owned(),
            "there is no whole collective call in it: line 1 ends in the middle",
        ),
        (
            with("_trace\":1", "_trace\":2"),
            "line 1: version 2 of traces; this program reads version 1",
        ),
        (
            with("\"ranks\":2", "\"ranks\":0"),
            "line 1: ranks: 0 is not between 1 and 16384",
        ),
        (
            with("\"ranks\":2", "\"ranks\":99999999999"),
            "line 1: ranks: 99999999999 is not between",
        ),
        (
            with("\"ranks\":2", "\"ranks\":-2"),
            "line 1: invalid value: integer `-2`",
        ),
        (
            with("\"ranks\":2", "\"ranks\":3"),
            "line 1: ranks is 3, and at has 2",
        ),
        (
            with("\"ranks\":2", "\"ranks\":2,\"ranks\":2"),
            "line 1: duplicate field `ranks`",
        ),
        (
            with("\"ranks\":2", "\"ranks\":2,\"colour\":2"),
            "line 1: unknown field `colour`",
        ),
        (
            with("\"write\"", "\"sideways\""),
            "line 1: direction: unknown `sideways`, not one of read, write",
        ),
        (
            with("\"aggregators\"", "\"magic\""),
            "line 1: by: unknown `magic`",
        ),
        (
            other(""),
            "line 1: it needs either left_out, or shapes and at",
        ),
        (
            other(",\"left_out\":\"lazy\""),
            "line 1: left_out: unknown `lazy`",
        ),
        (
            other(",\"shapes\":[],\"at\":[[0,0],[0,0]]"),
            "line 1: rank 0 has shape 0, and there are 0",
        ),
        (
            other(",\"shapes\":[[[0]]],\"at\":[[0,0],[0,0]]"),
            "line 1: shape 0: a part is [offset, bytes,",
        ),
        (
            other(",\"shapes\":[[[0,0]]],\"at\":[[0,0],[0,0]]"),
            "line 1: shape 0: a part is",
        ),
        (
            other(",\"shapes\":[[[0,1,[0,9]]]],\"at\":[[0,0],[0,0]]"),
            "line 1: shape 0: a part is",
        ),
        (
            other(",\"shapes\":[[[0,1.5]]],\"at\":[[0,0],[0,0]]"),
            "line 1: a number, or [count, distance]",
        ),
        (
            other(",\"shapes\":[[[0,8,[4,7]]]],\"at\":[[0,0],[0,0]]"),
            "line 1: shape 0: pieces of an access overlap",
        ),
        (
            other(",\"shapes\":[[[8,8],[0,8]]],\"at\":[[0,0],[0,0]]"),
            "line 1: shape 0: pieces of an access overlap",
        ),
        (
            other(
                ",\"shapes\":[[[0,1,[18446744073709551615,18446744073709551615]]]],\"at\":[[0,0],[0,0]]",
            ),
            "line 1: shape 0: an access goes beyond",
        ),
        (
            other(",\"shapes\":[[[0,8]]],\"at\":[[0,0],[0,18446744073709551615]]"),
            "line 1: an access goes beyond",
        ),
        (
            other(",\"shapes\":[[[0,9223372036854775807]]],\"at\":[[0,0],[0,0]]"),
            "line 1: all ranks together have more bytes than a file can have",
        ),
    ];
    for (text, expected) in cases {
        let said = Trace::parse(text.as_bytes())
            .map(|_| ())
            .unwrap_err()
            .to_string();
        assert!(said.starts_with(expected), "{said}\n{expected}\n{text}");
    }
    let said = Trace::parse(&[good.as_bytes(), b"\xff\xfe"].concat()).unwrap_err();
    assert_eq!(said.line, 2, "{said}");
    // Nesting is no way to the end of the stack.
    assert!(Trace::parse("[".repeat(1 << 20).as_bytes()).is_err());
    let deep = other(&format!(",\"shapes\":{}", "[".repeat(1 << 16)));
    assert!(Trace::parse(deep.as_bytes()).is_err());
}

#[test]
fn a_line_that_ends_in_the_middle_takes_no_other_with_it() {
    let good = line(&array_blocks(4, 2));
    let half = &good[..good.len() / 2];
    let trace = parsed(&format!("{good}{half}\n{good}{}", &good[..40]));
    assert_eq!(trace.unfinished, [2, 4]);
    let lines: Vec<usize> = trace.calls.iter().map(|call| call.line).collect();
    assert_eq!(lines, [1, 3]);
}

#[test]
fn any_cut_and_any_changed_byte_of_a_trace_is_an_error_or_a_trace() {
    let mut all = array_blocks(3, 8);
    all[3] = Access::strided(900_000, 7, &[(5, 100)]).unwrap();
    let text = line(&array_blocks(4, 8)) + &line(&all);
    for end in 0..text.len() {
        let _ = Trace::parse(&text.as_bytes()[..end]);
    }
    for at in 0..text.len() {
        for new in *b"0919[]{},\"\n-\xff" {
            let mut bytes = text.clone().into_bytes();
            bytes[at] = new;
            let Ok(trace) = Trace::parse(&bytes) else {
                continue;
            };
            for calls in alike(&trace).0 {
                let _ = Replay::new(&calls, ("lustre", &system()), &[32]);
            }
        }
    }
}

#[test]
fn a_million_million_pieces_are_no_burden_where_the_file_fits_and_an_error_where_not() {
    let of = |pieces, distance| {
        let of = |rank: u64| Access::strided(rank, 1, &[(pieces, distance)]).unwrap();
        parsed(&line(&[of(0), of(1)]))
    };
    let dense = of(10_000_000_000, 2);
    let (calls, _) = alike(&dense);
    assert!(Replay::new(&calls[0], ("lustre", &system()), &[]).is_ok());
    let far = of(1_000_000_000_000, 2);
    let (calls, _) = alike(&far);
    let said = Replay::new(&calls[0], ("lustre", &system()), &[]).unwrap_err();
    let said = said.to_string();
    assert!(
        said.contains("the call of line 1 with 2 processes: it lies in 2000000000000 bytes"),
        "{said}"
    );
}

#[test]
fn a_benchmark_that_was_captured_with_few_processes_is_the_benchmark_with_many() {
    for (captured, processes) in [(8, 64), (16, 128), (64, 512), (64, 64), (8, 1)] {
        let blocks = |n| -> Vec<Access> {
            let blocks = array_blocks(10, n);
            blocks.iter().map(Access::folded).collect()
        };
        let division = Decomposition::of(&blocks(captured));
        assert_eq!(
            division.scaled(processes),
            Ok(blocks(processes)),
            "{captured} {processes}"
        );
    }
}

#[test]
fn a_replay_has_the_rates_of_the_benchmark_in_its_rows_under_all_lock_managers() {
    let trace = parsed(&line(&array_blocks(100, 16)));
    let (calls, _) = alike(&trace);
    let replay = Replay::new(&calls[0], ("lustre", &system()), &[128, 16, 128]).unwrap();
    let mut rows = 0;
    let under = replay.run(&mut || rows += 1);
    assert_eq!(rows, 2);
    assert_eq!(under.len(), Locks::ALL.len());
    for under in &under {
        let system = System {
            locks: under.locks,
            ..system()
        };
        for (row, processes) in under.points.chunks(Method::ALL.len()).zip([16, 128]) {
            let benchmark = Method::ALL.map(|m| measure(&system, m, u32::MAX, 100, processes));
            assert_eq!(row, benchmark);
        }
    }
    let text = replay.tables(&under);
    for part in [
        "/pfs/a \"file\"\\n: collective write, 160000 pieces, 64000000 bytes, 16 processes\n",
        "  in the trace: line 1\n",
        "  scaled: blocks of an array: ",
        "  processes: 16 as 4 x 2 x 2, 128 as 8 x 4 x 4; each has as many bytes",
        "  locks tokens\n",
        "Forebay would choose aligned: ",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let svg = chart_replays(&[(replay, under)]);
    assert_eq!(svg.matches("write, lock conflicts").count(), 4);
}

#[test]
fn the_usual_multiples_are_replayed_unless_others_are_asked_for() {
    let trace = parsed(&line(&array_blocks(8, 8)));
    let (calls, _) = alike(&trace);
    let rows = |more: &[u32]| {
        let replay = Replay::new(&calls[0], ("lustre", &system()), more);
        replay
            .map(|replay| replay.rows())
            .map_err(|e| e.to_string())
    };
    assert_eq!(rows(&[]), Ok(4));
    assert_eq!(rows(&[8]), Ok(1));
    assert_eq!(rows(&[9, 10]), Ok(3));
    assert!(
        rows(&[20_000])
            .unwrap_err()
            .contains("at most 16384 processes")
    );
    let irregular = [Access::strided(0, 5, &[]).unwrap(), Access::default()];
    let trace = parsed(&line(&irregular));
    let (calls, _) = alike(&trace);
    let said = Replay::new(&calls[0], ("lustre", &system()), &[9]).unwrap_err();
    assert!(
        said.to_string().contains("multiples of 2 processes"),
        "{said}"
    );
}

#[test]
fn calls_that_differ_only_in_their_place_are_one_kind_and_the_largest_comes_first() {
    let at = |start: u64, block: u64| -> Vec<Access> {
        let of = |rank: u64| Access::strided(start + rank * block, block, &[]).unwrap();
        (0..4).map(of).collect()
    };
    let empty = vec![Access::default(); 4];
    let text = line(&at(0, 10)) + &line(&at(0, 11)) + &line(&at(400, 10)) + &line(&empty);
    let text = text + &call(None, Err(LeftOut::Unknown)).to_line();
    let trace = parsed(&text);
    let (kinds, not) = alike(&trace);
    let lines: Vec<_> = kinds.iter().map(|kind| kind.lines.clone()).collect();
    assert_eq!(lines, [vec![1, 3], vec![2]]);
    assert_eq!((not.empty, not.irregular, not.unknown), (1, 0, 1));
}

#[test]
fn a_replay_has_the_layout_of_the_machine_and_tells_that_of_the_capture() {
    let captured = CapturedAccesses::of(&array_blocks(64, 4));
    let hints = "forebay_locks=server;striping_unit=65536;striping_factor=3";
    let trace = parsed(&call(Some(&arrangement(hints)), Ok(&captured)).to_line());
    let (calls, _) = alike(&trace);
    let replay = Replay::new(&calls[0], ("lustre", &system()), &[8]).unwrap();
    let tables = replay.tables(&replay.run(&mut || ()));
    assert!(
        tables.contains("granule 65536 bytes, servers 3"),
        "{tables}"
    );
    assert!(tables.contains("machine: lustre: 64 servers"), "{tables}");
}

/// Also where processes access the same bytes, which are no more bytes of the file.
#[test]
fn granules_that_nobody_accesses_are_none_however_many_processes_there_are() {
    let granule = system().granule_bytes;
    let same = Access::strided(0, granule, &[(2, 100 * granule)]).unwrap();
    let trace = parsed(&line(&vec![same; 8]));
    let (calls, _) = alike(&trace);
    let replay = Replay::new(&calls[0], ("lustre", &system()), &[8, 1024]).unwrap();
    for under in replay.run(&mut || ()) {
        for point in under.points {
            // Each of the two is in three domains at most.
            assert!(point.write.requests <= 6, "{point:?}");
        }
    }
}

#[test]
fn a_call_that_would_not_fit_into_memory_is_refused_before_it_is_made() {
    let mut irregular = Access::default();
    for n in 0..30_000 {
        irregular.append(n * (n + 7) * 8, 4, &[]).unwrap();
    }
    let trace = parsed(&line(&vec![irregular; 2]));
    let (calls, _) = alike(&trace);
    let refused = Replay::new(&calls[0], ("lustre", &system()), &[16_384]).unwrap_err();
    assert!(refused.to_string().contains("too much memory"), "{refused}");
}

#[test]
fn granules_that_nobody_accesses_are_not_written() {
    let granule = system().granule_bytes;
    let sparse: Vec<Access> = (0..8)
        .map(|rank| Access::strided(rank * granule * 1000, granule, &[]).unwrap())
        .collect();
    let trace = parsed(&line(&sparse));
    let (calls, _) = alike(&trace);
    let replay = Replay::new(&calls[0], ("lustre", &system()), &[8]).unwrap();
    for under in replay.run(&mut || ()) {
        for point in under.points {
            assert_eq!(point.write.bytes, 8 * granule);
            assert!(point.write.requests <= 8, "{point:?}");
            assert_eq!(point.read.bytes, 8 * granule);
        }
    }
}
