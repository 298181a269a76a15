//! Times as people write them.

use access::UnixTime;
use jiff::civil::{Date, DateTime};
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp, Zoned};
use std::str::FromStr;
use std::time::Duration;

/// The time of a clock.
pub fn of(now: &Zoned) -> UnixTime {
    unix(now.timestamp())
}

/// So long after a time, or the last one that there is.
pub fn later(from: UnixTime, lasts: Duration) -> UnixTime {
    let ns = u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX);
    UnixTime(from.0.saturating_add(ns))
}

/// How long something lasts: `90s`, `8h`, `2d`.
///
/// # Errors
/// A sentence that says what a text may be.
pub fn length(text: &str) -> Result<Duration, String> {
    let refuse = || format!("{text:?} is no length of time, as 90s, 8h or 2d is");
    let span = Span::from_str(text).map_err(|_| refuse())?;
    let exact = exact(span).filter(|exact| exact.is_positive());
    exact
        .and_then(|exact| exact.try_into().ok())
        .ok_or_else(refuse)
}

/// A time: `+3d`, `2026-12-01`, `2026-12-01T08:00`, `2026-12-01T08:00:00Z`.
///
/// # Errors
/// A sentence that says what a text may be.
pub fn point(text: &str, now: &Zoned) -> Result<UnixTime, String> {
    let refuse = || {
        format!(
            "{text:?} is no time: so long from now (+3d, +8h), or a time (2026-12-01, \
             2026-12-01T08:00, 2026-12-01T08:00:00Z)"
        )
    };
    if let Some(ahead) = text.strip_prefix('+') {
        return Ok(later(of(now), length(ahead).map_err(|_| refuse())?));
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(unix(time));
    }
    let local = match text.parse::<DateTime>() {
        Ok(local) => local,
        Err(_) => text.parse::<Date>().map_err(|_| refuse())?.at(0, 0, 0, 0),
    };
    let zoned = local.to_zoned(now.time_zone().clone());
    zoned.map(|time| of(&time)).map_err(|_| refuse())
}

/// A day is 24 hours, whatever the clocks do that night.
fn exact(span: Span) -> Option<SignedDuration> {
    span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()
}

fn unix(time: Timestamp) -> UnixTime {
    UnixTime(u64::try_from(time.as_nanosecond()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_times_are_read_as_people_write_them() {
        let now: Timestamp = "2026-11-24T12:00:00Z".parse().unwrap();
        let now = now.to_zoned(jiff::tz::TimeZone::fixed(jiff::tz::offset(1)));
        let at = |text: &str| point(text, &now).map(|time| time.to_string());
        assert_eq!(at("+3d").unwrap(), "2026-11-27T12:00:00Z");
        assert_eq!(at("2026-12-01T08:00").unwrap(), "2026-12-01T07:00:00Z");
        assert_eq!(at("2026-12-01").unwrap(), "2026-11-30T23:00:00Z");
        assert_eq!(at("2026-12-01T08:00:00Z").unwrap(), "2026-12-01T08:00:00Z");
        for wrong in ["", "3d", "+", "+x", "tomorrow", "+-3d"] {
            assert!(at(wrong).unwrap_err().contains("no time"), "{wrong}");
        }
        assert_eq!(length("8h"), Ok(Duration::from_secs(8 * 3600)));
        for wrong in ["", "8", "-8h", "0s", "1y"] {
            assert!(length(wrong).is_err(), "{wrong}");
        }
    }
}
