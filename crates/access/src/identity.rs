//! Who somebody is.

use crate::certificate::CERTIFICATE_EARLY;
use crate::grant::Grants;
use crate::limits::Limits;
use crate::name::project_text;
use crate::time::UnixTime;
use crate::token::TokenId;
use core::net::IpAddr;
use std::fmt;
use std::sync::Arc;
use wire::DirectoryId;

/// Who somebody is, as was proved, and what bears on what they may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Who it is.
    pub subject: Subject,
    /// What it was proved by, if that has limits.
    pub credential: Option<Credential>,
    /// Where they came from, and to.
    pub origin: Origin,
    /// What there are for grants.
    pub grants: Arc<Grants>,
}

impl Identity {
    /// To whom the server belongs, without a limit.
    pub fn owner(origin: Origin, grants: Arc<Grants>) -> Self {
        Self {
            subject: Subject::Owner,
            credential: None,
            origin,
            grants,
        }
    }

    /// Whether it is the owner without a limit, who may do everything.
    pub fn is_owner(&self) -> bool {
        self.subject == Subject::Owner && self.credential.is_none()
    }

    /// When its credential was made, if that says so: a certificate does.
    pub fn begins(&self) -> Option<UnixTime> {
        let credential = self.credential.as_ref()?;
        match credential.kind() {
            Kind::Certificate(_) => {
                let begins = credential.limits().iter().filter_map(|one| one.not_before);
                let early = CERTIFICATE_EARLY.as_nanos() as u64;
                Some(UnixTime(begins.max()?.0.saturating_add(early)))
            }
            Kind::Token | Kind::Issued(_) => None,
        }
    }

    /// The name in its project, of one who was known by a certificate.
    pub fn certificate_name(&self) -> Option<&str> {
        match self.credential.as_ref()?.kind() {
            Kind::Certificate(name) => Some(name),
            Kind::Token | Kind::Issued(_) => None,
        }
    }

    /// Who vouches for them, if that is not this server.
    pub fn issued(&self) -> Option<&Issued> {
        self.credential.as_ref()?.issued()
    }

    /// Whether another identity may do the same at any time at which both are good: it is taken
    /// for the same, and by credentials with the same limits, but for times and notes.
    pub fn has_rights_of(&self, other: &Self) -> bool {
        let rights = |identity: &Self| -> Vec<Limits> {
            let of_credential = identity.credential.iter();
            let limits = of_credential.flat_map(|credential| credential.limits().iter().cloned());
            let limits = limits.map(|limits| Limits {
                not_before: None,
                expires: None,
                once: false,
                note: None,
                ..limits
            });
            // A block that limits nothing else says nothing.
            limits
                .filter(|limits| *limits != Limits::default())
                .collect()
        };
        self.subject == other.subject
            && self.certificate_name() == other.certificate_name()
            && self.issued() == other.issued()
            && self.origin == other.origin
            && rights(self) == rights(other)
    }

    /// When its credential is over, if it ever is.
    pub fn expires(&self) -> Option<UnixTime> {
        self.credential.as_ref().and_then(Credential::expires)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.credential {
            None => write!(f, "{}", self.subject),
            Some(credential) => write!(f, "{} with {credential}", self.subject),
        }
    }
}

/// Who somebody is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// To whom the server belongs.
    Owner,
    /// A member of this project.
    Member(String),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner => f.write_str("the owner of the server"),
            Self::Member(project) => write!(f, "a member of {}", project_text(project)),
        }
    }
}

/// Where somebody came from, and to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Origin {
    /// Their address; `None` is this host, by other means than the network.
    pub address: Option<IpAddr>,
    /// The data directory of the server that they came to.
    pub instance: DirectoryId,
}

/// What a credential is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A token.
    Token,
    /// A certificate, of this name in its project.
    Certificate(String),
    /// What another issuer vouches for.
    Issued(Box<Issued>),
}

impl Kind {
    /// The word for people.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Certificate(_) => "certificate",
            Self::Issued(_) => "credential",
        }
    }
}

/// Somebody whom another one than this server vouches for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Issued {
    /// Who vouches for them.
    pub issuer: String,
    /// What they are called there.
    pub subject: String,
}

impl Issued {
    /// The id of all that they present, and of this one thing: either can be revoked. `presented` is
    /// nothing of which another form means the same.
    pub fn ids(&self, presented: &[u8]) -> Vec<TokenId> {
        let who = [self.issuer.as_bytes(), self.subject.as_bytes()];
        vec![
            TokenId::of_parts(&who),
            TokenId::of_parts(&[who[0], who[1], presented]),
        ]
    }
}

impl fmt::Display for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {:?}", self.subject, self.issuer)
    }
}

/// What somebody presented, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    kind: Kind,
    ids: Vec<TokenId>,
    limits: Vec<Limits>,
    expires: Option<UnixTime>,
}

impl Credential {
    pub(crate) fn of_kind(kind: Kind, ids: Vec<TokenId>, limits: Vec<Limits>) -> Self {
        let expires = limits.iter().filter_map(|limits| limits.expires).min();
        Self {
            kind,
            ids,
            limits,
            expires,
        }
    }

    /// What it is.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Who vouches for its holder, if that is not this server.
    pub fn issued(&self) -> Option<&Issued> {
        match &self.kind {
            Kind::Issued(issued) => Some(issued),
            Kind::Token | Kind::Certificate(_) => None,
        }
    }

    /// Its own id.
    pub fn id(&self) -> TokenId {
        *self.ids.last().expect("a token has a block")
    }

    /// The ids of all that it was made from, and its own as the last.
    pub fn ids(&self) -> &[TokenId] {
        &self.ids
    }

    /// What each block of it limits.
    pub fn limits(&self) -> &[Limits] {
        &self.limits
    }

    /// When it is over, if it ever is.
    pub fn expires(&self) -> Option<UnixTime> {
        self.expires
    }

    /// The id of the block by which it is good for one session, if it is.
    pub fn once(&self) -> Option<TokenId> {
        let at = self.limits.iter().position(|limits| limits.once)?;
        self.ids.get(at).copied()
    }

    /// For whom or what it was made, as the last who made something of it says.
    pub fn note(&self) -> Option<&str> {
        let notes = self.limits.iter().rev();
        notes.filter_map(|limits| limits.note.as_deref()).next()
    }
}

impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Kind::Certificate(name) = &self.kind {
            // All certificates of its key are revoked by this one.
            let key = self.ids.first().copied();
            return write!(f, "certificate {name:?} ({})", key.unwrap_or(self.id()));
        }
        if let Some(issued) = self.issued() {
            return write!(f, "a credential of {issued} ({})", self.id());
        }
        write!(f, "token {}", self.id())?;
        self.note().map_or(Ok(()), |note| write!(f, " ({note:?})"))
    }
}
