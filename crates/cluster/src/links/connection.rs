//! One connection: how far it is, what waits to be sent, and whether the other end is still there.

use super::frame::Decoder;
use super::hello::{Goodbye, Reason};
use super::settings::{FRAME_BYTES_PER_SECOND_MIN, LinkSettings, MESSAGE_COST_BYTES, PeerId};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time during which this server listened to its peers.
///
/// Its owner may be away for longer than silence lasts; what peers have sent meanwhile waits
/// in the system. So an absence counts as one step and no more.
#[derive(Debug)]
pub(super) struct Clock {
    seen: Instant,
    elapsed: Duration,
    step_max: Duration,
}

impl Clock {
    pub(super) fn new(now: Instant, step_max: Duration) -> Self {
        Self {
            seen: now,
            elapsed: Duration::ZERO,
            step_max,
        }
    }

    /// Goes on to `now`.
    pub(super) fn advance(&mut self, now: Instant) {
        let step = now.saturating_duration_since(self.seen);
        self.elapsed += step.min(self.step_max);
        self.seen = now;
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.elapsed
    }
}

/// Who made a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// This server, to reach this peer.
    Dialled(PeerId),
    /// Somebody else.
    Accepted,
}

/// How far a connection is. The drawing is in the crate's README.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// TCP and TLS.
    Opening,
    /// The other end's hello is waited for.
    Greeting,
    /// It is the link with this peer.
    Standing(PeerId),
    /// This end has said goodbye and waits for the other one to go, so that it can read that.
    Leaving,
}

/// What a look at a connection has found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// Nothing; to be looked at again after this time.
    Well(Duration),
    /// A heartbeat is due.
    Heartbeat,
    /// It is over.
    Over(Goodbye),
}

/// One connection, without its socket. All times are of a [`Clock`].
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) side: Side,
    /// Of the other end, for people.
    pub(super) address: String,
    pub(super) decoder: Decoder,
    phase: Phase,
    /// When the phase began, but for `Greeting`, which shares the time of `Opening`.
    since: Duration,
    /// When bytes came last.
    heard: Duration,
    /// When something was sent last.
    spoke: Duration,
    /// When the frame began that is not whole.
    frame_since: Option<Duration>,
    /// Bytes that were queued since it began.
    queued_ever: u64,
    /// Where in these each message ends that waits.
    ends: VecDeque<u64>,
    /// How many of these bytes the system had taken, and when it took the last of them.
    taken: u64,
    taken_at: Duration,
}

