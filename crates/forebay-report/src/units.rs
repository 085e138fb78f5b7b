//! Sizes, rates, durations and shares as people read them.

const PREFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// A size, such as `1.5 GiB`. It is whole below 1 KiB.
pub fn bytes(n: u64) -> String {
    scaled(n as f64, "B")
}

/// A rate, such as `312 MiB/s`; a dash if there is nothing to divide.
pub fn rate(bytes: u64, seconds: f64) -> String {
    if bytes == 0 || seconds <= 0.0 {
        return "-".to_owned();
    }
    scaled(bytes as f64 / seconds, "B/s")
}

fn scaled(mut value: f64, unit: &str) -> String {
    let mut step = 0;
    // 1023.95 would be printed as 1024.0 of the smaller unit.
    while value >= 1023.95 && step + 1 < PREFIXES.len() {
        value /= 1024.0;
        step += 1;
    }
    let digits = usize::from(step > 0 && value < 99.95);
    format!("{value:.digits$} {}{unit}", PREFIXES[step])
}

/// A duration: `12 us`, `850 ms`, `12.3 s`, `4 min 05 s`, `2 h 03 min`.
pub fn seconds(s: f64) -> String {
    if s <= 0.0 {
        "0 s".to_owned()
    } else if s < 0.000_999_5 {
        format!("{:.0} us", s * 1e6)
    } else if s < 0.009_95 {
        format!("{:.1} ms", s * 1e3)
    } else if s < 0.999_5 {
        format!("{:.0} ms", s * 1e3)
    } else if s < 59.95 {
        format!("{s:.1} s")
    } else {
        let whole = s.round() as u64;
        if whole < 3600 {
            format!("{} min {:02} s", whole / 60, whole % 60)
        } else {
            // Rounded once: half a minute that came from rounding seconds is none.
            let minutes = (s / 60.0).round() as u64;
            format!("{} h {:02} min", minutes / 60, minutes % 60)
        }
    }
}

/// A number of things: `1 file`, `3,000 files`.
pub fn count(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", number(n), if n == 1 { one } else { many })
}

/// A number, such as `1,234,567`.
pub fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A share, such as `37 %`; `< 1 %` and `> 99 %` where rounding would say none or all.
pub fn percent(share: f64) -> String {
    let value = share * 100.0;
    if value > 0.0 && value < 0.5 {
        "< 1 %".to_owned()
    } else if (99.5..100.0).contains(&value) {
        "> 99 %".to_owned()
    } else {
        format!("{value:.0} %")
    }
}

/// The share of a part in a whole; 0 if the whole is 0.
pub fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// A date, such as `2024-12-19 18:35:57 UTC`, from seconds since 1970.
pub fn date(unix_seconds: f64) -> String {
    let total = unix_seconds.floor().clamp(-6e10, 2.5e11) as i64;
    let (days, second) = (total.div_euclid(86_400), total.rem_euclid(86_400));
    // Days to civil date after Howard Hinnant, "chrono-compatible low-level date algorithms": years begin in March.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_change_unit_before_they_would_show_1024() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.0 KiB");
        assert_eq!(bytes((1 << 20) - 1), "1.0 MiB");
        assert_eq!(bytes(150 << 20), "150 MiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(rate(10 << 20, 2.0), "5.0 MiB/s");
        assert_eq!(rate(5, 0.0), "-");
    }

    #[test]
    fn durations_read_like_a_clock() {
        assert_eq!(seconds(0.0), "0 s");
        assert_eq!(seconds(0.000_12), "120 us");
        assert_eq!(seconds(0.001_23), "1.2 ms");
        assert_eq!(seconds(0.85), "850 ms");
        assert_eq!(seconds(12.34), "12.3 s");
        assert_eq!(seconds(245.0), "4 min 05 s");
        assert_eq!(seconds(7380.0), "2 h 03 min");
        assert_eq!(seconds(7379.0), "2 h 03 min");
        assert_eq!(seconds(7349.6), "2 h 02 min");
        assert!(seconds(f64::INFINITY).ends_with(" min"));
    }

    #[test]
    fn shares_never_round_to_none_or_all() {
        assert_eq!(percent(0.0), "0 %");
        assert_eq!(percent(0.001), "< 1 %");
        assert_eq!(percent(0.374), "37 %");
        assert_eq!(percent(0.999), "> 99 %");
        assert_eq!(percent(1.0), "100 %");
        assert!(share(1.0, 0.0).abs() < f64::EPSILON);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0.0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(1_734_633_357.062), "2024-12-19 18:35:57 UTC");
        assert_eq!(date(951_782_400.0), "2000-02-29 00:00:00 UTC");
        assert_eq!(date(-1.0), "1969-12-31 23:59:59 UTC");
        assert_eq!(number(1_234_567), "1,234,567");
        assert_eq!(number(999), "999");
    }
}
