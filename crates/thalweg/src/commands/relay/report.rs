//! What a relay says: addresses on standard output, remarks on standard error.

use super::rate;
use crate::failure::Failure;
use crate::output::{self, Output};
use relay::{Account, Event, RelayError, Target, Terms};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How often what has passed is said.
const EVERY: Duration = Duration::from_secs(10);

/// Says it.
pub struct Report {
    json: bool,
    next: Instant,
    said: Account,
    /// What has failed since the last account, each told once.
    failed: BTreeSet<String>,
}

impl Report {
    pub fn new(json: bool) -> Self {
        Self {
            json,
            next: Instant::now() + EVERY,
            said: Account::default(),
            failed: BTreeSet::new(),
        }
    }

    /// How long until the next account.
    pub fn until_account(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    fn say(&self, value: &Value, text: &str) -> Result<(), Failure> {
        let mut out = Output::new(self.json);
        out.either(value, text)?;
        out.flush()
    }

    /// The offer stands; this is what the other site needs, once.
    pub fn offered(
        &mut self,
        join: &str,
        address: Option<SocketAddr>,
        targets: &[Target],
    ) -> Result<(), Failure> {
        if !self.json {
            for target in targets {
                output::report(&format!("offers {} ({})", target.name, target.address));
            }
            let way = match address {
                Some(address) => format!("listens at {address}"),
                None => "waits at the gateway".to_owned(),
            };
            output::report(&format!(
                "{way}; the code is good for 10 minutes, once. At the other site:"
            ));
        }
        let address = address.map(|address| address.to_string());
        let value = json!({"event": "offered", "join": join, "address": address});
        self.say(&value, &format!("thalweg relay join {join}"))
    }

    /// Something has happened. How it ended, if it has.
    pub fn event(&mut self, event: Event) -> Result<Option<Result<(), RelayError>>, Failure> {
        match event {
            Event::Joined { peer, terms, lasts } => self.joined(&peer, terms, lasts)?,
            Event::Bound { name, address } => {
                let value = json!({"event": "bound", "name": name, "address": address.to_string()});
                self.say(&value, &format!("{name} at {address}"))?;
            }
            Event::Unbound(address) => {
                output::report(&format!(
                    "{address}: the other side offers no target of that name"
                ));
            }
            Event::Connected => self.state("connected", "the sites are connected")?,
            Event::Cut(why) => self.state("cut", &format!("the connection is cut: {why}"))?,
            Event::Failed(reason) => self.failed(format!("a connection failed: {reason}")),
            Event::Refused(why) => self.failed(format!("a connection failed: {why}")),
            Event::Note(text) => self.failed(text),
            Event::Ended(ended) => return Ok(Some(ended)),
        }
        Ok(None)
    }

    fn joined(&self, peer: &str, terms: Terms, lasts: Duration) -> Result<(), Failure> {
        let value = json!({
            "event": "joined",
            "peer": peer,
            "rate_up": terms.rate_up,
            "rate_down": terms.rate_down,
            "streams": terms.stripes,
            "seconds": lasts.as_secs(),
        });
        if self.json {
            return self.say(&value, "");
        }
        let limit = |bytes: u64| match bytes {
            0 => "without a limit".to_owned(),
            bytes => rate::text(bytes),
        };
        output::report(&format!(
            "joined with {peer}: {} to the offer, {} from it, {} connections, for {} min",
            limit(terms.rate_up),
            limit(terms.rate_down),
            terms.stripes,
            lasts.as_secs().div_ceil(60),
        ));
        Ok(())
    }

    fn state(&self, event: &str, text: &str) -> Result<(), Failure> {
        output::report(text);
        match self.json {
            true => self.say(&json!({"event": event}), ""),
            false => Ok(()),
        }
    }

    fn failed(&mut self, text: String) {
        if self.failed.len() < 16 && self.failed.insert(text.clone()) {
            output::report(&text);
        }
    }

    /// Says what has passed, if it is time to, and if anything has.
    pub fn account(&mut self, now: &Account, is_last: bool) -> Result<(), Failure> {
        if !is_last && Instant::now() < self.next {
            return Ok(());
        }
        self.next = Instant::now() + EVERY;
        self.failed.clear();
        let is_news = (now.bytes_in, now.bytes_out, now.streams)
            != (self.said.bytes_in, self.said.bytes_out, self.said.streams);
        self.said = now.clone();
        if self.json {
            let mut value = account_json(now);
            value["last"] = json!(is_last);
            return self.say(&value, "");
        }
        if is_news || is_last {
            output::report(&account_text(now));
        }
        Ok(())
    }
}

fn account_json(account: &Account) -> Value {
    json!({
        "event": "account",
        "bytes_in": account.bytes_in,
        "bytes_out": account.bytes_out,
        "streams": account.streams,
        "open": account.open,
        "refused": account.refused,
        "cuts": account.cuts,
        "connections": account.stripes,
        "retransmits": account.retransmits,
        "rtt_us": account.rtt.map(|rtt| rtt.as_micros() as u64),
    })
}

fn account_text(account: &Account) -> String {
    let rtt = match account.rtt {
        Some(rtt) => format!("round trip {:.1} ms", rtt.as_secs_f64() * 1e3),
        None => "no round trip yet".to_owned(),
    };
    format!(
        "{} in, {} out; {} streams, {} open; {rtt}; {} cuts, {} retransmits",
        bytes(account.bytes_in),
        bytes(account.bytes_out),
        account.streams,
        account.open,
        account.cuts,
        account.retransmits,
    )
}

fn bytes(count: u64) -> String {
    let count = count as f64;
    match count {
        count if count >= 1e9 => format!("{:.2} GB", count / 1e9),
        count if count >= 1e6 => format!("{:.1} MB", count / 1e6),
        count => format!("{:.1} kB", count / 1e3),
    }
}
