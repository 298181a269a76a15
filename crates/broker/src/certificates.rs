//! By which certificates clients are let in, and who makes them.

use access::{Code, Holder, UnixTime};
use bytes::Bytes;
use net::{Authorities, Identities};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// By which certificates clients are let in.
#[derive(Debug, Clone)]
pub struct ClientCertificates {
    /// Whose certificates count.
    pub authorities: Authorities,
    /// The one that the server itself signs by, which is among them.
    pub own: Authorities,
    /// The site that certificates are to be for.
    pub site: String,
    /// What the server itself shows.
    pub shown: Identities,
    /// What makes them.
    pub certifier: Arc<dyn Certifier>,
}

/// What a certificate is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certified<'a> {
    /// A request to sign one, of PKCS #10, in DER: it proves that who asks has the key.
    Request(&'a [u8]),
    /// A public key of which that is known, in DER.
    Key(&'a [u8]),
}

/// Makes certificates by the server's own authority. Takes a fraction of a millisecond.
pub trait Certifier: fmt::Debug + Send + Sync {
    /// A certificate for clients, for this holder and from this time on; the chain in DER, its own first,
    /// the authority's last. What else a request asks for is left out.
    ///
    /// # Errors
    /// Says what is wrong with what was given.
    fn certify(
        &self,
        what: Certified<'_>,
        holder: &Holder,
        now: UnixTime,
        life: Duration,
    ) -> Result<Vec<Bytes>, String>;

    /// A new one-time code.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    fn new_code(&self) -> Result<Code, String>;
}
