//! The file of a certificate: an address, a key, and the chain.

use crate::failure::{About, Failure};
use access::Certificate;
use bytes::Bytes;
use std::path::{Path, PathBuf};

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

/// See the module. It is of mode 0600, and there whole or not at all.
pub struct CredentialFile {
    path: PathBuf,
}

impl CredentialFile {
    /// One that is to be written, if there is none, or it may be replaced.
    pub fn new(path: &Path, replace: bool) -> Result<Self, Failure> {
        let subject = path.display().to_string();
        if !replace && path.symlink_metadata().is_ok() {
            let why = "it is there already: --replace writes over it, --output names another one";
            return Err(Failure::usage(subject, why));
        }
        // The code is used up once the server answers: whether there is a place for the answer is asked before.
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        tempfile::tempfile_in(parent).about(&subject)?;
        Ok(Self::at(path))
    }

    /// One that there is.
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    fn subject(&self) -> String {
        self.path.display().to_string()
    }

    /// What it holds.
    pub fn read(&self) -> Result<String, Failure> {
        let bytes = client::credential_file::read(&self.path);
        let bytes = bytes.map_err(|error| Failure::usage(self.subject(), error))?;
        let text = String::from_utf8(bytes.to_vec()).ok();
        let text = text.filter(|text| text.contains(CERTIFICATE));
        text.ok_or_else(|| {
            let why = "there is no certificate in it: `thalweg pair join` writes such a file";
            Failure::usage(self.subject(), why)
        })
    }

    /// Writes it, for its owner alone.
    pub fn write(&self, text: &str) -> Result<(), Failure> {
        client::credential_file::write(&self.path, text.as_bytes()).about(self.subject())
    }

    /// The certificate in its text.
    pub fn certificate(&self, text: &str) -> Result<Certificate, Failure> {
        let chain = net::certificates_in(text.as_bytes());
        let chain = chain.map_err(|error| Failure::usage(self.subject(), error))?;
        Certificate::read(&chain[0]).map_err(|error| Failure::usage(self.subject(), error))
    }

    /// The server that its text names.
    pub fn address(&self, text: &str) -> Result<String, Failure> {
        let line = client::url::first_line(text).filter(|line| line.starts_with("tls://"));
        line.map(str::to_owned).ok_or_else(|| {
            let why = "its first line names no server (tls://HOST:PORT?sha256=HEX)";
            Failure::usage(self.subject(), why)
        })
    }

    /// Its text with another chain.
    pub fn with_certificates(text: &str, chain: &[Bytes]) -> String {
        let kept = text.find(CERTIFICATE).map_or(text, |at| &text[..at]);
        format!("{kept}{}", net::certificates_pem(chain))
    }
}
