//! A credential that MUNGE makes for each connection, in place of a file.

use bytes::Bytes;
use munge::{DAEMON, Patient, bound_to};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What names MUNGE in place of a file; the socket of its daemon may follow.
const SCHEME: &str = "munge:";

/// Whether a credential's path names MUNGE, and no file: `munge:`, or `munge:SOCKET`.
pub fn names_munge(path: &Path) -> bool {
    path.as_os_str().as_bytes().starts_with(SCHEME.as_bytes())
}

/// Makes credentials.
#[derive(Debug)]
pub(crate) struct Vouching(Patient);

impl Vouching {
    /// By the daemon that a credential's path names.
    pub fn of(path: &Path) -> Self {
        let named = path.as_os_str().as_bytes();
        let socket = named.strip_prefix(SCHEME.as_bytes()).unwrap_or_default();
        let socket = (!socket.is_empty()).then(|| Path::new(OsStr::from_bytes(socket)));
        Self(Patient::at(socket))
    }

    /// A credential for a server that has shown the certificate with this SHA-256. Blocks for 3 s at most.
    ///
    /// # Errors
    /// Why there is none, in a sentence.
    pub fn make(&self, certificate: &[u8; 32]) -> Result<Bytes, String> {
        let made = self.0.encode(bound_to(certificate), DAEMON);
        made.map(Bytes::from).map_err(|error| error.to_string())
    }
}
