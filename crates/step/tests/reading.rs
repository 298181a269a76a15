//! Where readers begin, and what they are told.

use crate::rig::*;
use std::time::Duration;
use step::*;

#[test]
fn a_late_reader_has_all_attributes() {
    let rig = Rig::new();
    let stream = rig.stream();
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    // Larger than what each record would carry, and changed now and then.
    writer.set_attribute("mesh", vec![1.5f64; 4000]).unwrap();
    for step in 0..70i64 {
        if step % 3 == 0 {
            writer.set_attribute("last", step).unwrap();
        }
        write_step(&mut writer, Wait::Begun).unwrap();
    }
    writer.wait(Wait::Committed, WATCHDOG).unwrap();
    let options = ReaderOptions {
        start: StepStart::Newest,
        ..reading("late")
    };
    let mut late = rig.open().reader(options).unwrap();
    let check = |view: &StepView, last: i64| {
        let attributes = view.attributes();
        assert_eq!(attributes.get("mesh").unwrap().count(), 4000);
        assert_eq!(
            attributes.get("last").unwrap().as_integers(),
            Some(vec![last])
        );
    };
    let newest = next_step(&mut late);
    check_step(&newest, 69);
    check(&newest, 69);
    drop(newest);
    writer.set_attribute("last", 70i64).unwrap();
    write_step(&mut writer, Wait::Accepted).unwrap();
    check(&next_step(&mut late), 70);
    // A step of the middle, by its number.
    let stored = rig.open().step(Run(1), Step(35)).unwrap();
    check_step(&stored, 35);
    check(&stored, 33);
    // And who reads all of them has at each step what was so then.
    let mut all = rig.open().reader(reading("all")).unwrap();
    for step in 0..=70 {
        let view = next_step(&mut all);
        check_step(&view, step);
        check(&view, if step == 70 { 70 } else { step as i64 / 3 * 3 });
    }
    writer.close(WATCHDOG).unwrap();
}

#[test]
fn a_name_goes_on_behind_what_all_ranks_released() {
    let rig = Rig::new();
    let stream = rig.stream();
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    for _ in 0..5 {
        write_step(&mut writer, Wait::Committed).unwrap();
    }
    let pair = |rank| ReaderOptions {
        rank,
        ranks: 2,
        ..reading("pair")
    };
    {
        let mut ranks = [0, 1].map(|rank| stream.reader(pair(rank)).unwrap());
        for rank in &mut ranks {
            check_step(&next_step(rank), 0);
            let step = next_step(rank);
            check_step(&step, 1);
            step.release(WATCHDOG).unwrap();
        }
        // One rank alone has read this.
        let third = next_step(&mut ranks[0]);
        check_step(&third, 2);
        third.release(WATCHDOG).unwrap();
    }
    let mut again = [0, 1].map(|rank| stream.reader(pair(rank)).unwrap());
    for rank in &mut again {
        check_step(&next_step(rank), 2);
    }
}

#[test]
fn a_step_that_is_left_unread_is_given_again() {
    let rig = Rig::new();
    let stream = rig.stream();
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    for _ in 0..2 {
        write_step(&mut writer, Wait::Committed).unwrap();
    }
    {
        let mut reader = stream.reader(reading("one")).unwrap();
        check_step(&next_step(&mut reader), 0);
        let step = next_step(&mut reader);
        check_step(&step, 1);
        step.leave_unread();
        drop(step);
        reader.release(WATCHDOG).unwrap();
    }
    let mut again = stream.reader(reading("one")).unwrap();
    check_step(&next_step(&mut again), 1);
}

#[test]
fn latest_gives_the_newest_step_and_counts_the_others() {
    let rig = Rig::new();
    let stream = rig.stream();
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    writer.set_attribute("a", 0i64).unwrap();
    let options = ReaderOptions {
        latest: true,
        ..reading("live")
    };
    let mut live = stream.reader(options).unwrap();
    write_step(&mut writer, Wait::Committed).unwrap();
    let first = next_step(&mut live);
    check_step(&first, 0);
    for step in 1..=6i64 {
        writer.set_attribute("a", step).unwrap();
        write_step(&mut writer, Wait::Committed).unwrap();
    }
    drop(first);
    let newest = next_step(&mut live);
    check_step(&newest, 6);
    assert_eq!(newest.skipped(), 5);
    assert_eq!(
        newest.attributes().get("a").unwrap().as_integers(),
        Some(vec![6])
    );
    drop(newest);
    assert!(is_not_ready(&mut live));
    writer.close(WATCHDOG).unwrap();
    assert_eq!(next_end(&mut live), (Run(1), None));
}

