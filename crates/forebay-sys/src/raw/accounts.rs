//! Look-ups that the C library makes in its own files: users, and the time zone of this machine.

use std::ffi::CStr;

/// A moment in the time zone of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalTime {
    /// Year of the common era.
    pub year: i64,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
    /// Seconds since midnight.
    pub second_of_day: u32,
}

/// The moment `ns` nanoseconds after the beginning of 1970 UTC, in the time zone of this machine.
pub fn local_time(ns: u64) -> LocalTime {
    let seconds = i64::try_from(ns / 1_000_000_000).unwrap_or(0);
    // SAFETY: zeroes are a valid value of this plain structure. The call fills it in, or leaves the zeroes.
    let tm = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        libc::localtime_r(&raw const seconds, &raw mut tm);
        tm
    };
    LocalTime {
        year: i64::from(tm.tm_year) + 1900,
        month: tm.tm_mon.unsigned_abs() + 1,
        day: tm.tm_mday.unsigned_abs(),
        second_of_day: (tm.tm_hour * 3600 + tm.tm_min * 60 + tm.tm_sec).unsigned_abs(),
    }
}

/// Name of a user, if the system knows it.
pub fn user_name(uid: u32) -> Option<String> {
    let mut buffer = [0; 16 << 10];
    // SAFETY: zeroes are a valid value of the structure. The call fills in the structure and the buffer, whose length
    // is given. The name lies in the buffer and ends with a NUL.
    unsafe {
        let mut entry: libc::passwd = std::mem::zeroed();
        let mut found = std::ptr::null_mut();
        libc::getpwuid_r(
            uid,
            &raw mut entry,
            buffer.as_mut_ptr(),
            buffer.len(),
            &raw mut found,
        );
        (!found.is_null()).then(|| CStr::from_ptr(entry.pw_name).to_string_lossy().into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_has_a_name_and_a_user_that_nobody_has_made_has_none() {
        assert_eq!(user_name(0).as_deref(), Some("root"));
        assert_eq!(user_name(3_999_999_999), None);
    }

    #[test]
    fn a_moment_is_that_of_the_clock_within_a_time_zone() {
        // Noon of 29 February 2024 in Greenwich; no zone is further off than 14 hours.
        let there = local_time(1_709_208_000 * 1_000_000_000);
        assert_eq!(there.year, 2024);
        assert!([(2, 28), (2, 29), (3, 1)].contains(&(there.month, there.day)));
        assert!(there.second_of_day < 86_400);
        // A moment too large for the calendar still gives a valid date.
        let beyond = local_time(u64::MAX);
        assert!((1..=12).contains(&beyond.month));
    }
}
