//! Standing selections: what is read of a step before the program asks for it.

use crate::rig::*;
use std::sync::atomic::Ordering;
use std::time::Instant;
use step::*;

fn preloading(name: &str, preload: Preload) -> ReaderOptions {
    ReaderOptions {
        preload,
        ..reading(name)
    }
}

fn selected(name: &str, selection: Selection) -> Preload {
    Preload::Selected(vec![(name.to_owned(), selection)])
}

fn rows(start: u64, count: u64) -> Selection {
    Selection::Box(vec![
        Along::Range(Range {
            start,
            count,
            step: 1,
        }),
        Along::Whole,
    ])
}

/// Messages that a reader has sent for what a program does.
fn sent_for<T>(stream: &Stream, act: impl FnOnce() -> T) -> (u64, T) {
    let counters = stream.topic().driver().counters();
    let before = counters.frames_sent.load(Ordering::Relaxed);
    let done = act();
    (counters.frames_sent.load(Ordering::Relaxed) - before, done)
}

/// Waits until something holds that another thread brings about.
fn until(mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < WATCHDOG);
        std::thread::yield_now();
    }
}

#[test]
fn what_stands_is_there_before_it_is_asked_for() {
    let rig = Rig::new();
    let stream = rig.stream();
    let mut writers = [0, 1].map(|rank| stream.writer(writing(rank, 2)).unwrap());
    let mut write = || {
        for writer in &mut writers {
            write_step(writer, Wait::Begun).unwrap();
        }
        writers[0].wait(Wait::Committed, WATCHDOG).unwrap();
    };
    let own = rig.open();
    let mut reader = own.reader(preloading("viewer", Preload::All)).unwrap();
    write();
    write();
    check_step(&next_step(&mut reader), 0);
    for step in 1..5 {
        write();
        // Its step has come by now, and its bytes are asked for.
        let counters = own.topic().driver().counters();
        let sent = counters.frames_sent.load(Ordering::Relaxed);
        let view = next_step(&mut reader);
        until(|| counters.frames_sent.load(Ordering::Relaxed) > sent);
        check_step(&view, step);
        // All of it, a part, and a part of a part; the caller's memory and others.
        let (asked, ()) = sent_for(&own, || {
            for _ in 0..20 {
                check_step(&view, step);
                let part = view.get("E", &Selection::of_box(&[1, 3], &[1, 7])).unwrap();
                assert_eq!(floats_of(&part.data), row(step, 1)[3..10]);
                let mut memory = vec![0; 8 * 7];
                let mut gets = [GetInto {
                    name: "E",
                    selection: &Selection::of_box(&[0, 3], &[1, 7]),
                    out: &mut memory,
                }];
                view.get_many(&mut gets).unwrap();
                assert_eq!(floats_of(&memory), row(step, 0)[3..10]);
            }
        });
        // The next step's record may have come meanwhile.
        assert!(asked <= 2, "{asked} messages for 60 gets");
    }
}

/// What a reader of all steps sends for one: the rank asks for the next, says that it has done with
/// the one before, and reads.
#[test]
fn a_step_costs_a_reader_two_messages() {
    for preload in [Preload::Nothing, Preload::All] {
        let rig = Rig::new();
        let stream = rig.stream();
        let mut writer = stream.writer(writing(0, 1)).unwrap();
        for _ in 0..22 {
            write_step(&mut writer, Wait::Committed).unwrap();
        }
        let own = rig.open();
        let mut reader = own.reader(preloading("r", preload.clone())).unwrap();
        let mut held = next_step(&mut reader);
        let (sent, ()) = sent_for(&own, || {
            for step in 1..21 {
                // The step before is let go of by asking for this one.
                let view = next_step(&mut reader);
                check_step(&view, step);
                held = view;
            }
        });
        // Of that read ahead one may have been sent before, or be about to be; a step that had not
        // come when it was asked for costs a message more.
        let most = match preload {
            Preload::Nothing => 40,
            _ => 62,
        };
        assert!(sent <= most, "{sent} messages of 20 steps, {preload:?}");
        drop(held);
    }
}

#[test]
fn views_that_a_program_keeps_hold_no_memory_of_what_was_read_ahead() {
    let rig = Rig::new();
    let stream = rig.stream();
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    let own = rig.open();
    let mut reader = own.reader(preloading("r", Preload::All)).unwrap();
    let mut views = Vec::new();
    for _ in 0..4 {
        write_step(&mut writer, Wait::Committed).unwrap();
        let view = next_step(&mut reader);
        check_step(&view, views.len() as u64);
        views.push(view);
    }
    let (asked, ()) = sent_for(&own, || {
        for (step, view) in views.iter().enumerate() {
            check_step(view, step as u64);
        }
    });
    assert!(
        asked >= 3,
        "{asked} messages: all but the last are read again"
    );
}

