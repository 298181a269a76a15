//! `thalweg_step_writer`: a rank that writes.

use crate::boundary::*;
use crate::driver::{Connection, Driver};
use crate::error::{Failure, MESSAGE_BYTES, cut};
use crate::loan::Loan;
use crate::options;
use crate::step_attributes::StepAttributes;
use crate::step_options;
use crate::step_stream::open_or_create;
use crate::strided::{Strided, bytes_of};
use bytes::Bytes;
use memory::Deadline;
use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use step::{
    AttributeValue, Closed, DType, Place, Put, ShapeKind, SpanId, StepEnded, StepError, Wait,
    Writer,
};

/// `thalweg_step_block.flags`.
const BORROW: u32 = 1;
const NO_EXTREMES: u32 = 2;

/// `thalweg_step_writer`.
pub struct StepWriter {
    /// One call after the other.
    held: Mutex<Held>,
    run: u64,
    /// The process that it belongs to.
    generation: u64,
    connection: Arc<Connection>,
}

struct Held {
    /// `None` when the handle is being freed.
    writer: Option<Writer>,
    /// Spans of the step that is being written.
    spans: Vec<SpanId>,
    /// Memory of the caller's that is lent for steps which are not accepted yet.
    loans: Vec<Arc<Loan>>,
    /// A step was sent whose end came to its timeout: the same call goes on with it.
    is_waited_for: bool,
    /// What a negative timeout means.
    timeout: Duration,
}

/// `thalweg_step_block`.
#[repr(C)]
pub struct ThalwegStepBlock {
    pub name: *const c_char,
    pub dtype: *const c_char,
    pub kind: i32,
    pub flags: u32,
    pub ndim: u32,
    pub joined: u32,
    pub shape: *const u64,
    pub start: *const u64,
    pub count: *const u64,
    pub data: *const c_void,
    pub strides: *const i64,
    pub reserved: [u64; 4],
}

/// `thalweg_step_ended`.
#[repr(C)]
pub struct ThalwegStepEnded {
    pub step: u64,
    pub reached: i32,
    pub discarded: i32,
    pub reason: [c_char; MESSAGE_BYTES],
}

/// `thalweg_step_closed`.
#[repr(C)]
pub struct ThalwegStepClosed {
    pub state: i32,
    pub reserved: i32,
    pub behind: [c_char; MESSAGE_BYTES],
}

impl ThalwegStepClosed {
    fn of(closed: &Closed) -> Self {
        let (state, behind) = match closed {
            Closed::Kept => (0, ""),
            Closed::Released => (1, ""),
            Closed::Behind(who) => (2, who.as_str()),
        };
        Self {
            state,
            reserved: 0,
            behind: cut(behind),
        }
    }
}

/// A block as the caller gives it.
struct GivenBlock<'a> {
    name: &'a str,
    dtype: DType,
    kind: ShapeKind,
    joined: u32,
    shape: &'a [u64],
    start: Vec<u64>,
    count: &'a [u64],
    with_extremes: bool,
    bytes: usize,
}

impl<'a> GivenBlock<'a> {
    fn of(block: &'a ThalwegStepBlock) -> Result<Self, Failure> {
        let name = text("the name of a variable", block.name)?;
        let refuse = |reason: &str| Failure::invalid(format!("variable {name:?}: {reason}"));
        let dtype = dtype_of(name, block.dtype)?;
        let kind = match block.kind {
            1 => ShapeKind::Array,
            2 => ShapeKind::Joined,
            4 => ShapeKind::LocalArray,
            0 | 3 => return Err(refuse("a value is for thalweg_step_writer_put_value")),
            other => return Err(refuse(&format!("kind {other}: there is none"))),
        };
        if block.flags & !(BORROW | NO_EXTREMES) != 0 {
            return Err(refuse(&format!("flags {:#x} are not known", block.flags)));
        }
        let dimensions = block.ndim as usize;
        if dimensions > wire::step::DIMENSIONS_MAX {
            return Err(refuse(&format!("{dimensions} dimensions are too many")));
        }
        // SAFETY: the header asks for a number each dimension.
        let count = unsafe { array("count", block.count, dimensions) }?;
        let (shape, start) = match (block.shape.is_null(), block.start.is_null()) {
            (true, true) => (count, vec![0; dimensions]),
            (false, false) if kind != ShapeKind::Array => {
                return Err(refuse("blocks of this kind have no shape and no start"));
            }
            (false, false) => {
                // SAFETY: as above.
                let (shape, start) = unsafe {
                    (
                        array("shape", block.shape, dimensions)?,
                        array("start", block.start, dimensions)?,
                    )
                };
                (shape, start.to_vec())
            }
            (false, true) | (true, false) => {
                return Err(refuse(
                    "of shape and start one is NULL, and the other is not",
                ));
            }
        };
        let bytes = bytes_of(count, dtype.item_bytes() as usize)
            .ok_or_else(|| refuse(&format!("{count:?} elements are more than memory has")))?;
        Ok(Self {
            name,
            dtype,
            kind,
            joined: block.joined,
            shape,
            start,
            count,
            with_extremes: block.flags & NO_EXTREMES == 0,
            bytes,
        })
    }

