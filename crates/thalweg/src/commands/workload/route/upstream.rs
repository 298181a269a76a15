//! The server as the command was given it: where proxies lead, and the URL by which clients reach it through them.

use super::super::amqp::url::{AmqpUrl, Encryption};
use super::certificate::{NAME, write_private};
use crate::failure::{About, Failure};
use client::group_file::{GroupFile, Host};
use client::url::{SCHEME, StreamUrl, first_line};
use net::Fingerprint;
use std::io::Read;
use std::path::{Path, PathBuf};
use workload::{Backend, Url};

/// A server.
pub struct Upstream {
    how: How,
    /// Where it listens.
    address: Address,
}

enum How {
    Amqp(AmqpUrl),
    /// With one endpoint.
    Group(GroupFile),
    /// An address alone.
    Address(String),
    /// A `thalweg://` URL, which has a token.
    Stream(String),
}

/// A place, and whether TLS is spoken there.
struct Address {
    host: String,
    port: u16,
    is_encrypted: bool,
}

/// A certificate of a proxy that ends TLS before a server without.
pub struct Ends<'a> {
    pub authority: &'a Path,
    pub fingerprint: Fingerprint,
}

const SUBJECT: &str = "architecture";
/// A longer file holds something else.
const FILE_BYTES_MAX: u64 = 1 << 20;

impl Upstream {
    /// Takes a run's URL apart.
    pub fn new(backend: Backend, url: &Url) -> Result<Self, Failure> {
        if backend == Backend::Amqp {
            let url = AmqpUrl::parse(&url.0).map_err(|why| Failure::usage("url", why))?;
            let address = Address {
                host: url.host.clone(),
                port: url.port,
                is_encrypted: url.encryption.is_some(),
            };
            return Ok(Self {
                how: How::Amqp(url),
                address,
            });
        }
        let how = match url.0.contains("://") {
            true => of_text(&url.0),
            false => of_file(Path::new(&url.0))?,
        };
        let address = match &how {
            How::Amqp(_) => unreachable!("it is of the other backend"),
            How::Group(group) => address_of(&group.endpoints[0])?,
            How::Address(text) => address_of(text)?,
            How::Stream(text) => {
                let url = StreamUrl::parse(text).map_err(|why| Failure::usage("url", why))?;
                address_of(&url.address)?
            }
        };
        Ok(Self { how, address })
    }

    /// Host and port, as proxies take them.
    pub fn authority(&self) -> String {
        let Address { host, port, .. } = &self.address;
        match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        }
    }

    /// Whether TLS is spoken with it.
    pub fn is_encrypted(&self) -> bool {
        self.address.is_encrypted
    }

    /// The name that clients ask for in TLS. None where an address alone says whom to trust, which no certificate could
    /// be verified for by another name.
    pub fn name(&self) -> Result<String, Failure> {
        let own = match &self.how {
            How::Amqp(url) => url.encryption.as_ref().and_then(|one| one.name.clone()),
            How::Group(_) => return Ok(NAME.to_owned()),
            How::Address(text) | How::Stream(text) => option_of(text, "name").map(str::to_owned),
        };
        let name = own.unwrap_or_else(|| self.address.host.clone());
        let is_address = name.parse::<std::net::IpAddr>().is_ok();
        match (is_address, self.is_encrypted()) {
            (true, true) => {
                let what = format!(
                    "a server is found by its name behind one entrance, and {name} is an address: give the URL with the \
                     name that its certificate has"
                );
                Err(Failure::usage(SUBJECT, what))
            }
            (true, false) => Ok(NAME.to_owned()),
            (false, _) => Ok(name),
        }
    }

    /// The URL by which it is reached at a port of this host, where proxies pass on what they get. A URL with a secret
    /// is a file in `folder`.
    pub fn through(&self, port: u16, folder: &Path) -> Result<Url, Failure> {
        let place = format!("127.0.0.1:{port}");
        let host = &self.address.host;
        let text = match &self.how {
            How::Amqp(url) => {
                let encryption = url.encryption.clone().map(|one| Encryption {
                    name: Some(one.name.unwrap_or_else(|| host.clone())),
                    ..one
                });
                at(url, port, encryption).to_text()
            }
            How::Group(group) => {
                let endpoint = match self.is_encrypted() {
                    // With the name, for one who routes by it: the certificates are known by their hashes.
                    true if group.endpoints[0].contains('?') => {
                        format!(
                            "tls://{place}{}",
                            options_with_name(&group.endpoints[0], NAME)
                        )
                    }
                    true => format!("tls://{place}?name={NAME}&{}", hashes(&group.certificates)),
                    false => format!("tcp://{place}"),
                };
                return self.group_at(group, endpoint, folder);
            }
            How::Address(text) if self.is_encrypted() => {
                format!("tls://{place}{}", options_with_name(text, host))
            }
            How::Address(_) => format!("tcp://{place}"),
            How::Stream(text) => {
                let (token, rest) = text
                    .trim()
                    .split_once('@')
                    .expect("a URL that was parsed has a token");
                let whole = rest.split_once('?').map_or(rest, |(whole, _)| whole);
                let path = whole.split_once('/').map_or("", |(_, path)| path);
                let options = options_with_name(rest, host);
                let path_of_file = folder.join("url");
                write_private(&path_of_file, &format!("{token}@{place}/{path}{options}\n"))?;
                path_of_file.display().to_string()
            }
        };
        Ok(Url(text))
    }

    /// The URL by which it is reached at a port of this host, where a proxy ends TLS before it.
    pub fn through_tls(&self, port: u16, ends: &Ends<'_>, folder: &Path) -> Result<Url, Failure> {
        let endpoint = format!(
            "tls://127.0.0.1:{port}?name={NAME}&{}",
            hashes(&[ends.fingerprint])
        );
        match &self.how {
            How::Amqp(url) => {
                let encryption = Encryption {
                    authorities: Some(ends.authority.to_owned()),
                    name: Some(NAME.to_owned()),
                };
                Ok(Url(at(url, port, Some(encryption)).to_text()))
            }
            How::Group(group) => self.group_at(group, endpoint, folder),
            How::Address(_) => Ok(Url(endpoint)),
            How::Stream(_) => unreachable!("a thalweg:// URL is one of TLS"),
        }
    }

    /// A group file that differs in where the server is.
    fn group_at(&self, group: &GroupFile, endpoint: String, folder: &Path) -> Result<Url, Failure> {
        let here = Host::this();
        let group = GroupFile {
            endpoints: vec![endpoint],
            // The endpoint says it.
            certificates: Vec::new(),
            others: Vec::new(),
            host: here.name,
            boot_id: here.boot_id,
            ..group.clone()
        };
        let path: PathBuf = folder.join("thalweg.json");
        write_private(&path, &group.to_json())?;
        Ok(Url(path.display().to_string()))
    }
}

