//! Which machine this is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// A machine, in one of its boots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its node name, as `uname` has it.
    pub name: String,
    /// Identity of the present boot: another one than before means that what
    /// was not synced may be gone.
    pub boot_id: String,
}

impl Host {
    /// This machine.
    pub fn this() -> Self {
        let name = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let boot_id = std::fs::read_to_string(Path::new("/proc/sys/kernel/random/boot_id"))
            .map(|text| text.trim().to_owned())
            // Without /proc every start looks like another boot, which is the safe guess.
            .unwrap_or_else(|_| format!("unknown-{:032x}", random_u128()));
        Self { name, boot_id }
    }

    /// How others reach who listens on this host: an address of every interface has its name.
    pub(crate) fn named(&self, address: &str) -> String {
        for unspecified in ["0.0.0.0:", "[::]:"] {
            if let Some((scheme, rest)) = address.split_once("://")
                && let Some(port) = rest.strip_prefix(unspecified)
            {
                return format!("{scheme}://{}:{port}", self.name);
            }
        }
        address.to_owned()
    }
}

/// The names and addresses by which clients may know this host: its own, those of the addresses
/// that are listened at, and those that an operator adds.
pub(crate) fn names(host: &Host, listen: &[String], more: &[String]) -> Vec<String> {
    let mut names = vec![host.name.clone(), "localhost".to_owned()];
    let loopback: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    let found = loopback.into_iter().chain(addresses());
    names.extend(found.map(|address| address.to_string()));
    let hosts = listen.iter().filter_map(|address| {
        let (host, _) = address.strip_prefix("tls://")?.rsplit_once(':')?;
        Some(
            host.trim_start_matches('[')
                .trim_end_matches(']')
                .to_owned(),
        )
    });
    names.extend(hosts);
    names.extend(more.iter().cloned());
    let is_nobody = |name: &String| {
        let address = name.parse::<IpAddr>();
        name.is_empty() || address.is_ok_and(|address| address.is_unspecified())
    };
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| !is_nobody(name) && seen.insert(name.clone()));
    names
}

/// The addresses of this host, as far as its kernel lists them.
fn addresses() -> Vec<IpAddr> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let mut found = ipv4_addresses(&read("/proc/net/fib_trie"));
    found.extend(ipv6_addresses(&read("/proc/net/if_inet6")));
    found
}

/// Of the routes, those that lead to the host itself: a line with the address, then one that says so.
fn ipv4_addresses(routes: &str) -> Vec<IpAddr> {
    let mut found = Vec::new();
    let mut last = None;
    for line in routes.lines().map(str::trim) {
        match line.strip_prefix("|-- ") {
            Some(address) => last = address.parse::<Ipv4Addr>().ok(),
            None if line == "/32 host LOCAL" => found.extend(last.map(IpAddr::from)),
            None => {}
        }
    }
    found.dedup();
    found
}

/// Each line begins with 32 hexadecimal digits; the fourth word is the scope, of which 00 is the
/// whole network.
fn ipv6_addresses(interfaces: &str) -> Vec<IpAddr> {
    let words = interfaces.lines().map(|line| line.split_whitespace());
    let found = words.filter_map(|mut words| {
        let address = u128::from_str_radix(words.next()?, 16).ok()?;
        let is_global = words.nth(2)? == "00";
        is_global.then(|| IpAddr::from(Ipv6Addr::from(address)))
    });
    found.collect()
}

/// 128 bits that nobody else has.
pub(crate) fn random_u128() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes once it has booted");
    u128::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_of_a_host_are_found() {
        let routes = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n\
                      |-- 10.1.2.3\n        /32 host LOCAL\n     |-- 10.1.2.255\n        /32 link BROADCAST\n";
        assert_eq!(
            ipv4_addresses(routes),
            ["10.1.2.3".parse::<IpAddr>().unwrap()]
        );
        let interfaces = "20010db8000000000000000000000007 02 40 00 80     eth0\n\
                          fe800000000000000000000000000001 02 40 20 80     eth0\nnonsense\n";
        let found = ipv6_addresses(interfaces);
        assert_eq!(found, ["2001:db8::7".parse::<IpAddr>().unwrap()]);
        let host = Host {
            name: "node7".to_owned(),
            boot_id: String::new(),
        };
        let listen = ["tls://0.0.0.0:1", "tls://[2001:db8::9]:1", "tcp://other:1"];
        let names = names(
            &host,
            &listen.map(str::to_owned),
            &["data.site.org".to_owned()],
        );
        for name in [
            "node7",
            "localhost",
            "127.0.0.1",
            "::1",
            "2001:db8::9",
            "data.site.org",
        ] {
            assert_eq!(names.iter().filter(|one| *one == name).count(), 1, "{name}");
        }
        assert!(
            !names
                .iter()
                .any(|name| name == "0.0.0.0" || name == "other")
        );
    }

    #[test]
    fn an_address_of_every_interface_has_the_name_of_the_host_for_others() {
        let host = Host {
            name: "node7".to_owned(),
            boot_id: String::new(),
        };
        for (address, seen) in [
            ("tls://0.0.0.0:9", "tls://node7:9"),
            ("tcp://[::]:9", "tcp://node7:9"),
            ("tcp://127.0.0.1:9", "tcp://127.0.0.1:9"),
            ("unix:///a/0.0.0.0:9", "unix:///a/0.0.0.0:9"),
        ] {
            assert_eq!(host.named(address), seen);
        }
    }
}
