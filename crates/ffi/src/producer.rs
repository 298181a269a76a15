//! `thalweg_producer`: events pushed from memory of the caller's.

use crate::boundary::*;
use crate::driver::Connection;
use crate::error::{Code, Failure};
use crate::future::Future;
use crate::loan::Loan;
use crate::message::{Outgoing, ThalwegMessage};
use crate::options;
use crate::topic::Topic;
use client::{Linger, ProducerOptions};
use std::collections::VecDeque;
use std::ffi::c_char;
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

impl Producer {
    fn push(&self, message: &ThalwegMessage) -> Result<Future, Failure> {
        let (future, loan) = Outgoing::of(message)?.send(|event| self.client.push(event))?;
        if let Some(loan) = &loan {
            self.remember(loan);
        }
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
