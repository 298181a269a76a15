//! Values become levels: from percentile to percentile, on a straight or a logarithmic scale.

use super::array::{PictureKind, Shape};

/// The level of what is no number. The page gives it a colour that no number has.
pub const NO_NUMBER: u8 = 0;
/// The level of what is at the lower end of the range or below.
pub const DARKEST: u8 = 1;

/// What is black and what is white.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stretch {
    /// The percentile that is black.
    pub low: f64,
    /// The percentile that is white; above `low`.
    pub high: f64,
    /// Whether levels are of the logarithm. What has none is black, and no part of the range.
    pub is_log: bool,
}

/// The values of a picture.
#[derive(Debug)]
pub struct Sampled {
    pub shape: Shape,
    /// Row by row, the channels of a pixel behind one another.
    pub values: Vec<f64>,
    /// Whether every value is a byte.
    pub are_bytes: bool,
}

/// A picture.
#[derive(Debug, PartialEq)]
pub struct Drawn {
    /// A byte for each value: [`NO_NUMBER`], or from [`DARKEST`] to 255; but of a picture that is as it is
    /// the values themselves.
    pub levels: Vec<u8>,
    /// What is black and what is white; `None` if there is no number.
    pub range: Option<(f64, f64)>,
    /// Colours in bytes are shown as they are.
    pub is_as_it_is: bool,
}

impl Sampled {
    pub fn draw(&self, stretch: &Stretch) -> Drawn {
        if self.shape.kind == PictureKind::Rgb && self.are_bytes {
            return Drawn {
                levels: self.values.iter().map(|value| *value as u8).collect(),
                range: Some((0.0, 255.0)),
                is_as_it_is: true,
            };
        }
        let percentiles = match self.shape.kind {
            // A line is shown from its lowest to its highest point.
            PictureKind::Line => (0.0, 100.0),
            _ => (stretch.low, stretch.high),
        };
        let Some((low, high)) = self.range(percentiles, stretch.is_log) else {
            // There is no number to measure others by.
            let level = |value: &f64| if value.is_nan() { NO_NUMBER } else { DARKEST };
            return Drawn {
                levels: self.values.iter().map(level).collect(),
                range: None,
                is_as_it_is: false,
            };
        };
        let scale = |value: f64| match stretch.is_log {
            true if value <= 0.0 => f64::NEG_INFINITY,
            true => value.ln(),
            false => value,
        };
        let (begin, end) = (scale(low), scale(high));
        // Halves, so that the span of the widest range is a number.
        let span = end / 2.0 - begin / 2.0;
        let level = |value: &f64| {
            let scaled = scale(*value);
            if value.is_nan() {
                NO_NUMBER
            } else if scaled <= begin && span > 0.0 {
                DARKEST
            } else if scaled >= end && span > 0.0 {
                u8::MAX
            } else if span > 0.0 {
                let share = (scaled / 2.0 - begin / 2.0) / span;
                DARKEST + (share * f64::from(u8::MAX - DARKEST)).round() as u8
            } else if scaled < begin {
                DARKEST
            } else if scaled > end {
                u8::MAX
            } else {
                // Everything that is measured is equal.
                u8::MAX / 2 + 1
            }
        };
        Drawn {
            levels: self.values.iter().map(level).collect(),
            range: Some((low, high)),
            is_as_it_is: false,
        }
    }

