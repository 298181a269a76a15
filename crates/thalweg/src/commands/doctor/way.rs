//! Which transport a client on this host would choose for a server.

use crate::connection;
use client::group_file::{GroupFile, Host};
use net::{Fingerprint, LinkEvent, NetError, Reactor, ReactorEvent};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long an address may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// What was found of one endpoint.
pub struct Choice {
    endpoint: String,
    /// Why there is nothing to try, if so.
    problem: Option<String>,
    tried: Vec<Tried>,
}

/// One address, and how it went.
struct Tried {
    address: String,
    answers: bool,
    /// What carries the bytes, if it answers.
    transport: &'static str,
    why: String,
}

/// Tries what a client would try, in its order.
pub fn choose(endpoint: &str) -> Choice {
    let mut choice = Choice {
        endpoint: endpoint.to_owned(),
        problem: None,
        tried: Vec::new(),
    };
    let addresses = match endpoint.contains("://") {
        true => Ok((vec![endpoint.to_owned()], Vec::new())),
        false => GroupFile::read(Path::new(endpoint))
            .and_then(|file| Ok((file.endpoints_from(&Host::this())?, file.certificates))),
    };
    match addresses {
        Ok((addresses, certificates)) => {
            let tried = addresses.iter().map(|one| attempt(one, &certificates));
            choice.tried = tried.collect();
        }
        Err(problem) => choice.problem = Some(problem),
    }
    choice
}

fn attempt(address: &str, certificates: &[Fingerprint]) -> Tried {
    let result = match address.strip_prefix("shm://") {
        Some(path) => fabric::agree(path, ANSWER_TIMEOUT).map(|agreed| match agreed.refusal {
            Some(why) => ("unix", why),
            None if agreed.reads_our_memory => (
                "shm",
                "both sides have read back what the other put into its memory; the server reads \
                 large data where it lies in ours"
                    .to_owned(),
            ),
            None => (
                "shm",
                "both sides have read back what the other put into its memory; the server may not \
                 read ours, so large data is copied into the ring"
                    .to_owned(),
            ),
        }),
        None => connect(&GroupFile::dialled(address, certificates)).map(|()| {
            let scheme = match address.split("://").next() {
                Some("unix") => "unix",
                Some("tcp") => "tcp",
                Some("tls") => "tls",
                _ => "other",
            };
            (scheme, "it takes connections".to_owned())
        }),
    };
    match result {
        Ok((transport, why)) => Tried {
            address: address.to_owned(),
            answers: true,
            transport,
            why,
        },
        Err(error) => Tried {
            address: address.to_owned(),
            answers: false,
            transport: "none",
            why: error.to_string(),
        },
    }
}

/// Whether an address takes connections.
pub fn connect(address: &str) -> Result<(), NetError> {
    let transports = connection::driver_options().transports;
    let mut reactor = Reactor::new()?;
    reactor.add_link(transports.connect(address)?)?;
    let until = Instant::now() + ANSWER_TIMEOUT;
    loop {
        for event in reactor.by_ref() {
            match event {
                ReactorEvent::Link {
                    event: LinkEvent::Up,
                    ..
                } => return Ok(()),
                ReactorEvent::Link {
                    event: LinkEvent::Down(error),
                    ..
                } => return Err(error),
                _ => {}
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(NetError::Closed(format!(
                "{address} does not answer within {ANSWER_TIMEOUT:?}"
            )));
        }
        reactor.wait(Some(left))?;
    }
}

impl Choice {
    /// Whether one of the addresses answers.
    pub fn answers(&self) -> bool {
        self.chosen().is_some()
    }

    fn chosen(&self) -> Option<&Tried> {
        self.tried.iter().find(|tried| tried.answers)
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let tried = self.tried.iter().map(|tried| {
            json!({
                "address": tried.address,
                "answers": tried.answers,
                "transport": tried.transport,
                "why": tried.why,
            })
        });
        json!({
            "endpoint": self.endpoint,
            "problem": self.problem,
            "chosen": self.chosen().map(|tried| tried.transport),
            "address": self.chosen().map(|tried| tried.address.clone()),
            "tried": tried.collect::<Vec<_>>(),
        })
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut lines = vec![format!("{}:", self.endpoint)];
        if let Some(problem) = &self.problem {
            lines.push(format!("  cannot be reached: {problem}"));
        }
        lines.extend(self.tried.iter().map(|tried| {
            let sign = if tried.answers { "yes" } else { "no" };
            format!("  {:<4}{}: {}", sign, tried.address, tried.why)
        }));
        match self.chosen() {
            Some(chosen) if self.tried.len() > 1 => lines.push(format!(
                "  a client here uses {}, by {}: the first in its order that answers",
                chosen.transport, chosen.address
            )),
            Some(chosen) => lines.push(format!("  a client here uses {}", chosen.transport)),
            None => lines.push("  a client here finds nobody".to_owned()),
        }
        lines.join("\n")
    }
}
