//! What must hold of the servers together, at any time.
//!
//! - Tables that have come as far are the same: of voters and of nodes.
//! - A data directory is one node, in a later epoch each time, and no other directory is that node.
//! - A topic is served by one node at a time.
//! - One voter is elected in a term, and one leads the table.

use super::site::{Site, directory_of};
use crate::trace::Violation;
use broker::Inspected;
use broker::controller::Home;
use broker::table::Table;
use cluster::VoterId;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use wire::codec::Codec;
use wire::record::Record;
use wire::table::Registered;
use wire::{DirectoryId, TopicId};

/// See the module.
#[derive(Default)]
pub struct Judge {
    /// What the table of each place was first, and whose that was.
    seen: BTreeMap<u64, (u64, String)>,
    /// How far the tables of each server's voter and node had come when they were looked at last.
    looked_at: BTreeMap<(usize, bool), u64>,
    registered: BTreeMap<DirectoryId, Registered>,
    /// Which voter has led the table in each term.
    led_by: BTreeMap<u64, usize>,
    /// Which voter was known to be elected in each term.
    elected: BTreeMap<u64, VoterId>,
}

/// What of a table is the same on all that have come as far.
fn hash(table: &Table) -> u64 {
    let is_of_copy = |it: &Record| matches!(it, Record::Followed(_)) || Home::of(it) != Home::Table;
    let records: Vec<Record> = table.records().filter(|it| !is_of_copy(it)).collect();
    let mut hasher = DefaultHasher::new();
    records.to_bytes().hash(&mut hasher);
    hasher.finish()
}

impl Judge {
    /// In how many terms somebody has led the table.
    pub fn leaders(&self) -> u64 {
        self.led_by.len() as u64
    }

    /// Looks at all servers.
    pub fn look(&mut self, sites: &mut [Site]) -> Result<(), Violation> {
        let sites_of_it = sites.iter_mut().enumerate();
        // What those of another cluster decide is their own.
        for (place, site) in sites_of_it.filter(|(_, site)| !site.is_stranger()) {
            if let Some(registered) = site.registered.take() {
                self.registered(place, registered)?;
            }
            if let Some(voter) = site.voter() {
                let (term, elected) = voter.leader();
                if let Some(elected) = elected {
                    let first = *self.elected.entry(term).or_insert(elected);
                    if first != elected {
                        return Violation::because(format!(
                            "{first} and {elected} are both elected in term {term}"
                        ));
                    }
                }
                if voter.is_leading() && *self.led_by.entry(term).or_insert(place) != place {
                    return Violation::because(format!("two voters lead in term {term}"));
                }
                let what = format!("the table of the voter of machine-{place}");
                self.table((place, true), voter.applied(), voter.table(), what)?;
            }
            if let Some(node) = site.machine.node() {
                let table = node.inspect().table();
                let what = format!("the table of the node of machine-{place}");
                self.table((place, false), table.followed(), table, what)?;
            }
        }
        self.served(sites)
    }

    fn registered(&mut self, place: usize, registered: Registered) -> Result<(), Violation> {
        let directory = directory_of(place);
        let before = self.registered.insert(directory, registered);
        if before.is_some_and(|it| it.node != registered.node || it.epoch >= registered.epoch) {
            return Violation::because(format!(
                "machine-{place} was {before:?}, and is {registered:?}"
            ));
        }
        let mut others = self.registered.iter();
        let is_same = |(other, it): &(&DirectoryId, &Registered)| {
            **other != directory && it.node == registered.node
        };
        match others.find(is_same) {
            Some((other, _)) => Violation::because(format!(
                "directories {directory} and {other} are both node {}",
                registered.node
            )),
            None => Ok(()),
        }
    }

    fn table(
        &mut self,
        whose: (usize, bool),
        index: u64,
        table: &Table,
        what: String,
    ) -> Result<(), Violation> {
        if index == 0 || self.looked_at.insert(whose, index) == Some(index) {
            return Ok(());
        }
        let mut names = BTreeSet::new();
        for (_, entry) in table.topics() {
            let record = &entry.record;
            if !names.insert((&record.namespace, &record.name)) {
                return Violation::because(format!("{what} has {} twice", record.name));
            }
        }
        let found = hash(table);
        let (first, by) = self
            .seen
            .entry(index)
            .or_insert_with(|| (found, what.clone()));
        match *first == found {
            true => Ok(()),
            false => Violation::because(format!("{what} is another one at {index} than {by}")),
        }
    }

    fn served(&self, sites: &[Site]) -> Result<(), Violation> {
        let mut by: BTreeMap<TopicId, usize> = BTreeMap::new();
        for (place, site) in sites.iter().enumerate() {
            let node = site.machine.node().map(broker::Node::inspect);
            for topic in node.map(Inspected::topics_served).unwrap_or_default() {
                if let Some(other) = by.insert(topic, place) {
                    return Violation::because(format!(
                        "topic {topic} is served by machine-{other} and machine-{place}"
                    ));
                }
            }
        }
        Ok(())
    }
}
