//! The files of the published simulator: read from wherever they lie, known by what is in them.

use super::choose::read_bounded;
use crate::failure::{About, Failure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use workload::{Files, Published, ROLES, Role, Text};

/// Files of a directory that are looked at, at most.
const FILES_MAX: usize = 256;

/// A file of one role.
struct Found {
    name: String,
    text: String,
}

/// The scenario of six files, one of each role, in any order; a directory stands for the files in it that end with
/// `.json`.
pub fn read(paths: &[PathBuf]) -> Result<Published, Failure> {
    let mut found: BTreeMap<Role, Found> = BTreeMap::new();
    for path in all(paths)? {
        let name = path.display().to_string();
        let text = read_bounded(&path)?;
        let role = Role::of(Text {
            file: &name,
            text: &text,
        });
        let role = role.map_err(|error| Failure::usage("--streamsim", error))?;
        if let Some(other) = found.get(&role) {
            let what = format!(
                "{} and {name} are both {}: give one of them, by its path",
                other.name,
                role.name()
            );
            return Err(Failure::usage("--streamsim", what));
        }
        found.insert(role, Found { name, text });
    }
    let missing: Vec<&str> = ROLES
        .iter()
        .filter(|role| !found.contains_key(role))
        .map(|role| role.name())
        .collect();
    if !missing.is_empty() {
        let what = format!("there is no file with {}", missing.join(", with "));
        return Err(Failure::usage("--streamsim", what));
    }
    let text = |role: Role| {
        let Found { name, text } = &found[&role];
        Text { file: name, text }
    };
    let read = Published::read(Files {
        producer: text(Role::Producer),
        consumer: text(Role::Consumer),
        coordinator: text(Role::Coordinator),
        workload: text(Role::Workload),
        tunables: text(Role::Tunables),
        framework: text(Role::Framework),
    });
    read.map_err(|error| Failure::usage("--streamsim", error))
}

/// What is to be known of files that were read: fields without effect, and surprises.
pub fn notes(published: &Published) -> impl Iterator<Item = String> {
    let ignored = published.ignored.iter().map(ToString::to_string);
    ignored.chain(published.concerns.iter().cloned())
}

fn all(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut all = Vec::new();
    for path in paths {
        match path.is_dir() {
            true => all.extend(files_in(path)?),
            false => all.push(path.clone()),
        }
    }
    if all.len() > FILES_MAX {
        let what = format!("{} files; {FILES_MAX} are looked at, at most", all.len());
        return Err(Failure::usage("--streamsim", what));
    }
    all.sort();
    Ok(all)
}

fn files_in(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let name = directory.display().to_string();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).about(&name)? {
        let path = entry.about(&name)?.path();
        if path.extension().is_some_and(|end| end == "json") {
            files.push(path);
        }
    }
    Ok(files)
}
