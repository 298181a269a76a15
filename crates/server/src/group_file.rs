//! The group file, by which clients find a server. The format is
//! `docs/format/group-file.md`.

use crate::durable_file;
use crate::error::ServerError;
use crate::host::Host;
use net::Fingerprint;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use wire::{DirectoryId, ServerInstance};

/// The version of the format that is written.
const FORMAT: u32 = 1;

/// What a group file says.
#[derive(Debug, Clone)]
pub struct Group<'a> {
    /// The data directory.
    pub directory: DirectoryId,
    /// This run of the server.
    pub instance: ServerInstance,
    /// Where it runs.
    pub host: &'a Host,
    /// Where it listens, the preferred address first.
    pub endpoints: &'a [String],
    /// What a client presents.
    pub token: &'a [u8],
    /// The certificates by which a client of TLS knows the server.
    pub certificates: Vec<Fingerprint>,
    /// Its cluster, and the other servers of that.
    pub cluster: Option<(u128, Vec<OtherServer>)>,
}

/// Another server of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OtherServer {
    /// Its data directory, in 32 hexadecimal digits.
    pub directory: String,
    /// The name of its host.
    pub host: String,
    /// Where clients reach it.
    pub endpoints: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
struct Document {
    members: [Member; 1],
    format: u32,
    directory: String,
    instance: String,
    host: String,
    boot_id: String,
    endpoints: Vec<String>,
    token: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    certificates: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    others: Vec<OtherServer>,
}

#[derive(Debug, Clone, Serialize)]
struct Member {
    address: String,
}

/// A written group file, to be removed when its server ends cleanly. That of a cluster stays, for the other servers are in it.
#[derive(Debug, Clone)]
pub struct GroupFile {
    path: PathBuf,
    /// Of all copies.
    document: Arc<Mutex<Document>>,
}

impl GroupFile {
    /// Writes the group file at `path`, replacing what is there.
    pub fn write(path: &Path, group: &Group<'_>) -> Result<Self, ServerError> {
        let document = Document {
            members: [Member {
                address: group.endpoints.first().cloned().unwrap_or_default(),
            }],
            format: FORMAT,
            directory: group.directory.to_string(),
            instance: group.instance.to_string(),
            host: group.host.name.clone(),
            boot_id: group.host.boot_id.clone(),
            endpoints: group.endpoints.to_vec(),
            token: hex(group.token),
            certificates: texts(&group.certificates),
            cluster: group.cluster.as_ref().map(|(id, _)| format!("{id:032x}")),
            others: group
                .cluster
                .as_ref()
                .map_or_else(Vec::new, |(_, others)| others.clone()),
        };
        document.write(path)?;
        // An absolute path is removed even if the working directory changes.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Ok(Self {
            path,
            document: Arc::new(Mutex::new(document)),
        })
    }

    /// Writes it anew with other certificates, if no other server has replaced it.
    pub fn write_certificates(&self, certificates: Vec<Fingerprint>) -> Result<(), ServerError> {
        self.change(|document| document.certificates = texts(&certificates))
    }

    /// Writes it anew with other servers of the cluster, if none of another one has replaced it.
    pub fn write_others(&self, others: Vec<OtherServer>) -> Result<(), ServerError> {
        self.change(|document| document.others = others)
    }

    fn change(&self, change: impl FnOnce(&mut Document)) -> Result<(), ServerError> {
        let mut document = self.document.lock().expect("no holder panics here");
        change(&mut document);
        match document.is_at(&self.path) {
            true => document.write(&self.path),
            false => Ok(()),
        }
    }

    /// Removes it, if no other server has replaced it and none is left in it.
    pub fn remove(self) -> Result<(), ServerError> {
        let document = self.document.lock().expect("no holder panics here");
        if document.cluster.is_some() || !document.is_at(&self.path) {
            return Ok(());
        }
        std::fs::remove_file(&self.path).map_err(ServerError::file(format!(
            "removing {}",
            self.path.display()
        )))
    }
}

