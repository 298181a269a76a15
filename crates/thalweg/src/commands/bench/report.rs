//! What a benchmark prints.

use super::case::{Case, Work};
use super::job::Delays;
use super::meter::Usage;
use super::runs::Repetition;
use serde_json::{Map, Value, json};

/// Median, minimum and maximum.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Of at least one value.
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let (middle, count) = (values.len() / 2, values.len());
        let median = match count % 2 {
            1 => values[middle],
            _ => (values[middle - 1] + values[middle]) / 2.0,
        };
        Self {
            median,
            min: values[0],
            max: values[count - 1],
        }
    }

    /// As an object of three numbers.
    pub fn json(&self) -> Value {
        json!({ "median": self.median, "min": self.min, "max": self.max })
    }

    /// As `median [min to max] unit`.
    pub fn text(&self, scale: f64, unit: &str) -> String {
        let digits = match self.median * scale {
            value if value.abs() < 0.1 => 4,
            value if value.abs() < 100.0 => 2,
            _ => 0,
        };
        let [median, min, max] = [self.median, self.min, self.max].map(|value| value * scale);
        format!("{median:.digits$} [{min:.digits$} to {max:.digits$}] {unit}")
    }
}

type Count = (&'static str, &'static str, fn(&Usage) -> u64);

/// What is counted of a process: name in JSON, words, value.
const COUNTS: [Count; 7] = [
    ("cpu_ns", "ns of processor", |usage| usage.cpu_ns),
    ("reads_and_writes", "reads and writes", |usage| {
        usage.reads_and_writes
    }),
    ("wakeups", "wake-ups", |usage| usage.wakeups),
    ("preemptions", "preemptions", |usage| usage.preemptions),
    ("copied_bytes", "bytes of data copied", |usage| {
        usage.copied_bytes
    }),
    ("instructions", "instructions in user space", |usage| {
        usage.instructions
    }),
    ("frames", "frames", |usage| usage.frames),
];

/// Frames are counted by a client's driver only.
const OF_SERVER: usize = 6;

type Percentile = (&'static str, fn(&Delays) -> f64);

const PERCENTILES: [Percentile; 6] = [
    ("min", |delays| delays.min),
    ("p50", |delays| delays.p50),
    ("p90", |delays| delays.p90),
    ("p99", |delays| delays.p99),
    ("p999", |delays| delays.p999),
    ("max", |delays| delays.max),
];

/// Spreads over the repetitions of a case.
struct Summary<'a> {
    case: &'a Case,
    repetitions: &'a [Repetition],
}

impl Summary<'_> {
    fn spread(&self, value: impl Fn(&Repetition) -> f64) -> Spread {
        Spread::of(self.repetitions.iter().map(value))
    }

    fn per_event(&self, value: impl Fn(&Repetition) -> u64) -> Spread {
        self.spread(|one| value(one) as f64 / one.events as f64)
    }

    /// The first `most` of what is counted, without instructions where nobody
    /// counts them.
    fn counts(&self, most: usize) -> impl Iterator<Item = &'static Count> {
        let counted = self
            .repetitions
            .iter()
            .any(|one| one.clients.instructions > 0);
        let counts = COUNTS[..most].iter();
        counts.filter(move |(name, _, _)| counted || *name != "instructions")
    }

    fn has_server(&self) -> bool {
        self.repetitions.iter().all(|one| one.server.is_some())
    }

    fn of_server(&self, value: fn(&Usage) -> u64) -> Spread {
        self.per_event(|one| one.server.as_ref().map_or(0, value))
    }

    /// Names of the limits that every repetition has.
    fn limits(&self) -> Vec<&'static str> {
        self.repetitions[0].limits.names().collect()
    }

    fn limit(&self, name: &str) -> Spread {
        self.spread(|one| one.limits.get(name).unwrap_or(f64::NAN))
    }

    /// How much of a limit was reached.
    fn share(&self, name: &str) -> Spread {
        self.spread(|one| one.bytes as f64 / one.seconds / one.limits.get(name).unwrap_or(f64::NAN))
    }

    fn delay(&self, percentile: fn(&Delays) -> f64) -> Option<Spread> {
        let all = self.repetitions.iter().all(|one| one.delays.is_some());
        all.then(|| self.spread(|one| one.delays.as_ref().map_or(0.0, percentile)))
    }
}

