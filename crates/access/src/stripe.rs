//! The secret of a session, by which further connections of its client join it.

use ring::hmac;

const ABOUT: &[u8] = b"thalweg stripe 1";

/// The secret of what `of` names, once and for all: without the server's token nobody can make it.
pub fn stripe_key(token: &[u8; 32], of: &[u128]) -> [u8; 32] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, token);
    let mut message = ABOUT.to_vec();
    for number in of {
        message.extend_from_slice(&number.to_le_bytes());
    }
    let tag = hmac::sign(&key, &message);
    tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
}
