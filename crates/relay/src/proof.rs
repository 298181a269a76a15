//! Proofs: hashes over a secret and the very connection that they pass on.

use crate::faults::{Fault, planted};
use ring::hmac;
use std::fmt;

/// Bytes of a proof.
pub const PROOF_BYTES: usize = 32;
/// The label of the value that a connection gives to both of its ends (RFC 9266's use of RFC 8446, 7.5).
pub const EXPORTER: &[u8] = b"EXPORTER-thalweg-relay-1";

/// What TLS gives to both ends of one connection and to nobody else. Whoever ends TLS in between has two
/// connections, and two such values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Binding(pub [u8; 32]);

/// Who proves, and what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Who joins has the code.
    Joins,
    /// Who offers has the code.
    Offers,
    /// Who joined comes again, with the secret of the session.
    Returns,
    /// Who offered has that secret.
    Receives,
}

impl Claim {
    fn label(self) -> &'static [u8] {
        match self {
            Self::Joins => b"joins",
            Self::Offers => b"offers",
            Self::Returns => b"returns",
            Self::Receives => b"receives",
        }
    }
}

/// A proof of `claim` on the connection that `binding` is of.
pub(crate) fn prove(key: &hmac::Key, claim: Claim, binding: &Binding) -> [u8; PROOF_BYTES] {
    let tag = hmac::sign(key, &message(claim, binding));
    tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Whether it is one, in a time that says nothing of where it differs.
pub(crate) fn verify(key: &hmac::Key, claim: Claim, binding: &Binding, proof: &[u8]) -> bool {
    hmac::verify(key, &message(claim, binding), proof).is_ok()
}

pub(crate) fn message(claim: Claim, binding: &Binding) -> Vec<u8> {
    let mut message = claim.label().to_vec();
    message.push(0);
    if !planted(Fault::UnboundProof) {
        message.extend_from_slice(&binding.0);
    }
    message
}

/// The secret that a code buys: the session's name, and the key of proofs of who is in it.
#[derive(Clone)]
pub struct Credential {
    /// Which session.
    pub session: [u8; 16],
    secret: [u8; 32],
}

impl Credential {
    /// Of random bytes, or of what was received.
    pub fn new(session: [u8; 16], secret: [u8; 32]) -> Self {
        Self { session, secret }
    }

    /// The secret, to be sent once, to who proved the code.
    pub(crate) fn secret(&self) -> [u8; 32] {
        self.secret
    }

    pub(crate) fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.secret)
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults;

    #[test]
    fn a_proof_is_of_one_claim_on_one_connection_with_one_secret() {
        let key = |byte| Credential::new([0; 16], [byte; 32]).key();
        let (here, there) = (Binding([1; 32]), Binding([2; 32]));
        let proof = prove(&key(7), Claim::Joins, &here);
        assert!(verify(&key(7), Claim::Joins, &here, &proof));
        assert!(!verify(&key(8), Claim::Joins, &here, &proof));
        assert!(!verify(&key(7), Claim::Offers, &here, &proof));
        assert!(!verify(&key(7), Claim::Joins, &here, &proof[..31]));
        assert!(!verify(&key(7), Claim::Joins, &there, &proof));
        let passes = faults::with(Fault::UnboundProof, || {
            let proof = prove(&key(7), Claim::Joins, &here);
            verify(&key(7), Claim::Joins, &there, &proof)
        });
        assert!(passes, "the fault is not planted");
        assert_eq!(
            format!("{:?}", Credential::new([1; 16], [2; 32])),
            "Credential(..)"
        );
    }

    #[test]
    fn a_rendezvous_is_no_proof() {
        let code = access::Code::new([7; access::CODE_BYTES]);
        let shown = code.rendezvous().to_string();
        for claim in [Claim::Joins, Claim::Offers] {
            let proof = prove(&code.key(), claim, &Binding([0; 32]));
            let begins: String = proof[..16]
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            assert_ne!(begins, shown);
        }
    }
}
