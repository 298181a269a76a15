//! `thalweg_reader`: what a topic has, and then the end.

use crate::boundary::*;
use crate::callbacks::{Callbacks, ThalwegDataCallbacks};
use crate::driver::Connection;
use crate::event::Event;
use crate::gaps;
use crate::options;
use crate::topic::Topic;
use client::{Read, ReadEnd};
use std::ffi::c_char;
use std::sync::Arc;

/// `thalweg_reader`.
pub struct Reader {
    client: client::Reader,
    /// The server in this process outlives it.
    _connection: Arc<Connection>,
}

/// Begins a bounded read.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_reader_open(
    topic: Option<&Topic>,
    options: *const c_char,
    callbacks: Option<&ThalwegDataCallbacks>,
    reader: Out<'_, *mut Reader>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let topic = given("topic", topic)?;
        let read: options::Read = options::read("options of a read", options)?;
        let mut options = read.to_client()?;
        let reader = given("reader", reader)?;
        // From here on `destroy` is called, also if opening fails.
        if let Some(callbacks) = callbacks.map(Callbacks::new) {
            (options.data, options.allocator) = callbacks.choose(options.data)?;
        }
        if let Some(offset) = read.end_offset() {
            let partitions = match &options.partitions {
                Some(partitions) => partitions.clone(),
                None => (0..topic.handle.refresh()?.partitions.len() as u32).collect(),
            };
            let ends = partitions.into_iter().map(|one| options::end(one, offset));
            options.end = ReadEnd::Before(ends.collect());
        }
        reader.write(give(Reader {
            client: topic.handle.read(options)?,
            _connection: topic.connection.clone(),
        }));
        Ok(())
    })
}

/// The next event, or the end.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_reader_next(
    reader: Option<&Reader>,
    timeout_ms: i64,
    event: Out<'_, *mut Event>,
    ended: Out<'_, i32>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let client = &given("reader", reader)?.client;
        let event = given("event", event)?;
        let ended = given("ended", ended)?;
        event.write(std::ptr::null_mut());
        ended.write(0);
        match client.next_batch(1, limit(timeout_ms))? {
            Read::Events(events) => {
                if let Some(read) = events.into_iter().next() {
                    event.write(give(Event::new(read)));
                }
            }
            Read::Waiting => {}
            Read::End => drop(ended.write(1)),
        }
        Ok(())
    })
}

/// The gaps that were met since the last call, as JSON.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_reader_gaps(
    reader: Option<&Reader>,
    json: Out<'_, *mut c_char>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let gaps = given("reader", reader)?.client.take_gaps();
        give_text(json, gaps::describe(&gaps))
    })
}

/// Ends the read and frees the handle.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_reader_free(reader: Option<Box<Reader>>) {
    quietly(|| drop(reader));
}
