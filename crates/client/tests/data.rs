//! The data of a consumer's events, against a scripted server under a
//! virtual clock: what is read, when, and into which memory.

use crate::reading;
use crate::world;

use client::*;
use reading::*;
use std::sync::{Arc, Mutex};
use wire::message::Method;
use world::World;

#[test]
fn data_is_read_when_it_arrives_and_no_more_of_it_than_two_batches() {
    let mut world = World::new();
    let topic = world.topic(1);
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    let reads = |world: &mut World| {
        world.run_until(SECOND, |_| false);
        world.server.requests(Method::ReadData)
    };
    fill(&mut world, &topic, 0..2, 2, 100_000);
    assert_eq!(reads(&mut world), 1, "nobody has asked for an event");
    fill(&mut world, &topic, 2..8, 2, 100_000);
    assert_eq!(reads(&mut world), 2);
    for index in 0..8 {
        let mut event = pull(&mut world, &consumer).unwrap().unwrap();
        assert_eq!(number(&event), index);
        assert_eq!(event.take_data(), vec![index as u8; 100_000]);
    }
    assert_eq!(reads(&mut world), 4, "each is read once");
    // In the middle of a batch that is handed out, too.
    fill(&mut world, &topic, 8..12, 4, 100_000);
    assert_eq!(pull_all(&mut world, &consumer, 1), [8]);
    let before = reads(&mut world);
    fill(&mut world, &topic, 12..14, 2, 100_000);
    assert_eq!(reads(&mut world), before + 1);
    assert_eq!(pull_all(&mut world, &consumer, 5), [9, 10, 11, 12, 13]);
}

#[test]
fn what_nobody_asked_for_is_small() {
    let mut world = World::new();
    let topic = world.topic(1);
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    fill(&mut world, &topic, 0..1, 1, 50 << 20);
    fill(&mut world, &topic, 1..2, 1, 50 << 20);
    world.run_until(SECOND, |_| false);
    assert_eq!(world.server.requests(Method::ReadData), 1);
    assert_eq!(pull_all(&mut world, &consumer, 2), [0, 1]);
}

#[test]
fn selectors_and_allocators_are_called_by_those_who_pull_alone() {
    let mut world = World::new();
    let topic = world.topic(1);
    let asked = Arc::new(Mutex::new(0));
    let (selected, allocated) = (asked.clone(), asked.clone());
    let selector = move |info: &EventInfo<'_>| {
        *selected.lock().unwrap() += 1;
        Ok(DataView::whole(info.data_bytes_total()))
    };
    let with_selector = ConsumerOptions {
        data: DataMode::Select(Arc::new(selector)),
        ..ConsumerOptions::default()
    };
    let with_allocator = ConsumerOptions {
        allocator: Some(Arc::new(move |_, view| {
            *allocated.lock().unwrap() += 1;
            Ok(Target::new(vec![0u8; view.bytes() as usize]))
        })),
        ..ConsumerOptions::default()
    };
    for options in [with_selector, with_allocator] {
        let first = topic_end(&mut world, &topic);
        let options = ConsumerOptions {
            start: Start::Latest.into(),
            ..options
        };
        let consumer = open(&mut world, &topic, options);
        fill(&mut world, &topic, first..first + 2, 1, 100_000);
        world.run_until(SECOND, |_| false);
        assert_eq!(*asked.lock().unwrap(), 0);
        assert_eq!(pull_all(&mut world, &consumer, 2), [first, first + 1]);
        assert_eq!(std::mem::take(&mut *asked.lock().unwrap()), 2);
    }
}

fn topic_end(world: &mut World, topic: &TopicHandle) -> usize {
    world.server.topics[topic.name()].partitions[0].events.len()
}