#[test]
fn a_reader_that_waits_is_told_what_for() {
    let rig = Rig::new();
    let stream = rig.stream();
    let mut reader = stream.reader(reading("early")).unwrap();
    for timeout in [Duration::ZERO, IN_VAIN] {
        let next = reader.next(timeout).unwrap();
        assert!(matches!(next, Next::NotReady(_)), "{next:?}");
    }
    // Its writer comes later.
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    write_step(&mut writer, Wait::Begun).unwrap();
    check_step(&next_step(&mut reader), 0);
}

#[test]
fn another_life_of_a_reader_takes_its_place() {
    let rig = Rig::new();
    let stream = rig.stream();
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    write_step(&mut writer, Wait::Committed).unwrap();
    let mut old = stream.reader(reading("one")).unwrap();
    check_step(&next_step(&mut old), 0);
    let mut new = rig.open().reader(reading("one")).unwrap();
    let replaced = old.next(WATCHDOG).unwrap_err();
    assert!(matches!(replaced, StepError::Replaced(_)), "{replaced}");
    assert!(replaced.to_string().contains("\"one\""), "{replaced}");
    write_step(&mut writer, Wait::Committed).unwrap();
    let first = next_step(&mut new);
    assert!(first.number() <= Step(1));
    assert!(matches!(old.next(WATCHDOG), Err(StepError::Replaced(_))));
}

/// More variables than a request may name pieces of memory, of short blocks and of long ones.
#[test]
fn all_variables_of_a_step_come_with_one_request() {
    const RANKS: u64 = 3;
    const VARIABLES: u64 = 2_000;
    const COLUMNS: u64 = 7;
    // 40 KB of each rank, and 4 KB a row.
    const LONG: [u64; 2] = [RANKS * 10, 500];
    let is_long = |name: u64| name.is_multiple_of(500);
    let (dtype, element) = (double(), |name: u64, index: u64| {
        (name * 10_000 + index) as f64
    });
    let block = |name: u64, shape: &[u64], rank: u64| {
        let count = shape[0] / RANKS * shape[1];
        let values: Vec<f64> = (rank * count..(rank + 1) * count)
            .map(|index| element(name, index))
            .collect();
        bytes_of(&values)
    };
    for storage in ["memory", "disk"] {
        let rig = Rig::new();
        let stream = rig.stream_with(&StreamOptions {
            parts: 2,
            storage: storage.to_owned(),
            ..StreamOptions::default()
        });
        for rank in 0..RANKS {
            let mut writer = stream.writer(writing(rank as u32, RANKS as u32)).unwrap();
            writer.begin_step().unwrap();
            let mut put = |name: u64, shape: &[u64]| {
                let rows = shape[0] / RANKS;
                let block = block(name, shape, rank);
                let put = Put {
                    name: &format!("v{name}"),
                    dtype: &dtype,
                    place: Place::Array {
                        shape,
                        start: &[rank * rows, 0],
                    },
                    count: &[rows, shape[1]],
                    with_extremes: false,
                };
                writer.put(&put, &block).unwrap();
            };
            for name in 0..VARIABLES {
                let shape = if is_long(name) {
                    LONG
                } else {
                    [RANKS, COLUMNS]
                };
                put(name, &shape);
            }
            writer.end_step(Wait::Begun).unwrap();
            // Its part comes when it will; the step is there when all have.
            std::mem::forget(writer);
        }
        let mut reader = stream.reader(reading("all")).unwrap();
        let step = next_step(&mut reader);
        let names: Vec<String> = (0..VARIABLES).map(|name| format!("v{name}")).collect();
        let whole = |name: u64| {
            let count = if is_long(name) {
                LONG[0] * LONG[1]
            } else {
                RANKS * COLUMNS
            };
            (0..count)
                .map(|index| element(name, index))
                .collect::<Vec<f64>>()
        };
        let wanted: Vec<(&str, &Selection)> = names
            .iter()
            .map(|name| (name.as_str(), &Selection::Whole))
            .collect();
        let arrays = step.get_arrays(&wanted).unwrap();
        for (name, array) in arrays.iter().enumerate() {
            assert_eq!(floats_of(&array.data), whole(name as u64), "{name}");
            assert_eq!(array.coverage.uncovered, 0);
        }
        // Columns of the long ones: rows that lie apart, twice.
        let columns = Selection::of_box(&[0, 100], &[LONG[0], 300]);
        let mut memory = vec![vec![0u8; 8 * 300 * LONG[0] as usize]; 3];
        let mut gets: Vec<GetInto> = [0, 500, 0]
            .iter()
            .zip(&mut memory)
            .map(|(name, out)| GetInto {
                name: &names[*name],
                selection: &columns,
                out,
            })
            .collect();
        step.get_many(&mut gets).unwrap();
        for (name, memory) in [0, 500, 0].into_iter().zip(&memory) {
            let wanted: Vec<f64> = (0..LONG[0])
                .flat_map(|row| (100..400).map(move |column| row * LONG[1] + column))
                .map(|index| element(name, index))
                .collect();
            assert_eq!(floats_of(memory), wanted);
        }
    }
}

