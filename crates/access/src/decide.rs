//! The one rule.

use crate::faults::{Fault, planted};
use crate::grant::{Grant, Realm, Who, same_project};
use crate::identity::{Identity, Subject};
use crate::limits::{Limits, list};
use crate::name::{Name, project_text};
use crate::pattern::Pattern;
use crate::time::UnixTime;
use crate::verb::{Verb, Verbs};
use core::net::IpAddr;
use std::fmt;
use wire::DirectoryId;

/// Whether somebody may do something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Some grant covers it, and every limit on the credential does.
    Allow,
    /// Something was missing.
    Deny(Box<Denied>),
}

impl Decision {
    /// Whether it is allowed.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allow)
    }
}

/// Why something is denied: who somebody is taken for, what was missing, what would help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// Who asks.
    pub taken_for: String,
    /// What is asked for, as in `write stf008/frames`.
    pub asked: String,
    /// What was missing.
    pub missing: Missing,
    /// What would help.
    pub remedy: String,
    /// What the credential is, in a word.
    pub credential: &'static str,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            taken_for,
            asked,
            missing,
            remedy,
            credential,
        } = self;
        let missing = missing.said_of(credential);
        write!(f, "{taken_for} may not {asked}: {missing}; {remedy}")
    }
}

/// What was missing for something to be allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// No grant covers it.
    Grant,
    /// The credential is good from then on.
    NotYet(UnixTime),
    /// The credential was good until then.
    Expired(UnixTime),
    /// The credential is for names of this project.
    Project(String),
    /// The credential is for topics of these patterns.
    Topics(String),
    /// The credential is for these verbs.
    Verbs(Verbs),
    /// The credential is for clients of these networks; the client's address, if it has one.
    Network(String, Option<IpAddr>),
    /// The credential is for the server of this data directory.
    Instance(DirectoryId),
}

impl Missing {
    /// Whether the same credential will be, or would have been, enough at another time.
    pub fn is_about_time(&self) -> bool {
        matches!(self, Self::NotYet(_) | Self::Expired(_))
    }

    /// The sentence, where the credential is called so.
    fn said_of(&self, it: &str) -> String {
        match self {
            Self::Grant => "no grant covers it".to_owned(),
            Self::NotYet(from) => format!("the {it} is good from {from} on"),
            Self::Expired(until) => format!("the {it} expired at {until}"),
            Self::Project(project) => format!("the {it} is for {}", project_text(project)),
            Self::Topics(patterns) => format!("the {it} is for topics {patterns}"),
            Self::Verbs(verbs) => format!("the {it} is for {verbs}"),
            Self::Network(networks, Some(address)) => {
                format!("the {it} is for clients from {networks}, not {address}")
            }
            Self::Network(networks, None) => {
                format!("the {it} is for clients from {networks}, not of the server's own host")
            }
            Self::Instance(id) => {
                format!("the {it} is for the server of data directory {id}")
            }
        }
    }
}

/// Whether somebody may do something with a name now: **if some grant covers it, and every limit
/// on the credential does.** Nothing else allows, and there are no denials beside that.
pub fn decide(identity: &Identity, verb: Verb, name: Name<'_>, now: UnixTime) -> Decision {
    let of_credential = identity.credential.iter();
    let mut limits = of_credential.flat_map(|credential| credential.limits());
    let missing = limits.find_map(|limits| {
        broken_anyway(limits, identity, now).or_else(|| broken_by(limits, verb, name))
    });
    let missing = missing.or_else(|| {
        let is_granted = identity.grants.cover(identity, verb, name);
        (!is_granted).then_some(Missing::Grant)
    });
    match missing {
        None => Decision::Allow,
        Some(missing) => Decision::Deny(Box::new(Denied {
            taken_for: identity.to_string(),
            asked: asked(verb, name),
            remedy: remedy(identity, verb, name, &missing),
            missing,
            credential: identity.credential_word(),
        })),
    }
}

impl Identity {
    fn credential_word(&self) -> &'static str {
        let credential = self.credential.as_ref();
        credential.map_or("token", |credential| credential.kind().word())
    }

    /// Why its credential is good for nothing now, whatever is asked for.
    ///
    /// # Errors
    /// Names what was missing, and what would help.
    pub fn check(&self, now: UnixTime) -> Result<(), Box<Denied>> {
        let limits = self.credential.iter().flat_map(|one| one.limits());
        let missing = { limits }.find_map(|limits| broken_anyway(limits, self, now));
        let Some(missing) = missing else {
            return Ok(());
        };
        Err(Box::new(Denied {
            taken_for: self.to_string(),
            asked: "do anything".to_owned(),
            remedy: remedy(self, Verb::Read, Name::Server, &missing),
            missing,
            credential: self.credential_word(),
        }))
    }
}

