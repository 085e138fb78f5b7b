//! What PyDarshan makes of our logs. scripts/setup.sh test installs it.

use crate::stage::{Stage, image};
use std::path::Path;
use std::process::{Command, Output};

fn run(python: &Path, arguments: &[&str]) -> Output {
    Command::new("timeout")
        .arg("300")
        .arg(python)
        .args(arguments)
        .env("MPLBACKEND", "Agg")
        .output()
        .unwrap()
}

fn a_job(stage: &mut Stage) {
    for rank in 0..4 {
        let image = image(100 + rank, 50, "sim").rank(rank, 4);
        stage.table(&image, |does| {
            does.open("/d/all", None, 1);
            does.write("/d/all", i64::from(rank) * 1000, 1000, 200);
            does.open(&format!("/d/{rank}"), Some(77), 300);
            does.read(&format!("/d/{rank}"), 0, 77, 400);
            if rank > 1 {
                does.write("/d/some", 0, 5, 900);
            }
        });
    }
}

const SCRIPT: &str = r#"
import sys, darshan
report = darshan.DarshanReport(sys.argv[1], read_all=True)
counters = report.records["POSIX"].to_df()["counters"]
names = report.name_records
for row in counters.sort_values(["id", "rank"]).itertuples():
    print(names[row.id], row.rank, row.POSIX_OPENS, row.POSIX_BYTES_READ, row.POSIX_BYTES_WRITTEN)
print(report.metadata["job"]["nprocs"], report.metadata["job"]["metadata"]["nnodes"], report.metadata["exe"])
heat = report.heatmaps["POSIX"].to_df(["read", "write"])
print(heat.shape, int(heat.to_numpy().sum()))
"#;

#[test]
fn pydarshan_reads_a_log_and_its_summary_has_nothing_to_complain_of() {
    let Some(folder) = forebay_testkit::pydarshan() else {
        return;
    };
    let python = folder.join("bin/python");
    let mut stage = Stage::new();
    a_job(&mut stage);
    let (collected, _) = stage.collect();
    let log = collected.log.to_str().unwrap();
    let said = run(&python, &["-W", "error", "-c", SCRIPT, log]);
    let text = String::from_utf8(said.stdout).unwrap();
    assert!(
        said.status.success(),
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
    let mut lines: Vec<&str> = text.lines().collect();
    let tail = lines.split_off(lines.len() - 2);
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "/d/0 0 1 77 0",
            "/d/1 1 1 77 0",
            "/d/2 2 1 77 0",
            "/d/3 3 1 77 0",
            "/d/all -1 4 0 4000",
            "/d/some 2 0 0 5",
            "/d/some 3 0 0 5",
        ]
    );
    assert_eq!(tail, ["4 1 sim -x", "(4, 21) 4318"]);
    let html = stage.dir.join("summary.html");
    let arguments = [
        "-m",
        "darshan",
        "summary",
        log,
        "--output",
        html.to_str().unwrap(),
    ];
    let said = run(&python, &arguments);
    let complaints = String::from_utf8_lossy(&said.stderr);
    assert!(
        said.status.success() && complaints.trim().is_empty(),
        "{complaints}"
    );
    assert!(html.is_file());
}
