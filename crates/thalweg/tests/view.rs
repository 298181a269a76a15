//! `thalweg view`: what its page gets over HTTP, and who gets nothing.

use crate::rig;

use client::*;
use rig::{Rig, ServerProcess, WATCHDOG, signal, wait};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A server with the topic `scan`, and a producer of it.
struct Source {
    rig: Rig,
    server: ServerProcess,
    producer: Producer,
}

impl Source {
    fn new(create: &[&str]) -> Self {
        let rig = Rig::default();
        let server = rig.serve(&[]);
        rig.run(&[&["topic", "create", "scan"], create].concat())
            .ok();
        let endpoint = Endpoint::GroupFile(rig.group_file());
        let driver = Driver::connect(endpoint, DriverOptions::default()).unwrap();
        let topic = driver.open_topic("scan").unwrap();
        let producer = topic.producer(ProducerOptions::default()).unwrap();
        Self {
            rig,
            server,
            producer,
        }
    }

    fn push(&self, metadata: &str, data: &[u8]) {
        let event = Event::new(metadata.as_bytes()).with_data(data.to_vec());
        self.producer.push(event).unwrap();
    }

    fn flush(&self) {
        self.producer.flush(WATCHDOG).unwrap();
    }

    /// An array of unsigned integers of 16 bits.
    fn push_u16(&self, rows: usize, values: &[u16]) {
        let shape = [rows, values.len() / rows];
        let data: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        self.push(&json!({"dtype": "<u2", "shape": shape}).to_string(), &data);
        self.flush();
    }

    fn view(&self) -> View {
        View::new(&self.rig, &["scan"])
    }
}

/// A `thalweg view`; killed when dropped.
struct View {
    child: Child,
    address: String,
    token: String,
}