fn of_text(text: &str) -> How {
    match text.starts_with(SCHEME) {
        true => How::Stream(text.to_owned()),
        false => How::Address(text.to_owned()),
    }
}

/// What a file has: a `thalweg://` URL in its first line, or a group.
fn of_file(path: &Path) -> Result<How, Failure> {
    let name = path.display().to_string();
    let mut text = String::new();
    let file = std::fs::File::open(path).about(&name)?;
    file.take(FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .about(&name)?;
    if let Some(line) = first_line(&text).filter(|line| line.starts_with(SCHEME)) {
        return Ok(How::Stream(line.to_owned()));
    }
    let mut group = GroupFile::parse(&text).map_err(|why| Failure::usage(&name, why))?;
    let of = |scheme: &str| {
        let mut all = group.endpoints.iter();
        all.find(|endpoint| endpoint.starts_with(scheme)).cloned()
    };
    let Some(endpoint) = of("tcp://").or_else(|| of("tls://")) else {
        let what = format!(
            "its server listens at {} alone, and proxies carry TCP: start it with --listen tcp://127.0.0.1:0",
            group.endpoints.join(" and ")
        );
        return Err(Failure::usage(name, what));
    };
    group.endpoints = vec![endpoint];
    Ok(How::Group(group))
}

fn address_of(text: &str) -> Result<Address, Failure> {
    let place = |scheme: &str| {
        let rest = text.strip_prefix(scheme)?;
        let (rest, _) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, port) = rest.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Some((host.to_owned(), port.parse::<u16>().ok()?))
    };
    match (place("tcp://"), place("tls://")) {
        (Some((host, port)), _) => Ok(Address {
            host,
            port,
            is_encrypted: false,
        }),
        (None, Some((host, port))) => Ok(Address {
            host,
            port,
            is_encrypted: true,
        }),
        (None, None) => {
            let what = format!(
                "{text}: proxies carry TCP, and this is no address of it: give a tcp:// or tls:// one"
            );
            Err(Failure::usage(SUBJECT, what))
        }
    }
}

/// The same of AMQP at a port of this host.
fn at(url: &AmqpUrl, port: u16, encryption: Option<Encryption>) -> AmqpUrl {
    AmqpUrl {
        host: "127.0.0.1".to_owned(),
        port,
        encryption,
        ..url.clone()
    }
}

fn options(text: &str) -> impl Iterator<Item = &str> {
    let options = text.split_once('?').map_or("", |(_, options)| options);
    options.split('&').filter(|option| !option.is_empty())
}

fn option_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    options(text).find_map(|option| option.strip_prefix(key)?.strip_prefix('='))
}

