//! Credentials of others, and what they are good for here: JWTs of issuers that a site trusts, credentials of MUNGE,
//! and tokens that a command of the site introspects.
//!
//! The way of such a credential is
//!
//! 1. whether it is of MUNGE, or a JWT of an issuer that is named here;
//! 2. what MUNGE's daemon says; or its signature, audience and times; or [`Introspection::ask`], by the site's command;
//! 3. all map what was said of its holder, its claims, to a project and limits: an [`access::Verified`].
//!
//! Nothing maps by default, and what does not map is refused. The page of the file is `docs/reference/issuers.md`.

#![forbid(unsafe_code)]

mod algorithm;
mod answers;
mod check;
mod faults;
mod file;
mod introspection;
mod json;
mod jwt;
mod key_file;
mod keys;
mod mapping;
mod munged;

pub use algorithm::Algorithm;
pub use check::{Asker, Refusal};
pub use file::{Introspected, Issuer, Issuers, LEEWAY_MAX, LIFE_MAX};
pub use introspection::{Claims, Failure, Introspection, TIMEOUT};
pub use jwt::JWT_BYTES_MAX;
pub use key_file::{KeysFound, KnownKeys, UNREAD_MAX, read};
pub use keys::{KEYS_BYTES_MAX, Keys};
pub use mapping::{Map, Maps};
pub use munged::{MUNGE_PREFIX, Munged};

#[cfg(test)]
mod tests;