    fn put(&self) -> Put<'_> {
        Put {
            name: self.name,
            dtype: &self.dtype,
            place: match self.kind {
                ShapeKind::Joined => Place::Joined(self.joined),
                ShapeKind::LocalArray => Place::Local,
                _ => Place::Array {
                    shape: self.shape,
                    start: &self.start,
                },
            },
            count: self.count,
            with_extremes: self.with_extremes,
        }
    }
}

fn dtype_of(name: &str, dtype: *const c_char) -> Result<DType, Failure> {
    let dtype = text("the type of a variable or attribute", dtype)?;
    DType::parse(dtype).map_err(|error| Failure::invalid(format!("{name:?}: {error}")))
}

fn wait_of(wait: i32) -> Result<Wait, Failure> {
    match wait {
        0 => Ok(Wait::Begun),
        1 => Ok(Wait::Accepted),
        2 => Ok(Wait::Committed),
        other => Err(Failure::invalid(format!(
            "wait {other}: it is THALWEG_STEP_BEGUN, _ACCEPTED or _COMMITTED"
        ))),
    }
}

impl StepWriter {
    fn with<R>(
        &self,
        call: impl FnOnce(&mut Writer, &mut Vec<SpanId>, &mut Vec<Arc<Loan>>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.held(|held| {
            let writer = held.writer.as_mut();
            let writer = writer.ok_or_else(|| Failure::invalid("the writer is freed"))?;
            call(writer, &mut held.spans, &mut held.loans)
        })
    }

    fn held<R>(&self, call: impl FnOnce(&mut Held) -> Result<R, Failure>) -> Result<R, Failure> {
        self.check_process()?;
        call(&mut *turn(&self.held)?)
    }

    fn check_process(&self) -> Result<(), Failure> {
        match self.generation == ::memory::fork::generation() {
            true => Ok(()),
            false => Err(client::ClientError::Forked.into()),
        }
    }
}

impl Held {
    fn within(&self, timeout_ms: i64) -> Duration {
        limit(timeout_ms).unwrap_or(self.timeout)
    }

    /// Ends the step, or goes on with one whose end came to its timeout.
    fn end(
        &mut self,
        wait: Wait,
        timeout: Duration,
        connection: &Connection,
    ) -> Result<StepEnded, Failure> {
        let deadline = Deadline::after(timeout);
        let writer = self.writer.as_mut().expect("taken by free alone");
        let before = writer.step();
        let outcome = match self.is_waited_for {
            true => writer.wait(wait, timeout),
            false => writer.end_step_within(wait, Some(timeout)),
        };
        if writer.step() != before {
            self.spans.clear();
        }
        let was_sent = writer.step() != before || self.is_waited_for;
        let timed_out = outcome.as_ref().is_err_and(StepError::is_timeout);
        self.is_waited_for = timed_out && was_sent;
        let ended = outcome?;
        self.take_back(wait, deadline, connection)?;
        Ok(ended)
    }

