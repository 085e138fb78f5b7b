//! Checks the calls on events and processes.

use forebay_sys::{self as sys, Epoll, Errno, Process};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const READABLE: u32 = libc::EPOLLIN as u32;

#[test]
fn an_epoll_reports_the_keys_of_those_that_are_ready() {
    let epoll = Epoll::new().unwrap();
    let (a, b) = (sys::eventfd().unwrap(), sys::eventfd().unwrap());
    epoll.add(a.as_fd(), u64::MAX, READABLE).unwrap();
    epoll.add(b.as_fd(), 2, READABLE).unwrap();
    assert_eq!(epoll.add(b.as_fd(), 3, READABLE), Err(Errno::EXIST));
    let mut events = vec![sys::Event { key: 9, bits: 9 }];
    epoll.wait(0, &mut events).unwrap();
    assert_eq!(events, []);
    sys::notify(a.as_fd());
    sys::notify(a.as_fd());
    epoll.wait(-1, &mut events).unwrap();
    let event = sys::Event {
        key: u64::MAX,
        bits: READABLE,
    };
    assert_eq!(events, [event]);
    sys::drain(a.as_fd());
    assert!(!sys::is_readable(a.as_fd()));
    // The counter is 0 already, and the call does not wait.
    sys::drain(a.as_fd());
    sys::notify(b.as_fd());
    epoll.remove(b.as_fd()).unwrap();
    assert_eq!(epoll.remove(b.as_fd()), Err(Errno::NOENT));
    epoll.wait(0, &mut events).unwrap();
    assert_eq!(events, []);
}

#[test]
fn a_wait_ends_in_time_and_not_before() {
    let epoll = Epoll::new().unwrap();
    let begin = Instant::now();
    epoll.wait(30, &mut Vec::new()).unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(30));
}

#[test]
fn no_more_events_come_at_once_than_are_promised() {
    let epoll = Epoll::new().unwrap();
    let all: Vec<OwnedFd> = (0..sys::EVENTS_PER_WAIT + 6)
        .map(|_| sys::eventfd().unwrap())
        .collect();
    for (key, fd) in all.iter().enumerate() {
        epoll.add(fd.as_fd(), key as u64, READABLE).unwrap();
        sys::notify(fd.as_fd());
    }
    let mut events = Vec::new();
    epoll.wait(-1, &mut events).unwrap();
    assert_eq!(events.len(), sys::EVENTS_PER_WAIT);
}

#[test]
fn a_wait_for_two_descriptors_ends_with_either() {
    let (a, b) = (sys::eventfd().unwrap(), sys::eventfd().unwrap());
    sys::notify(b.as_fd());
    sys::wait_either(a.as_fd(), b.as_fd());
    assert!(!sys::is_readable(a.as_fd()));
    assert!(sys::is_readable(b.as_fd()));
    // A closed pipe is readable, too.
    let (reader, writer) = sys::pipe().unwrap();
    drop(writer);
    sys::wait_either(a.as_fd(), reader.as_fd());
    assert!(sys::is_readable(reader.as_fd()));
}

/// A process that lives until its standard input ends.
fn child() -> Child {
    let mut command = Command::new("cat");
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    command.spawn().unwrap()
}

#[test]
fn a_hold_on_a_process_tells_when_it_has_ended() {
    let (mut first, mut second) = (child(), child());
    let open = |child: &Child| Process::open(child.id()).unwrap();
    let holds = [open(&first), open(&second)];
    assert!(!holds[0].has_ended());
    forebay_sys::wait_any(&holds, Duration::from_millis(1));
    drop(first.stdin.take());
    forebay_sys::wait_any(&holds, Duration::from_secs(3600));
    assert!(holds[0].has_ended());
    assert!(holds[0].try_clone().unwrap().has_ended());
    assert!(!holds[1].has_ended());
    drop(second.stdin.take());
    holds[1].await_end();
    first.wait().unwrap();
    second.wait().unwrap();
    // The answer stays the same after the process was reaped.
    assert!(holds[0].has_ended());
}

#[test]
fn what_is_no_process_cannot_be_held() {
    let errno = |id| Process::open(id).unwrap_err();
    assert_eq!(errno(0), Errno::INVAL);
    assert_eq!(errno(u32::MAX), Errno::INVAL);
    // Larger than any process id.
    assert_eq!(errno(i32::MAX as u32), Errno::SRCH);
}

#[test]
fn an_ended_child_is_left_to_be_waited_for() {
    let mut child = child();
    drop(child.stdin.take());
    assert_eq!(sys::await_end(child.id()), Ok(()));
    assert_eq!(sys::await_end(child.id()), Ok(()));
    assert!(child.wait().unwrap().success());
    assert_eq!(sys::await_end(child.id()), Err(Errno::CHILD));
    assert_eq!(sys::await_end(0), Err(Errno::INVAL));
}

#[test]
fn the_limit_of_descriptors_goes_as_far_as_it_may() {
    let limit = sys::raise_descriptor_limit();
    assert!(limit > 0);
    assert_eq!(sys::raise_descriptor_limit(), limit);
    let table = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = table.lines().find(|l| l.starts_with("Max open files"));
    let soft = line.unwrap().split_whitespace().nth(3).unwrap().to_owned();
    assert!(soft == limit.to_string() || soft == "unlimited" && limit == u64::MAX);
}

#[test]
fn standard_input_can_be_taken_over_once() {
    let before = std::fs::read_link("/proc/self/fd/0").unwrap();
    let taken = sys::take_stdin().unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&taken));
    assert_eq!(std::fs::read_link(path).unwrap(), before);
    let now = std::fs::read_link("/proc/self/fd/0").unwrap();
    assert_eq!(now, std::path::Path::new("/dev/null"));
}

#[test]
fn a_thread_moves_to_another_processor_or_is_told_that_there_is_none() {
    let cores = std::thread::available_parallelism().unwrap().get();
    match sys::move_to_other_cpu() {
        Ok(()) => assert!(cores > 1),
        Err(e) => assert_eq!((e, cores), (Errno::INVAL, 1)),
    }
    // The set of allowed processors is unchanged.
    assert_eq!(std::thread::available_parallelism().unwrap().get(), cores);
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    assert!(set.is_set(sys::cpu() as usize));
}
