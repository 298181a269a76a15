//! What is there, looked at before anything is changed: the table's log and the ledger are replayed on a
//! disk in memory, and what it says is compared with what lies beside it.

use super::logs::open_logs;
use super::remembered::Remembered;
use crate::blocking::{Blocking, list};
use crate::coordinator::controller::{Controller, Home};
use crate::coordinator::served_topic::{first_index, partition_directory};
use crate::coordinator::table::Table;
use crate::coordinator::topic_file::{self, Found, TopicFile};
use crate::ids::Now;
use crate::options::{NodeError, NodeOptions};
use log::{DiskErrorKind, DiskKind, DryRun, Traces};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use topic::Definition;
use wire::record::{PartitionRecord, Record};
use wire::{Incarnation, Offset, PartitionIndex, TopicId};

/// A partition's directory that the table does not name.
pub(crate) struct Unnamed {
    pub name: String,
    pub path: PathBuf,
    /// The topic, partition and storage kind that its name tells.
    pub of: Option<(TopicId, PartitionIndex, String)>,
    /// Whether its topic's end is recorded.
    pub is_deleted: bool,
    /// What its files tell, if it is of the kind `disk` and they can be read.
    pub traces: Option<Traces>,
}

impl Unnamed {
    /// Whether a topic that was never finished cannot explain it.
    fn is_a_loss(&self) -> bool {
        let is_disk = self.of.as_ref().is_some_and(|(_, _, kind)| kind == "disk");
        !self.is_deleted && is_disk && self.traces.is_none_or(|traces| traces.holds_events)
    }
}

/// Something that was lost.
pub(crate) struct Loss {
    /// Of which of the two.
    pub home: Home,
    /// What, for people.
    pub what: String,
}

impl Loss {
    fn of_table(what: String) -> Self {
        let home = Home::Table;
        Self { home, what }
    }
}

/// See the module.
pub(crate) struct Survey {
    pub table: Table,
    /// The number of the next record of the table's log, and of the ledger.
    pub ends: [Offset; 2],
    /// What the two have lost.
    pub log_losses: Vec<Loss>,
    pub unnamed: Vec<Unnamed>,
    /// The files of topics.
    pub topic_files: BTreeMap<TopicId, Found>,
}

impl Survey {
    /// Looks. Blocks, and changes nothing.
    ///
    /// # Errors
    /// If a later version wrote what is there, or it cannot be read.
    pub fn take(options: &NodeOptions, now: Now) -> Result<Self, NodeError> {
        let dry: Arc<DryRun> = Arc::new(DryRun::new(options.disk.clone()));
        let kind = DiskKind::seeded(dry.clone(), 0);
        let (mut controller, mut damage) = open_logs(options, &kind, dry.as_ref(), now)?;
        let table = controller.table().clone();
        let blocking = Blocking { disk: dry.as_ref() };
        controller.replay_ledger(&mut damage[1], &blocking)?;
        let mut losses = Vec::new();
        for (home, damage) in Home::ALL.into_iter().zip(&damage) {
            losses.extend(damage.iter().map(|gap| {
                let what = format!(
                    "{home} lost records {} to {} ({}): {} that were written there may be missing",
                    gap.first,
                    gap.end,
                    gap.reason,
                    home.content()
                );
                Loss { home, what }
            }));
        }
        let mut survey = Self {
            table,
            ends: Home::ALL.map(|home| controller.end(home)),
            log_losses: losses,
            unnamed: Vec::new(),
            topic_files: BTreeMap::new(),
        };
        survey.find_unnamed(options)?;
        survey.find_topic_files(options)?;
        Ok(survey)
    }

    fn find_unnamed(&mut self, options: &NodeOptions) -> Result<(), NodeError> {
        let topics = self.table.topics();
        let known: BTreeSet<PathBuf> = topics
            .flat_map(|(_, entry)| entry.partitions.values())
            .map(|record| partition_directory(&options.directory, record))
            .collect();
        let deleted: BTreeSet<TopicId> = self.table.deleted().copied().collect();
        let directory = options.directory.join("partitions");
        for name in list_if_there(options, &directory)? {
            let path = directory.join(&name);
            if known.contains(&path) {
                continue;
            }
            let of = parse(&name);
            let is_deleted = of
                .as_ref()
                .is_some_and(|(topic, ..)| deleted.contains(topic));
            let is_disk = of.as_ref().is_some_and(|(_, _, kind)| kind == "disk");
            let traces = match is_disk && !is_deleted {
                true => Traces::of(options.disk.as_ref(), &path).ok(),
                false => None,
            };
            self.unnamed.push(Unnamed {
                name,
                path,
                of,
                is_deleted,
                traces,
            });
        }
        Ok(())
    }

    fn find_topic_files(&mut self, options: &NodeOptions) -> Result<(), NodeError> {
        let directory = topic_file::directory(&options.directory);
        for name in list_if_there(options, &directory)? {
            if let Some(topic) = topic_file::topic_of(&name) {
                let path = directory.join(&name);
                let found = TopicFile::read(options.disk.as_ref(), &path, topic)?;
                self.topic_files.insert(topic, found);
            }
        }
        Ok(())
    }