impl Connection {
    pub(super) fn new(side: Side, address: String, now: Duration) -> Self {
        Self {
            side,
            address,
            decoder: Decoder::default(),
            phase: Phase::Opening,
            since: now,
            heard: now,
            spoke: now,
            frame_since: None,
            queued_ever: 0,
            ends: VecDeque::new(),
            taken: 0,
            taken_at: now,
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// When it began, or when it was refused.
    pub(super) fn since(&self) -> Duration {
        self.since
    }

    /// Goes on to another phase.
    pub(super) fn enter(&mut self, phase: Phase, now: Duration) {
        self.phase = phase;
        if phase != Phase::Greeting {
            self.since = now;
        }
    }

    /// Bytes have come, and the frames that are whole were taken from the decoder.
    pub(super) fn heard(&mut self, frames: usize, now: Duration) {
        self.heard = now;
        match (self.decoder.begun(), frames) {
            (None, _) => self.frame_since = None,
            (Some(_), 0) => _ = self.frame_since.get_or_insert(now),
            (Some(_), _) => self.frame_since = Some(now),
        }
    }

    /// A message of `bytes` bytes with its frame was queued.
    pub(super) fn queued(&mut self, bytes: u64, now: Duration) {
        if self.ends.is_empty() {
            self.taken_at = now;
        }
        self.spoke = now;
        self.queued_ever += bytes;
        self.ends.push_back(self.queued_ever);
    }

    /// What waits counts so much, where the socket has `waiting` bytes to send.
    pub(super) fn cost_bytes(&mut self, waiting: u64) -> u64 {
        let taken = self.queued_ever.saturating_sub(waiting);
        while self.ends.front().is_some_and(|end| *end <= taken) {
            self.ends.pop_front();
        }
        waiting + self.ends.len() as u64 * MESSAGE_COST_BYTES
    }

    /// Whether it goes on; the socket has `waiting` bytes to send.
    pub(super) fn check(&mut self, now: Duration, waiting: u64, settings: &LinkSettings) -> Check {
        let over = |reason, text: String| Check::Over(Goodbye::of(reason, text));
        let taken = self.queued_ever.saturating_sub(waiting);
        if taken != self.taken {
            (self.taken, self.taken_at) = (taken, now);
        }
        let (max, left) = match self.phase {
            Phase::Standing(_) => (
                settings.silence_max,
                settings.silence_max.checked_sub(now - self.heard),
            ),
            Phase::Opening | Phase::Greeting | Phase::Leaving => (
                settings.handshake_max,
                settings.handshake_max.checked_sub(now - self.since),
            ),
        };
        let left = match (left, self.phase) {
            (Some(left), _) if !left.is_zero() => left,
            (_, Phase::Opening) => {
                return over(Reason::Late, format!("no connection within {max:?}"));
            }
            (_, Phase::Greeting) => {
                return over(Reason::Late, format!("no hello within {max:?}"));
            }
            (_, Phase::Leaving) => {
                return over(Reason::Late, format!("it has not gone within {max:?}"));
            }
            (_, Phase::Standing(_)) => {
                return over(Reason::Silent, format!("nothing has come for {max:?}"));
            }
        };
        if !matches!(self.phase, Phase::Standing(_)) {
            return Check::Well(left);
        }
        if waiting > 0 && now - self.taken_at >= settings.silence_max {
            return over(
                Reason::Stuck,
                format!("{waiting} bytes wait, and none was taken for {max:?}"),
            );
        }
        if let (Some(since), Some(length)) = (self.frame_since, self.decoder.begun()) {
            let seconds = length as u64 / FRAME_BYTES_PER_SECOND_MIN;
            let most = settings.silence_max + Duration::from_secs(seconds);
            if now - since >= most {
                return over(
                    Reason::Slow,
                    format!("a frame of {length} bytes has not come whole within {most:?}"),
                );
            }
        }
        let rests = settings.heartbeat.checked_sub(now - self.spoke);
        match rests.filter(|rests| !rests.is_zero()) {
            // Bytes that wait show this end when they arrive.
            None if waiting == 0 => Check::Heartbeat,
            None => Check::Well(settings.heartbeat),
            Some(rests) => Check::Well(left.min(rests)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::{Kind, header};
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn standing() -> (Connection, LinkSettings) {
        let mut connection = Connection::new(Side::Accepted, String::new(), Duration::ZERO);
        connection.enter(Phase::Standing(PeerId(1)), Duration::ZERO);
        (connection, LinkSettings::default())
    }

    fn reason(check: &Check) -> Option<Reason> {
        match check {
            Check::Over(goodbye) => Some(goodbye.reason),
            Check::Well(_) | Check::Heartbeat => None,
        }
    }

    #[test]
    fn an_absence_of_the_owner_counts_as_one_step() {
        let began = Instant::now();
        let mut clock = Clock::new(began, 500 * MS);
        clock.advance(began + 20 * MS);
        clock.advance(began + 60_000 * MS);
        assert_eq!(clock.elapsed(), 520 * MS);
        clock.advance(began);
        assert_eq!(clock.elapsed(), 520 * MS, "it never goes back");
    }

    #[test]
    fn a_heartbeat_is_due_when_nothing_else_was_sent() {
        let (mut connection, settings) = standing();
        assert_eq!(
            connection.check(200 * MS, 0, &settings),
            Check::Well(300 * MS)
        );
        assert_eq!(connection.check(500 * MS, 0, &settings), Check::Heartbeat);
        connection.queued(20, 500 * MS);
        assert_eq!(
            connection.check(700 * MS, 0, &settings),
            Check::Well(300 * MS)
        );
        // What waits is sent before a heartbeat would be.
        connection.queued(20, 800 * MS);
        assert!(matches!(
            connection.check(1_400 * MS, 20, &settings),
            Check::Well(_)
        ));
    }

    #[test]
    fn a_link_ends_when_nothing_comes_and_not_while_something_does() {
        let (mut connection, settings) = standing();
        connection.heard(1, 2_900 * MS);
        assert_eq!(reason(&connection.check(5_800 * MS, 0, &settings)), None);
        let check = connection.check(5_900 * MS, 0, &settings);
        assert_eq!(reason(&check), Some(Reason::Silent));
    }

    #[test]
    fn a_peer_that_takes_nothing_ends_though_it_speaks() {
        let (mut connection, settings) = standing();
        connection.queued(1_000, 1_000 * MS);
        for at in [1_000, 2_000, 3_000] {
            connection.heard(1, at * MS);
            assert_eq!(reason(&connection.check(at * MS, 900, &settings)), None);
        }
        // The last byte was taken at 1,000 or later.
        connection.heard(1, 3_900 * MS);
        assert_eq!(reason(&connection.check(3_900 * MS, 900, &settings)), None);
        let check = connection.check(4_000 * MS, 900, &settings);
        assert_eq!(reason(&check), Some(Reason::Stuck));
        // A byte more, and it goes on.
        assert_eq!(reason(&connection.check(4_000 * MS, 899, &settings)), None);
    }

    #[test]
    fn a_frame_that_drips_ends_in_its_time() {
        let (mut connection, settings) = standing();
        let head = header(Kind::Message, &vec![0; 512 << 10]);
        let mut bytes = &head[..];
        assert_eq!(connection.decoder.push(&mut bytes, 1 << 20), Ok(None));
        connection.heard(0, Duration::ZERO);
        for at in (0..5_000).step_by(500) {
            let mut byte = &[0u8][..];
            assert_eq!(connection.decoder.push(&mut byte, 1 << 20), Ok(None));
            connection.heard(0, at * MS);
            assert_eq!(
                reason(&connection.check(at * MS, 0, &settings)),
                None,
                "{at}"
            );
        }
        let check = connection.check(5_000 * MS, 0, &settings);
        assert_eq!(
            reason(&check),
            Some(Reason::Slow),
            "3 s, and 2 s for 512 KiB"
        );
    }

    #[test]
    fn before_it_stands_and_after_a_goodbye_its_time_is_bounded_whatever_comes() {
        let (_, settings) = standing();
        let mut connection = Connection::new(Side::Accepted, String::new(), Duration::ZERO);
        connection.enter(Phase::Greeting, 4_000 * MS);
        connection.heard(0, 4_900 * MS);
        assert_eq!(
            connection.check(4_900 * MS, 0, &settings),
            Check::Well(100 * MS)
        );
        let check = connection.check(5_000 * MS, 0, &settings);
        assert_eq!(reason(&check), Some(Reason::Late));
        connection.enter(Phase::Leaving, 5_000 * MS);
        assert_eq!(
            connection.check(9_900 * MS, 0, &settings),
            Check::Well(100 * MS)
        );
        assert_eq!(
            reason(&connection.check(10_000 * MS, 0, &settings)),
            Some(Reason::Late)
        );
    }

    #[test]
    fn messages_without_bytes_count_too() {
        let (mut connection, _) = standing();
        for _ in 0..10 {
            connection.queued(20, Duration::ZERO);
        }
        assert_eq!(connection.cost_bytes(200), 200 + 10 * MESSAGE_COST_BYTES);
        assert_eq!(connection.cost_bytes(150), 150 + 8 * MESSAGE_COST_BYTES);
        assert_eq!(connection.cost_bytes(0), 0);
    }
}
