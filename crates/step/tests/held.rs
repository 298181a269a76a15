//! Parts that stay with their writer until a reader wants them.

use crate::rig::*;
use std::time::Duration;
use step::*;

/// What a rank's row takes.
const ROW_BYTES: u64 = ROW * 8;

fn in_memory() -> StreamOptions {
    StreamOptions {
        storage: "memory".to_owned(),
        ..StreamOptions::default()
    }
}

/// A rank that keeps so many of its rows.
fn keeping(rank: u32, ranks: u32, rows: u64) -> WriterOptions {
    WriterOptions {
        keep: Keep::Writer {
            bytes_max: rows * ROW_BYTES,
        },
        ..writing(rank, ranks)
    }
}

/// A reader that stays as long as it likes.
fn patient(name: &str) -> ReaderOptions {
    ReaderOptions {
        session_timeout: WATCHDOG,
        ..reading(name)
    }
}

/// How many events the partitions of parts have: one each part, and one more if its data was sent.
fn events(stream: &Stream) -> u64 {
    let described = stream.topic().refresh().unwrap();
    let parts = &described.partitions[1..];
    parts.iter().map(|one| one.watermarks.committed.0).sum()
}

/// Why a step's field can't be read.
fn unreadable(step: &StepView) -> String {
    match step.get("E", &Selection::Whole) {
        Err(StepError::Gone(why)) => why,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("there is nothing to read"),
    }
}

#[test]
fn a_part_travels_once_and_only_if_it_is_read() {
    let rig = Rig::new();
    let stream = rig.stream_with(&in_memory());
    let mut writer = stream.writer(keeping(0, 1, 100)).unwrap();
    let mut looking = rig.open().reader(patient("looking")).unwrap();
    let mut readers = ["one", "two"].map(|name| rig.open().reader(patient(name)).unwrap());
    for _ in 0..3 {
        write_step(&mut writer, Wait::Committed).unwrap();
    }
    for step in 0..3 {
        let view = next_step(&mut looking);
        assert_eq!(view.number(), Step(step));
        assert_eq!(view.variable("E").unwrap().shape, [1, ROW]);
    }
    assert_eq!(events(&stream), 3);
    for reader in &mut readers {
        drop(next_step(reader));
        let view = next_step(reader);
        check_step(&view, 1);
        check_step(&view, 1);
    }
    assert_eq!(events(&stream), 4);
    for reader in &mut readers {
        check_step(&next_step(reader), 2);
    }
    assert_eq!(events(&stream), 5);
    drop((readers, looking));
    assert_eq!(writer.close(WATCHDOG).unwrap(), Closed::Released);
}

#[test]
fn what_a_writer_takes_with_it_is_named() {
    let rig = Rig::new();
    let stream = rig.stream_with(&in_memory());
    let mut writers = [0, 1].map(|rank| rig.open().writer(keeping(rank, 2, 100)).unwrap());
    let mut reader = rig.open().reader(patient("r")).unwrap();
    for _ in 0..2 {
        for writer in &mut writers {
            write_step(writer, Wait::Accepted).unwrap();
        }
    }
    let first = next_step(&mut reader);
    check_step(&first, 0);
    let [mut kept, gone] = writers;
    drop(gone);
    // What was read once is at the server.
    check_step(&first, 0);
    drop(first);
    let second = next_step(&mut reader);
    let why = unreadable(&second);
    for part in ["step 1 of run 1", "rank 1", "memory lost", NAME] {
        assert!(why.contains(part), "{why}");
    }
    // The other rank's is there.
    let array = second.get("E", &Selection::Block(0)).unwrap();
    assert_eq!(floats_of(&array.data), row(1, 0));
    drop(second);
    let (_, broken) = next_end(&mut reader);
    assert!(broken.unwrap().contains("rank 1"));
    // A part that the writer keeps is accepted as soon as it is there, and news of the run's end may
    // be on the way to the writer: the step is not committed.
    let ended = write_step(&mut kept, Wait::Committed).unwrap_err();
    assert!(matches!(ended, StepError::RunEnded { .. }), "{ended}");
    drop(stream);
}

