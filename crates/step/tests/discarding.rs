//! Queues that are full, and writers that wait for readers.

use crate::rig::*;
use step::*;

#[test]
fn a_full_queue_holds_its_writers_and_names_who_is_behind() {
    let rig = Rig::new();
    let stream = rig.stream();
    let mut slow = rig.open().reader(reading("slow analysis")).unwrap();
    let options = WriterOptions {
        queue_steps: 2,
        timeout: IN_VAIN,
        ..writing(0, 1)
    };
    let mut writer = stream.writer(options).unwrap();
    // The deadline is for calls that must not be answered.
    let mut ended = 0;
    let held = loop {
        match write_step(&mut writer, Wait::Begun) {
            Ok(_) => ended += 1,
            Err(error) => break error,
        }
        if let Err(error) = writer.wait(Wait::Committed, WATCHDOG) {
            panic!("step {ended} is let in, and so committed: {error}");
        }
    };
    assert_eq!(ended, 2);
    assert!(held.is_timeout(), "{held}");
    told("slow analysis", || writer.end_step(Wait::Begun));
    // The step is not lost: it waits to be ended.
    assert!(matches!(writer.begin_step(), Err(StepError::Invalid(_))));
    assert!(matches!(writer.drop_step(), Err(StepError::Invalid(_))));
    assert!(writer.is_ending());
    let first = next_step(&mut slow);
    check_step(&first, 0);
    first.release(WATCHDOG).unwrap();
    while let Err(error) = writer.end_step(Wait::Committed) {
        assert!(error.is_timeout(), "{error}");
    }
    for step in 1..=2 {
        check_step(&next_step(&mut slow), step);
    }
    drop(slow);
    writer.close(WATCHDOG).unwrap();
}

#[test]
fn steps_that_do_not_fit_are_dropped_for_all_ranks_and_their_attributes_are_not() {
    let rig = Rig::new();
    let stream = rig.stream();
    let mut reader = rig.open().reader(reading("slow")).unwrap();
    let options = |rank| WriterOptions {
        queue_steps: 1,
        when_full: WhenFull::Discard,
        ..writing(rank, 2)
    };
    let mut writers = [0, 1].map(|rank| stream.writer(options(rank)).unwrap());
    let mut dropped = Vec::new();
    for step in 0..4i64 {
        writers[0].set_attribute("step", step).unwrap();
        for writer in &mut writers {
            write_step(writer, Wait::Begun).unwrap();
        }
        let ended = writers
            .each_mut()
            .map(|one| one.wait(Wait::Committed, WATCHDOG).unwrap());
        assert_eq!(ended[0].discarded, ended[1].discarded);
        dropped.push(ended[0].discarded.is_some());
    }
    assert_eq!(dropped, [false, true, true, true]);
    check_step(&next_step(&mut reader), 0);
    // The step is released with the next call; so there is room.
    assert!(is_not_ready(&mut reader));
    for writer in &mut writers {
        write_step(writer, Wait::Begun).unwrap();
    }
    let next = next_step(&mut reader);
    check_step(&next, 4);
    assert_eq!(
        next.attributes().get("step").unwrap().as_integers(),
        Some(vec![3])
    );
    drop(next);
    for writer in &mut writers {
        writer.close(WATCHDOG).unwrap();
    }
    assert_eq!(next_end(&mut reader), (Run(1), None));
    let runs = rig.open().runs().unwrap();
    assert_eq!((runs[0].step_count, runs[0].discarded), (2, 3));
    assert!(matches!(
        rig.open().step(Run(1), Step(2)),
        Err(StepError::Gone(_))
    ));
}

#[test]
fn a_writer_waits_for_its_readers_and_says_so() {
    let rig = Rig::new();
    let stream = rig.stream();
    let options = |timeout| WriterOptions {
        readers_min: 1,
        open_timeout: timeout,
        ..writing(0, 1)
    };
    let alone = stream.writer(options(IN_VAIN)).unwrap_err();
    assert!(
        alone.is_timeout() && alone.to_string().contains("reader"),
        "{alone}"
    );
    let mut reader = rig.open().reader(reading("awaited")).unwrap();
    let mut writer = stream.writer(options(WATCHDOG)).unwrap();
    write_step(&mut writer, Wait::Begun).unwrap();
    check_step(&next_step(&mut reader), 0);
}
