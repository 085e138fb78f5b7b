//! Reads sizes as people write them. `forebay-report` formats them; this module adds rates and durations.

use std::time::Duration;

pub use forebay_report::units::{bytes, count, number};

/// `312 MiB/s`; a dash if the time is zero.
pub fn rate(n: u64, time: Duration) -> String {
    forebay_report::units::rate(n, time.as_secs_f64())
}

/// `850 ms`, `12.3 s`, `4 min 05 s`, `2 h 03 min`.
pub fn duration(time: Duration) -> String {
    forebay_report::units::seconds(time.as_secs_f64())
}

/// Reads `4096`, `64K`, `1.5G` or `200MiB` as bytes. Units are powers of 1024.
///
/// # Errors
/// A message that says what is wrong with the text.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_uppercase();
    let power = match unit.trim_end_matches("IB").trim_end_matches('B') {
        "" => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        "P" => 5,
        _ => return Err(format!("unknown unit `{unit}`: use K, M, G, T or P")),
    };
    let value: f64 = number
        .parse()
        .map_err(|_| format!("`{text}` is no size: write it like 4096, 64K or 1.5G"))?;
    Ok((value * 1024f64.powi(power)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_change_unit_before_they_would_show_1024() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.0 KiB");
        assert_eq!(bytes(1024 * 1024 - 1), "1.0 MiB");
        assert_eq!(bytes(150 << 20), "150 MiB");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("64K"), Ok(65536));
        assert_eq!(parse_bytes("1.5GiB"), Ok(3 << 29));
        assert_eq!(parse_bytes("2 MB"), Ok(2 << 20));
        assert!(parse_bytes("many").is_err());
        assert!(parse_bytes("5X").is_err());
        assert!(parse_bytes("").is_err());
    }

    #[test]
    fn a_rate_over_no_time_is_a_dash() {
        assert_eq!(rate(5, Duration::ZERO), "-");
        assert_eq!(rate(0, Duration::from_secs(1)), "-");
        assert_eq!(rate(10 << 20, Duration::from_secs(2)), "5.0 MiB/s");
    }

    #[test]
    fn durations_read_like_a_clock() {
        assert_eq!(duration(Duration::from_millis(850)), "850 ms");
        assert_eq!(duration(Duration::from_millis(12_340)), "12.3 s");
        assert_eq!(duration(Duration::from_secs(245)), "4 min 05 s");
        assert_eq!(duration(Duration::from_secs(7380)), "2 h 03 min");
    }
}
