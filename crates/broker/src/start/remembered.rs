//! What starts remember beside table and ledger: how far these came, and what was lost.
//!
//! The file is `start.json`; its page is `docs/format/directory.md`.

use crate::coordinator::controller::{Controller, Home};
use crate::ctx::Ctx;
use crate::ids::Purpose;
use crate::io::Job;
use crate::options::NodeError;
use crate::small_file;
use log::{Disk, DiskError};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The version of the format that is written.
const FORMAT: u64 = 1;
/// Losses that are remembered; of more, the latest.
const DAMAGE_MAX: usize = 256;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Remembered {
    /// The table's log, and the ledger, had at least so many records.
    pub ends: [u64; 2],
    /// What was found lost, the oldest first.
    pub damage: Vec<Damage>,
    /// Whether the table has lost records, and no new id since: those that copy it would take what it
    /// is now for a later state of what they have.
    pub renews_table: bool,
    /// Whether the end of the run is written already.
    pub is_ending: bool,
}

/// A loss that a start found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Damage {
    /// When, nanoseconds since 1970.
    pub time: u64,
    /// What is lost, for people.
    pub what: String,
    /// Whether the operator has accepted it.
    pub accepted: bool,
}

fn path(data: &Path) -> PathBuf {
    data.join("start.json")
}

impl Remembered {
    /// Reads what the last start has left. Blocks. A file that is damaged is itself a loss.
    pub fn read(disk: &dyn Disk, data: &Path, now: u64) -> Result<Self, NodeError> {
        let Some(document) = small_file::read_format(disk, &path(data), FORMAT)? else {
            return Ok(Self::default());
        };
        Ok(document
            .and_then(|document| Self::of_document(&document))
            .unwrap_or_else(|| {
                let mut remembered = Self::default();
                let what = "start.json is damaged: losses that it remembered are not known";
                remembered.lose(what.to_owned(), now, false);
                remembered
            }))
    }

    fn of_document(document: &Value) -> Option<Self> {
        let damage = document["damage"].as_array()?.iter().map(|damage| {
            Some(Damage {
                time: damage["time"].as_u64()?,
                what: damage["what"].as_str()?.to_owned(),
                accepted: damage["accepted"].as_bool()?,
            })
        });
        Some(Self {
            ends: [
                document["internal_end"].as_u64()?,
                document["ledger_end"].as_u64()?,
            ],
            damage: damage.collect::<Option<Vec<_>>>()?,
            renews_table: document["renews_table"].as_bool().unwrap_or(false),
            is_ending: false,
        })
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut document = json!({
            "format": FORMAT,
            "internal_end": self.ends[0],
            "ledger_end": self.ends[1],
            "damage": self.damage.iter().map(|damage| json!({
                "time": damage.time,
                "what": damage.what,
                "accepted": damage.accepted,
            })).collect::<Vec<_>>(),
        });
        if self.renews_table {
            document["renews_table"] = json!(true);
        }
        small_file::to_bytes(&document)
    }

    /// Makes it survive a power loss. Blocks.
    pub fn write(&self, disk: &dyn Disk, data: &Path) -> Result<(), DiskError> {
        small_file::keep(disk, &path(data), Some(self.to_bytes()))
    }

    /// Remembers a loss, unless it is known.
    pub fn lose(&mut self, what: String, time: u64, accepted: bool) {
        if self.damage.iter().any(|known| known.what == what) {
            return;
        }
        if self.damage.len() == DAMAGE_MAX {
            self.damage.remove(0);
        }
        self.damage.push(Damage {
            time,
            what,
            accepted,
        });
    }

    /// The operator accepts what was lost so far.
    pub fn accept(&mut self) {
        for damage in &mut self.damage {
            damage.accepted = true;
        }
    }

    /// What was lost and nobody has accepted.
    pub fn open_damage(&self) -> impl Iterator<Item = &Damage> {
        self.damage.iter().filter(|damage| !damage.accepted)
    }

    /// When table and ledger are closed, and so synced: remembers how far they came. Whether that is
    /// under way.
    pub fn keep(&mut self, controller: &dyn Controller, ctx: &mut Ctx) -> bool {
        let ends = Home::ALL.map(|home| controller.end(home).0);
        if self.is_ending || ends == self.ends {
            return false;
        }
        self.is_ending = true;
        // What failed may have taken what it had not synced with it.
        if Home::ALL
            .into_iter()
            .any(|home| controller.failure(home).is_some())
        {
            return false;
        }
        self.ends = ends;
        let work = Job::Keep {
            disk: ctx.options.disk.clone(),
            path: path(&ctx.options.directory),
            bytes: Some(self.to_bytes()),
        };
        ctx.start_job(Purpose::KeepStart, work);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_read_back_and_a_loss_is_told_once() {
        let mut remembered = Remembered {
            ends: [7, 9],
            ..Remembered::default()
        };
        remembered.lose("a".into(), 1, false);
        remembered.accept();
        remembered.lose("a".into(), 2, false);
        remembered.lose("b".into(), 3, false);
        let document = small_file::from_bytes(&remembered.to_bytes()).unwrap();
        assert_eq!(Remembered::of_document(&document), Some(remembered.clone()));
        let open: Vec<_> = remembered
            .open_damage()
            .map(|damage| &damage.what)
            .collect();
        assert_eq!(open, ["b"]);
        remembered.renews_table = true;
        let document = small_file::from_bytes(&remembered.to_bytes()).unwrap();
        assert_eq!(Remembered::of_document(&document), Some(remembered.clone()));
        for number in 0..2 * DAMAGE_MAX {
            remembered.lose(number.to_string(), 4, false);
        }
        assert_eq!(remembered.damage.len(), DAMAGE_MAX);
    }

    #[test]
    fn the_file_is_written_as_it_was() {
        const KEPT: &str = include_str!("../../tests/golden/v1/start.json");
        let mut remembered = Remembered {
            ends: [42, 4711],
            ..Remembered::default()
        };
        remembered.lose(
            "topic \"a\" is lost".into(),
            1_700_000_000_000_000_000,
            true,
        );
        remembered.lose("3 records".into(), 1_700_000_000_000_000_001, false);
        assert_eq!(String::from_utf8(remembered.to_bytes()).unwrap(), KEPT);
        let document = small_file::from_bytes(KEPT.as_bytes()).unwrap();
        assert_eq!(Remembered::of_document(&document), Some(remembered));
    }
}
