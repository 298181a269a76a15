//! Compiles plugins as their authors do.

use plugin::Loader;
use std::path::{Path, PathBuf};
use std::process::Command;
use topic::PluginRef;

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compiles a source of the repository into a shared library, strictly.
pub fn compile(source: &str, to: &Path) {
    let (compiler, standard) = match source.ends_with(".c") {
        true => ("cc", "-std=c11"),
        false => ("c++", "-std=c++17"),
    };
    let strict = ["-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-g"];
    let output = Command::new(compiler)
        .arg(standard)
        .args(strict)
        .arg("-I")
        .arg(root().join("include"))
        .arg(root().join(source))
        .arg("-o")
        .arg(to)
        .arg("-lm")
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler} {source}: {said}");
}

/// A directory with `source` in it, compiled as `file`, and a loader for it.
pub fn loader(source: &str, file: &str) -> (tempfile::TempDir, Loader) {
    let directory = tempfile::tempdir().unwrap();
    compile(source, &directory.path().join(file));
    let loader = Loader::new([directory.path().to_owned()]);
    (directory, loader)
}

/// A plugin's name with options, which are JSON.
pub fn named(name: &str, options: &str) -> PluginRef {
    let options = serde_json::from_str(options).unwrap();
    PluginRef::new(name, options).unwrap()
}
