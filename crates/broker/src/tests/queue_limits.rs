//! Queues at their bounds: what is read ahead, what fits a frame, what a
//! member may say.

use super::farm::*;
use super::harness::*;
use log::testing::Survival;
use std::time::Duration;
use wire::frame::FrameKind;
use wire::message::*;
use wire::*;

/// So many leases a frame has at most.
const LEASES_MAX: usize = 4096;

#[test]
fn more_events_of_one_key_than_are_read_ahead_hold_back_no_others() {
    let mut ground = Ground::new();
    ground.limits.read_bytes_max = 1000;
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let join = Join {
        options: r#"{"ordered_by_key":true}"#.into(),
        ..member(1)
    };
    let id = world.joined(link, topic, &join);
    let hot: Vec<String> = (0..200).map(|number| number.to_string()).collect();
    for (index, texts) in hot.chunks(5).enumerate() {
        let events: Vec<(&str, &str)> = texts.iter().map(|text| (text.as_str(), "hot")).collect();
        world.produce(link, topic, &keyed(topic, index as u64 * 5, &events));
    }
    world.produce(link, topic, &keyed(topic, 200, &[("200", "other")]));
    assert_eq!(world.numbers(link, id), [0, 200]);
    for number in 0..199 {
        let given = world.given(link, id).pop().unwrap();
        let lease = match number {
            0 => world.given(link, id)[0].lease,
            _ => given.lease,
        };
        world.settled(link, topic, (1, number + 1), vec![done(lease)]);
        let next = world.given(link, id).pop().unwrap();
        assert_eq!(next.text, (number + 1).to_string());
    }
}

/// A batch that does not fit behind what waits is not read again and again.
#[test]
fn what_does_not_fit_is_read_when_there_is_room() {
    let mut ground = Ground::new();
    ground.limits.read_bytes_max = 2000;
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let one = Join {
        prefetch_events: 1,
        ..member(1)
    };
    let id = world.joined(link, topic, &one);
    world.fill(link, topic, 0, 1, 1);
    world.fill(link, topic, 1, 3, 2);
    world.hold_disk = true;
    let long = "9".repeat(6000);
    world.produce(link, topic, &batch(topic, 5, 0, 3, &[&long]));
    let tries = (0..200).find(|_| {
        if world.held_operation_count() > 0 {
            world.release_operation(0);
        }
        world.held_operation_count() == 0
    });
    assert!(tries.is_some(), "it is read without end");
    world.release_disk();
    for number in 0..4 {
        let lease = world.given(link, id)[number].lease;
        let refused = world.settled(link, topic, (1, number as u64 + 1), vec![done(lease)]);
        assert!(refused.is_empty());
    }
    assert_eq!(world.queue(link, topic).position.offset, Offset(4));
}

#[test]
fn leases_of_scattered_events_fit_their_frames() {
    const EVENTS: u64 = 10_000;
    let mut ground = Ground::new();
    let mut world = ground.start();
    let (link, other) = (world.connect(), world.connect());
    let topic = world.farm(link);
    let greedy = |number| Join {
        prefetch_events: 100_000,
        ..member(number)
    };
    let id = world.joined(link, topic, &greedy(1));
    world.fill(link, topic, 0, EVENTS, EVENTS);
    let given = world.given(link, id);
    let every_second = given.iter().step_by(2).map(|given| done(given.lease));
    let refused = world.settled(link, topic, (1, 1), every_second.collect());
    assert!(refused.is_empty());
    let leave = Leave {
        consumer: "q".into(),
        member: MemberId(1),
    };
    let left = world.request(link, Method::Leave, topic, &leave, &[]);
    world.answer(link, left).unwrap().unwrap();
    let id = world.joined(other, topic, &greedy(2));
    let odd: Vec<u64> = (0..EVENTS).filter(|number| number % 2 == 1).collect();
    assert_eq!(world.numbers(other, id), odd);
    let inbox = world.links[&other].inbox.iter();
    let frames = inbox.filter(|message| message.kind == FrameKind::Leased);
    for message in frames {
        let head = Leased::from_bytes("leased", &message.head).unwrap();
        assert!(head.leases.len() <= LEASES_MAX, "{}", head.leases.len());
    }
}

#[test]
fn deliveries_that_a_member_makes_up_are_counted_as_far_as_numbers_go() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let join = Join {
        options: r#"{"deliveries_max":0}"#.into(),
        ..member(1)
    };
    let id = world.joined(link, topic, &join);
    world.fill(link, topic, 0, 1, 1);
    let lease = Lease {
        deliveries: u32::MAX,
        ..world.given(link, id)[0].lease
    };
    ground.kill();
    let mut world = ground.start();
    let link = world.connect();
    let held = vec![lease];
    let id = world.joined(link, topic, &Join { held, ..join });
    let refused = world.settled(link, topic, (1, 1), vec![back(lease, 0)]);
    assert!(refused.is_empty());
    let again = world.given(link, id).pop().unwrap();
    assert_eq!(again.lease.deliveries, u32::MAX);
    world.live(&[link], Duration::from_secs(1));
}

