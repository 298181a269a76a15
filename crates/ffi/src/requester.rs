//! `thalweg_requester`: requests and broadcasts.

use crate::boundary::*;
use crate::driver::Connection;
use crate::error::Failure;
use crate::future::Future;
use crate::message::{Outgoing, ThalwegMessage};
use crate::options;
use crate::topic::Topic;
use client::Gather;
use std::ffi::c_char;
use std::sync::Arc;
use std::time::Duration;

/// How long a reply may take when nobody says.
const REPLY_TIMEOUT: Duration = Duration::from_secs(120);

/// How long ending may take when nobody says.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(120);

/// `thalweg_requester`.
pub struct Requester {
    client: client::Requester,
    connection: Arc<Connection>,
}

/// Opens a requester.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_requester_open(
    topic: Option<&Topic>,
    options: *const c_char,
    requester: Out<'_, *mut Requester>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let topic = given("topic", topic)?;
        let options: options::Requester = options::read("options of a requester", options)?;
        let options = options.to_client()?;
        let requester = given("requester", requester)?;
        requester.write(give(Requester {
            client: topic.handle.requester(options)?,
            connection: topic.connection.clone(),
        }));
        Ok(())
    })
}

/// Sends a request.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_requester_request(
    requester: Option<&Requester>,
    message: Option<&ThalwegMessage>,
    timeout_ms: i64,
    future: Out<'_, *mut Future>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let requester = given("requester", requester)?;
        let request = Outgoing::of(given("message", message)?)?;
        let future = given("future", future)?;
        let timeout = limit(timeout_ms).unwrap_or(REPLY_TIMEOUT);
        let (pending, loan) = request.send(|event| requester.client.request(event, timeout))?;
        let connection = requester.connection.clone();
        future.write(give(Future::request(pending, loan, connection)));
        Ok(())
    })
}

/// Asks all consumers of the topic.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_requester_broadcast(
    requester: Option<&Requester>,
    message: Option<&ThalwegMessage>,
    at_least: usize,
    timeout_ms: i64,
    future: Out<'_, *mut Future>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let requester = given("requester", requester)?;
        let request = Outgoing::of(given("message", message)?)?;
        let future = given("future", future)?;
        let timeout = limit(timeout_ms).unwrap_or(REPLY_TIMEOUT);
        let gather = match at_least {
            0 => Gather::All,
            count => Gather::AtLeast(count),
        };
        let (pending, loan) =
            request.send(|event| requester.client.broadcast(event, gather, timeout))?;
        let connection = requester.connection.clone();
        future.write(give(Future::broadcast(pending, loan, connection)));
        Ok(())
    })
}

/// Somebody who did not reply to a broadcast.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_future_missing(
    future: Option<&Future>,
    index: usize,
    name: Out<'_, *mut c_char>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let missing = given("future", future)?.missing(index)?;
        let name = given("where the name goes", name)?;
        match missing {
            Some(missing) => give_text(Some(name), missing),
            None => {
                name.write(std::ptr::null_mut());
                Ok::<(), Failure>(())
            }
        }
    })
}

/// Ends all requests, and waits until what was sent is stored.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_requester_close(
    requester: Option<&Requester>,
    timeout_ms: i64,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let requester = given("requester", requester)?;
        let timeout = limit(timeout_ms).unwrap_or(CLOSE_TIMEOUT);
        Ok(requester.client.close(timeout)?)
    })
}

/// Ends the requester.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_requester_free(requester: Option<Box<Requester>>) {
    quietly(|| drop(requester));
}
