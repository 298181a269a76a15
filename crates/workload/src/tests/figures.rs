//! Figures against a slow, obvious model: lists of all that was sent and all that came.

use super::scenario;
use crate::chance::{Chance, seeds};
use crate::faults::{self, Fault};
use crate::*;
use std::collections::BTreeSet;

const RUN: u64 = 77;

/// All that happened in a run.
#[derive(Default)]
struct History {
    /// Producer, sequence, time.
    sent: Vec<(u32, u64, u64)>,
    /// Producer, sequence.
    confirmed: BTreeSet<(u32, u64)>,
    /// For each consumer what came, in its order: the stamp and when.
    came: Vec<Vec<(Stamp, u64)>>,
    foreign: u64,
    damaged: u64,
}

/// What the backend says of a delivery.
fn is_flagged(stamp: &Stamp) -> bool {
    stamp.sent_ns.is_multiple_of(7)
}

/// A run by chance: losses, refusals, messages that are sent or delivered again, disorder.
fn history(chance: &mut Chance, is_broadcast: bool) -> History {
    let consumers = 1 + chance.below(4) as usize;
    let producers = 1 + chance.below(4) as u32;
    let mut history = History {
        came: vec![Vec::new(); consumers],
        ..History::default()
    };
    for producer in 0..producers {
        for sequence in 0..chance.below(60) {
            let sent_ns = 1_000_000 + sequence * 1000 + chance.below(900);
            history.sent.push((producer, sequence, sent_ns));
            if !chance.one_in(6) {
                history.confirmed.insert((producer, sequence));
            }
            let attempts = if chance.one_in(5) {
                1 + chance.below(3) as u32
            } else {
                0
            };
            for attempt in 0..=attempts {
                for consumer in 0..consumers {
                    let is_its = is_broadcast || chance.one_in(consumers as u64);
                    let copies = match (is_its, chance.below(8)) {
                        (false, _) | (_, 0) => 0,
                        (_, 1) => 2,
                        _ => 1,
                    };
                    for _ in 0..copies {
                        let stamp = Stamp {
                            run: RUN,
                            producer,
                            attempt,
                            sequence,
                            sent_ns,
                        };
                        let now_ns = sent_ns + 500 + chance.below(3000);
                        history.came[consumer].push((stamp, now_ns));
                    }
                }
            }
        }
    }
    for came in &mut history.came {
        came.sort_by_key(|(_, now_ns)| *now_ns);
    }
    history
}

impl History {
    /// What members report of it, by way of lines.
    fn reports(&self, chance: &mut Chance) -> Vec<Report> {
        let producers = self.producers();
        let mut reports = Vec::new();
        for producer in 0..producers {
            let mut report = ProducerReport::new(producer, None);
            for &(from, sequence, sent_ns) in &self.sent {
                if u64::from(from) != producer {
                    continue;
                }
                report.send(Stamp {
                    run: RUN,
                    producer: from,
                    attempt: 0,
                    sequence,
                    sent_ns,
                });
                match self.confirmed.contains(&(from, sequence)) {
                    true => report.confirm(sequence),
                    false => report.refuse(),
                }
            }
            reports.push(Report::Producer(Box::new(report)));
        }
        for (consumer, came) in self.came.iter().enumerate() {
            let account = Account::new(RUN, producers);
            let mut report = ConsumerReport::new(consumer as u64, account);
            for &(stamp, now_ns) in came {
                report.take(now_ns, stamp, is_flagged(&stamp));
            }
            let other = Stamp {
                run: RUN + 1,
                producer: 0,
                attempt: 0,
                sequence: 0,
                sent_ns: 0,
            };
            for _ in 0..self.damaged {
                report.account.take_damaged();
            }
            for _ in 0..self.foreign {
                assert_eq!(report.take(1, other, true), Taken::Foreign);
            }
            reports.push(Report::Consumer(report));
        }
        let mut lines: Vec<String> = reports
            .into_iter()
            .map(|report| to_line(&FromProcess::Report(report)))
            .collect();
        for index in (1..lines.len()).rev() {
            lines.swap(index, chance.below(index as u64 + 1) as usize);
        }
        let read = |line: &String| match from_line(line) {
            Ok(FromProcess::Report(report)) => report,
            other => panic!("{other:?}"),
        };
        lines.iter().map(read).collect()
    }