#[test]
fn a_rejection_of_more_events_than_a_command_takes_is_answered_when_all_are_recorded() {
    const EVENTS: u64 = 10_000;
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let join = Join {
        prefetch_events: 100_000,
        ..member(1)
    };
    let id = world.joined(link, topic, &join);
    world.fill(link, topic, 0, EVENTS, EVENTS);
    let leases: Vec<Lease> = world.given(link, id).iter().map(|g| g.lease).collect();
    let all = Lease {
        end: leases[leases.len() - 1].end,
        ..leases[0]
    };
    world.hold_disk = true;
    let asked = world.send_settle(link, topic, (1, 1), vec![reject(all, "no use")]);
    while world.answer(link, asked).is_none() {
        assert!(world.held_operation_count() > 0, "it is never answered");
        world.release_operation(0);
    }
    let settled: wire::message::Settled = world.answered(link, asked).unwrap();
    assert!(settled.expired.is_empty());
    ground.power_loss(Survival::Nothing);
    let mut world = ground.start();
    let link = world.connect();
    let queue = world.queue(link, topic);
    assert_eq!(queue.position.offset.0 + queue.settled + queue.dead, EVENTS);
    // All of them become dead letters, in their order.
    world.live(&[link], Duration::from_secs(1));
    assert_eq!(world.queue(link, topic).position.offset, Offset(EVENTS));
    let letters = world.dead_letters(link);
    let numbers = letters.iter().map(|(text, _)| text.parse().unwrap());
    let numbers: Vec<u64> = numbers.collect();
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<u64>>());
}

#[test]
fn members_that_have_no_room_take_no_turns() {
    let mut ground = Ground::new();
    let mut world = ground.start();
    let link = world.connect();
    let topic = world.farm(link);
    let full = Join {
        prefetch_events: 1,
        ..member(1)
    };
    world.joined(link, topic, &full);
    for number in 2..=40 {
        let (consumer, member) = (full.consumer.clone(), MemberId(number));
        let another = Join {
            consumer,
            member,
            ..full.clone()
        };
        world.joined(link, topic, &another);
    }
    world.fill(link, topic, 0, 40, 40);
    let wide = Join {
        prefetch_events: 100,
        ..member(50)
    };
    let id = world.joined(link, topic, &wide);
    world.fill(link, topic, 40, 100, 60);
    // In one frame, for nobody else can take of it.
    assert_eq!(world.frames(link, id).len(), 1);
    assert_eq!(world.numbers(link, id), (40..100).collect::<Vec<u64>>());
}

/// Short tasks travel together, long ones are spread, and so are large events.
#[test]
fn a_member_is_given_together_what_it_soon_works_off() {
    for (worked_us, bytes, expected) in [
        (1, 1, [8, 0]),
        (600, 1, [4, 4]),
        (30_000_000, 1, [4, 4]),
        // An even share is 4, and 6 are within the bound on bytes.
        (1, 40_000, [6, 2]),
        (1, 100_000, [4, 4]),
        (600, 40_000, [4, 4]),
    ] {
        let mut world = Ground::new().start();
        let links = [world.connect(), world.connect()];
        let topic = world.farm(links[0]);
        let ids = [1, 2].map(|number| {
            let link = links[number as usize - 1];
            let roomy = Join {
                prefetch_bytes: 1 << 20,
                ..member(number)
            };
            world.joined(link, topic, &roomy)
        });
        world.fill(links[0], topic, 0, 2, 2);
        for (index, id) in ids.into_iter().enumerate() {
            // Nothing is known of them yet.
            let given = world.given(links[index], id);
            assert_eq!(given.len(), 1);
            let settle = Settle {
                consumer: "q".into(),
                member: MemberId(index as u128 + 1),
                sequence: 1,
                worked_us,
                settlements: vec![done(given[0].lease)],
            };
            let asked = world.request(links[index], Method::Settle, topic, &settle, &[]);
            let _: Settled = world.answered(links[index], asked).unwrap();
        }
        let texts: Vec<String> = (2..10).map(|n: u64| n.to_string().repeat(bytes)).collect();
        let texts: Vec<&str> = texts.iter().map(|text| &text[..bytes]).collect();
        world.stored(links[0], topic, (5, 2), &texts);
        let counts = [0, 1].map(|index| world.given(links[index], ids[index]).len() - 1);
        assert_eq!(counts, expected, "{worked_us} us, {bytes} bytes");
    }
}
