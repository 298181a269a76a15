//! What a data directory says of the cluster that it is a part of: `member.json`. The format is
//! `docs/format/directory.md`.

use crate::cluster::Membership;
use crate::durable_file;
use crate::error::ServerError;
use cluster::{ClusterId, VoterId};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

const MEMBER_FILE: &str = "member.json";
/// The folder of the shared directory that has what all servers are to clients.
pub(crate) const CLIENTS: &str = "clients";
const FORMAT: u32 = 1;

/// What the file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberFile {
    /// The cluster, and the voter that the data directory has.
    pub member: Membership,
    /// The directory that the cluster's servers shared at the last start.
    pub shared: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Document {
    format: u32,
    cluster: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    voter: Option<u64>,
    shared: PathBuf,
}

impl MemberFile {
    /// Where it lies what the cluster's servers are to clients.
    pub fn clients(&self) -> PathBuf {
        self.shared.join(CLIENTS)
    }

    /// That of a data directory; `None` if it is no part of a cluster.
    ///
    /// # Errors
    /// [`ServerError::Directory`] if it cannot be understood.
    pub fn read(directory: &Path) -> Result<Option<Self>, ServerError> {
        let Some(text) = durable_file::read_if_there(&directory.join(MEMBER_FILE))? else {
            return Ok(None);
        };
        let read = Self::of_text(&text).map_err(|why| ServerError::Directory {
            directory: directory.to_owned(),
            why: format!("{MEMBER_FILE} cannot be understood: {why}"),
        });
        read.map(Some)
    }

    fn of_text(text: &str) -> Result<Self, String> {
        let read: Document = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if read.format != FORMAT {
            return Err(format!(
                "its format is {}, and this version has {FORMAT}",
                read.format
            ));
        }
        let cluster = u128::from_str_radix(&read.cluster, 16);
        let cluster = cluster.map_err(|error| format!("cluster: {error}"))?;
        if read.voter == Some(0) {
            return Err("voter is 0".to_owned());
        }
        Ok(Self {
            member: Membership {
                cluster: ClusterId(cluster),
                voter: read.voter.map(VoterId),
            },
            shared: read.shared,
        })
    }

    /// Writes it. It is durable then.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, directory: &Path) -> Result<(), ServerError> {
        let document = Document {
            format: FORMAT,
            cluster: format!("{:032x}", self.member.cluster.0),
            voter: self.member.voter.map(|voter| voter.0),
            shared: self.shared.clone(),
        };
        let mut text =
            serde_json::to_string_pretty(&document).expect("texts and numbers become JSON");
        text.push('\n');
        durable_file::write(&directory.join(MEMBER_FILE), text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else_is_taken() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        assert_eq!(MemberFile::read(path).unwrap(), None);
        for voter in [None, Some(VoterId(3))] {
            let cluster = ClusterId(0xc1);
            let file = MemberFile {
                member: Membership { cluster, voter },
                shared: PathBuf::from("/shared/cluster"),
            };
            file.write(path).unwrap();
            assert_eq!(MemberFile::read(path).unwrap(), Some(file));
        }
        for text in [
            "",
            "nonsense",
            r#"{"format":2,"cluster":"c1","shared":"/s"}"#,
            r#"{"format":1,"cluster":"x","shared":"/s"}"#,
            r#"{"format":1,"cluster":"c1","voter":0,"shared":"/s"}"#,
        ] {
            std::fs::write(path.join(MEMBER_FILE), text).unwrap();
            let error = MemberFile::read(path).unwrap_err().to_string();
            assert!(
                error.contains("member.json cannot be understood"),
                "{error}"
            );
        }
    }
}
