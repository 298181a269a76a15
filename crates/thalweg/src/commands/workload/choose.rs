//! Which scenario is run: its file, what the command line changes of it, and what cannot be run.

use super::args::WhatArgs;
use super::connect;
use super::route;
use super::streamsim;
use crate::failure::{About, Failure};
use std::path::Path;
use toml::{Table, Value};
use workload::{
    Act, Architecture, Backend, Disruption, EXPERIMENTS, Loop, Moment, Scenario, Target, Text,
};

/// Bytes of a scenario's file at most.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What is run.
pub struct Chosen {
    /// Checked.
    pub scenario: Scenario,
    /// As it stands in the file, with what the command line changes of it.
    pub table: Table,
    /// Over which it is run, one after the other.
    pub architectures: Vec<Architecture>,
}

/// The scenario, checked.
pub fn scenario(what: &WhatArgs) -> Result<Chosen, Failure> {
    let mut architectures = architectures(what)?;
    let (name, text) = text(what)?;
    let read = |file: &str, text: &str| {
        let scenario = Scenario::from_toml(Text { file, text });
        scenario.map_err(|error| Failure::usage("workload", error))
    };
    // First as it is, so that an error states what stands there.
    let scenario = read(&name, &text)?;
    let table: Result<Table, _> = text.parse();
    let mut table = table.map_err(|error| Failure::usage(&name, error))?;
    let scenario = match (changes(what)?, faults(what)?) {
        (changes, faults) if changes.is_empty() && faults.is_empty() => scenario,
        (changes, faults) => {
            table.extend(changes);
            let none = || Value::Array(Vec::new());
            if let Value::Array(all) = table.entry("faults").or_insert_with(none) {
                all.extend(faults.into_iter().map(Value::String));
            }
            // A run that is counted has no time.
            if what.messages.is_some() {
                table.remove("seconds");
            }
            let changed = format!("{name}, as the command line changes it");
            read(&changed, &table.to_string())?
        }
    };
    check(&scenario)?;
    check_measured(&scenario, what.measured)?;
    if architectures.is_empty() {
        architectures.push(scenario.architecture);
    }
    for architecture in &architectures {
        connect::check(&scenario, *architecture)?;
        check_faults(&scenario, *architecture)?;
    }
    Ok(Chosen {
        scenario,
        table,
        architectures,
    })
}

/// The architectures of the command line.
fn architectures(what: &WhatArgs) -> Result<Vec<Architecture>, Failure> {
    let named = what.arch.iter().map(|name| {
        let found = Architecture::named(name.trim());
        found.ok_or_else(|| {
            let what = format!(
                "{name:?} is none; there are direct, proxied (by relay, haproxy, stunnel or nginx, as in proxied:haproxy) \
                 and managed (by gateway or haproxy)"
            );
            Failure::usage("--arch", what)
        })
    });
    named.collect()
}

/// A measured rate is that of one run, of which the loop is a share.
fn check_measured(scenario: &Scenario, measured: Option<f64>) -> Result<(), Failure> {
    let refuse = |what: &str| Err(Failure::usage("--measured", what));
    match (scenario.pacing, measured) {
        (_, None) => Ok(()),
        (Loop::Share(_), Some(rate)) if !rate.is_finite() || rate <= 0.0 => {
            refuse("messages a second are a number above 0")
        }
        (Loop::Share(_), Some(_)) if scenario.consumers.len() > 1 => {
            refuse("was measured with one number of consumers; give that with --consumers")
        }
        (Loop::Share(_), Some(_)) => Ok(()),
        (Loop::Open | Loop::Closed, Some(_)) => {
            refuse("has no effect, for the scenario's loop is no share of a rate")
        }
    }
}

