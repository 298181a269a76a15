//! Against another codec: the crate `amq-protocol`, generated from the standard's own description.

use super::{Chance, seeds};
use crate::*;
use amq_protocol::frame::{AMQPFrame, WriteContext, gen_frame, parse_frame};
use amq_protocol::protocol::{AMQPClass, basic as theirs, exchange as exchanges, queue as queues};
use bytes::BytesMut;

fn encoded(frame: &Frame) -> BytesMut {
    let mut out = BytesMut::new();
    frame.encode(&mut out);
    out
}

/// The bytes that the oracle writes.
fn written(frame: &AMQPFrame) -> Vec<u8> {
    let out = WriteContext::from(Vec::new());
    gen_frame(frame)(out).unwrap().into_inner().0
}

/// A frame without what the oracle does not keep: the size of qos, which it writes as zero.
fn kept(mut frame: Frame) -> Frame {
    if let Frame::Method {
        method: Method::BasicQos(qos),
        ..
    } = &mut frame
    {
        qos.prefetch_size = 0;
    }
    frame
}

fn agrees(seed: u64) {
    let frame = kept(Chance(seed).frame());
    let ours = encoded(&frame);
    let hint = format!("AMQP_SEEDS={seed}..{}: {frame:?}", seed + 1);
    let (rest, read) = parse_frame(&ours[..]).unwrap_or_else(|error| panic!("{hint}: {error}"));
    assert!(rest.is_empty(), "{hint}");
    assert_eq!(written(&read), ours, "{hint}");
}

#[test]
fn the_oracle_reads_what_we_write_and_writes_the_same() {
    seeds(2000).for_each(agrees);
}

#[test]
fn the_oracle_knows_every_method() {
    for index in 0..Method::ALL.len() {
        let method = Method::generate(index, &mut Chance(1));
        let frame = kept(Frame::Method { channel: 1, method });
        let ours = encoded(&frame);
        let (_, read) = parse_frame(&ours[..]).unwrap();
        assert_eq!(written(&read), ours, "{frame:?}");
    }
}

#[test]
#[should_panic(expected = "AMQP_SEEDS")]
fn the_oracle_notices_a_bit_in_an_octet_of_its_own() {
    faults::with(faults::Fault::BitsApart, || (0..2000).for_each(agrees));
}

/// What the oracle makes of a method of ours.
fn theirs_of(method: impl Into<Method>) -> AMQPClass {
    let frame = Frame::Method {
        channel: 1,
        method: method.into(),
    };
    match parse_frame(&encoded(&frame)[..]).unwrap().1 {
        AMQPFrame::Method(1, class) => class,
        other => panic!("{other:?}"),
    }
}

