//! A file for each topic beside the table's log, from which the table could be rebuilt.
//!
//! It is written after the record that it repeats is durable, so that a file of a topic that
//! the table neither knows nor has seen deleted shows that the table is older or damaged. The
//! page is `docs/format/directory.md`.

use crate::coordinator::table::{Table, TopicEntry};
use crate::ctx::Ctx;
use crate::ids::Purpose;
use crate::io::Job;
use crate::options::NodeError;
use crate::small_file;
use log::{Disk, DiskError};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use wire::TopicId;
use wire::record::TopicRecord;

/// The version of the format that is written.
const FORMAT: u64 = 1;

/// What a topic's file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicFile {
    pub record: TopicRecord,
    /// Storage kind and configuration of each partition.
    pub partitions: Vec<(String, String)>,
}

/// What is at a place of such a file.
#[derive(Debug)]
pub(crate) enum Found {
    File(TopicFile),
    Damaged,
}

impl TopicFile {
    pub fn of(entry: &TopicEntry) -> Self {
        let partitions = entry.partitions.values();
        let partitions =
            partitions.map(|partition| (partition.storage.clone(), partition.config.clone()));
        Self {
            record: entry.record.clone(),
            partitions: partitions.collect(),
        }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let partitions = self.partitions.iter();
        let partitions = partitions
            .map(|(storage, config)| json!({"storage": storage, "config": config}))
            .collect::<Vec<_>>();
        small_file::to_bytes(&json!({
            "format": FORMAT,
            "topic": self.record.topic.to_string(),
            "namespace": self.record.namespace,
            "name": self.record.name,
            "definition": self.record.definition,
            "partitions": partitions,
        }))
    }

    /// Reads the file at `path`, whose name says that it is of `topic`.
    pub fn read(disk: &dyn Disk, path: &Path, topic: TopicId) -> Result<Found, NodeError> {
        let bytes = small_file::read(disk, path)?.unwrap_or_default();
        let Some(document) = small_file::from_bytes(&bytes) else {
            return Ok(Found::Damaged);
        };
        if document["format"] != FORMAT {
            return Err(NodeError::Invalid(format!(
                "{}: its format is {}, this version knows format {FORMAT}: it was written by a \
                 newer version of Thalweg",
                path.display(),
                document["format"]
            )));
        }
        let read = Self::of_document(&document, topic);
        Ok(read.map_or(Found::Damaged, Found::File))
    }

    fn of_document(document: &Value, topic: TopicId) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let partitions = document["partitions"].as_array()?.iter();
        let partitions = partitions
            .map(|partition| Some((text(&partition["storage"])?, text(&partition["config"])?)));
        (document["topic"] == topic.to_string()).then_some(())?;
        Some(Self {
            record: TopicRecord {
                namespace: text(&document["namespace"])?,
                name: text(&document["name"])?,
                topic,
                definition: text(&document["definition"])?,
            },
            partitions: partitions.collect::<Option<Vec<_>>>()?,
        })
    }
}

/// Where the topics' files are.
pub(crate) fn directory(data: &Path) -> PathBuf {
    data.join("topics")
}

/// Where the file of a topic is.
pub(crate) fn path(data: &Path, topic: TopicId) -> PathBuf {
    directory(data).join(format!("{topic}.json"))
}

/// Whose file has this name.
pub(crate) fn topic_of(name: &str) -> Option<TopicId> {
    id(name.strip_suffix(".json")?)
}

/// The topic of this id in hexadecimal digits.
pub(crate) fn id(text: &str) -> Option<TopicId> {
    let id = TopicId(u128::from_str_radix(text, 16).ok()?);
    (id.to_string() == text).then_some(id)
}

/// Topics whose files are being written, and whether they have changed meanwhile.
#[derive(Debug, Default)]
pub(crate) struct TopicFiles(BTreeMap<TopicId, bool>);

impl TopicFiles {
    /// Makes a topic's file say what the table says, or removes it with the topic.
    pub fn keep(&mut self, topic: TopicId, table: &Table, ctx: &mut Ctx) {
        let entry = table.topic(topic);
        let entry = entry.filter(|entry| entry.home() == ctx.node());
        self.write(
            topic,
            entry.map(|entry| TopicFile::of(entry).to_bytes()),
            ctx,
        );
    }

    fn write(&mut self, topic: TopicId, bytes: Option<Vec<u8>>, ctx: &mut Ctx) {
        if let Some(again) = self.0.get_mut(&topic) {
            *again = true;
            return;
        }
        self.0.insert(topic, false);
        let work = Job::Keep {
            disk: ctx.options.disk.clone(),
            path: path(&ctx.options.directory, topic),
            bytes,
        };
        ctx.start_job(Purpose::KeepTopic(topic), work);
    }

    /// Removes the file of a topic that is on another node.
    pub fn forget(&mut self, topic: TopicId, ctx: &mut Ctx) {
        self.write(topic, None, ctx);
    }

    /// A topic's file was written. Where it could not be, the next start tries again.
    pub fn kept(
        &mut self,
        topic: TopicId,
        result: Result<(), DiskError>,
        table: &Table,
        ctx: &mut Ctx,
    ) {
        if let Err(error) = result {
            ctx.report(format!(
                "the file of topic {topic} is not written, without which it cannot be rebuilt \
                 should the table be lost: {error}"
            ));
        }
        if self.0.remove(&topic) == Some(true) {
            self.keep(topic, table, ctx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_as_it_was() {
        const KEPT: &str = include_str!("../../tests/golden/v1/topic.json");
        let topic = TopicId(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        let file = TopicFile {
            record: TopicRecord {
                namespace: "beamline".into(),
                name: "frames".into(),
                topic,
                definition: "{\"durability\":\"synced\"}".into(),
            },
            partitions: vec![
                ("disk".into(), "{}".into()),
                ("memory".into(), String::new()),
            ],
        };
        assert_eq!(String::from_utf8(file.to_bytes()).unwrap(), KEPT);
        let document = small_file::from_bytes(KEPT.as_bytes()).unwrap();
        assert_eq!(TopicFile::of_document(&document, topic), Some(file));
        assert_eq!(TopicFile::of_document(&document, TopicId(7)), None);
    }
}