impl View {
    fn new(rig: &Rig, args: &[&str]) -> Self {
        let mut child = rig
            .thalweg(&[&["view"], args].concat())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut url = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut url).unwrap();
        let place = url.trim_end().strip_prefix("http://").unwrap();
        let (address, token) = place.split_once("/?token=").unwrap();
        let (address, token) = (address.to_owned(), token.to_owned());
        Self {
            child,
            address,
            token,
        }
    }

    /// What comes for these bytes, until the end.
    fn say(&self, request: &str) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(WATCHDOG)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .unwrap();
        let body = answer.split_off(end + 4);
        (String::from_utf8(answer).unwrap(), body)
    }

    fn get(&self, target: &str, host: &str) -> (String, Vec<u8>) {
        self.say(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
    }

    fn status(&self, target: &str, host: &str) -> (u16, usize) {
        let (head, body) = self.get(target, host);
        (head[9..12].parse().unwrap(), body.len())
    }

    fn frame(&self, query: &str) -> (Value, Vec<u8>) {
        let target = format!("/frame?token={}&{query}", self.token);
        let (head, body) = self.get(&target, &self.address);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let end = body.iter().position(|byte| *byte == b'\n').unwrap();
        (
            serde_json::from_slice(&body[..end]).unwrap(),
            body[end + 1..].to_vec(),
        )
    }

    /// Asks until the answer is as wanted: it may be a moment old.
    fn until(&self, query: &str, is_wanted: impl Fn(&Value) -> bool) -> (Value, Vec<u8>) {
        let deadline = Instant::now() + WATCHDOG;
        loop {
            let (said, levels) = self.frame(query);
            if is_wanted(&said) {
                return (said, levels);
            }
            assert!(Instant::now() < deadline, "{said}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What is shown of the event with this offset.
    fn event(&self, offset: u64, query: &str) -> (Value, Vec<u8>) {
        self.until(query, |said| said["event"]["offset"] == offset)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn who_has_no_token_or_comes_by_another_name_gets_nothing() {
    let source = Source::new(&[]);
    source.push_u16(1, &[1, 2]);
    let view = source.view();
    let (address, token) = (view.address.as_str(), view.token.as_str());
    let page = format!("/?token={token}");
    let (head, body) = view.get(&page, address);
    assert!(
        head.starts_with("HTTP/1.1 200 ") && head.contains("default-src 'none'"),
        "{head}"
    );
    let page_text = String::from_utf8(body).unwrap();
    let nonce = head.split_once("script-src 'nonce-").unwrap().1;
    let nonce = nonce.split_once('\'').unwrap().0;
    assert!(
        page_text.contains(&format!("<script nonce=\"{nonce}\">")),
        "{head}"
    );
    assert!(!page_text.contains('@') && !page_text.contains(token));
    assert_eq!(view.status(&page, "localhost:1").0, 200);

    let mut wrong = token.to_owned();
    wrong.replace_range(0..1, if token.starts_with('0') { "1" } else { "0" });
    let (half, long) = (&token[..token.len() / 2], format!("{token}0"));
    for path in ["/", "/frame", "/elsewhere"] {
        for token in ["", half, &wrong, &long] {
            let target = format!("{path}?token={token}");
            assert_eq!(view.status(&target, address), (403, 0), "{target}");
        }
        assert_eq!(view.status(path, address), (403, 0), "{path}");
        for host in [
            "evil.example",
            "127.0.0.1.evil.example:80",
            "192.168.0.1",
            "",
        ] {
            let target = format!("{path}?token={token}");
            assert_eq!(view.status(&target, host), (403, 0), "{path} of {host}");
        }
    }
    let no_host = view.say(&format!("GET {page} HTTP/1.1\r\n\r\n"));
    assert!(no_host.0.starts_with("HTTP/1.1 403 ") && no_host.1.is_empty());
    assert_eq!(view.status(&format!("/x?token={token}"), address), (404, 0));
    let post = view.say(&format!("POST {page} HTTP/1.1\r\nHost: {address}\r\n\r\n"));
    assert!(post.0.starts_with("HTTP/1.1 405 "), "{}", post.0);
    let none = view.say("\u{1}\u{2}\u{3}\r\n\r\n");
    assert!(none.0.starts_with("HTTP/1.1 400 "), "{}", none.0);
    // It goes on behind those who send nothing, too much or leave.
    let _silent: Vec<_> = (0..4)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    let mut long = TcpStream::connect(address).unwrap();
    let _ = long.write_all(&[b'a'; 1 << 20]);
    drop(long);
    assert_eq!(view.status(&page, address).0, 200);
    let (head, sentence) = view.get(&format!("/frame?token={token}&low=9&high=3"), address);
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    assert!(String::from_utf8(sentence).unwrap().contains("below high"));
}

#[test]
fn arrays_are_pictures_and_what_is_none_says_why() {
    let source = Source::new(&[]);
    let view = source.view();
    let (said, levels) = view.frame("");
    assert_eq!((&said["event"], &said["events"]), (&Value::Null, &json!(0)));
    assert_eq!((&said["away"], levels.len()), (&Value::Null, 0));

    let all = "low=0&high=100";
    let ramp: Vec<u16> = (0..255).map(|n| 300 + 20 * n).collect();
    source.push_u16(15, &ramp);
    let (said, levels) = view.event(0, all);
    let picture = &said["picture"];
    assert_eq!(levels, (1..=255).collect::<Vec<u8>>(), "{said}");
    assert_eq!(
        (&picture["width"], &picture["height"]),
        (&json!(17), &json!(15))
    );
    assert_eq!(
        (&picture["low"], &picture["high"]),
        (&json!(300.0), &json!(5380.0))
    );
    assert_eq!(
        (&picture["kind"], &picture["steps"]),
        (&json!("grey"), &json!([1, 1]))
    );
    let event = &said["event"];
    assert_eq!(
        (&event["array"], &event["bytes"]),
        (&json!("<u2 [15,17]"), &json!(510))
    );
    let name = event["name"].as_str().unwrap().to_owned();
    let (again, levels) = view.frame(&format!("{all}&after={name}"));
    assert_eq!(
        (&again["picture"], levels.len()),
        (&Value::Null, 0),
        "it has it"
    );
    assert_eq!(again["event"]["name"], name.as_str());
    // The upper half of the values has all levels.
    let (said, levels) = view.frame("low=50&high=100");
    assert_eq!(
        (levels[128], levels[190], levels[254]),
        (3, 127, 255),
        "{said}"
    );
    assert!(levels[..128].iter().all(|level| *level == 1), "{levels:?}");

    let values = [f32::NAN, 1.0, 10.0, 100.0, 0.0, f32::INFINITY];
    let data: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_be_bytes())
        .collect();
    source.push(r#"{"dtype":">f4","shape":[2,3],"order":"F","n":7}"#, &data);
    source.flush();
    let (said, levels) = view.event(1, &format!("{all}&log=1"));
    // Columns lie behind one another: the first row has the 1st, 3rd and 5th value.
    assert_eq!(levels, [0, 128, 1, 1, 255, 255], "{said}");
    assert!(
        said["event"]["metadata"]
            .as_str()
            .unwrap()
            .contains("\"n\":7")
    );

    source.push(r#"{"dtype":"|u1","shape":[1,2,3]}"#, &[1, 2, 3, 4, 5, 6]);
    source.flush();
    let (said, levels) = view.event(2, "");
    assert_eq!(
        (levels, &said["picture"]["kind"]),
        (vec![1, 2, 3, 4, 5, 6], &json!("rgb"))
    );

    source.push(r#"{"dtype":"<i2","shape":[3]}"#, &[0, 0, 0xff, 0xff, 1, 0]);
    source.flush();
    let (said, levels) = view.event(3, "");
    assert_eq!(
        (levels, &said["picture"]["kind"]),
        (vec![128, 1, 255], &json!("line"))
    );

    // Large data is not in its batch, and of a large frame not everything is read.
    let large: Vec<u16> = (0..2048u32 * 1100).map(|at| (at / 1100) as u16).collect();
    source.push_u16(2048, &large);
    let (said, levels) = view.event(4, all);
    let picture = &said["picture"];
    assert_eq!(
        (&picture["width"], &picture["height"]),
        (&json!(550), &json!(1024))
    );
    assert_eq!(picture["steps"], json!([2, 2]));
    assert_eq!(
        (&picture["low"], &picture["high"]),
        (&json!(0.0), &json!(2046.0))
    );
    let rows: Vec<u8> = levels.chunks(550).map(|row| row[0]).collect();
    assert!(
        levels
            .chunks(550)
            .all(|row| row.iter().all(|level| *level == row[0]))
    );
    let expected = (0..1024).map(|row| 1 + (f64::from(row) / 1023.0 * 254.0).round() as u8);
    assert_eq!(rows, expected.collect::<Vec<_>>());

    let ones = "1,".repeat(1000);
    let long = format!(r#"{{"dtype":"<u2","shape":[{ones}1]}}"#);
    for (metadata, data, why) in [
        (r#"{"note":"begin"}"#, &b""[..], "no array"),
        ("not JSON", b"abc", "no array"),
        (
            r#"{"dtype":[["a","<u2"]],"shape":[1]}"#,
            b"ab",
            "structured",
        ),
        (r#"{"dtype":"<c8","shape":[1]}"#, b"12345678", "dtype <c8"),
        (&long, b"ab", "shape [1,1,1,"),
        (r#"{"dtype":"<u2","shape":[1,1,1]}"#, b"ab", "shape [1,1,1]"),
        (r#"{"dtype":"<u2","shape":[2,2]}"#, b"ab", "2 bytes"),
    ] {
        let before = view.frame("").0["event"]["offset"].as_u64().unwrap();
        source.push(metadata, data);
        source.flush();
        let (said, levels) = view.event(before + 1, "");
        let event = &said["event"];
        let note = event["note"].as_str().unwrap();
        assert!(note.contains(why) && note.len() < 600, "{said}");
        assert_eq!(
            (&said["picture"], levels.len()),
            (&Value::Null, 0),
            "{said}"
        );
        assert_eq!(event["metadata"], metadata);
    }
}

#[test]
fn a_page_that_asks_seldom_gets_the_newest_of_all_partitions_and_a_count() {
    let source = Source::new(&["--partitions", "3"]);
    source.push_u16(1, &[1, 2]);
    let view = source.view();
    let (first, _) = view.until("", |said| said["event"].is_object());
    assert_eq!((&first["events"], &first["gaps"]), (&json!(1), &json!([])));
    for n in 0..50 {
        source.push_u16(1, &[n, 0]);
    }
    // The last is the only one whose first value is the lower one.
    source.push_u16(1, &[0, 9]);
    let (last, levels) = view.until("low=0&high=100", |said| said["events"] == 52);
    assert_eq!(levels, [1, 255], "{last}");
    assert!(
        last["rate"].as_f64().unwrap() > 0.0 && last["event"]["lag_ms"].is_u64(),
        "{last}"
    );
}

/// How many bytes of batches and answers a server has sent.
fn sent(rig: &Rig) -> u64 {
    let status = rig.run(&["status", "--json"]).json();
    status[0]["counters"]["payload_bytes_sent"]
        .as_u64()
        .unwrap()
}

#[test]
fn nothing_is_read_without_a_page_and_five_events_a_second_with_many() {
    const EVENT_BYTES: u64 = 200_000;
    let source = Source::new(&[]);
    let view = source.view();
    let metadata = format!("\"{}\"", "m".repeat(EVENT_BYTES as usize));
    let before = sent(&source.rig);
    for _ in 0..10 {
        source.push(&metadata, b"");
        source.flush();
    }
    assert!(sent(&source.rig) - before < EVENT_BYTES, "nobody asked");
    let begun = Instant::now();
    let mut names = std::collections::BTreeSet::new();
    for _ in 0..100 {
        source.push(&metadata, b"");
        source.flush();
        let (said, _) = view.frame("");
        let event = &said["event"];
        names.insert(event["name"].as_str().unwrap().to_owned());
        assert!(
            event["metadata"].as_str().unwrap().len() < 5000,
            "a part of it is shown"
        );
    }
    let read = (sent(&source.rig) - before) / EVENT_BYTES;
    let most = begun.elapsed().as_millis() as u64 / 200 + 1;
    assert!(
        read <= most && names.len() as u64 <= most,
        "{read} of {most}, {}",
        names.len()
    );
}

#[test]
fn a_server_that_is_away_and_a_topic_that_is_made_anew_are_told_and_waited_for() {
    let source = Source::new(&[]);
    source.push_u16(1, &[1, 2]);
    let view = View::new(&source.rig, &["scan", "--timeout", "2"]);
    let (before, _) = view.until("", |said| said["event"].is_object());
    // It hangs, and goes on.
    signal(source.server.pid(), Signal::STOP);
    view.until("", |said| said["away"].is_string());
    signal(source.server.pid(), Signal::CONT);
    view.until("", |said| said["away"].is_null());
    let Source {
        rig,
        server,
        producer,
    } = source;
    drop(producer);
    server.kill();
    let (away, levels) = view.until("", |said| said["away"].is_string());
    assert_eq!(
        (&away["event"]["name"], levels.len()),
        (&before["event"]["name"], 2),
        "{away}"
    );
    let _server = rig.serve(&[]);
    let (back, _) = view.until("", |said| said["away"].is_null());
    assert_eq!(back["event"]["name"], before["event"]["name"]);

    rig.run(&["topic", "rm", "scan", "--yes"]).ok();
    view.until("", |said| said["away"].is_string());
    rig.run(&["topic", "create", "scan"]).ok();
    rig.run_with(&["produce", "scan"], "{\"n\":1}\n").ok();
    let (anew, _) = view.until("", |said| {
        said["away"].is_null() && said["event"]["note"].is_string()
    });
    assert_ne!(
        anew["event"]["name"], before["event"]["name"],
        "it is another event"
    );
}

#[test]
fn a_signal_ends_it_and_what_is_not_there_is_said_at_once() {
    let source = Source::new(&[]);
    for name in [Signal::INT, Signal::TERM] {
        let mut view = source.view();
        let _waiting = TcpStream::connect(&view.address).unwrap();
        signal(view.child.id(), name);
        assert_eq!(wait(&mut view.child).code(), Some(0), "{name:?}");
    }
    let json = source.view();
    let port = json.address.rsplit_once(':').unwrap().1;
    let taken = source.rig.run(&["view", "scan", "--port", port]).exits(1);
    assert!(taken.stderr.contains(&json.address), "{}", taken.stderr);
    let unknown = source.rig.run(&["view", "nothing"]).exits(1);
    assert!(unknown.stderr.contains("nothing"), "{}", unknown.stderr);
    let nobody = Rig::default().run(&["view", "scan"]).exits(5);
    assert!(nobody.stderr.contains("thalweg.json"), "{}", nobody.stderr);
}