    fn producers(&self) -> u64 {
        let last = self
            .sent
            .iter()
            .map(|(producer, ..)| u64::from(*producer) + 1);
        last.max().unwrap_or(1)
    }

    /// Counts of some consumers who share messages, by comparing everything with everything.
    fn counts(&self, consumers: &[usize]) -> Counts {
        let of_them = || consumers.iter().flat_map(|&one| &self.came[one]);
        let identity = |stamp: &Stamp| (stamp.producer, stamp.sequence);
        let distinct: BTreeSet<(u32, u64)> = of_them().map(|(stamp, _)| identity(stamp)).collect();
        let sendings: BTreeSet<(u32, u64, u32)> = of_them()
            .map(|(stamp, _)| (stamp.producer, stamp.sequence, stamp.attempt))
            .collect();
        let deliveries = of_them().count() as u64;
        let mut out_of_order = 0;
        for &consumer in consumers {
            let came = &self.came[consumer];
            for (index, (stamp, _)) in came.iter().enumerate() {
                let before = || came[..index].iter().map(|(other, _)| identity(other));
                let is_first = before().all(|other| other != identity(stamp));
                let is_late =
                    before().any(|other| other.0 == stamp.producer && other.1 > stamp.sequence);
                out_of_order += u64::from(is_first && is_late);
            }
        }
        let not_come = || {
            let sent = self
                .sent
                .iter()
                .map(|&(producer, sequence, _)| (producer, sequence));
            sent.filter(|one| !distinct.contains(one))
        };
        let lost = not_come()
            .filter(|one| self.confirmed.contains(one))
            .count() as u64;
        Counts {
            deliveries,
            distinct: distinct.len() as u64,
            duplicates: deliveries - distinct.len() as u64,
            redelivered: deliveries - sendings.len() as u64,
            resent: sendings.len() as u64 - distinct.len() as u64,
            out_of_order,
            lost,
            unaccounted: 0,
            refused: not_come().count() as u64 - lost,
            foreign: self.foreign * consumers.len() as u64,
            damaged: self.damaged * consumers.len() as u64,
            flagged: of_them().filter(|(stamp, _)| is_flagged(stamp)).count() as u64,
            assumed: 0,
        }
    }

    /// The rate of one consumer's window.
    fn rate(&self, consumer: usize) -> Option<f64> {
        let times: Vec<u64> = self.came[consumer]
            .iter()
            .map(|(_, now_ns)| *now_ns)
            .collect();
        let span = times.iter().max()? - times.iter().min()?;
        (span > 0).then(|| times.len() as f64 / (span as f64 / 1e9))
    }
}

fn of_pattern(pattern: &str, history: &History) -> (Scenario, Run) {
    let consumers = history.came.len() as u64;
    let producers = history.producers();
    let text = format!(
        "workload = 'dstream'\npattern = '{pattern}'\nconsumers = {consumers}\nproducers = {producers}\n\
         messages = 1000\nrate = 'unlimited'\n[settings]\nqueues = 1\n"
    );
    let scenario = scenario(&text);
    let run = scenario.runs()[0];
    (scenario, run)
}

fn near(one: Option<f64>, other: Option<f64>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => (one - other).abs() <= other.abs() * 1e-9,
        (one, other) => one == other,
    }
}

