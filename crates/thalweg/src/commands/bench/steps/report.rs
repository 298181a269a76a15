//! What `thalweg bench steps` prints; `docs/reference/bench-json.md` has the fields.

use super::super::meter::Usage;
use super::super::report::Spread;
use super::StepsArgs;
use super::figures::{Figures, Fit, PHASES, Times};
use super::job::Load;
use serde_json::{Map, Value, json};

type Of = (&'static str, fn(&Times) -> f64);

const OF_TIMES: [Of; 3] = [
    ("median", |times| times.median),
    ("lower_quartile", |times| times.lower_quartile),
    ("max", |times| times.max),
];

/// Phases that are drawn as a line over the bytes of a step.
const FITTED: [&str; 3] = ["gets", "delay", "read_interval"];

fn spread(repetitions: &[Figures], value: impl Fn(&Figures) -> f64) -> Spread {
    Spread::of(repetitions.iter().map(value))
}

fn phase(repetitions: &[Figures], index: usize, of: fn(&Times) -> f64) -> Option<Spread> {
    let all = repetitions.iter().all(|one| one.phases[index].is_some());
    all.then(|| {
        spread(repetitions, |one| {
            one.phases[index].as_ref().map_or(0.0, of)
        })
    })
}

/// The lines above all cases.
pub fn heading(args: &StepsArgs) -> String {
    format!(
        "steps over {}, {} ranks to {}, {}, queue of {}; medians of {} steps [their least to most of {} repetitions]",
        args.transport.name(),
        args.writers,
        args.readers,
        args.storage,
        args.queue,
        args.steps,
        args.repetitions
    )
}

/// A case for people.
pub fn text(load: &Load, repetitions: &[Figures]) -> String {
    let mut lines = vec![format!(
        "{} variables of {:?}, {} bytes; {} bytes of them read",
        load.variables,
        load.shape,
        load.bytes(),
        load.selected_bytes()
    )];
    let mut line = |name: &str, text: String| lines.push(format!("  {name:<30}{text}"));
    let rate = |repetitions: &[Figures], by: f64| spread(repetitions, |one| one.steps_per_s * by);
    line("steps", rate(repetitions, 1.0).text(1.0, "/s"));
    let read = load.selected_bytes() as f64;
    line("bytes", rate(repetitions, read).text(1e-9, "GB/s"));
    for (index, (_, words)) in PHASES.iter().enumerate() {
        if let Some(median) = phase(repetitions, index, |times| times.median) {
            line(words, median.text(1e-3, "us"));
        }
    }
    line(
        "longest of the median",
        spread(repetitions, |one| one.stall).text(1.0, "x"),
    );
    line(
        "asked for",
        spread(repetitions, |one| one.asked_bytes as f64).text(1.0, "bytes"),
    );
    let frames = |of: fn(&Figures) -> f64| spread(repetitions, of).text(1.0, "messages a step");
    line("writers", frames(|one| one.writer_frames));
    line("readers", frames(|one| one.reader_frames));
    let steps = load.all_steps() as f64;
    let processor = |of: fn(&Figures) -> u64| {
        spread(repetitions, |one| of(one) as f64 / steps).text(1e-3, "us of processor a step")
    };
    line("writers", processor(|one| one.writers.cpu_ns));
    line("readers", processor(|one| one.readers.cpu_ns));
    if repetitions.iter().all(|one| one.server.is_some()) {
        line(
            "server",
            processor(|one| one.server.map_or(0, |usage| usage.cpu_ns)),
        );
    }
    lines.join("\n")
}

/// A case as one line of JSON.
pub fn json(args: &StepsArgs, load: &Load, repetitions: &[Figures]) -> Value {
    let mut phases = Map::new();
    for (index, (name, _)) in PHASES.iter().enumerate() {
        let times = OF_TIMES.iter().filter_map(|(of, value)| {
            let spread = phase(repetitions, index, *value)?;
            Some(((*of).to_owned(), spread.json()))
        });
        let times: Map<String, Value> = times.collect();
        let times = match times.is_empty() {
            true => Value::Null,
            false => Value::Object(times),
        };
        phases.insert((*name).to_owned(), times);
    }
    let steps = load.all_steps() as f64;
    let used = |of: fn(&Figures) -> Option<Usage>| {
        let all = repetitions.iter().all(|one| of(one).is_some());
        all.then(|| {
            let each = |value: fn(&Usage) -> u64| {
                let spread = spread(repetitions, |one| {
                    of(one).as_ref().map_or(0, value) as f64 / steps
                });
                spread.json()
            };
            json!({
                "cpu_ns": each(|usage| usage.cpu_ns),
                "reads_and_writes": each(|usage| usage.reads_and_writes),
                "wakeups": each(|usage| usage.wakeups),
                "copied_bytes": each(|usage| usage.copied_bytes),
                "frames": each(|usage| usage.frames),
            })
        })
    };
    let rate = |by: f64| spread(repetitions, |one| one.steps_per_s * by).json();
    json!({
        "work": "steps",
        "transport": args.transport.name(),
        "storage": args.storage,
        "durability": args.durability.map_or("strongest".to_owned(), |level| level.to_string()),
        "shape": load.shape,
        "variables": load.variables,
        "bytes": load.bytes(),
        "box": load.fractions,
        "selected_bytes": load.selected_bytes(),
        "asked_bytes": spread(repetitions, |one| one.asked_bytes as f64).json(),
        "batch": load.batch,
        "writers": load.writers,
        "readers": load.readers,
        "reader_processes": args.reader_processes,
        "steps": load.steps,
        "warmup": load.warmup,
        "every_us": load.every_us,
        "put": load.put,
        "wait": load.wait,
        "queue": load.queue,
        "extremes": load.extremes,
        "repetitions": repetitions.len(),
        "steps_per_s": rate(1.0),
        "bytes_per_s": rate(load.selected_bytes() as f64),
        "stall": spread(repetitions, |one| one.stall).json(),
        "phases_ns": phases,
        "writers_per_step": used(|one| Some(one.writers)),
        "readers_per_step": used(|one| Some(one.readers)),
        "server_per_step": used(|one| one.server),
    })
}

/// The line through the times of a phase, for each repetition.
fn fits(cases: &[(Load, Vec<Figures>)], name: &str, of: fn(&Times) -> f64) -> Vec<Fit> {
    let count = cases.iter().map(|(_, all)| all.len()).min().unwrap_or(0);
    let fit = |repetition: usize| {
        let points = cases.iter().map(|(load, all)| {
            let times = all[repetition].phase(name);
            (load.selected_bytes() as f64, times.as_ref().map_or(0.0, of))
        });
        Fit::of(&points.collect::<Vec<_>>())
    };
    (0..count).map(fit).collect()
}

/// The lines through all lengths, as one line of JSON.
pub fn fit_json(args: &StepsArgs, cases: &[(Load, Vec<Figures>)]) -> Value {
    let mut lines = Map::new();
    for name in FITTED {
        let mut through = Map::new();
        for (of, value) in &OF_TIMES[..2] {
            let fits = fits(cases, name, *value);
            let of_fits = |value: fn(&Fit) -> f64| Spread::of(fits.iter().map(value)).json();
            let residual =
                |index: usize| Spread::of(fits.iter().map(|fit| fit.residuals_ns[index])).json();
            let residuals: Vec<Value> = (0..cases.len()).map(residual).collect();
            let line = json!({
                "overhead_ns": of_fits(|fit| fit.overhead_ns),
                "bytes_per_s": of_fits(|fit| fit.bytes_per_s),
                "residuals_ns": residuals,
            });
            through.insert((*of).to_owned(), line);
        }
        lines.insert(name.to_owned(), Value::Object(through));
    }
    let lengths: Vec<u64> = cases
        .iter()
        .map(|(load, _)| load.selected_bytes())
        .collect();
    json!({
        "work": "steps-line",
        "transport": args.transport.name(),
        "storage": args.storage,
        "bytes": lengths,
        "lines": lines,
    })
}

/// The lines through all lengths, for people.
pub fn fit_text(cases: &[(Load, Vec<Figures>)]) -> String {
    let mut lines =
        vec!["over all lengths: a time is an overhead, and the bytes by a rate".to_owned()];
    for name in FITTED {
        for (of, value) in &OF_TIMES[..2] {
            let fits = fits(cases, name, *value);
            let overhead = Spread::of(fits.iter().map(|fit| fit.overhead_ns));
            let rate = Spread::of(fits.iter().map(|fit| fit.bytes_per_s));
            lines.push(format!(
                "  {:<30}{}, {}",
                format!("{name}, {}", of.replace('_', " ")),
                overhead.text(1e-3, "us"),
                rate.text(1e-9, "GB/s")
            ));
        }
    }
    lines.join("\n")
}
