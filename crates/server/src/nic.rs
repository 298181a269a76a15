//! The network interface that a server is to use: its addresses, and the processors near it.
//!
//! Where a host has several, with several memories, a server that listens at one of them and runs beside it takes nothing from the others.

use crate::address;
use crate::cluster;
use crate::config::Config;
use crate::error::ConfigError;
use crate::placement::Cores;
use crate::value::Value;
use std::net::IpAddr;
use std::path::PathBuf;

/// The setting.
const KEY: &str = "nic";
/// In place of an interface: the servers of a host take its interfaces in turn, by their ranks.
pub(crate) const EACH: &str = "each";
/// Where Linux says what it knows of interfaces.
const SYSFS: &str = "/sys/class/net";

/// The interfaces of a host.
#[derive(Debug, Clone)]
pub struct Interfaces {
    sysfs: PathBuf,
    /// Each address, with the interface that has it.
    addresses: Vec<(String, IpAddr)>,
}

impl Interfaces {
    /// Those of this host.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn of_host() -> Result<Self, String> {
        let found = if_addrs::get_if_addrs();
        let found = found.map_err(|error| format!("listing network interfaces: {error}"))?;
        let all = found.into_iter().filter(|one| !one.is_link_local());
        let addresses = all.map(|one| (one.name.clone(), one.ip()));
        Ok(Self {
            sysfs: SYSFS.into(),
            addresses: addresses.collect(),
        })
    }

    /// Those that are of hardware, are up and have an address, by name, numbers in it as numbers.
    pub fn usable(&self) -> Vec<String> {
        let mut names: Vec<_> = self.addresses.iter().map(|(name, _)| name).collect();
        names.sort_by_key(|name| by_number(name));
        names.dedup();
        let usable = names.into_iter().filter(|name| {
            let about = self.sysfs.join(name);
            let state = std::fs::read_to_string(about.join("operstate")).unwrap_or_default();
            // Some drivers say that it is not known.
            about.join("device").exists() && matches!(state.trim(), "up" | "unknown")
        });
        usable.cloned().collect()
    }

    /// The interface that a setting names, for the server of this rank.
    fn find(&self, wanted: &str, rank: Option<u32>) -> Result<String, String> {
        let number = match (wanted, rank) {
            (EACH, None) => return Err(format!("{EACH} is for servers of a cluster")),
            (EACH, Some(rank)) => rank as usize,
            (other, _) => match other.parse::<usize>() {
                Ok(number) => number,
                Err(_) if self.addresses.iter().any(|(name, _)| name == other) => {
                    return Ok(other.to_owned());
                }
                Err(_) => return Err(self.unknown(other)),
            },
        };
        let usable = self.usable();
        match wanted {
            _ if usable.is_empty() => Err(self.unknown(wanted)),
            EACH => Ok(usable[number % usable.len()].clone()),
            _ => usable
                .get(number)
                .cloned()
                .ok_or_else(|| self.unknown(wanted)),
        }
    }

    fn unknown(&self, wanted: &str) -> String {
        let usable = self.usable();
        match usable.is_empty() {
            true => format!(
                "{wanted}: no interface of hardware is up here and has an address; others go by their name"
            ),
            false => format!(
                "{wanted}: no interface of that name has an address; numbers count {}",
                usable.join(", ")
            ),
        }
    }

    /// The address in place of every interface's, of the same family.
    fn address_of(&self, name: &str, every: IpAddr) -> Result<IpAddr, String> {
        let own = self.addresses.iter().filter(|(of, _)| of == name);
        let mut own = own.filter(|(_, ip)| ip.is_ipv4() == every.is_ipv4());
        let family = if every.is_ipv4() { "IPv4" } else { "IPv6" };
        let found = own.next().map(|(_, ip)| *ip);
        found.ok_or_else(|| format!("{name} has no address of {family}"))
    }

    /// An address to listen at: at this interface, if it was at all of them.
    fn at(&self, name: &str, listen: &str) -> Result<String, String> {
        let parts = listen.split_once("://").zip(address::authority(listen));
        let Some(((scheme, _), authority)) = parts else {
            return Ok(listen.to_owned());
        };
        let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "0"));
        let host = host.trim_start_matches('[').trim_end_matches(']');
        match host.parse::<IpAddr>() {
            Ok(every) if every.is_unspecified() => match self.address_of(name, every)? {
                IpAddr::V4(ip) => Ok(format!("{scheme}://{ip}:{port}")),
                IpAddr::V6(ip) => Ok(format!("{scheme}://[{ip}]:{port}")),
            },
            _ => Ok(listen.to_owned()),
        }
    }

    /// The processors near an interface; none if the system knows of no difference.
    fn near(&self, name: &str) -> Cores {
        let list = self.sysfs.join(name).join("device/local_cpulist");
        let text = std::fs::read_to_string(list).unwrap_or_default();
        Cores::from_texts(&[text.trim().to_owned()]).unwrap_or_default()
    }
}

/// Settles what follows from the interface that the settings name: where the server listens, and on which processors it runs. The
/// setting is the interface's name behind this.
pub(crate) fn settle(config: &mut Config) -> Result<(), ConfigError> {
    if config.nic.is_empty() {
        return Ok(());
    }
    let rank = cluster::placed(&mut config.clone())?.map(|ranks| ranks.rank);
    let settled = Interfaces::of_host().and_then(|all| settle_by(&all, rank, config));
    settled.map_err(|why| ConfigError::Value {
        key: KEY.to_owned(),
        why,
    })
}

