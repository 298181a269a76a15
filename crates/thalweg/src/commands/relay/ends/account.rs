//! How far a source or a sink is, as it is said now and then.

use crate::commands::relay::args::EndArgs;
use crate::failure::Failure;
use crate::output::{self, Output};
use pushpull::Endpoint;
use serde_json::json;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Counts, and when they are said next.
pub struct Account {
    json: bool,
    what: &'static str,
    /// Events that were stored, or sent.
    pub events: u64,
    /// Their data.
    pub bytes: u64,
    /// Messages that the topic refused, or events that were lost before they were sent.
    pub lost: u64,
    next: Instant,
    every: Duration,
}

impl Account {
    /// Of nothing yet; `what` is what is done with events.
    pub fn new(args: &EndArgs, what: &'static str) -> Self {
        let every = Duration::try_from_secs_f64(args.every).unwrap_or(Duration::MAX);
        let every = every.clamp(super::LOOK, Duration::from_secs(1 << 30));
        Self {
            json: args.json,
            what,
            events: 0,
            bytes: 0,
            lost: 0,
            next: Instant::now() + every,
            every,
        }
    }

    /// Counts an event.
    pub fn count(&mut self, bytes: u64) {
        self.events += 1;
        self.bytes += bytes;
    }

    /// Says where the socket is.
    pub fn began(&self, endpoint: &Endpoint, address: Option<SocketAddr>) -> Result<(), Failure> {
        let address = address.map(|address| {
            let authority = address.to_string();
            let bound = Endpoint {
                authority,
                ..endpoint.clone()
            };
            bound.to_string()
        });
        let text = match &address {
            Some(address) => format!("listens at {address}"),
            None => format!("connects to {endpoint}"),
        };
        let value = json!({"event": "begun", "address": address, "endpoint": endpoint.to_string()});
        let mut out = Output::new(self.json);
        out.either(&value, &text)?;
        out.flush()
    }

    /// Says how far it is, if it is time.
    pub fn tell(&mut self, connections: usize) -> Result<(), Failure> {
        match Instant::now() < self.next {
            true => Ok(()),
            false => self.tell_now(connections),
        }
    }

    /// Says how far it is.
    pub fn tell_now(&mut self, connections: usize) -> Result<(), Failure> {
        self.next = Instant::now() + self.every;
        let (events, bytes, lost) = (self.events, self.bytes, self.lost);
        if !self.json {
            let (what, megabytes) = (self.what, bytes / 1_000_000);
            let lost = match lost {
                0 => String::new(),
                lost => format!(", {lost} lost"),
            };
            output::report(&format!(
                "{events} events {what}{lost}, {megabytes} MB; {connections} connected"
            ));
            return Ok(());
        }
        let value = json!({
            "event": "account", "events": events, "bytes": bytes, "lost": lost, "connections": connections,
        });
        let mut out = Output::new(true);
        out.json(&value)?;
        out.flush()
    }
}
