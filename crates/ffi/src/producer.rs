//! `thalweg_producer`: events pushed from memory of the caller's.

use crate::boundary::*;
use crate::driver::Connection;
use crate::error::{Code, Failure};
use crate::event::ThalwegHeader;
use crate::future::Future;
use crate::loan::{Loan, Release};
use crate::options;
use crate::topic::Topic;
use client::{Linger, ProducerOptions};
use std::collections::VecDeque;
use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// `thalweg_producer`.
pub struct Producer {
    client: Arc<client::Producer>,
    options: ProducerOptions,
    connection: Arc<Connection>,
    /// Memory that is lent, in the order of the pushes; what has ended is
    /// forgotten with a later push. A flush waits for it.
    loans: Mutex<VecDeque<Weak<Loan>>>,
}

/// `thalweg_message`.
#[repr(C)]
pub struct ThalwegMessage {
    pub metadata: ThalwegBytes,
    pub key: ThalwegBytes,
    pub data: *const ThalwegBytes,
    pub data_count: usize,
    pub headers: *const ThalwegHeader,
    pub header_count: usize,
    pub producer_time_ns: u64,
    pub partition: u32,
    pub has_partition: i32,
    pub tombstone: i32,
    pub reserved: i32,
    pub release: Option<extern "C" fn(*mut c_void)>,
    pub release_context: *mut c_void,
}

impl Producer {
    fn push(&self, message: &ThalwegMessage) -> Result<Future, Failure> {
        if message.reserved != 0 {
            return Err(Failure::invalid("reserved is not 0"));
        }
        // SAFETY: the header asks for memory that is there during the call.
        let metadata = unsafe { message.metadata.as_slice("metadata") }?;
        // SAFETY: the header asks for that many pieces.
        let pieces = unsafe { array("data", message.data, message.data_count) }?;
        // SAFETY: the header asks for that many headers.
        let headers = unsafe { array("headers", message.headers, message.header_count) }?;
        let headers = headers.iter().map(header).collect::<Result<Vec<_>, _>>()?;
        let key = match message.key.base.is_null() {
            true => None,
            // SAFETY: as for the metadata.
            false => Some(unsafe { message.key.as_slice("key") }?),
        };
        let release = message.release.map(|call| Release {
            call,
            context: UserPointer(message.release_context),
        });
        let loan = (!pieces.is_empty() || release.is_some()).then(|| Loan::new(release));
        let data = match &loan {
            // SAFETY: the header asks for memory that stays as it is until the
            // future has resolved or `release` was called, which the loan's end does.
            Some(loan) => unsafe { loan.readable(pieces) }?,
            None => Vec::new(),
        };
        let future = self.client.push(client::Event {
            metadata,
            data,
            key,
            headers: &headers,
            producer_time: (message.producer_time_ns != 0).then_some(message.producer_time_ns),
            partition: (message.has_partition != 0).then_some(message.partition),
            tombstone: message.tombstone != 0,
        })?;
        if let Some(loan) = &loan {
            loan.arm();
            self.remember(loan);
        }
        let loan = loan.filter(|loan| !loan.has_ended());
        let lingers = self.options.batch.linger != Linger::Adaptive;
        let connection = self.connection.clone();
        Ok(Future::push(
            future,
            loan,
            &self.client,
            lingers,
            connection,
        ))
    }

    fn remember(&self, loan: &Arc<Loan>) {
        if loan.has_ended() {
            return;
        }
        let mut loans = self.loans.lock().expect("no holder panics here");
        let has_ended = |loan: &Weak<Loan>| loan.upgrade().is_none_or(|loan| loan.has_ended());
        while loans.front().is_some_and(has_ended) {
            loans.pop_front();
        }
        loans.push_back(Arc::downgrade(loan));
    }

    /// A flush of what was pushed by now, and what is lent for it.
    fn flush(&self) -> (client::FlushFuture, Vec<Arc<Loan>>) {
        // In this order: a push that is between the two is not promised.
        let loans = self.loans.lock().expect("no holder panics here");
        let lent = loans.iter().filter_map(Weak::upgrade);
        let lent: Vec<_> = lent.filter(|loan| !loan.has_ended()).collect();
        drop(loans);
        (self.client.flush_future(), lent)
    }

    fn wait_for_flush(&self, timeout: Duration) -> Result<(), Failure> {
        let until = Instant::now() + timeout;
        let (flush, lent) = self.flush();
        let flushed = flush.wait(timeout);
        for loan in lent {
            if flushed.is_ok() && !loan.wait(&self.connection, Some(until)) {
                return Err(Failure::new(
                    Code::Timeout,
                    "timed out waiting for the transport to let go of lent memory",
                ));
            }
        }
        Ok(flushed?)
    }
}

fn header(header: &ThalwegHeader) -> Result<(&str, &[u8]), Failure> {
    // SAFETY: the header file asks for memory that is there during the call.
    let (name, value) = unsafe {
        (
            header.name.as_slice("name")?,
            header.value.as_slice("value")?,
        )
    };
    let name = std::str::from_utf8(name)
        .map_err(|_| Failure::invalid("the name of a header is not UTF-8"))?;
    Ok((name, value))
}

/// Opens a producer.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_producer_open(
    topic: Option<&Topic>,
    options: *const c_char,
    producer: Out<'_, *mut Producer>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let topic = given("topic", topic)?;
        let options: options::Producer = options::read("options of a producer", options)?;
        let options = options.to_client()?;
        let producer = given("producer", producer)?;
        producer.write(give(Producer {
            client: Arc::new(topic.handle.producer(options.clone())?),
            options,
            connection: topic.connection.clone(),
            loans: Mutex::default(),
        }));
        Ok(())
    })
}

/// Pushes an event.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_producer_push(
    producer: Option<&Producer>,
    message: Option<&ThalwegMessage>,
    future: Out<'_, *mut Future>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let pushed = given("producer", producer)?.push(given("message", message)?)?;
        if let Some(future) = future {
            future.write(give(pushed));
        }
        Ok(())
    })
}

/// Waits until everything that was pushed is acknowledged.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_producer_flush(
    producer: Option<&Producer>,
    timeout_ms: i64,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let producer = given("producer", producer)?;
        producer.wait_for_flush(limit(timeout_ms).unwrap_or(producer.options.ack_timeout))
    })
}

/// Begins a flush.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_producer_flush_begin(
    producer: Option<&Producer>,
    future: Out<'_, *mut Future>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let producer = given("producer", producer)?;
        let future = given("future", future)?;
        let (flush, lent) = producer.flush();
        future.write(give(Future::flush(
            flush,
            lent,
            producer.connection.clone(),
        )));
        Ok(())
    })
}

/// Drains the producer and frees it.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_producer_free(producer: Option<Box<Producer>>) {
    quietly(|| drop(producer));
}
