//! The files of the rendezvous: one of each rank, and the record of the founding. The format is
//! `docs/format/rendezvous.md`.

use crate::group_file::hex;
use cluster::{ClusterId, DirectoryId, VoterId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the format.
const FORMAT: u32 = 1;
/// The record of the founding.
pub const RECORD_FILE: &str = "cluster.json";

/// The name of a rank's file.
pub fn rank_file_name(rank: u32) -> String {
    format!("rank-{rank}.json")
}

/// One start of a server, chosen at random. What names it was written after that start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunId(pub u128);

/// The cluster that a data directory is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    /// Which.
    pub cluster: ClusterId,
    /// Its voter; `None` if it follows.
    pub voter: Option<VoterId>,
}

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankFile {
    /// From 0.
    pub rank: u32,
    /// How many servers were started together.
    pub size: u32,
    /// How many of them found a cluster.
    pub voters: u32,
    /// Hash of all settings that must be equal, in hexadecimal.
    pub seed: String,
    /// Its data directory.
    pub directory: DirectoryId,
    /// Its start.
    pub run: RunId,
    /// Its host.
    pub host: String,
    /// Its process there.
    pub pid: u32,
    /// Where other servers reach it.
    pub peers: Vec<String>,
    /// Where clients reach it: a list for each of its shards.
    pub endpoints: Vec<Vec<String>>,
    /// The cluster that its data directory is a part of already.
    pub member: Option<Membership>,
    /// Of founders: whose files it has read, and of which start they were.
    pub heard: BTreeMap<u32, RunId>,
}

/// Which cluster the directory is for. It is made once and stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The cluster.
    pub cluster: ClusterId,
    /// The data directories of its founders by rank; empty if it was founded elsewhere.
    pub founders: Vec<DirectoryId>,
}

impl Record {
    /// That of a founding by these data directories.
    pub fn of(founders: Vec<DirectoryId>) -> Self {
        Self {
            cluster: cluster_of(&founders),
            founders,
        }
    }

    /// The voter that a data directory founds with, if it is a founder's. The place in the record counts, not the
    /// rank of today: a launcher may give ranks to hosts in another order.
    pub fn voter_of(&self, directory: DirectoryId) -> Option<VoterId> {
        let mut founders = self.founders.iter();
        let at = founders.position(|founder| *founder == directory)?;
        Some(VoterId(at as u64 + 1))
    }
}

/// The id of the cluster that these data directories found, in the order of their ranks: a function of nothing else.
pub fn cluster_of(founders: &[DirectoryId]) -> ClusterId {
    let mut hashed = b"thalweg cluster 1".to_vec();
    for founder in founders {
        hashed.extend(founder.0.to_be_bytes());
    }
    let hash = sha256(&hashed);
    let (first, _) = hash.split_at(16);
    ClusterId(u128::from_be_bytes(
        first.try_into().expect("SHA-256 has 32 bytes"),
    ))
}

/// The hash of settings that must be equal, by name and value.
pub fn seed_of(settings: &[(&str, &str)]) -> String {
    let mut hashed = b"thalweg settings 1".to_vec();
    for text in settings.iter().flat_map(|(name, value)| [name, value]) {
        hashed.extend((text.len() as u64).to_be_bytes());
        hashed.extend(text.as_bytes());
    }
    hex(&sha256(&hashed))
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let hash = ring::digest::digest(&ring::digest::SHA256, bytes);
    hash.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

#[derive(Serialize, Deserialize)]
struct RankDocument {
    format: u32,
    rank: u32,
    size: u32,
    voters: u32,
    seed: String,
    directory: String,
    run: String,
    host: String,
    pid: u32,
    peers: Vec<String>,
    endpoints: Vec<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    voter: Option<u64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    heard: BTreeMap<u32, String>,
}

#[derive(Serialize, Deserialize)]
struct RecordDocument {
    format: u32,
    cluster: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    founders: Vec<String>,
}

impl RankFile {
    /// As a text.
    pub fn write(&self) -> String {
        let document = RankDocument {
            format: FORMAT,
            rank: self.rank,
            size: self.size,
            voters: self.voters,
            seed: self.seed.clone(),
            directory: digits(self.directory.0),
            run: digits(self.run.0),
            host: self.host.clone(),
            pid: self.pid,
            peers: self.peers.clone(),
            endpoints: self.endpoints.clone(),
            cluster: self.member.map(|member| digits(member.cluster.0)),
            voter: self
                .member
                .and_then(|member| member.voter)
                .map(|voter| voter.0),
            heard: self
                .heard
                .iter()
                .map(|(rank, run)| (*rank, digits(run.0)))
                .collect(),
        };
        text_of(&document)
    }

    /// That of a text, of the rank whose name its file has.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn read(text: &str, rank: u32) -> Result<Self, String> {
        check_format(text)?;
        let read: RankDocument = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if read.rank != rank {
            return Err(format!("it is of rank {}", read.rank));
        }
        let voter = match read.voter {
            Some(0) => return Err("voter is 0".to_owned()),
            voter => voter.map(VoterId),
        };
        let cluster = read.cluster.as_deref().map(|text| number("cluster", text));
        let member = cluster.transpose()?.map(|cluster| Membership {
            cluster: ClusterId(cluster),
            voter,
        });
        let heard = read.heard.iter().map(|(rank, run)| {
            let run = number("heard", run)?;
            Ok((*rank, RunId(run)))
        });
        Ok(Self {
            rank,
            size: read.size,
            voters: read.voters,
            directory: DirectoryId(number("directory", &read.directory)?),
            run: RunId(number("run", &read.run)?),
            heard: heard.collect::<Result<_, String>>()?,
            seed: read.seed,
            host: read.host,
            pid: read.pid,
            peers: read.peers,
            endpoints: read.endpoints,
            member,
        })
    }
}

