//! `thalweg workload page`: results beside each other, as one page that loads nothing.

mod html;
mod plot;

use super::args::PageArgs;
use crate::failure::{About, Code, Failure};
use html::{Cell, escape};
use plot::{Bar, Line, Words, short};
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;
use std::rc::Rc;
use workload::{Architecture, FORMAT, Percentiles, RunResult, Spread, Throughput};

/// Bytes of a file of results at most.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Files beside each other at most, of which one with several architectures counts for each: more have no colours that
/// can be told apart.
const SERIES_MAX: usize = 8;

/// A file of `thalweg workload run --json`.
#[derive(Deserialize)]
struct Document {
    made_by: String,
    is_debug_build: bool,
    unix_seconds: i64,
    host: Value,
    runs: Vec<Ran>,
}

#[derive(Deserialize)]
struct Ran {
    result: RunResult,
    findings: Vec<String>,
}

/// The results of a file over one architecture.
struct Series {
    label: String,
    document: Rc<Document>,
    architecture: Architecture,
}

impl Series {
    fn runs(&self) -> impl Iterator<Item = &Ran> {
        let runs = self.document.runs.iter();
        runs.filter(|ran| ran.result.architecture == self.architecture)
    }
}

/// What runs have in common that can be compared.
#[derive(Clone, PartialEq)]
struct Experiment {
    name: String,
    pattern: String,
    message_bytes: u64,
}

impl Experiment {
    fn of(result: &RunResult) -> Self {
        Self {
            name: result.name.clone(),
            pattern: word(&result.pattern),
            message_bytes: result.workload.message_bytes,
        }
    }
}

/// A value as the word that its JSON has.
pub fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}

/// Writes the page.
pub fn run(args: &PageArgs) -> Result<(), Failure> {
    let mut series = Vec::new();
    for path in &args.results {
        series.extend(read(path)?);
    }
    if series.len() > SERIES_MAX {
        let what = format!(
            "{} files, or architectures of one; {SERIES_MAX} at most",
            series.len()
        );
        return Err(Failure::usage("workload page", what));
    }
    std::fs::write(&args.out, text(&series)).about(args.out.display().to_string())
}

fn read(path: &Path) -> Result<Vec<Series>, Failure> {
    let name = path.display().to_string();
    let bytes = std::fs::metadata(path).about(&name)?.len();
    if bytes > FILE_BYTES_MAX {
        let what = format!("has {bytes} bytes; results have {FILE_BYTES_MAX} at most");
        return Err(Failure::usage(name, what));
    }
    let text = std::fs::read_to_string(path).about(&name)?;
    let refuse = |why: String| {
        let what = format!("is no file of `thalweg workload run --json`: {why}");
        Failure::new(Code::Usage, name.clone(), what)
    };
    let value: Value = serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))?;
    let format = value
        .pointer("/runs/0/result/format")
        .and_then(Value::as_u64);
    if let Some(other) = format.filter(|format| *format != FORMAT) {
        return Err(refuse(format!("format {other} is not known, {FORMAT} is")));
    }
    let document: Document =
        serde_json::from_value(value).map_err(|error| refuse(error.to_string()))?;
    let stem = path.file_stem().unwrap_or(path.as_os_str());
    let stem = stem.to_string_lossy();
    let mut all: Vec<Architecture> = Vec::new();
    for ran in &document.runs {
        if !all.contains(&ran.result.architecture) {
            all.push(ran.result.architecture);
        }
    }
    if all.is_empty() {
        all.push(Architecture::Direct);
    }
    let document = Rc::new(document);
    let one = |architecture: &Architecture| Series {
        label: match all.len() {
            1 => stem.clone().into_owned(),
            _ => format!("{stem}, {}", architecture.label()),
        },
        document: document.clone(),
        architecture: *architecture,
    };
    Ok(all.iter().map(one).collect())
}

fn text(series: &[Series]) -> String {
    let mut body = files(series);
    let mut experiments: Vec<Experiment> = Vec::new();
    for ran in series.iter().flat_map(Series::runs) {
        let experiment = Experiment::of(&ran.result);
        if !experiments.contains(&experiment) {
            experiments.push(experiment);
        }
    }
    for experiment in &experiments {
        body.push_str(&section(experiment, series));
    }
    html::page("Workloads", &body)
}

