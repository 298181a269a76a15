//! Certificates of clients: whom one that an authority has signed is for.
//!
//! A certificate names its holder by a URI among its subject alternative names,
//! `thalweg://SITE/PROJECT/NAME`. Who signed it is verified by the side that has TLS; here is read what it says,
//! by `x509-parser`, and nothing counts that is not of exactly that form.

use crate::faults::{Fault, planted};
use crate::grant::Grants;
use crate::identity::{Credential, Identity, Kind, Origin, Subject};
use crate::limits::Limits;
use crate::time::UnixTime;
use crate::token::TokenId;
use ring::digest::{SHA256, digest};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// What the URI begins with.
const SCHEME: &str = "thalweg://";
/// The longest site, project or name in one.
pub const PART_BYTES_MAX: usize = 64;
/// A certificate is good for so long before it was made, for a clock may be behind the server's.
pub const CERTIFICATE_EARLY: Duration = Duration::from_secs(300);

/// To whom a certificate is given, of which project, at which site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    site: String,
    project: String,
    name: String,
}

/// Whether a site, a project or a name may be part of a certificate: letters, digits, `.`, `_` and `-`, so
/// that it is written in one way only.
///
/// # Errors
/// Says what it may be.
pub fn check_part(what: &str, text: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_right = (1..=PART_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain);
    match is_right && !text.starts_with('.') {
        true => Ok(()),
        false => Err(format!(
            "{text:?} is no {what} of a certificate: one is 1 to {PART_BYTES_MAX} letters, digits, \
             '.', '_' and '-', and does not begin with '.'"
        )),
    }
}

impl Holder {
    /// That of these parts.
    ///
    /// # Errors
    /// Names the part that is none.
    pub fn new(site: &str, project: &str, name: &str) -> Result<Self, String> {
        check_part("site", site)?;
        check_part("project", project)?;
        check_part("name", name)?;
        Ok(Self {
            site: site.to_owned(),
            project: project.to_owned(),
            name: name.to_owned(),
        })
    }

    fn of_uri(uri: &str) -> Option<Self> {
        let mut parts = uri.strip_prefix(SCHEME)?.split('/');
        let holder = Self::new(parts.next()?, parts.next()?, parts.next()?).ok()?;
        parts.next().is_none().then_some(holder)
    }

    /// The URI in a certificate.
    pub fn uri(&self) -> String {
        format!("{SCHEME}{}/{}/{}", self.site, self.project, self.name)
    }

    /// The project.
    pub fn project(&self) -> &str {
        &self.project
    }

    /// The name in it.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Why a certificate is none of a client of this site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateError {
    /// The bytes are none.
    Bytes(String),
    /// It has so many URIs, and not one.
    Uris(usize),
    /// Its URI is not of the form.
    Form(String),
    /// It is for another site.
    Site {
        /// That one.
        has: String,
        /// This one.
        own: String,
    },
    /// It, or the key that it is for, was revoked.
    Revoked(TokenId),
}

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(why) => write!(f, "the certificate cannot be read: {why}"),
            Self::Uris(count) => write!(
                f,
                "the certificate has {count} URIs among its alternative names; one of a client has \
                 one, {SCHEME}SITE/PROJECT/NAME"
            ),
            Self::Form(uri) => write!(
                f,
                "the certificate is for {uri:?}, which is not of the form {SCHEME}SITE/PROJECT/NAME"
            ),
            Self::Site { has, own } => write!(
                f,
                "the certificate is for site {has}, and this is {own}: it is for another server"
            ),
            Self::Revoked(id) => write!(f, "the certificate was revoked, or its key: {id}"),
        }
    }
}

impl std::error::Error for CertificateError {}

/// What a certificate says. Nobody has verified by that who signed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    holder: Holder,
    ids: Vec<TokenId>,
    not_before: UnixTime,
    expires: UnixTime,
    public_key: Vec<u8>,
}

