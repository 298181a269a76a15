//! The group file, by which clients find a server. The format is
//! `docs/format/group-file.md`.

use crate::durable_file;
use crate::error::ServerError;
use crate::host::Host;
use net::Fingerprint;
use serde::Serialize;
use std::path::{Path, PathBuf};
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
}

#[derive(Debug, Clone, Serialize)]
struct Member {
    address: String,
}

/// A written group file, to be removed when its server ends cleanly.
#[derive(Debug, Clone)]
pub struct GroupFile {
    path: PathBuf,
    document: Document,
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
        };
        document.write(path)?;
        // An absolute path is removed even if the working directory changes.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Ok(Self { path, document })
    }

    /// Writes it anew with other certificates, if no other server has replaced it.
    pub fn write_certificates(
        &mut self,
        certificates: Vec<Fingerprint>,
    ) -> Result<(), ServerError> {
        if !self.is_ours() {
            return Ok(());
        }
        self.document.certificates = texts(&certificates);
        self.document.write(&self.path)
    }

    fn is_ours(&self) -> bool {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        serde_json::from_str::<serde_json::Value>(&text)
            .is_ok_and(|document| document["instance"] == self.document.instance)
    }

    /// Removes it, if no other server has replaced it.
    pub fn remove(self) -> Result<(), ServerError> {
        if !self.is_ours() {
            return Ok(());
        }
        std::fs::remove_file(&self.path).map_err(ServerError::file(format!(
            "removing {}",
            self.path.display()
        )))
    }
}

impl Document {
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
        };
        let error = GroupFile::write(&path, &group).unwrap_err().to_string();
        assert!(error.contains("no file"), "{error}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_successors_file_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("thalweg.json");
        let mut old = write(&path, 1);
        let mut new = write(&path, 2);
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
}
