//! A connection, as its client sees it.

use super::rig::{Rig, body_frame, header, published, put, short, start_ok};
use super::{Chance, Generated};
use crate::faults::{self, Fault};
use crate::table::{Table, Value};
use crate::*;
use bytes::Bytes;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

const NONE: MethodId = MethodId::new(0, 0);

// The way in.

#[test]
fn a_client_comes_in_step_by_step() {
    let mut rig = Rig::with(Settings::default());
    rig.bytes(&PROTOCOL_HEADER);
    let [(0, Method::ConnectionStart(start))] = &rig.methods()[..] else {
        panic!("connection.start is the answer to the header");
    };
    assert_eq!((start.version_major, start.version_minor), (0, 9));
    assert_eq!(&start.mechanisms[..], b"PLAIN AMQPLAIN");
    let Some(Value::Table(capabilities)) = start.server_properties.get("capabilities") else {
        panic!("there are capabilities");
    };
    assert!(capabilities.is_true("basic.nack"));
    rig.send(0, start_ok());
    match rig.event() {
        Event::Authenticate { credentials, .. } => {
            assert_eq!(
                credentials,
                Credentials::Password {
                    mechanism: Mechanism::Plain,
                    user: Bytes::from_static(b"guest"),
                    password: Bytes::from_static(b"secret"),
                }
            );
            assert!(!format!("{credentials:?}").contains("secret"));
        }
        other => panic!("{other:?}"),
    }
    // One more round.
    rig.connection.challenge(Bytes::from_static(b"who?"));
    let response = Bytes::from_static(b"me");
    assert!(matches!(
        &rig.methods()[..],
        [(0, Method::ConnectionSecure(_))]
    ));
    rig.send(
        0,
        connection_methods::SecureOk {
            response: response.clone(),
        },
    );
    assert_eq!(rig.event(), Event::Response(response));
    rig.connection.accept_login();
    let tune = connection_methods::Tune {
        channel_max: 2047,
        frame_max: 1 << 20,
        heartbeat: 60,
    };
    assert_eq!(rig.methods(), [(0, tune.into())]);
    rig.send(
        0,
        connection_methods::TuneOk {
            channel_max: 10,
            frame_max: 131_072,
            heartbeat: 0,
        },
    );
    let tuned = Tuned {
        channel_max: 10,
        frame_max: 131_072,
        heartbeat_seconds: 0,
    };
    assert_eq!(rig.connection.tuned(), tuned);
    rig.send(
        0,
        connection_methods::Open {
            virtual_host: short("v"),
        },
    );
    assert_eq!(rig.event(), Event::OpenVirtualHost(short("v")));
    rig.connection.accept_open(rig.now);
    assert_eq!(rig.methods(), [(0, connection_methods::OpenOk {}.into())]);
    assert_eq!(
        rig.connection.timeout(),
        None,
        "without heartbeats nothing is due"
    );
}

#[test]
fn amqplain_and_external_are_read() {
    let credentials = |mechanism: &str, response: Bytes| {
        let mut rig = Rig::with(Settings {
            mechanisms: vec![Mechanism::Amqplain, Mechanism::External],
            ..Settings::default()
        });
        rig.bytes(&PROTOCOL_HEADER);
        rig.frames();
        rig.send(
            0,
            connection_methods::StartOk {
                mechanism: short(mechanism),
                response,
                ..start_ok()
            },
        );
        match rig.event() {
            Event::Authenticate { credentials, .. } => Some(credentials),
            Event::Failed(failure) => {
                assert_eq!(failure.method, Some(connection_methods::StartOk::ID));
                None
            }
            other => panic!("{other:?}"),
        }
    };
    let table = Table::of([("LOGIN", Value::text("u")), ("PASSWORD", Value::text("p"))]);
    let bytes = table.as_bytes().clone();
    let found = credentials("AMQPLAIN", bytes).unwrap();
    assert_eq!(found.mechanism(), Mechanism::Amqplain);
    let external = credentials("EXTERNAL", Bytes::new());
    let identity = Bytes::new();
    assert_eq!(external, Some(Credentials::External { identity }));
    assert_eq!(credentials("AMQPLAIN", Bytes::from_static(b"x")), None);
    // What is not offered is not taken.
    assert_eq!(credentials("PLAIN", Bytes::from_static(b"\0u\0p")), None);
}

