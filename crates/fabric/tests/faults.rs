//! Shared memory against peers that die, stop, or are slow.

use fabric::{Shm, ShmOptions};
use net::testing::conformance::Real;
use net::testing::faults::{Part, check_faults, play};
use std::process::{Child, Command, Stdio};

const PART: &str = "THALWEG_TEST_PART";
const ADDRESS: &str = "THALWEG_TEST_ADDRESS";
const REFERS: &str = "THALWEG_TEST_REFERS";

fn shm(refers: bool) -> Shm {
    let options = ShmOptions::default();
    let refer_bytes_min = match refers {
        true => options.refer_bytes_min,
        false => usize::MAX,
    };
    Shm::new(ShmOptions {
        refer_bytes_min,
        // Silently doing without would test something else.
        report: std::sync::Arc::new(|line| panic!("{line}")),
        ..options
    })
}

fn start(part: Part, address: &str, refers: bool) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_other_process"])
        .env(PART, part.name())
        .env(ADDRESS, address)
        .env(REFERS, refers.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Does nothing when tests are run; `start` runs it once more.
#[test]
fn the_other_process() {
    let Ok(part) = std::env::var(PART) else {
        return;
    };
    let refers = std::env::var(REFERS).unwrap() == "true";
    let address = std::env::var(ADDRESS).unwrap();
    play(&shm(refers), Part::named(&part).unwrap(), &address);
}

// One test: it counts what the whole process holds.
#[test]
fn faults() {
    for refers in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let mut host = Real::in_directory(shm(refers), directory.path());
        let start = |part: Part, address: &str| start(part, address, refers);
        check_faults(&mut host, Some(&start));
    }
}
