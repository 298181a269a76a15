//! Who may do what: tokens, grants, and the decision.
//!
//! Plain values: no files, no clock, no source of chance. Whoever calls brings the time, in
//! nanoseconds since 1970 UTC, and the seeds of new keys. The way of a request is
//!
//! 1. [`Token::from_text`]: the text of a file, or what a client presents, as a [`Token`] that
//!    nobody has looked through yet;
//! 2. [`Token::verify`] against a [`Trust`]: signatures, the last key, revocations;
//! 3. [`Verified::identity`]: an [`Identity`], with where it came from and which grants there are;
//! 4. [`decide`]: allowed, or denied and why.
//!
//! A client's certificate becomes an [`Identity`] by [`Certificate::read`] and [`Certificate::identity`], once
//! the side that has TLS has verified who signed it.
//!
//! The bytes of a token are the page `docs/format/token.md`.

#![forbid(unsafe_code)]

mod certificate;
mod code;
mod decide;
mod faults;
mod grant;
mod identity;
mod key;
mod limits;
mod name;
mod network;
mod pairing;
mod pattern;
mod quota;
mod stripe;
mod time;
mod token;
mod verb;

pub use certificate::{
    CERTIFICATE_EARLY, Certificate, CertificateError, Holder, PART_BYTES_MAX, check_part,
};
pub use code::{
    CODE_BYTES, CODE_LASTS, CODE_WRONG_MAX, Code, CodeError, OneTime, Rendezvous, Tried,
};
pub use decide::{Decision, Denied, Missing, decide};
pub use grant::{Grant, Grants, Realm, Who};
pub use identity::{Credential, Identity, Issued, Kind, Origin, Subject};
pub use key::{IssuerKey, PublicKey, SEED_BYTES, Seed};
pub use limits::{LIST_MAX, Limits, NOTE_BYTES_MAX};
pub use name::{Name, check_project};
pub use network::Network;
pub use pairing::{PAIRING_PROOF_BYTES, Pairing, pairing_message, prove_pairing, verify_pairing};
pub use pattern::{PATTERN_BYTES_MAX, Pattern};
pub use quota::{AtBound, Bound, Quota, Quotas, Rules};
pub use stripe::stripe_key;
pub use time::UnixTime;
pub use token::{
    BLOCKS_MAX, TEXT_PREFIX, TOKEN_BYTES_MAX, Token, TokenError, TokenId, Trust, Verified,
};
pub use verb::{Verb, Verbs};

#[cfg(test)]
mod tests;