#[test]
fn a_wrong_header_is_answered_with_the_right_one() {
    for header in [*b"AMQP\0\x01\0\0", *b"AMQP\x03\x01\0\0", *b"GET / HT"] {
        let mut rig = Rig::with(Settings::default());
        assert_eq!(rig.bytes(&header), 8);
        let answer = rig.connection.poll_output(rig.now).unwrap();
        assert_eq!(&answer[..], PROTOCOL_HEADER);
        // What still comes is dropped.
        assert_eq!(rig.bytes(b"more"), 4);
        rig.tick();
        assert_eq!(rig.event(), Event::Ended(Ended::WrongHeader(header)));
        assert!(rig.connection.is_ended());
    }
}

#[test]
fn a_refused_login_is_told_to_who_can_read_it() {
    let refused = |start_ok: connection_methods::StartOk| {
        let mut rig = Rig::with(Settings::default());
        rig.bytes(&PROTOCOL_HEADER);
        rig.send(0, start_ok);
        rig.event();
        rig.frames();
        rig.connection.refuse_login(rig.now, "Login was refused");
        rig
    };
    refused(start_ok()).fails(403, NONE);
    let mut rig = refused(connection_methods::StartOk {
        client_properties: Table::default(),
        ..start_ok()
    });
    assert_eq!(rig.frames(), []);
    assert_eq!(rig.connection.timeout(), Some(rig.now + LINGER));
    rig.tick();
    assert_eq!(rig.event(), Event::Ended(Ended::Refused));
}

#[test]
fn tuning_is_within_what_is_offered() {
    let answers = |channel_max, frame_max| {
        let mut rig = Rig::with(Settings::default());
        rig.bytes(&PROTOCOL_HEADER);
        rig.send(0, start_ok());
        rig.event();
        rig.connection.accept_login();
        rig.frames();
        rig.send(
            0,
            connection_methods::TuneOk {
                channel_max,
                frame_max,
                heartbeat: 1,
            },
        );
        rig
    };
    let id = connection_methods::TuneOk::ID;
    answers(0, (1 << 20) + 1).fails(530, id);
    answers(0, 8191).fails(530, id);
    answers(2048, 0).fails(530, id);
    let tuned = answers(0, 0).connection.tuned();
    assert_eq!((tuned.channel_max, tuned.frame_max), (2047, 1 << 20));
}

#[test]
fn a_handshake_has_its_time() {
    let mut rig = Rig::with(Settings::default());
    rig.bytes(b"AMQP");
    assert_eq!(rig.connection.timeout(), Some(rig.now + HANDSHAKE_WAIT));
    rig.tick();
    assert_eq!(rig.event(), Event::Ended(Ended::Late));
}

#[test]
fn a_frame_before_tuning_is_small() {
    let mut rig = Rig::with(Settings::default());
    rig.bytes(&PROTOCOL_HEADER);
    rig.frames();
    // 8185 bytes of payload, and 8192 bytes are the most in all.
    rig.bytes(&[1, 0, 0, 0, 0, 0x1f, 0xf9]);
    rig.fails(501, NONE);
}

// Violations, hard and soft.

