//! `thalweg relay mirror` and `thalweg relay promote`.

use super::args::{MirrorArgs, PromoteArgs};
use super::rate;
use crate::connection::driver_options;
use crate::failure::{Code, Failure};
use crate::interrupt::on_interrupt;
use crate::output::Output;
use crate::progress::Progress as Bar;
use client::{ClientError, CredentialEnds, DriverOptions, Endpoint};
use mirror::{Link, LinkError, LinkOptions, LinkState, MirroredTopic, Progress, Side, Stop};
use net::{Proxies, Tls, Trust};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How often the bar is drawn anew.
const BAR_EVERY: Duration = Duration::from_millis(500);
/// How long one try to reach a server may take: a second Ctrl-C ends it at once.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// How long a server may take over a request.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

pub fn run(args: MirrorArgs) -> Result<(), Failure> {
    let name = args.name.clone().unwrap_or_else(|| name_of(&args.to));
    let is_bar = !args.json && std::io::stderr().is_terminal();
    let every = Duration::try_from_secs_f64(args.every).unwrap_or(Duration::MAX);
    let options = LinkOptions {
        name: name.clone(),
        topics: args.topics.iter().map(|topic| mirrored(topic)).collect(),
        rate: args.rate,
        skips_damaged: args.skip_damaged,
        held_bytes_max: u64::from(args.memory) << 20,
        report_every: match is_bar {
            true => BAR_EVERY,
            false => every.max(Duration::from_millis(50)),
        },
    };
    let mut sources = BTreeSet::new();
    for topic in &options.topics {
        if !sources.insert(&topic.source) {
            let name = &topic.source;
            let text = format!("a link copies {name} once: another copy needs another --name");
            return Err(Failure::usage("TOPIC", text));
        }
    }
    let from = side(
        &args.from,
        args.from_credential.clone(),
        args.tls_ca.as_deref(),
    );
    let to = side(&args.to, args.to_credential.clone(), args.tls_ca.as_deref());
    let stop = Stop::default();
    let asked = stop.clone();
    on_interrupt(move || asked.stop())?;
    let mut reports = Reports::new(&name, &args, is_bar);
    let mut link = Link::new((from, to), options, stop, |progress| {
        reports.report(progress)
    });
    let ended = link.run();
    drop(link);
    if let Some(failure) = reports.failure {
        return Err(failure);
    }
    ended.map_err(|error| failed(format!("link {name}"), &error))
}

pub fn promote(args: &PromoteArgs) -> Result<(), Failure> {
    let driver = args.connection.driver()?;
    let mut output = Output::new(args.json);
    for topic in &args.topics {
        let of = mirror::promote(&driver, topic);
        let of = of.map_err(|error| failed(topic.clone(), &error))?;
        let value = json!({ "topic": topic, "was_mirror_of": of.topic, "link": of.link });
        let text = format!(
            "{topic} is a topic of its own now; it was the mirror of {} (whose server may keep events for the link: \
             consumer link/{}, keep_until_acknowledged)",
            of.topic, of.link
        );
        output.either(&value, &text)?;
    }
    output.flush()
}

/// The name of a link that has none: where it leads.
fn name_of(to: &str) -> String {
    let place = to.split(['?', '#']).next().unwrap_or(to);
    match place.split_once("://") {
        Some((_, place)) => place.to_owned(),
        None => match std::path::absolute(place) {
            Ok(path) => path.display().to_string(),
            Err(_) => place.to_owned(),
        },
    }
}

fn mirrored(topic: &str) -> MirroredTopic {
    let (source, copy) = topic.split_once('=').unwrap_or((topic, topic));
    MirroredTopic {
        source: source.to_owned(),
        copy: copy.to_owned(),
    }
}

pub(super) fn side(server: &str, credential: Option<PathBuf>, ca: Option<&Path>) -> Side {
    let endpoint = match server.contains("://") {
        true => Endpoint::Address {
            address: server.to_owned(),
            token: None,
            directory: None,
        },
        false => Endpoint::GroupFile(server.into()),
    };
    let mut options = driver_options();
    if let Some(path) = ca {
        let tls = Tls::default().through(Proxies::from_environment());
        let tls = tls.trusting(Trust::Authorities(path.to_owned()));
        options.transports = Arc::new((*options.transports).clone().with(tls));
    }
    Side {
        name: server.to_owned(),
        endpoint,
        options: DriverOptions {
            client_name: format!("thalweg relay mirror {}", std::process::id()),
            credential,
            connect_timeout: Some(CONNECT_WITHIN),
            request_timeout: ANSWER_WITHIN,
            on_credential: Some(Arc::new(|ends: &CredentialEnds| eprintln!("note: {ends}"))),
            plugins: Arc::new(plugin::Loader::from_environment()),
            ..options
        },
    }
}