/// A writer with room for two rows, and a reader that has the first of two steps.
fn full(stream: &Stream, when_full: WhenFull) -> (Writer, Reader, StepView) {
    let options = WriterOptions {
        when_full,
        timeout: IN_VAIN,
        ..keeping(0, 1, 2)
    };
    let mut writer = stream.writer(options).unwrap();
    let mut reader = stream.reader(patient("slow analysis")).unwrap();
    for _ in 0..2 {
        write_step(&mut writer, Wait::Begun).unwrap();
        writer.wait(Wait::Committed, WATCHDOG).unwrap();
    }
    let first = next_step(&mut reader);
    (writer, reader, first)
}

#[test]
fn a_full_budget_has_the_writer_wait_until_readers_have_released() {
    let rig = Rig::new();
    let stream = rig.stream_with(&in_memory());
    let (mut writer, mut reader, first) = full(&stream, WhenFull::Block);
    writer.begin_step().unwrap();
    put_row(&mut writer, 2);
    let error = told("budget of held parts", || writer.end_step(Wait::Begun));
    assert!(error.to_string().contains("step 0"), "{error}");
    check_step(&first, 0);
    first.release(WATCHDOG).unwrap();
    while let Err(error) = writer.end_step(Wait::Committed) {
        assert!(error.is_timeout(), "{error}");
    }
    for step in 1..3 {
        check_step(&next_step(&mut reader), step);
    }
    // A part that is longer than the budget is never there.
    writer.begin_step().unwrap();
    for step in 3..6 {
        put_row(&mut writer, step);
    }
    let long = writer.end_step(Wait::Committed).unwrap_err();
    assert!(matches!(long, StepError::Invalid(_)), "{long}");
    // The step is as if it had not been begun.
    drop(reader);
    assert_eq!(
        write_step(&mut writer, Wait::Committed).unwrap().step,
        Step(3)
    );
}

/// Its data goes to the server, and what retention took is in nobody's way.
#[test]
fn a_pinned_step_needs_no_room_and_hides_nothing_that_has_left() {
    let rig = Rig::new();
    let stream = rig.stream_with(&StreamOptions {
        retention: Retention {
            count: Some(2),
            ..Retention::default()
        },
        ..in_memory()
    });
    let mut writer = stream.writer(keeping(0, 1, 139)).unwrap();
    let mut slow = stream.reader(patient("slow analysis")).unwrap();
    writer.begin_step().unwrap();
    writer.pin_step().unwrap();
    // More than all that this writer may keep.
    for _ in 0..140 {
        put_row(&mut writer, 0);
    }
    writer.end_step(Wait::Committed).unwrap();
    let first = next_step(&mut slow);
    // It stays at the pinned step, behind which retention takes what this writer keeps: from one
    // record with all attributes to the next.
    for _ in 0..400 {
        write_step(&mut writer, Wait::Committed).unwrap();
    }
    check_step(&first, 0);
}

#[test]
fn a_full_budget_drops_a_step_if_it_is_to() {
    let rig = Rig::new();
    let stream = rig.stream_with(&in_memory());
    let (mut writer, mut reader, first) = full(&stream, WhenFull::Discard);
    write_step(&mut writer, Wait::Begun).unwrap();
    let dropped = writer.wait(Wait::Committed, WATCHDOG).unwrap();
    assert!(dropped.discarded.is_some());
    check_step(&first, 0);
    drop(first);
    check_step(&next_step(&mut reader), 1);
    assert!(is_not_ready(&mut reader));
}

#[test]
fn parts_that_are_given_up_too_early_are_noticed() {
    let rig = Rig::new();
    let stream = rig.stream_with(&in_memory());
    let (mut writer, _reader, first) = full(&stream, WhenFull::Block);
    plant(Some(Fault::FreeUnreleased));
    write_step(&mut writer, Wait::Begun).unwrap();
    plant(None);
    let why = unreadable(&first);
    assert!(why.contains("step 0"), "{why}");
}

