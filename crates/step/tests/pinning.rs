//! Steps that are pinned: retention takes those around them.

use crate::rig::*;
use step::*;
use wire::message::{Distribution, StepStart};

fn keeping(storage: &str, retention: Retention) -> StreamOptions {
    StreamOptions {
        storage: storage.to_owned(),
        // What is removed from a disk is whole segments.
        storage_config: match storage {
            "disk" => r#"{"segment_bytes":16384}"#.to_owned(),
            _ => String::new(),
        },
        retention,
        ..StreamOptions::default()
    }
}

fn count(most: u64) -> Retention {
    Retention {
        count: Some(most),
        ..Retention::default()
    }
}

fn write_pinned(writer: &mut Writer) -> Step {
    let step = writer.begin_step().unwrap();
    writer.pin_step().unwrap();
    put_row(writer, step.0);
    let ended = writer.end_step(Wait::Committed).unwrap();
    assert_eq!(ended.discarded, None);
    step
}

/// Steps 0 and 5 of 20 are pinned.
fn write_all(writer: &mut Writer) {
    for step in 0..20 {
        match step {
            0 | 5 => {
                writer.set_attribute("mesh", step as i64).unwrap();
                write_pinned(writer);
            }
            _ => {
                write_step(writer, Wait::Committed).unwrap();
            }
        }
    }
}

fn listed(stream: &Stream, run: Run) -> Vec<(u64, bool)> {
    let steps = stream.steps(run).unwrap().into_iter();
    steps.map(|step| (step.step.0, step.pinned)).collect()
}

/// Waits until retention has taken what it takes, beside the writer.
fn until(stream: &Stream, expected: &[(u64, bool)]) {
    let began = std::time::Instant::now();
    while listed(stream, Run(1)) != expected {
        let found = listed(stream, Run(1));
        assert!(began.elapsed() < WATCHDOG, "{found:?}");
    }
}

/// The numbers of the steps that a new reader is given, with what was lost before each.
fn given(stream: &Stream, name: &str, start: StepStart, steps: usize) -> Vec<(u64, bool)> {
    let options = ReaderOptions {
        start,
        ..reading(name)
    };
    let mut reader = stream.reader(options).unwrap();
    let next = |_| {
        let step = next_step(&mut reader);
        check_step(&step, step.number().0);
        let mesh = if step.number() < Step(5) { 0 } else { 5 };
        let found = step.attributes().get("mesh").unwrap().as_integers();
        assert_eq!(found, Some(vec![mesh]));
        (step.number().0, step.lost() > 0)
    };
    (0..steps).map(next).collect()
}

#[test]
fn a_pinned_step_outlives_those_around_it() {
    let bytes = Retention {
        bytes: Some(6 * ROW * 8),
        ..Retention::default()
    };
    for (storage, retention) in [("memory", count(3)), ("memory", bytes), ("disk", count(3))] {
        let rig = Rig::new();
        let stream = rig.stream_with(&keeping(storage, retention));
        let mut writer = stream.writer(writing(0, 1)).unwrap();
        write_all(&mut writer);
        // Who was not there gets them first, in order.
        for start in [
            StepStart::OpenRun,
            StepStart::Oldest,
            StepStart::Run(Run(1)),
        ] {
            let name = format!("late {start:?}").replace(['(', ')'], "");
            let first = given(&rig.open(), &name, start, 3);
            assert_eq!(first[..2], [(0, false), (5, true)], "{storage} {start:?}");
            assert!(first[2].0 > 6, "{first:?}");
            assert!(first[2].1, "{first:?}");
        }
        for step in [0, 5, 19] {
            check_step(&stream.step(Run(1), Step(step)).unwrap(), step);
        }
        let run = stream.runs().unwrap().remove(0);
        assert_eq!((run.pinned, run.steps), (2, Some((Step(0), Step(19)))));
        let mut kept = listed(&stream, Run(1));
        assert_eq!(kept[0], (0, true));
        if storage == "memory" {
            assert_eq!(kept[1], (5, true));
            kept.truncate(3);
            assert!(kept[2].0 > 6 && !kept[2].1, "{kept:?}");
            assert!(stream.step(Run(1), Step(1)).is_err());
        }
        writer.close_run(WATCHDOG).unwrap();
    }
}

#[test]
fn who_has_had_a_pinned_step_is_not_given_it_again() {
    let rig = Rig::new();
    let stream = rig.stream_with(&keeping("memory", count(3)));
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    let mut reader = stream.reader(reading("live")).unwrap();
    assert_eq!(write_pinned(&mut writer), Step(0));
    assert_eq!(next_step(&mut reader).number(), Step(0));
    for _ in 1..10 {
        write_step(&mut writer, Wait::Committed).unwrap();
    }
    let next = next_step(&mut reader);
    assert!(next.number() > Step(0));
    next.release(WATCHDOG).unwrap();
    // Nor is its program, when it comes back.
    drop(reader);
    let mut reader = stream.reader(reading("live")).unwrap();
    assert!(next_step(&mut reader).number() > Step(0));
}

