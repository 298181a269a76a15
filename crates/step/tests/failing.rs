//! Ranks that are behind, gone, or come back; servers that are started anew.

use crate::rig::*;
use step::*;

#[test]
fn who_has_not_ended_its_step_is_named() {
    let rig = Rig::new();
    let stream = rig.stream();
    let options = |rank| WriterOptions {
        timeout: IN_VAIN,
        ..writing(rank, 3)
    };
    let mut writers = [0, 1, 2].map(|rank| stream.writer(options(rank)).unwrap());
    for writer in &mut writers[..2] {
        write_step(writer, Wait::Begun).unwrap();
        writer.wait(Wait::Accepted, WATCHDOG).unwrap();
    }
    let part = "rank 2 of 3 has not ended step 0";
    let behind = told(part, || writers[0].wait(Wait::Committed, IN_VAIN));
    let step = "rank 0's step 0 of run 1 of fields, 320 bytes";
    assert!(behind.to_string().contains(step), "{behind}");
    // Two more steps may be under way, and no third.
    write_step(&mut writers[0], Wait::Begun).unwrap();
    writers[0].begin_step().unwrap();
    told(part, || writers[0].end_step(Wait::Begun));
    write_step(&mut writers[2], Wait::Begun).unwrap();
    while let Err(error) = writers[0].end_step(Wait::Begun) {
        assert!(error.is_timeout(), "{error}");
    }
    assert_eq!(writers[0].step(), Step(3));
}

#[test]
fn a_writer_that_is_gone_breaks_the_run_behind_its_committed_steps() {
    let rig = Rig::new();
    let stream = rig.stream();
    let mut writers = [0, 1].map(|rank| Some(rig.open().writer(writing(rank, 2)).unwrap()));
    for _ in 0..3 {
        for writer in writers.iter_mut().flatten() {
            write_step(writer, Wait::Begun).unwrap();
        }
    }
    let stays = writers[0].as_mut().unwrap();
    stays.wait(Wait::Committed, WATCHDOG).unwrap();
    // One rank alone has written the next one.
    write_step(stays, Wait::Accepted).unwrap();
    writers[1] = None;
    let stays = writers[0].as_mut().unwrap();
    let broken = stays.wait(Wait::Committed, WATCHDOG).unwrap_err();
    assert!(
        matches!(broken, StepError::RunEnded { run: Run(1), .. }),
        "{broken}"
    );
    assert!(broken.to_string().contains("rank 1"), "{broken}");
    // It is said again by every call.
    assert_eq!(
        stays.begin_step().unwrap_err().to_string(),
        broken.to_string()
    );
    assert_eq!(
        stays.close(WATCHDOG).unwrap_err().to_string(),
        broken.to_string()
    );

    let mut reader = stream.reader(reading("late")).unwrap();
    for step in 0..3 {
        check_step(&next_step(&mut reader), step);
    }
    let (run, why) = next_end(&mut reader);
    assert_eq!(run, Run(1));
    assert!(why.unwrap().contains("rank 1"));
    // Told once: what comes behind is another run.
    assert!(is_not_ready(&mut reader));
    let mut next = stream.writer(writing(0, 1)).unwrap();
    assert_eq!(
        (next.run(), next.run_before(), next.step()),
        (Run(2), Run(1), Step(0))
    );
    write_step(&mut next, Wait::Begun).unwrap();
    let step = next_step(&mut reader);
    check_step(&step, 0);
    assert_eq!(step.run(), Run(2));
}

#[test]
fn a_writer_that_comes_back_goes_on_behind_the_last_record() {
    let rig = Rig::new();
    let stream = rig.stream();
    let patient = |rank| WriterOptions {
        session_timeout: WATCHDOG,
        ..writing(rank, 2)
    };
    let mut stays = rig.open().writer(patient(0)).unwrap();
    let mut goes = rig.open().writer(patient(1)).unwrap();
    stays.set_attribute("kept", "yes").unwrap();
    for writer in [&mut stays, &mut goes] {
        write_step(writer, Wait::Begun).unwrap();
    }
    stays.wait(Wait::Committed, WATCHDOG).unwrap();
    // It is gone in a step that the other one has ended.
    write_step(&mut stays, Wait::Accepted).unwrap();
    goes.begin_step().unwrap();
    drop(goes);
    let mut back = rig.open().writer(patient(1)).unwrap();
    assert_eq!((back.run(), back.step()), (Run(1), Step(1)));
    assert_eq!(
        back.attributes().get("kept").unwrap().as_text(),
        Some("yes")
    );
    write_step(&mut back, Wait::Committed).unwrap();
    stays.wait(Wait::Committed, WATCHDOG).unwrap();
    for writer in [&mut stays, &mut back] {
        write_step(writer, Wait::Begun).unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| stays.close(WATCHDOG).unwrap());
        back.close(WATCHDOG).unwrap();
    });
    let mut reader = stream.reader(reading("all")).unwrap();
    for step in 0..3 {
        check_step(&next_step(&mut reader), step);
    }
    assert_eq!(next_end(&mut reader), (Run(1), None));
}

