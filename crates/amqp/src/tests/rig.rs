//! A connection with its client and its owner, for tests.

use super::Chance;
use crate::table::{Table, Value};
use crate::*;
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn put(method: impl Into<Method>, channel: u16, out: &mut Vec<u8>) {
    let mut bytes = BytesMut::new();
    let method = method.into();
    Frame::Method { channel, method }.encode(&mut bytes);
    out.extend_from_slice(&bytes);
}

pub(super) fn start_ok() -> connection_methods::StartOk {
    let capabilities = Table::of([
        ("authentication_failure_close", Value::Bool(true)),
        ("connection.blocked", Value::Bool(true)),
        ("consumer_cancel_notify", Value::Bool(true)),
    ]);
    connection_methods::StartOk {
        client_properties: Table::of([("capabilities", Value::Table(capabilities))]),
        mechanism: short("PLAIN"),
        response: Bytes::from_static(b"\0guest\0secret"),
        locale: short("en_US"),
    }
}

pub(super) fn tune_ok() -> connection_methods::TuneOk {
    connection_methods::TuneOk {
        channel_max: 0,
        frame_max: 0,
        heartbeat: 10,
    }
}

/// What a client sends until its connection is open.
pub(super) fn login() -> Vec<u8> {
    let mut out = PROTOCOL_HEADER.to_vec();
    put(start_ok(), 0, &mut out);
    put(tune_ok(), 0, &mut out);
    let virtual_host = short("/");
    put(connection_methods::Open { virtual_host }, 0, &mut out);
    out
}

/// A session by chance, most of which is in order.
pub(super) fn script(chance: &mut Chance) -> Vec<u8> {
    let mut out = login();
    for channel in 1..4 {
        put(channel::Open {}, channel, &mut out);
    }
    for _ in 0..chance.below(20) {
        let channel = 1 + chance.below(3) as u16;
        match chance.below(6) {
            0 => put(queue::Declare::default(), channel, &mut out),
            1 => put(basic::Get::default(), channel, &mut out),
            2 => put(channel::CloseOk {}, channel, &mut out),
            3 => {
                let index = chance.below(Method::ALL.len());
                put(Method::generate(index, chance), channel, &mut out);
            }
            _ => {
                let length = chance.below(20_000);
                let body = chance.bytes(length);
                out.extend_from_slice(&published(channel, &body, 1 + chance.below(9000)));
            }
        }
    }
    if chance.one_in(2) {
        put(connection_methods::Close::default(), 0, &mut out);
    }
    out
}

/// The frames of a message whose body comes in pieces of this length.
pub(super) fn published(channel: u16, body: &[u8], piece: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let publish = basic::Publish {
        exchange: short("e"),
        routing_key: short("k"),
        ..basic::Publish::default()
    };
    put(publish, channel, &mut out);
    out.extend_from_slice(&header(channel, body.len() as u64));
    for piece in body.chunks(piece) {
        out.extend_from_slice(&body_frame(channel, piece));
    }
    out
}

pub(super) fn frame(frame: &Frame) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    frame.encode(&mut bytes);
    bytes.to_vec()
}

pub(super) fn header(channel: u16, body_bytes: u64) -> Vec<u8> {
    let properties = Properties {
        delivery_mode: Some(2),
        ..Properties::default()
    };
    let header = ContentHeader {
        class: 60,
        body_bytes,
        properties: properties.encode(),
    };
    frame(&Frame::Header { channel, header })
}

pub(super) fn body_frame(channel: u16, bytes: &[u8]) -> Vec<u8> {
    let bytes = Bytes::copy_from_slice(bytes);
    frame(&Frame::Body { channel, bytes })
}

pub(super) fn short(text: &str) -> ShortString {
    ShortString::try_from(text).unwrap()
}

/// A connection with its client and its owner.
pub(super) struct Rig {
    pub(super) now: Duration,
    pub(super) connection: Connection,
    /// Bytes that the client has received and not read as frames.
    received: BytesMut,
}

impl Rig {
    pub(super) fn with(settings: Settings) -> Self {
        let now = Duration::from_secs(1000);
        Self {
            now,
            connection: Connection::new(now, Arc::new(settings)),
            received: BytesMut::new(),
        }
    }