impl Certificate {
    /// The one of these bytes, in DER. Takes any bytes.
    ///
    /// # Errors
    /// If they are no certificate, or not of one client.
    pub fn read(der: &[u8]) -> Result<Self, CertificateError> {
        let refuse = |why: &str| CertificateError::Bytes(why.to_owned());
        let (rest, read) = X509Certificate::from_der(der)
            .map_err(|error| CertificateError::Bytes(error.to_string()))?;
        if !rest.is_empty() {
            return Err(refuse("there are bytes behind its end"));
        }
        let names = read
            .subject_alternative_name()
            .map_err(|error| CertificateError::Bytes(error.to_string()))?;
        let names = names.iter().flat_map(|names| &names.value.general_names);
        let mut uris = names.filter_map(|name| match name {
            GeneralName::URI(uri) => Some(*uri),
            _ => None,
        });
        let (Some(uri), None) = (uris.next(), uris.next()) else {
            let names = read.subject_alternative_name().ok().flatten();
            let names = names.iter().flat_map(|names| &names.value.general_names);
            let uris = names.filter(|name| matches!(name, GeneralName::URI(_)));
            return Err(CertificateError::Uris(uris.count()));
        };
        let holder = Holder::of_uri(uri);
        let holder = holder.ok_or_else(|| CertificateError::Form(uri.to_owned()))?;
        let time = |seconds: i64| {
            let seconds = u64::try_from(seconds).ok()?;
            seconds.checked_mul(1_000_000_000).map(UnixTime)
        };
        let validity = read.validity();
        let (not_before, expires) = (
            time(validity.not_before.timestamp()),
            // It is good in the second that it names as its last.
            time(validity.not_after.timestamp().saturating_add(1)),
        );
        let (Some(not_before), Some(expires)) = (not_before, expires) else {
            return Err(refuse("its times are none that there are"));
        };
        let public_key = read.public_key().raw;
        Ok(Self {
            holder,
            ids: vec![id_of(public_key), id_of(der)],
            not_before,
            expires,
            public_key: public_key.to_vec(),
        })
    }

    /// Whether it is for this site.
    ///
    /// # Errors
    /// For which one it is.
    pub fn check_site(&self, own: &str) -> Result<(), CertificateError> {
        if self.holder.site == own || planted(Fault::OtherSite) {
            return Ok(());
        }
        Err(CertificateError::Site {
            has: self.holder.site.clone(),
            own: own.to_owned(),
        })
    }

    /// To whom it is given.
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// The id of its key, which all certificates of the same key have, and its own: what is revoked.
    pub fn ids(&self) -> &[TokenId] {
        &self.ids
    }

    /// The key that it is for, as in the certificate.
    pub fn public_key(&self) -> &[u8] {
        &self.public_key
    }

    /// When it is over.
    pub fn expires(&self) -> UnixTime {
        self.expires
    }

    /// For how long it was made.
    pub fn life(&self) -> Duration {
        let whole = self.expires.0.saturating_sub(self.not_before.0);
        Duration::from_nanos(whole).saturating_sub(CERTIFICATE_EARLY)
    }

    /// Who shows it, there, where these grants are. The caller has verified who signed it.
    pub fn identity(&self, origin: Origin, grants: Arc<Grants>) -> Identity {
        let limits = Limits {
            project: Some(self.holder.project.clone()),
            not_before: Some(self.not_before),
            expires: Some(self.expires),
            ..Limits::default()
        };
        let kind = Kind::Certificate(self.holder.name.clone());
        Identity {
            subject: Subject::Member(self.holder.project.clone()),
            credential: Some(Credential::of_kind(kind, self.ids.clone(), vec![limits])),
            origin,
            grants,
        }
    }
}

/// What names a key or a certificate: half of its SHA-256.
fn id_of(bytes: &[u8]) -> TokenId {
    let hash = digest(&SHA256, bytes);
    let half = hash.as_ref()[..16].try_into();
    TokenId(u128::from_be_bytes(half.expect("16 bytes are taken")))
}

#[cfg(test)]
mod tests;