#[test]
fn a_writer_whose_queue_is_full_goes_on_when_a_step_is_released() {
    for preload in [Preload::Nothing, Preload::All] {
        let rig = Rig::new();
        let stream = rig.stream();
        let mut reader = rig.open().reader(preloading("r", preload)).unwrap();
        let options = WriterOptions {
            queue_steps: 1,
            ..writing(0, 1)
        };
        let mut writer = stream.writer(options).unwrap();
        let writing = std::thread::spawn(move || {
            for _ in 0..30 {
                write_step(&mut writer, Wait::Committed).unwrap();
            }
            writer.close(WATCHDOG).unwrap();
        });
        // Held, or let go of, when the next one is asked for.
        let mut held = None;
        for step in 0..30 {
            let view = next_step(&mut reader);
            check_step(&view, step);
            held = (step % 2 == 0).then_some(view);
        }
        drop(held);
        assert_eq!(next_end(&mut reader), (Run(1), None));
        writing.join().unwrap();
    }
}

#[test]
fn a_step_that_was_read_ahead_and_not_asked_for_is_given_again() {
    let rig = Rig::new();
    let stream = rig.stream();
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    for _ in 0..4 {
        write_step(&mut writer, Wait::Committed).unwrap();
    }
    for step in 0..3 {
        let own = rig.open();
        let mut reader = own.reader(preloading("r", Preload::All)).unwrap();
        let view = next_step(&mut reader);
        check_step(&view, step);
        view.release(WATCHDOG).unwrap();
    }
}

#[test]
fn ranks_of_a_reader_are_read_ahead_each_for_itself() {
    let rig = Rig::new();
    let stream = rig.stream();
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    let drivers = [rig.open(), rig.open()];
    let mut ranks: Vec<Reader> = (0..2)
        .map(|rank| {
            let options = ReaderOptions {
                rank,
                ranks: 2,
                session_timeout: WATCHDOG,
                ..preloading("r", selected("E", Selection::Whole))
            };
            drivers[rank as usize].reader(options).unwrap()
        })
        .collect();
    for _ in 0..8 {
        write_step(&mut writer, Wait::Committed).unwrap();
    }
    // One is done with all of them before the other has begun.
    for reader in &mut ranks {
        for step in 0..8 {
            check_step(&next_step(reader), step);
        }
    }
    writer.close(WATCHDOG).unwrap();
    for reader in &mut ranks {
        assert_eq!(next_end(reader), (Run(1), None));
    }
}

#[test]
fn who_is_given_the_newest_step_or_shares_them_is_not_given_one_ahead() {
    let rig = Rig::new();
    let stream = rig.stream();
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    let latest = ReaderOptions {
        latest: true,
        ..preloading("live", Preload::All)
    };
    let mut live = rig.open().reader(latest).unwrap();
    let shared = || ReaderOptions {
        distribution: Distribution::OnDemand,
        ..preloading("workers", Preload::All)
    };
    let mut workers = [rig.open(), rig.open()].map(|stream| stream.reader(shared()).unwrap());
    write_step(&mut writer, Wait::Committed).unwrap();
    check_step(&next_step(&mut live), 0);
    let held = next_step(&mut workers[0]);
    check_step(&held, 0);
    for _ in 1..6 {
        write_step(&mut writer, Wait::Committed).unwrap();
    }
    let newest = next_step(&mut live);
    check_step(&newest, 5);
    assert_eq!(newest.skipped(), 4);
    // The one that is at work keeps none from the other.
    for step in 1..6 {
        check_step(&next_step(&mut workers[1]), step);
    }
}

#[test]
fn a_restart_of_the_server_loses_nothing_that_is_read_ahead() {
    for restart in [Rig::restart, Rig::kill] {
        let mut rig = Rig::new();
        let stream = rig.stream();
        let options = WriterOptions {
            session_timeout: WATCHDOG,
            ..writing(0, 1)
        };
        let mut writer = stream.writer(options).unwrap();
        let options = ReaderOptions {
            session_timeout: WATCHDOG,
            ..preloading("r", Preload::All)
        };
        let mut reader = rig.open().reader(options).unwrap();
        for round in 0..3 {
            for _ in 0..3 {
                write_step(&mut writer, Wait::Committed).unwrap();
            }
            for step in 3 * round..3 * round + 3 {
                check_step(&next_step(&mut reader), step);
            }
            // The step behind these is asked for.
            restart(&mut rig);
        }
        writer.close(WATCHDOG).unwrap();
        assert_eq!(next_end(&mut reader), (Run(1), None));
    }
}

