//! `thalweg relay source` and `thalweg relay sink`: ZeroMQ and nanomsg on one side, a topic on the
//! other.

mod account;
mod message;
mod sink;
mod source;

use super::args::EndArgs;
use super::mirror::side;
use crate::failure::{About, Failure};
use crate::interrupt::on_interrupt;
use crate::output;
use client::{Driver, TopicHandle};
use pushpull::{Endpoint, Place, Reports, Side, SocketOptions};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use topic::TopicKind;

pub use sink::run as sink;
pub use source::run as source;

/// How often it is looked whether the user wants an end.
const LOOK: Duration = Duration::from_millis(100);
/// How long the server may take over what is left when the user wants an end.
const LAST_FLUSH: Duration = Duration::from_secs(30);

/// What Ctrl-C sets.
#[derive(Clone, Default)]
struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    fn install() -> Result<Self, Failure> {
        let asked = Self::default();
        let sets = asked.clone();
        on_interrupt(move || sets.0.store(true, Ordering::Relaxed))?;
        Ok(asked)
    }

    fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A topic on one side, and what is needed of the other.
struct End {
    /// Keeps the connection to the server.
    _driver: Driver,
    topic: TopicHandle,
    socket: SocketOptions,
    interrupt: Interrupt,
    reports: Arc<Reports>,
}

impl End {
    /// Checks where the socket is to be, and opens the topic.
    fn open(
        endpoint: &Endpoint,
        expected: Side,
        args: &EndArgs,
        (server, topic): (&str, &str),
    ) -> Result<Self, Failure> {
        let place = place(endpoint, expected, args)?;
        let reports = Arc::new(Reports::new(output::report));
        let side = side(server, args.credential.clone(), args.tls_ca.as_deref());
        let mut options = side.options;
        options.client_name = format!("thalweg relay {}", std::process::id());
        let driver = Driver::connect(side.endpoint, options).about(server)?;
        let handle = driver.open_topic(topic).about(topic)?;
        if handle.definition().kind() == TopicKind::Steps {
            let what = "is a stream of steps, not of events";
            return Err(Failure::usage(topic, what));
        }
        // Until here Ctrl-C ends it at once.
        let interrupt = Interrupt::install()?;
        Ok(Self {
            _driver: driver,
            topic: handle,
            socket: SocketOptions {
                held_bytes_max: u64::from(args.memory) << 20,
                reports: reports.clone(),
                ..SocketOptions::new(endpoint.protocol, place)
            },
            interrupt,
            reports,
        })
    }
}

/// Where the socket is: on this host alone, unless the operator says otherwise, which is said then.
fn place(endpoint: &Endpoint, expected: Side, args: &EndArgs) -> Result<Place, Failure> {
    let text = endpoint.to_string();
    if endpoint.side != expected {
        let what = match expected {
            Side::Pull => "a source takes messages: zmq-pull:// or sp-pull://",
            Side::Push => "a sink sends messages: zmq-push:// or sp-push://",
        };
        return Err(Failure::usage(text, what));
    }
    let authority = endpoint.authority.clone();
    let is_beyond = |address: &SocketAddr| !address.ip().to_canonical().is_loopback();
    if args.bind {
        let found: Vec<SocketAddr> = authority.to_socket_addrs().about(&text)?.collect();
        if found.iter().any(is_beyond) {
            let what = "can be reached from other hosts, and neither ZeroMQ nor nanomsg encrypts or asks who somebody \
                        is: bind at 127.0.0.1; --insecure-listen allows it";
            allow(&text, args.insecure_listen, what)?;
        }
        return Ok(Place::Bind(found));
    }
    // A name that is not known yet is looked up again, and what it stands for is checked then, too.
    let mut found = authority.to_socket_addrs().into_iter().flatten();
    if found.any(|address| is_beyond(&address)) {
        let what = "is another host's, and neither ZeroMQ nor nanomsg encrypts or asks who somebody is: go through a \
                    tunnel; --insecure-connect allows it";
        allow(&text, args.insecure_connect, what)?;
    }
    Ok(Place::Connect {
        authority,
        beyond_the_host: args.insecure_connect,
    })
}

/// Says what the operator has allowed, or refuses it.
fn allow(endpoint: &str, is_allowed: bool, refused: &str) -> Result<(), Failure> {
    if !is_allowed {
        return Err(Failure::usage(endpoint, refused));
    }
    output::report(&format!(
        "warning: at {endpoint} nothing is encrypted and nobody is asked who they are: whoever is on the network \
         between can read and send messages"
    ));
    Ok(())
}