#[test]
fn hard_errors_have_their_codes() {
    type Act = fn(&mut Rig);
    let table: [(&str, u16, MethodId, Act); 19] = [
        ("an unknown type of frame", 501, NONE, |rig| {
            rig.bytes(&[7, 0, 0, 0, 0, 0, 0]);
        }),
        ("a wrong end", 501, NONE, |rig| {
            rig.bytes(&[8, 0, 0, 0, 0, 0, 0, 0xcd]);
        }),
        ("a frame of 4 GiB", 501, NONE, |rig| {
            rig.bytes(&[3, 0, 1, 0xff, 0xff, 0xff, 0xff]);
        }),
        ("a heartbeat on a channel", 501, NONE, |rig| {
            rig.bytes(&[8, 0, 1, 0, 0, 0, 0, 0xce]);
        }),
        ("a method that is cut", 502, queue::Declare::ID, |rig| {
            rig.bytes(&[1, 0, 1, 0, 0, 0, 5, 0, 50, 0, 10, 0, 0xce]);
        }),
        ("no method at all", 502, NONE, |rig| {
            rig.bytes(&[1, 0, 1, 0, 0, 0, 1, 0, 0xce]);
        }),
        (
            "an answer from a client",
            503,
            queue::DeclareOk::ID,
            |rig| {
                rig.send(1, queue::DeclareOk::default());
            },
        ),
        ("a channel's method on 0", 503, queue::Declare::ID, |rig| {
            rig.send(0, queue::Declare::default());
        }),
        (
            "a connection's method on 1",
            503,
            connection_methods::Open::ID,
            |rig| rig.send(1, connection_methods::Open::default()),
        ),
        (
            "a second login",
            503,
            connection_methods::StartOk::ID,
            |rig| {
                rig.send(0, start_ok());
            },
        ),
        (
            "a channel that is not open",
            504,
            queue::Declare::ID,
            |rig| {
                rig.send(3, queue::Declare::default());
            },
        ),
        ("a channel opened twice", 504, channel::Open::ID, |rig| {
            rig.send(1, channel::Open {});
        }),
        ("a channel beyond the last", 504, channel::Open::ID, |rig| {
            rig.send(2048, channel::Open {});
        }),
        ("content on channel 0", 505, NONE, |rig| {
            rig.bytes(&body_frame(0, b"body"));
        }),
        (
            "a header without a method",
            505,
            basic::Publish::ID,
            |rig| {
                rig.bytes(&header(1, 5));
            },
        ),
        ("a body without a header", 505, basic::Publish::ID, |rig| {
            rig.send(1, basic::Publish::default());
            rig.bytes(&body_frame(1, b"body"));
        }),
        ("a method within a content", 505, basic::Qos::ID, |rig| {
            rig.send(1, basic::Publish::default());
            rig.send(1, basic::Qos::default());
        }),
        ("too long a body", 501, basic::Publish::ID, |rig| {
            rig.send(1, basic::Publish::default());
            rig.bytes(&header(1, 3));
            rig.bytes(&body_frame(1, b"body"));
        }),
        ("an unknown method", 540, MethodId::new(30, 10), |rig| {
            rig.bytes(&[1, 0, 1, 0, 0, 0, 4, 0, 30, 0, 10, 0xce]);
        }),
    ];
    for (what, code, id, act) in table {
        println!("{what}");
        let mut rig = Rig::open();
        act(&mut rig);
        rig.fails(code, id);
    }
}

#[test]
#[should_panic(expected = "is no connection.close")]
fn a_content_that_is_interrupted_is_noticed() {
    faults::with(Fault::Interrupted, hard_errors_have_their_codes);
}

#[test]
fn what_is_not_there_is_said_with_540() {
    let not_there: [Method; 5] = [
        basic::Qos {
            prefetch_size: 1,
            ..Default::default()
        }
        .into(),
        basic::Publish {
            immediate: true,
            ..Default::default()
        }
        .into(),
        basic::Recover { requeue: false }.into(),
        basic::RecoverAsync { requeue: false }.into(),
        channel::Flow { active: false }.into(),
    ];
    for method in not_there {
        let mut rig = Rig::open();
        let id = method.id();
        rig.send(1, method);
        rig.fails(540, id);
    }
}

