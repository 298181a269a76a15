//! Where reading begins or ends, as people write it.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned};
use std::str::FromStr;
use wire::Offset;
use wire::message::Start;
use wire::record::Position;

/// A place in a topic as a text names it: the same words at the command line, in Python
/// and in C.
///
/// | text | what it is |
/// |---|---|
/// | `cursor`, `cursor_or_latest`, `beginning`, `latest` | [`When::Start`] of that name |
/// | `7`, `-10` | an offset; the last ten events of each partition |
/// | `-90s`, `-15m`, `-1h30m`, `-2d` | a time that many ago |
/// | `2026-11-23`, `2026-11-23 04:00`, `2026-11-23T04:00:30` | a time of this machine's time zone |
/// | `2026-11-23T04:00:00Z`, `…+01:00` | a time |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Where the server says.
    Start(Start),
    /// With so many last events of each partition, or with as many as it has.
    Last(u64),
}

impl From<Start> for When {
    fn from(start: Start) -> Self {
        Self::Start(start)
    }
}

impl When {
    /// Reads `text`, with now as the time that `-15m` counts from.
    ///
    /// # Errors
    /// A sentence that says what a text may be.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::parse_at(text, &Zoned::now())
    }

    fn parse_at(text: &str, now: &Zoned) -> Result<Self, String> {
        let refuse = || {
            format!(
                "{text:?} is no place in a topic: beginning, latest, cursor, an offset (7), the last \
                 events of each partition (-10), a time ago (-90s, -15m, -2h, -7d), or a time \
                 (2026-11-23, \"2026-11-23 04:00\", 2026-11-23T04:00:00Z)"
            )
        };
        let at = |offset| {
            // Of the incarnation that each partition is in.
            Start::At(Position {
                incarnation: wire::Incarnation(0),
                offset: Offset(offset),
            })
        };
        Ok(match text.trim() {
            "cursor" => Self::Start(Start::Cursor),
            "cursor_or_latest" => Self::Start(Start::CursorOrLatest),
            "beginning" => Self::Start(Start::Beginning),
            "latest" => Self::Start(Start::Latest),
            digits if let Ok(offset) = digits.parse() => Self::Start(at(offset)),
            text if let Some(ago) = text.strip_prefix('-') => match ago.parse() {
                Ok(count) => Self::Last(count),
                Err(_) => {
                    let ago = Span::from_str(ago).map_err(|_| refuse())?;
                    // `--5m` and `-5m ago` would be times to come.
                    if ago.is_negative() {
                        return Err(refuse());
                    }
                    let time = now.checked_sub(ago).map_err(|_| refuse())?;
                    Self::Start(Start::Time(nanoseconds(time.timestamp())))
                }
            },
            text => {
                let time = point(text, now.time_zone()).ok_or_else(refuse)?;
                Self::Start(Start::Time(nanoseconds(time)))
            }
        })
    }
}

/// A time with its zone, or one of `zone`.
fn point(text: &str, zone: &TimeZone) -> Option<Timestamp> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time);
    }
    let local = match text.parse::<DateTime>() {
        Ok(local) => local,
        Err(_) => text.parse::<Date>().ok()?.at(0, 0, 0, 0),
    };
    local.to_zoned(zone.clone()).ok().map(|at| at.timestamp())
}

/// Nanoseconds since 1970; what was before is 0.
fn nanoseconds(time: Timestamp) -> u64 {
    u64::try_from(time.as_nanosecond()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Zoned {
        let time: Timestamp = "2026-11-24T12:00:00Z".parse().unwrap();
        time.to_zoned(TimeZone::fixed(jiff::tz::offset(1)))
    }

    fn time(text: &str) -> When {
        let time: Timestamp = text.parse().unwrap();
        When::Start(Start::Time(time.as_nanosecond() as u64))
    }

    #[test]
    fn a_text_names_a_place() {
        let at = |offset| {
            When::Start(Start::At(Position {
                incarnation: wire::Incarnation(0),
                offset: Offset(offset),
            }))
        };
        for (text, place) in [
            ("beginning", When::Start(Start::Beginning)),
            ("cursor_or_latest", When::Start(Start::CursorOrLatest)),
            ("0", at(0)),
            ("17", at(17)),
            ("-10", When::Last(10)),
            ("-0", When::Last(0)),
            ("-90s", time("2026-11-24T11:58:30Z")),
            ("-15m", time("2026-11-24T11:45:00Z")),
            ("-1h30m", time("2026-11-24T10:30:00Z")),
            ("-7d", time("2026-11-17T12:00:00Z")),
            // Of the zone one hour east.
            ("2026-11-23", time("2026-11-22T23:00:00Z")),
            ("2026-11-23 04:00", time("2026-11-23T03:00:00Z")),
            ("2026-11-23T04:00:30", time("2026-11-23T03:00:30Z")),
            ("2026-11-23T04:00:00Z", time("2026-11-23T04:00:00Z")),
            ("2026-11-23T04:00:00+02:00", time("2026-11-23T02:00:00Z")),
            ("-200y", When::Start(Start::Time(0))),
        ] {
            assert_eq!(When::parse_at(text, &now()), Ok(place), "{text}");
        }
    }

    #[test]
    fn what_names_no_place_is_refused_with_all_that_may_be_written() {
        for text in [
            "",
            "-",
            "yesterday",
            "-5 apples",
            "04:00",
            "99999999999999999999",
            "-1h-",
            "--5m",
            "-5m ago",
            "--7",
            "2026-13-01",
        ] {
            let refused = When::parse_at(text, &now()).unwrap_err();
            assert!(refused.contains("-15m"), "{refused}");
        }
    }
}
