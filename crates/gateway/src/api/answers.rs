//! What is answered.

use super::Interface;
use super::who::Holder;
use crate::keeper::Instance;
use crate::life::State;
use access::UnixTime;
use serde_json::{Value, json};

/// An answer: a status of HTTP, and JSON.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The text of the body.
    pub body: String,
}

impl Answer {
    /// Of a text that is JSON.
    pub fn text(body: &str) -> Self {
        Self {
            status: 200,
            body: body.to_owned(),
        }
    }
}

/// What was asked for.
pub fn answer(body: Value) -> Answer {
    Answer::text(&body.to_string())
}

/// Why it is not given.
pub fn refusal(status: u16, message: String) -> Answer {
    let body = json!({"code": status, "message": message}).to_string();
    Answer { status, body }
}

/// Whether an answer has what lets somebody into an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrets {
    /// It has.
    Told,
    /// It has not.
    LeftOut,
}

/// What there is to know of an instance.
pub fn info(interface: &Interface, instance: &Instance, secrets: Secrets) -> Value {
    let view = instance.view();
    let record = &view.record;
    let now = interface.clock.unix();
    let remaining = record.expires_at.saturating_sub(now);
    let (name, kind) = (instance.name(), &record.kind);
    let port = match interface.ways.port {
        443 => String::new(),
        port => format!(":{port}"),
    };
    let host = &interface.host;
    let mut info = json!({
        "kind": "general",
        "name": name.name(),
        "project": name.project(),
        "state": view.state.name(),
        "syncStatus": if record.announced { "synced" } else { "syncing" },
        "healthStatus": health(view.state),
        "lifetime": {
            "provisionedAt": time(record.provisioned_at),
            "extendedAt": time(record.extended_at),
            "secondsLifetime": super::LIFE_SECONDS,
            "secondsRemaining": remaining,
        },
        "expires": time(record.expires_at),
        "resourceSettings": record.resources,
        "mgmtUrl": format!("https://{host}{port}{}/{kind}/cluster/{}", super::PREFIXES[0], name.name()),
        "connections": instance.open(),
    });
    if let Some(why) = &view.why {
        info["why"] = json!(why);
    }
    if secrets == Secrets::LeftOut {
        return info;
    }
    // Before it has served once there is nothing to tell; who asks again gets it.
    if let Ok(access) = interface.ways.access(&view, instance.folder()) {
        info["username"] = json!(access.user);
        info["password"] = json!(access.token);
        info["amqpsUrl"] = json!(access.amqps);
        if let Some(name) = access.name {
            info["amqpsServerName"] = json!(name);
        }
        info["thalwegUrl"] = json!(access.thalweg);
        if let Some(inside) = access.inside {
            info["thalwegUrlInside"] = json!(inside);
        }
    }
    info
}

fn health(state: State) -> &'static str {
    match state {
        State::Ready { .. } => "healthy",
        State::Provisioned => "asleep",
        State::Starting { .. } => "starting",
        State::Stopping { .. } | State::Archived => "stopping",
        State::Failed { .. } => "failed",
    }
}

fn time(seconds: u64) -> String {
    UnixTime(seconds.saturating_mul(1_000_000_000)).to_string()
}

/// Who the holder of a token is.
pub fn holder(holder: &Holder) -> Answer {
    answer(json!({"token": {
        "username": holder.username(),
        "project": holder.project(),
        "plannedExpiration": holder.expires(),
        "securityEnclave": "open",
        "oneTimeToken": false,
        "delayedStart": holder.begins().is_some(),
        "delayDate": holder.begins(),
    }}))
}
