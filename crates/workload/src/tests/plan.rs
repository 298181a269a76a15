//! Plans: who does what adds up.

use super::scenario;
use crate::chance::{Chance, seeds};
use crate::faults::{self, Fault};
use crate::*;

fn plan(scenario: &Scenario) -> Plan {
    Plan::new(scenario, scenario.runs()[0], 7, Some(1000.0)).unwrap()
}

fn producers(plan: &Plan) -> Vec<Task> {
    let tasks = plan.assignments.iter().flat_map(|one| one.tasks.clone());
    let is_producer = |task: &Task| matches!(task.member, Member::Producer(_));
    tasks.filter(is_producer).collect()
}

#[test]
fn every_member_is_in_one_process_and_consumers_come_first() {
    for seed in seeds(200) {
        let mut chance = Chance(seed);
        let members = 1 + chance.below(64);
        let pack = 1 + chance.below(10);
        let each = 1 + chance.below(200);
        let text = format!(
            "workload = 'dstream'\npattern = 'work sharing'\nconsumers = {members}\n\
             messages = {}\nrate = 'unlimited'\npack = {pack}\n",
            each * members + chance.below(members)
        );
        let scenario = scenario(&text);
        let plan = plan(&scenario);
        let all: Vec<Member> = plan.members().collect();
        let consumers = (0..members).map(Member::Consumer);
        let expected: Vec<Member> = consumers
            .chain((0..members).map(Member::Producer))
            .collect();
        assert_eq!(all, expected, "seed {seed}");
        for (assignment, process) in plan.assignments.iter().zip(0..) {
            assert_eq!(assignment.process, process);
            assert!((1..=pack).contains(&(assignment.tasks.len() as u64)));
            let is_consumer = |task: &Task| matches!(task.member, Member::Consumer(_));
            let consumers = assignment
                .tasks
                .iter()
                .filter(|task| is_consumer(task))
                .count();
            assert!(consumers == 0 || consumers == assignment.tasks.len());
        }
        let messages: u64 = producers(&plan)
            .iter()
            .filter_map(|task| task.messages)
            .sum();
        assert_eq!(Some(messages), scenario.messages_of(members), "seed {seed}");
        assert_eq!(plan.deliveries, Some(messages));
    }
}

/// The published program's loop: batches while a whole one is left.
fn sent_as_published(messages: u64, batch: u64) -> u64 {
    let mut sent = 0;
    for _ in 0..messages / batch {
        sent += batch;
    }
    sent
}

#[test]
fn published_producers_send_whole_batches() {
    let agrees = || {
        let text = "workload = 'dstream'\npattern = 'broadcast'\nconsumers = 3\nproducers = 2\nmessages = 333\n";
        let plan = plan(&scenario(text));
        let each = sent_as_published(333 / 2, 64);
        plan.deliveries == Some(each * 2 * 3)
            && producers(&plan)
                .iter()
                .all(|task| task.messages == Some(each) && task.pace == Some(Pace::Batches(64)))
    };
    assert!(agrees());
    assert!(!faults::with(Fault::SendRemainder, agrees));
}

#[test]
fn queues_are_shared_out_as_published() {
    let text = "workload = 'dstream'\npattern = 'work sharing with feedback'\nconsumers = 5\nmessages = 6400\n";
    let plan = plan(&scenario(text));
    let queues: Vec<Option<u64>> = producers(&plan).iter().map(|task| task.queue).collect();
    assert_eq!(queues, [0, 0, 0, 1, 1].map(Some));
    assert!(
        producers(&plan)
            .iter()
            .all(|task| task.replies == Replies::Own)
    );
}

#[test]
fn a_broadcast_has_no_queue_to_share_and_one_for_replies() {
    let text =
        "workload = 'generic'\npattern = 'broadcast and gather'\nconsumers = 4\nmessages = 64\n";
    let plan = plan(&scenario(text));
    assert_eq!(plan.deliveries, Some(256));
    for task in plan.assignments.iter().flat_map(|one| &one.tasks) {
        assert_eq!((task.queue, task.replies), (None, Replies::Shared));
    }
}

#[test]
fn paces_follow_from_loop_and_rate() {
    let pace = |lines: &str| {
        let text = format!(
            "workload = 'dstream'\npattern = 'work sharing'\nconsumers = 2\nmessages = 256\n{lines}\n"
        );
        producers(&plan(&scenario(&text)))[0].pace.unwrap()
    };
    assert_eq!(pace(""), Pace::Batches(64));
    assert_eq!(pace("rate = 'unlimited'"), Pace::Window(64));
    assert_eq!(pace("loop = 'closed'"), Pace::OneByOne);
    let share = Share {
        producer: 0,
        producers: 2,
    };
    let enforced = Schedule::of_bytes(4_000_000_000, 16_000, share);
    assert_eq!(pace("rate = 'enforced'"), Pace::Due(enforced));
    // 250,000 messages a second of two producers.
    assert_eq!(enforced.due_ns(125_000), 1_000_000_000);
    let half = Schedule::of_messages(500.0, share);
    assert_eq!(pace("loop = { share = 0.5 }"), Pace::Due(half));
    assert_eq!(half.due_ns(250), 1_000_000_000);
    assert_eq!(
        pace("rate = 'unlimited'\n[settings]\nconfirms = 'each'"),
        Pace::Window(1)
    );
}

#[test]
fn a_share_of_nothing_measured_is_refused() {
    let text = "workload = 'dstream'\npattern = 'work sharing'\nconsumers = 2\nmessages = 256\nloop = { share = 0.5 }\n";
    let scenario = scenario(text);
    let error = Plan::new(&scenario, scenario.runs()[0], 7, None).unwrap_err();
    assert_eq!(error, PlanError::NotMeasured);
}

#[test]
fn lines_are_what_was_said() {
    let text = "workload = 'dstream'\npattern = 'work sharing'\nconsumers = 2\nmessages = 256\nrate = 'enforced'\n";
    let plan = plan(&scenario(text));
    let said = ToProcess::Assign(plan.assignments[1].clone());
    let line = to_line(&said);
    assert_eq!(line.lines().count(), 1);
    assert_eq!(from_line::<ToProcess>(&line), Ok(said));
    for message in [
        ToProcess::Go(5),
        ToProcess::Finish,
        ToProcess::StopProducers,
    ] {
        assert_eq!(from_line::<ToProcess>(&to_line(&message)), Ok(message));
    }
    let hello = FromProcess::Hello { process: 3, pid: 9 };
    assert_eq!(to_line(&hello), "{\"hello\":{\"process\":3,\"pid\":9}}\n");
    let error = from_line::<FromProcess>("{\"hollo\":1}").unwrap_err();
    assert!(error.to_string().contains("unknown variant"), "{error}");
}
