//! What a benchmark prints.

use super::Way;
use super::load::{Case, Measured, Work};
use super::peer::Cores;
use serde_json::{Value, json};

/// One repetition beside the raw stream.
pub struct Repetition {
    pub raw_bytes_per_s: f64,
    pub measured: Measured,
}

/// Median, minimum and maximum.
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Self {
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

    fn json(&self) -> Value {
        json!({ "median": self.median, "min": self.min, "max": self.max })
    }

    fn text(&self, scale: f64, unit: &str) -> String {
        let [median, min, max] = [self.median, self.min, self.max].map(|value| value * scale);
        format!("{median:.2} [{min:.2} to {max:.2}] {unit}")
    }
}

struct Summary {
    events_per_s: Spread,
    bytes_per_s: Spread,
    raw_bytes_per_s: Spread,
    share_of_raw: Spread,
    client_cpu_ns: Spread,
    server_cpu_ns: Spread,
}

fn summary(case: &Case, repetitions: &[Repetition]) -> Summary {
    let spread = |value: &dyn Fn(&Repetition) -> f64| Spread::of(repetitions.iter().map(value));
    let (events, bytes) = (case.events as f64, case.bytes() as f64);
    Summary {
        events_per_s: spread(&|one| events / one.measured.seconds),
        bytes_per_s: spread(&|one| bytes / one.measured.seconds),
        raw_bytes_per_s: spread(&|one| one.raw_bytes_per_s),
        share_of_raw: spread(&|one| bytes / one.measured.seconds / one.raw_bytes_per_s),
        client_cpu_ns: spread(&|one| one.measured.client_cpu_ns as f64 / events),
        server_cpu_ns: spread(&|one| one.measured.server_cpu_ns as f64 / events),
    }
}

fn work_name(case: &Case) -> &'static str {
    match case.work {
        Work::Produce => "produce",
        Work::Consume => "consume",
    }
}

fn durability_name(case: &Case) -> String {
    case.durability
        .map_or("strongest".to_owned(), |level| level.to_string())
}

/// The line above all cases.
pub fn heading(cores: &Cores, way: Way, repetitions: usize) -> String {
    let way = match way {
        Way::Tcp => "TCP over loopback",
        Way::Unix => "unix socket",
    };
    format!(
        "{way}, {}, one client, one partition; median [min to max] of {repetitions} repetitions;\n\
         raw stream: one TCP connection over loopback, 1 MB writes, placed alike",
        cores.describe()
    )
}

/// A case for people.
pub fn text(case: &Case, repetitions: &[Repetition]) -> String {
    let summary = summary(case, repetitions);
    format!(
        "{} {} x {} B, {} storage, {}\n  \
         events      {}\n  bytes       {}\n  raw stream  {}\n  share       {}\n  \
         processor   client {}, server {}",
        work_name(case),
        case.events,
        case.event_bytes,
        case.storage,
        durability_name(case),
        summary.events_per_s.text(1e-6, "million/s"),
        summary.bytes_per_s.text(1e-9, "GB/s"),
        summary.raw_bytes_per_s.text(1e-9, "GB/s"),
        summary.share_of_raw.text(100.0, "% of the raw stream"),
        summary.client_cpu_ns.text(1.0, "ns/event"),
        summary.server_cpu_ns.text(1.0, "ns/event"),
    )
}

/// A case as one line of JSON; `docs/reference/cli.md` has the fields.
pub fn json(case: &Case, repetitions: &[Repetition]) -> Value {
    let summary = summary(case, repetitions);
    json!({
        "work": work_name(case),
        "storage": case.storage,
        "durability": durability_name(case),
        "event_bytes": case.event_bytes,
        "events": case.events,
        "batch_bytes": case.batch_bytes,
        "repetitions": repetitions.len(),
        "events_per_s": summary.events_per_s.json(),
        "bytes_per_s": summary.bytes_per_s.json(),
        "raw_bytes_per_s": summary.raw_bytes_per_s.json(),
        "share_of_raw": summary.share_of_raw.json(),
        "client_cpu_ns_per_event": summary.client_cpu_ns.json(),
        "server_cpu_ns_per_event": summary.server_cpu_ns.json(),
    })
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
