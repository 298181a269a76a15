//! Which backend carries the messages of a run.

use super::amqp::{self, Amqp};
use super::backend::Backend;
#[cfg(feature = "kafka")]
use super::kafka::Kafka;
use super::native::Native;
use super::redis::Redis;
use super::server_url::Kind;
use super::{kafka_url, redis};
use crate::failure::Failure;
use workload::{Architecture, Common, Scenario};

/// The backends whose URLs are those of others' protocols.
const KINDS: [(workload::Backend, &Kind); 3] = [
    (workload::Backend::Amqp, &amqp::url::KIND),
    (workload::Backend::Redis, &redis::url::KIND),
    (workload::Backend::Kafka, &kafka_url::KIND),
];

/// Connects.
pub fn connect(common: &Common) -> Result<Box<dyn Backend>, Failure> {
    match common.backend {
        workload::Backend::Thalweg => Ok(Box::new(Native::connect(common)?)),
        workload::Backend::Amqp => Ok(Box::new(Amqp::new(common)?)),
        workload::Backend::Redis => Ok(Box::new(Redis::new(common)?)),
        #[cfg(feature = "kafka")]
        workload::Backend::Kafka => Ok(Box::new(Kafka::new(common)?)),
        #[cfg(not(feature = "kafka"))]
        workload::Backend::Kafka => Err(without_kafka()),
    }
}

/// What this build, or this command with this backend, cannot do.
pub fn check(scenario: &Scenario, architecture: Architecture) -> Result<(), Failure> {
    if scenario.backend == workload::Backend::Kafka && !cfg!(feature = "kafka") {
        return Err(without_kafka());
    }
    match bare(scenario.backend) {
        Some(kind) if architecture != Architecture::Direct => {
            let what = format!("servers of {} are reached \"direct\" alone", kind.name);
            Err(Failure::usage("architecture", what))
        }
        Some(kind) if scenario.tls => {
            let what = format!(
                "this command does not speak TLS with {}; a TLS client in between, as stunnel is one, does",
                kind.name
            );
            Err(Failure::usage("tls", what))
        }
        _ => Ok(()),
    }
}

/// Of a build that lacks it.
fn without_kafka() -> Failure {
    let what = "\"kafka\" needs a program that was built with the feature kafka, which compiles librdkafka: \
                cargo build --release -p thalweg --features kafka";
    Failure::usage("backend", what)
}

/// The kind of a backend whose server this command does not start, and reaches directly and in plain alone.
fn bare(backend: workload::Backend) -> Option<&'static Kind> {
    let kind = kind_of(backend);
    kind.filter(|_| backend != workload::Backend::Amqp)
}

/// How the URLs of a backend look that is not Thalweg's own.
pub fn kind_of(backend: workload::Backend) -> Option<&'static Kind> {
    let found = KINDS.iter().find(|(one, _)| *one == backend);
    found.map(|(_, kind)| *kind)
}

/// Refuses the URL of one server with the protocol of another.
pub fn check_url(scenario: &Scenario) -> Result<(), Failure> {
    let Some(url) = &scenario.url else {
        return Ok(());
    };
    let is_other = |one: &&(workload::Backend, &Kind)| {
        one.0 != scenario.backend && one.1.schemes.iter().any(|scheme| url.0.starts_with(scheme))
    };
    match KINDS.iter().find(is_other) {
        None => Ok(()),
        Some((_, kind)) => {
            let (name, word) = (kind.name, kind.name.to_lowercase());
            let what = format!(
                "a URL of {name} needs --backend {word}, or backend = \"{word}\" in the scenario"
            );
            Err(Failure::usage("url", what))
        }
    }
}

/// `--serve` starts a server of Thalweg, which speaks none of these protocols.
pub fn check_serve(backend: workload::Backend) -> Result<(), Failure> {
    let Some(kind) = bare(backend) else {
        return Ok(());
    };
    let Kind { name, variable, .. } = kind;
    let scheme = kind.schemes[0];
    let what = format!(
        "starts a server of Thalweg, which does not speak the protocol of {name}: give --url {scheme}HOST:PORT of one that \
         runs, or {variable}"
    );
    Err(Failure::usage("--serve", what))
}