#[test]
fn damage_that_nobody_asked_for_is_told_by_the_next_pull() {
    let mut world = World::new();
    let topic = world.topic(1);
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    world.server.damage_next = true;
    fill(&mut world, &topic, 0..3, 3, 100_000);
    world.run_until(SECOND, |_| false);
    assert!(!world.server.damage_next, "it has arrived");
    let error = pull(&mut world, &consumer).unwrap_err();
    assert!(matches!(error, ClientError::Damaged { .. }), "{error}");
    assert_eq!(pull_all(&mut world, &consumer, 3), [0, 1, 2]);
    // A seek forgets what was read.
    fill(&mut world, &topic, 3..6, 3, 100_000);
    world.run_until(SECOND, |_| false);
    let seek = consumer.begin_seek(P0, at(1, 1)).unwrap();
    world.wait(seek).unwrap();
    assert_eq!(pull_all(&mut world, &consumer, 5), [1, 2, 3, 4, 5]);
}

#[test]
fn damage_on_the_way_is_an_error_once_and_then_read_again() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..6, 3, 100_000);
    world.server.damage_next = true;
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    let error = pull(&mut world, &consumer).unwrap_err();
    assert!(matches!(error, ClientError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("events/0"), "{error}");
    assert_eq!(pull_all(&mut world, &consumer, 3), [0, 1, 2]);
    // Damaged data likewise. That of the next batch was read ahead, intact.
    fill(&mut world, &topic, 6..9, 3, 100_000);
    assert_eq!(pull_all(&mut world, &consumer, 2), [3, 4]);
    world.server.damage_next = true;
    fill(&mut world, &topic, 9..12, 3, 0);
    let mut numbers = Vec::new();
    let mut errors = 0;
    while numbers.len() < 7 {
        match pull(&mut world, &consumer) {
            Ok(event) => numbers.push(number(&event.unwrap())),
            Err(ClientError::Damaged { .. }) => errors += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((numbers, errors), ((5..12).collect(), 1));
}

#[test]
fn only_selected_bytes_travel_with_one_request_a_batch() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..20, 10, 100_000);
    let before = world.net.stats().bytes;
    let selector = |info: &EventInfo<'_>| {
        let whole = DataView::whole(info.data_bytes_total());
        match info.id().offset.0 % 2 {
            0 => whole.range(10, 90).map_err(|error| error.to_string()),
            _ => Ok(DataView::none()),
        }
    };
    let options = ConsumerOptions {
        data: DataMode::Select(Arc::new(selector)),
        ..ConsumerOptions::default()
    };
    let consumer = open(&mut world, &topic, options);
    for index in 0..20 {
        let mut event = pull(&mut world, &consumer).unwrap().unwrap();
        let data = event.take_data();
        assert_eq!(data.len(), if index % 2 == 0 { 90 } else { 0 });
        assert!(data.iter().all(|byte| usize::from(*byte) == index));
        assert_eq!(event.data_bytes_total(), 100_000);
    }
    assert_eq!(world.server.requests(Method::ReadData), 2);
    assert!(world.net.stats().bytes - before < 20_000);
}

#[test]
fn inline_data_comes_along_for_all_and_stays_behind_for_none() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..10, 5, 1000);
    let consumer = open(&mut world, &topic, ConsumerOptions::default());
    for index in 0..10 {
        let mut event = pull(&mut world, &consumer).unwrap().unwrap();
        assert_eq!(event.take_data(), vec![index; 1000]);
    }
    assert_eq!(world.server.requests(Method::ReadData), 0);
    let before = world.net.stats().bytes;
    let options = ConsumerOptions {
        start: Start::Beginning.into(),
        data: DataMode::None,
        ..ConsumerOptions::default()
    };
    let consumer = open(&mut world, &topic, options);
    for _ in 0..10 {
        let event = pull(&mut world, &consumer).unwrap().unwrap();
        assert!(matches!(event.data(), EventDataRef::None));
    }
    assert!(world.net.stats().bytes - before < 5_000);
    // With an allocator, inline data goes into its memory as well.
    let options = ConsumerOptions {
        start: Start::Beginning.into(),
        allocator: Some(Arc::new(|_, view| {
            Ok(Target::new(vec![0u8; view.bytes() as usize]))
        })),
        ..ConsumerOptions::default()
    };
    let consumer = open(&mut world, &topic, options);
    let mut event = pull(&mut world, &consumer).unwrap().unwrap();
    let memory: Vec<u8> = event.take_target().unwrap().into_owner();
    assert_eq!(memory, vec![0; 1000]);
}

