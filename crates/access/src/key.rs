//! Keys that sign tokens.

use crate::token::TokenError;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use std::fmt;
use std::str::FromStr;

/// Bytes of a seed, and of a public key.
pub const SEED_BYTES: usize = 32;
/// Bytes of a signature.
pub(crate) const SIGNATURE_BYTES: usize = 64;

/// What a private key is made of: 32 bytes of chance. Is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Seed(pub [u8; SEED_BYTES]);

impl Seed {
    pub(crate) fn key(&self) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&self.0).expect("any 32 bytes are a seed")
    }

    pub(crate) fn public(&self) -> PublicKey {
        let key = self.key();
        let bytes = key.public_key().as_ref().try_into();
        PublicKey(bytes.expect("a public key of Ed25519 has 32 bytes"))
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(secret)")
    }
}

/// The key by which a server, or who issues for it, makes tokens.
#[derive(Clone, Debug)]
pub struct IssuerKey(pub(crate) Seed);

impl IssuerKey {
    /// The key of a seed.
    pub fn new(seed: Seed) -> Self {
        Self(seed)
    }

    /// What verifies its tokens.
    pub fn public(&self) -> PublicKey {
        self.0.public()
    }
}

/// What verifies signatures.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; SEED_BYTES]);

impl PublicKey {
    pub(crate) fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, self.0);
        key.verify(message, signature).is_ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl FromStr for PublicKey {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let digits = text.trim();
        let refuse = || TokenError::Text("a public key is 64 hexadecimal digits");
        if digits.len() != 2 * SEED_BYTES || !digits.is_ascii() {
            return Err(refuse());
        }
        let mut key = [0; SEED_BYTES];
        for (byte, at) in key.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| refuse())?;
        }
        Ok(Self(key))
    }
}