fn soft_errors_close_their_channel() {
    let mut rig = Rig::open();
    rig.send(1, tx::Commit {});
    rig.fails_channel(406, tx::Commit::ID);
    // The other channel works.
    rig.send(2, queue::Declare::default());
    assert_eq!(rig.request().0.number, 2);
    // All that still comes on the first one is dropped, until the client agrees.
    rig.send(1, queue::Declare::default());
    rig.bytes(&published(1, b"body", 2));
    rig.bytes(&header(1, 1));
    assert_eq!(rig.connection.poll_event(), None);
    assert_eq!(rig.frames(), []);
    rig.send(1, channel::CloseOk {});
    rig.send(1, channel::Open {});
    assert!(matches!(rig.event(), Event::ChannelOpened(key) if key.incarnation == 3));
}

#[test]
fn a_soft_error_closes_its_channel() {
    soft_errors_close_their_channel();
}

#[test]
#[should_panic(expected = "is no channel.close")]
fn a_soft_error_that_closes_the_connection_is_noticed() {
    faults::with(Fault::SoftIsHard, soft_errors_close_their_channel);
}

#[test]
#[should_panic(expected = "left == right")]
fn a_closing_channel_that_acts_is_noticed() {
    faults::with(Fault::Undead, soft_errors_close_their_channel);
}

#[test]
fn confirms_and_transactions_exclude_each_other() {
    let mut rig = Rig::open();
    rig.send(1, confirm::Select { no_wait: true });
    rig.request();
    rig.send(1, tx::Select {});
    rig.fails_channel(406, tx::Select::ID);
    let mut rig = Rig::open();
    rig.send(1, tx::Select {});
    rig.request();
    rig.send(1, confirm::Select { no_wait: false });
    rig.fails_channel(406, confirm::Select::ID);
}

// Requests and answers.

#[test]
fn every_request_has_its_event_and_its_answer() {
    let mut rig = Rig::open();
    let requests: [(Method, Method); 18] = [
        (
            exchange::Declare::default().into(),
            exchange::DeclareOk {}.into(),
        ),
        (
            exchange::Delete::default().into(),
            exchange::DeleteOk {}.into(),
        ),
        (exchange::Bind::default().into(), exchange::BindOk {}.into()),
        (
            exchange::Unbind::default().into(),
            exchange::UnbindOk {}.into(),
        ),
        (
            queue::Declare::default().into(),
            queue::DeclareOk::default().into(),
        ),
        (queue::Bind::default().into(), queue::BindOk {}.into()),
        (queue::Unbind::default().into(), queue::UnbindOk {}.into()),
        (
            queue::Purge::default().into(),
            queue::PurgeOk::default().into(),
        ),
        (
            queue::Delete::default().into(),
            queue::DeleteOk::default().into(),
        ),
        (basic::Qos::default().into(), basic::QosOk {}.into()),
        (
            basic::Consume::default().into(),
            basic::ConsumeOk::default().into(),
        ),
        (
            basic::Cancel::default().into(),
            basic::CancelOk::default().into(),
        ),
        (basic::Get::default().into(), basic::GetEmpty {}.into()),
        (
            basic::Recover { requeue: true }.into(),
            basic::RecoverOk {}.into(),
        ),
        (tx::Select {}.into(), tx::SelectOk {}.into()),
        (tx::Commit {}.into(), tx::CommitOk {}.into()),
        (tx::Rollback {}.into(), tx::RollbackOk {}.into()),
        (channel::Close::default().into(), channel::CloseOk {}.into()),
    ];
    for (request, answer) in requests {
        rig.send(1, request);
        let (key, _) = rig.request();
        rig.connection.answer(key, answer.clone());
        assert_eq!(rig.methods(), [(1, answer)]);
    }
    // Its number is free.
    rig.send(1, channel::Open {});
    assert!(matches!(rig.event(), Event::ChannelOpened(_)));
}

