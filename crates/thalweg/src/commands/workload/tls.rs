//! TLS of a client that is none of Thalweg's own protocol: whom it trusts, and why it does not.

use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;
use rustls::{CertificateError, ClientConfig, Error, RootCertStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The variable that names a file of authorities, where a URL does not.
const VARIABLE: &str = "THALWEG_TLS_CA";
/// The variable by which other programs find the authorities of the system.
const SYSTEM_VARIABLE: &str = "SSL_CERT_FILE";
/// Where systems have their authorities: Debian, Red Hat, SUSE, Alpine.
const SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The file of the authorities that are trusted: the one that is named, or that of the environment, or the system's.
pub fn authorities(named: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(path) = named {
        return Ok(path.to_owned());
    }
    let mut variables = [VARIABLE, SYSTEM_VARIABLE]
        .into_iter()
        .filter_map(std::env::var_os);
    if let Some(path) = variables.find(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    let mut known = SYSTEM.iter().map(PathBuf::from);
    known.find(|path| path.exists()).ok_or_else(|| {
        format!(
            "there is no file of authorities on this host ({}): name one, with cacertfile= in the URL or in {VARIABLE}",
            SYSTEM.join(", ")
        )
    })
}

/// TLS 1.3 that trusts the authorities in this file.
pub fn config(authorities: &Path) -> Result<Arc<ClientConfig>, String> {
    let name = authorities.display();
    let text = std::fs::read(authorities).map_err(|error| format!("{name}: {error}"))?;
    let mut roots = RootCertStore::empty();
    let certificates = net::certificates_in(&text).map_err(|error| format!("{name}: {error}"))?;
    // A bundle of a system may have one that is of no use, which is no reason to trust none.
    let certificates = certificates
        .iter()
        .map(|one| CertificateDer::from(one.to_vec()));
    let (usable, _) = roots.add_parsable_certificates(certificates);
    if usable == 0 {
        return Err(format!("{name}: there is no certificate of use in it"));
    }
    let builder = ClientConfig::builder_with_provider(net::crypto_provider());
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS: {error}"))?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    // A connection lasts, and a full handshake costs a millisecond.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Why a server of this name is not taken, in words of who has to set it right.
pub fn explain(error: &Error, name: &str, authorities: &Path) -> String {
    let authorities = authorities.display();
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            format!(
                "its certificate is of no authority in {authorities}; cacertfile= names another file"
            )
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => {
            format!("its certificate is not for {name}; server_name_indication= names another host")
        }
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "its certificate has expired".to_owned(),
        Error::InvalidCertificate(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "it shows the certificate of an authority (CA:TRUE), which is none of a server: let it show one that the \
             authority has signed, or a self-signed one with CA:FALSE"
                .to_owned()
        }
        Error::InvalidMessage(_) => {
            format!("what it says is no TLS: does it speak without? ({error})")
        }
        other => format!("TLS: {other}"),
    }
}
