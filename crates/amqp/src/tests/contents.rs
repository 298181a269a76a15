//! Messages: put together from frames, and cut to frames.

use super::Chance;
use super::rig::{Rig, body_frame, frame, header, login, published};
use crate::faults::{self, Fault};
use crate::table::{Table, Value};
use crate::*;

#[test]
fn a_body_over_the_limit_closes_its_channel() {
    let mut rig = Rig::open_with(Settings {
        message_bytes_max: 1000,
        ..Settings::default()
    });
    rig.bytes(&published(1, &[7; 1001], 600));
    rig.fails_channel(406, basic::Publish::ID);
    rig.bytes(&published(2, &[7; 1000], 600));
    assert_eq!(rig.publish().content.body.len(), 1000);
}

fn contents_together_are_bounded() {
    let mut rig = Rig::open_with(Settings {
        message_bytes_max: 1000,
        assembly_bytes_max: 1500,
        ..Settings::default()
    });
    // A message that is whole counts no more, nor does one of a channel that failed.
    for _ in 0..3 {
        rig.bytes(&published(1, &[7; 900], 600));
        rig.publish();
    }
    for number in [1, 2] {
        rig.send(number, basic::Publish::default());
        rig.bytes(&header(number, 1000));
        rig.bytes(&body_frame(number, &[7; 700]));
    }
    assert_eq!(rig.frames(), []);
    rig.bytes(&body_frame(2, &[7; 101]));
    rig.fails(506, basic::Publish::ID);
}

#[test]
fn contents_under_way_are_bounded_together() {
    contents_together_are_bounded();
}

#[test]
#[should_panic(expected = "is no connection.close")]
fn contents_without_a_bound_are_noticed() {
    faults::with(Fault::AnyContent, contents_together_are_bounded);
}

/// Properties of a message whose body does not come are held as its body is.
#[test]
fn properties_under_way_are_bounded_with_bodies() {
    let mut rig = Rig::open_with(Settings {
        assembly_bytes_max: 150_000,
        ..Settings::default()
    });
    let headers = Table::of([("h", Value::text(&"h".repeat(100_000)))]);
    let properties = Properties {
        headers: Some(headers),
        ..Properties::default()
    };
    let header = ContentHeader {
        class: 60,
        body_bytes: 1,
        properties: properties.encode(),
    };
    for channel in [1, 2] {
        let header = header.clone();
        rig.send(channel, basic::Publish::default());
        rig.bytes(&frame(&Frame::Header { channel, header }));
    }
    rig.fails(506, basic::Publish::ID);
}

/// Messages that the owner does not take are as bounded as events are.
#[test]
fn messages_that_nobody_takes_are_bounded() {
    let mut rig = Rig::open();
    let message = published(1, &vec![7; 9 << 20], 1 << 19);
    let bytes = message.repeat(3);
    let taken = rig.bytes(&bytes);
    assert_eq!(taken, 2 * message.len(), "the third is not read");
    rig.publish();
    assert_eq!(rig.bytes(&bytes[taken..]), message.len());
    rig.publish();
    rig.publish();
}

/// A body has no more memory than it has bytes, in however many pieces it came.
#[test]
fn a_body_takes_no_more_memory_than_its_bytes() {
    let mut rig = Rig::open();
    rig.bytes(&published(1, &Chance(5).bytes(100_000), 7000));
    let body = Vec::from(rig.publish().content.body);
    assert_eq!(body.capacity(), body.len());
}

#[test]
fn a_message_is_put_together() {
    let mut rig = Rig::open();
    let body = Chance(5).bytes(5000);
    rig.bytes(&published(1, &body, 999));
    let publish = rig.publish();
    assert_eq!(publish.content.body, body);
    assert_eq!(publish.content.properties.fields().delivery_mode, Some(2));
    assert_eq!(publish.publish.routing_key.as_str(), "k");
    assert_eq!((publish.channel.number, publish.number), (1, None));
    // An empty one has no body frame.
    rig.bytes(&published(1, b"", 1));
    assert!(rig.publish().content.body.is_empty());
    // One comes between the frames of another.
    let (one, two) = (published(1, b"one", 1), published(2, b"two", 1));
    let whole = one.len() - 2 * 9;
    rig.bytes(&one[..whole]);
    rig.bytes(&two);
    assert_eq!(&rig.publish().content.body[..], b"two");
    rig.bytes(&one[whole..]);
    assert_eq!(&rig.publish().content.body[..], b"one");
}