#[test]
fn requests_without_an_answer_have_their_event() {
    let mut rig = Rig::open();
    let requests: [Method; 4] = [
        basic::Ack::default().into(),
        basic::Nack::default().into(),
        basic::Reject::default().into(),
        basic::RecoverAsync { requeue: true }.into(),
    ];
    for request in requests {
        rig.send(1, request);
        rig.request();
    }
    // So has a request whose client does not want the answer.
    let no_wait = true;
    rig.send(
        1,
        queue::Declare {
            no_wait,
            ..Default::default()
        },
    );
    let (key, _) = rig.request();
    rig.connection.answer(key, queue::DeclareOk::default());
    assert_eq!(rig.frames(), []);
}

#[test]
#[should_panic(expected = "answers no")]
fn answers_are_in_order() {
    let mut rig = Rig::open();
    rig.send(1, queue::Declare::default());
    rig.send(1, basic::Qos::default());
    let (key, _) = rig.request();
    rig.connection.answer(key, basic::QosOk {});
}

#[test]
fn a_failure_of_the_owner_names_the_request() {
    let mut rig = Rig::open();
    rig.send(1, queue::Bind::default());
    let (key, _) = rig.request();
    let failure = Failure::new(ReplyCode::NotFound, "no queue 'q' in vhost '/'");
    rig.connection.fail(rig.now, key, failure);
    rig.fails_channel(404, queue::Bind::ID);
    rig.send(2, exchange::Declare::default());
    let (key, _) = rig.request();
    let failure = Failure::new(ReplyCode::CommandInvalid, "unknown exchange type 'x'");
    rig.connection.fail(rig.now, key, failure);
    rig.fails(503, exchange::Declare::ID);
}

fn late_answers_are_dropped() {
    let mut rig = Rig::open();
    rig.send(1, queue::Declare::default());
    let (earlier, _) = rig.request();
    rig.send(1, tx::Commit {});
    rig.fails_channel(406, tx::Commit::ID);
    rig.connection.answer(earlier, queue::DeclareOk::default());
    rig.send(1, channel::CloseOk {});
    rig.connection.answer(earlier, queue::DeclareOk::default());
    rig.send(1, channel::Open {});
    rig.connection.answer(earlier, queue::DeclareOk::default());
    let content = Content::default();
    rig.connection
        .deliver(earlier, basic::Deliver::default(), &content);
    assert_eq!(rig.methods(), [(1, channel::OpenOk {}.into())]);
}

#[test]
fn an_answer_to_an_earlier_channel_is_dropped() {
    late_answers_are_dropped();
}

#[test]
#[should_panic(expected = "is no method")]
fn an_answer_to_an_earlier_channel_is_noticed() {
    faults::with(Fault::StaleAnswer, late_answers_are_dropped);
}

/// A client settles what is not there and closes the channel, in one write: the owner sees the first only when the second has
/// been read.
fn a_close_behind_what_fails_is_answered() {
    let mut rig = Rig::open();
    let mut bytes = Vec::new();
    put(basic::Ack::default(), 1, &mut bytes);
    put(channel::Close::default(), 1, &mut bytes);
    rig.bytes(&bytes);
    let (key, _) = rig.request();
    let failure = Failure::new(ReplyCode::PreconditionFailed, "unknown delivery tag 0");
    rig.connection.fail(rig.now, key, failure);
    let methods = rig.methods();
    assert!(matches!(methods[0], (1, Method::ChannelClose(_))));
    let agreed = (1, channel::CloseOk {}.into());
    assert_eq!(methods[1..], [agreed], "its close is answered");
    // The owner answers the close that it sees then, and that does nothing any more.
    rig.request();
    rig.connection.answer(key, channel::CloseOk {});
    assert_eq!(rig.methods(), []);
    // The number is free when the client agrees.
    rig.send(1, channel::CloseOk {});
    rig.send(1, channel::Open {});
    assert_eq!(rig.methods(), [(1, channel::OpenOk {}.into())]);
}

