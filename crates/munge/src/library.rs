//! MUNGE by its library.

use crate::error::Error;
use crate::realm::{PAYLOAD_BYTES_MAX, Realm, TEXT_BYTES_MAX, Vouched};
use crate::sys::{self, Context, Failed, Functions};
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The realm of this host, by `libmunge`, which is loaded when it is asked first.
#[derive(Default)]
pub struct Library {
    /// Where the daemon listens, if not where the library thinks.
    socket: Option<PathBuf>,
    functions: OnceLock<Result<Functions, String>>,
}

impl Library {
    /// The daemon that listens where the library thinks.
    pub fn new() -> Self {
        Self::default()
    }

    /// The daemon that listens at `socket`.
    pub fn at(socket: &Path) -> Self {
        Self {
            socket: Some(socket.to_owned()),
            ..Self::default()
        }
    }

    fn context(&self) -> Result<Context<'_>, Error> {
        let functions = self.functions.get_or_init(Functions::load);
        let functions = functions
            .as_ref()
            .map_err(|why| Error::NoLibrary(why.clone()))?;
        let socket = self.socket.as_ref().map(|socket| {
            let text = CString::new(socket.as_os_str().as_encoded_bytes());
            text.map_err(|_| self.no_daemon("its name has a NUL"))
        });
        let socket = socket.transpose()?;
        Context::new(functions, socket.as_deref()).map_err(|failed| self.error(failed))
    }

    fn error(&self, failed: Failed) -> Error {
        match failed.code {
            sys::SNAFU | sys::NO_MEMORY | sys::SOCKET | sys::TIMEOUT => {
                self.no_daemon(&failed.text)
            }
            sys::BAD_REALM => Error::OtherRealm,
            sys::CRED_EXPIRED => Error::Expired,
            sys::CRED_REWOUND => Error::Rewound,
            sys::CRED_REPLAYED => Error::Replayed,
            _ => Error::Refused(failed.text),
        }
    }

    fn no_daemon(&self, why: &str) -> Error {
        let place = self.socket.as_ref();
        let place = place.map_or_else(
            || "the library's own socket".to_owned(),
            |socket| format!("socket {}", socket.display()),
        );
        Error::NoDaemon(format!("{place}: {why}"))
    }
}

impl Realm for Library {
    fn encode(&self, payload: &[u8]) -> Result<String, Error> {
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(Error::Refused(format!(
                "more than {PAYLOAD_BYTES_MAX} bytes are to be put into it"
            )));
        }
        let text = self.context()?.encode(payload);
        let text = text.map_err(|failed| self.error(failed))?;
        let text = text.trim_ascii_end();
        let is_word = !text.is_empty() && text.iter().all(u8::is_ascii_graphic);
        match std::str::from_utf8(text) {
            Ok(text) if is_word && text.len() <= TEXT_BYTES_MAX => Ok(text.to_owned()),
            _ => Err(Error::Refused(
                "the library gives what is no credential".to_owned(),
            )),
        }
    }

    fn decode(&self, text: &str) -> Result<Vouched, Error> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(Error::Refused(format!(
                "it is longer than {TEXT_BYTES_MAX} bytes"
            )));
        }
        let text = CString::new(text).map_err(|_| Error::Refused("it has a NUL".to_owned()))?;
        let decoded = self.context()?.decode(&text, PAYLOAD_BYTES_MAX);
        let decoded = decoded.map_err(|failed| self.error(failed))?;
        Ok(Vouched {
            payload: decoded.payload,
            uid: decoded.uid,
            gid: decoded.gid,
            made_at: u64::try_from(decoded.made_at).unwrap_or_default(),
            lasts: u32::try_from(decoded.lasts).unwrap_or_default(),
        })
    }
}
