//! PyDarshan reads the logs of real jobs without a complaint, and finds what the programs did.

use crate::common::PYTHON;
use crate::job::{record, write};
use crate::stage::Stage;
use std::path::PathBuf;
use std::process::{Command, Output};

fn pydarshan() -> Option<PathBuf> {
    Some(forebay_testkit::pydarshan()?.join("bin/python"))
}

fn run(stage: &Stage, python: &PathBuf, arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "300"]).arg(python).args(arguments);
    command.env("MPLBACKEND", "Agg").current_dir(&stage.dir);
    command.output().unwrap()
}

const READ: &str = r#"
import darshan
report = darshan.DarshanReport("job.darshan", read_all=True)
counters = report.records["POSIX"].to_df()["counters"]
for row in counters.itertuples():
    name = report.name_records[row.id]
    if "/part." in name:
        print(name.rsplit("/", 1)[1], row.rank, row.POSIX_WRITES, row.POSIX_BYTES_WRITTEN)
job = report.metadata["job"]
print(job["nprocs"], job["metadata"]["exit"], "POSIX" in report.heatmaps)
"#;

#[test]
fn a_job_of_several_processes_is_read_and_summarised_without_a_warning() {
    let Some(python) = pydarshan() else { return };
    let stage = Stage::new();
    let ranks = format!(
        "for r in 0 1 2; do RANK=$r WORLD_SIZE=3 bash -c '{}; {PYTHON} -c \"print(open(\\\"part.$RANK\\\").read(3))\"' & done; wait",
        write("part.$RANK", 4096)
    );
    record(&stage, &ranks).ends_with(0);
    let said = run(&stage, &python, &["-W", "error", "-c", READ]);
    let errors = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success(), "{errors}");
    let text = String::from_utf8(said.stdout).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "3 code 0 True",
            "part.0 0 1 4096",
            "part.1 1 1 4096",
            "part.2 2 1 4096",
        ]
    );
    let arguments = [
        "-m",
        "darshan",
        "summary",
        "job.darshan",
        "--output",
        "job.html",
    ];
    let said = run(&stage, &python, &arguments);
    let errors = String::from_utf8_lossy(&said.stderr);
    assert!(
        said.status.success() && errors.trim().is_empty(),
        "{errors}"
    );
    assert!(stage.path("job.html").is_file());
}