#[test]
fn pinned_steps_are_there_after_restarts_and_kills() {
    let mut rig = Rig::new();
    let stream = rig.stream_with(&keeping("disk", count(3)));
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    write_all(&mut writer);
    for _ in 20..200 {
        write_step(&mut writer, Wait::Accepted).unwrap();
    }
    writer.close_run(WATCHDOG).unwrap();
    drop(writer);
    for is_killed in [false, true, true, false] {
        match is_killed {
            true => rig.kill(),
            false => rig.restart(),
        }
        let stream = rig.open();
        for step in [0, 5] {
            check_step(&stream.step(Run(1), Step(step)).unwrap(), step);
        }
        assert!(stream.step(Run(1), Step(10)).is_err(), "retention took it");
        assert_eq!(listed(&stream, Run(1))[..2], [(0, true), (5, true)]);
        let name = format!("late {is_killed}");
        let first = given(&stream, &name, StepStart::Run(Run(1)), 2);
        assert_eq!(first, [(0, false), (5, true)]);
        // More is written behind them, and goes.
        let mut next = stream.writer(writing(0, 1)).unwrap();
        for _ in 0..100 {
            write_step(&mut next, Wait::Accepted).unwrap();
        }
        next.close_run(WATCHDOG).unwrap();
    }
    until(&rig.open(), &[(0, true), (5, true)]);
}

#[test]
fn all_ranks_of_a_group_are_given_a_pinned_step_in_the_same_turn() {
    let mut rig = Rig::new();
    let stream = rig.stream_with(&keeping("disk", count(2)));
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    write_all(&mut writer);
    let rank = |rank: u32| ReaderOptions {
        rank,
        ranks: 2,
        start: StepStart::Oldest,
        session_timeout: WATCHDOG,
        ..reading("pair")
    };
    let mut readers = [0, 1].map(|one| stream.reader(rank(one)).unwrap());
    let first = next_step(&mut readers[0]);
    assert_eq!(first.number(), Step(0));
    assert_eq!(next_step(&mut readers[1]).number(), Step(0));
    // The next life of the server is told what they have had.
    drop(writer);
    rig.kill();
    drop(first);
    std::thread::scope(|scope| {
        for reader in &mut readers {
            scope.spawn(move || assert_eq!(next_step(reader).number(), Step(5)));
        }
    });
    for reader in &mut readers {
        assert!(next_step(reader).number() > Step(6));
    }
}

#[test]
fn groups_that_share_are_given_each_pinned_step_once() {
    let rig = Rig::new();
    let stream = rig.stream_with(&keeping("memory", count(2)));
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    write_all(&mut writer);
    let sharing = |group: &str| ReaderOptions {
        distribution: Distribution::OnDemand,
        group: Some(group.to_owned()),
        start: StepStart::Oldest,
        ..reading("share")
    };
    let mut first = stream.reader(sharing("a")).unwrap();
    let mut second = stream.reader(sharing("b")).unwrap();
    assert_eq!(next_step(&mut first).number(), Step(0));
    assert_eq!(next_step(&mut second).number(), Step(5));
    let next = next_step(&mut first);
    assert!(next.number() > Step(6) && next.lost() > 0, "{next:?}");
}

#[test]
fn ranks_that_do_not_all_pin_a_step_lose_it_and_hear_who_did_not() {
    let rig = Rig::new();
    let stream = rig.stream();
    let mut ranks = [0, 1].map(|rank| stream.writer(writing(rank, 2)).unwrap());
    for (index, writer) in ranks.iter_mut().enumerate() {
        writer.begin_step().unwrap();
        if index == 0 {
            writer.pin_step().unwrap();
        }
        put_row(writer, 0);
        writer.end_step(Wait::Accepted).unwrap();
    }
    let ended = ranks[0].wait(Wait::Committed, WATCHDOG).unwrap();
    let why = ended.discarded.unwrap();
    assert!(why.contains("rank 1 has not"), "{why}");
}

#[test]
fn no_more_is_pinned_than_the_stream_may_keep() {
    let rig = Rig::new();
    let bytes = Retention {
        bytes: Some(2 * ROW * 8),
        ..Retention::default()
    };
    let stream = rig.stream_with(&keeping("memory", bytes));
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    write_pinned(&mut writer);
    write_pinned(&mut writer);
    writer.begin_step().unwrap();
    writer.pin_step().unwrap();
    put_row(&mut writer, 2);
    let refused = writer.end_step(Wait::Committed).unwrap_err();
    let words = refused.to_string();
    assert!(words.contains("2 steps of 640 bytes are pinned"), "{words}");
    // It is written yet, as any other.
    let ended = writer.end_step(Wait::Committed).unwrap();
    assert_eq!((ended.step, ended.discarded), (Step(2), None));
    writer.close(WATCHDOG).unwrap();
    // A step that was let in before it was written, to wait for readers, is asked for as well.
    let _reader = stream.reader(reading("viewer")).unwrap();
    let mut waited = stream
        .writer(WriterOptions {
            readers_min: 1,
            ..writing(0, 1)
        })
        .unwrap();
    waited.begin_step().unwrap();
    waited.pin_step().unwrap();
    put_row(&mut waited, 0);
    let refused = waited.end_step(Wait::Committed).unwrap_err();
    assert!(refused.to_string().contains("are pinned in"), "{refused}");
}

#[test]
fn a_stream_without_a_place_for_pinned_steps_says_so() {
    let rig = Rig::new();
    let options = StreamOptions {
        pins: false,
        ..StreamOptions::default()
    };
    let stream = rig.stream_with(&options);
    assert_eq!(stream.topic().partitions().len(), 2);
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    writer.begin_step().unwrap();
    let refused = writer.pin_step().unwrap_err();
    assert!(matches!(refused, StepError::Invalid(_)), "{refused}");
}
