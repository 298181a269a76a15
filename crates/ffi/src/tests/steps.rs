//! Steps of arrays.

use super::calls::*;
use crate::error::SERVER_CODES;
use std::ffi::{CStr, CString, c_void};
use std::mem::MaybeUninit;

const COPIED: u32 = 0;
const BORROW: u32 = 1;
const ACCEPTED: i32 = 1;
const COMMITTED: i32 = 2;
const FOREVER: i64 = -1;

/// A driver with a server in this process.
struct Steps(Setup);

impl Steps {
    fn new() -> Self {
        Self(Setup::new(c""))
    }

    fn writer(&self, options: &CStr) -> *mut StepWriter {
        let (driver, name) = (at(self.0.driver), c"fields".as_ptr());
        ok(|out, error| thalweg_step_writer_open(driver, name, options.as_ptr(), out, error))
    }

    fn reader(&self, options: &CStr) -> *mut StepReader {
        let (driver, name) = (at(self.0.driver), c"fields".as_ptr());
        ok(|out, error| thalweg_step_reader_open(driver, name, options.as_ptr(), out, error))
    }

    fn stream(&self) -> *mut StepStream {
        let (driver, name) = (at(self.0.driver), c"fields".as_ptr());
        ok(|out, error| thalweg_step_stream_open(driver, name, out, error))
    }
}

/// A row of a field of 2 x 4 doubles.
fn row_of(rank: usize, data: *const f64, flags: u32) -> ThalwegStepBlock {
    static SHAPE: [u64; 2] = [2, 4];
    static STARTS: [[u64; 2]; 2] = [[0, 0], [1, 0]];
    static COUNT: [u64; 2] = [1, 4];
    // SAFETY: the header says that zeroes are a start.
    let empty: ThalwegStepBlock = unsafe { MaybeUninit::zeroed().assume_init() };
    ThalwegStepBlock {
        name: c"E".as_ptr(),
        dtype: c"<f8".as_ptr(),
        kind: 1,
        flags,
        ndim: 2,
        shape: SHAPE.as_ptr(),
        start: STARTS[rank].as_ptr(),
        count: COUNT.as_ptr(),
        data: data.cast(),
        ..empty
    }
}

fn begin(writer: *mut StepWriter) -> u64 {
    ok(|out, error| thalweg_step_writer_begin(at(writer), out, error))
}

fn put(writer: *mut StepWriter, block: &ThalwegStepBlock) {
    done(|error| thalweg_step_writer_put(at(writer), Some(block), error));
}

fn end(writer: *mut StepWriter, wait: i32) -> ThalwegStepEnded {
    ok(|out, error| thalweg_step_writer_end(at(writer), wait, WATCHDOG_MS, out, error))
}

fn close(writer: *mut StepWriter) {
    let closed = ok(|out, error| thalweg_step_writer_close(at(writer), WATCHDOG_MS, out, error));
    assert!(closed.state < 2, "nobody is behind");
    thalweg_step_writer_free(boxed(writer));
}

fn next(reader: *mut StepReader, timeout_ms: i64) -> (*mut StepView, ThalwegStepNext) {
    let mut next = MaybeUninit::uninit();
    let step = ok(|out, error| {
        thalweg_step_reader_next(at(reader), timeout_ms, out, Some(&mut next), error)
    });
    // SAFETY: it is written when the code is 0.
    (step, unsafe { next.assume_init() })
}

fn said(reason: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = reason.iter().map(|byte| *byte as u8).collect();
    let text = CStr::from_bytes_until_nul(&bytes).unwrap();
    text.to_str().unwrap().to_owned()
}

/// What is selected of E, into memory whose elements are -1.
fn read<const N: usize>(step: *mut StepView, get: &mut ThalwegStepGet) -> [f64; N] {
    let mut into = [-1.0f64; N];
    get.name = c"E".as_ptr();
    get.into = into.as_mut_ptr().cast();
    get.size = size_of_val(&into);
    done(|error| thalweg_step_read(at(step), get, 1, FOREVER, error));
    into
}