impl Document {
    /// Whether the file there is this one, or that of another server of the cluster.
    fn is_at(&self, path: &Path) -> bool {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let found = serde_json::from_str::<serde_json::Value>(&text);
        found.is_ok_and(|found| {
            let is_of_cluster = self
                .cluster
                .as_ref()
                .is_some_and(|own| found["cluster"] == **own);
            is_of_cluster || found["instance"] == self.instance
        })
    }

    fn write(&self, path: &Path) -> Result<(), ServerError> {
        let mut text = serde_json::to_string_pretty(self).expect("texts and numbers become JSON");
        text.push('\n');
        durable_file::write(path, text.as_bytes())
    }
}

fn texts(certificates: &[Fingerprint]) -> Vec<String> {
    certificates.iter().map(Fingerprint::to_string).collect()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn write(path: &Path, instance: u128) -> GroupFile {
        let group = Group {
            directory: DirectoryId(7),
            instance: ServerInstance(instance),
            host: &Host::this(),
            endpoints: &["unix:///x/s".to_owned(), "tcp://127.0.0.1:9".to_owned()],
            token: &[0xab; 32],
            certificates: vec![Fingerprint([0xcd; 32])],
            cluster: None,
        };
        GroupFile::write(path, &group).unwrap()
    }

    #[test]
    fn it_is_private_and_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("thalweg.json");
        let file = write(&path, 1);
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let document: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(document["members"][0]["address"], "unix:///x/s");
        assert_eq!(document["format"], 1);
        assert_eq!(document["directory"], "00000000000000000000000000000007");
        assert_eq!(document["endpoints"][1], "tcp://127.0.0.1:9");
        assert_eq!(document["token"], "ab".repeat(32));
        assert_eq!(document["certificates"][0], "cd".repeat(32));
        file.remove().unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_no_file_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("device");
        let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let group = Group {
            directory: DirectoryId(7),
            instance: ServerInstance(1),
            host: &Host::this(),
            endpoints: &[],
            token: &[],
            certificates: Vec::new(),
            cluster: None,
        };
        let error = GroupFile::write(&path, &group).unwrap_err().to_string();
        assert!(error.contains("no file"), "{error}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_successors_file_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("thalweg.json");
        let old = write(&path, 1);
        let new = write(&path, 2);
        let certificate = || std::fs::read_to_string(&path).unwrap().contains("eeeeee");
        let other = vec![Fingerprint([0xee; 32])];
        old.write_certificates(other.clone()).unwrap();
        assert!(!certificate());
        new.write_certificates(other).unwrap();
        assert!(certificate());
        old.remove().unwrap();
        assert!(path.exists());
        new.remove().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn servers_of_a_cluster_write_one_file_which_names_the_others_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("thalweg.json");
        let other = |name: &str| OtherServer {
            directory: "07".repeat(16),
            host: name.to_owned(),
            endpoints: vec!["tcp://h:1".to_owned()],
        };
        let write = |instance: u128, cluster: u128| {
            let group = Group {
                directory: DirectoryId(instance),
                instance: ServerInstance(instance),
                host: &Host::this(),
                endpoints: &["tcp://127.0.0.1:9".to_owned()],
                token: &[0xab; 32],
                certificates: Vec::new(),
                cluster: Some((cluster, vec![other("one")])),
            };
            GroupFile::write(&path, &group).unwrap()
        };
        let found = || -> serde_json::Value {
            serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap()
        };
        let first = write(1, 0xc1);
        let second = write(2, 0xc1);
        assert_eq!(found()["others"][0]["host"], "one");
        first.write_others(vec![other("two")]).unwrap();
        let said = found();
        assert_eq!(
            (&said["others"][0]["host"], said["instance"].as_str()),
            (&"two".into(), Some(&*ServerInstance(1).to_string()))
        );
        second.clone().remove().unwrap();
        first.remove().unwrap();
        assert!(path.exists());
        // Another cluster's is left alone.
        write(3, 0xc2);
        second.write_others(vec![other("three")]).unwrap();
        assert_eq!(found()["others"][0]["host"], "one");
    }
}
