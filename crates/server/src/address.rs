//! What an address to listen at means for who can reach it.

use std::net::IpAddr;

/// Who can reach a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Programs on this host alone.
    Host,
    /// Other hosts too.
    Beyond,
}

/// Who can reach a listener at `address`; says why if it is no address to listen at.
pub fn reach(address: &str) -> Result<Reach, String> {
    if let Some(path) = socket_path(address) {
        return match path.starts_with('/') {
            true => Ok(Reach::Host),
            false => Err(format!(
                "{address}: a unix socket has an absolute path: unix:///run/thalweg.sock"
            )),
        };
    }
    let Some(authority) = authority(address) else {
        return Err(format!(
            "{address}: the schemes are tcp://, tls://, unix:// and shm://"
        ));
    };
    let Some((host, port)) = authority.rsplit_once(':') else {
        return Err(format!(
            "{address}: the port is missing; 0 lets the system choose"
        ));
    };
    if port.parse::<u16>().is_err() {
        return Err(format!("{address}: {port:?} is no port"));
    }
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    match host.parse::<IpAddr>() {
        Ok(ip) if ip.is_loopback() => Ok(Reach::Host),
        Ok(_) => Ok(Reach::Beyond),
        // The name that every resolver is to keep on the host (RFC 6761).
        Err(_) if host == "localhost" => Ok(Reach::Host),
        Err(_) if host.is_empty() => Err(format!("{address}: the host is missing")),
        Err(_) => Ok(Reach::Beyond),
    }
}

/// The host and the port that `address` names, if it is one of TCP, encrypted or not.
pub fn authority(address: &str) -> Option<&str> {
    let authority = address.strip_prefix("tcp://");
    authority.or_else(|| address.strip_prefix("tls://"))
}

/// The same port at every interface, of an address of TCP or TLS.
pub fn anywhere(address: &str) -> String {
    match (address.split_once("://"), authority(address)) {
        (Some((scheme, _)), Some(authority)) => {
            let port = authority.rsplit_once(':').map_or("", |(_, port)| port);
            format!("{scheme}://0.0.0.0:{port}")
        }
        _ => address.to_owned(),
    }
}

/// Whether what passes at `address` is encrypted, and its server verified.
pub fn is_encrypted(address: &str) -> bool {
    address.starts_with("tls://")
}

/// The path of the unix socket that `address` names, if it is one: shared
/// memory is agreed on over a socket as well.
pub fn socket_path(address: &str) -> Option<&str> {
    let path = address.strip_prefix("unix://");
    path.or_else(|| address.strip_prefix("shm://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_the_same_at_every_interface() {
        for (address, everywhere) in [
            ("tcp://127.0.0.1:9", "tcp://0.0.0.0:9"),
            ("tls://[::1]:9", "tls://0.0.0.0:9"),
            ("unix:///a:9", "unix:///a:9"),
        ] {
            assert_eq!(anywhere(address), everywhere);
        }
    }

    #[test]
    fn loopback_and_sockets_stay_on_the_host() {
        for address in [
            "unix:///a/b",
            "shm:///a/b",
            "tcp://127.0.0.1:0",
            "tcp://127.9.9.9:1",
            "tcp://[::1]:0",
            "tcp://localhost:5",
            "tls://127.0.0.1:0",
        ] {
            assert_eq!(reach(address), Ok(Reach::Host), "{address}");
        }
        for address in [
            "tcp://0.0.0.0:0",
            "tcp://[::]:0",
            "tcp://node7:9000",
            "tcp://10.0.0.1:1",
            "tls://0.0.0.0:443",
        ] {
            assert_eq!(reach(address), Ok(Reach::Beyond), "{address}");
        }
        for address in [
            "",
            "unix://relative",
            "tcp://127.0.0.1",
            "tcp://:7",
            "tcp://127.0.0.1:x",
            "tls://node7",
            "http://a",
        ] {
            assert!(reach(address).is_err(), "{address}");
        }
    }
}