/// The limit that does not hold, whatever is asked for.
fn broken_anyway(limits: &Limits, identity: &Identity, now: UnixTime) -> Option<Missing> {
    let origin = &identity.origin;
    if let Some(from) = limits.not_before
        && now < from
    {
        return Some(Missing::NotYet(from));
    }
    if let Some(until) = limits.expires
        && now >= until
        && !planted(Fault::Expired)
    {
        return Some(Missing::Expired(until));
    }
    if let Some(networks) = &limits.networks {
        let is_in = |address| networks.iter().any(|network| network.has(address));
        if !origin.address.is_some_and(is_in) {
            return Some(Missing::Network(list(networks), origin.address));
        }
    }
    match limits.instance {
        Some(instance) if instance != origin.instance => Some(Missing::Instance(instance)),
        _ => None,
    }
}

/// The limit that does not cover what is asked for.
fn broken_by(limits: &Limits, verb: Verb, name: Name<'_>) -> Option<Missing> {
    if let Some(verbs) = limits.verbs
        && !verbs.has(verb)
    {
        return Some(Missing::Verbs(verbs));
    }
    let Name::Topic { project, topic } = name else {
        // A limit to names does not cover what has none.
        let own = limits.project.clone().map(Missing::Project);
        return own.or_else(|| limits.topics.as_deref().map(list).map(Missing::Topics));
    };
    if let Some(own) = &limits.project
        && !same_project(own, project)
    {
        return Some(Missing::Project(own.clone()));
    }
    match &limits.topics {
        Some(topics) if !topics.iter().any(|pattern| pattern.matches(topic)) => {
            Some(Missing::Topics(list(topics)))
        }
        _ => None,
    }
}

fn asked(verb: Verb, name: Name<'_>) -> String {
    match name {
        Name::Server => format!("{verb} the server"),
        Name::Topic { .. } => format!("{verb} {name}"),
    }
}

fn remedy(identity: &Identity, verb: Verb, name: Name<'_>, missing: &Missing) -> String {
    let issued = identity.issued();
    match missing {
        Missing::Expired(_) if issued.is_some() => {
            "put a newer one of the same issuer in its place".into()
        }
        Missing::Project(_) | Missing::Topics(_) | Missing::Verbs(_) if issued.is_some() => {
            "what it is good for is said by the server's access/issuers.json: ask the operator"
                .into()
        }
        Missing::NotYet(_) => "use it then, or ask who made it for one that begins earlier".into(),
        Missing::Expired(_) if identity.certificate_name().is_some() => {
            "what is over cannot be renewed: pair anew, with `thalweg pair offer` at the server and \
             `thalweg pair join` here"
                .into()
        }
        Missing::Expired(_) => {
            "put a new one in its place: `thalweg token new` makes one where the server's data \
             directory is"
                .into()
        }
        Missing::Network(..) | Missing::Instance(_) => {
            "ask who made it for one without that limit".into()
        }
        Missing::Project(_) if name == Name::Server => {
            "only the server's owner may do that, with the group file".into()
        }
        Missing::Project(_) => match name {
            Name::Topic { project, .. } => format!(
                "a token made with `--project {}` is",
                if project.is_empty() { "''" } else { project }
            ),
            Name::Server => String::new(),
        },
        Missing::Topics(_) | Missing::Verbs(_) => {
            "ask who made it for one that has it; a token only gets narrower".into()
        }
        Missing::Grant => format!("this grant would help: {}", helpful(identity, verb, name)),
    }
}

/// The grant that allows just that.
fn helpful(identity: &Identity, verb: Verb, name: Name<'_>) -> Grant {
    let (realm, topics) = match name {
        Name::Server => (Realm::Everything, Pattern::everything()),
        Name::Topic { project, topic } => {
            let exact = topic.parse().unwrap_or_else(|_| Pattern::everything());
            (Realm::Project(project.to_owned()), exact)
        }
    };
    Grant {
        who: match &identity.subject {
            Subject::Owner => Who::Owner,
            Subject::Member(project) => match identity.certificate_name() {
                Some(name) => Who::Certificate {
                    project: project.clone(),
                    name: name.to_owned(),
                },
                None => Who::Project(project.clone()),
            },
        },
        may: Verbs::from_iter([verb]),
        realm,
        topics,
    }
}
