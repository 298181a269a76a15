//! What members say of themselves while they run, so that it is known of one that is killed.

use crate::account::{Account, Taken};
use crate::payload::Stamp;
use crate::plan::{Member, Plan};
use crate::report::{ConsumerReport, ProducerReport, Report};
use crate::settings::COUNT_MAX;
use crate::window::Window;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Messages of one producer in a row, as they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Came {
    producer: u32,
    attempt: u32,
    first: u64,
    count: u64,
    is_flagged: bool,
}

/// What a consumer has since it last said so. Said before those messages are acknowledged: what it is killed with is
/// delivered again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Had {
    came: Vec<Came>,
    window: Window,
}

impl Had {
    /// Takes a message, in the order in which they come.
    pub fn take(&mut self, stamp: Stamp, is_flagged: bool) {
        if let Some(last) = self.came.last_mut() {
            let goes_on = last.producer == stamp.producer
                && last.attempt == stamp.attempt
                && last.is_flagged == is_flagged
                && last.first.checked_add(last.count) == Some(stamp.sequence);
            if goes_on {
                last.count += 1;
                return;
            }
        }
        self.came.push(Came {
            producer: stamp.producer,
            attempt: stamp.attempt,
            first: stamp.sequence,
            count: 1,
            is_flagged,
        });
    }

    /// What is to be said, with the consumer's window so far. Nothing is left.
    pub fn said(&mut self, window: Window) -> Self {
        Self {
            came: std::mem::take(&mut self.came),
            window,
        }
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.came.is_empty()
    }
}

/// What a producer has done since it last said so, and in all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Did {
    /// Sequences that the backend has taken, since then.
    pub confirmed: Vec<u64>,
    /// Sequences below this were sent.
    pub sent: u64,
    /// Replies, each once.
    pub replies: u64,
    /// When it sent.
    pub window: Window,
}

/// What members have said who keep a journal, for those of them who can say no more.
#[derive(Debug, Clone)]
pub struct Journal {
    run: u64,
    reports: BTreeMap<Member, Report>,
    /// Messages that a consumer has said, each once.
    new: BTreeMap<u64, u64>,
}

impl Journal {
    /// Of a run. One who says nothing before its end has acknowledged nothing.
    pub fn new(plan: &Plan) -> Self {
        let mut reports = BTreeMap::new();
        for work in &plan.assignments {
            let (run, producers) = (work.common.run, work.common.producers);
            for task in work.tasks.iter().filter(|task| task.keeps_journal) {
                let report = match task.member {
                    Member::Consumer(index) => {
                        let account = Account::new(run, producers);
                        Report::Consumer(ConsumerReport::new(index, account))
                    }
                    Member::Producer(index) => {
                        Report::Producer(Box::new(ProducerReport::new(index, None)))
                    }
                };
                reports.insert(task.member, report);
            }
        }
        let first = plan.assignments.first();
        Self {
            run: first.map_or(0, |work| work.common.run),
            reports,
            new: BTreeMap::new(),
        }
    }

    /// Whether a member keeps one.
    pub fn is_kept_by(&self, member: Member) -> bool {
        self.reports.contains_key(&member)
    }

    /// A consumer says what it has. Returns how many messages, each once, it has said so far: that is what nobody else
    /// gets when it is killed.
    pub fn had(&mut self, consumer: u64, had: &Had) -> u64 {
        let run = self.run;
        let Some(Report::Consumer(report)) = self.reports.get_mut(&Member::Consumer(consumer))
        else {
            return 0;
        };
        let new = self.new.entry(consumer).or_default();
        for came in &had.came {
            let count = came.count.min(COUNT_MAX);
            for sequence in (0..count).filter_map(|index| came.first.checked_add(index)) {
                let stamp = Stamp {
                    run,
                    producer: came.producer,
                    attempt: came.attempt,
                    sequence,
                    sent_ns: 0,
                };
                let taken = report.account.take(stamp, came.is_flagged);
                *new += u64::from(taken == Taken::New);
            }
        }
        report.window = had.window;
        *new
    }

    /// A producer says what it did.
    pub fn did(&mut self, producer: u64, did: &Did) {
        let Some(Report::Producer(report)) = self.reports.get_mut(&Member::Producer(producer))
        else {
            return;
        };
        for &sequence in &did.confirmed {
            report.confirm(sequence);
        }
        report.sent = did.sent;
        report.replies = did.replies;
        report.window = did.window;
    }

    /// The reports of members that have none of their own.
    pub fn reports_of(mut self, silent: impl Iterator<Item = Member>) -> Vec<Report> {
        silent
            .filter_map(|member| self.reports.remove(&member))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::{Chance, seeds};
    use crate::document::Text;
    use crate::message::{FromProcess, from_line, to_line};
    use crate::scenario::Scenario;

    /// What a consumer says in parts is what it would have reported.
    #[test]
    fn what_was_said_in_parts_is_the_report() {
        for seed in seeds(100) {
            let mut chance = Chance(seed);
            let mut report = ConsumerReport::new(1, Account::new(9, 2));
            let (mut had, mut journal) = (Had::default(), journal());
            for now_ns in 1..=chance.below(200) {
                let stamp = Stamp {
                    run: 9,
                    producer: chance.below(2) as u32,
                    attempt: chance.below(2) as u32,
                    sequence: chance.below(20),
                    sent_ns: 0,
                };
                let is_flagged = chance.one_in(3);
                report.take(now_ns, stamp, is_flagged);
                had.take(stamp, is_flagged);
                if chance.one_in(5) {
                    say(&mut journal, had.said(report.window));
                }
            }
            say(&mut journal, had.said(report.window));
            let silent = [Member::Consumer(1), Member::Consumer(0)];
            let reports = journal.reports_of(silent.into_iter());
            assert_eq!(reports, [Report::Consumer(report)], "seed {seed}");
        }
    }

    fn journal() -> Journal {
        let text = "workload = 'dstream'\npattern = 'work sharing'\nconsumers = 2\nmessages = 256\n\
                    faults = ['kill consumer 1@30%', 'kill producer@50%']";
        let scenario = Scenario::from_toml(Text {
            file: "a.toml",
            text,
        });
        let scenario = scenario.unwrap();
        Journal::new(&Plan::new(&scenario, scenario.runs()[0], 9, None).unwrap())
    }

    fn say(journal: &mut Journal, had: Had) {
        let line = to_line(&FromProcess::Had { consumer: 1, had });
        match from_line(&line) {
            // Two producers have twenty messages each.
            Ok(FromProcess::Had { consumer, had }) => assert!(journal.had(consumer, &had) <= 40),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_producer_that_is_gone_has_what_it_said() {
        let mut journal = journal();
        for (confirmed, sent) in [(vec![0, 1], 4), (vec![3], 7)] {
            let window = Window {
                span_ns: Some((5, 5 + sent)),
                ..Window::default()
            };
            let did = Did {
                confirmed,
                sent,
                replies: 2,
                window,
            };
            journal.did(0, &did);
        }
        let reports = journal.reports_of([Member::Producer(0)].into_iter());
        let [Report::Producer(report)] = &reports[..] else {
            panic!("{reports:?}");
        };
        assert_eq!(
            (report.sent, report.confirmed.count(), report.replies),
            (7, 3, 2)
        );
        assert_eq!(report.window.span_ns, Some((5, 12)));
    }
}
