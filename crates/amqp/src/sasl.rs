//! How a client says who it is: PLAIN, AMQPLAIN, EXTERNAL.

use crate::error::{Failure, ReplyCode};
use crate::table::{Table, Value};
use bytes::Bytes;
use std::fmt;

/// A mechanism that a server can offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// `\0user\0password`.
    Plain,
    /// A table of LOGIN and PASSWORD.
    Amqplain,
    /// What the owner knows already: the certificate of TLS.
    External,
}

impl Mechanism {
    /// Its name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::Amqplain => "AMQPLAIN",
            Self::External => "EXTERNAL",
        }
    }

    /// Reads a response.
    pub(crate) fn credentials(self, response: Bytes) -> Result<Credentials, Failure> {
        let read = match self {
            Self::Plain => plain(&response),
            Self::Amqplain => amqplain(response),
            Self::External => Some(Credentials::External { identity: response }),
        };
        read.ok_or_else(|| {
            let text = format!("the response is none of mechanism {}", self.name());
            Failure::new(ReplyCode::SyntaxError, text)
        })
    }
}

/// What a client presents. The password may be a token; it is not in `Debug`.
#[derive(Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say it")]
pub enum Credentials {
    /// By PLAIN or AMQPLAIN.
    Password {
        mechanism: Mechanism,
        user: Bytes,
        password: Bytes,
    },
    /// By EXTERNAL: whom the client says to be, empty as a rule.
    External { identity: Bytes },
}

impl Credentials {
    /// The mechanism that they came by.
    pub const fn mechanism(&self) -> Mechanism {
        match self {
            Self::Password { mechanism, .. } => *mechanism,
            Self::External { .. } => Mechanism::External,
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password {
                mechanism, user, ..
            } => f
                .debug_struct("Password")
                .field("mechanism", mechanism)
                .field("user", user)
                .finish_non_exhaustive(),
            Self::External { identity } => f
                .debug_struct("External")
                .field("identity", identity)
                .finish(),
        }
    }
}

/// RFC 4616: `[authzid] NUL authcid NUL passwd`. An authzid is not looked at.
fn plain(response: &Bytes) -> Option<Credentials> {
    let mut nulls = (0..response.len()).filter(|&at| response[at] == 0);
    let (first, second) = (nulls.next()?, nulls.next()?);
    if nulls.next().is_some() {
        return None;
    }
    Some(Credentials::Password {
        mechanism: Mechanism::Plain,
        user: response.slice(first + 1..second),
        password: response.slice(second + 1..),
    })
}

fn amqplain(response: Bytes) -> Option<Credentials> {
    let table = Table::decode(response).ok()?;
    match (table.get("LOGIN")?, table.get("PASSWORD")?) {
        (Value::String(user), Value::String(password)) => Some(Credentials::Password {
            mechanism: Mechanism::Amqplain,
            user,
            password,
        }),
        _ => None,
    }
}
