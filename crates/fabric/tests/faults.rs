//! Shared memory against peers that die, stop, or are slow.

use fabric::{Shm, ShmOptions};
use net::Transport;
use net::testing::conformance::Place;
use net::testing::faults::{Part, check_faults, play};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const PART: &str = "THALWEG_TEST_PART";
const ADDRESS: &str = "THALWEG_TEST_ADDRESS";
const REFERS: &str = "THALWEG_TEST_REFERS";

struct Host {
    transport: Shm,
    directory: TempDir,
    count: u32,
}

impl Place for Host {
    fn transport(&self) -> &dyn Transport {
        &self.transport
    }

    fn fresh_address(&mut self) -> String {
        self.count += 1;
        let directory = self.directory.path().display();
        format!("shm://{directory}/{}.sock", self.count)
    }

    fn idle(&mut self) {
        std::thread::yield_now();
    }
}

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
        let mut host = Host {
            transport: shm(refers),
            directory: tempfile::tempdir().unwrap(),
            count: 0,
        };
        let start = |part: Part, address: &str| start(part, address, refers);
        check_faults(&mut host, Some(&start));
    }
}
