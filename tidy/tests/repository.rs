//! The repository keeps its own rules.

#![forbid(unsafe_code)]

use std::process::Command;

use tidy::rooms::{self, Room};
use tidy::{cycles, documents, owners, sources, tree, words};

/// Fails with every complaint at once: one at a time would take as many runs.
fn none(complaints: Vec<String>) {
    assert!(
        complaints.is_empty(),
        "\n{} to put right:\n  - {}\n",
        complaints.len(),
        complaints.join("\n  - ")
    );
}

fn workspace() -> Vec<Room> {
    let cargo = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(tree::root())
        .output()
        .expect("the cargo that built this test runs");
    assert!(
        cargo.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&cargo.stderr)
    );
    let metadata = serde_json::from_slice(&cargo.stdout).expect("cargo prints JSON");
    let rooms = rooms::read(&metadata);
    assert!(rooms.len() > 3, "cargo lists the workspace's crates");
    rooms
}

#[test]
fn rooms_import_what_their_row_allows() {
    none(rooms::imports(&workspace()));
}

#[test]
fn files_import_in_one_direction() {
    none(cycles::cycles(&tree::files()));
}

#[test]
fn central_types_have_their_methods_in_one_file() {
    none(owners::owners(&tree::files()));
}

#[test]
fn plain_state_stays_plain() {
    none(rooms::purity(&workspace(), &tree::files()));
}

#[test]
fn unsafe_code_stays_in_its_rooms() {
    none(rooms::unsafe_code(&workspace(), &tree::files()));
}

#[test]
fn files_are_short_enough_to_read() {
    none(sources::length(&tree::files()));
}

#[test]
fn files_put_nothing_off_and_name_no_registry() {
    none(sources::words(&tree::files()));
}

#[test]
fn words_that_were_given_up_stay_away() {
    none(words::given_up(&tree::files()));
}

#[test]
fn every_file_of_tests_is_run() {
    none(sources::tests(&tree::files()));
}

#[test]
fn links_lead_somewhere() {
    none(documents::links(&tree::files()));
}

#[test]
fn sources_that_pages_name_are_there() {
    none(documents::sources(&tree::files()));
}

#[test]
fn promises_have_numbers_of_their_own() {
    none(documents::promises(&tree::files()));
}

#[test]
fn pages_that_are_named_are_there() {
    // The rules' own tests name pages that are not there.
    let mut files = tree::files();
    files.retain(|file| !file.path.starts_with("tidy/src/"));
    none(documents::pages(&files));
}
