//! Every transport of this crate against the one suite.

use net::testing::conformance::{Place, check_all};
use net::testing::counted::{Counted, Counters};
use net::testing::sim::{Sim, SimFaults, SimNet};
use net::{Inproc, LinkOptions, Tcp, Transport, Unix};

struct Real<T> {
    transport: T,
    addresses: Box<dyn FnMut() -> String>,
}

impl<T: Transport> Place for Real<T> {
    fn transport(&self) -> &dyn Transport {
        &self.transport
    }

    fn fresh_address(&mut self) -> String {
        (self.addresses)()
    }

    fn idle(&mut self) {
        std::thread::yield_now();
    }
}

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
fn unix() {
    let directory = tempfile::tempdir().unwrap();
    let mut count = 0;
    let path = directory.path().to_owned();
    check_all(&mut Real {
        transport: Unix::new(options()),
        addresses: Box::new(move || {
            count += 1;
            format!("unix://{}/{count}.sock", path.display())
        }),
    });
}

#[test]
fn inproc() {
    let mut count = 0;
    check_all(&mut Real {
        transport: Inproc::new(options()),
        addresses: Box::new(move || {
            count += 1;
            format!("inproc://conformance-{count}")
        }),
    });
}

#[test]
fn counted() {
    let mut count = 0;
    check_all(&mut Real {
        transport: Counted::new(Inproc::new(options()), Counters::default()),
        addresses: Box::new(move || {
            count += 1;
            format!("inproc://counted-{count}")
        }),
    });
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