#[test]
fn without_readers_the_oldest_steps_leave_the_stream() {
    let rig = Rig::new();
    let stream = rig.stream_with(&in_memory());
    let mut writer = stream.writer(keeping(0, 1, 2)).unwrap();
    for _ in 0..6 {
        write_step(&mut writer, Wait::Committed).unwrap();
    }
    let mut reader = stream.reader(patient("late")).unwrap();
    let mut seen = Vec::new();
    loop {
        let view = next_step(&mut reader);
        if view.number() < Step(4) {
            // The server did not know yet that it was dropped.
            let why = unreadable(&view);
            assert!(why.contains("there no more"), "{why}");
            continue;
        }
        check_step(&view, view.number().0);
        seen.push(view.number().0);
        if view.number() == Step(5) {
            break;
        }
    }
    assert_eq!(seen, [4, 5]);
    assert_eq!(events(&stream), 8);
}

#[test]
fn closing_sends_what_readers_that_are_behind_may_want() {
    let rig = Rig::new();
    let stream = rig.stream_with(&in_memory());
    let options = WriterOptions {
        close_timeout: IN_VAIN,
        ..keeping(0, 1, 100)
    };
    let mut writer = stream.writer(options).unwrap();
    let mut reader = stream.reader(patient("slow analysis")).unwrap();
    for _ in 0..3 {
        write_step(&mut writer, Wait::Committed).unwrap();
    }
    let first = next_step(&mut reader);
    check_step(&first, 0);
    let Closed::Behind(why) = writer.close(WATCHDOG).unwrap() else {
        panic!("a reader is behind");
    };
    for part in ["slow analysis", "steps 1 to 2 were sent"] {
        assert!(why.contains(part), "{why}");
    }
    drop((writer, first));
    for step in 1..3 {
        check_step(&next_step(&mut reader), step);
    }
    assert_eq!(next_end(&mut reader), (Run(1), None));
}

/// What a writer has sent before its time was up stays for readers, who are told of the rest.
#[test]
fn closing_without_time_keeps_what_was_sent() {
    let rig = Rig::new();
    let stream = rig.stream_with(&in_memory());
    let mut writer = stream.writer(keeping(0, 1, 100)).unwrap();
    let mut reader = stream.reader(patient("r")).unwrap();
    for _ in 0..2 {
        write_step(&mut writer, Wait::Committed).unwrap();
    }
    let first = next_step(&mut reader);
    check_step(&first, 0);
    writer.close_run(WATCHDOG).unwrap();
    plant(Some(Fault::SendNothingLeft));
    let Closed::Behind(why) = writer.leave_readers("r is behind".to_owned()) else {
        panic!("a reader is behind");
    };
    plant(None);
    assert!(why.contains("is lost"), "{why}");
    drop(writer);
    check_step(&first, 0);
    drop(first);
    // It is there, and its part is not.
    let second = next_step(&mut reader);
    assert!(unreadable(&second).contains("step 1"));
    drop(second);
    assert_eq!(next_end(&mut reader), (Run(1), None));
}