fn failed(subject: String, error: &LinkError) -> Failure {
    let code = match error {
        LinkError::Client(_, ClientError::Invalid(_)) => Code::Usage,
        LinkError::Client(_, ClientError::WrongServer { .. }) => Code::NoServer,
        _ => Code::Failure,
    };
    Failure::new(code, subject, error)
}

/// What is reported to people, or to programs.
struct Reports {
    output: Option<Output>,
    bar: Option<Bar>,
    /// What was said last of what it waits for.
    waiting: Option<String>,
    failure: Option<Failure>,
}

impl Reports {
    fn new(name: &str, args: &MirrorArgs, is_bar: bool) -> Self {
        Self {
            output: args.json.then(|| Output::new(true)),
            bar: is_bar.then(|| Bar::line(&format!("link {name}"))),
            waiting: None,
            failure: None,
        }
    }

    fn report(&mut self, progress: &Progress) {
        for note in &progress.notes {
            eprintln!("note: {note}");
        }
        let line = line(progress);
        if let Some(output) = &mut self.output {
            let told = output.json(&value(progress)).and_then(|()| output.flush());
            if let Err(failure) = told {
                self.failure.get_or_insert(failure);
            }
            return;
        }
        if let Some(bar) = &self.bar {
            return bar.say(&line);
        }
        match &progress.state {
            LinkState::Waiting(why) if self.waiting.as_deref() != Some(why) => {
                self.waiting = Some(why.clone());
            }
            LinkState::Waiting(_) => {}
            _ => self.waiting = None,
        }
        eprintln!("{line}");
    }
}

fn line(progress: &Progress) -> String {
    let state = match &progress.state {
        LinkState::Opening => "opening".to_owned(),
        LinkState::Copying if progress.lag.is_some_and(|lag| lag.events == 0) => {
            "up to date".to_owned()
        }
        LinkState::Copying => "copying".to_owned(),
        LinkState::Waiting(why) => format!("waiting: {why}"),
    };
    let lag = match &progress.lag {
        Some(lag) => format!(
            "lag {} events, {} MB, {:.1} s",
            lag.events,
            lag.bytes / 1_000_000,
            lag.age.as_secs_f64()
        ),
        None => "lag not known yet".to_owned(),
    };
    let mut line = format!(
        "{lag}; {}; {} events copied, {} cuts; {state}",
        rate::text(progress.rate),
        progress.events,
        progress.cuts,
    );
    if progress.skipped > 0 {
        line.push_str(&format!("; {} were lost at the source", progress.skipped));
    }
    line
}

fn value(progress: &Progress) -> Value {
    let (state, why) = match &progress.state {
        LinkState::Opening => ("opening", None),
        LinkState::Copying => ("copying", None),
        LinkState::Waiting(why) => ("waiting", Some(why)),
    };
    json!({
        "state": state,
        "why": why,
        "lag_events": progress.lag.map(|lag| lag.events),
        "lag_bytes": progress.lag.map(|lag| lag.bytes),
        "lag_seconds": progress.lag.map(|lag| lag.age.as_secs_f64()),
        "events": progress.events,
        "bytes": progress.bytes,
        "bytes_per_second": progress.rate,
        "skipped": progress.skipped,
        "cuts": progress.cuts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_named_after_where_it_leads() {
        assert_eq!(name_of("tls://b.org:443?sha256=00"), "b.org:443");
        assert!(name_of("b.json").ends_with("/b.json"));
    }

    #[test]
    fn a_copy_may_have_another_name() {
        let topic = |text| {
            let MirroredTopic { source, copy } = mirrored(text);
            (source, copy)
        };
        assert_eq!(topic("a"), ("a".to_owned(), "a".to_owned()));
        assert_eq!(topic("a=b"), ("a".to_owned(), "b".to_owned()));
    }
}
