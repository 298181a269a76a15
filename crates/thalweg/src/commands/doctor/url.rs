//! What a thalweg:// URL leads to, one step after the other. Its token is in no line.

use super::way;
use crate::connection;
use access::{Grants, Identity, Origin, Token, UnixTime, Verb};
use client::url::{SCHEME, StreamUrl, VARIABLE, url_in};
use client::{Driver, DriverOptions, Endpoint};
use net::Proxies;
use serde_json::{Value, json};
use std::net::ToSocketAddrs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long the server may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// What stands for the rest of a name in the examples that a server is asked about.
const ANY: &str = "x";

/// How a step went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Good,
    /// It does not work, and what comes after it does not either.
    Bad,
    /// Neither: what is said may matter.
    Note,
}

struct Step {
    name: &'static str,
    outcome: Outcome,
    text: String,
}

/// What was found of one URL.
pub struct Checked {
    /// Where it came from.
    source: String,
    steps: Vec<Step>,
}

/// A URL, and where it came from; nothing if that has none.
///
/// # Errors
/// If it is none.
fn find(endpoint: Option<&str>) -> Result<Option<StreamUrl>, String> {
    match endpoint {
        Some(text) if text.starts_with(SCHEME) => StreamUrl::parse(text).map(Some),
        Some(text) if text.contains("://") => Ok(None),
        Some(path) => url_in(Path::new(path)).map_err(|error| error.to_string()),
        None => {
            let text = client::url::from_environment();
            text.map(|text| StreamUrl::parse(&text)).transpose()
        }
    }
}

/// Checks the URL that an endpoint is or a file has, or that of the environment; nothing if there is none.
pub fn check(endpoint: Option<&str>) -> Option<Checked> {
    let mut checked = Checked {
        source: match endpoint {
            Some(text) if text.starts_with(SCHEME) => "the URL of the command line".to_owned(),
            Some(path) => path.to_owned(),
            None => VARIABLE.to_owned(),
        },
        steps: Vec::new(),
    };
    match find(endpoint) {
        Ok(None) => return None,
        Ok(Some(url)) => {
            if endpoint.is_some_and(|text| text.starts_with(SCHEME)) {
                let why = "others of this host see its token on a command line: put it into a file that only you \
                           can read, or into THALWEG_URL";
                checked.add("secret", Outcome::Note, why);
            }
            checked.follow(&url);
        }
        Err(why) => checked.add("url", Outcome::Bad, why),
    }
    Some(checked)
}

impl Checked {
    fn add(&mut self, name: &'static str, outcome: Outcome, text: impl Into<String>) {
        let text = text.into();
        self.steps.push(Step {
            name,
            outcome,
            text,
        });
    }

    /// Adds how something went; whether it went well.
    fn tell(&mut self, name: &'static str, went: Result<String, String>) -> bool {
        let is_good = went.is_ok();
        match went {
            Ok(text) => self.add(name, Outcome::Good, text),
            Err(why) => self.add(name, Outcome::Bad, why),
        }
        is_good
    }

    fn follow(&mut self, url: &StreamUrl) {
        if !url.token.starts_with(access::TEXT_PREFIX.as_bytes()) {
            return self.follow_jwt(url);
        }
        // The credential is looked at first: it can be checked without a connection.
        let token = std::str::from_utf8(&url.token)
            .map_err(|error| error.to_string())
            .and_then(|text| Token::from_text(text).map_err(|error| error.to_string()));
        let identity = token.as_ref().ok().map(|token| {
            let verified = token.as_if_verified().anywhere();
            verified.identity(Origin::default(), Arc::new(Grants::default()))
        });
        let said = token.as_ref().map_err(Clone::clone);
        let said = said.and_then(|token| credential(token, identity.as_ref()));
        let has_token = self.tell("credential", said);
        if !self.tell("name", name(&url.address)) || !self.tell("tls", tls(&url.address)) {
            return;
        }
        let Ok(token) = token else {
            return;
        };
        if token.limits().any(|limits| limits.once) {
            let why = "the token is good for one session: it is not tried, for that would be it";
            return self.add("session", Outcome::Note, why);
        }
        match session(url) {
            Err(why) => self.add("session", Outcome::Bad, why),
            Ok(driver) => {
                self.add("session", Outcome::Good, "the server takes the token");
                if has_token {
                    self.rights(&token, &driver);
                }
            }
        }
    }

    /// Of what another issuer has made only the server knows what it is good for.
    fn follow_jwt(&mut self, url: &StreamUrl) {
        self.add(
            "credential",
            Outcome::Note,
            "a JWT: the server knows what it is good for",
        );
        if self.tell("name", name(&url.address)) && self.tell("tls", tls(&url.address)) {
            let taken = session(url).map(|_| "the server takes the JWT".to_owned());
            self.tell("session", taken);
        }
    }