fn whole() -> ThalwegStepGet {
    // SAFETY: the header says that zeroes are a start.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

#[test]
fn a_step_of_two_ranks_is_read_as_a_whole_and_in_boxes() {
    let steps = Steps::new();
    let ranks = [
        steps.writer(c"{\"rank\": 0, \"ranks\": 2, \"partitions\": 2}"),
        steps.writer(c"{\"rank\": 1, \"ranks\": 2, \"partitions\": 2}"),
    ];
    assert_eq!(thalweg_step_writer_run(at(ranks[0])), 1);
    let reader = steps.reader(c"{\"name\": \"r\"}");
    // Nothing is there, which is no error.
    let (none, waits) = next(reader, 0);
    assert!(none.is_null());
    assert_eq!(waits.state, 1);

    // Rank 0 lends its memory, rank 1 has its row in a column of a larger array.
    let lent = [0.0, 1.0, 2.0, 3.0];
    let spread = [10.0, 0.0, 11.0, 0.0, 12.0, 0.0, 13.0, 0.0];
    for (rank, writer) in ranks.into_iter().enumerate() {
        assert_eq!(begin(writer), 0);
        if rank == 0 {
            put(writer, &row_of(0, lent.as_ptr(), BORROW));
        } else {
            let strides = [64i64, 16];
            let block = ThalwegStepBlock {
                strides: strides.as_ptr(),
                ..row_of(1, spread.as_ptr(), COPIED)
            };
            put(writer, &block);
        }
        let value = 7i32 + rank as i32;
        let bytes = (&raw const value).cast();
        done(|error| {
            let (name, dtype) = (c"host".as_ptr(), c"<i4".as_ptr());
            thalweg_step_writer_put_value(at(writer), name, dtype, 1, bytes, 4, error)
        });
        let texts = [c"x".as_ptr(), c"y".as_ptr()];
        done(|error| {
            let name = c"axes".as_ptr();
            thalweg_step_writer_set_texts(at(writer), name, 1, texts.as_ptr(), 2, error)
        });
        assert_eq!(end(writer, ACCEPTED).step, 0);
    }
    let waited: ThalwegStepEnded =
        ok(|out, error| thalweg_step_writer_wait(at(ranks[0]), COMMITTED, WATCHDOG_MS, out, error));
    assert_eq!((waited.step, waited.reached, waited.discarded), (0, 2, 0));

    let (step, found) = next(reader, WATCHDOG_MS);
    assert_eq!((found.state, found.run), (0, 1));
    let info = ok(|out, error| thalweg_step_info_of(at(step), out, error));
    assert_eq!((info.number, info.writer_ranks, info.bytes), (0, 2, 64));
    assert_eq!(info.variable_count, 2);

    // All; every other column from 1 on; block 1 alone.
    let all: [f64; 8] = read(step, &mut whole());
    assert_eq!(all, [0.0, 1.0, 2.0, 3.0, 10.0, 11.0, 12.0, 13.0]);
    let (start, stride) = ([0u64, 1], [1u64, 2]);
    let mut get = ThalwegStepGet {
        ndim: 2,
        start: start.as_ptr(),
        step: stride.as_ptr(),
        ..whole()
    };
    assert_eq!(read::<4>(step, &mut get), [1.0, 3.0, 11.0, 13.0]);
    assert_eq!(get.uncovered, 0);
    let mut get = ThalwegStepGet {
        block: 2,
        ..whole()
    };
    assert_eq!(read::<4>(step, &mut get), [10.0, 11.0, 12.0, 13.0]);
    // Into memory with a gap behind each element, whose gaps stay.
    let mut into = [-1.0f64; 8];
    let (count, strides) = ([1u64, 4], [0i64, 16]);
    let mut get = ThalwegStepGet {
        name: c"E".as_ptr(),
        ndim: 2,
        count: count.as_ptr(),
        into: into.as_mut_ptr().cast(),
        size: 32,
        strides: strides.as_ptr(),
        ..whole()
    };
    done(|error| thalweg_step_read(at(step), &mut get, 1, FOREVER, error));
    assert_eq!(into, [0.0, -1.0, 1.0, -1.0, 2.0, -1.0, 3.0, -1.0]);

    // What is known without reading.
    let index = thalweg_step_find(at(step), c"E".as_ptr());
    let variable = ok(|out, error| thalweg_step_variable_at(at(step), index, out, error));
    assert_eq!((variable.ndim, variable.block_count), (2, 2));
    // SAFETY: two lengths, valid as long as the step.
    let shape = unsafe { std::slice::from_raw_parts(variable.shape, 2) };
    assert_eq!(shape, [2, 4]);
    let block = ok(|out, error| thalweg_step_block_at(at(step), index, 1, out, error));
    // SAFETY: as many numbers as dimensions, valid as long as the step; the extremes are an element.
    unsafe {
        assert_eq!(std::slice::from_raw_parts(block.start, 2), [1, 0]);
        assert_eq!(block.max.cast::<f64>().read_unaligned(), 13.0);
    }
    let (mut min, mut max) = (0.0f64, 0.0f64);
    let ends: [*mut c_void; 2] = [(&raw mut min).cast(), (&raw mut max).cast()];
    let known =
        ok(|out, error| thalweg_step_extremes(at(step), index, ends[0], ends[1], 8, out, error));
    assert_eq!((known, min, max), (1, 0.0, 13.0));
    let hosts = thalweg_step_find(at(step), c"host".as_ptr());
    let value = ok(|out, error| thalweg_step_value(at(step), hosts, 1, out, error));
    assert_eq!(slice(value), 8i32.to_le_bytes());
    assert_eq!(thalweg_step_find(at(step), c"B".as_ptr()), usize::MAX);

    let attributes = ok(|out, error| thalweg_step_attributes_of(at(step), out, error));
    thalweg_step_free(boxed(step));
    assert_eq!(thalweg_step_attributes_count(at(attributes)), 1);
    let axes = thalweg_step_attributes_find(at(attributes), c"axes".as_ptr());
    let text = ok(|out, error| thalweg_step_attributes_text(at(attributes), axes, 1, out, error));
    assert_eq!(slice(text), b"y");
    thalweg_step_attributes_free(boxed(attributes));

    // The run ends when all ranks have closed it.
    for writer in ranks {
        thalweg_step_writer_free(None);
        close(writer);
    }
    let (none, ended) = next(reader, WATCHDOG_MS);
    assert!(none.is_null());
    assert_eq!((ended.state, ended.run), (2, 1));
    done(|error| thalweg_step_reader_close(at(reader), 1, WATCHDOG_MS, error));
    thalweg_step_reader_free(boxed(reader));
    steps.0.end();
}

#[test]
fn an_end_that_comes_to_its_timeout_names_who_is_behind_and_goes_on() {
    let steps = Steps::new();
    let ranks = [
        steps.writer(c"{\"rank\": 0, \"ranks\": 2}"),
        steps.writer(c"{\"rank\": 1, \"ranks\": 2}"),
    ];
    let data = [1.0; 4];
    begin(ranks[0]);
    put(ranks[0], &row_of(0, data.as_ptr(), COPIED));
    let (code, said) =
        fails(|error| thalweg_step_writer_end(at(ranks[0]), COMMITTED, 50, None, error));
    assert_eq!(code, Code::Timeout as i32, "{said}");
    assert!(said.contains("rank 1"), "{said}");
    assert_eq!(thalweg_step_writer_next(at(ranks[0])), 1);
    begin(ranks[1]);
    put(ranks[1], &row_of(1, data.as_ptr(), COPIED));
    end(ranks[1], ACCEPTED);
    // The same call goes on with the same step.
    let ended = end(ranks[0], COMMITTED);
    assert_eq!((ended.step, ended.reached), (0, 2));
    // There is no step to end now.
    let (code, said) =
        fails(|error| thalweg_step_writer_end(at(ranks[0]), ACCEPTED, 0, None, error));
    assert_eq!(code, Code::InvalidArgument as i32, "{said}");
    ranks.into_iter().for_each(close);
    steps.0.end();
}

#[test]
fn memory_of_a_span_is_found_again_and_a_dropped_step_gives_its_number_back() {
    let steps = Steps::new();
    let writer = steps.writer(c"{\"storage\": \"memory\"}");
    begin(writer);
    let mut span = MaybeUninit::uninit();
    for rank in 0..2 {
        let base: *mut c_void = ok(|out, error| {
            let block = row_of(rank, std::ptr::null(), COPIED);
            thalweg_step_writer_span(at(writer), Some(&block), Some(&mut span), out, error)
        });
        // SAFETY: written, as the call was fine.
        assert_eq!(unsafe { span.assume_init() }, rank);
        // SAFETY: the memory of four doubles, which nobody else writes to.
        unsafe { base.cast::<[f64; 4]>().write([rank as f64; 4]) };
    }
    let mut size = MaybeUninit::uninit();
    let base: *mut c_void = ok(|out, error| {
        thalweg_step_writer_span_memory(at(writer), 0, out, Some(&mut size), error)
    });
    // SAFETY: as above.
    unsafe {
        assert_eq!(size.assume_init(), 32);
        base.cast::<f64>().write(5.0);
    }
    end(writer, COMMITTED);
    let (code, said) =
        fails(|error| thalweg_step_writer_span_memory(at(writer), 0, None, None, error));
    assert_eq!(code, 3, "{said}");

    assert_eq!(begin(writer), 1);
    put(writer, &row_of(0, [0.0; 4].as_ptr(), BORROW));
    done(|error| thalweg_step_writer_drop(at(writer), error));
    let (_, said) = fails(|error| thalweg_step_writer_pin(at(writer), error));
    assert!(said.contains("no step is begun"), "{said}");
    assert_eq!(begin(writer), 1);
    done(|error| thalweg_step_writer_pin(at(writer), error));
    end(writer, COMMITTED);
    close(writer);

    // What is stored: read by number, in any order.
    let stream = steps.stream();
    let runs = ok(|out, error| thalweg_step_stream_runs(at(stream), out, error));
    assert_eq!(thalweg_step_runs_count(at(runs)), 1);
    let run = ok(|out, error| thalweg_step_runs_at(at(runs), 0, out, error));
    assert_eq!((run.run, run.step_count, run.state, run.last), (1, 2, 1, 1));
    thalweg_step_runs_free(boxed(runs));
    let mut numbers = [9u64; 1];
    let count = ok(|out, error| {
        thalweg_step_stream_steps(at(stream), 0, numbers.as_mut_ptr(), 1, out, error)
    });
    assert_eq!((count, numbers), (2, [0]));
    let step = ok(|out, error| thalweg_step_stream_step(at(stream), 0, 0, out, error));
    let all: [f64; 8] = read(step, &mut whole());
    assert_eq!(all, [5.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
    thalweg_step_free(boxed(step));
    let gone = SERVER_CODES + i32::from(wire::ErrorCode::OffsetOutOfRange as u16);
    for (run, number) in [(0, 2), (9, 0)] {
        let mut step = MaybeUninit::uninit();
        let (code, said) = fails(|error| {
            thalweg_step_stream_step(at(stream), run, number, Some(&mut step), error)
        });
        assert_eq!(code, gone, "{said}");
    }
    thalweg_step_stream_free(boxed(stream));
    steps.0.end();
}

#[test]
fn a_step_that_is_not_released_is_given_again_and_a_broken_run_says_why() {
    let steps = Steps::new();
    let writer = steps.writer(c"{\"session_timeout_ms\": 2000}");
    begin(writer);
    put(writer, &row_of(0, [1.0; 4].as_ptr(), COPIED));
    end(writer, COMMITTED);
    let options = c"{\"name\": \"r\", \"stream_timeout_ms\": 10}";
    for release in [0, 1] {
        let reader = steps.reader(options);
        let (step, found) = next(reader, FOREVER);
        assert_eq!(found.state, 0);
        // The handle may be freed without that it is released.
        thalweg_step_free(boxed(step));
        done(|error| thalweg_step_reader_close(at(reader), release, WATCHDOG_MS, error));
        let (code, _) = fails(|error| thalweg_step_reader_release(at(reader), 0, error));
        assert_eq!(code, Code::Closed as i32);
        let nothing = std::ptr::null();
        let (code, _) = fails(|error| thalweg_step_reader_preload(at(reader), nothing, 0, error));
        assert_eq!(code, Code::Closed as i32);
        thalweg_step_reader_free(boxed(reader));
    }
    // A writer that goes without closing leaves its run to the session timeout.
    thalweg_step_writer_free(boxed(writer));
    let reader = steps.reader(options);
    let (none, ended) = next(reader, FOREVER);
    assert!(none.is_null());
    assert_eq!((ended.state, ended.run), (3, 1));
    assert!(
        said(&ended.reason).contains("rank 0"),
        "{}",
        said(&ended.reason)
    );

    // A thread that waits for ever is let go of by one that closes.
    std::thread::scope(|scope| {
        let shared = at(reader).unwrap();
        let waits = scope.spawn(move || {
            let (mut step, mut next) = (MaybeUninit::uninit(), MaybeUninit::uninit());
            let out = (Some(&mut step), Some(&mut next));
            thalweg_step_reader_next(Some(shared), FOREVER, out.0, out.1, None)
        });
        done(|error| thalweg_step_reader_close(Some(shared), 0, WATCHDOG_MS, error));
        assert_eq!(waits.join().unwrap(), Code::Closed as i32);
    });
    thalweg_step_reader_free(boxed(reader));
    steps.0.end();
}

#[test]
fn what_cannot_be_put_or_read_is_refused_and_leaves_the_step() {
    let steps = Steps::new();
    let name = c"other".as_ptr();
    let unknown = SERVER_CODES + i32::from(wire::ErrorCode::UnknownTopic as u16);
    let mut out = MaybeUninit::uninit();
    let (code, _) = fails(|error| {
        let options = c"{\"stream_timeout_ms\": 1}".as_ptr();
        let driver = at(steps.0.driver);
        thalweg_step_reader_open(driver, name, options, Some(&mut out), error)
    });
    assert_eq!(code, unknown);
    let mut out = MaybeUninit::uninit();
    let (code, said) = fails(|error| {
        let options = c"{\"rank\": 2, \"ranks\": 2}".as_ptr();
        thalweg_step_writer_open(at(steps.0.driver), name, options, Some(&mut out), error)
    });
    assert_eq!(code, 3, "{said}");

    let writer = steps.writer(c"{\"storage\": \"memory\"}");
    let data = [1.0; 4];
    let refused = |block: &ThalwegStepBlock| {
        let (code, said) = fails(|error| thalweg_step_writer_put(at(writer), Some(block), error));
        assert_eq!(code, 3, "{said}");
        said
    };
    let good = || row_of(0, data.as_ptr(), COPIED);
    assert!(refused(&good()).contains("no step is begun"));
    begin(writer);
    put(writer, &good());
    let far = [2u64, 0];
    let huge = [u64::MAX, u64::MAX];
    let bad = [
        ThalwegStepBlock {
            start: far.as_ptr(),
            ..good()
        },
        ThalwegStepBlock {
            start: std::ptr::null(),
            ..good()
        },
        ThalwegStepBlock {
            count: huge.as_ptr(),
            ..good()
        },
        ThalwegStepBlock {
            count: std::ptr::null(),
            ..good()
        },
        ThalwegStepBlock {
            data: std::ptr::null(),
            ..good()
        },
        ThalwegStepBlock {
            dtype: c"float".as_ptr(),
            ..good()
        },
        ThalwegStepBlock {
            dtype: c"str".as_ptr(),
            ..good()
        },
        ThalwegStepBlock {
            dtype: c"<f4".as_ptr(),
            ..good()
        },
        ThalwegStepBlock { kind: 0, ..good() },
        ThalwegStepBlock { kind: 2, ..good() },
        ThalwegStepBlock { kind: 77, ..good() },
        ThalwegStepBlock {
            flags: 64,
            ..good()
        },
        ThalwegStepBlock { ndim: 33, ..good() },
        ThalwegStepBlock {
            ndim: u32::MAX,
            ..good()
        },
        ThalwegStepBlock {
            name: std::ptr::null(),
            ..good()
        },
        ThalwegStepBlock {
            name: c"".as_ptr(),
            ..good()
        },
    ];
    for block in &bad {
        refused(block);
    }
    end(writer, COMMITTED);

    let reader = steps.reader(c"");
    let (step, _) = next(reader, WATCHDOG_MS);
    let mut into = [0.0f64; 8];
    let mut get = |name: &CString| ThalwegStepGet {
        name: name.as_ptr(),
        into: into.as_mut_ptr().cast(),
        size: 64,
        ..whole()
    };
    let (field, none) = (c"E".to_owned(), c"B".to_owned());
    let mut wrong = [
        get(&none),
        ThalwegStepGet {
            size: 63,
            ..get(&field)
        },
        ThalwegStepGet {
            block: 9,
            ..get(&field)
        },
        ThalwegStepGet {
            ndim: 1,
            ..get(&field)
        },
        ThalwegStepGet {
            ndim: 2,
            start: far.as_ptr(),
            count: far.as_ptr(),
            ..get(&field)
        },
        ThalwegStepGet {
            into: std::ptr::null_mut(),
            ..get(&field)
        },
    ];
    for get in &mut wrong {
        let (code, said) = fails(|error| thalweg_step_read(at(step), get, 1, FOREVER, error));
        assert_eq!(code, 3, "{said}");
    }
    // What nobody has put is said, and keeps what was there.
    let mut get = whole();
    let all: [f64; 8] = read(step, &mut get);
    assert_eq!((get.uncovered, all[3], all[4]), (4, 1.0, -1.0));
    thalweg_step_free(boxed(step));
    thalweg_step_reader_free(boxed(reader));
    close(writer);
    steps.0.end();
}
