//! Connections: whom they mean, and who says nothing.

mod rig;

use rig::{Echo, Rig, WATCHDOG, client, hello, rest, trust, until};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

const RUN42: &str = "stf008-run42.stream.site.org";
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];
const DECODE_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 50];
const INTERNAL_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];

#[test]
fn bytes_go_to_the_instance_that_was_meant_as_they_came_and_back() {
    let rig = Rig::new(Echo::start().address);
    let running = rig.start();
    running.provision("run42");
    let (mut stream, hello) = running.greet(RUN42);
    stream.write_all(b"and more").unwrap();
    let mut back = vec![0; hello.len() + 8];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(back, [&hello[..], b"and more"].concat());
    // One end that has nothing more to say leaves the other way open.
    let many = vec![7; 3 << 20];
    let mut writer = stream.try_clone().unwrap();
    let sent = many.clone();
    let writing = std::thread::spawn(move || {
        writer.write_all(&sent).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    assert!(rest(&mut stream) == many);
    writing.join().unwrap();
    assert!(running.gateway.counters().bytes.load(Ordering::Relaxed) >= 6 << 20);
    running.gateway.stop();
}

#[test]
fn who_asks_for_a_name_that_is_nobodys_gets_one_alert_and_one_line() {
    let rig = Rig::new(Echo::start().address);
    let running = rig.start();
    running.provision("run42");
    for name in ["stf008-run43.stream.site.org", "elsewhere.org", "127.0.0.1"] {
        let (mut stream, _) = running.greet(name);
        assert_eq!(rest(&mut stream), UNRECOGNIZED_NAME, "{name}");
    }
    let lines = rig.lines();
    let about: Vec<&str> = lines
        .lines()
        .filter(|line| line.contains("asks for"))
        .collect();
    assert_eq!(about.len(), 1, "{lines}");
    assert!(about[0].contains("stf008-run43"), "{lines}");
    assert_eq!(
        running.gateway.counters().unknown.load(Ordering::Relaxed),
        3
    );
    running.gateway.stop();
}

#[test]
fn what_is_no_tls_is_refused_and_what_breaks_off_is_forgotten() {
    let rig = Rig::new(Echo::start().address);
    let running = rig.start();
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
        &[0; 64],
    ] {
        let mut stream = running.connect();
        stream.write_all(bytes).unwrap();
        assert_eq!(rest(&mut stream), DECODE_ERROR);
    }
    let mut endless = running.connect();
    let record = [&[22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xff], &vec![0; 0x4000][..]].concat();
    let _ = endless.write_all(&record);
    let _ = endless.write_all(&vec![22; 100_000]);
    rest(&mut endless);
    drop(running.greet(RUN42));
    running.connect().write_all(&hello(RUN42)[..50]).unwrap();
    until("they are forgotten", || running.gateway.half_open() == 0);
    running.gateway.stop();
}

#[test]
fn who_does_not_say_in_time_whom_it_means_is_dropped() {
    let mut rig = Rig::new(Echo::start().address);
    rig.options.limits.hello = Duration::from_millis(150);
    let running = rig.start();
    let mut silent = running.connect();
    let mut slow = running.connect();
    slow.write_all(&hello(RUN42)[..20]).unwrap();
    // The gateway's own TLS as well.
    let (mut half, _) = running.greet(rig::API);
    assert!(rest(&mut silent).is_empty());
    assert!(rest(&mut slow).is_empty());
    assert!(!rest(&mut half).is_empty());
    assert!(rig.lines().contains("does not say in time whom it means"));
    running.gateway.stop();
}

#[test]
fn a_thousand_that_say_nothing_keep_nobody_out() {
    rig::allow_connections();
    let mut rig = Rig::new(Echo::start().address);
    rig.options.limits.half_open_max = 32;
    rig.options.limits.hello = WATCHDOG;
    let running = rig.start();
    running.provision("run42");
    let taken = || running.gateway.counters().accepted.load(Ordering::Relaxed);
    let before = taken();
    let mut silent: Vec<TcpStream> = Vec::new();
    for count in 1..=1000 {
        silent.push(running.connect());
        if count % 250 == 0 {
            until("they are taken", || taken() >= before + count);
            assert!(running.gateway.half_open() <= 32);
            let (mut stream, hello) = running.greet(RUN42);
            let mut back = vec![0; hello.len()];
            stream.read_exact(&mut back).unwrap();
        }
    }
    // The oldest went.
    assert!(rest(&mut silent[0]).is_empty());
    assert!(running.gateway.half_open() <= 32);
    running.gateway.stop();
}

#[test]
fn no_more_connections_than_the_bound_are_taken() {
    let mut rig = Rig::new(Echo::start().address);
    rig.options.limits.connections_max = 3;
    let running = rig.start();
    running.provision("run42");
    until("the interface's connection has ended", || {
        let (stream, hello) = running.greet(RUN42);
        let mut stream = stream;
        stream.read_exact(&mut vec![0; hello.len()]).is_ok()
    });
    let mut open = Vec::new();
    until("there are three", || {
        let (mut stream, hello) = running.greet(RUN42);
        let is_taken = stream.read_exact(&mut vec![0; hello.len()]).is_ok();
        if is_taken {
            open.push(stream);
        }
        !is_taken
    });
    assert!(open.len() <= 3);
    assert!(rig.lines().contains("there are 3 connections"));
    running.gateway.stop();
}

#[test]
fn who_passes_nothing_for_too_long_is_dropped() {
    let mut rig = Rig::new(Echo::start().address);
    rig.options.limits.idle = Duration::from_millis(200);
    let running = rig.start();
    running.provision("run42");
    let (mut stream, hello) = running.greet(RUN42);
    assert_eq!(rest(&mut stream), hello);
    running.gateway.stop();
}

#[test]
fn an_instance_that_takes_no_connection_is_an_alert_and_a_line() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let rig = Rig::new(address);
    let running = rig.start();
    running.provision("run42");
    drop(listener);
    let (mut stream, _) = running.greet(RUN42);
    assert_eq!(rest(&mut stream), INTERNAL_ERROR);
    assert!(
        rig.lines().contains("stf008/run42 is not reached"),
        "{}",
        rig.lines()
    );
    running.gateway.stop();
}

#[test]
fn a_gateway_that_ends_tls_passes_what_it_decrypts() {
    let mut rig = Rig::new(Echo::start().address);
    rig.options.mode = gateway::Mode::End;
    let running = rig.start();
    let made = running.provision("run42");
    let roots = trust(&rig.options.directory.join("tls/authority.pem"));
    let mut stream = client(RUN42, roots, running.connect());
    stream.write_all(b"plain").unwrap();
    let mut back = [0; 5];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"plain");
    let hash = running.gateway.certificate();
    assert!(
        made["thalwegUrl"].as_str().unwrap().contains(&hash),
        "{made}"
    );
    running.gateway.stop();
}