#[test]
fn messages_of_two_channels_come_frame_by_frame() {
    let mut rig = Rig::open();
    for number in [1, 2] {
        rig.send(number, basic::Publish::default());
        rig.bytes(&header(number, 4));
    }
    for (number, bytes) in [(1, b"on"), (2, b"tw"), (2, b"o!"), (1, b"e!")] {
        rig.bytes(&body_frame(number, bytes));
    }
    assert_eq!(&rig.publish().content.body[..], b"two!");
    assert_eq!(&rig.publish().content.body[..], b"one!");
}

fn a_body_without_an_end_is_not_published() {
    let mut rig = Rig::open();
    let mut bytes = published(1, b"body", 4);
    *bytes.last_mut().unwrap() = 0;
    rig.bytes(&bytes);
    let event = rig.event();
    assert!(matches!(event, Event::Failed(_)), "its frame has not ended");
}

#[test]
fn a_body_is_published_after_its_end() {
    a_body_without_an_end_is_not_published();
}

#[test]
#[should_panic(expected = "its frame has not ended")]
fn a_body_that_is_published_early_is_noticed() {
    faults::with(Fault::EarlyPublish, a_body_without_an_end_is_not_published);
}

#[test]
fn a_length_alone_takes_no_memory() {
    let mut assembly = content::Assembly::Header(basic::Publish::default());
    let header = ContentHeader {
        class: 60,
        body_bytes: 1 << 40,
        properties: RawProperties::default(),
    };
    assembly.header(header, 1 << 40).unwrap();
    assembly.body(b"abc");
    let properties = 2;
    assert_eq!(assembly.bytes(), properties + 3);
}

#[test]
fn messages_with_confirms_are_counted() {
    let mut rig = Rig::open();
    rig.send(1, confirm::Select { no_wait: false });
    let (key, request) = rig.request();
    assert_eq!(
        request,
        Request::SelectConfirm(confirm::Select { no_wait: false })
    );
    rig.connection.answer(key, confirm::SelectOk {});
    for number in 1..4 {
        rig.bytes(&published(1, b"x", 1));
        assert_eq!(rig.publish().number, Some(number));
    }
    rig.bytes(&published(2, b"x", 1));
    assert_eq!(rig.publish().number, None);
    let ack = basic::Ack {
        delivery_tag: 3,
        multiple: true,
    };
    rig.connection.confirm(key, ack.clone());
    let methods = rig.methods();
    assert_eq!(methods, [(1, confirm::SelectOk {}.into()), (1, ack.into())]);
}

#[test]
fn a_delivery_is_cut_to_frames() {
    let mut rig = Rig::with(Settings {
        frame_max: 8192,
        ..Settings::default()
    });
    let login = login();
    let at = rig.bytes(&login);
    rig.event();
    rig.connection.accept_login();
    rig.bytes(&login[at..]);
    rig.event();
    rig.connection.accept_open(rig.now);
    rig.send(1, channel::Open {});
    let Event::ChannelOpened(key) = rig.event() else {
        panic!("the channel is open");
    };
    rig.frames();
    for length in [0, 1, 4095, 4096, 8184, 8185, 50_000] {
        let content = Content {
            properties: Chance(3).properties().encode(),
            body: Chance(9).bytes(length),
        };
        let deliver = basic::Deliver::default();
        rig.connection.deliver(key, deliver.clone(), &content);
        let frames = rig.frames();
        assert_eq!(rig.connection.output_bytes(), 0);
        let [method, header, bodies @ ..] = &frames[..] else {
            panic!("a method and a header");
        };
        let deliver = deliver.into();
        assert_eq!(
            *method,
            Frame::Method {
                channel: 1,
                method: deliver
            }
        );
        let expected = ContentHeader {
            class: 60,
            body_bytes: length as u64,
            properties: content.properties,
        };
        assert_eq!(
            *header,
            Frame::Header {
                channel: 1,
                header: expected
            }
        );
        let mut body = Vec::new();
        for frame in bodies {
            match frame {
                Frame::Body { bytes, .. } if bytes.len() <= 8184 => body.extend_from_slice(bytes),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(body, content.body);
        assert_eq!(bodies.len(), length.div_ceil(8184));
    }
}
