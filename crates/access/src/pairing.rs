//! Pairing: proofs that both sides of a connection have a one-time code, bound to the server's certificate.
//!
//! A server proves in the handshake that it has the key of its certificate. The proofs are hashes by the code over that
//! certificate: who sits in between shows one of its own, so that the proofs of one side are none to the other.
//! They are over what is asked for and what is given besides, so that neither can be exchanged.

use crate::code::Code;
use crate::faults::{Fault, planted};
use ring::digest::{SHA256, digest};
use ring::hmac;

/// Bytes of a proof.
pub const PAIRING_PROOF_BYTES: usize = 32;

/// What is proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairing<'a> {
    /// Who joins has the code, and asks by this request for a certificate.
    Joins(&'a [u8]),
    /// Who offers has the code, and has given this certificate.
    Offers(&'a [u8]),
}

/// What a proof is over: `server` is the certificate that the server has shown, all in DER.
pub fn pairing_message(server: &[u8], what: Pairing<'_>) -> Vec<u8> {
    let (label, bytes) = match what {
        Pairing::Joins(request) => (&b"thalweg pairing joins\0"[..], request),
        Pairing::Offers(certificate) => (&b"thalweg pairing offers\0"[..], certificate),
    };
    let mut message = label.to_vec();
    if !planted(Fault::UnboundPairing) {
        message.extend_from_slice(digest(&SHA256, server).as_ref());
    }
    message.extend_from_slice(digest(&SHA256, bytes).as_ref());
    message
}

/// A proof of it by who has the code.
pub fn prove_pairing(code: &Code, server: &[u8], what: Pairing<'_>) -> [u8; PAIRING_PROOF_BYTES] {
    let tag = hmac::sign(&code.key(), &pairing_message(server, what));
    tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Whether it is one, in a time that says nothing of where it differs.
pub fn verify_pairing(code: &Code, server: &[u8], what: Pairing<'_>, proof: &[u8]) -> bool {
    hmac::verify(&code.key(), &pairing_message(server, what), proof).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::CODE_BYTES;
    use crate::faults;

    #[test]
    fn a_proof_is_of_one_code_one_server_one_side_and_one_thing() {
        let (code, other) = (Code::new([7; CODE_BYTES]), Code::new([8; CODE_BYTES]));
        let joins = Pairing::Joins(b"request");
        let proof = prove_pairing(&code, b"server", joins);
        assert!(verify_pairing(&code, b"server", joins, &proof));
        assert!(!verify_pairing(&other, b"server", joins, &proof));
        assert!(!verify_pairing(
            &code,
            b"server",
            Pairing::Joins(b"another"),
            &proof
        ));
        assert!(!verify_pairing(
            &code,
            b"server",
            Pairing::Offers(b"request"),
            &proof
        ));
        assert!(!verify_pairing(&code, b"server", joins, &proof[1..]));
        let in_between = |code| verify_pairing(code, b"in between", joins, &proof);
        assert!(!in_between(&code));
        let passes = faults::with(Fault::UnboundPairing, || {
            let proof = prove_pairing(&code, b"server", joins);
            verify_pairing(&code, b"in between", joins, &proof)
        });
        assert!(passes, "the fault is not planted");
    }
}