#[test]
fn a_selector_picks_here_from_what_comes_along() {
    let mut world = World::new();
    let topic = world.topic(1);
    // Inline data, and longer data, which is asked for as ever.
    let data = |index: usize| -> Vec<u8> {
        let bytes = if index < 4 { 1000 } else { 100_000 };
        (0..bytes).map(|at| (at / 3 + index * 7) as u8).collect()
    };
    let pending = topic.begin_producer(ProducerOptions::default());
    let producer = world.wait(pending).unwrap();
    for index in 0..6 {
        let event = Event::new(b"e").with_data(data(index));
        producer.push(event).unwrap();
    }
    let part = |offset, bytes| Segment { offset, bytes };
    let selector = move |info: &EventInfo<'_>| {
        let whole = DataView::whole(info.data_bytes_total());
        let view = match info.id().offset.0 % 4 {
            0 => Ok(whole),
            1 => whole.range(10, 90),
            2 => Ok(DataView::none()),
            _ => whole.unstructured(&[part(5, 20), part(900, 50)]),
        };
        view.map_err(|error| error.to_string())
    };
    let expected = |index: usize| {
        let whole = data(index);
        match index % 4 {
            0 => whole,
            1 => whole[10..100].to_vec(),
            2 => Vec::new(),
            _ => [&whole[5..25], &whole[900..950]].concat(),
        }
    };
    let options = ConsumerOptions {
        data: DataMode::Select(Arc::new(selector)),
        inline_along: true,
        ..ConsumerOptions::default()
    };
    let consumer = open(&mut world, &topic, options.clone());
    for index in 0..6 {
        let mut event = pull(&mut world, &consumer).unwrap().unwrap();
        assert_eq!(event.take_data(), expected(index), "{index}");
    }
    let asked = world.server.requests(Method::ReadData);
    assert!((1..=2).contains(&asked), "for the longer ones: {asked}");
    let options = ConsumerOptions {
        start: Start::Beginning.into(),
        allocator: Some(Arc::new(|_, view| {
            Ok(Target::new(vec![0u8; view.bytes() as usize]))
        })),
        ..options
    };
    let consumer = open(&mut world, &topic, options);
    for index in 0..6 {
        let mut event = pull(&mut world, &consumer).unwrap().unwrap();
        let memory = event.take_target().map(Target::into_owner::<Vec<u8>>);
        assert_eq!(memory.unwrap_or_default(), expected(index), "{index}");
    }
}

#[test]
fn a_selector_or_allocator_that_is_wrong_is_asked_again() {
    let mut world = World::new();
    let topic = world.topic(1);
    fill(&mut world, &topic, 0..2, 2, 100_000);
    let step = Arc::new(Mutex::new(0));
    let count = step.clone();
    let selector = move |info: &EventInfo<'_>| {
        let mut step = count.lock().unwrap();
        *step += 1;
        match *step {
            1 => Err("not today".to_owned()),
            2 => Ok(DataView::whole(info.data_bytes_total() + 1)),
            _ => Ok(DataView::whole(info.data_bytes_total())),
        }
    };
    let count = step.clone();
    let allocator = move |_: &EventInfo<'_>, view: &DataView| {
        let short = *count.lock().unwrap() == 3;
        let bytes = view.bytes() as usize - usize::from(short);
        Ok(Target::new(vec![0u8; bytes]))
    };
    let options = ConsumerOptions {
        data: DataMode::Select(Arc::new(selector)),
        allocator: Some(Arc::new(allocator)),
        ..ConsumerOptions::default()
    };
    let consumer = open(&mut world, &topic, options);
    for reason in [
        "not today",
        "byte 100001 of 100000",
        "gave 99999 bytes for 100000",
    ] {
        let error = pull(&mut world, &consumer).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
    assert_eq!(pull_all(&mut world, &consumer, 2), [0, 1]);
}
