//! A credential that MUNGE makes for each connection, in place of a file.

use bytes::Bytes;
use munge::{Library, Realm, bound_to};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// What names MUNGE in place of a file; the socket of its daemon may follow.
const SCHEME: &str = "munge:";
/// How long the daemon may take.
const DAEMON: Duration = Duration::from_secs(3);

/// Whether a credential's path names MUNGE, and no file: `munge:`, or `munge:SOCKET`.
pub fn names_munge(path: &Path) -> bool {
    path.as_os_str()
        .as_encoded_bytes()
        .starts_with(SCHEME.as_bytes())
}

/// A credential for a server that has shown the certificate with this SHA-256. Blocks for 3 s at most.
///
/// # Errors
/// Why there is none, in a sentence.
pub(crate) fn make(path: &Path, certificate: &[u8; 32]) -> Result<Bytes, String> {
    let text = path.to_str().and_then(|path| path.strip_prefix(SCHEME));
    let socket = text.ok_or("the socket of MUNGE's daemon is no text")?;
    let library = match socket {
        "" => Library::new(),
        socket => Library::at(Path::new(socket)),
    };
    let payload = bound_to(certificate);
    let (result, came) = mpsc::sync_channel(1);
    let main = move || {
        let _ = result.send(library.encode(&payload));
    };
    memory::thread::spawn("thalweg-munge", main).map_err(|error| error.to_string())?;
    match came.recv_timeout(DAEMON) {
        Ok(Ok(text)) => Ok(text.into()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!(
            "MUNGE's daemon of this host has not answered for {DAEMON:?}"
        )),
    }
}
