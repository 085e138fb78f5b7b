//! Who has a lease on a file makes those wait who open it, and nobody else.

use super::{HOSTILE, VICTIM, as_root, give, python, run_of_victim};
use crate::stage::{Stage, finish, kill, start, wait};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};

/// Takes leases on files, says when somebody waits for each, and gives them back when it is told so.
const HOLDER: &str = "import fcntl, os, signal, sys, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
files = [os.open('own/pfs/l%d' % n, os.O_RDWR) for n in range(4)]
for fd in files: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
open('said/held', 'w').close()
while any(fcntl.fcntl(fd, fcntl.F_GETLEASE) == fcntl.F_WRLCK for fd in files): time.sleep(0.01)
open('said/asked', 'w').close()
while not os.path.exists('said/give'): time.sleep(0.01)
for fd in files: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)";

#[test]
fn who_waits_for_leases_of_others_holds_up_no_other_request() {
    as_root!();
    let stage = Stage::new();
    fs::set_permissions(&stage.dir, Permissions::from_mode(0o755)).unwrap();
    let mut command = run_of_victim(&stage, VICTIM);
    let pfs = stage.path("own/pfs");
    for dir in [stage.path("own"), pfs.clone()] {
        fs::set_permissions(dir, Permissions::from_mode(0o777)).unwrap();
    }
    give(&stage.path("said"), HOSTILE);
    fs::set_permissions(stage.path("said"), Permissions::from_mode(0o777)).unwrap();
    for n in 0..4 {
        let file = pfs.join(format!("l{n}"));
        fs::write(&file, format!("{n}\n")).unwrap();
        chown(&file, Some(HOSTILE), Some(HOSTILE)).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    }
    let mut holder = start(python(&stage, HOSTILE, HOLDER));
    let mut ended = false;
    stage.wait_for("leases", || {
        ended = holder.try_wait().unwrap().is_some();
        ended || stage.path("said/held").exists()
    });
    forebay_testkit::skip_unless!(!ended, "the PFS of the test knows no leases");
    // More than the bridge has threads for requests that do not wait.
    let script =
        "cd own/pfs; for n in 0 1 2 3; do cat l$n > ../../said/$n & waiting=\"$waiting $!\"; done
        until test -e ../../said/asked; do sleep 0.01; done
        echo mine > mine; mkdir dir; cat mine; ls
        for pid in $waiting; do kill -0 $pid; done; echo they wait
        : > ../../said/give; wait; cat ../../said/[0-3]";
    command.args(["--", "sh", "-ec", script]);
    let said = finish(command);
    kill("KILL", holder.id());
    wait(holder);
    said.ends_with(0)
        .prints("mine\ndir\nl0\nl1\nl2\nl3\nmine\nthey wait\n0\n1\n2\n3\n");
}
