//! Clients that are known by a certificate, which they have shown in TLS.
//!
//! Their connection has proved that they have its key. Another certificate of the same key may so take
//! its place without a new handshake; one of another key needs a new connection.

use super::origin::origin;
use crate::certificates::{Certified, ClientCertificates};
use crate::ctx::Ctx;
use crate::faults::Fault;
use crate::refusal::{Refused, refuse};
use access::{Certificate, CertificateError, Trust, UnixTime};
use bytes::Bytes;
use net::{Authorities, Peer, Untrusted};
use std::time::Duration;
use wire::codec::Codec;
use wire::message::CertificateChain;
use wire::{ErrorCode, ErrorReply};

/// When to come again with another certificate, of a client whose own is over.
const RETRY_MS: u32 = 1000;
/// The longest chain that is looked at: a client's own and three of authorities. Of more there are too many orders, which are
/// all tried.
const CHAIN_MAX: usize = 4;
/// Bytes of one: each order reads them again.
const CHAIN_BYTES_MAX: usize = 16 << 10;

fn refused(why: String) -> Refused {
    refuse(ErrorCode::NotAuthenticated, why)
}

pub(super) fn settings(ctx: &Ctx) -> Result<&ClientCertificates, Refused> {
    ctx.options.certificates.as_ref().ok_or_else(|| {
        refused("this server takes no certificates: it listens at no tls:// address".to_owned())
    })
}

/// Who has shown these certificates.
pub(super) fn admit(
    chain: &[Bytes],
    trust: &Trust,
    peer: &Peer,
    ctx: &Ctx,
) -> Result<access::Identity, Refused> {
    let settings = settings(ctx)?;
    let Some(own) = chain.first() else {
        return Err(refused(
            "no certificate came with this connection: one is shown where a client connects to a \
             tls:// address with the file that `thalweg pair join` wrote"
                .to_owned(),
        ));
    };
    let certificate = read(own, settings)?;
    let identity = certificate.identity(origin(peer, ctx), ctx.rules.grants.clone());
    let verified = verify(&settings.authorities, chain, ctx);
    match verified {
        Ok(()) => {}
        Err(Untrusted::Stranger) if ctx.planted(Fault::ForeignCertificate) => {}
        // What time has to say is said below, in the words that all credentials have.
        Err(Untrusted::Expired | Untrusted::NotYet) => {}
        Err(why) => {
            let uri = certificate.holder().uri();
            return Err(refused(format!(
                "the certificate for {uri}: {why}. This server takes those that it has made itself \
                 (`thalweg pair`), and those of `tls_client_ca`"
            )));
        }
    }
    let now = UnixTime(ctx.now.unix_ns);
    let is_over = now >= certificate.expires() && !ctx.planted(Fault::ExpiredCertificate);
    if let Err(denied) = identity.check(now) {
        let why = denied.to_string();
        match (is_over, denied.missing.is_about_time()) {
            (true, _) => {
                let code = ErrorCode::CredentialExpired;
                return Err(ErrorReply::retryable(code, RETRY_MS, why));
            }
            (false, true) if ctx.planted(Fault::ExpiredCertificate) => {}
            (false, _) => return Err(refused(why)),
        }
    } else if let Err(why @ (Untrusted::Expired | Untrusted::NotYet)) = verified {
        // Not its own time, then, but that of an authority of its chain.
        return Err(refused(format!(
            "the certificate of an authority of {}: {why}",
            certificate.holder().uri()
        )));
    }
    match trust.revoked_of(certificate.ids()) {
        Some(id) => Err(refused(CertificateError::Revoked(id).to_string())),
        None => Ok(identity),
    }
}

fn read(own: &Bytes, settings: &ClientCertificates) -> Result<Certificate, Refused> {
    let certificate = Certificate::read(own);
    let certificate = certificate.map_err(|error| refused(error.to_string()))?;
    let at_site = certificate.check_site(&settings.site);
    at_site.map_err(|error| refused(error.to_string()))?;
    Ok(certificate)
}

fn verify(authorities: &Authorities, chain: &[Bytes], ctx: &Ctx) -> Result<(), Untrusted> {
    let now = Duration::from_nanos(ctx.now.unix_ns);
    let bytes: usize = chain.iter().map(Bytes::len).sum();
    if chain.len() > CHAIN_MAX || bytes > CHAIN_BYTES_MAX {
        return Err(Untrusted::Wrong(format!(
            "it comes with more than {} of authorities, or has more than {CHAIN_BYTES_MAX} bytes with them",
            CHAIN_MAX - 1
        )));
    }
    authorities.verify(chain, now)
}

/// Who presents other certificates, as a [`CertificateChain`], on a connection that was opened by some: they are of the
/// same key, so that the handshake has proved that it is theirs.
pub(super) fn present(
    proof: &[u8],
    trust: &Trust,
    peer: &Peer,
    ctx: &Ctx,
) -> Result<access::Identity, Refused> {
    let chain = CertificateChain::from_bytes("certificates", proof);
    let chain = chain
        .map_err(|error| refused(error.to_string()))?
        .certificates;
    let settings = settings(ctx)?;
    let key = |chain: &[Bytes]| -> Result<Option<Vec<u8>>, Refused> {
        let own = chain.first().map(|own| read(own, settings)).transpose()?;
        Ok(own.map(|own| own.public_key().to_vec()))
    };
    if key(&chain)? != key(&peer.certificates)? && !ctx.planted(Fault::OtherKey) {
        return Err(refused(
            "the certificate is of another key than the one that this connection has proved to \
             have: connect anew with it"
                .to_owned(),
        ));
    }
    admit(&chain, trust, peer, ctx)
}

/// Makes a certificate for the key of a connection, for as long again as the one that it was opened with. Returns the
/// chain, and who shows it.
pub(super) fn renew(
    trust: &Trust,
    peer: &Peer,
    ctx: &Ctx,
) -> Result<(Vec<Bytes>, access::Identity), Refused> {
    let settings = settings(ctx)?;
    let own = peer.certificates.first();
    let own = own.ok_or_else(|| refused("this connection has shown no certificate".to_owned()))?;
    let certificate = read(own, settings)?;
    // Another authority may have given it for less than this one would; that of the first is not asked
    // again, for a connection outlives it.
    let signed = settings
        .own
        .verify(&peer.certificates, time_within(&certificate));
    if signed.is_err() {
        return Err(refused(format!(
            "an authority of the site has signed the certificate for {}, and not this server: what \
             is renewed there and put into its file is taken up",
            certificate.holder().uri()
        )));
    }
    let now = UnixTime(ctx.now.unix_ns);
    let chain = settings.certifier.certify(
        Certified::Key(certificate.public_key()),
        certificate.holder(),
        now,
        certificate.life(),
    );
    let chain = chain.map_err(|why| refused(format!("making another certificate: {why}")))?;
    let identity = admit(&chain, trust, peer, ctx)?;
    Ok((chain, identity))
}

/// A time at which a certificate is good.
fn time_within(certificate: &Certificate) -> Duration {
    let last = Duration::from_nanos(certificate.expires().0);
    last.saturating_sub(Duration::from_secs(2))
}
