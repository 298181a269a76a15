//! The group file: how a client finds its server. The form is
//! `docs/format/group-file.md`; the server writes it.

use bytes::Bytes;
use net::Fingerprint;
use serde_json::Value;
use std::path::Path;
use wire::{DirectoryId, ServerInstance};

/// The version of the form that this code reads.
pub const GROUP_FILE_FORMAT: u64 = 1;
/// A group file longer than this is refused.
const GROUP_FILE_BYTES_MAX: u64 = 1 << 20;

/// What a group file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupFile {
    /// The data directory that the server owns.
    pub directory: DirectoryId,
    /// The run of the server that wrote the file.
    pub instance: ServerInstance,
    /// The name of the server's host.
    pub host: String,
    /// The boot of the server's host.
    pub boot_id: String,
    /// Where it listens, the ones to be preferred first.
    pub endpoints: Vec<String>,
    /// What to present.
    pub token: Bytes,
    /// The certificates by which its server is known over TLS.
    pub certificates: Vec<Fingerprint>,
    /// Other servers of its cluster, which take the same token and are known by the same certificates.
    pub others: Vec<OtherServer>,
}

/// Another server of the cluster that a group file names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherServer {
    /// The data directory that it owns.
    pub directory: DirectoryId,
    /// The name of its host.
    pub host: String,
    /// Where it listens, the ones to be preferred first.
    pub endpoints: Vec<String>,
}

/// The machine that a process runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its boot, as the kernel names it.
    pub boot_id: String,
}

impl Host {
    /// This machine.
    pub fn this() -> Self {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        Self {
            name: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            boot_id: boot_id.unwrap_or_default().trim().to_owned(),
        }
    }
}

impl GroupFile {
    /// Reads the file at `path`; says why it cannot.
    pub fn read(path: &Path) -> Result<Self, String> {
        let bytes = std::fs::metadata(path).map_err(|error| unreadable(&error))?;
        if bytes.len() > GROUP_FILE_BYTES_MAX {
            return Err(format!(
                "{} bytes are too many for a group file",
                bytes.len()
            ));
        }
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(&error))?;
        Self::parse(&text)
    }

    /// Reads the form; unknown keys are other programs'.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| format!("not a group file: {error}"))?;
        let format = value.get("format").and_then(Value::as_u64);
        match format {
            Some(GROUP_FILE_FORMAT) => {}
            Some(other) => {
                return Err(format!(
                    "format {other} is not known; this client reads {GROUP_FILE_FORMAT}"
                ));
            }
            None => return Err("no key \"format\": not a group file of this product".to_owned()),
        }
        let text = |key: &str| text_of(&value, key);
        let id = |key: &str| id_of(&value, key);
        let endpoints = endpoints_of(&value)?;
        let certificates = value.get("certificates").and_then(Value::as_array);
        let certificates = certificates
            .into_iter()
            .flatten()
            .map(|hash| {
                let text = hash.as_str().unwrap_or_default();
                Fingerprint::parse(text).map_err(|error| format!("certificates: {error}"))
            })
            .collect::<Result<_, _>>()?;
        let others = value.get("others").and_then(Value::as_array);
        let others = others.into_iter().flatten().map(|other| {
            Ok(OtherServer {
                directory: DirectoryId(id_of(other, "directory")?),
                host: text_of(other, "host")?.to_owned(),
                endpoints: endpoints_of(other)?,
            })
        });
        let others = others.collect::<Result<_, String>>();
        Ok(Self {
            others: others.map_err(|error| format!("others: {error}"))?,
            directory: DirectoryId(id("directory")?),
            instance: ServerInstance(id("instance")?),
            host: text("host")?.to_owned(),
            boot_id: text("boot_id")?.to_owned(),
            endpoints,
            token: bytes_of_hex(text("token")?)?.into(),
            certificates,
        })
    }

    /// The form, as the server writes it.
    pub fn to_json(&self) -> String {
        // A member is a process; this one is reached best at its first endpoint.
        let address = self.endpoints.first().map_or("", String::as_str);
        let token: String = self
            .token
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let mut value = serde_json::json!({
            "members": [{ "address": address }],
            "format": GROUP_FILE_FORMAT,
            "directory": self.directory.to_string(),
            "instance": self.instance.to_string(),
            "host": self.host,
            "boot_id": self.boot_id,
            "endpoints": self.endpoints,
            "token": token,
        });
        if !self.certificates.is_empty() {
            let texts = self.certificates.iter().map(Fingerprint::to_string);
            value["certificates"] = texts.collect();
        }
        if !self.others.is_empty() {
            let others = self.others.iter().map(|other| {
                serde_json::json!({
                    "directory": other.directory.to_string(),
                    "host": other.host,
                    "endpoints": other.endpoints,
                })
            });
            value["others"] = others.collect();
        }
        format!("{value:#}\n")
    }

    /// What is to be dialled to reach one of its endpoints: of TLS, with the certificates that its
    /// server may show.
    pub fn dialled(endpoint: &str, certificates: &[Fingerprint]) -> String {
        if certificates.is_empty() || !endpoint.starts_with("tls://") {
            return endpoint.to_owned();
        }
        let texts: Vec<String> = certificates.iter().map(Fingerprint::to_string).collect();
        format!("{endpoint}?sha256={}", texts.join(","))
    }

    /// The endpoints to try from `here`, in order: those that reach this
    /// host only come first, and are left out on another one.
    ///
    /// # Errors
    /// That none is left, and why.
    pub fn endpoints_from(&self, here: &Host) -> Result<Vec<String>, String> {
        let same_host = if self.boot_id.is_empty() || here.boot_id.is_empty() {
            self.host == here.name
        } else {
            self.boot_id == here.boot_id
        };
        let endpoints = reachable(&self.endpoints, same_host);
        if endpoints.is_empty() {
            return Err(match self.endpoints.is_empty() {
                true => "it names no endpoint".to_owned(),
                false => self.local_only(here),
            });
        }
        Ok(endpoints)
    }

    /// The other servers, each with the endpoints to try from `here`, in order. One with none is left out.
    pub fn others_from(&self, here: &Host) -> Vec<OtherServer> {
        let others = self.others.iter();
        let others = others.map(|other| OtherServer {
            endpoints: reachable(&other.endpoints, other.host == here.name),
            ..other.clone()
        });
        others.filter(|other| !other.endpoints.is_empty()).collect()
    }

    /// Where a server is that was reached before: at `endpoints` if the file is its own, else where the file says that this
    /// other server of its cluster is.
    pub(crate) fn endpoints_of(
        &self,
        before: Option<DirectoryId>,
        endpoints: Vec<String>,
    ) -> Option<Vec<String>> {
        let Some(before) = before.filter(|before| *before != self.directory) else {
            return Some(endpoints);
        };
        let mut others = self.others.iter();
        let other = others.find(|other| other.directory == before)?;
        Some(other.endpoints.clone())
    }

    fn local_only(&self, here: &Host) -> String {
        if self.host == here.name {
            return format!(
                "it was written by a server on this host, {}, before its last boot",
                self.host
            );
        }
        format!(
            "its endpoints ({}) are reachable on host {} only, and this is {}; \
             start the server with an address of the network",
            self.endpoints.join(", "),
            self.host,
            here.name
        )
    }
}

