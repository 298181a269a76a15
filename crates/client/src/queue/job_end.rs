//! The end of the batch job that a program runs in.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The environment variable in which Slurm says when a job ends: seconds since 1970.
const SLURM: &str = "SLURM_JOB_END_TIME";
/// How long before the end nothing new is begun, unless said otherwise.
const WIND_DOWN: Duration = Duration::from_secs(60);
/// The part of that which is left for going home.
const LEAVE_SHARE: u32 = 4;

/// When a batch job ends, and how long before that a consumer of a queue
/// stops: it takes nothing new from `wind_down` before the end on, and a quarter
/// of that before the end it gives back what is unsettled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobEnd {
    /// When it ends.
    pub at: SystemTime,
    /// How long before nothing new is handed out: the longest time that
    /// handling an event takes, and a third more. Default 60 s.
    pub wind_down: Duration,
}

impl JobEnd {
    /// An end, with the default time to wind down.
    pub fn at(at: SystemTime) -> Self {
        Self {
            at,
            wind_down: WIND_DOWN,
        }
    }

    /// What the batch system says in the environment, if it says something:
    /// `SLURM_JOB_END_TIME`.
    pub fn from_environment() -> Option<Self> {
        Self::parse(&std::env::var(SLURM).ok()?)
    }

    fn parse(seconds: &str) -> Option<Self> {
        let seconds = seconds.trim().parse().ok().filter(|seconds| *seconds > 0)?;
        let at = UNIX_EPOCH.checked_add(Duration::from_secs(seconds))?;
        Some(Self::at(at))
    }

    /// After which time nothing new is taken, and after which the member leaves.
    pub(super) fn from(self, now: SystemTime) -> (Duration, Duration) {
        let left = self.at.duration_since(now).unwrap_or_default();
        let stop = left.saturating_sub(self.wind_down);
        let leave = left.saturating_sub(self.wind_down / LEAVE_SHARE);
        (stop, leave)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_tells_seconds() {
        let end = JobEnd::parse("1700000000").unwrap();
        assert_eq!(end.at, UNIX_EPOCH + Duration::from_secs(1_700_000_000));
        for bad in ["", "0", "-5", "soon", "Unknown"] {
            assert_eq!(JobEnd::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_consumer_stops_before_it_leaves_and_leaves_before_the_end() {
        let now = UNIX_EPOCH + Duration::from_secs(1000);
        let end = |seconds| JobEnd::at(now + Duration::from_secs(seconds));
        let seconds = |stop, leave| (Duration::from_secs(stop), Duration::from_secs(leave));
        assert_eq!(end(600).from(now), seconds(540, 585));
        assert_eq!(end(30).from(now), seconds(0, 15));
        assert_eq!(end(0).from(now), seconds(0, 0));
        let over = JobEnd::at(UNIX_EPOCH);
        assert_eq!(over.from(now), seconds(0, 0));
    }
}
