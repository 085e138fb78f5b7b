//! Threads that do the same side by side. How many there may be is for the system to say.

use std::thread::{Builder, Scope};

/// Starts a thread in `scope` for each of `all`, which does `work` with it, until the system gives no more (EAGAIN: a limit
/// of the user or of a container). The rest is dropped. Gives the number of threads that were started: the caller goes on
/// with so many, and must be able to do the work itself if it is 0.
pub fn start_threads<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    all: impl IntoIterator<Item = T>,
    work: impl Fn(T) + Copy + Send + 'scope,
) -> usize {
    let mut started = 0;
    for one in all {
        let thread = Builder::new().spawn_scoped(scope, move || work(one));
        if thread.is_err() {
            break;
        }
        started += 1;
    }
    started
}

#[cfg(test)]
mod tests {
    use super::start_threads;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn who_gets_no_thread_is_told_so_and_goes_on() {
        let test = "threads::tests::who_gets_no_thread_is_told_so_and_goes_on";
        let done = AtomicUsize::new(0);
        let start = || {
            std::thread::scope(|scope| {
                start_threads(scope, 1..=3, |n| {
                    done.fetch_add(n, Ordering::Relaxed);
                })
            })
        };
        forebay_testkit::without_threads(test, || assert_eq!(start(), 0));
        if done.load(Ordering::Relaxed) == 0 && std::env::var_os("RUST_MIN_STACK").is_none() {
            assert_eq!((start(), done.into_inner()), (3, 6));
        }
    }
}
