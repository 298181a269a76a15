//! The group file, by which clients find a server. The format is
//! `docs/format/group-file.md`.

use crate::durable_file;
use crate::error::ServerError;
use crate::host::Host;
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
}

#[derive(Serialize)]
struct Document<'a> {
    members: [Member<'a>; 1],
    format: u32,
    directory: String,
    instance: String,
    host: &'a str,
    boot_id: &'a str,
    endpoints: &'a [String],
    token: String,
}

#[derive(Serialize)]
struct Member<'a> {
    address: &'a str,
}

/// A written group file, to be removed when its server ends cleanly.
#[derive(Debug)]
pub struct GroupFile {
    path: PathBuf,
    instance: ServerInstance,
}

impl GroupFile {
    /// Writes the group file at `path`, replacing what is there.
    pub fn write(path: &Path, group: &Group<'_>) -> Result<Self, ServerError> {
        let document = Document {
            members: [Member {
                address: group.endpoints.first().map_or("", String::as_str),
            }],
            format: FORMAT,
            directory: group.directory.to_string(),
            instance: group.instance.to_string(),
            host: &group.host.name,
            boot_id: &group.host.boot_id,
            endpoints: group.endpoints,
            token: hex(group.token),
        };
        let mut text =
            serde_json::to_string_pretty(&document).expect("texts and numbers become JSON");
        text.push('\n');
        durable_file::write(path, text.as_bytes())?;
        // An absolute path is removed even if the working directory changes.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Ok(Self {
            path,
            instance: group.instance,
        })
    }

    /// Removes it, if no other server has replaced it.
    pub fn remove(self) -> Result<(), ServerError> {
        let Ok(text) = std::fs::read_to_string(&self.path) else {
            return Ok(());
        };
        let ours = serde_json::from_str::<serde_json::Value>(&text)
            .is_ok_and(|document| document["instance"] == self.instance.to_string());
        if !ours {
            return Ok(());
        }
        std::fs::remove_file(&self.path).map_err(ServerError::file(format!(
            "removing {}",
            self.path.display()
        )))
    }
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
        old.remove().unwrap();
        assert!(path.exists());
        new.remove().unwrap();
        assert!(!path.exists());
    }
}