impl Record {
    /// As a text.
    pub fn write(&self) -> String {
        let founders = self.founders.iter().map(|founder| digits(founder.0));
        text_of(&RecordDocument {
            format: FORMAT,
            cluster: digits(self.cluster.0),
            founders: founders.collect(),
        })
    }

    /// That of a text.
    ///
    /// # Errors
    /// What is wrong with it, in words; also if the id is not that of the founders.
    pub fn read(text: &str) -> Result<Self, String> {
        check_format(text)?;
        let read: RecordDocument = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let founders = read.founders.iter().map(|founder| {
            let founder = number("founders", founder)?;
            Ok(DirectoryId(founder))
        });
        let record = Self {
            cluster: ClusterId(number("cluster", &read.cluster)?),
            founders: founders.collect::<Result<_, String>>()?,
        };
        if !record.founders.is_empty() && record.cluster != cluster_of(&record.founders) {
            return Err("its cluster is not the one that its founders found".to_owned());
        }
        Ok(record)
    }
}

/// A later format is named as such, whatever else is in it.
fn check_format(text: &str) -> Result<(), String> {
    let read: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match read.get("format").and_then(serde_json::Value::as_u64) {
        Some(format) if format == u64::from(FORMAT) => Ok(()),
        Some(format) => Err(format!(
            "its format is {format}, and this version has {FORMAT}: start all servers with the same version"
        )),
        None => Err("it has no format".to_owned()),
    }
}

fn text_of(document: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(document).expect("texts and numbers become JSON");
    text.push('\n');
    text
}

fn digits(number: u128) -> String {
    format!("{number:032x}")
}

fn number(key: &str, text: &str) -> Result<u128, String> {
    let is_digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match u128::from_str_radix(text, 16) {
        Ok(number) if is_digits => Ok(number),
        _ => Err(format!("{key} has no 32 hexadecimal digits: {text:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> RankFile {
        RankFile {
            rank: 1,
            size: 4,
            voters: 3,
            seed: seed_of(&[("size", "4")]),
            directory: DirectoryId(7),
            run: RunId(u128::MAX),
            host: "node7".to_owned(),
            pid: 12,
            peers: vec!["tls://node7:9000".to_owned()],
            endpoints: vec![vec!["tcp://node7:9001".to_owned()], Vec::new()],
            member: None,
            heard: BTreeMap::from([(0, RunId(5)), (2, RunId(6))]),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let voter = Some(VoterId(2));
        let cluster = ClusterId(9);
        for member in [
            None,
            Some(Membership {
                cluster,
                voter: None,
            }),
            Some(Membership { cluster, voter }),
        ] {
            let file = RankFile { member, ..file() };
            assert_eq!(RankFile::read(&file.write(), 1), Ok(file));
        }
        let elsewhere = Record {
            cluster,
            founders: Vec::new(),
        };
        for record in [elsewhere, Record::of(vec![DirectoryId(1), DirectoryId(2)])] {
            assert_eq!(Record::read(&record.write()), Ok(record));
        }
    }

    #[test]
    fn the_ids_of_format_1_stay() {
        // Another function of the founders would be another cluster on each side of an upgrade. The values were
        // made by Python's hashlib.
        let founders = [1, 2, 3].map(DirectoryId);
        assert_eq!(
            digits(cluster_of(&founders).0),
            "f8f92f4bd8e173a45ae4c05376f72021"
        );
        assert_ne!(
            cluster_of(&founders),
            cluster_of(&[2, 1, 3].map(DirectoryId))
        );
        assert_ne!(cluster_of(&founders[..1]), cluster_of(&founders));
        assert_eq!(
            seed_of(&[("size", "4"), ("voters", "3")]),
            "794e0b208998eaaae8261fa64f1796a2fd3e983cdcc4d4c88b5bbac3048373e7"
        );
        assert_ne!(seed_of(&[("ab", "c")]), seed_of(&[("a", "bc")]));
    }

    #[test]
    fn what_cannot_be_right_is_refused_in_words() {
        let whole = file().write();
        for (from, to, why) in [
            ("\"format\": 1", "\"format\": 2", "same version"),
            ("\"format\": 1,", "", "no format"),
            ("\"rank\": 1", "\"rank\": 3", "of rank 3"),
            ("ffffffff", "fffffff", "run has no 32"),
            ("\"pid\": 12", "\"pid\": \"x\"", "invalid type"),
            ("{", "", "trailing"),
        ] {
            let text = whole.replacen(from, to, 1);
            assert_ne!(text, whole);
            let said = RankFile::read(&text, 1).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        // Of a number, the type's own reading takes a sign.
        assert!(number("run", "+0000000000000000000000000000001").is_err());
        let record = Record::of(vec![DirectoryId(1), DirectoryId(2)]);
        let text = record.write().replace(&digits(2), &digits(3));
        let said = Record::read(&text).unwrap_err();
        assert!(said.contains("founders"), "{said}");
    }
}
