//! `thalweg view`.

mod array;
mod http;
mod newest;
mod picture;

use crate::cli::ViewArgs;
use crate::failure::{About, Failure};
use crate::interrupt;
use crate::output::{self, Output};
use http::{Answer, Request};
use newest::{Newest, Seen};
use picture::Stretch;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// The page: one file, which asks for nothing but `/frame`.
const PAGE: &str = include_str!("view/page.html");
/// What stands in [`PAGE`] where its own scripts and styles say who wrote them.
const NONCE: &str = "@NONCE@";
/// How long one question to the server may take, where `--timeout` allows more: the page is to
/// say soon that the server is away.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);

pub fn run(args: &ViewArgs) -> Result<(), Failure> {
    let (ended, end) = mpsc::channel();
    // Nobody receives it any more if the command has failed.
    interrupt::on_interrupt(move || {
        let _ = ended.send(());
    })?;
    let driver = (args.client.connection).driver_answered_within(ANSWER_WAIT_MAX)?;
    driver.open_topic(&args.topic).about(&args.topic)?;
    let address = (Ipv4Addr::LOCALHOST, args.port);
    let subject = format!("{}:{}", address.0, address.1);
    let listener = TcpListener::bind(address).about(&subject)?;
    let port = listener.local_addr().about(&subject)?.port();
    let view = Arc::new(View {
        token: random_hex(),
        newest: Newest::new(driver, args.topic.clone()),
    });
    let url = format!("http://{}:{port}/?token={}", address.0, view.token);
    http::serve(listener, Arc::new(move |request| view.answer(request))).about(&subject)?;
    let mut output = Output::new(args.client.json);
    output.either(&json!({"url": url}), &url)?;
    output.flush()?;
    if !output.is_json() {
        output::report("shows the newest event while a page is open; Ctrl-C ends it");
    }
    // The sender lives as long as the thread of the signals.
    let _ = end.recv();
    Ok(())
}

/// Bytes that nobody can guess, as digits.
fn random_hex() -> String {
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes once it has booted");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

struct View {
    token: String,
    newest: Newest,
}

impl View {
    fn answer(&self, request: &Request) -> Answer {
        // A name that leads to loopback today and is somebody else's page: DNS rebinding.
        if !request.is_for_loopback() || !self.knows(request.value("token")) {
            return Answer::empty(403);
        }
        match request.path.as_str() {
            "/" => page(),
            "/frame" => match stretch(request) {
                Ok(stretch) => frame(&self.newest.look(), request.value("after"), &stretch),
                Err(sentence) => Answer::text(400, sentence),
            },
            _ => Answer::empty(404),
        }
    }

    /// Compares in a time that does not tell how much of the token was right.
    fn knows(&self, token: &str) -> bool {
        let differences = self.token.bytes().zip(token.bytes()).map(|(a, b)| a ^ b);
        let difference = differences.fold(0, |all, one| all | one);
        token.len() == self.token.len() && difference == 0
    }
}

fn page() -> Answer {
    let nonce = random_hex();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    Answer::page(PAGE.replace(NONCE, &nonce), policy)
}

fn stretch(request: &Request) -> Result<Stretch, String> {
    let percentile = |name: &str, default: f64| match request.value(name) {
        "" => Ok(default),
        text => match text.parse() {
            Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
            _ => Err(format!("{name}: must be a percentile from 0 to 100")),
        },
    };
    let (low, high) = (percentile("low", 1.0)?, percentile("high", 99.0)?);
    match low < high {
        true => Ok(Stretch {
            low,
            high,
            is_log: request.value("log") == "1",
        }),
        false => Err("low: must be below high".to_owned()),
    }
}

/// A line of JSON about what was seen, and behind it the levels of the picture, a byte each, row
/// by row; of colours three a pixel. No picture if the page has it already.
fn frame(seen: &Seen, after: &str, stretch: &Stretch) -> Answer {
    let mut levels = Vec::new();
    let mut picture = Value::Null;
    let mut event = Value::Null;
    if let Some(frame) = &seen.frame {
        let is_new = frame.name != after;
        let mut note = Value::Null;
        match &frame.sampled {
            Ok(sampled) if is_new => {
                let drawn = sampled.draw(stretch);
                picture = json!({
                    "kind": sampled.shape.kind.name(),
                    "width": sampled.shape.width,
                    "height": sampled.shape.height,
                    "steps": sampled.shape.steps,
                    "low": drawn.range.map(|range| range.0),
                    "high": drawn.range.map(|range| range.1),
                    "as_it_is": drawn.is_as_it_is,
                });
                levels = drawn.levels;
            }
            Ok(_) => {}
            Err(sentence) => note = sentence.as_str().into(),
        }
        event = json!({
            "name": frame.name,
            "partition": frame.id.partition.0,
            "incarnation": frame.id.incarnation.0,
            "offset": frame.id.offset.0,
            "age_ms": frame.age().as_millis() as u64,
            "lag_ms": frame.lag.map(|lag| lag.as_millis() as u64),
            "bytes": frame.bytes,
            "array": frame.array,
            "metadata": frame.metadata,
            "note": note,
        });
    }
    let gaps = seen.gaps.iter();
    let gaps: Vec<_> = gaps
        .map(|(reason, events)| json!({"reason": reason, "events": events}))
        .collect();
    let said = json!({
        "topic": seen.topic,
        "away": seen.away,
        "events": seen.events,
        "rate": seen.rate,
        "gaps": gaps,
        "event": event,
        "picture": picture,
    });
    let mut body = said.to_string().into_bytes();
    body.push(b'\n');
    body.append(&mut levels);
    Answer::bytes(body)
}