fn text_of<'a>(value: &'a Value, key: &str) -> Result<&'a str, String> {
    let text = value.get(key).and_then(Value::as_str);
    text.ok_or_else(|| format!("no text under key {key:?}"))
}

fn id_of(value: &Value, key: &str) -> Result<u128, String> {
    let text = text_of(value, key)?;
    u128::from_str_radix(text, 16).map_err(|error| format!("{key} {text:?}: {error}"))
}

fn endpoints_of(value: &Value) -> Result<Vec<String>, String> {
    let endpoints = value.get("endpoints").and_then(Value::as_array);
    let endpoints = endpoints.ok_or("no list under key \"endpoints\"")?.iter();
    let endpoints = endpoints.map(|endpoint| {
        let text = endpoint.as_str().map(str::to_owned);
        text.ok_or_else(|| format!("endpoint {endpoint} is no text"))
    });
    endpoints.collect()
}

/// Those that can be reached, the ones to be preferred first: those that reach their host only are left out on another one.
fn reachable(endpoints: &[String], same_host: bool) -> Vec<String> {
    let reach = |address: &&String| same_host || !is_local(address);
    let mut endpoints: Vec<String> = endpoints.iter().filter(reach).cloned().collect();
    endpoints.sort_by_key(|address| preference(address));
    endpoints
}

/// Unix sockets cost less than TCP, and that less than TLS; all are found in front of what is not known.
fn preference(address: &str) -> u8 {
    match address.split("://").next() {
        Some("unix") => 0,
        Some("tcp") => 1,
        Some("tls") => 2,
        _ => 3,
    }
}

