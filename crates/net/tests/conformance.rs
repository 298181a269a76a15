//! Every transport of this crate against the one suite.

use net::testing::conformance::{Place, Real, check_all};
use net::testing::counted::{Counted, Counters};
use net::testing::sim::{Sim, SimFaults, SimNet};
use net::testing::striped::Striped;
use net::{Inproc, LinkOptions, Tcp, Transport, Unix};

mod certificates;

fn options() -> LinkOptions {
    LinkOptions {
        payload_bytes_max: 5_000_000,
        ..LinkOptions::default()
    }
}

#[test]
fn tcp() {
    check_all(&mut Real {
        transport: Tcp::new(options()),
        addresses: Box::new(|| "tcp://127.0.0.1:0".to_owned()),
    });
}

#[test]
fn tls() {
    check_all(&mut Real {
        transport: certificates::Authority::new("conformance").tls(options()),
        addresses: Box::new(|| "tls://127.0.0.1:0".to_owned()),
    });
}

#[test]
fn striped_tcp() {
    for count in [1, 3] {
        check_all(&mut Real {
            transport: Striped {
                inner: Tcp::new(options()),
                count,
            },
            addresses: Box::new(|| "tcp://127.0.0.1:0".to_owned()),
        });
    }
}

#[test]
fn striped_tls() {
    check_all(&mut Real {
        transport: Striped {
            inner: certificates::Authority::new("striped").tls(options()),
            count: 3,
        },
        addresses: Box::new(|| "tls://127.0.0.1:0".to_owned()),
    });
}

#[test]
fn unix() {
    let directory = tempfile::tempdir().unwrap();
    check_all(&mut Real::in_directory(
        Unix::new(options()),
        directory.path(),
    ));
}

#[test]
fn inproc() {
    check_all(&mut Real::named(Inproc::new(options()), "conformance"));
}

#[test]
fn counted() {
    let transport = Counted::new(Inproc::new(options()), Counters::default());
    check_all(&mut Real::named(transport, "counted"));
}

struct Simulated {
    net: SimNet,
    transport: Sim,
    count: u32,
}

impl Place for Simulated {
    fn transport(&self) -> &dyn Transport {
        &self.transport
    }

    fn fresh_address(&mut self) -> String {
        self.count += 1;
        format!("sim://{}", self.count)
    }

    fn idle(&mut self) {
        let next = self.net.next_event();
        self.net.advance(next.expect("something is to happen"));
    }
}

#[test]
fn simulated() {
    for seed in 0..3 {
        let net = SimNet::new(seed, SimFaults::none());
        eprintln!("seed {seed}");
        check_all(&mut Simulated {
            transport: net.transport(options()),
            net,
            count: 0,
        });
    }
}
