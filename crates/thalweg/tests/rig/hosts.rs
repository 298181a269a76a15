//! Hosts in one machine: network namespaces on one switch, whose links can be cut, each way by itself.
//!
//! ```text
//!   host 0 ──┐
//!   host 1 ──┼── switch        10.82.0.1, 10.82.0.2, …
//!   host 2 ──┘
//! ```
//!
//! Needs root, and `ip` of iproute2. What is made has names of this process, and goes with it.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// So that tests of one process do not share names.
static MADE: AtomicU32 = AtomicU32::new(0);

/// Hosts, numbered from 0.
pub struct Hosts {
    prefix: String,
    count: usize,
}

impl Hosts {
    /// So many of them; or why there can be none here.
    pub fn new(count: usize) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("network namespaces need root".to_owned());
        }
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let hosts = Self {
            prefix: format!("tw{}k{number}", std::process::id()),
            count,
        };
        hosts.make()?;
        Ok(hosts)
    }

    fn make(&self) -> Result<(), String> {
        let switch = self.switch();
        ip(&["netns", "add", &switch])?;
        ip(&["-n", &switch, "link", "add", "bridge", "type", "bridge"])?;
        ip(&["-n", &switch, "link", "set", "bridge", "up"])?;
        for host in 0..self.count {
            let (name, port) = (self.name(host), format!("port{host}"));
            ip(&["netns", "add", &name])?;
            ip(&["-n", &name, "link", "set", "lo", "up"])?;
            let peer = ["type", "veth", "peer", "name", &port, "netns", &switch];
            ip(&[&["-n", &name, "link", "add", "nic"], peer.as_slice()].concat())?;
            ip(&[
                "-n", &switch, "link", "set", &port, "master", "bridge", "up",
            ])?;
            let address = format!("{}/24", self.address(host));
            ip(&["-n", &name, "addr", "add", &address, "dev", "nic"])?;
            ip(&["-n", &name, "link", "set", "nic", "up"])?;
        }
        Ok(())
    }

    pub fn address(&self, host: usize) -> String {
        format!("10.82.0.{}", host + 1)
    }

    /// What runs a command on a host.
    pub fn launcher(&self, host: usize) -> Vec<String> {
        let name = self.name(host);
        ["ip", "netns", "exec", &name].map(str::to_owned).to_vec()
    }

    /// From now on nothing that `from` sends gets to `to`.
    pub fn cut(&self, from: usize, to: usize) {
        self.route("add", from, to).expect("a route is added");
    }

    pub fn mend(&self, from: usize, to: usize) {
        self.route("del", from, to).expect("a route is removed");
    }

    fn route(&self, what: &str, from: usize, to: usize) -> Result<(), String> {
        let (name, address) = (self.name(from), self.address(to));
        ip(&["-n", &name, "route", what, "blackhole", &address])
    }

    fn name(&self, host: usize) -> String {
        format!("{}h{host}", self.prefix)
    }

    fn switch(&self) -> String {
        format!("{}s", self.prefix)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in (0..self.count)
            .map(|host| self.name(host))
            .chain([self.switch()])
        {
            if Path::new("/run/netns").join(&name).exists() {
                let _ = ip(&["netns", "del", &name]);
            }
        }
    }
}

fn ip(args: &[&str]) -> Result<(), String> {
    let done = Command::new("ip").args(args).output();
    let done = done.map_err(|error| format!("ip: {error}"))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(format!(
            "ip {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&done.stderr).trim()
        )),
    }
}
