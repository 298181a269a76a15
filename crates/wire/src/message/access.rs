//! Who a client is, after its Hello, and what it may do. What is decided, and by which rule, is
//! `access`'s.

use crate::codec::record;
use bytes::Bytes;
use std::time::Duration;

/// The mechanism of a Hello, or of an [`Authenticate`], whose proof is the text of a token.
pub const ACCESS_TOKEN: &str = "access-token";

/// The mechanism of a Hello, or of an [`Authenticate`], whose proof is what another issuer has made: a JWT, or a
/// token that the server's site knows.
pub const ISSUED: &str = "issued";
/// For so long a server may look at a proof of [`ISSUED`] before it answers.
pub const ISSUED_TIMEOUT: Duration = Duration::from_secs(8);
/// The mechanism of a Hello without a proof, by the certificate that the connection has shown in TLS; of an
/// [`Authenticate`] whose proof is a [`CertificateChain`] of the same key.
pub const CERTIFICATE: &str = "certificate";

/// The mechanism of an [`Authenticate`] without a proof: the server makes another certificate for the key
/// that the connection has shown, which is the connection's from then on, and answers with it.
pub const RENEW_CERTIFICATE: &str = "renew-certificate";

/// The mechanism of a Hello whose proof is a [`Pair`]. It is answered by a reply with a [`Paired`], and the
/// connection ends.
pub const PAIRING: &str = "pairing";

record! {
    /// Asks for a code that buys one client a certificate.
    pub struct OfferPairing {
        /// The project whose member the holder is.
        pub project: String,
        /// The name of the holder in it.
        pub name: String,
        /// How long the certificate is good each time, milliseconds.
        pub life_ms: u64,
    }
}

record! {
    /// The answer to [`OfferPairing`].
    pub struct PairingOffered {
        /// The code, which is a secret.
        pub code: String,
        /// The URI that the certificate will have.
        pub holder: String,
        /// How long the code is good, milliseconds.
        pub lasts_ms: u64,
    }
}

record! {
    /// Who comes with a code.
    pub struct Pair {
        /// A hash by the code over the server's certificate and the request.
        pub proof: Bytes,
        /// A request to sign a certificate, of PKCS #10, in DER.
        pub request: Bytes,
    }
}

record! {
    /// What they get.
    pub struct Paired {
        /// A hash by the code over the server's certificate and the one that is given.
        pub proof: Bytes,
        /// The URI in it.
        pub holder: String,
        /// How long it is good each time, milliseconds.
        pub life_ms: u64,
        /// The chain, as in [`CertificateChain`].
        pub certificates: Vec<Bytes>,
    }
}

record! {
    /// The certificates that somebody shows.
    pub struct CertificateChain {
        /// In DER: their own, then those of who signed it.
        pub certificates: Vec<Bytes>,
    }
}

record! {
    /// A client presents another credential in place of the one that it came with.
    pub struct Authenticate {
        /// As in Hello: [`ACCESS_TOKEN`], [`CERTIFICATE`], [`ISSUED`], or [`RENEW_CERTIFICATE`]. Others are
        /// reserved.
        pub mechanism: String,
        /// The text of a token, or of what others have issued, a [`CertificateChain`], or nothing.
        pub proof: Bytes,
    }
}

record! {
    /// How long the credential of a connection is good.
    pub struct Authenticated {
        /// For so long, milliseconds; 0: it has expired; the greatest number: it has no end.
        pub expires_in_ms: u64,
        /// When it is time for another one, milliseconds; the greatest number: never.
        pub renew_in_ms: u64,
        /// Why the credential that was presented last does not count, so that the one before
        /// still does; empty if that is not so.
        pub refused: String,
        /// A sentence for people; may be empty.
        pub message: String,
        /// The certificates that were asked for, as in [`CertificateChain`]; else none.
        pub issued: Vec<Bytes>,
    }
}

record! {
    /// Asks whether the asker might do something, without doing it.
    pub struct CheckAccess {
        /// `read`, `write`, `manage` or `admin`.
        pub verb: String,
        /// A topic of the connection's namespace, or `NAMESPACE/TOPIC`; empty is the server.
        pub topic: String,
    }
}

record! {
    /// The answer to [`CheckAccess`].
    pub struct AccessChecked {
        pub allowed: bool,
        /// Who the asker is taken for, and, if it is not allowed, what was missing and what would
        /// help.
        pub reason: String,
    }
}
