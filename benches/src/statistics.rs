//! Medians and ranges. A file system stalls now and then, and a mean would mostly
//! show the stall.

/// The middle value. For an even number of values, the mean of the two in the middle.
///
/// # Panics
/// If there are no values.
pub fn median(values: &[f64]) -> f64 {
    assert!(!values.is_empty(), "the median of nothing");
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[half]
    } else {
        f64::midpoint(sorted[half - 1], sorted[half])
    }
}

/// Median and extremes of a few values that belong together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The smallest.
    pub least: f64,
    /// The middle.
    pub median: f64,
    /// The largest.
    pub most: f64,
}

impl Spread {
    /// The spread of some values.
    ///
    /// # Panics
    /// If there are no values.
    pub fn of(values: &[f64]) -> Self {
        Spread {
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            median: median(values),
            most: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stall_does_not_move_the_median() {
        assert_eq!(median(&[5.0, 4.8, 600.0, 5.1, 4.9]), 5.0);
        assert_eq!(median(&[1.0, 3.0]), 2.0);
        assert_eq!(median(&[7.0]), 7.0);
    }

    #[test]
    fn a_spread_knows_its_extremes() {
        let spread = Spread::of(&[2.0, 9.0, 4.0]);
        assert_eq!(
            spread,
            Spread {
                least: 2.0,
                median: 4.0,
                most: 9.0
            }
        );
    }
}