#[test]
fn a_close_behind_a_request_that_fails_is_answered() {
    a_close_behind_what_fails_is_answered();
}

#[test]
#[should_panic(expected = "its close is answered")]
fn a_close_without_an_answer_is_noticed() {
    faults::with(Fault::Unanswered, a_close_behind_what_fails_is_answered);
}

#[test]
fn both_sides_may_close_a_channel_at_once() {
    let mut rig = Rig::open();
    rig.send(1, tx::Commit {});
    rig.fails_channel(406, tx::Commit::ID);
    rig.send(1, channel::Close::default());
    assert_eq!(rig.methods(), [(1, channel::CloseOk {}.into())]);
    rig.send(1, channel::CloseOk {});
    rig.send(1, channel::Open {});
    assert_eq!(rig.methods(), [(1, channel::OpenOk {}.into())]);
}

#[test]
fn a_channel_that_its_client_closes_takes_no_more() {
    let mut rig = Rig::open();
    rig.send(1, channel::Close::default());
    rig.request();
    rig.send(1, queue::Declare::default());
    rig.bytes(&published(1, b"body", 4));
    assert_eq!(rig.connection.poll_event(), None);
    rig.send(1, channel::Open {});
    rig.fails(504, channel::Open::ID);
}

#[test]
fn all_channels_may_be_open() {
    let mut rig = Rig::open();
    for round in 0..2 {
        for number in 3..=2047 {
            rig.send(number, channel::Open {});
            let Event::ChannelOpened(key) = rig.event() else {
                panic!("channel {number} is open in round {round}");
            };
            rig.send(number, channel::Close::default());
            rig.request();
            if round == 0 || number % 2 == 0 {
                rig.connection.answer(key, channel::CloseOk {});
            }
            rig.frames();
        }
    }
    // Those that the owner has not answered are not free.
    rig.send(4, channel::Open {});
    assert!(matches!(rig.event(), Event::ChannelOpened(_)));
    rig.send(3, channel::Open {});
    rig.frames();
    assert!(matches!(rig.event(), Event::Failed(failure) if failure.code.number() == 504));
}

#[test]
fn what_waits_for_answers_is_bounded() {
    let mut rig = Rig::open();
    for _ in 0..PENDING_MAX {
        rig.send(1, basic::Qos::default());
        rig.request();
    }
    rig.send(1, basic::Qos::default());
    rig.fails(506, basic::Qos::ID);
}

// The client that does not read, and the client that says nothing.

fn a_client_that_does_not_read_is_not_read() {
    let mut rig = Rig::open();
    let mut bytes = Vec::new();
    let active = true;
    for _ in 0..10_000 {
        put(channel::Flow { active }, 1, &mut bytes);
    }
    let mut rest = 100 * bytes.len();
    let mut waiting = 0;
    while rest > 0 {
        let taken = rig.bytes(&bytes);
        rest -= taken.min(rest);
        if taken < bytes.len() {
            waiting = rig.connection.output_bytes();
            break;
        }
    }
    assert!(waiting >= OUTPUT_BYTES_MAX, "the output has a bound");
    assert!(waiting < OUTPUT_BYTES_MAX + 1000);
    // Once it reads, it is read.
    rig.frames();
    assert!(rig.bytes(&bytes) > 0);
}

#[test]
fn answers_do_not_pile_up() {
    a_client_that_does_not_read_is_not_read();
}

#[test]
#[should_panic(expected = "the output has a bound")]
fn answers_that_pile_up_are_noticed() {
    faults::with(Fault::Endless, a_client_that_does_not_read_is_not_read);
}