    /// Files of topics of which the table knows neither the topic nor its end.
    pub fn unknown_files(&self) -> impl Iterator<Item = (&TopicId, &Found)> {
        let deleted: BTreeSet<&TopicId> = self.table.deleted().collect();
        let files = self.topic_files.iter();
        files.filter(move |(topic, _)| {
            self.table.topic(**topic).is_none() && !deleted.contains(topic)
        })
    }

    /// What only a loss explains: each a line. Without any the start may go on.
    pub fn losses(&self, remembered: &Remembered) -> Vec<Loss> {
        let mut losses = Vec::new();
        let ends = remembered.ends.into_iter().zip(self.ends);
        for (home, (had, has)) in Home::ALL.into_iter().zip(ends) {
            let name = home.directory();
            if has.0 < had {
                let what = match has.0 {
                    0 => format!("`{name}` is missing or empty: it had {had} records"),
                    _ => format!(
                        "`{name}` is older than what lies beside it: it has {has} records, and had {had}"
                    ),
                };
                losses.push(Loss { home, what });
            }
        }
        for (topic, found) in self.unknown_files() {
            losses.push(Loss::of_table(match found {
                Found::File(file) => format!(
                    "`internal` does not know topic {:?} ({topic})",
                    file.record.name
                ),
                Found::Damaged => format!(
                    "`internal` does not know topic {topic}, and the file of that topic is damaged"
                ),
            }));
        }
        for (topic, found) in &self.topic_files {
            if let (Some(entry), Found::File(file)) = (self.table.topic(*topic), found) {
                let (known, there) = (entry.partitions.len(), file.partitions.len());
                if known < there {
                    losses.push(Loss::of_table(format!(
                        "`internal` knows {known} of the {there} partitions of topic {:?} ({topic})",
                        entry.record.name
                    )));
                }
            }
        }
        for unnamed in self.unnamed.iter().filter(|unnamed| unnamed.is_a_loss()) {
            losses.push(Loss::of_table(format!(
                "`internal` does not know partitions/{}, which holds events or cannot be read",
                unnamed.name
            )));
        }
        losses
    }

    /// Records that make topics and partitions known again that the table does not know, from
    /// the files of topics; and the names of those topics.
    pub fn rebuild(&self, options: &NodeOptions, now: Now) -> (Vec<Record>, Vec<String>) {
        let (mut records, mut names) = (Vec::new(), Vec::new());
        for (topic, found) in &self.topic_files {
            let Found::File(file) = found else { continue };
            let entry = self.table.topic(*topic);
            if entry.is_none() && !self.may_be_rebuilt(*topic, file) {
                continue;
            }
            let known = entry.map_or(0, |entry| entry.partitions.len());
            if entry.is_none() {
                records.push(Record::Topic(file.record.clone()));
            }
            let first = Definition::from_json(&file.record.definition);
            let first = first.as_ref().map_or(0, first_index);
            let partitions = (first..).map(PartitionIndex).zip(&file.partitions);
            for (partition, (storage, config)) in partitions.skip(known) {
                records.push(Record::Partition(PartitionRecord {
                    topic: *topic,
                    partition,
                    storage: storage.clone(),
                    config: config.clone(),
                    incarnation: self.incarnation(*topic, partition, options, storage, now),
                    // How many leaders it has had is not known; so many it had not.
                    leader_epoch: (now.unix_ns / 1_000_000_000) as u32,
                    ended: Vec::new(),
                }));
            }
            if entry.is_none() || known < file.partitions.len() {
                names.push(format!("{:?}", file.record.name));
            }
        }
        (records, names)
    }

    fn may_be_rebuilt(&self, topic: TopicId, file: &TopicFile) -> bool {
        let record = &file.record;
        let is_free = self.table.named(&record.namespace, &record.name).is_none();
        let is_deleted = self.table.deleted().any(|deleted| *deleted == topic);
        is_free && !is_deleted && Definition::from_json(&record.definition).is_ok()
    }

    /// The life in which a partition goes on whose record is lost.
    fn incarnation(
        &self,
        topic: TopicId,
        partition: PartitionIndex,
        options: &NodeOptions,
        storage: &str,
        now: Now,
    ) -> Incarnation {
        let durable = options.kinds.iter().find(|kind| kind.name() == storage);
        let is_memory =
            durable.is_some_and(|kind| kind.durability_max() == wire::Durability::Memory);
        if is_memory {
            // How many lives it has had is not known; so many it had not.
            return Incarnation(now.unix_ns / 1_000_000_000);
        }
        let is_it = |unnamed: &&Unnamed| {
            let of = unnamed.of.as_ref();
            of.is_some_and(|(of_topic, of_partition, _)| {
                *of_topic == topic && *of_partition == partition
            })
        };
        let traces = self
            .unnamed
            .iter()
            .find(is_it)
            .and_then(|found| found.traces);
        traces.map_or(Incarnation(1), |traces| traces.incarnation)
    }
}

/// The parts of a partition directory's name.
pub(super) fn parse(name: &str) -> Option<(TopicId, PartitionIndex, String)> {
    let mut parts = name.splitn(3, '-');
    let topic = topic_file::id(parts.next()?)?;
    let partition = PartitionIndex(parts.next()?.parse().ok()?);
    Some((topic, partition, parts.next()?.to_owned()))
}

fn list_if_there(options: &NodeOptions, path: &std::path::Path) -> Result<Vec<String>, NodeError> {
    match list(options.disk.as_ref(), path) {
        Err(NodeError::Disk(error)) if error.kind == DiskErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}
