//! Programs that share the steps of a name, and groups that lose a rank.

use crate::rig::*;
use std::time::Duration;
use step::*;

fn sharing(distribution: Distribution) -> ReaderOptions {
    ReaderOptions {
        distribution,
        ..reading("shared")
    }
}

/// All that a reader is given up to the end of the run.
fn numbers(reader: &mut Reader) -> Vec<u64> {
    let mut numbers = Vec::new();
    loop {
        match reader.next(WATCHDOG).unwrap() {
            Next::Step(view) => {
                check_step(&view, view.number().0);
                numbers.push(view.number().0);
            }
            Next::End { .. } => return numbers,
            Next::NotReady(why) => panic!("{why}"),
        }
    }
}

#[test]
fn each_step_is_of_one_of_the_programs_that_share() {
    for distribution in [Distribution::OnDemand, Distribution::RoundRobin] {
        let rig = Rig::new();
        let stream = rig.stream();
        let mut writer = stream.writer(writing(0, 1)).unwrap();
        let readers: Vec<Reader> = (0..3)
            .map(|_| stream.reader(sharing(distribution)).unwrap())
            .collect();
        let reading = readers.into_iter().map(|mut reader| {
            std::thread::spawn(move || {
                let numbers = numbers(&mut reader);
                (reader, numbers)
            })
        });
        let reading: Vec<_> = reading.collect();
        for _ in 0..30 {
            write_step(&mut writer, Wait::Begun).unwrap();
        }
        writer.close(WATCHDOG).unwrap();
        let read = reading.into_iter().map(|thread| thread.join().unwrap());
        let read: Vec<(Reader, Vec<u64>)> = read.collect();
        if distribution == Distribution::RoundRobin {
            let counts = read.iter().map(|(_, numbers)| numbers.len());
            assert_eq!(counts.collect::<Vec<_>>(), [10, 10, 10]);
        }
        let mut all: Vec<u64> = read
            .iter()
            .flat_map(|(_, numbers)| numbers.clone())
            .collect();
        all.sort_unstable();
        assert_eq!(all, (0..30).collect::<Vec<_>>(), "{distribution:?}");
    }
}

#[test]
fn a_step_that_is_left_unread_is_given_to_another_program() {
    let rig = Rig::new();
    let stream = rig.stream();
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    for _ in 0..3 {
        write_step(&mut writer, Wait::Committed).unwrap();
    }
    writer.close(WATCHDOG).unwrap();
    let mut fails = stream.reader(sharing(Distribution::OnDemand)).unwrap();
    let mut other = stream.reader(sharing(Distribution::OnDemand)).unwrap();
    let step = next_step(&mut fails);
    check_step(&step, 0);
    step.leave_unread();
    drop(step);
    drop(fails);
    let mut had = numbers(&mut other);
    had.sort_unstable();
    assert_eq!(had, [0, 1, 2]);
}

#[test]
fn programs_that_share_go_on_over_a_kill_of_the_server() {
    let mut rig = Rig::new();
    let stream = rig.stream();
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    for _ in 0..6 {
        write_step(&mut writer, Wait::Committed).unwrap();
    }
    let mut slow = stream.reader(sharing(Distribution::OnDemand)).unwrap();
    let mut fast = stream.reader(sharing(Distribution::OnDemand)).unwrap();
    let held = next_step(&mut slow);
    check_step(&held, 0);
    for number in 1..3 {
        check_step(&next_step(&mut fast), number);
    }
    fast.release(WATCHDOG).unwrap();
    rig.kill();
    writer.close(WATCHDOG).unwrap();
    drop(held);
    // Each is given once at least: what was released behind step 0 may come again.
    let reading = [slow, fast].map(|mut reader| {
        std::thread::spawn(move || {
            let numbers = numbers(&mut reader);
            (reader, numbers)
        })
    });
    let mut all = vec![0, 1, 2];
    for thread in reading {
        all.extend(thread.join().unwrap().1);
    }
    all.sort_unstable();
    all.dedup();
    assert_eq!(all, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn the_others_hear_that_a_rank_of_their_group_is_gone() {
    let rig = Rig::new();
    let stream = rig.stream();
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    write_step(&mut writer, Wait::Committed).unwrap();
    let pair = |rank| ReaderOptions {
        rank,
        ranks: 2,
        session_timeout: Duration::from_millis(300),
        ..reading("pair")
    };
    let other = rig.open();
    let [mut r0, mut r1] =
        [(&stream, 0), (&other, 1)].map(|(stream, rank)| stream.reader(pair(rank)).unwrap());
    check_step(&next_step(&mut r0), 0);
    let held = next_step(&mut r1);
    // It goes while it holds a step, and does not come back.
    drop(r1);
    let lost = loop {
        match r0.next(WATCHDOG) {
            Err(lost) => break lost,
            Ok(Next::NotReady(_)) => {}
            Ok(other) => panic!("{other:?}"),
        }
    };
    assert!(matches!(lost, StepError::Incomplete(_)), "{lost}");
    assert!(lost.to_string().contains("rank 1 of 2"), "{lost}");
    assert!(matches!(r0.next(WATCHDOG), Err(StepError::Incomplete(_))));
    drop(held);
    let mut anew = [0, 1].map(|rank| stream.reader(pair(rank)).unwrap());
    for reader in &mut anew {
        check_step(&next_step(reader), 0);
    }
}

#[test]
fn ranks_that_share_say_which_group_they_are() {
    let rig = Rig::new();
    let stream = rig.stream();
    let ranks = |group: Option<&str>| ReaderOptions {
        ranks: 2,
        group: group.map(str::to_owned),
        ..sharing(Distribution::OnDemand)
    };
    let refused = stream.reader(ranks(None)).unwrap_err();
    assert!(refused.to_string().contains("which group"), "{refused}");
    stream.reader(ranks(Some("a"))).unwrap();
}

#[test]
fn a_run_says_how_its_writers_want_steps_given() {
    let rig = Rig::new();
    let stream = rig.stream();
    let options = WriterOptions {
        distribution: Distribution::RoundRobin,
        ..writing(0, 1)
    };
    let mut writer = stream.writer(options).unwrap();
    let runs = rig.open().runs().unwrap();
    assert_eq!(runs[0].distribution, Distribution::RoundRobin);
    writer.close(WATCHDOG).unwrap();
}
