//! Every transport of this crate against peers that die, stop, or are slow.

use net::testing::conformance::Real;
use net::testing::faults::{Part, check_faults, play};
use net::{Inproc, LinkOptions, Tcp, Unix};
use std::process::{Child, Command, Stdio};

const PART: &str = "THALWEG_TEST_PART";
const ADDRESS: &str = "THALWEG_TEST_ADDRESS";

fn start(part: Part, address: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_other_process"])
        .env(PART, part.name())
        .env(ADDRESS, address)
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
    let address = std::env::var(ADDRESS).unwrap();
    match address.starts_with("tcp:") {
        true => play(&Tcp::default(), Part::named(&part).unwrap(), &address),
        false => play(&Unix::default(), Part::named(&part).unwrap(), &address),
    }
}

// One test: it counts what the whole process holds.
#[test]
fn faults() {
    if std::env::var(PART).is_ok() {
        return;
    }
    let mut tcp = Real {
        transport: Tcp::new(LinkOptions::default()),
        addresses: Box::new(|| "tcp://127.0.0.1:0".to_owned()),
    };
    check_faults(&mut tcp, Some(&start));
    let directory = tempfile::tempdir().unwrap();
    let mut unix = Real::in_directory(Unix::new(LinkOptions::default()), directory.path());
    check_faults(&mut unix, Some(&start));
    // No process of its own that could die: the peer lives in this one.
    let mut inproc = Real::named(Inproc::new(LinkOptions::default()), "faults");
    check_faults(&mut inproc, None);
}