/// A case for people.
pub fn text(case: &Case, repetitions: &[Repetition]) -> String {
    let summary = Summary { case, repetitions };
    let mut lines = vec![case.title()];
    let mut line = |name: &str, text: String| lines.push(format!("  {name:<22}{text}"));
    if summary.case.work != Work::Latency {
        let events = summary.spread(|one| one.events as f64 / one.seconds);
        line("events", events.text(1e-6, "million/s"));
        let bytes = summary.spread(|one| one.bytes as f64 / one.seconds);
        line("bytes", bytes.text(1e-9, "GB/s"));
        for name in summary.limits() {
            let words = name.trim_end_matches("_bytes_per_s").replace('_', " ");
            let text = format!(
                "{}, of which {}",
                summary.limit(name).text(1e-9, "GB/s"),
                summary.share(name).text(100.0, "% reached")
            );
            line(&words, text);
        }
    }
    for (name, percentile) in PERCENTILES {
        if let Some(delay) = summary.delay(percentile) {
            line(&format!("delay {name}"), delay.text(1e-3, "us"));
        }
    }
    for (_, words, value) in summary.counts(COUNTS.len()) {
        let spread = summary.per_event(|one| value(&one.clients));
        line("clients, per event", spread.text(1.0, words));
    }
    if summary.has_server() {
        for (_, words, value) in summary.counts(OF_SERVER) {
            line(
                "server, per event",
                summary.of_server(*value).text(1.0, words),
            );
        }
    }
    lines.join("\n")
}

/// A case as one line of JSON; `docs/reference/bench-json.md` has the fields.
pub fn json(case: &Case, repetitions: &[Repetition], settings: &Map<String, Value>) -> Value {
    let summary = Summary { case, repetitions };
    let mut line = case.json();
    let mut set = |name: &str, value: Value| line[name] = value;
    for (name, value) in settings {
        set(name, value.clone());
    }
    set("repetitions", json!(repetitions.len()));
    set("seconds", summary.spread(|one| one.seconds).json());
    let events = summary.spread(|one| one.events as f64 / one.seconds);
    set("events_per_s", events.json());
    let bytes = summary.spread(|one| one.bytes as f64 / one.seconds);
    set("bytes_per_s", bytes.json());
    let limits = summary.limits();
    let object = |spread: &dyn Fn(&str) -> Spread| {
        let entries = limits
            .iter()
            .map(|name| ((*name).to_owned(), spread(name).json()));
        Value::Object(entries.collect())
    };
    set("limits", object(&|name| summary.limit(name)));
    set("shares", object(&|name| summary.share(name)));
    let delays = PERCENTILES.iter().filter_map(|(name, percentile)| {
        let spread = summary.delay(*percentile)?;
        Some(((*name).to_owned(), spread.json()))
    });
    let delays: Map<String, Value> = delays.collect();
    let delays = match delays.is_empty() {
        true => Value::Null,
        false => Value::Object(delays),
    };
    set("delay_ns", delays);
    let clients = summary.counts(COUNTS.len()).map(|(name, _, value)| {
        let spread = summary.per_event(|one| value(&one.clients));
        ((*name).to_owned(), spread.json())
    });
    set("clients_per_event", Value::Object(clients.collect()));
    let server = match summary.has_server() {
        false => Value::Null,
        true => {
            let counts = summary
                .counts(OF_SERVER)
                .map(|(name, _, value)| ((*name).to_owned(), summary.of_server(*value).json()));
            Value::Object(counts.collect())
        }
    };
    set("server_per_event", server);
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_lies_between() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0].into_iter());
        assert_eq!((spread.median, spread.min, spread.max), (2.5, 1.0, 4.0));
        assert_eq!(Spread::of([5.0].into_iter()).median, 5.0);
    }
}
