//! Who asks, and whether they may.

use super::answers::{Answer, refusal};
use super::{Interface, Request};
use crate::faults::{Fault, planted};
use crate::introspection;
use crate::names::{InstanceName, quoted};
use access::{
    Decision, Grants, Identity, Name, Origin, TEXT_PREFIX, Token, TokenId, UnixTime, Verb,
};
use std::fmt;
use std::sync::Arc;

/// The longest token of a site.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// Who asks, as was proved.
#[derive(Debug)]
pub struct Holder {
    project: String,
    identity: Identity,
    site: Option<introspection::Holder>,
}

impl Holder {
    /// The project that they are of.
    pub fn project(&self) -> &str {
        &self.project
    }

    /// What they are called.
    pub fn username(&self) -> String {
        match &self.site {
            Some(holder) => holder.username.clone(),
            None => format!("{}_auser", self.project),
        }
    }

    /// When their token is over.
    pub fn expires(&self) -> Option<String> {
        match &self.site {
            Some(holder) => holder.expires.clone(),
            None => self.identity.expires().map(|time| time.to_string()),
        }
    }

    /// When their token begins, if it does not at once.
    pub fn begins(&self) -> Option<String> {
        let credential = self.identity.credential.as_ref()?;
        let begins = credential
            .limits()
            .iter()
            .filter_map(|limits| limits.not_before)
            .max();
        begins.map(|time| time.to_string())
    }

    /// The id of their token, if it is one of ours.
    pub fn token(&self) -> Option<TokenId> {
        self.identity
            .credential
            .as_ref()
            .map(|credential| credential.id())
    }
}

impl fmt::Display for Holder {
    /// Without a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.site {
            Some(holder) => write!(
                f,
                "{} of project {}",
                quoted(&holder.username),
                self.project
            ),
            None => write!(f, "{}", self.identity),
        }
    }
}

impl Interface {
    /// Who asks.
    pub(super) async fn holder(&self, request: &Request<'_>) -> Result<Holder, Answer> {
        let token = request.authorization.map(str::trim).unwrap_or_default();
        // S3M's header is the token itself; other clients say what it is.
        let token = token.strip_prefix("Bearer ").map_or(token, str::trim);
        if token.is_empty() {
            return Err(refusal(
                401,
                "the header Authorization is to have a token".to_owned(),
            ));
        }
        if planted(Fault::SecretInLog) {
            self.report.line(format!("a request with {token}"));
        }
        let origin = Origin {
            address: Some(request.peer),
            ..Origin::default()
        };
        let grants = Arc::new(Grants::default());
        if token.starts_with(TEXT_PREFIX) {
            let verified =
                Token::from_text(token).and_then(|token| token.verify(&self.keys.trust()));
            let verified = verified.map_err(|error| refusal(401, error.to_string()))?;
            let project = verified.project().to_owned();
            let identity = verified.identity(origin, grants);
            identity
                .check(self.time())
                .map_err(|denied| refusal(401, denied.to_string()))?;
            let is_once = identity
                .credential
                .as_ref()
                .is_some_and(|one| one.once().is_some());
            if is_once {
                return Err(refusal(
                    401,
                    "a token for one session is none for this interface".to_owned(),
                ));
            }
            return Ok(Holder {
                project,
                identity,
                site: None,
            });
        }
        let unknown = || refusal(401, "the token is not known".to_owned());
        let introspection = self.introspection.as_ref().ok_or_else(unknown)?;
        if token.len() > TOKEN_BYTES_MAX || token.contains(char::is_control) {
            return Err(unknown());
        }
        let site = introspection.holder(token).await.ok_or_else(unknown)?;
        let identity = Identity {
            subject: access::Subject::Member(site.project.clone()),
            credential: None,
            origin,
            grants,
        };
        Ok(Holder {
            project: site.project.clone(),
            identity,
            site: Some(site),
        })
    }

    /// Whether somebody may manage an instance: it is as a topic of its project.
    pub(super) fn allow(&self, holder: &Holder, instance: &InstanceName) -> Result<(), Answer> {
        let name = Name::Topic {
            project: instance.project(),
            topic: instance.name(),
        };
        match access::decide(&holder.identity, Verb::Manage, name, self.time()) {
            Decision::Allow => Ok(()),
            Decision::Deny(_) if planted(Fault::WrongProject) => Ok(()),
            Decision::Deny(denied) => Err(refusal(403, denied.to_string())),
        }
    }

    fn time(&self) -> UnixTime {
        UnixTime(self.clock.unix().saturating_mul(1_000_000_000))
    }
}