    /// What the server lets its holder do, by examples of the names that the token has.
    fn rights(&mut self, token: &Token, driver: &Driver) {
        let patterns = token.limits().find_map(|limits| limits.topics.clone());
        let names: Vec<String> = match patterns {
            Some(patterns) => patterns
                .iter()
                .map(|one| one.to_string().replace("**", ANY).replace('*', ANY))
                .collect(),
            None => vec![ANY.to_owned()],
        };
        let project = token.project();
        for topic in names {
            let name = match project {
                "" => topic,
                project => format!("{project}/{topic}"),
            };
            for verb in [Verb::Read, Verb::Write, Verb::Manage] {
                match driver.check_access(verb.name(), &name) {
                    Ok(checked) if checked.allowed => {
                        let text = format!("{} {name}", verb.name());
                        self.add("may", Outcome::Good, text);
                    }
                    Ok(checked) => self.add("may not", Outcome::Note, checked.reason),
                    Err(error) => return self.add("may", Outcome::Bad, error.to_string()),
                }
            }
        }
    }

    /// Whether all of the way works.
    pub fn is_good(&self) -> bool {
        self.steps.iter().all(|step| step.outcome != Outcome::Bad)
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let steps = self.steps.iter().map(|step| {
            let outcome = match step.outcome {
                Outcome::Good => "good",
                Outcome::Bad => "bad",
                Outcome::Note => "note",
            };
            json!({"name": step.name, "outcome": outcome, "text": step.text})
        });
        json!({
            "source": self.source,
            "good": self.is_good(),
            "steps": steps.collect::<Vec<_>>(),
        })
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut lines = vec![format!("{}:", self.source)];
        lines.extend(self.steps.iter().map(|step| {
            let sign = match step.outcome {
                Outcome::Good => "yes",
                Outcome::Bad => "no",
                Outcome::Note => "note",
            };
            format!("  {sign:<5}{:<11} {}", step.name, step.text)
        }));
        lines.push(match self.is_good() {
            true => "  a client here gets through".to_owned(),
            false => "  a client here does not get through".to_owned(),
        });
        lines.join("\n")
    }
}

/// What a token says of itself.
fn credential(token: &Token, identity: Option<&Identity>) -> Result<String, String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = UnixTime(u64::try_from(now.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX));
    if let Some(identity) = identity {
        identity.check(now).map_err(|denied| denied.to_string())?;
    }
    let sentences: Vec<String> = token.limits().flat_map(|one| one.sentences()).collect();
    let id = token.ids().last().map(ToString::to_string);
    Ok(format!(
        "token {}: {}",
        id.unwrap_or_default(),
        sentences.join("; ")
    ))
}

/// Where the name of an address leads.
fn name(address: &str) -> Result<String, String> {
    let place = address.trim_start_matches("tls://");
    let place = place.split(['?', '/']).next().unwrap_or_default();
    let (host, port) = place.rsplit_once(':').unwrap_or((place, "443"));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let proxy = Proxies::from_environment().to(host, port);
    if let Some(proxy) = proxy.map_err(|error| error.to_string())? {
        return Ok(format!(
            "{host} is looked up by the proxy {}",
            proxy.authority
        ));
    }
    let found = place.to_socket_addrs();
    let found = found.map_err(|error| format!("{host} is not found: {error}"))?;
    let mut found: Vec<String> = found.map(|one| one.ip().to_string()).collect();
    found.dedup();
    match found.is_empty() {
        true => Err(format!("{host} has no address")),
        false => Ok(format!("{host} is {}", found.join(", "))),
    }
}

/// Whether who answers there is who the URL says.
fn tls(address: &str) -> Result<String, String> {
    let shown = address.split('?').next().unwrap_or_default();
    match way::connect(address) {
        Ok(()) => Ok(format!(
            "{shown} answers, with a certificate that is trusted"
        )),
        Err(error) => Err(error.to_string()),
    }
}

fn session(url: &StreamUrl) -> Result<Driver, String> {
    let endpoint = Endpoint::Address {
        address: url.address.clone(),
        token: Some(url.token.clone()),
        directory: None,
    };
    let options = DriverOptions {
        client_name: format!("thalweg doctor {}", std::process::id()),
        connect_timeout: Some(ANSWER_TIMEOUT),
        request_timeout: ANSWER_TIMEOUT,
        ..connection::driver_options()
    };
    Driver::connect(endpoint, options).map_err(|error| error.to_string())
}