#[test]
fn more_than_the_bound_is_read_when_it_is_asked_for() {
    let rig = Rig::new();
    let stream = rig.stream();
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    for _ in 0..6 {
        write_step(&mut writer, Wait::Committed).unwrap();
    }
    for (bytes_max, is_ahead) in [(8 * ROW, true), (8 * ROW - 1, false)] {
        let own = rig.open();
        let options = ReaderOptions {
            preload_bytes_max: bytes_max,
            start: StepStart::Oldest,
            ..preloading(&format!("r{bytes_max}"), Preload::All)
        };
        let mut reader = own.reader(options).unwrap();
        for step in 0..6 {
            let view = next_step(&mut reader);
            let (asked, ()) = sent_for(&own, || {
                for _ in 0..9 {
                    check_step(&view, step);
                }
            });
            // Beside the gets there are the next step's messages.
            assert_eq!(asked < 9, is_ahead, "{asked} messages");
        }
    }
}

#[test]
fn what_retention_takes_is_told_unless_it_was_read_ahead() {
    let rig = Rig::new();
    let stream = rig.stream_of_bytes(2 << 20);
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    let byte = DType::parse("|u1").unwrap();
    let mut write = |name: &str, value: u8| {
        writer.begin_step().unwrap();
        for name in [name, "other"] {
            let put = Put {
                name,
                dtype: &byte,
                place: Place::Local,
                count: &[256 << 10],
                with_extremes: false,
            };
            writer.put(&put, &[value; 256 << 10]).unwrap();
        }
        writer.end_step(Wait::Committed).unwrap();
    };
    write("a", 0);
    let preload = selected("a", Selection::Whole);
    let mut reader = rig.open().reader(preloading("slow", preload)).unwrap();
    let step = next_step(&mut reader);
    assert!(step.get("a", &Selection::Block(0)).is_ok());
    for value in 1..=20 {
        write("a", value);
    }
    let kept = step.get("a", &Selection::Block(0)).unwrap();
    assert_eq!(kept.data[..], [0; 256 << 10]);
    let gone = step.get("other", &Selection::Block(0)).unwrap_err();
    assert!(matches!(gone, StepError::Gone(_)), "{gone}");
    // The step behind it was asked for before retention took it, or is one that is there.
    let mut last = step.number();
    for _ in 0..3 {
        let step = next_step(&mut reader);
        assert!(step.number() > last);
        last = step.number();
        match step.get("a", &Selection::Block(0)) {
            Ok(array) => assert_eq!(array.data[..], [last.0 as u8; 256 << 10]),
            Err(error) => assert!(matches!(error, StepError::Gone(_)), "{error}"),
        }
    }
}

/// Whether a reader is given what it wants of a step, though other rows stood when it was read ahead.
fn has_what_it_asks_for(fault: Option<Fault>) -> bool {
    let rig = Rig::new();
    let stream = rig.stream();
    let mut writers = [0, 1, 2, 3].map(|rank| stream.writer(writing(rank, 4)).unwrap());
    for _ in 0..6 {
        for writer in &mut writers {
            write_step(writer, Wait::Begun).unwrap();
        }
        writers[0].wait(Wait::Committed, WATCHDOG).unwrap();
    }
    let mut reader = stream
        .reader(preloading("r", selected("E", rows(0, 1))))
        .unwrap();
    plant(fault);
    let is_right = (0..6).all(|step| {
        let view = next_step(&mut reader);
        let wanted = step % 4;
        let array = view.get("E", &rows(wanted, 1)).unwrap();
        let is_right = floats_of(&array.data) == row(step, wanted);
        // The step behind this one may have been read ahead by now.
        reader.preload(selected("E", rows((step + 1) % 4, 1)));
        drop(view);
        is_right
    });
    let is_right = is_right && {
        let mut other = stream
            .reader(preloading("s", selected("E", rows(0, 1))))
            .unwrap();
        let array = next_step(&mut other).get("E", &rows(2, 1)).unwrap();
        floats_of(&array.data) == row(0, 2)
    };
    plant(None);
    is_right
}

#[test]
fn another_selection_is_never_given_what_was_read_for_an_older_one() {
    assert!(has_what_it_asks_for(None));
    assert!(
        !has_what_it_asks_for(Some(Fault::OlderSelection)),
        "the fault is noticed"
    );
}

