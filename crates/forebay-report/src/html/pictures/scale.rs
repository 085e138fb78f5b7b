//! Round values for axes.

use crate::units;

/// Round values up to the largest one, at most `count`, without 0: 1, 2 or 5 of a power of ten.
fn round_values(most: f64, count: u32) -> Vec<f64> {
    if most <= 0.0 || !most.is_finite() {
        return Vec::new();
    }
    let power = 10f64.powf((most / f64::from(count.max(1))).log10().floor());
    let mut steps = [1.0, 2.0, 5.0, 10.0, 20.0].map(|n| n * power).into_iter();
    let fits = |step: &f64| most * 1.001 / step < f64::from(count + 1);
    let step = steps.find(fits).unwrap_or(50.0 * power);
    (1..=count)
        .map(|i| f64::from(i) * step)
        .filter(|value| *value <= most * 1.001)
        .collect()
}

/// Round values of a number.
pub(super) fn counts(most: f64, count: u32) -> Vec<(f64, String)> {
    let whole = round_values(most, count).into_iter();
    whole
        .filter(|value| *value >= 1.0)
        .map(|value| (value, units::number(value as u64)))
        .collect()
}

/// Round values of seconds.
pub(super) fn seconds(most: f64, count: u32) -> Vec<(f64, String)> {
    // Minutes and hours have their own round numbers.
    let unit = match most {
        m if m >= 7200.0 => (3600.0, "h"),
        m if m >= 120.0 => (60.0, "min"),
        m if m >= 1.0 => (1.0, "s"),
        m if m >= 1e-3 => (1e-3, "ms"),
        _ => (1e-6, "us"),
    };
    in_unit(most, count, unit)
}

/// Round values of bytes per second.
pub(super) fn rates(most: f64, count: u32) -> Vec<(f64, String)> {
    let units = [
        (1024f64.powi(5), "PiB/s"),
        (1024f64.powi(4), "TiB/s"),
        (1024f64.powi(3), "GiB/s"),
        (1024f64.powi(2), "MiB/s"),
        (1024.0, "KiB/s"),
        (1.0, "B/s"),
    ];
    let fitting = units.into_iter().find(|(unit, _)| most >= *unit);
    in_unit(most, count, fitting.unwrap_or((1.0, "B/s")))
}

fn in_unit(most: f64, count: u32, (unit, name): (f64, &str)) -> Vec<(f64, String)> {
    round_values(most / unit, count)
        .into_iter()
        .map(|value| {
            let digits = if value >= 10.0 || (value - value.round()).abs() < 1e-6 {
                format!("{value:.0}")
            } else {
                format!("{value:.2}").trim_end_matches('0').to_owned()
            };
            (value * unit, format!("{digits} {name}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &[(f64, String)]) -> Vec<&str> {
        ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn axes_have_round_values_in_the_unit_that_fits() {
        assert_eq!(labels(&counts(4567.0, 3)), ["2,000", "4,000"]);
        assert_eq!(labels(&counts(3.0, 3)), ["1", "2", "3"]);
        assert_eq!(labels(&seconds(8.0, 4)), ["2 s", "4 s", "6 s", "8 s"]);
        assert_eq!(labels(&seconds(0.25, 3)), ["100 ms", "200 ms"]);
        assert_eq!(labels(&seconds(7300.0, 2)), ["1 h", "2 h"]);
        assert_eq!(labels(&seconds(1.2, 3)), ["0.5 s", "1 s"]);
        assert_eq!(labels(&rates(300.0 * 1048576.0, 2)), ["200 MiB/s"]);
        assert!(counts(0.0, 3).is_empty() && rates(f64::NAN, 3).is_empty());
    }
}
