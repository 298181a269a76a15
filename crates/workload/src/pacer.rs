//! When a producer may send its next message, from what was answered so far.

use crate::faults::{Fault, planted};
use crate::pace::SECOND_NS;
use crate::pattern::Pattern;
use crate::plan::{Member, Pace, Task};

/// The most unconfirmed messages of a producer that sends what is due. One that is stopped by it is late, which
/// times from when messages were due show.
pub const DUE_UNCONFIRMED_MAX: u64 = 1024;

/// After so long a producer with one message outstanding gives its answer up and goes on. It counts as unanswered.
pub const ANSWER_NS_MAX: u64 = 30 * SECOND_NS;

/// What a producer does next. Times are nanoseconds after go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It sends the message of this sequence, and calls [`Pacer::sent`].
    Send(u64),
    /// Nothing before this time, unless an answer comes.
    WaitUntil(u64),
    /// Nothing before an answer comes.
    WaitForAnswer,
    /// It has sent all.
    Done,
}

/// The loop of one producer, as plain state: [`Pacer::next`] after anything else was called.
///
/// A backend without confirms settles what it has written.
#[derive(Debug, Clone)]
pub struct Pacer {
    pace: Pace,
    messages: u64,
    sent: u64,
    settled: u64,
    /// Replies to each message.
    copies: u64,
    /// Replies to the last message that did not come yet.
    awaited: u64,
    last_sent_ns: u64,
}

impl Pacer {
    /// Of a producer's task, in a pattern with so many consumers. A consumer has none.
    pub fn new(task: &Task, pattern: Pattern, consumers: u64) -> Option<Self> {
        let (Member::Producer(_), Some(pace)) = (task.member, task.pace) else {
            return None;
        };
        let copies = match pattern.has_replies() {
            true => pattern.copies(consumers),
            false => 0,
        };
        Some(Self {
            pace,
            messages: task.messages.unwrap_or(u64::MAX),
            sent: 0,
            settled: 0,
            copies,
            awaited: 0,
            last_sent_ns: 0,
        })
    }

    /// What to do now.
    pub fn next(&self, now_ns: u64) -> Next {
        if self.sent >= self.messages {
            return Next::Done;
        }
        let send = Next::Send(self.sent);
        let unconfirmed = self.sent - self.settled;
        let more = u64::from(planted(Fault::WindowTooLarge));
        match self.pace {
            Pace::Window(count) if unconfirmed < count + more => send,
            Pace::Batches(count) if !self.sent.is_multiple_of(count) || unconfirmed == 0 => send,
            Pace::Window(_) | Pace::Batches(_) => Next::WaitForAnswer,
            Pace::OneByOne => {
                let is_answered = match self.copies {
                    0 => unconfirmed == 0,
                    _ => self.awaited == 0,
                };
                let until_ns = self.last_sent_ns.saturating_add(ANSWER_NS_MAX);
                match is_answered || now_ns >= until_ns {
                    true => send,
                    false => Next::WaitUntil(until_ns),
                }
            }
            Pace::Due(schedule) => match schedule.due_ns(self.sent) {
                _ if unconfirmed >= DUE_UNCONFIRMED_MAX => Next::WaitForAnswer,
                due_ns if now_ns < due_ns => Next::WaitUntil(due_ns),
                _ => send,
            },
        }
    }

    /// The message of [`Next::Send`] was sent.
    pub fn sent(&mut self, now_ns: u64) {
        self.sent += 1;
        self.awaited = self.copies;
        self.last_sent_ns = now_ns;
    }

    /// So many messages were taken, or refused: both are answers.
    pub fn settle(&mut self, messages: u64) {
        self.settled = self.settled.saturating_add(messages).min(self.sent);
    }

    /// A reply to this message is there. Those to earlier ones were given up.
    pub fn reply(&mut self, sequence: u64) {
        if sequence + 1 == self.sent {
            self.awaited = self.awaited.saturating_sub(1);
        }
    }

    /// No more messages are sent: the time of the run is over.
    pub fn stop(&mut self) {
        self.messages = self.sent;
    }

