//! `thalweg why`, `gaps`, `lag` and `tail`: questions about one topic.

use crate::cli::{ConsumeArgs, GapsArgs, LagArgs, TailArgs, WhyArgs};
use crate::event_json;
use crate::failure::{About, Code, Failure};
use crate::output::{Output, table};
use jiff::Timestamp;
use serde_json::json;

/// Why a consumer gets nothing.
pub fn why(args: &WhyArgs) -> Result<(), Failure> {
    let connection = &args.client.connection;
    let driver = connection.driver().map_err(|failure| match failure {
        Failure::Told {
            subject,
            what,
            code: code @ Code::NoServer,
        } => {
            let next = format!("thalweg doctor {}", connection.subject());
            Failure::new(code, subject, format!("{what}\nnext: {next}"))
        }
        other => other,
    })?;
    let explained = driver
        .explain(&args.topic, args.name.as_deref())
        .about(&args.topic)?;
    let is_known = driver.topic_exists(&args.topic).about(&args.topic)?;
    let mut output = Output::new(args.client.json);
    if is_known || output.is_json() {
        output.either(
            &json!({"sentence": explained.sentence, "next": explained.next}),
            &explained.to_string(),
        )?;
        output.flush()?;
    }
    match is_known {
        true => Ok(()),
        // As other commands of a topic that is not there.
        false => Err(Failure::new(Code::Failure, &args.topic, explained)),
    }
}

/// Every loss recorded for a topic.
pub fn gaps(args: &GapsArgs) -> Result<(), Failure> {
    let driver = args.client.connection.driver()?;
    let gaps = driver.gaps(&args.topic).about(&args.topic)?;
    let mut output = Output::new(args.client.json);
    let mut rows = Vec::new();
    for (partition, gap) in &gaps {
        if output.is_json() {
            output.line(&event_json::gap_line(*partition, gap))?;
        }
        rows.push(vec![
            partition.to_string(),
            gap.incarnation.to_string(),
            gap.first.to_string(),
            gap.end.to_string(),
            match gap.end.0.saturating_sub(gap.first.0) {
                // It is not known how many there were.
                0 => "-".to_owned(),
                count => count.to_string(),
            },
            gap.reason.name().to_owned(),
            time(gap.time),
        ]);
    }
    if !output.is_json() {
        match rows.is_empty() {
            true => output.line(&format!("{}: nothing was lost", args.topic))?,
            false => {
                let header = [
                    "partition",
                    "incarnation",
                    "first",
                    "end",
                    "events",
                    "reason",
                    "noticed",
                ];
                output.line(&table(&header, &rows))?;
            }
        }
    }
    output.flush()
}

/// A time of nanoseconds since 1970, to the second.
fn time(nanoseconds: u64) -> String {
    let time = Timestamp::from_second((nanoseconds / 1_000_000_000) as i64);
    time.map_or("-".to_owned(), |time| time.to_string())
}

/// How far every consumer, group and queue of a topic is behind.
pub fn lag(args: &LagArgs) -> Result<(), Failure> {
    let driver = args.client.connection.driver()?;
    let topic = driver.open_topic(&args.topic).about(&args.topic)?;
    let lags = topic.lag().about(&args.topic)?;
    let mut output = Output::new(args.client.json);
    let mut rows = Vec::new();
    for lag in &lags {
        if output.is_json() {
            let partitions = lag.partitions.iter();
            let partitions: Vec<_> = partitions
                .map(|(partition, events)| json!({"partition": partition.0, "lag": events}))
                .collect();
            output.json(&json!({
                "name": lag.name,
                "kind": lag.kind.name(),
                "lag": lag.events,
                "members": lag.members,
                "partitions": partitions,
            }))?;
        }
        rows.push(vec![
            lag.name.clone(),
            lag.kind.name().to_owned(),
            lag.members.to_string(),
            lag.events.to_string(),
        ]);
    }
    if !output.is_json() {
        output.line(&table(&["name", "kind", "members", "lag"], &rows))?;
    }
    output.flush()
}

/// The last events of a topic, and with `--follow` what comes.
pub fn tail(args: TailArgs) -> Result<(), Failure> {
    super::consume::run(&ConsumeArgs {
        topic: args.topic,
        // Nothing is acknowledged under it, so that it leaves no trace.
        name: format!("tail-{}", std::process::id()),
        partition: args.partition,
        start: Some(format!("-{}", args.count)),
        data_dir: None,
        data_base64: args.data_base64,
        data_range: None,
        plain: args.plain,
        max: None,
        follow: args.follow,
        reconnect_timeout: args.reconnect_timeout,
        no_ack: true,
        client: args.client,
    })
}
