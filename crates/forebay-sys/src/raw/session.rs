//! Starts a program in a session of its own, and splits this process in two. The code here runs after a fork.

use super::check;
use crate::Sys;
use crate::process::assert_one_thread;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Splits this process in two. Gives the id of the new process in the old one, and `None` in the new one.
///
/// # Errors
/// EAGAIN or ENOMEM: there is no room for another process.
///
/// # Panics
/// If this process has more than one thread: only one goes on in the new process, and locks of the others stay locked.
pub fn fork() -> Sys<Option<u32>> {
    assert_one_thread();
    // SAFETY: the process has one thread, so the new process may do whatever this one may.
    let pid = check(unsafe { libc::fork() })?;
    Ok((pid != 0).then_some(pid.unsigned_abs()))
}

/// Makes the command start in a session of its own, with only its standard streams open. So no terminal can signal it,
/// it outlives this process, and it keeps no inherited descriptor open.
pub fn in_new_session(command: &mut Command) {
    // SAFETY: these calls are safe between fork and exec. They cannot fail for a process that was just forked, and the
    // program would work without them.
    unsafe {
        command.pre_exec(|| {
            let _ = rustix::process::setsid();
            libc::close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int);
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::{FdFlags, fcntl_setfd};
    use std::process::Stdio;

    #[test]
    fn a_program_in_a_new_session_leads_it_and_has_only_its_standard_streams() {
        let leaked = std::fs::File::open("/dev/null").unwrap();
        fcntl_setfd(&leaked, FdFlags::empty()).unwrap();
        let mut command = Command::new("/bin/sh");
        // Field 6 of `stat` is the session. `ls` opens the directory, so it lists one further descriptor.
        command
            .args([
                "-c",
                "read -r _ _ _ _ _ session _ </proc/self/stat; echo $$ $session; ls /proc/$$/fd",
            ])
            .stdin(Stdio::null());
        in_new_session(&mut command);
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines = text.lines();
        let (own, session) = lines.next().unwrap().split_once(' ').unwrap();
        assert_eq!(own, session);
        assert_eq!(lines.collect::<Vec<_>>(), ["0", "1", "2"]);
    }

    #[test]
    fn a_program_that_is_not_there_is_said_to_be_missing() {
        let mut command = Command::new("/nowhere/program");
        in_new_session(&mut command);
        let failed = command.spawn().unwrap_err();
        assert_eq!(failed.kind(), std::io::ErrorKind::NotFound);
    }
}
