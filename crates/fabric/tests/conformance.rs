//! Shared memory against the suite of every transport.

use fabric::{Shm, ShmOptions};
use net::testing::conformance::{Place, check_all};
use net::{LinkOptions, Transport};
use tempfile::TempDir;

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
        format!(
            "shm://{}/{}.sock",
            self.directory.path().display(),
            self.count
        )
    }

    fn idle(&mut self) {
        std::thread::yield_now();
    }
}

fn check(change: impl FnOnce(&mut ShmOptions)) {
    let mut options = ShmOptions {
        links: LinkOptions {
            payload_bytes_max: 5_000_000,
            ..LinkOptions::default()
        },
        ..ShmOptions::default()
    };
    change(&mut options);
    check_all(&mut Host {
        transport: Shm::new(options),
        directory: tempfile::tempdir().unwrap(),
        count: 0,
    });
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