#[test]
fn events_do_not_pile_up() {
    let mut rig = Rig::open();
    let mut bytes = Vec::new();
    for _ in 0..3 * EVENTS_MAX {
        put(basic::Ack::default(), 1, &mut bytes);
    }
    let taken = rig.bytes(&bytes);
    assert!(taken < bytes.len());
    for _ in 0..EVENTS_MAX {
        rig.request();
    }
    assert_eq!(rig.connection.poll_event(), None);
    assert!(rig.bytes(&bytes[taken..]) > 0);
}

fn heartbeats_go_and_come() {
    // The client has asked for 10 s.
    let mut rig = Rig::open();
    let start = rig.now;
    rig.tick();
    assert_eq!(rig.now, start + 5 * SECOND);
    assert_eq!(rig.frames(), [Frame::Heartbeat], "after half an interval");
    rig.tick();
    assert_eq!(rig.frames(), [Frame::Heartbeat]);
    // Any bytes of the client count, half a frame too.
    rig.bytes(&[8, 0]);
    let heard = rig.now;
    for _ in 0..4 {
        rig.tick();
        rig.frames();
    }
    assert!(rig.connection.is_ended(), "a silent client is given up");
    assert_eq!(rig.now, heard + 20 * SECOND);
    assert_eq!(rig.event(), Event::Ended(Ended::Silent));
}

#[test]
fn a_heartbeat_goes_after_half_an_interval_and_a_silent_client_is_given_up() {
    heartbeats_go_and_come();
}

#[test]
#[should_panic(expected = "after half an interval")]
fn a_server_without_heartbeats_is_noticed() {
    faults::with(Fault::Mute, heartbeats_go_and_come);
}

#[test]
#[should_panic(expected = "a silent client is given up")]
fn a_server_that_keeps_a_silent_client_is_noticed() {
    faults::with(Fault::Patient, heartbeats_go_and_come);
}

#[test]
fn output_takes_the_place_of_a_heartbeat() {
    let mut rig = Rig::open();
    let start = rig.now;
    rig.now += 4 * SECOND;
    rig.send(1, channel::Flow { active: true });
    rig.frames();
    assert_eq!(rig.connection.timeout(), Some(start + 9 * SECOND));
}

// The way out.

#[test]
fn a_client_leaves_when_the_owner_has_tidied_up() {
    let mut rig = Rig::open();
    rig.send(
        0,
        connection_methods::Close {
            reply_code: 200,
            ..Default::default()
        },
    );
    assert!(matches!(
        rig.event(),
        Event::CloseRequested { code: 200, .. }
    ));
    // What other threads of the client still send is dropped.
    rig.bytes(&published(1, b"body", 4));
    rig.send(0, connection_methods::TuneOk::default());
    assert_eq!((rig.connection.poll_event(), rig.frames()), (None, vec![]));
    rig.connection.accept_close(rig.now);
    assert_eq!(rig.methods(), [(0, connection_methods::CloseOk {}.into())]);
    // Another thread closes too, and reads its answer; what follows is still dropped.
    rig.send(0, connection_methods::Close::default());
    assert_eq!(rig.methods(), [(0, connection_methods::CloseOk {}.into())]);
    rig.bytes(&published(1, b"body", 4));
    let failure = Failure::new(ReplyCode::ConnectionForced, "the server stops");
    rig.connection.fail_connection(rig.now, failure);
    assert_eq!((rig.connection.poll_event(), rig.frames()), (None, vec![]));
    // It had time to close the line.
    let until = rig.connection.timeout().unwrap();
    assert_eq!(until, rig.now + LINGER);
    rig.connection.handle_timeout(until);
    assert_eq!(rig.event(), Event::Ended(Ended::ByClient));
    assert!(rig.connection.is_ended());
}

