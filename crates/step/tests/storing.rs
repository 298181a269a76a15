//! What is stored of a stream, and what retention takes of it.

use crate::rig::*;
use step::*;

#[test]
fn runs_and_steps_are_listed_and_opened_by_number() {
    let rig = Rig::new();
    let stream = rig.stream();
    assert!(stream.runs().unwrap().is_empty());
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    for _ in 0..3 {
        write_step(&mut writer, Wait::Committed).unwrap();
    }
    let runs = stream.runs().unwrap();
    assert_eq!(runs.len(), 1);
    assert_eq!(
        (runs[0].run, runs[0].writer.as_str(), runs[0].ranks),
        (Run(1), "sim", 1)
    );
    assert_eq!(runs[0].state, RunState::Open);
    assert_eq!(runs[0].steps, Some((Step(0), Step(2))));
    assert_eq!(runs[0].bytes, 3 * ROW * 8);
    assert!(runs[0].first_time > 0 && runs[0].last_time >= runs[0].first_time);
    writer.close(WATCHDOG).unwrap();
    let mut second = stream.writer(writing(0, 1)).unwrap();
    write_step(&mut second, Wait::Committed).unwrap();
    // What was found before is added to.
    let states: Vec<RunState> = stream
        .runs()
        .unwrap()
        .into_iter()
        .map(|run| run.state)
        .collect();
    assert_eq!(states, [RunState::Closed, RunState::Open]);
    let steps = stream.steps(Run(1)).unwrap();
    assert_eq!(
        steps.iter().map(|step| step.step).collect::<Vec<_>>(),
        [Step(0), Step(1), Step(2)]
    );
    for step in [2, 0, 1] {
        check_step(&stream.step(Run(1), Step(step)).unwrap(), step);
    }
    check_step(&rig.open().step(Run(2), Step(0)).unwrap(), 0);
    for (run, step) in [(1, 3), (2, 1), (3, 0)] {
        let gone = stream.step(Run(run), Step(step)).unwrap_err();
        assert!(matches!(gone, StepError::Gone(_)), "{gone}");
    }
}

#[test]
fn a_topic_of_events_is_no_stream() {
    let rig = Rig::new();
    let driver = rig.driver();
    let topic = driver
        .create_topic("events", &client::Definition::default(), &[])
        .unwrap();
    assert!(matches!(
        Stream::of(topic.clone()),
        Err(StepError::Invalid(_))
    ));
    assert!(matches!(
        Writer::open(&topic, writing(0, 1)),
        Err(StepError::Invalid(_))
    ));
    assert!(matches!(
        Reader::open(&topic, reading("r")),
        Err(StepError::Invalid(_))
    ));
    assert!(Stream::open(&driver, "none").is_err());
}

#[test]
fn a_step_in_memory_alone_is_read_as_one_on_disk() {
    let rig = Rig::new();
    let options = StreamOptions {
        storage: "memory".to_owned(),
        ..StreamOptions::default()
    };
    let stream = rig.stream_with(&options);
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    let mut reader = rig.open().reader(reading("viewer")).unwrap();
    for step in 0..3 {
        write_step(&mut writer, Wait::Committed).unwrap();
        check_step(&next_step(&mut reader), step);
    }
    writer.close(WATCHDOG).unwrap();
    assert_eq!(next_end(&mut reader), (Run(1), None));
}

#[test]
fn a_step_that_retention_takes_while_it_is_read_says_so() {
    let rig = Rig::new();
    let stream = rig.stream_of_bytes(2 << 20);
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    let byte = DType::parse("|u1").unwrap();
    let mut write = |count: u64| {
        for _ in 0..count {
            writer.begin_step().unwrap();
            let put = Put {
                name: "a",
                dtype: &byte,
                place: Place::Local,
                count: &[512 << 10],
                with_extremes: false,
            };
            writer.put(&put, &[1; 512 << 10]).unwrap();
            writer.end_step(Wait::Committed).unwrap();
        }
    };
    write(1);
    let mut reader = rig.open().reader(reading("slow")).unwrap();
    let step = next_step(&mut reader);
    assert!(step.get("a", &Selection::Block(0)).is_ok());
    write(20);
    let gone = step.get("a", &Selection::Block(0)).unwrap_err();
    assert!(matches!(gone, StepError::Gone(_)), "{gone}");
    let words = gone.to_string();
    assert!(words.contains("step 0 of run 1 of fields"), "{words}");
    drop(step);
    // What is gone is passed over and told; the rest comes in order.
    let next = next_step(&mut reader);
    assert!(next.number() > Step(1), "{next:?}");
    assert!(next.get("a", &Selection::Block(0)).is_ok());
    let runs = stream.runs().unwrap();
    assert!(runs[0].step_count < 21 && runs[0].steps.unwrap().1 == Step(20));
}

/// Retention takes records between two questions of who looks for them.
#[test]
fn steps_that_are_listed_while_retention_takes_others_have_no_holes() {
    let rig = Rig::new();
    let options = StreamOptions {
        storage: "memory".to_owned(),
        retention: Retention {
            count: Some(3),
            ..Retention::default()
        },
        ..StreamOptions::default()
    };
    let stream = rig.stream_with(&options);
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    let looking = rig.open();
    std::thread::scope(|scope| {
        let written = scope.spawn(move || {
            for _ in 0..400 {
                write_step(&mut writer, Wait::Begun).unwrap();
            }
            writer.close_run(WATCHDOG).unwrap();
        });
        while !written.is_finished() {
            let steps = looking.steps(Run(1)).unwrap();
            let dense = steps
                .windows(2)
                .all(|two| two[0].step.0 + 1 == two[1].step.0);
            assert!(dense, "{steps:?}");
        }
    });
    let last = looking.steps(Run(1)).unwrap().last().map(|last| last.step);
    assert_eq!(last, Some(Step(399)));
}
