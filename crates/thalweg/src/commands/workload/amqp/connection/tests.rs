//! The client's side against servers that say what a test wants.

use super::*;
use ::amqp::{confirm, queue};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

/// A server that says what a test wants.
struct Server {
    socket: TcpStream,
    input: BytesMut,
}

impl Server {
    /// Waits for a client and lets it in.
    fn open(listener: &TcpListener) -> Self {
        let (mut socket, _) = listener.accept().unwrap();
        let mut header = [0; 8];
        socket.read_exact(&mut header).unwrap();
        assert_eq!(header, PROTOCOL_HEADER);
        let mut server = Self {
            socket,
            input: BytesMut::new(),
        };
        let start = connection_methods::Start {
            version_minor: 9,
            mechanisms: Bytes::from_static(b"AMQPLAIN PLAIN"),
            ..connection_methods::Start::default()
        };
        server.say(0, start);
        let Method::ConnectionStartOk(start_ok) = server.hear() else {
            panic!("no login");
        };
        assert_eq!(&start_ok.response[..], b"\0lab\0secret");
        let tune = connection_methods::Tune {
            channel_max: 10,
            // As few bytes as a frame can have: all bodies come in several.
            frame_max: 4096,
            heartbeat: 60,
        };
        server.say(0, tune);
        let Method::ConnectionTuneOk(tune_ok) = server.hear() else {
            panic!("no tuning");
        };
        assert_eq!((tune_ok.frame_max, tune_ok.heartbeat), (4096, 0));
        let Method::ConnectionOpen(open) = server.hear() else {
            panic!("no virtual host");
        };
        assert_eq!(&*open.virtual_host, "runs");
        server.say(0, connection_methods::OpenOk {});
        server
    }

    fn say(&mut self, channel: u16, method: impl Into<Method>) {
        let method = method.into();
        self.say_frame(&Frame::Method { channel, method });
    }

    fn say_frame(&mut self, frame: &Frame) {
        let mut bytes = BytesMut::new();
        frame.encode(&mut bytes);
        self.socket.write_all(&bytes).unwrap();
    }

    fn hear_frame(&mut self) -> Frame {
        loop {
            if let Some(frame) = Frame::decode(&mut self.input, 4096).unwrap() {
                return frame;
            }
            let mut bytes = [0; 4096];
            let read = self.socket.read(&mut bytes).unwrap();
            assert!(read > 0, "the client is gone");
            self.input.extend_from_slice(&bytes[..read]);
        }
    }

    fn hear(&mut self) -> Method {
        match self.hear_frame() {
            Frame::Method { method, .. } => method,
            other => panic!("{other:?}"),
        }
    }

    /// A message for a consumer, whose body comes in pieces.
    fn deliver(&mut self, tag: u64, pieces: &[&[u8]]) {
        let deliver = basic::Deliver {
            delivery_tag: tag,
            redelivered: tag == 2,
            ..basic::Deliver::default()
        };
        self.say(1, deliver);
        let header = ContentHeader {
            class: 60,
            body_bytes: pieces.iter().map(|piece| piece.len() as u64).sum(),
            properties: RawProperties::default(),
        };
        self.say_frame(&Frame::Header { channel: 1, header });
        for piece in pieces {
            let bytes = Bytes::copy_from_slice(piece);
            self.say_frame(&Frame::Body { channel: 1, bytes });
        }
    }
}

/// A client, and a server that goes on as is said when the client has come in.
fn with_server(
    course: impl FnOnce(&mut Server) + Send + 'static,
) -> (Result<Connection, Failure>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || course(&mut Server::open(&listener)));
    let url = AmqpUrl::parse(&format!("amqp://lab:secret@127.0.0.1:{port}/runs")).unwrap();
    (Connection::connect(&url), server)
}

const LONG: Duration = Duration::from_secs(60);

/// The next delivery.
fn delivery(connection: &mut Connection) -> Delivery {
    match connection.next(LONG).unwrap() {
        Some(Event::Delivery(delivery)) => delivery,
        other => panic!("{other:?}"),
    }
}

#[test]
fn messages_come_whole_whatever_their_frames_are() {
    let (connection, server) = with_server(|server| {
        server.say_frame(&Frame::Heartbeat);
        server.deliver(1, &[]);
        server.deliver(2, &[b"one piece"]);
        server.deliver(3, &[b"three", b" ", b"pieces"]);
    });
    let mut connection = connection.unwrap();
    for (tag, body) in [(1, ""), (2, "one piece"), (3, "three pieces")] {
        let came = delivery(&mut connection);
        assert_eq!((came.tag, &came.body[..]), (tag, body.as_bytes()));
        assert_eq!(came.is_redelivered, tag == 2);
    }
    server.join().unwrap();
    let failure = connection.next(LONG).unwrap_err().to_string();
    assert!(failure.contains("without a word"), "{failure}");
}

