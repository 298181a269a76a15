//! Every transport of this crate against peers that die, stop, or are slow.

use net::testing::conformance::Real;
use net::testing::faults::{Part, check_faults, play};
use net::{Inproc, LinkOptions, Tcp, Tls, Trust, Unix};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

mod certificates;

const PART: &str = "THALWEG_TEST_PART";
const ADDRESS: &str = "THALWEG_TEST_ADDRESS";
const AUTHORITY: &str = "THALWEG_TEST_AUTHORITY";

fn start(part: Part, address: &str) -> Child {
    start_with(part, address, Path::new(""))
}

/// The other process, which trusts the authority in a file.
fn start_with(part: Part, address: &str, authority: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_other_process"])
        .env(PART, part.name())
        .env(ADDRESS, address)
        .env(AUTHORITY, authority)
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
    let part = Part::named(&part).unwrap();
    match address.split("://").next() {
        Some("tcp") => play(&Tcp::default(), part, &address),
        Some("tls") => {
            let path = PathBuf::from(std::env::var(AUTHORITY).unwrap());
            let tls = Tls::default().trusting(Trust::Authorities(path));
            play(&tls, part, &address);
        }
        _ => play(&Unix::default(), part, &address),
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
    let authority = certificates::Authority::new("faults");
    let path = authority.write(directory.path());
    let start_tls = |part: Part, address: &str| start_with(part, address, &path);
    let mut tls = Real {
        transport: authority.tls(LinkOptions::default()),
        addresses: Box::new(|| "tls://127.0.0.1:0".to_owned()),
    };
    check_faults(&mut tls, Some(&start_tls));
    let mut unix = Real::in_directory(Unix::new(LinkOptions::default()), directory.path());
    check_faults(&mut unix, Some(&start));
    // No process of its own that could die: the peer lives in this one.
    let mut inproc = Real::named(Inproc::new(LinkOptions::default()), "faults");
    check_faults(&mut inproc, None);
}