/// Whether the result of a run by chance is the model's.
fn agrees(seed: u64, pattern: &str) -> bool {
    let mut chance = Chance(seed);
    let is_broadcast = pattern == "broadcast";
    let mut history = history(&mut chance, is_broadcast);
    history.foreign = chance.below(3);
    history.damaged = chance.below(3);
    let (scenario, run) = of_pattern(pattern, &history);
    let reports = history.reports(&mut chance);
    let result = RunResult::new(&scenario, run, &reports, &[], Observed::default());
    let consumers: Vec<usize> = (0..history.came.len()).collect();
    let mut counts = Counts::default();
    match is_broadcast {
        true => consumers
            .iter()
            .for_each(|&one| counts.add(&history.counts(&[one]))),
        false => counts = history.counts(&consumers),
    }
    let rates: Vec<f64> = consumers
        .iter()
        .filter_map(|&one| history.rate(one))
        .collect();
    let sum = (!rates.is_empty()).then(|| rates.iter().sum());
    let first = history.sent.iter().map(|(.., sent_ns)| *sent_ns).min();
    let last = history
        .came
        .iter()
        .flatten()
        .map(|(_, now_ns)| *now_ns)
        .max();
    let wall = first
        .zip(last)
        .map(|(first, last)| counts.distinct as f64 / ((last - first) as f64 / 1e9));
    let silence = history
        .came
        .iter()
        .flat_map(|came| came.windows(2).map(|two| two[1].1 - two[0].1))
        .max();
    result.received == counts
        && result.sent == history.sent.len() as u64
        && result.confirmed == history.confirmed.len() as u64
        && near(
            result.sum_of_windows.map(|one| one.messages_per_second),
            sum,
        )
        && near(result.wall.map(|one| one.messages_per_second), wall)
        && near(
            result.wall.map(|one| one.bytes_per_second),
            wall.map(|rate| rate * 16_000.0),
        )
        && result.silence_ns == silence.unwrap_or(0)
}

#[test]
fn every_figure_of_a_shared_stream_is_the_models() {
    for seed in seeds(200) {
        assert!(agrees(seed, "work sharing"), "seed {seed}");
    }
}

#[test]
fn every_figure_of_a_broadcast_is_the_models() {
    for seed in seeds(200) {
        assert!(agrees(seed, "broadcast"), "seed {seed}");
    }
}

#[test]
fn faults_in_the_figures_are_noticed() {
    for fault in [
        Fault::SumOverConsumers,
        Fault::WallFromReceipt,
        Fault::JoinAcrossGap,
    ] {
        let is_missed = faults::with(fault, || (0..20).all(|seed| agrees(seed, "work sharing")));
        assert!(!is_missed, "{fault:?}");
    }
}

/// A producer that sends what is due, one at a time, to a server that stands still now and then: the replies, and
/// how long after it was due and after it was sent each came.
struct Stalls {
    report: ProducerReport,
    service: Vec<u64>,
    response: Vec<u64>,
}

const GO_NS: u64 = 1_000_000_000_000;

fn stalls(seed: u64) -> Stalls {
    let mut chance = Chance(seed);
    let share = Share {
        producer: 0,
        producers: 1,
    };
    let rate = 1 + chance.below(2000);
    let schedule = Schedule::of_messages(rate as f64, share);
    let mut report = ProducerReport::new(0, Some(&schedule));
    let (mut service, mut response) = (Vec::new(), Vec::new());
    let mut now_ns = GO_NS;
    for sequence in 0..200 {
        let due_ns = GO_NS + sequence * 1_000_000_000 / rate;
        now_ns = now_ns.max(due_ns);
        let stamp = Stamp {
            run: RUN,
            producer: 0,
            attempt: 0,
            sequence,
            sent_ns: now_ns,
        };
        report.send(stamp);
        let takes = match chance.below(50) {
            0 => 500_000_000,
            _ => 10_000 + chance.below(100_000),
        };
        service.push(takes);
        now_ns += takes;
        response.push(now_ns - due_ns);
        report.reply(now_ns, stamp, Some((GO_NS, &schedule)));
    }
    service.sort_unstable();
    response.sort_unstable();
    Stalls {
        report,
        service,
        response,
    }
}

