//! A job on four nodes, of which one has a slow mount: the report names it.

use crate::common::{find_program, need};
use crate::job::record_command;
use crate::stage::{Stage, finish};
use serde_json::Value;
use std::fs;
use std::process::Command;

/// A rank that writes its part of a file that all share, in 100 requests.
const PROGRAM: &str = r#"
#include <fcntl.h>
#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    static char buffer[4096];
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int fd = open("pfs/all", O_WRONLY | O_CREAT, 0644);
    for (long i = 0; i < 100; i++)
        if (pwrite(fd, buffer, sizeof buffer, (rank * 100 + i) * (long)sizeof buffer) != sizeof buffer) abort();
    if (close(fd) != 0) abort();
    MPI_Finalize();
    return 0;
}
"#;

/// Mounts the stand-in for a PFS on each node, where a call takes so many microseconds, and runs the rest of its arguments.
const MOUNT: &str = r#"
pfs=$1 latencies=$2
shift 2
mkdir -p pfs
n=0
for latency in $latencies; do
    n=$((n + 1))
    mkfifo "ready$n"
    ./remote "10.77.0.$n" "$pfs --latency-us $latency pfs" </dev/null >"ready$n" &
    read -r said <"ready$n"
    rm "ready$n"
    [ "$said" = ready ] || exit 9
done
exec "$@"
"#;

/// The report of a job in which a call takes so many microseconds on each node.
fn report(latencies: &str) -> Value {
    let stage = Stage::new();
    fs::write(stage.path("sim.c"), PROGRAM).unwrap();
    fs::write(stage.path("mount.sh"), MOUNT).unwrap();
    let mut compiler = Command::new("mpicc.openmpi");
    let compiler = compiler.args(["-O1", "-o"]);
    let built = compiler.args([stage.path("sim"), stage.path("sim.c")]);
    assert!(built.status().unwrap().success());
    let pfs = forebay_testkit::built::executable("forebay-slow-pfs");
    let script = format!(
        "OMPI_MCA_plm_rsh_agent=./remote OMPI_MCA_btl=tcp,self timeout -k 1 60 mpiexec.openmpi \
         --allow-run-as-root -x LD_PRELOAD -x FOREBAY_RECORD \
         -host 10.77.0.1,10.77.0.2,10.77.0.3,10.77.0.4 -n 4 {}",
        stage.path("sim").display()
    );
    let record = record_command(&stage, &script);
    let mut command = stage.command("timeout");
    command
        .args(["-k", "5", "100", "bash"])
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/programs/nodes.sh"
        ))
        .args([stage.path(""), "4".into()])
        .args(["bash".into(), stage.path("mount.sh"), pfs])
        .arg(latencies)
        .arg(record.get_program())
        .args(record.get_args());
    finish(command).ends_with(0);
    let said = finish(stage.forebay(&["report", "job.darshan", "--json"])).ends_with(0);
    let mut jobs: Value = serde_json::from_str(&said.out).unwrap();
    jobs[0].take()
}

fn slow_node(report: &Value) -> Option<&Value> {
    let mut findings = report["findings"].as_array().unwrap().iter();
    findings.find(|one| one["code"] == "slow-node")
}

#[test]
fn the_node_whose_mount_is_slow_is_named_with_what_its_rank_loses() {
    forebay_testkit::skip_unless!(
        forebay_testkit::is_root(),
        "only root makes namespaces of networks"
    );
    need!("ip", "nsenter", "unshare");
    if let Err(reason) = find_program("mpicc.openmpi") {
        return forebay_testkit::skip(&reason);
    }
    forebay_testkit::skip_unless!(
        forebay_testkit::built::executable("forebay-slow-pfs").exists(),
        "no forebay-slow-pfs: cargo build -p forebay-benches makes it (make test does)"
    );
    let as_it_is = report("3000 3000 30000 3000");
    let slow = slow_node(&as_it_is).unwrap_or_else(|| panic!("no slow node: {as_it_is:#}"));
    let title = slow["title"].as_str().unwrap();
    assert!(title.starts_with("Node node3 is slow"), "{title}");
    let mended = report("3000 3000 3000 3000");
    assert_eq!(slow_node(&mended), None);
    let seconds = |report: &Value| report["slowest_rank"]["seconds"].as_f64().unwrap();
    let gained = seconds(&as_it_is) - seconds(&mended);
    let claimed = slow["seconds_lost"].as_f64().unwrap();
    // Other work on this machine makes some calls longer.
    assert!(
        (0.5..2.0).contains(&(claimed / gained)),
        "claimed {claimed} s, gained {gained} s"
    );
    println!("claimed {claimed:.2} s, gained {gained:.2} s");
}
