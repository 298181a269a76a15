//! What closing a run waits for, and what never holds it up.

use crate::rig::*;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use step::*;

fn in_memory() -> StreamOptions {
    StreamOptions {
        storage: "memory".to_owned(),
        ..StreamOptions::default()
    }
}

/// A writer that has written three steps, and a reader that has the first of them.
fn behind(stream: &Stream, close_timeout: Duration) -> (Writer, Reader, StepView) {
    let options = WriterOptions {
        close_timeout,
        ..writing(0, 1)
    };
    let mut writer = stream.writer(options).unwrap();
    for _ in 0..3 {
        write_step(&mut writer, Wait::Committed).unwrap();
    }
    let mut slow = reading("slow");
    slow.session_timeout = WATCHDOG;
    let mut reader = stream.reader(slow).unwrap();
    let step = next_step(&mut reader);
    (writer, reader, step)
}

/// Closes in a thread of its own, in which the fault is planted.
fn close_beside(mut writer: Writer, fault: Option<Fault>) -> (Receiver<Closed>, JoinHandle<()>) {
    let (told, outcome) = channel();
    let thread = std::thread::spawn(move || {
        plant(fault);
        told.send(writer.close(WATCHDOG).unwrap()).unwrap();
        // Said again.
        let again = writer.close(WATCHDOG).unwrap();
        told.send(again).unwrap();
    });
    (outcome, thread)
}

#[test]
fn close_of_a_stream_in_memory_waits_for_its_readers() {
    let rig = Rig::new();
    let stream = rig.stream_with(&in_memory());
    let (writer, mut reader, step) = behind(&stream, WATCHDOG);
    let (outcome, thread) = close_beside(writer, None);
    assert!(
        outcome.recv_timeout(IN_VAIN).is_err(),
        "nothing is released"
    );
    drop(step);
    check_step(&next_step(&mut reader), 1);
    // A view that is dropped releases its step.
    let last = next_step(&mut reader);
    check_step(&last, 2);
    assert!(outcome.try_recv().is_err(), "the last step is not released");
    drop(last);
    assert_eq!(next_end(&mut reader), (Run(1), None));
    assert_eq!(outcome.recv_timeout(WATCHDOG), Ok(Closed::Released));
    assert_eq!(outcome.recv_timeout(WATCHDOG), Ok(Closed::Released));
    thread.join().unwrap();
}

/// What closing says of a reader that has a step and keeps it; it goes on after a while.
fn close_beside_a_reader_that_stops(fault: Option<Fault>) -> Closed {
    let rig = Rig::new();
    let stream = rig.stream_with(&in_memory());
    let (writer, mut reader, step) = behind(&stream, IN_VAIN);
    let (outcome, thread) = close_beside(writer, fault);
    let patience = match fault {
        Some(_) => 5 * IN_VAIN,
        None => WATCHDOG,
    };
    let first = outcome.recv_timeout(patience);
    drop(step);
    while let Next::Step(_) = reader.next(WATCHDOG).unwrap() {}
    let first = first.or_else(|_| outcome.recv_timeout(WATCHDOG)).unwrap();
    thread.join().unwrap();
    first
}

#[test]
fn close_goes_on_at_its_deadline_and_says_who_is_behind() {
    let closed = close_beside_a_reader_that_stops(None);
    let Closed::Behind(who) = &closed else {
        panic!("{closed:?}");
    };
    let wanted = "readers \"slow\" have not released step 0 of run 1";
    assert!(who.contains(wanted), "{who}");
    let held = close_beside_a_reader_that_stops(Some(Fault::CloseWithoutDeadline));
    assert_eq!(held, Closed::Released, "the fault is noticed");
}

#[test]
fn a_reader_that_stops_never_holds_up_close_of_a_stream_on_disk() {
    let close = |fault| {
        let rig = Rig::new();
        let (mut writer, reader, step) = behind(&rig.stream(), IN_VAIN);
        plant(fault);
        let closed = writer.close(WATCHDOG).unwrap();
        plant(None);
        drop((reader, step));
        closed
    };
    assert_eq!(close(None), Closed::Kept);
    let held = close(Some(Fault::CloseForReaders));
    assert!(matches!(held, Closed::Behind(_)), "the fault is noticed");
}

#[test]
fn nobody_is_waited_for_who_is_gone_or_reads_something_else() {
    let rig = Rig::new();
    let stream = rig.stream_with(&in_memory());
    let (mut writer, gone, step) = behind(&stream, WATCHDOG);
    // It reads from here on, and so none of the first run's steps.
    let mut later = reading("later");
    later.start = StepStart::Next;
    let mut later = stream.reader(later).unwrap();
    // One of two ranks is no program that reads.
    let mut half = reading("half");
    half.ranks = 2;
    let _half = stream.reader(half).unwrap();
    drop((gone, step));
    writer.close_run(WATCHDOG).unwrap();
    assert!(writer.is_closed());
    let behind = writer.await_readers(IN_VAIN).unwrap_err();
    assert!(behind.is_timeout(), "its session is not over: {behind}");
    // Another life of it takes its place, and comes to the end.
    let mut back = stream.reader(reading("slow")).unwrap();
    for number in 1..3 {
        check_step(&next_step(&mut back), number);
    }
    assert_eq!(next_end(&mut back), (Run(1), None));
    assert_eq!(writer.close(WATCHDOG).unwrap(), Closed::Released);

    // What a later run has does not count.
    let mut first = stream.writer(writing(0, 1)).unwrap();
    write_step(&mut first, Wait::Committed).unwrap();
    first.close_run(WATCHDOG).unwrap();
    let mut second = stream.writer(writing(0, 1)).unwrap();
    write_step(&mut second, Wait::Committed).unwrap();
    check_step(&next_step(&mut back), 0);
    assert_eq!(next_end(&mut back), (Run(2), None));
    assert_eq!(next_end(&mut later), (Run(1), None));
    check_step(&next_step(&mut later), 0);
    assert_eq!(next_end(&mut later), (Run(2), None));
    assert_eq!(first.await_readers(WATCHDOG).unwrap(), Closed::Released);
    let behind = second
        .close_run(WATCHDOG)
        .and_then(|()| second.await_readers(IN_VAIN));
    assert!(behind.unwrap_err().is_timeout());
}