/// A rank of a client of its own making: it writes attributes of a type that is none.
#[test]
fn a_step_that_cannot_be_read_is_told_once_and_the_next_ones_are_given() {
    let rig = Rig::new();
    let stream = rig.stream();
    let topic = stream.topic();
    let options = client::ProducerOptions {
        name: Some("own/0".to_owned()),
        ..client::ProducerOptions::default()
    };
    let producer = topic.producer(options).unwrap();
    let (rank, producer_id, epoch) = (Rank(0), producer.id().unwrap(), producer.epoch().unwrap());
    let open = wire::message::OpenRun {
        writer: "own".to_owned(),
        ranks: 1,
        rank,
        producer: producer_id,
        epoch,
        session_timeout_ms: 60_000,
        readers_min: 0,
        queue_steps: 0,
        queue_bytes: 0,
        when_full: WhenFull::Block,
        distribution: Distribution::All,
    };
    let run = topic.open_run(&open, WATCHDOG).unwrap().run;
    for step in 0..4 {
        let attribute = wire::step::Attribute {
            name: "a".to_owned(),
            dtype: if step == 1 { "what" } else { "|u1" }.to_owned(),
            is_list: false,
            value: bytes::Bytes::copy_from_slice(&[step]),
        };
        let part = wire::step::Part {
            version: wire::step::STEP_VERSION,
            run,
            step: Step(step.into()),
            rank,
            data: wire::step::PartData::Here,
            attributes: vec![attribute],
            variables: Vec::new(),
        };
        let event = client::Event {
            metadata: &wire::Codec::to_bytes(&part),
            partition: Some(topic.definition().first_parts()),
            ..client::Event::default()
        };
        producer.push(event).unwrap().wait(Some(WATCHDOG)).unwrap();
    }
    let mut reader = stream.reader(reading("all")).unwrap();
    assert_eq!(next_step(&mut reader).number(), Step(0));
    let damaged = reader.next(WATCHDOG).unwrap_err();
    let StepError::Damaged(what) = &damaged else {
        panic!("{damaged}");
    };
    assert!(
        what.contains("record 2 of fields") && what.contains("\"a\""),
        "{what}"
    );
    for number in [2, 3] {
        let step = next_step(&mut reader);
        let value = step.attributes().get("a").unwrap().as_integers();
        assert_eq!(
            (step.number(), value),
            (Step(number), Some(vec![number as i64]))
        );
    }
    // Its turn counts as read.
    reader.release(WATCHDOG).unwrap();
    drop(reader);
    let mut back = stream.reader(reading("all")).unwrap();
    assert!(is_not_ready(&mut back));
}
