//! Shared memory against the suite of every transport.

use fabric::{Shm, ShmOptions};
use net::LinkOptions;
use net::testing::conformance::{Real, check_all};

fn check(change: impl FnOnce(&mut ShmOptions)) {
    let mut options = ShmOptions {
        links: LinkOptions {
            payload_bytes_max: 5_000_000,
            ..LinkOptions::default()
        },
        ..ShmOptions::default()
    };
    change(&mut options);
    let directory = tempfile::tempdir().unwrap();
    check_all(&mut Real::in_directory(Shm::new(options), directory.path()));
}

#[test]
fn with_references() {
    check(|_| {});
}

#[test]
fn with_references_to_nearly_everything() {
    check(|options| options.refer_bytes_min = net::KEPT_BYTES_MIN);
}

#[test]
fn copying_everything() {
    check(|options| options.refer_bytes_min = usize::MAX);
}

#[test]
fn with_the_smallest_ring() {
    check(|options| options.ring_bytes = 4096);
}

#[test]
fn over_the_socket_alone() {
    check(|options| options.is_on = false);
}