fn text(what: &WhatArgs) -> Result<(String, String), Failure> {
    if !what.streamsim.is_empty() {
        let mut published = streamsim::read(&what.streamsim)?;
        for note in streamsim::notes(&published) {
            eprintln!("note: {note}");
        }
        let scenario = &mut published.scenario;
        eprintln!(
            "note: {} is run at --url or --serve, and not at its amqpsUrl",
            scenario.name
        );
        if scenario.architecture != Architecture::Direct && what.arch.is_empty() {
            let label = scenario.architecture.label();
            eprintln!("note: its toolkit is run as {label}; --arch names another one");
        }
        scenario.backend = Backend::Thalweg;
        scenario.url = None;
        scenario.tls = false;
        let name = what.streamsim[0].display().to_string();
        return Ok((name, published.scenario.to_toml()));
    }
    if let Some(name) = &what.experiment {
        let found = EXPERIMENTS.iter().find(|one| one.name == name);
        let names = EXPERIMENTS.map(|one| one.name).join(", ");
        let found = found.ok_or_else(|| {
            Failure::usage(
                "--experiment",
                format!("{name:?} is none; there are {names}"),
            )
        })?;
        return Ok((found.name.to_owned(), found.toml.to_owned()));
    }
    let Some(path) = &what.scenario else {
        return Err(Failure::usage(
            "workload",
            "needs a scenario or --experiment",
        ));
    };
    Ok((path.display().to_string(), read_bounded(path)?))
}

/// A file that is not too long for what it is to be.
pub fn read_bounded(path: &Path) -> Result<String, Failure> {
    let name = path.display().to_string();
    let bytes = std::fs::metadata(path).about(&name)?.len();
    if bytes > FILE_BYTES_MAX {
        let what = format!("has {bytes} bytes; a scenario has {FILE_BYTES_MAX} at most");
        return Err(Failure::usage(name, what));
    }
    std::fs::read_to_string(path).about(&name)
}

/// What the command line has in place of keys of the file.
fn changes(what: &WhatArgs) -> Result<Table, Failure> {
    let number = |count: u64| match i64::try_from(count) {
        Ok(count) => Ok(Value::Integer(count)),
        Err(_) => Err(Failure::usage("workload", format!("{count} is too many"))),
    };
    let mut changes = Table::new();
    if !what.consumers.is_empty() {
        let counts = what.consumers.iter().map(|count| number(*count));
        let counts: Result<Vec<Value>, Failure> = counts.collect();
        changes.insert("consumers".to_owned(), Value::Array(counts?));
    }
    for (key, count) in [
        ("messages", what.messages),
        ("repeat", what.repeat),
        ("pack", what.pack),
    ] {
        if let Some(count) = count {
            changes.insert(key.to_owned(), number(count)?);
        }
    }
    // Faults may be of what stands between. Of several architectures each result has its own.
    if let Some(architecture) = what.arch.first() {
        let name = architecture.trim().to_owned();
        changes.insert("architecture".to_owned(), Value::String(name));
    }
    if let Some(backend) = &what.backend {
        changes.insert("backend".to_owned(), Value::String(backend.clone()));
    }
    if let Some(rate) = &what.rate {
        changes.insert("rate".to_owned(), Value::String(rate.clone()));
    }
    Ok(changes)
}

/// Faults of the command line, as a scenario has them.
fn faults(what: &WhatArgs) -> Result<Vec<String>, Failure> {
    let read = |option: &str, text: String| {
        let fault: Result<Disruption, String> = text.parse();
        fault
            .map(|fault| fault.to_string())
            .map_err(|error| Failure::usage(option, error))
    };
    let lasting =
        |option: &str, (verb, usual): (&str, &str), fault: &str| match fault.rsplit_once(':') {
            Some((fault, lasting)) => read(option, format!("{verb}{fault} for {lasting}")),
            None => {
                let what = format!("{fault:?} does not say for how long, as {usual} does");
                Err(Failure::usage(option, what))
            }
        };
    let mut all = Vec::new();
    for fault in &what.kill {
        all.push(read("--kill", format!("kill {fault}"))?);
    }
    for (option, form, faults) in [
        ("--stop", ("stop ", "consumer@30%:2s"), &what.stop),
        ("--slow", ("slow ", "consumer@30%:5s"), &what.slow),
        ("--cut", ("cut@", "40%:5s"), &what.cut),
    ] {
        for fault in faults {
            all.push(lasting(option, form, fault)?);
        }
    }
    if let Some(fault) = &what.expire_token {
        let text = fault.replacen(':', " for ", 1);
        all.push(read("--expire-token", format!("expire token@{text}"))?);
    }
    Ok(all)
}