/// What stands behind the `?` of an address of TLS, with the name of its host.
fn options_with_name(text: &str, host: &str) -> String {
    let name = option_of(text, "name").unwrap_or(host);
    let others = options(text).filter(|option| !option.starts_with("name="));
    let name = format!("name={name}");
    let all: Vec<&str> = others.chain([&*name]).collect();
    format!("?{}", all.join("&"))
}

fn hashes(certificates: &[Fingerprint]) -> String {
    let texts: Vec<String> = certificates.iter().map(Fingerprint::to_string).collect();
    format!("sha256={}", texts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(backend: Backend, text: &str) -> Upstream {
        Upstream::new(backend, &Url(text.to_owned())).unwrap()
    }

    #[test]
    fn a_url_goes_through_with_the_name_of_its_server() {
        let folder = tempfile::tempdir().unwrap();
        let through = |backend, text: &str| {
            let upstream = upstream(backend, text);
            let url = upstream.through(7, folder.path()).unwrap().0;
            (upstream.authority(), url)
        };
        for (text, authority, url) in [
            ("tcp://node7:80", "node7:80", "tcp://127.0.0.1:7"),
            (
                "tls://node7:443?ca=/etc/site.pem",
                "node7:443",
                "tls://127.0.0.1:7?ca=/etc/site.pem&name=node7",
            ),
            (
                "tls://[::1]:443?name=a.org&sha256=ab",
                "[::1]:443",
                "tls://127.0.0.1:7?sha256=ab&name=a.org",
            ),
        ] {
            let expected = (authority.to_owned(), url.to_owned());
            assert_eq!(through(Backend::Thalweg, text), expected);
        }
        for (text, authority, url) in [
            (
                "amqp://u:p%2Fq@host/v",
                "host:5672",
                "amqp://u:p%2Fq@127.0.0.1:7/v",
            ),
            (
                "amqps://u:p@host?cacertfile=a.pem",
                "host:5671",
                "amqps://u:p@127.0.0.1:7/%2F?cacertfile=a.pem&server_name_indication=host",
            ),
        ] {
            let expected = (authority.to_owned(), url.to_owned());
            assert_eq!(through(Backend::Amqp, text), expected);
        }
        let (authority, path) = through(
            Backend::Thalweg,
            "thalweg://AQID@gate.org/lab/run?sha256=ab",
        );
        assert_eq!(authority, "gate.org:443");
        assert!(!path.contains("AQID"), "a token is in no URL: {path}");
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            text,
            "thalweg://AQID@127.0.0.1:7/lab/run?sha256=ab&name=gate.org\n"
        );
    }

    /// As with a line that is cut, nearest to the clients, before a proxy.
    #[test]
    fn a_group_goes_through_twice_and_keeps_its_certificate() {
        let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let hash = "ab".repeat(32);
        let here = Host::this();
        let group = GroupFile {
            directory: wire::DirectoryId(1),
            instance: wire::ServerInstance(2),
            host: here.name,
            boot_id: here.boot_id,
            endpoints: vec!["tls://127.0.0.1:9".to_owned()],
            token: vec![0; 32].into(),
            certificates: vec![Fingerprint::parse(&hash).unwrap()],
            others: Vec::new(),
        };
        let mut path = folders[0].path().join("thalweg.json");
        std::fs::write(&path, group.to_json()).unwrap();
        for (folder, port) in folders[1..].iter().zip([7, 8]) {
            let url = path.display().to_string();
            let url = upstream(Backend::Thalweg, &url).through(port, folder.path());
            path = url.unwrap().0.into();
            let text = std::fs::read_to_string(&path).unwrap();
            let endpoint = &GroupFile::parse(&text).unwrap().endpoints[0];
            assert!(
                endpoint.starts_with(&format!("tls://127.0.0.1:{port}?")),
                "{endpoint}"
            );
            assert_eq!(option_of(endpoint, "sha256"), Some(&*hash));
            assert_eq!(option_of(endpoint, "name"), Some(NAME));
        }
    }

    #[test]
    fn what_proxies_cannot_carry_or_find_is_refused() {
        let refused = |text: &str| {
            let upstream = Upstream::new(Backend::Thalweg, &Url(text.to_owned()));
            let name = upstream.and_then(|upstream| upstream.name());
            name.unwrap_err().to_string()
        };
        assert!(refused("unix:///run/thalweg.sock").contains("proxies carry TCP"));
        assert!(refused("tls://127.0.0.1:443?ca=a.pem").contains("is an address"));
        let named = |backend, text: &str| upstream(backend, text).name().unwrap();
        assert_eq!(
            named(Backend::Thalweg, "tls://127.0.0.1:443?name=a.org"),
            "a.org"
        );
        assert_eq!(named(Backend::Thalweg, "tcp://127.0.0.1:443"), NAME);
        assert_eq!(named(Backend::Amqp, "amqps://node7"), "node7");
    }
}