/// The data of one part is more than the writer may have under way.
#[test]
fn parts_that_find_no_room_on_the_way_are_sent_one_after_the_other() {
    let rig = Rig::new();
    let stream = rig.stream_with(&in_memory());
    let options = client::DriverOptions {
        memory_bytes_max: 1 << 20,
        ..client::DriverOptions::default()
    };
    let own = Stream::open(&rig.driver_with(options), NAME).unwrap();
    let options = WriterOptions {
        keep: Keep::Writer { bytes_max: 1 << 30 },
        close_timeout: IN_VAIN,
        ..writing(0, 1)
    };
    let mut writer = own.writer(options).unwrap();
    const ELEMENTS: u64 = 1 << 17;
    let dtype = double();
    let put = Put {
        name: "x",
        dtype: &dtype,
        place: Place::Local,
        count: &[ELEMENTS],
        with_extremes: false,
    };
    let values = |step: u64| bytes_of(&vec![step as f64; ELEMENTS as usize]);
    let mut reader = stream.reader(patient("r")).unwrap();
    let steps = 8;
    for step in 0..steps {
        writer.begin_step().unwrap();
        writer.put(&put, &values(step)).unwrap();
        writer.end_step(Wait::Committed).unwrap();
    }
    // They are wanted all at once.
    let views: Vec<StepView> = (0..4).map(|_| next_step(&mut reader)).collect();
    std::thread::scope(|scope| {
        for (step, view) in views.iter().enumerate() {
            let values = values(step as u64);
            scope.spawn(move || {
                let array = view.get("x", &Selection::Block(0)).unwrap();
                assert_eq!(array.data[..], values);
            });
        }
    });
    // So is the rest, when the writer leaves.
    let Closed::Behind(why) = writer.close(WATCHDOG).unwrap() else {
        panic!("a reader is behind");
    };
    assert!(why.contains("were sent"), "{why}");
    drop((writer, views));
    for step in 4..steps {
        let view = next_step(&mut reader);
        let array = view.get("x", &Selection::Block(0)).unwrap();
        assert_eq!(array.data[..], values(step));
    }
}

#[test]
fn memory_that_was_lent_is_the_programs_again() {
    let rig = Rig::new();
    let stream = rig.stream_with(&in_memory());
    let mut writer = stream.writer(keeping(0, 1, 100)).unwrap();
    let dtype = double();
    let put = |count: &'static [u64]| Put {
        name: "x",
        dtype: Box::leak(Box::new(dtype.clone())),
        place: Place::Local,
        count,
        with_extremes: true,
    };
    writer.begin_step().unwrap();
    let lent = bytes::Bytes::from(bytes_of(&[1.0, 2.0]));
    writer.put_filled_later(&put(&[2]), lent.clone()).unwrap();
    writer.put_owned(&put(&[2]), lent.clone()).unwrap();
    writer.end_step(Wait::Committed).unwrap();
    assert!(lent.is_unique());
    // A part of no bytes is as any other.
    writer.begin_step().unwrap();
    writer.put(&put(&[0]), &[]).unwrap();
    writer.end_step(Wait::Committed).unwrap();
    let mut reader = stream.reader(patient("r")).unwrap();
    let first = next_step(&mut reader);
    for block in 0..2 {
        let array = first.get("x", &Selection::Block(block)).unwrap();
        assert_eq!(floats_of(&array.data), [1.0, 2.0]);
    }
    drop(first);
    let second = next_step(&mut reader);
    let nothing = second.get("x", &Selection::Block(0)).unwrap();
    assert!(nothing.data.is_empty());
}

#[test]
fn a_stream_that_outlives_its_writer_refuses() {
    let rig = Rig::new();
    let stream = rig.stream();
    let error = stream.writer(keeping(0, 1, 100)).unwrap_err();
    assert!(error.to_string().contains("not in memory"), "{error}");
}

#[test]
fn a_stopped_writer_is_named_by_a_deadline() {
    let rig = Rig::new();
    let stream = rig.stream_with(&in_memory());
    let options = WriterOptions {
        session_timeout: WATCHDOG,
        ..keeping(0, 1, 100)
    };
    let mut writer = rig.open().writer(options).unwrap();
    write_step(&mut writer, Wait::Committed).unwrap();
    // It is gone, and the server does not know yet that it stays away.
    drop(writer);
    let options = client::DriverOptions {
        request_timeout: Duration::from_millis(300),
        ..client::DriverOptions::default()
    };
    let driver = rig.driver_with(options);
    let stream_of = Stream::open(&driver, NAME).unwrap();
    let mut reader = stream_of.reader(patient("r")).unwrap();
    let view = next_step(&mut reader);
    told("rank 0 keeps its part of 320 bytes", || {
        view.get("E", &Selection::Whole)
    });
    drop(stream);
}