#[test]
fn an_operator_closes_a_connection() {
    let mut rig = Rig::open();
    let failure = Failure::new(ReplyCode::ConnectionForced, "the server stops");
    rig.connection.fail_connection(rig.now, failure.clone());
    rig.fails(320, NONE);
    // What still comes is dropped; both sides may close at once.
    rig.bytes(&published(1, b"body", 4));
    rig.send(0, connection_methods::Close::default());
    assert_eq!(rig.methods(), [(0, connection_methods::CloseOk {}.into())]);
    rig.send(0, connection_methods::CloseOk {});
    assert_eq!(rig.event(), Event::Ended(Ended::Failed(failure)));
}

#[test]
fn a_client_that_does_not_agree_is_left() {
    let mut rig = Rig::open();
    rig.send(3, channel::CloseOk {});
    rig.send(3, basic::Ack::default());
    rig.fails(504, basic::Ack::ID);
    assert_eq!(rig.connection.timeout(), Some(rig.now + CLOSE_WAIT));
    rig.tick();
    assert!(matches!(rig.event(), Event::Ended(Ended::Failed(_))));
}

#[test]
fn extensions_are_used_with_who_knows_them() {
    let mut rig = Rig::open();
    rig.connection.block("the disk is full");
    rig.connection.unblock();
    let methods = rig.methods();
    let reason = short("the disk is full");
    let blocked = connection_methods::Blocked { reason }.into();
    let unblocked = connection_methods::Unblocked {}.into();
    assert_eq!(methods, [(0, blocked), (0, unblocked)]);
    let new_secret = Bytes::from_static(b"token");
    let reason = ShortString::generated(&mut Chance(1));
    let secret = new_secret.clone();
    rig.send(
        0,
        connection_methods::UpdateSecret {
            new_secret,
            reason: reason.clone(),
        },
    );
    assert_eq!(rig.event(), Event::UpdateSecret { secret, reason });
    rig.connection.accept_secret();
    assert_eq!(
        rig.methods(),
        [(0, connection_methods::UpdateSecretOk {}.into())]
    );
}

/// What a client proves itself by is in no text of ours.
#[test]
fn credentials_are_not_shown() {
    let secret = Bytes::from_static(b"secret");
    let reason = short("it expires");
    let response = secret.clone();
    let methods: [Method; 3] = [
        start_ok().into(),
        connection_methods::SecureOk { response }.into(),
        connection_methods::UpdateSecret {
            new_secret: secret.clone(),
            reason: reason.clone(),
        }
        .into(),
    ];
    let credentials = Credentials::Password {
        mechanism: Mechanism::Plain,
        user: Bytes::from_static(b"guest"),
        password: secret.clone(),
    };
    let client_properties = Table::default();
    let events = [
        Event::Authenticate {
            credentials,
            client_properties,
        },
        Event::Response(secret.clone()),
        Event::UpdateSecret { secret, reason },
    ];
    let mut rig = Rig::with(Settings::default());
    rig.bytes(&PROTOCOL_HEADER);
    let mut bytes = Vec::new();
    put(start_ok(), 0, &mut bytes);
    // Half of its frame has come: the password, not the end.
    rig.bytes(&bytes[..bytes.len() - 1]);
    let shown = format!("{methods:?} {events:?} {:?}", rig.connection);
    assert!(
        !shown.contains("\"secret") && !shown.contains("0secret"),
        "{shown}"
    );
    assert!(shown.contains("it expires"));
}

/// A client has one secret renewed at a time.
#[test]
fn a_second_secret_waits_for_the_answer_to_the_first() {
    let mut rig = Rig::open();
    for _ in 0..2 {
        rig.send(0, connection_methods::UpdateSecret::default());
        assert!(matches!(rig.event(), Event::UpdateSecret { .. }));
        rig.connection.accept_secret();
        rig.frames();
    }
    rig.send(0, connection_methods::UpdateSecret::default());
    rig.send(0, connection_methods::UpdateSecret::default());
    rig.fails(503, connection_methods::UpdateSecret::ID);
}