#[test]
fn an_older_life_of_a_writer_is_told_that_it_is_replaced() {
    let rig = Rig::new();
    let stream = rig.stream();
    let mut old = rig.open().writer(writing(0, 1)).unwrap();
    write_step(&mut old, Wait::Committed).unwrap();
    let mut new = stream.writer(writing(0, 1)).unwrap();
    assert_eq!((new.run(), new.step()), (Run(1), Step(1)));
    write_step(&mut new, Wait::Committed).unwrap();
    let replaced = write_step(&mut old, Wait::Committed).unwrap_err();
    assert!(matches!(replaced, StepError::RunEnded { .. }), "{replaced}");
    new.close(WATCHDOG).unwrap();
    let runs = stream.runs().unwrap();
    assert_eq!((runs.len(), runs[0].step_count), (1, 2));
}

#[test]
fn writers_and_readers_survive_a_restart_of_the_server() {
    let mut rig = Rig::new();
    let stream = rig.stream();
    let patient = |rank| WriterOptions {
        session_timeout: WATCHDOG,
        ..writing(rank, 2)
    };
    let mut writers = [0, 1].map(|rank| stream.writer(patient(rank)).unwrap());
    let mut reader = rig.open().reader(reading("viewer")).unwrap();
    let mut idle = rig.open().reader(reading("idle")).unwrap();
    writers[0].set_attribute("kept", 1i64).unwrap();
    let mut write = |ranks: std::ops::Range<usize>, wait| {
        for writer in &mut writers[ranks] {
            write_step(writer, wait).unwrap();
        }
    };
    write(0..2, Wait::Begun);
    write(0..2, Wait::Begun);
    check_step(&next_step(&mut reader), 0);
    let held = next_step(&mut reader);
    // One rank's part of a step that is not complete.
    write(0..1, Wait::Accepted);
    rig.restart();
    check_step(&held, 1);
    drop(held);
    write(1..2, Wait::Committed);
    let step = next_step(&mut reader);
    check_step(&step, 2);
    assert_eq!(
        step.attributes().get("kept").unwrap().as_integers(),
        Some(vec![1])
    );
    drop(step);
    rig.restart();
    write(0..2, Wait::Begun);
    let step = next_step(&mut reader);
    check_step(&step, 3);
    drop(step);
    reader.release(WATCHDOG).unwrap();
    std::thread::scope(|scope| {
        for writer in &mut writers {
            scope.spawn(|| writer.close(WATCHDOG).unwrap());
        }
    });
    assert_eq!(next_end(&mut reader), (Run(1), None));
    for step in 0..4 {
        check_step(&next_step(&mut idle), step);
    }
    assert_eq!(next_end(&mut idle), (Run(1), None));
}

#[test]
fn a_server_that_is_killed_has_every_committed_step_once() {
    const STEPS: u64 = 12;
    let mut rig = Rig::new();
    let stream = rig.stream_with(&StreamOptions {
        durability: Some(client::Durability::Synced),
        ..StreamOptions::default()
    });
    let patient = |rank| WriterOptions {
        session_timeout: WATCHDOG,
        ..writing(rank, 2)
    };
    let mut writers = [0, 1].map(|rank| stream.writer(patient(rank)).unwrap());
    let mut reader = rig.open().reader(reading("viewer")).unwrap();
    for step in 0..STEPS {
        // It is killed with parts under way, or between parts and record.
        for writer in &mut writers {
            write_step(writer, Wait::Begun).unwrap();
        }
        if step % 4 == 3 {
            rig.kill();
        }
        if step % 2 == 1 {
            check_step(&next_step(&mut reader), step / 2);
        }
    }
    std::thread::scope(|scope| {
        for writer in &mut writers {
            scope.spawn(|| writer.close(WATCHDOG).unwrap());
        }
    });
    for step in STEPS / 2..STEPS {
        check_step(&next_step(&mut reader), step);
    }
    assert_eq!(next_end(&mut reader), (Run(1), None));
    let steps = rig.open().steps(Run(1)).unwrap();
    let numbers: Vec<u64> = steps.iter().map(|step| step.step.0).collect();
    assert_eq!(numbers, (0..STEPS).collect::<Vec<_>>());
}

/// However often a deadline passes meanwhile.
#[test]
fn a_step_is_committed_when_the_server_is_back() {
    let mut rig = Rig::new();
    let stream = rig.stream();
    let options = WriterOptions {
        timeout: IN_VAIN,
        session_timeout: WATCHDOG,
        ..writing(0, 1)
    };
    let mut writer = stream.writer(options).unwrap();
    rig.kill_for_now();
    let late = write_step(&mut writer, Wait::Accepted).unwrap_err();
    assert!(late.is_timeout(), "{late}");
    for _ in 0..3 {
        let late = writer.wait(Wait::Accepted, IN_VAIN * 2).unwrap_err();
        assert!(late.is_timeout(), "{late}");
    }
    rig.start();
    writer.wait(Wait::Committed, WATCHDOG).unwrap();
    let mut reader = rig.open().reader(reading("r")).unwrap();
    check_step(&next_step(&mut reader), 0);
}