/// The same bytes could still be other fields of one type: their names are compared where there are several.
#[test]
fn fields_have_the_same_names() {
    for seed in 0..50 {
        let chance = &mut Chance(seed);
        let mut bit = || chance.one_in(2);
        let ours = queue::Declare {
            passive: bit(),
            durable: bit(),
            exclusive: bit(),
            auto_delete: bit(),
            no_wait: bit(),
            ..Default::default()
        };
        match theirs_of(ours.clone()) {
            AMQPClass::Queue(queues::AMQPMethod::Declare(read)) => {
                let bits = [read.passive, read.durable, read.exclusive, read.auto_delete];
                let expected = [ours.passive, ours.durable, ours.exclusive, ours.auto_delete];
                assert_eq!((bits, read.nowait), (expected, ours.no_wait));
            }
            other => panic!("{other:?}"),
        }
        let ours = exchange::Declare {
            passive: bit(),
            durable: bit(),
            auto_delete: bit(),
            internal: bit(),
            no_wait: bit(),
            exchange: ShortString::truncated("name"),
            kind: ShortString::truncated("fanout"),
            ..Default::default()
        };
        match theirs_of(ours.clone()) {
            AMQPClass::Exchange(exchanges::AMQPMethod::Declare(read)) => {
                let bits = [read.passive, read.durable, read.auto_delete, read.internal];
                let expected = [ours.passive, ours.durable, ours.auto_delete, ours.internal];
                assert_eq!((bits, read.nowait), (expected, ours.no_wait));
                assert_eq!(
                    (read.exchange.as_str(), read.kind.as_str()),
                    ("name", "fanout")
                );
            }
            other => panic!("{other:?}"),
        }
        let ours = basic::Consume {
            no_local: bit(),
            no_ack: bit(),
            exclusive: bit(),
            no_wait: bit(),
            queue: ShortString::truncated("queue"),
            consumer_tag: ShortString::truncated("tag"),
            ..Default::default()
        };
        match theirs_of(ours.clone()) {
            AMQPClass::Basic(theirs::AMQPMethod::Consume(read)) => {
                let bits = [read.no_local, read.no_ack, read.exclusive, read.nowait];
                assert_eq!(
                    bits,
                    [ours.no_local, ours.no_ack, ours.exclusive, ours.no_wait]
                );
                assert_eq!(
                    (read.queue.as_str(), read.consumer_tag.as_str()),
                    ("queue", "tag")
                );
            }
            other => panic!("{other:?}"),
        }
        let ours = basic::Nack {
            delivery_tag: seed,
            multiple: bit(),
            requeue: bit(),
        };
        match theirs_of(ours.clone()) {
            AMQPClass::Basic(theirs::AMQPMethod::Nack(read)) => {
                assert_eq!((read.multiple, read.requeue), (ours.multiple, ours.requeue));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Whether the oracle may refuse what we take: it wants UTF-8 where programs have bytes, in short strings of
/// properties and in names of fields.
fn may_be_stricter(frame: &Frame, bytes: &[u8]) -> bool {
    let has_table = matches!(frame, Frame::Header { .. }) || bytes.len() > 16;
    has_table && std::str::from_utf8(&bytes[7..bytes.len() - 1]).is_err()
}

/// Whether we may refuse what the oracle takes: where we have a bound, or RabbitMQ's types.
fn may_refuse(error: &DecodeError) -> bool {
    match error {
        DecodeError::Depth { .. }
        | DecodeError::TableTooLong { .. }
        | DecodeError::Weight(_)
        | DecodeError::PropertyFlags(_)
        | DecodeError::Heartbeat { .. } => true,
        DecodeError::FieldType { kind, .. } => *kind == b'U',
        // Class `access`, which was taken out of the standard.
        DecodeError::Method(id) => id.class == 30,
        _ => false,
    }
}

#[test]
fn the_two_agree_on_what_is_a_frame() {
    for seed in seeds(5000) {
        let mut chance = Chance(seed);
        let frame = chance.frame();
        let mut bytes = encoded(&frame);
        for _ in 0..1 + chance.below(3) {
            // Neither the size nor the end, so that it stays one frame.
            let inside = 7..bytes.len() - 1;
            let at = match inside.len() {
                0 => chance.below(3),
                length => 7 + chance.below(length),
            };
            bytes[at] = chance.next() as u8;
        }
        let hint = format!("AMQP_SEEDS={seed}..{}: {}", seed + 1, bytes.escape_ascii());
        let theirs = parse_frame(&bytes[..]);
        match (Frame::decode(&mut bytes.clone(), 1 << 20), &theirs) {
            (Ok(Some(_)), Ok((rest, _))) => assert!(rest.is_empty(), "{hint}"),
            (Ok(Some(frame)), Err(_)) => assert!(may_be_stricter(&frame, &bytes), "{hint}"),
            (Err(error), Ok(_)) => assert!(may_refuse(&error), "{hint}: {error}"),
            (Err(_), Err(_)) => {}
            (Ok(None), _) => panic!("{hint}: whole frames wait for more"),
        }
    }
}
