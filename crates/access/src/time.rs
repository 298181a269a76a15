//! Times of day.

use std::fmt;

/// A time of day: nanoseconds since 1970, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct UnixTime(pub u64);

const NS: u64 = 1_000_000_000;
const DAY_SECONDS: u64 = 86_400;

impl fmt::Display for UnixTime {
    /// To the second, as in `2026-12-01T08:00:00Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / NS;
        let (year, month, day) = civil(seconds / DAY_SECONDS);
        let of_day = seconds % DAY_SECONDS;
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"
        )
    }
}

/// Year, month and day of a day that is counted from 1970 on.
fn civil(days: u64) -> (u64, u64, u64) {
    // Counted from 1 March of the year 0, so that the leap day is a year's last; in eras of 400
    // years, which all have the same number of days.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_people_know_them() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_796_112_000, "2026-12-01T08:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(UnixTime(seconds * NS).to_string(), text);
        }
        assert_eq!(UnixTime(u64::MAX).to_string(), "2554-07-21T23:34:33Z");
    }
}
