//! `thalweg audit`: gathers what the sources say, and lets
//! [`crate::examination`] compare it.

use crate::cli::AuditArgs;
use crate::examination::{Facts, StoredBatch, Verdict, examine};
use crate::failure::{About, Code, Failure};
use crate::output::Output;
use crate::progress::{Beside, Progress};
use client::journal::{JournalRecord, read_journal};
use client::{ClientError, Driver, TopicHandle};
use memory::{Buffer, Target};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use wire::batch::{Batch, BatchKind, Verify};
use wire::checksum::{crc32c, crc32c_append};
use wire::message::{DataWanted, PartitionDescription};
use wire::record::Position;
use wire::view::DataView;
use wire::{Offset, PartitionIndex, TopicId};

/// Bytes asked for at once.
const FETCH_BYTES: u64 = 8 << 20;
/// Bytes of one event's data that are read at once.
const DATA_BYTES: u64 = 4 << 20;

pub fn run(args: &AuditArgs) -> Result<ExitCode, Failure> {
    let driver = args.client.connection.driver()?;
    let mut records = Vec::new();
    for path in journal_files(&args.journal)? {
        let journal = read_journal(&path).about(path.display().to_string())?;
        records.extend(journal.records);
    }
    let names = match args.topics.as_slice() {
        [] => {
            let topics = driver
                .list_topics()
                .about(args.client.connection.subject())?;
            topics.into_iter().map(|topic| topic.name).collect()
        }
        names => names.to_vec(),
    };
    let mut audit = Audit {
        driver,
        records,
        output: Output::new(args.client.json),
        totals: Totals::default(),
    };
    for name in &names {
        audit.topic(name)?;
    }
    if args.topics.is_empty() {
        let subject = args.client.connection.subject();
        let status = audit.driver.status().about(subject.as_str())?;
        let status = serde_json::from_str(&status).map_err(|error| {
            Failure::new(
                Code::Failure,
                subject,
                format!("its status is no JSON: {error}"),
            )
        })?;
        audit.server(&status)?;
    }
    audit.finish()
}

