//! `thalweg cursor`.

use crate::cli::{CursorCommand, CursorDeleteArgs, CursorListArgs, CursorSeekArgs};
use crate::failure::{About, Failure};
use crate::output::{Output, table};
use client::When;
use serde_json::json;

pub fn run(command: CursorCommand) -> Result<(), Failure> {
    match command {
        CursorCommand::List(args) => list(&args),
        CursorCommand::Seek(args) => seek(&args),
        CursorCommand::Delete(args) => delete(&args),
    }
}

fn list(args: &CursorListArgs) -> Result<(), Failure> {
    let driver = args.client.connection.driver()?;
    let topic = driver.open_topic(&args.topic).about(&args.topic)?;
    let consumer = args.name.as_deref().unwrap_or_default();
    let cursors = driver.cursors(&topic, consumer).about(&args.topic)?;
    let partitions = topic.partitions();
    let mut output = Output::new(args.client.json);
    let mut rows = Vec::new();
    for cursor in &cursors {
        let partition = partitions
            .iter()
            .find(|known| known.partition == cursor.partition);
        // A cursor of an ended life has nothing left to count in it.
        let behind = partition
            .filter(|known| known.incarnation == cursor.position.incarnation)
            .map(|known| {
                known
                    .watermarks
                    .committed
                    .0
                    .saturating_sub(cursor.position.offset.0)
            });
        if output.is_json() {
            output.json(&json!({
                "consumer": cursor.consumer,
                "partition": cursor.partition.0,
                "incarnation": cursor.position.incarnation.0,
                "offset": cursor.position.offset.0,
                "behind": behind,
            }))?;
        }
        rows.push(vec![
            cursor.consumer.clone(),
            cursor.partition.to_string(),
            cursor.position.incarnation.to_string(),
            cursor.position.offset.to_string(),
            behind.map_or("-".to_owned(), |events| events.to_string()),
        ]);
    }
    if !output.is_json() {
        output.line(&table(
            &["consumer", "partition", "incarnation", "offset", "behind"],
            &rows,
        ))?;
    }
    output.flush()
}

fn seek(args: &CursorSeekArgs) -> Result<(), Failure> {
    let driver = args.client.connection.driver()?;
    let topic = driver.open_topic(&args.topic).about(&args.topic)?;
    let to = When::parse(&args.to).map_err(|why| Failure::usage("--to", why))?;
    let partitions = (!args.partition.is_empty()).then(|| args.partition.clone());
    let positions = topic.positions(to, partitions).about(&args.topic)?;
    driver
        .seek(&topic, &args.name, &positions)
        .about(format!("{}/{}", args.topic, args.name))?;
    let mut output = Output::new(args.client.json);
    for (partition, position) in &positions {
        let (incarnation, offset) = (position.incarnation, position.offset);
        output.either(
            &json!({
                "consumer": args.name,
                "partition": partition.0,
                "incarnation": incarnation.0,
                "offset": offset.0,
            }),
            &format!(
                "{}: partition {partition} at {offset} of incarnation {incarnation}",
                args.name
            ),
        )?;
    }
    output.flush()
}

fn delete(args: &CursorDeleteArgs) -> Result<(), Failure> {
    let driver = args.client.connection.driver()?;
    let topic = driver.open_topic(&args.topic).about(&args.topic)?;
    driver
        .delete_consumer(&topic, &args.name)
        .about(format!("{}/{}", args.topic, args.name))?;
    let mut output = Output::new(args.client.json);
    output.either(
        &json!({"deleted": args.name}),
        &format!("deleted {}", args.name),
    )?;
    output.flush()
}