fn omission_agrees(seed: u64) -> bool {
    let stalls = stalls(seed);
    let is_close = |latency: &Latency, sorted: &[u64]| {
        [0.5, 0.9, 0.99, 1.0].into_iter().all(|part| {
            let rank = (part * sorted.len() as f64).ceil() as usize;
            let slow = sorted[rank - 1];
            latency.quantile(part).abs_diff(slow) <= 2 + slow / 1000
        })
    };
    let response = stalls.report.response.as_ref().unwrap();
    is_close(&stalls.report.service, &stalls.service) && is_close(response, &stalls.response)
}

#[test]
fn times_from_when_messages_were_due_have_what_the_producer_waited() {
    for seed in seeds(100) {
        assert!(omission_agrees(seed), "seed {seed}");
    }
    let is_missed = faults::with(Fault::OmissionIgnored, || (0..20).all(omission_agrees));
    assert!(!is_missed);
}

#[test]
fn replies_that_do_not_come_are_counted() {
    let is_counted = || {
        let result = one_reply_of_three();
        assert_eq!(result.rtt_from_due, None);
        assert_eq!((result.wall, result.sum_of_windows), (None, None));
        let rtt = result.rtt.map(|rtt| (rtt.count, rtt.p50_ns));
        let counts = (result.replies, result.replies_repeated, result.unanswered);
        (counts, rtt) == ((16, 16, 32), Some((16, 4)))
    };
    assert!(is_counted());
    let is_missed = faults::with(Fault::RepeatedReplyIsNew, is_counted);
    assert!(!is_missed);
}

/// One consumer of three answers each message, and answers it again: its second reply is not another's.
fn one_reply_of_three() -> RunResult {
    let text =
        "workload = 'generic'\npattern = 'broadcast and gather'\nconsumers = 3\nmessages = 16\n";
    let scenario = scenario(text);
    let mut report = ProducerReport::new(0, None);
    for sequence in 0..16 {
        let stamp = Stamp {
            run: RUN,
            producer: 0,
            attempt: 0,
            sequence,
            sent_ns: 5,
        };
        report.send(stamp);
        report.reply(9, stamp.of_reply(1), None);
        report.reply(9_000, stamp.of_reply(1), None);
    }
    let reports = [Report::Producer(Box::new(report))];
    RunResult::new(
        &scenario,
        scenario.runs()[0],
        &reports,
        &[],
        Observed::default(),
    )
}

#[test]
fn messages_that_are_none_of_ours_do_not_count() {
    let mut account = Account::new(RUN, 2);
    let stamp = |run, producer, sequence| Stamp {
        run,
        producer,
        attempt: u32::MAX,
        sequence,
        sent_ns: 0,
    };
    assert_eq!(account.take(stamp(RUN, 2, 0), false), Taken::Foreign);
    assert_eq!(account.take(stamp(RUN, 0, u64::MAX), false), Taken::Foreign);
    assert_eq!(account.take(stamp(RUN, 1, u64::MAX - 1), true), Taken::New);
    assert_eq!(
        account.take(stamp(RUN, 1, u64::MAX - 1), true),
        Taken::Repeat
    );
    account.take_damaged();
    let counts = account.counts(&[]);
    assert_eq!((counts.foreign, counts.damaged, counts.flagged), (2, 1, 2));
    assert_eq!((counts.deliveries, counts.redelivered), (2, 1));
}

#[test]
fn an_account_stays_small_and_says_so() {
    let mut account = Account::new(RUN, 1024);
    let most = INTERVALS_MAX as u64 / 1024;
    for sequence in 0..3 * most {
        let stamp = Stamp {
            run: RUN,
            producer: 0,
            attempt: 0,
            sequence: sequence * 2,
            sent_ns: 0,
        };
        account.take(stamp, false);
    }
    let counts = account.counts(&[]);
    assert_eq!(counts.deliveries, 3 * most);
    assert_eq!(counts.distinct, counts.deliveries + counts.assumed);
    assert_eq!(counts.assumed, 2 * most);
    assert!(to_line(&account).len() < 32 * most as usize);
}