/// What the files are, and by which colour they are known.
fn files(series: &[Series]) -> String {
    let mut text = "<p>One colour a file, and architecture. A bar is the mean of repetitions, the line on it goes from the least to the \
                    most of them.</p>\n<ul>\n"
        .to_owned();
    for (index, one) in series.iter().enumerate() {
        let document = &one.document;
        let host = |key: &str| match &document.host[key] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let time = jiff::Timestamp::from_second(document.unix_seconds);
        let line = format!(
            "{}, {}, {} with {} cores ({}), Linux {}{}",
            document.made_by,
            time.map_or("?".to_owned(), |time| time.to_string()),
            host("name"),
            host("cores"),
            host("processor"),
            host("kernel"),
            match document.is_debug_build {
                true => "; a debug build: its speed says nothing",
                false => "",
            },
        );
        text.push_str(&format!(
            "<li><span class=\"key\" style=\"background:{}\"></span><b>{}</b>: {}</li>\n",
            plot::colour(index),
            escape(&one.label),
            escape(&line)
        ));
    }
    text + "</ul>\n"
}

/// The runs of an experiment: of which series, and what they gave.
fn runs_of<'a>(
    experiment: &'a Experiment,
    series: &'a [Series],
) -> impl Iterator<Item = (usize, &'a Ran)> {
    series.iter().enumerate().flat_map(move |(index, one)| {
        one.runs()
            .filter(move |ran| Experiment::of(&ran.result) == *experiment)
            .map(move |ran| (index, ran))
    })
}

fn section(experiment: &Experiment, series: &[Series]) -> String {
    let runs: Vec<(usize, &Ran)> = runs_of(experiment, series).collect();
    let mut counts: Vec<u64> = runs.iter().map(|(_, ran)| ran.result.consumers).collect();
    counts.sort_unstable();
    counts.dedup();
    let mut text = format!(
        "<h2>{}: {}, {} bytes a message</h2>\n<div class=\"plots\">\n",
        escape(&experiment.name),
        escape(&experiment.pattern),
        experiment.message_bytes
    );
    for (title, value) in [
        (
            "Messages a second, first send to last receipt",
            (|result: &RunResult| result.wall) as fn(&RunResult) -> Option<Throughput>,
        ),
        (
            "Messages a second, sum over consumers' own windows (as published)",
            |result| result.sum_of_windows,
        ),
    ] {
        let words = Words {
            title,
            x: "consumers",
            y: "messages a second",
        };
        text.push_str(&rates(&words, &counts, series.len(), &runs, value));
    }
    for &consumers in &counts {
        text.push_str(&times(consumers, &runs));
    }
    text.push_str("</div>\n");
    text.push_str(&table(series, &runs));
    text
}

fn rates(
    words: &Words<'_>,
    counts: &[u64],
    series: usize,
    runs: &[(usize, &Ran)],
    value: fn(&RunResult) -> Option<Throughput>,
) -> String {
    let mut bars = Vec::new();
    for (group, &consumers) in counts.iter().enumerate() {
        for index in 0..series {
            let of_bar = runs
                .iter()
                .filter(|(of, ran)| *of == index && ran.result.consumers == consumers);
            let values: Vec<f64> = of_bar
                .filter_map(|(_, ran)| value(&ran.result))
                .map(|rate| rate.messages_per_second)
                .collect();
            bars.extend(Spread::of(&values).map(|spread| Bar {
                group,
                series: index,
                spread,
                count: values.len() as u64,
            }));
        }
    }
    let groups: Vec<String> = counts.iter().map(u64::to_string).collect();
    plot::bars(words, &groups, series, &bars)
}