    /// Waits for the step that was ended last.
    fn wait(
        &mut self,
        wait: Wait,
        timeout: Duration,
        connection: &Connection,
    ) -> Result<StepEnded, Failure> {
        let deadline = Deadline::after(timeout);
        let writer = self.writer.as_mut().expect("taken by free alone");
        if writer.is_ending() {
            return self.end(wait, timeout, connection);
        }
        let ended = writer.wait(wait, timeout)?;
        self.is_waited_for = false;
        self.take_back(wait, deadline, connection)?;
        Ok(ended)
    }

    /// Memory that was lent is the caller's when it was waited for.
    fn take_back(
        &mut self,
        wait: Wait,
        deadline: Deadline,
        connection: &Connection,
    ) -> Result<(), Failure> {
        if wait == Wait::Begun {
            return Ok(());
        }
        // The part is acknowledged; what a link still has of it, it lets go of now.
        let until = Instant::now().checked_add(deadline.left().max(Duration::from_secs(1)));
        for loan in &self.loans {
            if !loan.wait(connection, until) {
                self.is_waited_for = true;
                let what = "memory that was lent for a step to be let go of".to_owned();
                return Err(client::ClientError::Timeout { what }.into());
            }
        }
        self.loans.clear();
        Ok(())
    }
}

fn say(out: Out<'_, ThalwegStepEnded>, wait: Wait, ended: &StepEnded) -> Result<(), Failure> {
    if let Some(out) = out {
        out.write(ThalwegStepEnded {
            step: ended.step.0,
            reached: match wait {
                Wait::Begun => 0,
                Wait::Accepted => 1,
                Wait::Committed => 2,
            },
            discarded: i32::from(ended.discarded.is_some()),
            reason: cut(ended.discarded.as_deref().unwrap_or_default()),
        });
    }
    Ok(())
}

/// Opens a rank that writes.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_writer_open(
    driver: Option<&Driver>,
    stream: *const c_char,
    options: *const c_char,
    writer: Out<'_, *mut StepWriter>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let connection = &given("driver", driver)?.connection;
        let name = text("stream", stream)?;
        let out = given("writer", writer)?;
        let said: step_options::Writer = options::read("options of a writer of steps", options)?;
        let (options, made) = said.into_writer()?;
        let timeout = options.timeout;
        let stream = open_or_create(&connection.client, name, &made)?;
        let writer = stream.writer(options)?;
        out.write(give(StepWriter {
            run: writer.run().0,
            held: Mutex::new(Held {
                writer: Some(writer),
                spans: Vec::new(),
                loans: Vec::new(),
                is_waited_for: false,
                timeout,
            }),
            generation: ::memory::fork::generation(),
            connection: connection.clone(),
        }));
        Ok(())
    })
}

/// The run that it writes.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_writer_run(writer: Option<&StepWriter>) -> u64 {
    writer.map_or(0, |writer| writer.run)
}

/// The step that is being written, or the next one.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_writer_next(writer: Option<&StepWriter>) -> u64 {
    let next = writer.map(|writer| writer.with(|writer, _, _| Ok(writer.step().0)));
    next.and_then(Result::ok).unwrap_or_default()
}

/// Begins a step.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_writer_begin(
    writer: Option<&StepWriter>,
    number: Out<'_, u64>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        given("writer", writer)?.held(|held| {
            let writer = held.writer.as_mut().expect("taken by free alone");
            let step = writer.begin_step()?;
            held.spans.clear();
            // A step that was sent before goes its way.
            held.is_waited_for = false;
            if let Some(number) = number {
                number.write(step.0);
            }
            Ok(())
        })
    })
}

