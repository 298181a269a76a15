//! What runs have shown: findings, a table, JSON.

use crate::output::table;
use serde_json::{Value, json};
use workload::{Architecture, Done, RunResult, Summary, Throughput};

/// What a run has shown, in a sentence each.
#[derive(Debug, Default)]
pub struct Found {
    /// What is wrong. Nothing if all that was sent came once, in order, and was answered, but for `notes`.
    pub findings: Vec<String>,
    /// What was done on purpose, and what it brings about.
    pub notes: Vec<String>,
}

impl Found {
    fn say(&mut self, is_expected: bool, count: u64, what: &str) {
        let sentences = match is_expected {
            true => &mut self.notes,
            false => &mut self.findings,
        };
        if count > 0 {
            sentences.push(format!("{count} {what}"));
        }
    }
}

/// What a run has shown. What a fault brings about by itself is no finding: a message of a consumer that is killed is
/// delivered again, out of order; a producer that is killed sends no more.
pub fn found(result: &RunResult) -> Found {
    let counts = &result.received;
    let mut found = Found::default();
    for done in &result.done {
        let Done {
            fault,
            after_ms,
            received,
        } = done;
        found.notes.push(format!(
            "{fault}: done after {after_ms} ms, when {received} messages were known to have come"
        ));
    }
    let is_done = |fault: &String| result.done.iter().any(|done| done.fault == *fault);
    for fault in result.faults.iter().filter(|fault| !is_done(fault)) {
        found
            .findings
            .push(format!("{fault}: was not done, the run was over before"));
    }
    let is_on_purpose = |who: &&String| result.done.iter().any(|done| who.ends_with(&done.fault));
    for who in &result.missing {
        match is_on_purpose(&who) {
            true => found.notes.push(format!("missing on purpose: {who}")),
            false => found.findings.push(format!("missing: {who}")),
        }
    }
    let begins = |word: &str| result.done.iter().any(|done| done.fault.starts_with(word));
    let (kills_consumer, kills_producer) = (begins("kill consumer"), begins("kill producer"));
    // A member that is away for long enough has lost its place, and acknowledgements on their way with a server are lost.
    let again = [
        "kill consumer",
        "stop consumer",
        "kill server",
        "stop server",
        "stop proxy",
        "cut",
        "expire token",
    ];
    let again = again.into_iter().any(begins);
    let is_shut_out =
        |done: &Done| done.fault.starts_with("expire token") && !done.fault.contains(" for ");
    let is_shut_out = result.done.iter().any(is_shut_out);
    for refusal in &result.refusals {
        found.findings.push(format!("refused: {refusal}"));
    }
    let is_shared = !result.pattern.is_broadcast();
    found.say(
        false,
        counts.lost,
        match is_shut_out {
            true => "messages were taken and had not come when the token expired: the server may have them still",
            false => "messages were taken and did not come",
        },
    );
    found.say(
        kills_consumer && !is_shared,
        counts.unaccounted,
        "messages were taken and came to nobody whose figures there are: somebody who is missing may have had them",
    );
    found.say(
        kills_producer,
        counts.refused,
        "messages were not taken and did not come",
    );
    found.say(
        again && counts.resent == 0,
        counts.duplicates,
        "messages came more than once to where they were to come once",
    );
    found.say(
        again && is_shared,
        counts.out_of_order,
        "messages came after a later one of their producer",
    );
    found.say(false, counts.damaged, "messages are not as they were sent");
    found.say(false, counts.foreign, "messages are of another run");
    found.say(
        kills_consumer || kills_producer,
        result.unanswered,
        "replies did not come",
    );
    found.say(
        false,
        counts.assumed,
        "messages are assumed to have come, for there were too many gaps: losses and repeats may be more",
    );
    if let Some(wanted) = result.wanted
        && result.sent < wanted
    {
        let what = format!("{} of {wanted} messages were sent", result.sent);
        match kills_producer {
            true => found.notes.push(what),
            false => found.findings.push(what),
        }
    }
    // Of somebody who is missing otherwise it is not known what was taken.
    let is_known = result.missing.iter().all(|who| is_on_purpose(&who));
    if !result.done.is_empty() && is_known && counts.lost + counts.unaccounted == 0 {
        let taken = result.confirmed;
        found.notes.push(format!(
            "none of the {taken} messages that were taken is lost"
        ));
    }
    found
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
pub fn json(results: &[RunResult], found: &[Found]) -> Value {
    let runs: Vec<Value> = results
        .iter()
        .zip(found)
        .map(|(result, Found { findings, notes })| json!({ "result": result, "findings": findings, "notes": notes }))
        .collect();
    let summaries: Vec<Value> = same(results)
        .map(|runs| {
            json!({
                "architecture": runs[0].architecture.label(),
                "producers": runs[0].producers,
                "consumers": runs[0].consumers,
                "summary": Summary::of(runs),
                "overhead": overhead(runs, results),
            })
        })
        .collect();
    json!({ "runs": runs, "summaries": summaries })
}

/// Repetitions of a run stand together.
fn same(results: &[RunResult]) -> impl Iterator<Item = &[RunResult]> {
    let key = |one: &RunResult| (one.architecture, one.producers, one.consumers);
    results.chunk_by(move |one, next| key(one) == key(next))
}

/// How many times slower these runs are than direct ones with as many members, if there are such.
fn overhead(runs: &[RunResult], results: &[RunResult]) -> Option<f64> {
    let first = &runs[0];
    if first.architecture == Architecture::Direct {
        return None;
    }
    let is_direct = |one: &RunResult| {
        one.architecture == Architecture::Direct
            && (one.producers, one.consumers) == (first.producers, first.consumers)
    };
    let direct = same(results).find(|runs| is_direct(&runs[0]))?;
    Summary::of(runs).overhead(&Summary::of(direct))
}

/// A line for each run.
pub fn text(results: &[RunResult], found: &[Found]) -> String {
    let is_direct = |one: &RunResult| one.architecture == Architecture::Direct;
    let has_others = !results.iter().all(is_direct);
    let between: &[&str] = match has_others {
        true => &["architecture", "overhead"],
        false => &[],
    };
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
    let of_all = same(results).flat_map(|runs| runs.iter().map(|_| overhead(runs, results)));
    let rows: Vec<Vec<String>> = results
        .iter()
        .zip(found)
        .zip(of_all)
        .map(|((result, found), overhead)| {
            let overhead = overhead.map_or("-".to_owned(), |times| format!("{times:.2}"));
            let mut row = match has_others {
                true => vec![result.architecture.label(), overhead],
                false => Vec::new(),
            };
            row.extend(self::row(result, found.findings.len()));
            row
        })
        .collect();
    table(&[between, &header].concat(), &rows)
}

fn row(result: &RunResult, findings: usize) -> Vec<String> {
    let rate = |one: Option<Throughput>| match one {
        // A few large messages a second are a rate too.
        Some(one) if one.messages_per_second < 10.0 => {
            format!("{:.2}", one.messages_per_second)
        }
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
