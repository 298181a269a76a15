//! TLS 1.3 of a tunnel's connections, and what it gives to both ends.

use crate::error::RelayError;
use crate::proof::{Binding, EXPORTER};
use access::Rendezvous;
use net::crypto_provider as provider;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::{
    ClientConfig, ClientConnection, ConnectionCommon, DigitallySignedStruct, RootCertStore,
    ServerConfig, SignatureScheme,
};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The name of the protocol in the handshake.
pub(crate) const ALPN: &[u8] = b"thalweg-relay/1";

/// What an offer needs: with the certificate of these PEM files, or one that is made for `name`.
pub(crate) fn offering(
    files: Option<(&Path, &Path)>,
    name: &str,
) -> Result<Arc<ServerConfig>, RelayError> {
    let (chain, key) = match files {
        Some((chain, key)) => (read_chain(chain)?, read_key(key)?),
        None => made(name)?,
    };
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| RelayError::Usage(format!("certificate and key: {error}")))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}

/// TLS for another listener of the same process, with the certificate of these PEM files, for these protocols.
///
/// # Errors
/// [`RelayError::Usage`], which names the file.
pub fn serving(
    (chain, key): (&Path, &Path),
    protocols: &[&[u8]],
) -> Result<Arc<ServerConfig>, RelayError> {
    let (chain, key) = (read_chain(chain)?, read_key(key)?);
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| RelayError::Usage(format!("certificate and key: {error}")))?;
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(Arc::new(config))
}

type Made = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn made(name: &str) -> Result<Made, RelayError> {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()])
        .map_err(|error| RelayError::Usage(format!("{name:?}: {error}")))?;
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    Ok((vec![made.cert.der().clone()], key))
}

fn read(path: &Path) -> Result<Vec<u8>, RelayError> {
    std::fs::read(path).map_err(|error| RelayError::Usage(format!("{}: {error}", path.display())))
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, RelayError> {
    let refuse =
        |why: &dyn std::fmt::Display| RelayError::Usage(format!("{}: {why}", path.display()));
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&read(path)?)
        .collect::<Result<_, _>>()
        .map_err(|error| refuse(&error))?;
    match chain.is_empty() {
        true => Err(refuse(&"there is no certificate in it")),
        false => Ok(chain),
    }
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, RelayError> {
    PrivateKeyDer::from_pem_slice(&read(path)?)
        .map_err(|error| RelayError::Usage(format!("{}: {error}", path.display())))
}

/// What who joins needs. The certificate is verified by the code: both sides prove that they have it on this very
/// connection. With a file of authorities it is verified by those besides. At a meeting place the rendezvous says who is
/// meant; to a relay it says nothing.
pub(crate) fn joining(
    authorities: Option<&Path>,
    rendezvous: Rendezvous,
) -> Result<Arc<ClientConfig>, RelayError> {
    let verifier: Arc<dyn ServerCertVerifier> = match authorities {
        None => Arc::new(ByCode),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in read_chain(path)? {
                roots
                    .add(certificate)
                    .map_err(|error| RelayError::Usage(format!("{}: {error}", path.display())))?;
            }
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
                .build()
                .map_err(|error| RelayError::Usage(format!("{}: {error}", path.display())))?
        }
    };
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| RelayError::Usage(format!("TLS: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    let joins = format!("thalweg-relay-joins/{rendezvous}");
    config.alpn_protocols = vec![ALPN.to_vec(), joins.into_bytes()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// What an offer says to a meeting place: the first bytes of a client of TLS, which it becomes none of.
pub(crate) fn waiting(name: ServerName<'static>, rendezvous: Rendezvous) -> io::Result<Vec<u8>> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = vec![format!("thalweg-relay-offers/{rendezvous}").into_bytes()];
    let mut client = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes)?;
    Ok(bytes)
}

/// What this connection alone has, at both of its ends.
pub(crate) fn binding<Data>(connection: &ConnectionCommon<Data>) -> Result<Binding, RelayError> {
    if connection.alpn_protocol() != Some(ALPN) {
        return Err(RelayError::Protocol(
            "it is no relay that answers there".to_owned(),
        ));
    }
    let value = connection.export_keying_material([0; 32], EXPORTER, None);
    let value = value.map_err(|error| RelayError::Protocol(format!("TLS: {error}")))?;
    Ok(Binding(value))
}

/// Takes every certificate whose key signs the handshake: who has it proves itself by the code.
#[derive(Debug)]
struct ByCode;

impl ServerCertVerifier for ByCode {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