/// Puts a block.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_writer_put(
    writer: Option<&StepWriter>,
    block: Option<&ThalwegStepBlock>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let writer = given("writer", writer)?;
        let block = given("block", block)?;
        let known = GivenBlock::of(block)?;
        let refuse =
            |reason: &str| Failure::invalid(format!("variable {:?}: {reason}", known.name));
        let borrows = block.flags & BORROW != 0;
        if borrows && !block.strides.is_null() {
            return Err(refuse("memory that is lent has no strides"));
        }
        if !block.strides.is_null() {
            // SAFETY: the header asks for a stride each dimension and for the elements that they
            // say; they are read only.
            let array = unsafe {
                let (item, data) = (known.dtype.item_bytes() as usize, block.data.cast_mut());
                Strided::given(known.name, data, known.count, block.strides, item)
            }?;
            return writer.with(|writer, spans, _| {
                let span = writer.span(&known.put())?;
                // It counts as a span that nobody has asked for.
                spans.push(span);
                array.gather(writer.span_mut(span)?);
                Ok(())
            });
        }
        let piece = ThalwegBytes {
            base: block.data,
            size: known.bytes,
        };
        if borrows && known.bytes > 0 {
            let loan = Loan::new(None);
            // SAFETY: the header asks for memory that is not written to from the step's end until
            // the loan has ended, and is not looked at before.
            let mut lent = unsafe { loan.readable(&[piece]) }?;
            return writer.with(|writer, _, loans| {
                let data = lent.pop().unwrap_or_default();
                writer.put_filled_later(&known.put(), data)?;
                loans.push(loan);
                Ok(())
            });
        }
        // SAFETY: the header asks for the elements that the counts say.
        let data = unsafe { piece.as_slice("data") }?;
        writer.with(|writer, _, _| Ok(writer.put(&known.put(), data)?))
    })
}

/// Puts a block that is made in place.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_writer_span(
    writer: Option<&StepWriter>,
    block: Option<&ThalwegStepBlock>,
    span: Out<'_, usize>,
    base: Out<'_, *mut c_void>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let writer = given("writer", writer)?;
        let block = given("block", block)?;
        let base = given("base", base)?;
        let known = GivenBlock::of(block)?;
        if block.flags & BORROW != 0 || !block.strides.is_null() {
            return Err(Failure::invalid(format!(
                "variable {:?}: memory of a span is the library's, without strides",
                known.name
            )));
        }
        writer.with(|writer, spans, _| {
            let made = writer.span(&known.put())?;
            base.write(writer.span_mut(made)?.as_mut_ptr().cast());
            if let Some(span) = span {
                span.write(spans.len());
            }
            spans.push(made);
            Ok(())
        })
    })
}

/// The memory of a span.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_writer_span_memory(
    writer: Option<&StepWriter>,
    span: usize,
    base: Out<'_, *mut c_void>,
    size: Out<'_, usize>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let base = given("base", base)?;
        given("writer", writer)?.with(|writer, spans, _| {
            let made = spans.get(span);
            let made = *made.ok_or_else(|| none(span, "spans of this step", spans.len()))?;
            let memory = writer.span_mut(made)?;
            base.write(memory.as_mut_ptr().cast());
            if let Some(size) = size {
                size.write(memory.len());
            }
            Ok(())
        })
    })
}

/// Puts a value.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_writer_put_value(
    writer: Option<&StepWriter>,
    name: *const c_char,
    dtype: *const c_char,
    is_local: i32,
    value: *const c_void,
    size: usize,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let writer = given("writer", writer)?;
        let name = text("name", name)?;
        let dtype = dtype_of(name, dtype)?;
        let value = ThalwegBytes { base: value, size };
        // SAFETY: the header asks for `size` bytes.
        let value = unsafe { value.as_slice("value") }?;
        let kind = match is_local {
            0 => ShapeKind::Value,
            _ => ShapeKind::LocalValue,
        };
        writer.with(|writer, _, _| Ok(writer.put_value(name, kind, &dtype, value)?))
    })
}

/// Sets an attribute of elements as they lie in memory.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_writer_set_attribute(
    writer: Option<&StepWriter>,
    name: *const c_char,
    dtype: *const c_char,
    is_list: i32,
    value: *const c_void,
    size: usize,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let writer = given("writer", writer)?;
        let name = text("name", name)?;
        let dtype = dtype_of(name, dtype)?;
        let value = ThalwegBytes { base: value, size };
        // SAFETY: the header asks for `size` bytes.
        let value = Bytes::copy_from_slice(unsafe { value.as_slice("value") }?);
        let value = AttributeValue::raw(dtype, is_list != 0, value)?;
        writer.with(|writer, _, _| Ok(writer.set_attribute(name, value)?))
    })
}