/// What scenarios can say and this command cannot do yet.
fn check(scenario: &Scenario) -> Result<(), Failure> {
    if scenario
        .disruptions
        .iter()
        .filter(|one| one.act == Act::ExpireToken)
        .count()
        > 1
    {
        let what = "a token expires once: there is one \"expire token\" at most";
        return Err(Failure::usage("faults", what));
    }
    if !scenario.disruptions.is_empty() && scenario.pack > 1 {
        let what =
            "a fault is one of a process, and with faults each member needs its own: a pack of 1";
        return Err(Failure::usage("pack", what));
    }
    Ok(())
}

/// The shortest life of a token: clients have to come to have it.
const TOKEN_MS_MIN: u64 = 1000;

/// Refuses faults that cannot be done.
fn check_faults(scenario: &Scenario, architecture: Architecture) -> Result<(), Failure> {
    for one in &scenario.disruptions {
        if let Some(why) = obstacle(scenario, architecture, one) {
            let what = format!("\"{one}\" cannot be done by this command: {why}");
            return Err(Failure::usage("faults", what));
        }
    }
    Ok(())
}

/// Why a fault cannot be done to a scenario, if it cannot.
fn obstacle(
    scenario: &Scenario,
    architecture: Architecture,
    one: &Disruption,
) -> Option<&'static str> {
    let is_amqp = scenario.backend == Backend::Amqp;
    let is_others = matches!(scenario.backend, Backend::Redis | Backend::Kafka);
    let is_direct = architecture == Architecture::Direct;
    match (one.act, one.target, one.moment) {
        (Act::Cut, ..) if is_others => Some("lines of Redis and Kafka are not cut"),
        (_, Target::Proxy, _) if is_direct => Some("nothing stands before the server"),
        (Act::Kill, Target::Proxy, _) => {
            Some("a run ends with what stands before its server; it can be stopped for some time")
        }
        (_, Target::Server, _) | (Act::ExpireToken, ..) if route::makes_server(architecture) => {
            Some("the server is one that thalweg gateway has made, with its token")
        }
        (Act::Kill, Target::Server, _) if !is_direct || scenario.tls => {
            Some("it is started again at an address that is reached directly, without TLS")
        }
        (Act::Kill, Target::Server, _) if is_amqp => Some(
            "connections of AMQP end with their server, and its clients do not connect again by themselves",
        ),
        (Act::Kill, Target::Server, _) if !scenario.settings.durable_messages => Some(
            "messages in memory end with the server; with durable_messages = \"yes\" they do not",
        ),
        (Act::ExpireToken, ..) if is_amqp => Some(
            "a client of AMQP gives its password once, when it connects, and has no file for another one",
        ),
        (Act::ExpireToken, _, Moment::Percent(_)) => {
            Some("a token is good for a time, as in 2s, and not for a part of the messages")
        }
        (Act::ExpireToken, _, Moment::After(ms)) if ms < TOKEN_MS_MIN => {
            Some("clients need 1 s at least to have a token before it is over")
        }
        _ => None,
    }
}

/// Faults that only a server of the command's own can have.
pub fn check_served(scenario: &Scenario, is_own: bool) -> Result<(), Failure> {
    let needs_own = |one: &&Disruption| one.target == Target::Server || one.act == Act::ExpireToken;
    match scenario.disruptions.iter().find(needs_own) {
        Some(one) if !is_own => {
            let what = format!(
                "\"{one}\" needs --serve: another server than the command's own is neither killed nor stopped, and \
                 gives it no tokens"
            );
            Err(Failure::usage("faults", what))
        }
        _ => Ok(()),
    }
}