/// The journals that are meant: files, and all files in directories.
fn journal_files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let subject = path.display().to_string();
        for entry in std::fs::read_dir(path).about(&subject)? {
            let path = entry.about(&subject)?.path();
            if path.is_file() {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

struct Audit {
    driver: Driver,
    records: Vec<JournalRecord>,
    output: Output,
    totals: Totals,
}

#[derive(Debug, Default)]
struct Totals {
    topics: Vec<TopicId>,
    partitions: u64,
    events: u64,
    findings: u64,
}

impl Audit {
    fn topic(&mut self, name: &str) -> Result<(), Failure> {
        let topic = self.driver.open_topic(name).about(name)?;
        let ids = topic.ids();
        self.totals.topics.extend(&ids);
        // Cursors before the ends: what moves meanwhile moves behind them.
        let cursors = self.driver.cursors(&topic, "").about(name)?;
        topic.refresh().about(name)?;
        for known in topic.partitions() {
            let mut facts = Facts {
                partition: known.partition,
                incarnation: known.incarnation,
                first: known.first,
                end: known.watermarks.committed,
                ..Facts::default()
            };
            let mine = |partition: PartitionIndex| partition == known.partition;
            facts.cursors = cursors
                .iter()
                .filter(|cursor| mine(cursor.partition))
                .cloned()
                .collect();
            facts.journal = self
                .records
                .iter()
                .filter(|record| ids.contains(&record.topic) && mine(record.partition))
                .copied()
                .collect();
            let subject = format!("{name}/{}", known.partition);
            let events = known.watermarks.committed.0.saturating_sub(known.first.0);
            let progress = Progress::events(&subject, Some(events), Beside::Lines);
            let scan = scan(&topic, &known, &progress).about(subject)?;
            drop(progress);
            // After the scan, which may be what finds the damage.
            let gaps = self.driver.gaps(name).about(name)?;
            facts.gaps = gaps
                .into_iter()
                .filter(|(partition, _)| mine(*partition))
                .map(|(_, gap)| gap)
                .collect();
            // What retention has dropped since it was read is not there twice.
            topic.refresh().about(name)?;
            let now = topic
                .partitions()
                .into_iter()
                .find(|now| mine(now.partition));
            if let Some(now) = now.filter(|now| now.incarnation == facts.incarnation) {
                facts.first = facts.first.max(now.first);
            }
            let (events, bytes) = (scan.events, scan.bytes);
            let kept = |batch: &StoredBatch| {
                batch.base.plus(batch.count) > facts.first || known.first == facts.first
            };
            facts.batches = scan.batches.into_iter().filter(kept).collect();
            let verdict = examine(&facts);
            self.print(name, &facts, &verdict, (events, bytes))?;
        }
        Ok(())
    }

    fn print(
        &mut self,
        topic: &str,
        facts: &Facts,
        verdict: &Verdict,
        (events, bytes): (u64, u64),
    ) -> Result<(), Failure> {
        self.totals.partitions += 1;
        self.totals.events += events;
        self.totals.findings += verdict.findings.len() as u64;
        for finding in &verdict.findings {
            self.output
                .either(&finding.to_json(topic), &format!("{topic}: {finding}"))?;
        }
        let value = json!({
            "type": "partition",
            "topic": topic,
            "partition": facts.partition.0,
            "incarnation": facts.incarnation.0,
            "first": facts.first.0,
            "end": facts.end.0,
            "batches": facts.batches.len(),
            "events": events,
            "bytes": bytes,
            "journal_records": facts.journal.len(),
            "gaps": facts.gaps.len(),
            "cursors": facts.cursors.len(),
            "findings": verdict.findings.len(),
            "explained": verdict.explained,
        });
        let explained: Vec<String> = verdict
            .explained
            .iter()
            .map(|(reason, events)| format!(", {events} gone by {reason}"))
            .collect();
        let text = format!(
            "{topic}: partition {}: {events} events in {} batches, {} journal records{}: {} findings",
            facts.partition,
            facts.batches.len(),
            facts.journal.len(),
            explained.concat(),
            verdict.findings.len()
        );
        self.output.either(&value, &text)
    }

    /// What the server says that it has lost or set aside, and topics of the journals that are
    /// not there although nobody deleted them.
    fn server(&mut self, status: &Value) -> Result<(), Failure> {
        for text in super::status::losses(status) {
            let value = json!({"type": "finding", "kind": "lost", "what": text});
            self.find(&value, &text)?;
        }
        let deleted = status["losses"]["deleted_topics"].as_array();
        let deleted: Vec<&str> = deleted
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let mut events: BTreeMap<TopicId, u64> = BTreeMap::new();
        let mut of_deleted = 0;
        for record in &self.records {
            if self.totals.topics.contains(&record.topic) {
                continue;
            }
            match deleted.contains(&record.topic.to_string().as_str()) {
                true => of_deleted += 1,
                false => *events.entry(record.topic).or_default() += u64::from(record.count),
            }
        }
        if of_deleted > 0 {
            // A topic deleted on purpose is no loss; but it is not passed over.
            eprintln!("thalweg: journals: {of_deleted} records are of topics that were deleted");
        }
        for (topic, events) in events {
            let what = format!(
                "{events} events of topic {topic} were acknowledged; the topic is not there, and \
                 no record says that it was deleted"
            );
            let value = json!({
                "type": "finding",
                "kind": "lost",
                "topic": topic.to_string(),
                "what": what,
            });
            self.find(&value, &what)?;
        }
        Ok(())
    }

    fn find(&mut self, value: &Value, text: &str) -> Result<(), Failure> {
        self.totals.findings += 1;
        self.output.either(value, text)
    }

    fn finish(mut self) -> Result<ExitCode, Failure> {
        let Totals {
            partitions,
            events,
            findings,
            ..
        } = self.totals;
        let journal_records = self.records.len();
        let value = json!({
            "type": "summary",
            "partitions": partitions,
            "events": events,
            "journal_records": journal_records,
            "findings": findings,
        });
        let text = format!(
            "{partitions} partitions, {events} events, {journal_records} journal records: {findings} findings"
        );
        self.output.either(&value, &text)?;
        self.output.flush()?;
        Ok(match findings {
            0 => ExitCode::SUCCESS,
            _ => Code::Findings.into(),
        })
    }
}

/// What reading a whole partition gave.
#[derive(Default)]
struct Scan {
    batches: Vec<StoredBatch>,
    events: u64,
    bytes: u64,
}

/// Reads every batch up to the end as it is in `known`.
fn scan(
    topic: &TopicHandle,
    known: &PartitionDescription,
    progress: &Progress,
) -> Result<Scan, ClientError> {
    let mut scan = Scan::default();
    let mut at = Position {
        incarnation: known.incarnation,
        offset: known.first,
    };
    while at.offset < known.watermarks.committed {
        let fetched = topic.fetch(known.partition, at, FETCH_BYTES, Duration::ZERO, true)?;
        for bytes in fetched.batches() {
            // Verified once more: this is what audits are for.
            let batch = Batch::read(bytes.clone(), Verify::Sections).map_err(|error| {
                ClientError::Damaged {
                    what: format!("a batch from offset {} on: {error}", at.offset),
                }
            })?;
            if batch.header.kind != BatchKind::Events {
                continue;
            }
            let Some(base) = batch.stamp.map(|stamp| stamp.base_offset) else {
                continue;
            };
            scan.events += u64::from(batch.header.event_count);
            progress.add(batch.header.offset_count());
            scan.bytes += batch.header.batch_bytes() + external_bytes(&batch);
            scan.batches.push(StoredBatch {
                base,
                count: batch.header.offset_count(),
                producer: batch.header.producer,
                epoch: batch.header.epoch,
                first_sequence: batch.header.first_sequence,
                checksum: checksum(topic, known, base, &batch)?,
            });
        }
        match fetched.next {
            Some(next) if next.incarnation == at.incarnation && next.offset > at.offset => {
                at = next
            }
            // A new life has begun, or nothing more is there: what is missing is found out.
            _ => break,
        }
    }
    Ok(scan)
}

fn external_bytes(batch: &Batch) -> u64 {
    let events = batch
        .columns()
        .map(|columns| columns.events)
        .unwrap_or_default();
    events
        .iter()
        .filter(|event| event.external)
        .map(|event| event.data_bytes)
        .sum()
}

/// The checksum that a journal has for a batch; `None` if its data cannot be read.
fn checksum(
    topic: &TopicHandle,
    known: &PartitionDescription,
    base: Offset,
    batch: &Batch,
) -> Result<Option<u32>, ClientError> {
    let mut crc = crc32c(batch.metadata_section());
    crc = crc32c_append(crc, batch.inline_section().unwrap_or_default());
    let Ok(columns) = batch.columns() else {
        return Ok(None);
    };
    for event in columns.events.iter().filter(|event| event.external) {
        let mut at = 0;
        while at < event.data_bytes {
            let bytes = DATA_BYTES.min(event.data_bytes - at);
            let view = DataView::whole(event.data_bytes).range(at, bytes);
            let view = view.expect("the range ends with the data at the latest");
            let wanted = DataWanted {
                partition: known.partition,
                incarnation: known.incarnation,
                offset: base.plus(event.offset_delta.into()),
                segments: view.segments().to_vec(),
            };
            let into = Target::from(Buffer::zeroed(bytes as usize));
            let read = match topic.read_data(&[wanted], vec![into]) {
                Err(error) if error.code() == Some(wire::ErrorCode::Damaged) => return Ok(None),
                other => other?,
            };
            for mut target in read {
                crc = crc32c_append(crc, target.as_mut());
            }
            at += bytes;
        }
    }
    Ok(Some(crc))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn directories_stand_for_the_files_in_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["b", "a"] {
            std::fs::write(path(name), "").unwrap();
        }
        std::fs::create_dir(path("nested")).unwrap();
        let found =
            journal_files(&[directory.path().to_owned(), Path::new("x").to_owned()]).unwrap();
        assert_eq!(found, [path("a"), path("b"), PathBuf::from("x")]);
    }
}
