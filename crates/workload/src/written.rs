//! A scenario as a file of ours, for those that came from elsewhere.

use crate::architecture::Architecture;
use crate::disruption::Disruption;
use crate::pace::Loop;
use crate::scenario::{Amount, Producers, Scenario, UpTo};
use crate::settings::Settings;
use serde::Serialize;
use toml::{Table, Value};

impl Scenario {
    /// The text of which [`Scenario::from_toml`] makes the same scenario.
    pub fn to_toml(&self) -> String {
        let mut table = Table::new();
        let mut put = |key: &str, value: Value| table.insert(key.to_owned(), value);
        put("name", self.name.clone().into());
        put("backend", value(&self.backend));
        if let Some(url) = &self.url {
            put("url", url.0.clone().into());
        }
        put("tls", yes(self.tls));
        put("architecture", architecture(self.architecture));
        put("pattern", value(&self.pattern));
        put("workload", value(&self.shape));
        put(
            "consumers",
            Value::Array(self.consumers.iter().copied().map(number).collect()),
        );
        put(
            "producers",
            match self.producers {
                Producers::AsConsumers => "as consumers".into(),
                Producers::Count(count) => number(count),
            },
        );
        match &self.amount {
            Amount::Messages(counts) => {
                let counts = counts.iter().map(up_to).collect();
                put("messages", Value::Array(counts));
            }
            Amount::Seconds(seconds) => {
                put("seconds", number(*seconds));
            }
        }
        // A loop that waits has none beside it.
        if self.pacing == Loop::Open {
            put("rate", value(&self.rate));
        }
        put("loop", value(&self.pacing));
        let faults = self.disruptions.iter().map(Disruption::to_string);
        put("faults", Value::Array(faults.map(Value::String).collect()));
        put("repeat", number(self.repeat));
        put("seed", number(self.seed));
        put("pack", number(self.pack));
        put("idle_seconds", number(self.idle_seconds));
        put("settings", settings(&self.settings));
        table.to_string()
    }
}

/// Parts whose JSON is what a file has.
fn value(part: &impl Serialize) -> Value {
    Value::try_from(part).expect("parts have words, numbers and tables alone")
}

/// Numbers of a scenario have bounds below 2^63, but for those of which a file cannot have more either.
fn number(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

fn yes(is_so: bool) -> Value {
    Value::from(if is_so { "yes" } else { "no" })
}

fn up_to(count: &UpTo) -> Value {
    let mut table = Table::new();
    if count.consumers != u64::MAX {
        table.insert("consumers".to_owned(), number(count.consumers));
    }
    table.insert("messages".to_owned(), number(count.messages));
    Value::Table(table)
}

fn architecture(architecture: Architecture) -> Value {
    let mut table = Table::new();
    match architecture {
        Architecture::Direct => return "direct".into(),
        Architecture::Managed { by } => {
            table.insert("managed".to_owned(), value(&by));
        }
        Architecture::Proxied {
            by,
            cores_thousandths,
            log,
        } => {
            table.insert("proxied".to_owned(), value(&by));
            table.insert("log".to_owned(), value(&log));
            if let Some(cores) = cores_thousandths {
                table.insert("cores_thousandths".to_owned(), number(cores));
            }
        }
    }
    Value::Table(table)
}

fn settings(settings: &Settings) -> Value {
    let mut table = Table::new();
    let mut put = |key: &str, value: Value| table.insert(key.to_owned(), value);
    put("confirms", value(&settings.confirms));
    put("acks", value(&settings.acks));
    put("prefetch", number(settings.prefetch));
    put("queues", number(settings.queues));
    put("durable_messages", yes(settings.durable_messages));
    put("durable_queues", yes(settings.durable_queues));
    put("queue", value(&settings.queue));
    put("queue_messages_max", number(settings.queue_messages_max));
    put("overflow", value(&settings.overflow));
    Value::Table(table)
}
