//! What runs have shown: findings, a table, JSON.

use crate::output::table;
use serde_json::{Value, json};
use workload::{RunResult, Summary, Throughput};

/// What is wrong with a run, in a sentence each. Nothing if all that was sent came once, in order, and was answered.
pub fn findings(result: &RunResult) -> Vec<String> {
    let counts = &result.received;
    let mut findings: Vec<String> = result
        .missing
        .iter()
        .map(|who| format!("missing: {who}"))
        .collect();
    let mut say = |count: u64, what: &str| {
        if count > 0 {
            findings.push(format!("{count} {what}"));
        }
    };
    say(counts.lost, "messages were taken and did not come");
    say(
        counts.unaccounted,
        "messages were taken and came to nobody whose figures there are: somebody who is missing may have had them",
    );
    say(counts.refused, "messages were not taken and did not come");
    say(
        counts.duplicates,
        "messages came more than once to where they were to come once",
    );
    say(
        counts.out_of_order,
        "messages came after a later one of their producer",
    );
    say(counts.damaged, "messages are not as they were sent");
    say(counts.foreign, "messages are of another run");
    say(result.unanswered, "replies did not come");
    say(
        counts.assumed,
        "messages are assumed to have come, for there were too many gaps: losses and repeats may be more",
    );
    if let Some(wanted) = result.wanted
        && result.sent < wanted
    {
        findings.push(format!("{} of {wanted} messages were sent", result.sent));
    }
    findings
}

/// What results are compared by, and the runs.
pub fn document(circumstances: &Value, runs: Value) -> Value {
    let mut document = circumstances.clone();
    if let (Value::Object(document), Value::Object(runs)) = (&mut document, runs) {
        document.extend(runs);
    }
    document
}

/// All runs as one document.
pub fn json(results: &[RunResult], findings: &[Vec<String>]) -> Value {
    let runs: Vec<Value> = results
        .iter()
        .zip(findings)
        .map(|(result, findings)| json!({ "result": result, "findings": findings }))
        .collect();
    let summaries: Vec<Value> = same(results)
        .map(|runs| {
            json!({
                "producers": runs[0].producers,
                "consumers": runs[0].consumers,
                "summary": Summary::of(runs),
            })
        })
        .collect();
    json!({ "runs": runs, "summaries": summaries })
}

/// Repetitions of a run stand together.
fn same(results: &[RunResult]) -> impl Iterator<Item = &[RunResult]> {
    results.chunk_by(|one, next| (one.producers, one.consumers) == (next.producers, next.consumers))
}

/// A line for each run.
pub fn text(results: &[RunResult], findings: &[Vec<String>]) -> String {
    let header = [
        "producers",
        "consumers",
        "run",
        "messages",
        "wall msg/s",
        "wall MB/s",
        "windows msg/s",
        "rtt p50 ms",
        "p99 ms",
        "max ms",
        "found",
    ];
    let rows: Vec<Vec<String>> = results
        .iter()
        .zip(findings)
        .map(|(result, findings)| row(result, findings.len()))
        .collect();
    table(&header, &rows)
}

fn row(result: &RunResult, findings: usize) -> Vec<String> {
    let rate = |one: Option<Throughput>| match one {
        Some(one) => format!("{:.0}", one.messages_per_second),
        None => "-".to_owned(),
    };
    let megabytes = match result.wall {
        Some(wall) => format!("{:.1}", wall.bytes_per_second / 1e6),
        None => "-".to_owned(),
    };
    let time = |value: Option<u64>| match value {
        Some(ns) => format!("{:.3}", ns as f64 / 1e6),
        None => "-".to_owned(),
    };
    let rtt = result.rtt.as_ref();
    vec![
        result.producers.to_string(),
        result.consumers.to_string(),
        (result.repetition + 1).to_string(),
        result.received.distinct.to_string(),
        rate(result.wall),
        megabytes,
        rate(result.sum_of_windows),
        time(rtt.map(|rtt| rtt.p50_ns)),
        time(rtt.map(|rtt| rtt.p99_ns)),
        time(rtt.map(|rtt| rtt.most_ns)),
        match findings {
            0 => "nothing".to_owned(),
            count => count.to_string(),
        },
    ]
}