/// A generator of numbers that is the same everywhere.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn selection(&mut self, layout: Option<&Layout>) -> Selection {
        let shape = match layout {
            Some(layout) => layout.shape().to_vec(),
            None => vec![1 + self.below(8), 1 + self.below(8)],
        };
        if self.below(3) == 0 {
            return Selection::Whole;
        }
        let along = shape.iter().map(|length| {
            let start = self.below(length + 1);
            let step = 1 + self.below(3);
            let most = (length - start).div_ceil(step);
            match self.below(4) {
                0 => Along::Whole,
                _ => Along::Range(Range {
                    start,
                    count: self.below(most + 1),
                    step,
                }),
            }
        });
        Selection::Box(along.collect())
    }
}

/// Steps whose variables come and go and change their shapes, with ranks that put nothing and places
/// that nobody puts: two readers are given the same, and one of them reads ahead what stands by
/// chance.
fn same_bytes(seed: u64) {
    const NAMES: [&str; 4] = ["a", "b", "late", "local"];
    let mut numbers = Numbers(seed);
    let rig = Rig::new();
    let stream = rig.stream();
    let ranks = 1 + numbers.below(3) as u32;
    let mut writers: Vec<Writer> = (0..ranks)
        .map(|rank| stream.writer(writing(rank, ranks)).unwrap())
        .collect();
    let dtype = DType::parse("<u2").unwrap();
    let mut plain = rig.open().reader(reading("plain")).unwrap();
    let mut ahead = rig
        .open()
        .reader(preloading("ahead", Preload::All))
        .unwrap();
    let mut value = 0u16;
    let steps = 8;
    let written = numbers.below(steps + 1);
    let mut write = |numbers: &mut Numbers, step: u64| {
        let columns = 1 + numbers.below(6);
        let each: Vec<u64> = (0..ranks).map(|_| numbers.below(4)).collect();
        let hole = numbers.below(3);
        let shape = [each.iter().sum::<u64>() + hole, columns];
        let mut start = 0;
        let names: Vec<&str> = NAMES
            .into_iter()
            .filter(|name| (*name != "late" || step > 3) && (*name != "b" || step != 5))
            .collect();
        for (writer, count) in writers.iter_mut().zip(&each) {
            writer.begin_step().unwrap();
            for name in &names {
                let mut place = Place::Array {
                    shape: &shape,
                    start: &[start, 0],
                };
                if *name == "local" {
                    place = Place::Local;
                }
                let elements = (0..count * columns).flat_map(|_| {
                    value = value.wrapping_add(1);
                    value.to_le_bytes()
                });
                let put = Put {
                    name,
                    dtype: &dtype,
                    place,
                    count: &[*count, columns],
                    with_extremes: false,
                };
                writer.put(&put, &elements.collect::<Vec<u8>>()).unwrap();
            }
            start += count;
            writer.end_step(Wait::Begun).unwrap();
        }
        writers[0].wait(Wait::Committed, WATCHDOG).unwrap();
    };
    for step in 0..written {
        write(&mut numbers, step);
    }
    for step in 0..steps {
        if step >= written {
            write(&mut numbers, step);
        }
        let views = [&mut plain, &mut ahead].map(next_step);
        assert!(views.iter().all(|view| view.number() == Step(step)));
        let names: Vec<String> = views[0].names().map(str::to_owned).collect();
        for _ in 0..6 {
            let name = &names[numbers.below(names.len() as u64) as usize];
            let layout = views[0].layout(name).unwrap();
            let selection = match name.as_str() {
                "local" => Selection::Block(numbers.below(layout.block_count() as u64)),
                _ => numbers.selection(Some(&layout)),
            };
            let [one, two] = [0, 1].map(|index| views[index].get(name, &selection).unwrap());
            let array_bytes = one.data.len();
            let told = format!("seed {seed}, step {step}, {name} {selection:?}");
            assert_eq!(one.shape, two.shape, "{told}");
            assert_eq!(one.data[..], two.data[..], "{told}");
            assert_eq!(one.coverage, two.coverage, "{told}");
            // What nobody has put stays as it was.
            let read = |view: &StepView| {
                let get = GetTarget {
                    name: name.clone(),
                    selection: selection.clone(),
                    into: client::Target::new(vec![0x77; array_bytes]),
                };
                let (mut target, coverage) = view.get_targets(vec![get]).unwrap().pop().unwrap();
                (target.as_mut().to_vec(), coverage)
            };
            assert_eq!(read(&views[0]), read(&views[1]), "{told}");
        }
        if numbers.below(2) == 0 {
            let wanted = NAMES.map(|name| (name.to_owned(), numbers.selection(None)));
            ahead.preload(match numbers.below(5) {
                0 => Preload::Nothing,
                1 => Preload::All,
                _ => Preload::Selected(wanted.to_vec()),
            });
        }
    }
}

#[test]
fn what_is_read_ahead_is_what_is_read() {
    for seed in 1..=40 {
        same_bytes(seed);
    }
}
