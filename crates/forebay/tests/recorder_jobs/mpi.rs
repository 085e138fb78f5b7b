//! MPI programs on MPICH and Open MPI: ranks, shared and partly shared files, launches, and ranks that die.

use crate::common::{find_program, need};
use crate::job::{Job, only, record, record_command, write};
use crate::stage::{Said, Stage, finish};
use std::fs;
use std::process::Command;

/// A rank that writes a file of its own, one of all ranks, and one of ranks 2 and 3; then it ends as told.
const PROGRAM: &str = r#"
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void put(const char *name, long offset, size_t bytes) {
    char buffer[4096];
    memset(buffer, 'x', sizeof buffer);
    int fd = open(name, O_WRONLY | O_CREAT, 0644);
    if (fd < 0 || pwrite(fd, buffer, bytes, offset) != (ssize_t)bytes || close(fd) != 0) abort();
}

int main(int argc, char **argv) {
    int rank, ranks;
    char own[64];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    snprintf(own, sizeof own, "%s.own.%d", argv[1], rank);
    put(own, 0, 100 + rank);
    snprintf(own, sizeof own, "%s.all", argv[1]);
    put(own, rank * 1000L, 1000);
    snprintf(own, sizeof own, "%s.some", argv[1]);
    if (rank >= 2) put(own, rank * 10L, 10);
    MPI_Barrier(MPI_COMM_WORLD);
    if (strcmp(argv[2], "abort") == 0 && rank == 1) MPI_Abort(MPI_COMM_WORLD, 9);
    if (strcmp(argv[2], "kill") == 0 && rank == 1) raise(SIGKILL);
    if (argv[2][0] == '/' && rank == 1) execl(argv[2], argv[2], NULL);
    if (strcmp(argv[2], "end") != 0) MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
"#;

struct Mpi {
    compiler: &'static str,
    launcher: &'static str,
}

const MPICH: Mpi = Mpi {
    compiler: "mpicc.mpich",
    launcher: "mpiexec.mpich -n 4",
};
const OPEN_MPI: Mpi = Mpi {
    compiler: "mpicc.openmpi",
    launcher: "OMPI_MCA_btl_vader_single_copy_mechanism=none \
               mpiexec.openmpi --allow-run-as-root --oversubscribe -n 4",
};

impl Mpi {
    /// A stage with the program; `None` if this MPI is not installed.
    fn stage(&self) -> Option<Stage> {
        if let Err(reason) = find_program(self.compiler) {
            forebay_testkit::skip(&reason);
            return None;
        }
        let stage = Stage::new();
        fs::write(stage.path("sim.c"), PROGRAM).unwrap();
        let built = Command::new(self.compiler)
            .args(["-O1", "-o"])
            .args([stage.path("sim"), stage.path("sim.c")])
            .output()
            .unwrap();
        assert!(
            built.status.success(),
            "{}",
            String::from_utf8_lossy(&built.stderr)
        );
        Some(stage)
    }

    fn launch(&self, name: &str, end: &str) -> String {
        format!("{} ./sim {name} {end}", self.launcher)
    }
}

/// Checks what four ranks of the program have left in the log, as ranks from `first` on.
#[track_caller]
fn holds_launch(job: &Job, stage: &Stage, name: &str, first: i64) {
    for rank in 0..4 {
        let own = job.bytes(stage, &format!("{name}.own.{rank}"));
        assert_eq!(own, only(first + rank, 0, 100 + rank), "{name}.own.{rank}");
    }
    assert_eq!(job.bytes(stage, &format!("{name}.all")), only(-1, 0, 4000));
    let some = [(first + 2, (0, 10)), (first + 3, (0, 10))].into();
    assert_eq!(job.bytes(stage, &format!("{name}.some")), some);
}

fn ranks_and_sharing(mpi: &Mpi) {
    let Some(stage) = mpi.stage() else { return };
    record(&stage, &mpi.launch("a", "end")).ends_with(0);
    let job = Job::of(&stage);
    assert_eq!(job.log.job.nprocs, 4);
    assert_eq!((job.line("launches"), job.line("mpi")), ("4", "1"));
    holds_launch(&job, &stage, "a", 0);
    assert!(job.log.exe.starts_with("./sim a end"), "{}", job.log.exe);
    let facts = job.log.facts().unwrap().unwrap();
    let id = darshan_log::record_id(stage.path("a.some").as_os_str().as_encoded_bytes());
    let some = facts.file(id).unwrap();
    assert_eq!((some.ranks, some.lowest_rank, some.highest_rank), (2, 2, 3));
}

#[test]
fn ranks_and_sharing_on_mpich() {
    ranks_and_sharing(&MPICH);
}

#[test]
fn ranks_and_sharing_on_open_mpi() {
    ranks_and_sharing(&OPEN_MPI);
}

fn a_script_with_two_launches(mpi: &Mpi) {
    let Some(stage) = mpi.stage() else { return };
    let script = format!(
        "{}; {}; {}; {}",
        write("prep", 50),
        mpi.launch("a", "end"),
        mpi.launch("b", "end"),
        write("post", 50),
    );
    record(&stage, &script).ends_with(0);
    let job = Job::of(&stage);
    assert_eq!(job.line("launches"), "4,4");
    holds_launch(&job, &stage, "a", 0);
    holds_launch(&job, &stage, "b", 4);
    assert_eq!(job.bytes(&stage, "prep"), only(8, 0, 50));
    // It ran after `prep`, so both are one worker.
    assert_eq!(job.bytes(&stage, "post"), only(8, 0, 50));
    assert_eq!(job.log.job.nprocs, 9);
    assert_eq!(job.line("outside_launches"), "1");
}

#[test]
fn prep_two_launches_and_post_on_mpich() {
    a_script_with_two_launches(&MPICH);
}

#[test]
fn prep_two_launches_and_post_on_open_mpi() {
    a_script_with_two_launches(&OPEN_MPI);
}

fn a_rank_that_dies(mpi: &Mpi) {
    for end in ["kill", "abort"] {
        let Some(stage) = mpi.stage() else { return };
        let said = record(&stage, &mpi.launch("a", end)).tells("forebay: log ");
        assert_ne!(said.code, 0, "{}", said.err);
        let job = Job::of(&stage);
        assert_eq!(job.log.job.nprocs, 4, "{end}");
        holds_launch(&job, &stage, "a", 0);
        let abnormal: u32 = job.line("abnormal_ends").parse().unwrap_or(0);
        assert!(abnormal >= 1, "{end}: {:?}", job.line("abnormal_ends"));
        assert_ne!(job.line("exit"), "code 0");
    }
}

#[test]
fn killed_ranks_and_mpi_abort_on_mpich() {
    a_rank_that_dies(&MPICH);
}

#[test]
fn killed_ranks_and_mpi_abort_on_open_mpi() {
    a_rank_that_dies(&OPEN_MPI);
}

#[test]
fn a_rank_in_a_shell_with_helpers_is_one_rank() {
    need!("mpiexec.mpich", "mpicc.mpich");
    let Some(stage) = MPICH.stage() else { return };
    let wrapper = format!(
        "{}; ./sim a end; gzip -k w.$PMI_RANK",
        write("w.$PMI_RANK", 13)
    );
    fs::write(stage.path("wrapper.sh"), wrapper).unwrap();
    let script = format!("{} bash wrapper.sh", MPICH.launcher);
    record(&stage, &script).ends_with(0);
    let job = Job::of(&stage);
    assert_eq!(job.log.job.nprocs, 4);
    holds_launch(&job, &stage, "a", 0);
    for rank in 0..4 {
        // gzip read everything that dd wrote.
        let bytes = job.bytes(&stage, &format!("w.{rank}"));
        assert_eq!(bytes, only(rank, 13, 13), "w.{rank}");
    }
}

/// Open MPI on four nodes of `nodes.sh`. (MPICH 4.0 hangs there without the recorder as well, in every second run.) A launcher may wait for
/// ever for a node that is gone.
const OVER_NODES: &str = "OMPI_MCA_plm_rsh_agent=./remote OMPI_MCA_btl=tcp,self \
    timeout -k 1 20 mpiexec.openmpi --allow-run-as-root -x LD_PRELOAD -x FOREBAY_RECORD \
    -host 10.77.0.1,10.77.0.2,10.77.0.3,10.77.0.4 -n 4";

/// Runs four ranks of the program on four nodes, under one `forebay record` that has its tables where all nodes see them.
fn over_nodes(stage: &Stage, end: &str) -> Said {
    let script = format!("{OVER_NODES} {} a {end}", stage.path("sim").display());
    let record = record_command(stage, &script);
    let nodes = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/nodes.sh");
    let mut command = stage.command("timeout");
    command
        .args(["-k", "5", "100", "bash", nodes])
        .args([stage.path(""), "4".into()])
        .arg(record.get_program())
        .args(record.get_args());
    finish(command)
}

#[test]
fn ranks_on_four_nodes_leave_one_log() {
    forebay_testkit::skip_unless!(
        forebay_testkit::is_root(),
        "only root makes namespaces of networks"
    );
    need!("ip", "nsenter", "unshare");
    let Some(stage) = OPEN_MPI.stage() else {
        return;
    };
    over_nodes(&stage, "end").ends_with(0);
    let job = Job::of(&stage);
    assert_eq!(job.log.job.nprocs, 4);
    holds_launch(&job, &stage, "a", 0);
    assert_eq!((job.line("launches"), job.line("nnodes")), ("4", "4"));
    assert_eq!(job.line("hosts"), "node1,node2,node3,node4");

    // A node ends, with all that runs on it, while the others wait for its rank.
    let Some(stage) = OPEN_MPI.stage() else {
        return;
    };
    let said = over_nodes(&stage, stage.path("fail").to_str().unwrap());
    assert_ne!(said.code, 0, "{}", said.err);
    let job = Job::of(&stage);
    assert_eq!(job.log.job.nprocs, 4, "{}", said.err);
    holds_launch(&job, &stage, "a", 0);
    assert_eq!(job.line("nnodes"), "4");
}