#[test]
fn repetitions_have_the_mean_of_their_rates() {
    let results: Vec<RunResult> = (0..3)
        .map(|seed| {
            let mut chance = Chance(seed);
            let history = history(&mut chance, false);
            let (scenario, run) = of_pattern("work sharing", &history);
            RunResult::new(
                &scenario,
                run,
                &history.reports(&mut chance),
                &[],
                Observed::default(),
            )
        })
        .collect();
    let rates: Vec<f64> = results
        .iter()
        .filter_map(|one| one.wall.map(|wall| wall.messages_per_second))
        .collect();
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let summary = Summary::of(&results);
    assert!(near(summary.wall.map(|wall| wall.mean), Some(mean)));
    assert_eq!(summary.runs, 3);
    let lost: u64 = results.iter().map(|one| one.received.lost).sum();
    assert_eq!(summary.lost, lost);
    assert_eq!(summary.rtt_p50_ns, None);
    let mut slower = summary.clone();
    if let Some(wall) = &mut slower.wall {
        wall.mean /= 2.0;
    }
    assert!(near(slower.overhead(&summary), Some(2.0)));
    assert_eq!(Summary::of(&[]).overhead(&summary), None);
}

/// Consumer 1 took half of what the shared stream had, and is gone. Whether its report has arrived decides what is known.
fn result_without(consumer_reports: bool) -> RunResult {
    let text = "workload = 'dstream'\npattern = 'work sharing'\nconsumers = 2\nmessages = 256\n";
    let scenario = scenario(text);
    let mut producer = ProducerReport::new(0, None);
    let mut consumers = [0, 1].map(|index| ConsumerReport::new(index, Account::new(RUN, 2)));
    for sequence in 0..128 {
        let stamp = Stamp {
            run: RUN,
            producer: 0,
            attempt: 0,
            sequence,
            sent_ns: 5,
        };
        producer.send(stamp);
        producer.confirm(sequence);
        if sequence != 7 {
            consumers[(sequence / 64) as usize].take(6, stamp, false);
        }
    }
    let [first, second] = consumers.map(Report::Consumer);
    let mut reports = vec![Report::Producer(Box::new(producer)), first];
    if consumer_reports {
        reports.push(second);
    }
    let missing = [Absent {
        member: Member::Consumer(1),
        why: "its process has ended".to_owned(),
    }];
    RunResult::new(
        &scenario,
        scenario.runs()[0],
        &reports,
        &missing,
        Observed::default(),
    )
}

#[test]
fn what_a_silent_consumer_had_does_not_count_as_lost() {
    let counts = |is_there| {
        let received = result_without(is_there).received;
        (received.lost, received.unaccounted)
    };
    assert_eq!(counts(true), (1, 0));
    assert_eq!(counts(false), (0, 65));
    assert_ne!(
        faults::with(Fault::SilentHadNothing, || counts(false)),
        (0, 65)
    );
}

#[test]
fn what_a_consumer_of_a_broadcast_missed_after_its_end_is_no_loss() {
    let text = "workload = 'dstream'\npattern = 'broadcast'\nconsumers = 2\nmessages = 64\n";
    let scenario = scenario(text);
    let mut producer = ProducerReport::new(0, None);
    let mut consumers = [0, 1].map(|index| ConsumerReport::new(index, Account::new(RUN, 1)));
    for sequence in 0..64 {
        let stamp = Stamp {
            run: RUN,
            producer: 0,
            attempt: 0,
            sequence,
            sent_ns: 5,
        };
        producer.send(stamp);
        producer.confirm(sequence);
        if sequence != 9 {
            consumers[0].take(6, stamp, false);
        }
        if sequence < 30 {
            consumers[1].take(6, stamp, false);
        }
    }
    let mut reports = vec![Report::Producer(Box::new(producer))];
    reports.extend(consumers.map(Report::Consumer));
    let missing = [Absent {
        member: Member::Consumer(1),
        why: "kill consumer 1@30%".to_owned(),
    }];
    let run = scenario.runs()[0];
    let received = RunResult::new(&scenario, run, &reports, &missing, Observed::default()).received;
    assert_eq!((received.lost, received.unaccounted), (1, 34));
}