    /// A connection that is open, with channel 1 and 2.
    pub(super) fn open_with(settings: Settings) -> Self {
        let mut rig = Self::with(settings);
        let login = login();
        let mut at = rig.connection.input(rig.now, &login);
        assert!(matches!(rig.event(), Event::Authenticate { .. }));
        rig.connection.accept_login();
        at += rig.connection.input(rig.now, &login[at..]);
        assert_eq!(rig.event(), Event::OpenVirtualHost(short("/")));
        rig.connection.accept_open(rig.now);
        assert_eq!(at, login.len());
        for number in [1, 2] {
            rig.send(number, channel::Open {});
            assert!(matches!(rig.event(), Event::ChannelOpened(_)));
        }
        rig.frames();
        rig
    }

    pub(super) fn open() -> Self {
        Self::open_with(Settings::default())
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> usize {
        self.connection.input(self.now, bytes)
    }

    pub(super) fn send(&mut self, channel: u16, method: impl Into<Method>) {
        let mut bytes = Vec::new();
        put(method, channel, &mut bytes);
        assert_eq!(self.bytes(&bytes), bytes.len());
    }

    #[track_caller]
    pub(super) fn event(&mut self) -> Event {
        self.connection.poll_event().expect("an event")
    }

    #[track_caller]
    pub(super) fn request(&mut self) -> (ChannelKey, Request) {
        match self.event() {
            Event::Request { channel, request } => (channel, request),
            other => panic!("{other:?} is no request"),
        }
    }

    #[track_caller]
    pub(super) fn publish(&mut self) -> Publish {
        match self.event() {
            Event::Publish(publish) => publish,
            other => panic!("{other:?} is no message"),
        }
    }

    /// The frames that the client has received.
    pub(super) fn frames(&mut self) -> Vec<Frame> {
        while let Some(bytes) = self.connection.poll_output(self.now) {
            self.received.extend_from_slice(&bytes);
        }
        let mut frames = Vec::new();
        while let Some(frame) = Frame::decode(&mut self.received, 1 << 20).unwrap() {
            frames.push(frame);
        }
        assert!(self.received.is_empty(), "half a frame");
        frames
    }

    /// The methods that it has received, with their channels.
    pub(super) fn methods(&mut self) -> Vec<(u16, Method)> {
        let methods = self.frames().into_iter().map(|frame| match frame {
            Frame::Method { channel, method } => (channel, method),
            other => panic!("{other:?} is no method"),
        });
        methods.collect()
    }

    /// Sees the connection close with a code, for a method.
    #[track_caller]
    pub(super) fn fails(&mut self, code: u16, id: MethodId) {
        let methods = self.methods();
        let [(0, Method::ConnectionClose(close))] = &methods[..] else {
            panic!("{methods:?} is no connection.close");
        };
        let found = MethodId::new(close.class_id, close.method_id);
        assert_eq!(
            (close.reply_code, found),
            (code, id),
            "{}",
            close.reply_text
        );
        let failure = loop {
            match self.event() {
                Event::Failed(failure) => break failure,
                _ => continue,
            }
        };
        assert_eq!(failure.code.number(), code);
        assert_eq!(failure.to_string(), close.reply_text.as_str());
    }

    /// Sees channel 1 close with a code, for a method, and the connection go on.
    #[track_caller]
    pub(super) fn fails_channel(&mut self, code: u16, id: MethodId) {
        let methods = self.methods();
        let [(1, Method::ChannelClose(close))] = &methods[..] else {
            panic!("{methods:?} is no channel.close");
        };
        let found = MethodId::new(close.class_id, close.method_id);
        assert_eq!(
            (close.reply_code, found),
            (code, id),
            "{}",
            close.reply_text
        );
        assert!(
            matches!(self.event(), Event::ChannelFailed { channel, .. } if channel.number == 1)
        );
    }

    /// Moves the time on to when something is due, and does it.
    #[track_caller]
    pub(super) fn tick(&mut self) {
        self.now = self.connection.timeout().expect("something is due");
        self.connection.handle_timeout(self.now);
    }
}