    /// Whether all is sent and answered by the backend.
    pub fn is_settled(&self) -> bool {
        self.sent >= self.messages && self.settled == self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::{Chance, seeds};
    use crate::faults;
    use crate::pace::{Schedule, Share};
    use crate::plan::Replies;

    fn pacer(pace: Pace, messages: u64, pattern: Pattern) -> Pacer {
        let task = Task {
            member: Member::Producer(0),
            queue: None,
            messages: Some(messages),
            pace: Some(pace),
            replies: Replies::None,
            keeps_journal: false,
        };
        Pacer::new(&task, pattern, 3).unwrap()
    }

    /// When each message was sent and when it was answered by a server that takes some time, in order.
    fn play(pace: Pace, chance: &mut Chance) -> Vec<(u64, u64)> {
        let count = 1 + chance.below(200);
        let mut pacer = pacer(pace, count, Pattern::WorkSharing);
        let mut times: Vec<(u64, u64)> = Vec::new();
        let (mut now_ns, mut settled) = (0, 0);
        loop {
            while times
                .get(settled)
                .is_some_and(|(_, answer)| *answer <= now_ns)
            {
                settled += 1;
                pacer.settle(1);
            }
            let answer_ns = times.get(settled).map(|(_, answer)| *answer);
            match pacer.next(now_ns) {
                Next::Send(sequence) => {
                    assert_eq!(sequence, times.len() as u64);
                    let before = times.last().map_or(0, |(_, answer)| *answer);
                    let answer = before.max(now_ns + 1) + chance.below(1000);
                    times.push((now_ns, answer));
                    pacer.sent(now_ns);
                    now_ns += chance.below(100);
                }
                Next::WaitUntil(until) => now_ns = answer_ns.unwrap_or(until).min(until),
                Next::WaitForAnswer => now_ns = answer_ns.expect("something is unanswered"),
                Next::Done => match answer_ns {
                    Some(answer) => now_ns = now_ns.max(answer),
                    None => break,
                },
            }
        }
        assert_eq!(times.len() as u64, count);
        assert!(pacer.is_settled());
        times
    }

    /// Messages that were unanswered when each one was sent, itself among them.
    fn outstanding(times: &[(u64, u64)]) -> Vec<u64> {
        let of = |index: usize| {
            let unanswered = |(_, answer): &&(u64, u64)| *answer > times[index].0;
            times[..=index].iter().filter(unanswered).count() as u64
        };
        (0..times.len()).map(of).collect()
    }

    fn window_holds(seed: u64) -> bool {
        let mut chance = Chance(seed);
        let most = 1 + chance.below(20);
        let times = play(Pace::Window(most), &mut chance);
        outstanding(&times).iter().all(|count| *count <= most)
    }

    #[test]
    fn a_window_is_never_exceeded() {
        for seed in seeds(200) {
            assert!(window_holds(seed), "seed {seed}");
        }
        let is_missed = faults::with(Fault::WindowTooLarge, || (0..20).all(window_holds));
        assert!(!is_missed);
    }

    #[test]
    fn a_batch_begins_when_all_of_the_one_before_is_answered() {
        for seed in seeds(200) {
            let mut chance = Chance(seed);
            let batch = 1 + chance.below(20);
            let times = play(Pace::Batches(batch), &mut chance);
            for (count, index) in outstanding(&times).iter().zip(0..) {
                assert!(*count <= index % batch + 1, "seed {seed}");
            }
        }
    }

    #[test]
    fn one_by_one_has_one_outstanding() {
        for seed in seeds(200) {
            let times = play(Pace::OneByOne, &mut Chance(seed));
            assert!(
                outstanding(&times).iter().all(|count| *count == 1),
                "seed {seed}"
            );
        }
    }

    #[test]
    fn nothing_is_sent_before_it_is_due_and_nobody_waits_for_answers() {
        for seed in seeds(200) {
            let mut chance = Chance(seed);
            let share = Share {
                producer: 0,
                producers: 1,
            };
            let schedule = Schedule::of_messages(1e6 + chance.below(1_000_000_000) as f64, share);
            let times = play(Pace::Due(schedule), &mut chance);
            let mut free_ns = 0;
            for (&(sent_ns, _), sequence) in times.iter().zip(0..) {
                let due_ns = schedule.due_ns(sequence);
                assert!(sent_ns >= due_ns, "seed {seed}");
                // At most the 100 ns that `play` spends on a message later than it could be.
                assert!(sent_ns <= due_ns.max(free_ns), "seed {seed}");
                free_ns = sent_ns + 100;
            }
        }
    }

    #[test]
    fn the_closed_loop_waits_for_all_replies_and_gives_lost_ones_up() {
        let mut pacer = pacer(Pace::OneByOne, 3, Pattern::BroadcastGather);
        assert_eq!(pacer.next(5), Next::Send(0));
        pacer.sent(5);
        pacer.settle(1);
        pacer.reply(0);
        pacer.reply(0);
        let until_ns = 5 + ANSWER_NS_MAX;
        assert_eq!(pacer.next(6), Next::WaitUntil(until_ns));
        assert_eq!(pacer.next(until_ns), Next::Send(1));
        pacer.sent(until_ns);
        pacer.settle(1);
        for _ in 0..3 {
            pacer.reply(0);
        }
        let next = Next::WaitUntil(until_ns + ANSWER_NS_MAX);
        assert_eq!(pacer.next(until_ns), next);
        for _ in 0..3 {
            pacer.reply(1);
        }
        assert_eq!(pacer.next(until_ns), Next::Send(2));
        pacer.sent(until_ns);
        assert_eq!(pacer.next(until_ns), Next::Done);
        assert!(!pacer.is_settled());
        pacer.settle(1);
        assert!(pacer.is_settled());
    }

    #[test]
    fn a_stopped_producer_is_done() {
        let mut pacer = pacer(Pace::Window(8), u64::MAX, Pattern::WorkSharing);
        pacer.sent(0);
        pacer.stop();
        assert_eq!(pacer.next(1), Next::Done);
        pacer.settle(5);
        assert!(pacer.is_settled());
    }
}