#[test]
fn what_comes_before_an_answer_is_kept() {
    let (connection, server) = with_server(|server| {
        assert!(matches!(server.hear(), Method::QueueDeclare(_)));
        server.deliver(1, &[b"first"]);
        let ack = basic::Ack {
            delivery_tag: 7,
            multiple: true,
        };
        server.say(1, ack);
        server.say(1, queue::DeclareOk::default());
        assert!(matches!(server.hear(), Method::ConnectionClose(_)));
        // Nobody wants it any more.
        server.deliver(2, &[b"late"]);
        server.say(0, connection_methods::CloseOk {});
    });
    let mut connection = connection.unwrap();
    let declared = connection.call(1, queue::Declare::default()).unwrap();
    assert!(matches!(declared, Method::QueueDeclareOk(_)));
    assert_eq!(delivery(&mut connection).body, "first");
    let confirm = connection.next(LONG).unwrap();
    assert!(
        matches!(
            confirm,
            Some(Event::Confirm {
                tag: 7,
                multiple: true,
                is_taken: true
            })
        ),
        "{confirm:?}"
    );
    connection.close().unwrap();
    server.join().unwrap();
}

#[test]
fn a_message_is_published_in_frames_that_the_server_takes() {
    let (connection, server) = with_server(|server| {
        assert!(matches!(server.hear(), Method::BasicPublish(_)));
        let Frame::Header { header, .. } = server.hear_frame() else {
            panic!("no header");
        };
        let mut body = Vec::new();
        while body.len() < header.body_bytes as usize {
            let Frame::Body { bytes, .. } = server.hear_frame() else {
                panic!("no body");
            };
            body.extend_from_slice(&bytes);
        }
        let expected = [vec![1; 32], vec![2; 5000], vec![3; 8000]].concat();
        assert_eq!(body, expected);
        assert!(matches!(server.hear(), Method::ConfirmSelect(_)));
        server.say(1, confirm::SelectOk {});
    });
    let mut connection = connection.unwrap();
    let route = Route {
        exchange: short(""),
        key: short("queue"),
    };
    let pieces: [&[u8]; 3] = [&[1; 32], &[2; 5000], &[3; 8000]];
    let none = RawProperties::default();
    connection.publish(1, &route, &none, pieces).unwrap();
    connection.call(1, confirm::Select::default()).unwrap();
    server.join().unwrap();
}

#[test]
fn why_a_server_refuses_is_said() {
    let close = |reply_text: &str| channel::Close {
        reply_code: 406,
        reply_text: short(reply_text),
        class_id: 50,
        method_id: 10,
    };
    let (connection, server) = with_server(move |server| {
        assert!(matches!(server.hear(), Method::QueueDeclare(_)));
        server.say(1, close("PRECONDITION_FAILED - inequivalent arg"));
        assert!(matches!(server.hear(), Method::ChannelCloseOk(_)));
    });
    let mut connection = connection.unwrap();
    let failure = connection.call(1, queue::Declare::default()).unwrap_err();
    let failure = failure.to_string();
    assert!(
        failure.contains("406 PRECONDITION_FAILED - inequivalent arg"),
        "{failure}"
    );
    server.join().unwrap();
}

/// What a server does behind the login, and what the client says of that.
type Course = (fn(&mut Server), &'static str);

#[test]
fn what_no_server_says_ends_the_connection() {
    let courses: [Course; 4] = [
        (
            |server| {
                server.say(1, basic::Deliver::default());
                let header = ContentHeader {
                    class: 60,
                    body_bytes: 2,
                    properties: RawProperties::default(),
                };
                server.say_frame(&Frame::Header { channel: 1, header });
                let bytes = Bytes::from_static(b"long");
                server.say_frame(&Frame::Body { channel: 1, bytes });
            },
            "a body that is longer than its header says",
        ),
        (
            |server| {
                let bytes = Bytes::from_static(b"body");
                server.say_frame(&Frame::Body { channel: 1, bytes });
            },
            "a body without its message",
        ),
        (
            |server| server.say(1, basic::Return::default()),
            "a message where none is due",
        ),
        (
            |server| server.socket.write_all(&[9; 20]).unwrap(),
            "no AMQP 0-9-1",
        ),
    ];
    for (course, says) in courses {
        let (connection, server) = with_server(course);
        let failure = connection.unwrap().next(LONG).unwrap_err().to_string();
        assert!(failure.contains(says), "{failure}");
        assert!(!failure.contains("secret"), "{failure}");
        server.join().unwrap();
    }
}