/// Whether an address means something on its own host only.
pub(crate) fn is_local(address: &str) -> bool {
    let Some((scheme, rest)) = address.split_once("://") else {
        return true;
    };
    if ["unix", "shm", "inproc"].contains(&scheme) {
        return true;
    }
    let host = match rest.rsplit_once(':') {
        Some((host, _)) => host.trim_start_matches('[').trim_end_matches(']'),
        None => rest,
    };
    if host == "localhost" {
        return true;
    }
    host.parse::<std::net::IpAddr>()
        .is_ok_and(|ip| ip.is_loopback())
}

fn bytes_of_hex(text: &str) -> Result<Vec<u8>, String> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return Err(format!("token has {} hexadecimal digits", digits.len()));
    }
    let digit = |byte: u8| {
        (byte as char)
            .to_digit(16)
            .ok_or_else(|| "token is not hexadecimal".to_owned())
    };
    digits
        .chunks_exact(2)
        .map(|pair| Ok((digit(pair[0])? << 4 | digit(pair[1])?) as u8))
        .collect()
}

fn unreadable(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => format!(
            "{error}: this user may not read it. A server writes its group file, which lets in \
             everybody who has it, for its own user alone"
        ),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(endpoints: &[&str]) -> GroupFile {
        GroupFile {
            directory: DirectoryId(0xabc),
            instance: ServerInstance(7),
            host: "beamline".to_owned(),
            boot_id: "b1".to_owned(),
            endpoints: endpoints.iter().map(|text| text.to_string()).collect(),
            token: Bytes::from_static(&[1, 0xfe, 0]),
            certificates: vec![Fingerprint([0xab; 32])],
            others: Vec::new(),
        }
    }

    fn host(name: &str, boot_id: &str) -> Host {
        Host {
            name: name.to_owned(),
            boot_id: boot_id.to_owned(),
        }
    }

    #[test]
    fn the_form_round_trips_and_flocks_key_is_beside_ours() {
        let file = file(&["tcp://10.0.0.1:7000", "unix:///tmp/s"]);
        let text = file.to_json();
        assert_eq!(GroupFile::parse(&text), Ok(file));
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["members"][0]["address"], "tcp://10.0.0.1:7000");
    }

    #[test]
    fn of_tls_the_certificate_is_dialled_with_the_endpoint() {
        let hashes = [Fingerprint([0xab; 32]), Fingerprint([1; 32])];
        let [ours, other] = hashes.map(|hash| hash.to_string());
        let dialled = |endpoint, count: usize| GroupFile::dialled(endpoint, &hashes[..count]);
        let pinned = format!("tls://node7:1?sha256={ours},{other}");
        assert_eq!(dialled("tls://node7:1", 2), pinned);
        assert_eq!(dialled("tls://node7:1", 0), "tls://node7:1");
        assert_eq!(dialled("tcp://node7:1", 2), "tcp://node7:1");
        let text = file(&["tls://node7:1"]).to_json();
        let error = GroupFile::parse(&text.replace(&ours, "nonsense")).unwrap_err();
        assert!(error.contains("certificates"), "{error}");
    }

    #[test]
    fn unix_sockets_are_preferred_on_the_servers_own_host() {
        let file = file(&["tcp://127.0.0.1:7000", "unix:///tmp/s"]);
        assert_eq!(
            file.endpoints_from(&host("beamline", "b1")).unwrap(),
            ["unix:///tmp/s", "tcp://127.0.0.1:7000"]
        );
    }

    #[test]
    fn local_endpoints_are_refused_elsewhere_and_the_reason_is_given() {
        let endpoints = ["tcp://127.0.0.1:7000", "tls://[::1]:7", "unix:///tmp/s"];
        let local = file(&endpoints);
        let error = local.endpoints_from(&host("laptop", "b2")).unwrap_err();
        assert!(error.contains("reachable on host beamline only"), "{error}");
        let error = local.endpoints_from(&host("beamline", "b2")).unwrap_err();
        assert!(error.contains("before its last boot"), "{error}");
        let both = file(&["tcp://127.0.0.1:7000", "tcp://10.0.0.1:7000"]);
        assert_eq!(
            both.endpoints_from(&host("laptop", "b2")).unwrap(),
            ["tcp://10.0.0.1:7000"]
        );
    }

    #[test]
    fn what_is_no_group_file_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "not a group file"),
            ("{\"members\": []}", "no key \"format\""),
            ("{\"format\": 2}", "format 2 is not known"),
            ("{\"format\": 1}", "endpoints"),
        ] {
            let error = GroupFile::parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn a_file_that_this_user_may_not_read_is_told_as_that() {
        let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        assert!(unreadable(&denied).contains("this user may not read it"));
        let absent = std::io::Error::from(std::io::ErrorKind::NotFound);
        assert_eq!(unreadable(&absent), absent.to_string());
    }
}
