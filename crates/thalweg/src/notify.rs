//! Tells a service manager how a server fares, as `sd_notify(3)` describes: a datagram to the socket
//! that `NOTIFY_SOCKET` names. Without that variable nothing is done.

use crate::output::report;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

const VARIABLE: &str = "NOTIFY_SOCKET";
/// A manager that does not read is waited for no longer than this.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// The socket of the service manager, if there is one.
pub struct Notifier {
    manager: Option<(UnixDatagram, SocketAddr)>,
}

impl Notifier {
    /// By the environment. A socket that cannot be used is reported, and then left alone.
    pub fn from_environment() -> Self {
        let Some(name) = std::env::var_os(VARIABLE).filter(|name| !name.is_empty()) else {
            return Self { manager: None };
        };
        let manager = open(name.as_bytes()).map_err(|error| {
            let name = name.display();
            report(&format!(
                "{VARIABLE}: {name}: {error}: the service manager hears nothing"
            ));
        });
        Self {
            manager: manager.ok(),
        }
    }

    /// What the server is about, for people.
    pub fn status(&self, text: &str) {
        self.send(&format!("STATUS={text}"));
    }

    /// It serves.
    pub fn ready(&self, text: &str) {
        self.send(&format!("READY=1\nSTATUS={text}"));
    }

    /// It ends, within `timeout` if all goes well.
    pub fn stopping(&self, text: &str, timeout: Duration) {
        let timeout = timeout.as_micros();
        self.send(&format!(
            "STOPPING=1\nSTATUS={text}\nEXTEND_TIMEOUT_USEC={timeout}"
        ));
    }

    fn send(&self, message: &str) {
        let Some((socket, manager)) = &self.manager else {
            return;
        };
        if let Err(error) = socket.send_to_addr(message.as_bytes(), manager) {
            report(&format!("{VARIABLE}: telling the service manager: {error}"));
        }
    }
}

fn open(name: &[u8]) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match name {
        [b'/', ..] => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name))?,
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => {
            let why = "neither an absolute path nor the name of an abstract socket";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(WAIT_MAX))?;
    Ok((socket, address))
}
