//! `thalweg_event`: an event that was pulled or fetched.

use crate::boundary::*;
use crate::callbacks::ReceiveBuffer;
use crate::driver::Connection;
use crate::error::Failure;
use bytes::Bytes;
use client::{ConsumedEvent, EventInfo, QueueEvent};
use std::ffi::c_void;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// `thalweg_event_info`.
#[repr(C)]
pub struct ThalwegEventInfo {
    pub id: ThalwegEventId,
    pub metadata: ThalwegBytes,
    pub key: ThalwegBytes,
    pub data: ThalwegBytes,
    pub data_owner: *mut c_void,
    pub data_bytes_total: u64,
    pub append_time_ns: u64,
    pub producer_time_ns: u64,
    pub tombstone: i32,
    pub reserved: [u32; 7],
}

/// `thalweg_header`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ThalwegHeader {
    pub name: ThalwegBytes,
    pub value: ThalwegBytes,
}

/// `thalweg_event`.
pub struct Event {
    inner: Source,
    /// The data, where it is in memory of the client's.
    data: Bytes,
    /// The allocator's memory, filled.
    received: Option<ReceiveBuffer>,
    headers: OnceLock<Vec<(String, Bytes)>>,
}

/// Where an event is from.
enum Source {
    Consumer(ConsumedEvent),
    /// With its lease, which ends with it.
    Queue(QueueEvent, Arc<Connection>),
}

impl Deref for Source {
    type Target = ConsumedEvent;
    fn deref(&self) -> &ConsumedEvent {
        match self {
            Self::Consumer(event) => event,
            Self::Queue(event, _) => event,
        }
    }
}

/// An empty key is at this address: one that is NULL means none.
static EMPTY: u8 = 0;

fn key(key: Option<&[u8]>) -> ThalwegBytes {
    match key {
        None => ThalwegBytes::NONE,
        Some([]) => ThalwegBytes {
            base: std::ptr::from_ref(&EMPTY).cast(),
            size: 0,
        },
        Some(key) => ThalwegBytes::of(key),
    }
}

impl ThalwegEventInfo {
    /// What a selector and an allocator see.
    pub fn of(info: &EventInfo<'_>) -> Self {
        Self {
            id: info.id().into(),
            metadata: ThalwegBytes::of(info.metadata()),
            key: key(info.key()),
            data: ThalwegBytes::NONE,
            data_owner: std::ptr::null_mut(),
            data_bytes_total: info.data_bytes_total(),
            append_time_ns: info.append_time(),
            producer_time_ns: info.producer_time().unwrap_or(0),
            tombstone: 0,
            reserved: [0; 7],
        }
    }
}

impl Event {
    pub fn new(event: ConsumedEvent) -> Self {
        Self::of(Source::Consumer(event))
    }

    /// The event of a queue.
    pub fn leased(event: QueueEvent, connection: Arc<Connection>) -> Self {
        Self::of(Source::Queue(event, connection))
    }

    fn of(mut inner: Source) -> Self {
        let event = match &mut inner {
            Source::Consumer(event) => event,
            Source::Queue(event, _) => &mut **event,
        };
        let received = event.take_target().map(client::Target::into_owner);
        Self {
            data: event.take_data(),
            received,
            inner,
            headers: OnceLock::new(),
        }
    }

    pub fn consumed(&self) -> &ConsumedEvent {
        &self.inner
    }

    /// The lease that it is under, if it is of a queue.
    pub fn lease(&self) -> Option<(&QueueEvent, &Arc<Connection>)> {
        match &self.inner {
            Source::Consumer(_) => None,
            Source::Queue(event, connection) => Some((event, connection)),
        }
    }
}

/// What there is to know of an event.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_event_info_of(
    event: Option<&Event>,
    info: Out<'_, ThalwegEventInfo>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let event = given("event", event)?;
        let (data, data_owner) = match &event.received {
            Some(received) => (received.bytes(), received.owner()),
            None if event.data.is_empty() => (ThalwegBytes::NONE, std::ptr::null_mut()),
            None => (ThalwegBytes::of(&event.data), std::ptr::null_mut()),
        };
        given("info", info)?.write(ThalwegEventInfo {
            id: event.inner.id().into(),
            metadata: ThalwegBytes::of(event.inner.metadata()),
            key: key(event.inner.key()),
            data,
            data_owner,
            data_bytes_total: event.inner.data_bytes_total(),
            append_time_ns: event.inner.append_time(),
            producer_time_ns: event.inner.producer_time().unwrap_or(0),
            tombstone: i32::from(event.inner.tombstone()),
            reserved: [0; 7],
        });
        Ok(())
    })
}

/// One of an event's headers.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_event_header(
    event: Option<&Event>,
    index: usize,
    header: Out<'_, ThalwegHeader>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let event = given("event", event)?;
        let headers = event.headers.get_or_init(|| event.inner.headers());
        let (name, value) = headers.get(index).ok_or_else(|| {
            Failure::invalid(format!("header {index} of an event with {}", headers.len()))
        })?;
        given("header", header)?.write(ThalwegHeader {
            name: ThalwegBytes::of(name.as_bytes()),
            value: ThalwegBytes::of(value),
        });
        Ok(())
    })
}

/// How many headers an event has.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_event_header_count(event: Option<&Event>) -> usize {
    event.map_or(0, |event| {
        event.headers.get_or_init(|| event.inner.headers()).len()
    })
}

/// Frees an event.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_event_free(event: Option<Box<Event>>) {
    quietly(|| drop(event));
}
