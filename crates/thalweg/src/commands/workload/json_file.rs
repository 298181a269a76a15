//! The file of results: never half written, and known to be writable before anything is run.

use crate::failure::{About, Failure};
use rustix::system::uname;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use toml::Table;

/// Where results go.
pub struct JsonFile {
    path: PathBuf,
}

impl JsonFile {
    /// At a path that can be written. What is there stays until there are results.
    pub fn at(path: &Path) -> Result<Self, Failure> {
        let file = Self {
            path: path.to_owned(),
        };
        match file.is_replaced() {
            true => {
                let part = file.part();
                std::fs::write(&part, "").about(file.name())?;
                std::fs::remove_file(part).about(file.name())?;
            }
            false => drop(
                std::fs::OpenOptions::new()
                    .write(true)
                    .open(path)
                    .about(file.name())?,
            ),
        }
        Ok(file)
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Whether a file takes its place: not that of a pipe or a terminal.
    fn is_replaced(&self) -> bool {
        std::fs::metadata(&self.path).map_or(true, |found| found.is_file())
    }

    /// Beside it, until it is whole.
    fn part(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{}.part", std::process::id()));
        name.into()
    }

    /// Replaces what is there. Fails without touching it.
    pub fn write(&self, document: &Value) -> Result<(), Failure> {
        let text = format!("{document:#}\n");
        if !self.is_replaced() {
            return std::fs::write(&self.path, text).about(self.name());
        }
        let part = self.part();
        let written = std::fs::write(&part, text).and_then(|()| std::fs::rename(&part, &self.path));
        if written.is_err() {
            // It is what could not be written: what is left of it is of no use.
            let _ = std::fs::remove_file(&part);
        }
        written.about(self.name())
    }
}

/// What results are compared by: who made them, where, when, from which scenario.
pub fn circumstances(scenario: &Table) -> Value {
    // A URL may hold a password.
    let mut scenario = scenario.clone();
    scenario.remove("url");
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    json!({
        "made_by": format!("thalweg {}", env!("CARGO_PKG_VERSION")),
        "is_debug_build": cfg!(debug_assertions),
        "unix_seconds": now.map_or(0, |since| since.as_secs()),
        "host": host(),
        "scenario": scenario,
    })
}

fn host() -> Value {
    let name = uname();
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let line = |file: &str, key: &str| {
        let found = std::fs::read_to_string(file).unwrap_or_default();
        found
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find_map(|(name, value)| (name.trim() == key).then(|| value.trim().to_owned()))
    };
    json!({
        "name": text(name.nodename()),
        "kernel": text(name.release()),
        "machine": text(name.machine()),
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "processor": line("/proc/cpuinfo", "model name"),
        "memory": line("/proc/meminfo", "MemTotal"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_whole_or_what_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.json");
        std::fs::write(&path, "before").unwrap();
        let file = JsonFile::at(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "before");
        file.write(&json!({"runs": []})).unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "{\n  \"runs\": []\n}\n"
        );
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(JsonFile::at(&directory.path().join("none/out.json")).is_err());
        JsonFile::at(Path::new("/dev/null"))
            .unwrap()
            .write(&json!({}))
            .unwrap();
        // A device that is full.
        let full = JsonFile::at(Path::new("/dev/full")).unwrap();
        assert!(full.write(&json!({})).is_err());
    }

    #[test]
    fn circumstances_have_no_url() {
        let table: Table = "url = 'amqp://user:secret@host'\nseed = 7".parse().unwrap();
        let found = circumstances(&table);
        assert_eq!(found["scenario"], json!({"seed": 7}));
        assert!(found["host"]["cores"].as_u64().unwrap() > 0);
        assert!(!found.to_string().contains("secret"));
    }
}