fn settle_by(all: &Interfaces, rank: Option<u32>, config: &mut Config) -> Result<(), String> {
    let name = all.find(&config.nic, rank)?;
    for listen in config.listen.iter_mut().chain(&mut config.amqp) {
        *listen = all.at(&name, listen)?;
    }
    if config.cluster.is_some() {
        let listen = &config.cluster_listen;
        let at = all.at(&name, listen);
        // The default is of IPv4; an interface may have none.
        let other = listen.replace("//0.0.0.0:", "//[::]:");
        config.cluster_listen = at.or_else(|why| all.at(&name, &other).map_err(|_| why))?;
    }
    if config.cores == Cores::default() {
        let near = all.near(&name).allowed();
        config.cores = near.map_err(|error| format!("its processors: {error}"))?;
    }
    config.nic = name;
    Ok(())
}

/// A name with its last number as a number, so that `ib10` is behind `ib2`.
fn by_number(name: &str) -> (String, u64, String) {
    let stem = name.trim_end_matches(|character: char| character.is_ascii_digit());
    let number = name[stem.len()..].parse().unwrap_or(0);
    (stem.to_owned(), number, name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};
    use tempfile::TempDir;

    /// Two cards of hardware that are up, one that is down, and a bridge.
    fn host() -> (TempDir, Interfaces) {
        let sysfs = tempfile::tempdir().unwrap();
        let all = [
            ("ib10", Some("0-3"), "up"),
            ("ib2", Some(""), "unknown"),
            ("ib3", Some("4"), "down"),
            ("br0", None, "up"),
        ];
        for (name, near, state) in all {
            let about = sysfs.path().join(name);
            create_dir_all(&about).unwrap();
            write(about.join("operstate"), format!("{state}\n")).unwrap();
            if let Some(near) = near {
                create_dir_all(about.join("device")).unwrap();
                write(about.join("device/local_cpulist"), format!("{near}\n")).unwrap();
            }
        }
        let addresses = [
            ("ib10", "10.0.0.10"),
            ("br0", "192.168.0.1"),
            ("ib2", "fd00::2"),
            ("ib2", "10.0.0.2"),
            ("ib3", "10.0.0.3"),
        ];
        let addresses = addresses.map(|(name, ip)| (name.to_owned(), ip.parse().unwrap()));
        let interfaces = Interfaces {
            sysfs: sysfs.path().to_owned(),
            addresses: addresses.to_vec(),
        };
        (sysfs, interfaces)
    }

    #[test]
    fn interfaces_of_hardware_are_counted_by_name_and_others_go_by_theirs() {
        let (_sysfs, all) = host();
        assert_eq!(all.usable(), ["ib2", "ib10"]);
        let find = |wanted, rank| all.find(wanted, rank);
        for (wanted, rank, name) in [
            ("0", None, "ib2"),
            ("1", Some(7), "ib10"),
            ("br0", None, "br0"),
            ("ib3", None, "ib3"),
            ("each", Some(0), "ib2"),
            ("each", Some(3), "ib10"),
        ] {
            assert_eq!(find(wanted, rank).unwrap(), name, "{wanted} {rank:?}");
        }
        for (wanted, why) in [
            ("2", "numbers count ib2, ib10"),
            ("ib4", "ib4: no interface of that name"),
            ("each", "for servers of a cluster"),
        ] {
            let refused = find(wanted, None).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        let none = Interfaces {
            addresses: Vec::new(),
            ..all
        };
        let refused = none.find("each", Some(0)).unwrap_err();
        assert!(refused.contains("no interface of hardware"), "{refused}");
    }

    #[test]
    fn what_listens_everywhere_listens_at_the_interface() {
        let (_sysfs, all) = host();
        for (listen, at) in [
            ("tls://0.0.0.0:443", "tls://10.0.0.2:443"),
            ("tls://[::]:0", "tls://[fd00::2]:0"),
            ("tcp://127.0.0.1:0", "tcp://127.0.0.1:0"),
            ("tls://node7:443", "tls://node7:443"),
            ("unix:///run/a", "unix:///run/a"),
            ("listen", "listen"),
        ] {
            assert_eq!(all.at("ib2", listen).unwrap(), at);
        }
        let refused = all.at("ib10", "tls://[::]:0").unwrap_err();
        assert!(refused.contains("ib10 has no address of IPv6"), "{refused}");
    }

    #[test]
    fn settings_follow_from_the_interface() {
        let (_sysfs, all) = host();
        let mut config = Config {
            nic: "0".to_owned(),
            cluster: Some("/shared".into()),
            listen: vec!["tls://0.0.0.0:0".to_owned(), "unix:///a".to_owned()],
            ..Config::default()
        };
        settle_by(&all, None, &mut config).unwrap();
        assert_eq!(config.listen, ["tls://10.0.0.2:0", "unix:///a"]);
        assert_eq!(config.cluster_listen, "tls://10.0.0.2:0");
        assert_eq!(
            (config.nic.as_str(), config.cores),
            ("ib2", Cores::default())
        );
        // Which processors are near is what the system says, as far as the process may use them.
        assert_eq!(all.near("ib10").to_text(), "0-3");
        let said = Cores::from_texts(&["0".to_owned()]).unwrap();
        let mut config = Config {
            nic: "ib10".to_owned(),
            cores: said.clone(),
            ..Config::default()
        };
        settle_by(&all, None, &mut config).unwrap();
        assert_eq!(config.cores, said);
    }
}
