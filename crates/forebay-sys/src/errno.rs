//! The one error type of system calls.

use std::io;

pub use rustix::io::Errno;

/// Result of a system call.
pub type Sys<T> = Result<T, Errno>;

/// The error number in an error of the standard library. EIO if it has none; for example, after a write of 0 bytes.
pub fn errno_of(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_number_survives_the_standard_library_and_an_error_without_one_is_eio() {
        let there = io::Error::from(Errno::NOSPC);
        assert_eq!(errno_of(there), Errno::NOSPC);
        assert_eq!(errno_of(io::ErrorKind::WriteZero.into()), Errno::IO);
        assert_eq!(errno_of(io::Error::from_raw_os_error(0)), Errno::IO);
    }

    #[test]
    fn an_errno_reads_like_an_error_of_the_standard_library() {
        assert_eq!(
            Errno::NOENT.to_string(),
            "No such file or directory (os error 2)"
        );
    }
}
