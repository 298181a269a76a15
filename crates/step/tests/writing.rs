//! Ranks write, and what they have written is read.

use crate::rig::*;
use step::*;

#[test]
fn what_one_rank_writes_is_read_as_it_was_put() {
    let rig = Rig::new();
    let stream = rig.stream();
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    assert_eq!((writer.run(), writer.step()), (Run(1), Step(0)));
    writer.set_attribute("time", 0.5).unwrap();
    writer.begin_step().unwrap();
    put_row(&mut writer, 0);
    let (double, short) = (double(), DType::parse("<i2").unwrap());
    writer
        .put_value("dt", ShapeKind::Value, &double, &0.1f64.to_le_bytes())
        .unwrap();
    writer
        .put_value("title", ShapeKind::Value, &DType::text(), "µ".as_bytes())
        .unwrap();
    // A span of an array of three dimensions.
    let put = Put {
        name: "cube",
        dtype: &short,
        place: Place::Array {
            shape: &[2, 3, 4],
            start: &[0, 0, 0],
        },
        count: &[2, 3, 4],
        with_extremes: true,
    };
    let span = writer.span(&put).unwrap();
    for (index, element) in writer
        .span_mut(span)
        .unwrap()
        .chunks_exact_mut(2)
        .enumerate()
    {
        element.copy_from_slice(&(index as i16 - 5).to_le_bytes());
    }
    // Two blocks that are joined, and two that are not; one is sent from where it lies.
    for values in [&[1.0, 2.0][..], &[3.0]] {
        let count = [values.len() as u64];
        let put = |name, place| Put {
            name,
            dtype: &double,
            place,
            count: &count,
            with_extremes: false,
        };
        let data = bytes_of(values);
        writer.put(&put("x", Place::Joined(0)), &data).unwrap();
        let local = put("local", Place::Local);
        writer.put_owned(&local, data.into()).unwrap();
    }
    let ended = writer.end_step(Wait::Committed).unwrap();
    assert_eq!((ended.step, ended.discarded.as_deref()), (Step(0), None));
    assert!(writer.span_mut(span).is_err());
    // A step of nothing is a step.
    writer.begin_step().unwrap();
    writer.end_step(Wait::Accepted).unwrap();
    writer.close(WATCHDOG).unwrap();
    assert!(matches!(writer.begin_step(), Err(StepError::Invalid(_))));

    let mut reader = rig.open().reader(reading("viewer")).unwrap();
    let step = next_step(&mut reader);
    check_step(&step, 0);
    assert_eq!(
        (step.run(), step.writer(), step.writer_ranks()),
        (Run(1), "sim", 1)
    );
    assert_eq!(
        step.attributes().get("time").unwrap().as_floats(),
        Some(vec![0.5])
    );
    let names: Vec<_> = step.names().collect();
    assert_eq!(names, ["E", "dt", "title", "cube", "x", "local"]);
    assert_eq!(step.values("dt").unwrap()[0], &0.1f64.to_le_bytes()[..]);
    assert_eq!(step.values("title").unwrap()[0], "µ".as_bytes());
    let extremes = step.extremes("cube").unwrap().unwrap();
    assert_eq!(
        (extremes.min, extremes.max),
        ((-5i16).to_le_bytes().to_vec(), 18i16.to_le_bytes().to_vec())
    );
    assert_eq!(step.extremes("x").unwrap(), None);
    assert_eq!(step.variable("x").unwrap().shape, [3]);
    // Of several variables with one request, into the caller's memory.
    let every_second = Selection::Box(vec![
        Along::Range(Range {
            start: 1,
            count: 1,
            step: 1,
        }),
        Along::Range(Range {
            start: 0,
            count: 2,
            step: 2,
        }),
        Along::Whole,
    ]);
    let (mut cube, mut x, mut local) = ([0; 16], [0; 24], [0; 8]);
    let coverages = step
        .get_many(&mut [
            GetInto {
                name: "cube",
                selection: &every_second,
                out: &mut cube,
            },
            GetInto {
                name: "x",
                selection: &Selection::Whole,
                out: &mut x,
            },
            GetInto {
                name: "local",
                selection: &Selection::Block(1),
                out: &mut local,
            },
        ])
        .unwrap();
    assert!(coverages.iter().all(|coverage| coverage.uncovered == 0));
    let cube: Vec<i16> = cube
        .chunks_exact(2)
        .map(|bytes| i16::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    assert_eq!(cube, [7, 8, 9, 10, 15, 16, 17, 18]);
    assert_eq!(floats_of(&x), [1.0, 2.0, 3.0]);
    assert_eq!(floats_of(&local), [3.0]);
    // And into memory that is lent.
    let lent = GetTarget {
        name: "x".to_owned(),
        selection: Selection::of_box(&[1], &[2]),
        into: client::Target::new(vec![0u8; 16]),
    };
    let (target, _) = step.get_targets(vec![lent]).unwrap().pop().unwrap();
    assert_eq!(floats_of(&target.into_owner::<Vec<u8>>()), [2.0, 3.0]);
    drop(step);
    assert_eq!(next_step(&mut reader).names().count(), 0);
    assert_eq!(next_end(&mut reader), (Run(1), None));
    assert!(is_not_ready(&mut reader));
}

#[test]
fn three_writers_and_two_readers_agree_on_every_step() {
    const STEPS: u64 = 10;
    let rig = Rig::new();
    let options = StreamOptions {
        parts: 2,
        ..StreamOptions::default()
    };
    rig.stream_with(&options);
    std::thread::scope(|scope| {
        for rank in 0..3 {
            let stream = rig.open();
            scope.spawn(move || {
                let mut writer = stream.writer(writing(rank, 3)).unwrap();
                for _ in 0..STEPS {
                    write_step(&mut writer, Wait::Accepted).unwrap();
                }
                writer.close(WATCHDOG).unwrap();
            });
        }
        for rank in 0..2 {
            let stream = rig.open();
            scope.spawn(move || {
                let options = ReaderOptions {
                    rank,
                    ranks: 2,
                    ..reading("pair")
                };
                let mut reader = stream.reader(options).unwrap();
                for step in 0..STEPS {
                    check_step(&next_step(&mut reader), step);
                }
                assert_eq!(next_end(&mut reader), (Run(1), None));
            });
        }
    });
    // Another program of another size replays the same.
    for rank in 0..3 {
        let options = ReaderOptions {
            rank,
            ranks: 3,
            ..reading(&format!("replay {rank}"))
        };
        let options = ReaderOptions {
            rank: 0,
            ranks: 1,
            ..options
        };
        let mut reader = rig.open().reader(options).unwrap();
        for step in 0..STEPS {
            check_step(&next_step(&mut reader), step);
        }
        assert_eq!(next_end(&mut reader), (Run(1), None));
    }
}

#[test]
fn runs_follow_one_another_and_are_read_so() {
    let rig = Rig::new();
    let stream = rig.stream();
    for run in 1..=3 {
        let mut writer = stream.writer(writing(0, 1)).unwrap();
        assert_eq!(
            (writer.run(), writer.run_before()),
            (Run(run), Run(run - 1))
        );
        assert!(writer.attributes().is_empty(), "attributes are a run's");
        writer.set_attribute("run", run).unwrap();
        for _ in 0..run {
            write_step(&mut writer, Wait::Begun).unwrap();
        }
        writer.close(WATCHDOG).unwrap();
    }
    let mut reader = stream.reader(reading("all")).unwrap();
    for run in 1..=3 {
        for step in 0..run {
            let view = next_step(&mut reader);
            check_step(&view, step);
            assert_eq!(view.run(), Run(run));
            let said = view.attributes().get("run").unwrap().as_integers();
            assert_eq!(said, Some(vec![run as i64]));
        }
        assert_eq!(next_end(&mut reader), (Run(run), None));
    }
    let options = ReaderOptions {
        start: StepStart::Run(Run(2)),
        ..reading("second")
    };
    let mut second = stream.reader(options).unwrap();
    assert_eq!(next_step(&mut second).run(), Run(2));
}

#[test]
fn a_step_is_used_in_order() {
    let rig = Rig::new();
    let stream = rig.stream();
    assert!(matches!(
        stream.writer(writing(1, 1)),
        Err(StepError::Invalid(_))
    ));
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    let (double, refused) = (double(), |error: StepError| {
        matches!(error, StepError::Invalid(_))
    });
    let put = Put {
        name: "E",
        dtype: &double,
        place: Place::Array {
            shape: &[4],
            start: &[2],
        },
        count: &[2],
        with_extremes: false,
    };
    assert!(refused(writer.put(&put, &[0; 16]).unwrap_err()));
    assert!(refused(writer.end_step(Wait::Accepted).unwrap_err()));
    writer.begin_step().unwrap();
    assert!(refused(writer.begin_step().unwrap_err()));
    assert!(refused(writer.close(WATCHDOG).unwrap_err()));
    // What is refused leaves the step as it was.
    assert!(refused(writer.put(&put, &[0; 15]).unwrap_err()));
    let outside = Put { count: &[3], ..put };
    assert!(refused(writer.put(&outside, &[0; 24]).unwrap_err()));
    writer.put(&put, &bytes_of(&[1.0, 2.0])).unwrap();
    writer.end_step(Wait::Committed).unwrap();
    let mut reader = stream.reader(reading("one")).unwrap();
    let step = next_step(&mut reader);
    let array = step.get("E", &Selection::Whole).unwrap();
    assert_eq!(floats_of(&array.data), [0.0, 0.0, 1.0, 2.0]);
    assert_eq!(array.coverage.uncovered, 2);
    let unknown = step.get("B", &Selection::Whole).unwrap_err();
    assert!(unknown.to_string().contains("it has 1: E"), "{unknown}");
    // What nobody put keeps what was there.
    let mut out = bytes_of(&[7.0; 4]);
    let get = GetInto {
        name: "E",
        selection: &Selection::Whole,
        out: &mut out,
    };
    step.get_many(&mut [get]).unwrap();
    assert_eq!(floats_of(&out), [7.0, 7.0, 1.0, 2.0]);
}

#[test]
fn a_step_that_is_given_up_leaves_nothing() {
    let rig = Rig::new();
    let stream = rig.stream();
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    writer.drop_step().unwrap();
    let double = double();
    let put = Put {
        name: "B",
        dtype: &double,
        place: Place::Local,
        count: &[2],
        with_extremes: true,
    };
    writer.begin_step().unwrap();
    writer.put(&put, &[0; 16]).unwrap();
    writer.drop_step().unwrap();
    assert!(matches!(
        writer.end_step(Wait::Accepted),
        Err(StepError::Invalid(_))
    ));
    // The next one has its number. Lent memory of another length is refused.
    assert_eq!(writer.begin_step().unwrap(), Step(0));
    let lent = bytes_of(&[3.0, -1.0]);
    assert!(writer.put_filled_later(&put, vec![0; 15].into()).is_err());
    let named = Put { name: "C", ..put };
    writer.put_filled_later(&named, lent.into()).unwrap();
    writer.end_step(Wait::Committed).unwrap();
    let step = next_step(&mut stream.reader(reading("one")).unwrap());
    assert_eq!(step.names().collect::<Vec<_>>(), ["C"]);
    let array = step.get("C", &Selection::Block(0)).unwrap();
    assert_eq!(floats_of(&array.data), [3.0, -1.0]);
    let extremes = step.extremes("C").unwrap().unwrap();
    assert_eq!(floats_of(&extremes.min), [-1.0]);
    assert_eq!(floats_of(&extremes.max), [3.0]);
}

#[test]
fn large_blocks_come_back_whole_and_their_memory_is_used_again() {
    let rig = Rig::new();
    let stream = rig.stream();
    let mut writer = stream.writer(writing(0, 1)).unwrap();
    let byte = DType::parse("|u1").unwrap();
    let length = (5 << 20) + 3;
    for step in 0..4u64 {
        writer.begin_step().unwrap();
        for name in ["a", "b"] {
            let put = Put {
                name,
                dtype: &byte,
                place: Place::Array {
                    shape: &[length],
                    start: &[0],
                },
                count: &[length],
                with_extremes: false,
            };
            let span = writer.span(&put).unwrap();
            let seed = step + u64::from(name.as_bytes()[0]);
            for (element, index) in writer.span_mut(span).unwrap().iter_mut().zip(0..) {
                *element = pattern(seed, index);
            }
        }
        writer.end_step(Wait::Begun).unwrap();
    }
    writer.close(WATCHDOG).unwrap();
    let mut reader = stream.reader(reading("large")).unwrap();
    for step in 0..4u64 {
        let view = next_step(&mut reader);
        let tail = Selection::of_box(&[length - 1000], &[1000]);
        let arrays = view
            .get_arrays(&[("b", &Selection::Whole), ("a", &tail)])
            .unwrap();
        let expected = |name: u8, from: u64, count: u64| {
            let seed = step + u64::from(name);
            (from..from + count).map(move |index| pattern(seed, index))
        };
        assert!(arrays[0].data.iter().copied().eq(expected(b'b', 0, length)));
        assert!(
            arrays[1]
                .data
                .iter()
                .copied()
                .eq(expected(b'a', length - 1000, 1000))
        );
    }
}

fn pattern(seed: u64, index: u64) -> u8 {
    (index.wrapping_mul(31).wrapping_add(seed * 7) >> 3) as u8
}

/// A rank sets what it has set before, and another one has set meanwhile.
#[test]
fn an_attribute_is_what_was_set_last_by_whichever_rank() {
    let rig = Rig::new();
    let stream = rig.stream();
    let mut writers = [0, 1].map(|rank| stream.writer(writing(rank, 2)).unwrap());
    let set = [
        [None, Some(1)],
        [Some(2), None],
        [None, Some(1)],
        [Some(2), Some(3)],
        [Some(2), Some(3)],
    ];
    for of_ranks in set {
        for (writer, value) in writers.iter_mut().zip(of_ranks) {
            writer.begin_step().unwrap();
            if let Some(value) = value {
                writer.set_attribute("a", value).unwrap();
            }
            writer.end_step(Wait::Accepted).unwrap();
        }
    }
    for mut writer in writers {
        writer.close(WATCHDOG).unwrap();
    }
    let mut reader = stream.reader(reading("all")).unwrap();
    let values = set.map(|_| {
        let step = next_step(&mut reader);
        step.attributes().get("a").unwrap().as_integers()
    });
    assert_eq!(values, [1, 2, 1, 2, 2].map(|value| Some(vec![value])));
}