/// The times to the reply beside so many consumers, a line for each repetition. Nothing if there are none.
fn times(consumers: u64, runs: &[(usize, &Ran)]) -> String {
    let mut lines = Vec::new();
    for (series, ran) in runs
        .iter()
        .filter(|(_, ran)| ran.result.consumers == consumers)
    {
        let result = &ran.result;
        for (times, is_dashed) in [(&result.rtt, false), (&result.rtt_from_due, true)] {
            lines.extend(times.as_ref().map(|times| Line {
                series: *series,
                is_dashed,
                points: points(times),
            }));
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    let title = match lines.iter().any(|line| line.is_dashed) {
        true => format!("Time to the reply, {consumers} consumers (dashed: from when it was due)"),
        false => format!("Time to the reply, {consumers} consumers"),
    };
    let words = Words {
        title: &title,
        x: "milliseconds",
        y: "part that is not longer",
    };
    plot::lines(&words, &lines)
}

fn points(times: &Percentiles) -> Vec<(f64, f64)> {
    let points = times.cdf.iter();
    points
        .map(|&(ns, part)| (ns.max(1) as f64 / 1e6, part))
        .collect()
}

const HEADER: [&str; 20] = [
    "file",
    "producers",
    "consumers",
    "run",
    "over",
    "came",
    "msg/s",
    "MB/s",
    "windows msg/s",
    "p50 ms",
    "p99 ms",
    "max ms",
    "lost",
    "unaccounted",
    "duplicates",
    "out of order",
    "damaged",
    "unanswered",
    "CPU s/GB server, proxies, clients",
    "found",
];

fn table(series: &[Series], runs: &[(usize, &Ran)]) -> String {
    let rows: Vec<Vec<Cell>> = runs
        .iter()
        .map(|(index, ran)| row(&series[*index].label, ran))
        .collect();
    html::table(&HEADER, &rows)
}

fn row(label: &str, ran: &Ran) -> Vec<Cell> {
    let result = &ran.result;
    let counts = &result.received;
    let number = |value: u64| Cell::number(Some(value.to_string()));
    let rate = |value: Option<f64>| Cell::number(value.map(short));
    let time = |value: fn(&Percentiles) -> u64| {
        let ns = result.rtt.as_ref().map(value);
        Cell::number(ns.map(|ns| format!("{:.3}", ns as f64 / 1e6)))
    };
    let seconds = |value: Option<f64>| value.map_or("-".to_owned(), |one| format!("{one:.2}"));
    let cpu = result.cpu_seconds_per_gigabyte.as_ref();
    let wall = result.wall.as_ref();
    vec![
        Cell::text(label),
        number(result.producers),
        number(result.consumers),
        number(result.repetition + 1),
        Cell::text(&over(result)),
        number(counts.distinct),
        rate(wall.map(|wall| wall.messages_per_second)),
        rate(wall.map(|wall| wall.bytes_per_second / 1e6)),
        rate(result.sum_of_windows.map(|sum| sum.messages_per_second)),
        time(|rtt| rtt.p50_ns),
        time(|rtt| rtt.p99_ns),
        time(|rtt| rtt.most_ns),
        Cell::fault(counts.lost),
        Cell::fault(counts.unaccounted),
        Cell::fault(counts.duplicates),
        Cell::fault(counts.out_of_order),
        Cell::fault(counts.damaged),
        Cell::fault(result.unanswered),
        Cell::number(cpu.map(|cpu| {
            let parts = [cpu.server, cpu.proxies, cpu.clients];
            parts.map(seconds).join(", ")
        })),
        Cell::text(&ran.findings.join("; ")),
    ]
}

/// Over what messages went: backend, transport, and what stood between.
fn over(result: &RunResult) -> String {
    let between = match result.architecture {
        Architecture::Direct => String::new(),
        other => format!(", {}", other.label()),
    };
    format!("{} {}{between}", word(&result.backend), result.transport)
}

#[cfg(test)]
mod tests {
    use super::*;
    use workload::{Observed, Scenario, Text};

    /// A file with one run, which had nothing to do, of a workload with this name.
    fn file(directory: &Path, name: &str, workload: &str) -> std::path::PathBuf {
        let text = format!(
            "name = '{workload}'\nworkload = 'dstream'\npattern = 'work sharing'\nconsumers = 1\nmessages = 64"
        );
        let scenario = Scenario::from_toml(Text {
            file: "a.toml",
            text: &text,
        });
        let scenario = scenario.unwrap();
        let run = scenario.runs()[0];
        let result = RunResult::new(&scenario, run, &[], &[], Observed::default());
        let document = serde_json::json!({
            "made_by": "thalweg 1", "is_debug_build": true, "unix_seconds": 0,
            "host": {"name": "a<b>", "cores": 2},
            "runs": [{"result": result, "findings": ["0 of 64 <came>"], "notes": []}],
        });
        let path = directory.join(name);
        std::fs::write(&path, document.to_string()).unwrap();
        path
    }

    #[test]
    fn files_stand_beside_each_other_and_are_no_markup() {
        let directory = tempfile::tempdir().unwrap();
        let names = [
            ("one.json", "same"),
            ("two.json", "same"),
            ("three.json", "o<i>ther"),
        ];
        let results = names.map(|(name, workload)| file(directory.path(), name, workload));
        let out = directory.path().join("page.html");
        let args = PageArgs {
            results: results.to_vec(),
            out: out.clone(),
        };
        run(&args).unwrap();
        let text = std::fs::read_to_string(out).unwrap();
        assert_eq!(text.matches("<h2>").count(), 2, "{text}");
        assert!(
            text.contains("o&lt;i&gt;ther") && text.contains("a&lt;b&gt;"),
            "{text}"
        );
        assert!(text.contains("0 of 64 &lt;came&gt;"), "{text}");
        assert!(text.contains("a debug build"), "{text}");
        for outside in ["http://", "https://", "src=", "<script", "url("] {
            assert!(!text.contains(outside), "{outside}");
        }
    }

    #[test]
    fn other_files_are_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("other.json");
        for (text, says) in [
            ("[", "EOF"),
            ("{}", "missing field"),
            (
                "{\"runs\": [{\"result\": {\"format\": 99}}]}",
                "format 99 is not known",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            let failure = read(&path).err().unwrap().to_string();
            assert!(
                failure.contains("other.json") && failure.contains(says),
                "{failure}"
            );
        }
    }
}
