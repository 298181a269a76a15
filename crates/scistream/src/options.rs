//! What can be chosen.

use crate::place::Allowed;
use access::Trust;
use relay::RelayError;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

/// Says whose tokens are taken at the moment.
pub type TrustNow = Arc<dyn Fn() -> Arc<Trust> + Send + Sync>;

/// The project that the holder of a token of the site is of, if it is one.
pub type SiteHolder = Pin<Box<dyn Future<Output = Option<String>> + Send>>;

/// Says who holds a token of the site.
pub type SiteTokens = Arc<dyn Fn(String) -> SiteHolder + Send + Sync>;

/// Where a line for the operator goes.
pub type Line = Arc<dyn Fn(&str) + Send + Sync>;

/// Where tunnels of inbound sessions come in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inbound {
    /// Where to listen for the other site.
    pub listen: String,
    /// The name or address by which it reaches that.
    pub host: String,
    /// The port by which it does, if that is another one than is listened at.
    pub port: Option<u16>,
}

/// What the four calls are served with.
#[derive(Clone)]
pub struct Options {
    /// Where calls are taken.
    pub listen: SocketAddr,
    /// A certificate and its key, PEM; without them calls come without TLS, on this host alone.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Whose tokens are taken; without this and `site` none is asked for, on this host alone.
    pub trust: Option<TrustNow>,
    /// Who says what tokens of the site are, as SciStream's clients have them.
    pub site: Option<SiteTokens>,
    /// Where tunnels come in; without it there are no inbound sessions.
    pub inbound: Option<Inbound>,
    /// The address of listeners of outbound sessions.
    pub listener_ip: IpAddr,
    /// Their ports; 0 is whichever are free.
    pub ports: RangeInclusive<u16>,
    /// Where connections may go.
    pub allowed: Vec<Allowed>,
    /// The most that passes in a session each way, bytes a second.
    pub rate: Option<u64>,
    /// Whether an outbound session may lead to what is no relay, over TCP without encryption.
    pub plain: bool,
    /// Where lines for the operator go.
    pub report: Line,
}

impl Options {
    /// Checks what each option alone cannot say.
    ///
    /// # Errors
    /// Names the option.
    pub fn check(&self) -> Result<(), ScistreamError> {
        let refuse = |why: &str| Err(ScistreamError::Usage(why.to_owned()));
        if !self.listen.ip().is_loopback() {
            let at = self.listen;
            if self.certificate.is_none() {
                let why =
                    "is reached from other hosts: calls there need TLS (--tls-cert, --tls-key)";
                return refuse(&format!("--listen {at} {why}"));
            }
            if self.trust.is_none() && self.site.is_none() {
                let why = "is reached from other hosts: who calls there needs a token (--tokens, --introspect)";
                return refuse(&format!("--listen {at} {why}"));
            }
        }
        if self.ports.is_empty() || (*self.ports.start() == 0 && *self.ports.end() != 0) {
            return refuse("--ports is FIRST-LAST, or 0 for whichever are free");
        }
        if self.allowed.is_empty() {
            return refuse(
                "there is no place that connections may go to: name one, as --allow 10.1.1.100:5672",
            );
        }
        Ok(())
    }
}

/// Why it does not begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScistreamError {
    /// What was asked for cannot be right.
    Usage(String),
    /// The operating system refuses.
    System(String),
}

impl fmt::Display for ScistreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(why) | Self::System(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for ScistreamError {}

impl From<RelayError> for ScistreamError {
    fn from(error: RelayError) -> Self {
        match error {
            RelayError::Usage(why) => Self::Usage(why),
            other => Self::System(other.to_string()),
        }
    }
}
