//! Bytes by chance, and sessions in which bytes are changed: no panic, no more memory than came, no more answers than
//! there is room for.

use super::rig::{login, script};
use super::{Chance, seeds};
use crate::*;
use bytes::BytesMut;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// What is decoded is the same when it is written and decoded once more.
fn decode_all(bytes: &[u8], hint: &str) {
    let mut rest = BytesMut::from(bytes);
    while let Ok(Some(frame)) = Frame::decode(&mut rest, 1 << 20) {
        let mut again = BytesMut::new();
        frame.encode(&mut again);
        let found = Frame::decode(&mut again, 1 << 21).unwrap();
        assert_eq!(found.as_ref(), Some(&frame), "{hint}");
        if let Frame::Header { header, .. } = frame {
            let fields = header.properties.fields();
            assert_eq!(fields.encode().fields(), fields, "{hint}");
        }
    }
}

/// An owner that answers by chance, and is sometimes away.
fn answer(chance: &mut Chance, connection: &mut Connection, event: Event, now: Duration) {
    match event {
        Event::Authenticate { .. } | Event::Response(_) => match chance.below(8) {
            0 => connection.refuse_login(now, "no"),
            1 => connection.challenge(chance.bytes(4)),
            _ => connection.accept_login(),
        },
        Event::OpenVirtualHost(_) => connection.accept_open(now),
        Event::UpdateSecret { .. } => connection.accept_secret(),
        Event::CloseRequested { .. } => connection.accept_close(now),
        Event::Request { channel, request } => match (chance.below(6), request) {
            (0, _) => {
                let code = ReplyCode::ALL[chance.below(ReplyCode::ALL.len())];
                connection.fail(now, channel, Failure::new(code, "by chance"));
            }
            (_, Request::DeclareQueue(_)) => {
                connection.answer(channel, queue::DeclareOk::default());
            }
            (_, Request::CloseChannel(_)) => connection.answer(channel, channel::CloseOk {}),
            (_, Request::Get(_)) => {
                let content = Content {
                    properties: chance.properties().encode(),
                    body: chance.bytes(20_000),
                };
                connection.answer_get(channel, basic::GetOk::default(), &content);
            }
            (_, Request::Ack(_) | Request::Nack(_) | Request::Reject(_)) => {}
            // The others stay without an answer, and so does what comes after them on their channel.
            (_, _) => connection.fail(now, channel, Failure::new(ReplyCode::NotFound, "none")),
        },
        _ => {}
    }
}

fn settings() -> Arc<Settings> {
    Arc::new(Settings {
        message_bytes_max: 100_000,
        assembly_bytes_max: 150_000,
        ..Settings::default()
    })
}

/// Plays a stream, and gives the kinds of events that came of it.
fn play(seed: u64, stream: &[u8]) -> HashSet<&'static str> {
    let mut kinds = HashSet::new();
    let hint = format!("AMQP_SEEDS={seed}..{}", seed + 1);
    let mut chance = Chance(seed ^ 0xf00d);
    let mut now = Duration::ZERO;
    let mut connection = Connection::new(now, settings());
    let mut rest = stream;
    while !rest.is_empty() && !connection.is_ended() {
        let length = (1 + chance.below(2000)).min(rest.len());
        let taken = connection.input(now, &rest[..length]);
        rest = &rest[taken..];
        connection.check();
        assert!(
            connection.output_bytes() < OUTPUT_BYTES_MAX + 200_000,
            "{hint}"
        );
        if taken == 0 || !chance.one_in(4) {
            while let Some(event) = connection.poll_event() {
                kinds.insert(kind(&event));
                answer(&mut chance, &mut connection, event, now);
            }
            while connection.poll_output(now).is_some() {}
        }
        now += Duration::from_millis(chance.below(200) as u64);
        if connection.timeout().is_some_and(|at| at <= now) {
            connection.handle_timeout(now);
        }
    }
    // Whatever came, the end comes too, if nothing more does.
    let mut rounds = 0;
    while let Some(at) = connection.timeout() {
        now = now.max(at);
        connection.handle_timeout(now);
        while connection.poll_output(now).is_some() {}
        rounds += 1;
        assert!(rounds < 100, "{hint}: it goes on without its client");
    }
    kinds
}

fn kind(event: &Event) -> &'static str {
    match event {
        Event::Publish(_) => "message",
        Event::Request { .. } => "request",
        Event::ChannelFailed { .. } => "failed channel",
        Event::Failed(failure) => failure.code.name(),
        Event::CloseRequested { .. } => "client that leaves",
        _ => "other",
    }
}

#[test]
fn any_bytes_are_taken() {
    for seed in seeds(300) {
        let mut chance = Chance(seed);
        let length = chance.below(4000);
        let bytes = chance.bytes(length);
        decode_all(&bytes, &format!("AMQP_SEEDS={seed}..{}", seed + 1));
        play(seed, &bytes);
        // The same behind a good start.
        play(seed, &[&login()[..], &bytes[..]].concat());
    }
}

#[test]
fn any_change_of_a_session_is_taken() {
    let mut kinds = HashSet::new();
    for seed in seeds(600) {
        let mut chance = Chance(seed);
        let mut stream = script(&mut chance);
        for _ in 0..chance.below(4) {
            let at = chance.below(stream.len());
            match chance.below(5) {
                0 => stream[at] = chance.next() as u8,
                1 => stream[at] ^= 1 << chance.below(8),
                2 => stream.truncate(at),
                3 => {
                    let tail = stream.split_off(at);
                    stream.extend_from_slice(&tail);
                    stream.extend_from_slice(&tail);
                }
                _ => {
                    let tail = stream.split_off(at);
                    let skipped = chance.below(tail.len().min(40));
                    stream.extend_from_slice(&tail[skipped..]);
                }
            }
            if stream.is_empty() {
                break;
            }
        }
        decode_all(&stream[8.min(stream.len())..], &format!("seed {seed}"));
        kinds.extend(play(seed, &stream));
    }
    // With few seeds there is less.
    if std::env::var_os("AMQP_SEEDS").is_none() {
        for kind in ["message", "request", "failed channel", "client that leaves"] {
            assert!(kinds.contains(kind), "no session has a {kind}: {kinds:?}");
        }
        for code in [
            "FRAME_ERROR",
            "COMMAND_INVALID",
            "CHANNEL_ERROR",
            "UNEXPECTED_FRAME",
        ] {
            assert!(
                kinds.contains(code),
                "no session ends with {code}: {kinds:?}"
            );
        }
    }
}