    /// The values at two percentiles of those that are numbers and not infinite; with `is_log` of
    /// those above 0. The nearest value is taken, none in between.
    fn range(&self, (low, high): (f64, f64), is_log: bool) -> Option<(f64, f64)> {
        let values = self.values.iter().copied();
        let measured = values.filter(|value| value.is_finite() && (!is_log || *value > 0.0));
        let mut measured: Vec<f64> = measured.collect();
        let last = measured.len().checked_sub(1)?;
        let mut at = |percentile: f64| {
            let rank = (percentile / 100.0 * last as f64).round() as usize;
            *measured.select_nth_unstable_by(rank, f64::total_cmp).1
        };
        Some((at(low), at(high)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Stretch = Stretch {
        low: 0.0,
        high: 100.0,
        is_log: false,
    };

    fn sampled(kind: PictureKind, values: &[f64]) -> Sampled {
        Sampled {
            shape: Shape {
                kind,
                width: values.len() as u64 / kind.channels(),
                height: 1,
                steps: (1, 1),
            },
            values: values.to_vec(),
            are_bytes: false,
        }
    }

    fn levels(values: &[f64], stretch: Stretch) -> Vec<u8> {
        sampled(PictureKind::Grey, values).draw(&stretch).levels
    }

    #[test]
    fn a_ramp_becomes_a_ramp() {
        let ramp: Vec<f64> = (0..255).map(|n| 1000.0 + 10.0 * f64::from(n)).collect();
        assert_eq!(levels(&ramp, ALL), (1..=255).collect::<Vec<u8>>());
    }

    #[test]
    fn percentiles_leave_out_what_sticks_out() {
        let mut values: Vec<f64> = (0..=100).map(f64::from).collect();
        values[0] = -1e9;
        values[100] = 1e9;
        let stretch = Stretch {
            low: 1.0,
            high: 99.0,
            is_log: false,
        };
        let drawn = sampled(PictureKind::Grey, &values).draw(&stretch);
        assert_eq!(drawn.range, Some((1.0, 99.0)));
        assert_eq!(
            (drawn.levels[0], drawn.levels[50], drawn.levels[100]),
            (1, 128, 255)
        );
    }

    #[test]
    fn a_logarithmic_scale_has_equal_steps_for_equal_factors() {
        let log = Stretch {
            is_log: true,
            ..ALL
        };
        let drawn = levels(&[0.0, -5.0, 1.0, 10.0, 100.0, f64::NAN], log);
        assert_eq!(drawn, [1, 1, 1, 128, 255, 0]);
    }

    #[test]
    fn what_is_no_number_has_a_level_of_its_own() {
        let (infinite, none) = (f64::INFINITY, f64::NAN);
        assert_eq!(
            levels(&[none, -infinite, 0.0, 1.0, infinite], ALL),
            [0, 1, 1, 255, 255]
        );
        let drawn = sampled(PictureKind::Grey, &[none, infinite]).draw(&ALL);
        assert_eq!((drawn.levels, drawn.range), (vec![0, 1], None));
    }

    #[test]
    fn equal_values_are_in_the_middle_and_the_widest_range_has_one() {
        assert_eq!(levels(&[7.0, 7.0], ALL), [128, 128]);
        assert_eq!(
            levels(&[7.0, 7.0, -f64::INFINITY, f64::INFINITY], ALL),
            [128, 128, 1, 255]
        );
        assert_eq!(levels(&[f64::MIN, 0.0, f64::MAX], ALL), [1, 128, 255]);
    }

    #[test]
    fn colours_in_bytes_are_shown_as_they_are_and_others_are_stretched_together() {
        let mut rgb = sampled(PictureKind::Rgb, &[0.0, 7.0, 255.0]);
        assert_eq!(rgb.draw(&ALL).levels, [1, 8, 255]);
        rgb.are_bytes = true;
        let drawn = rgb.draw(&ALL);
        assert_eq!((drawn.levels, drawn.is_as_it_is), (vec![0, 7, 255], true));
    }

    #[test]
    fn a_line_is_shown_from_end_to_end() {
        let stretch = Stretch {
            low: 40.0,
            high: 60.0,
            is_log: false,
        };
        let drawn = sampled(PictureKind::Line, &[0.0, 5.0, 10.0]).draw(&stretch);
        assert_eq!(
            (drawn.levels, drawn.range),
            (vec![1, 128, 255], Some((0.0, 10.0)))
        );
    }
}
