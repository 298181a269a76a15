//! The files of the repository.

use std::fs;
use std::path::{Path, PathBuf};

/// Directories that hold nothing of ours: what builds and tools leave behind.
/// Hidden ones are skipped besides, but for `.ci`.
const SKIPPED: [&str; 10] = [
    "target",
    "build",
    "dist",
    "demo-output",
    "demo-steps-output",
    "demo-sites-output",
    "demo-cluster-output",
    "tomography-output",
    "shared",
    "__pycache__",
];

/// One text file of the repository.
pub struct File {
    /// Its path from the root, with `/` between the parts.
    pub path: String,
    /// What it says.
    pub text: String,
}

impl File {
    /// A file that is not on any disk: for tests of rules.
    pub fn of(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    /// The part of its name after the last dot, or nothing.
    pub fn extension(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name.rsplit_once('.').map_or("", |(_, extension)| extension)
    }
}

/// Where the repository begins.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("this crate is a directory of the repository")
        .to_owned()
}

/// Every text file of the repository, in the order of their paths. Files that
/// are no UTF-8, such as golden files and pictures, are left out.
///
/// # Panics
/// If the repository cannot be read.
pub fn files() -> Vec<File> {
    let root = root();
    let mut found = Vec::new();
    let mut waiting = vec![root.clone()];
    while let Some(directory) = waiting.pop() {
        let entries = fs::read_dir(&directory)
            .unwrap_or_else(|error| panic!("reading {}: {error}", directory.display()));
        for entry in entries {
            let entry =
                entry.unwrap_or_else(|error| panic!("reading {}: {error}", directory.display()));
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = entry.path();
            // Not `is_dir`, which follows links: they may lead out, or round and round.
            let kind = entry
                .file_type()
                .unwrap_or_else(|error| panic!("looking at {}: {error}", path.display()));
            if kind.is_dir() {
                let ours = !name.starts_with('.') || name == ".ci";
                if ours && !SKIPPED.contains(&name.as_str()) {
                    waiting.push(path);
                }
            } else if kind.is_file()
                && let Ok(text) = fs::read_to_string(&path)
            {
                let path = path
                    .strip_prefix(&root)
                    .expect("the walk began at the root")
                    .to_string_lossy()
                    .into_owned();
                found.push(File { path, text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}