/// Sets an attribute of texts.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_writer_set_texts(
    writer: Option<&StepWriter>,
    name: *const c_char,
    is_list: i32,
    texts: *const *const c_char,
    count: usize,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let writer = given("writer", writer)?;
        let name = text("name", name)?;
        // SAFETY: the header asks for `count` texts.
        let texts = unsafe { array("texts", texts, count) }?;
        let texts = texts.iter().map(|one| text("a text", *one));
        let texts = texts.collect::<Result<Vec<_>, _>>()?;
        let value = match (is_list, texts.as_slice()) {
            (0, [one]) => AttributeValue::from(*one),
            (0, other) => {
                let count = other.len();
                return Err(Failure::invalid(format!(
                    "attribute {name:?}: a single value is one text, not {count}"
                )));
            }
            (_, texts) => AttributeValue::texts(texts),
        };
        writer.with(|writer, _, _| Ok(writer.set_attribute(name, value)?))
    })
}

/// The attributes as they are now.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_writer_attributes(
    writer: Option<&StepWriter>,
    attributes: Out<'_, *mut StepAttributes>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let out = given("attributes", attributes)?;
        let writer = given("writer", writer)?;
        let all = writer.with(|writer, _, _| Ok(StepAttributes::new(writer.attributes())))?;
        out.write(give(all));
        Ok(())
    })
}

/// Pins a step.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_writer_pin(writer: Option<&StepWriter>, error: ErrorOut<'_>) -> i32 {
    guard(error, || {
        given("writer", writer)?.held(|held| {
            let writer = held.writer.as_mut().expect("taken by free alone");
            writer.pin_step()?;
            Ok(())
        })
    })
}

/// Gives up a step.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_writer_drop(
    writer: Option<&StepWriter>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        given("writer", writer)?.with(|writer, spans, loans| {
            writer.drop_step()?;
            spans.clear();
            // Those of steps before stay.
            loans.retain(|loan| !loan.has_ended());
            Ok(())
        })
    })
}

/// Ends a step.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_writer_end(
    writer: Option<&StepWriter>,
    wait: i32,
    timeout_ms: i64,
    ended: Out<'_, ThalwegStepEnded>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let writer = given("writer", writer)?;
        let wait = wait_of(wait)?;
        let what = writer.held(|held| {
            let timeout = held.within(timeout_ms);
            held.end(wait, timeout, &writer.connection)
        })?;
        say(ended, wait, &what)
    })
}

/// Waits for the step that was ended last.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_writer_wait(
    writer: Option<&StepWriter>,
    wait: i32,
    timeout_ms: i64,
    ended: Out<'_, ThalwegStepEnded>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let writer = given("writer", writer)?;
        let wait = wait_of(wait)?;
        let what = writer.held(|held| {
            let timeout = held.within(timeout_ms);
            held.wait(wait, timeout, &writer.connection)
        })?;
        say(ended, wait, &what)
    })
}

/// Says that the last step is written.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_writer_close(
    writer: Option<&StepWriter>,
    timeout_ms: i64,
    closed: Out<'_, ThalwegStepClosed>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let what = given("writer", writer)?.held(|held| {
            let timeout = held.within(timeout_ms);
            let writer = held.writer.as_mut().expect("taken by free alone");
            Ok(writer.close(timeout)?)
        })?;
        if let Some(out) = closed {
            out.write(ThalwegStepClosed::of(&what));
        }
        Ok(())
    })
}

/// Frees the handle, when nobody reads memory that was lent.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_writer_free(writer: Option<Box<StepWriter>>) {
    quietly(|| {
        let Some(writer) = writer else {
            return;
        };
        if writer.check_process().is_err() {
            // What it has of the connection is its parent's.
            std::mem::forget(writer);
            return;
        }
        let StepWriter {
            held, connection, ..
        } = *writer;
        let held = held.into_inner();
        let mut held = held.unwrap_or_else(std::sync::PoisonError::into_inner);
        drop(held.writer.take());
        for loan in &held.loans {
            loan.wait_to_end(&connection);
        }
    });
}
