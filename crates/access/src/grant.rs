//! Who is granted what.

use crate::certificate::check_part;
use crate::faults::{Fault, planted};
use crate::identity::{Identity, Subject};
use crate::name::Name;
use crate::pattern::Pattern;
use crate::verb::{Verb, Verbs};
use std::fmt;

/// To whom something is granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// To whom the server belongs.
    Owner,
    /// To members of this project.
    Project(String),
    /// To members of any project.
    Member,
    /// To the holder of a certificate of this project and name.
    Certificate {
        /// The project.
        project: String,
        /// The name in it.
        name: String,
    },
}

/// Of which projects the names are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Realm {
    /// All, and the server itself.
    Everything,
    /// This one.
    Project(String),
    /// That of whom it is granted to.
    Own,
}

/// One grant: it allows, and nothing denies but the lack of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// To whom.
    pub who: Who,
    /// What.
    pub may: Verbs,
    /// In which projects.
    pub realm: Realm,
    /// On which topics of them.
    pub topics: Pattern,
}

impl Grant {
    /// Of the words that `Display` writes: to whom, and on what; `PROJECT` is that of whom it is
    /// granted to.
    ///
    /// # Errors
    /// Says what a text may be.
    pub fn of(who: &str, may: Verbs, on: &str) -> Result<Self, String> {
        let who = match (who, who.strip_prefix("project:")) {
            ("owner", _) => Who::Owner,
            ("member", _) => Who::Member,
            (_, Some(project)) => Who::Project(project.to_owned()),
            (other, None) => match other
                .strip_prefix("cert:")
                .and_then(|one| one.split_once('/'))
            {
                Some((project, name)) => {
                    check_part("project", project)?;
                    check_part("name", name)?;
                    Who::Certificate {
                        project: project.to_owned(),
                        name: name.to_owned(),
                    }
                }
                None => {
                    return Err(format!(
                        "{other:?} is nobody to whom something is granted: owner, member, \
                         project:NAME and cert:PROJECT/NAME are"
                    ));
                }
            },
        };
        let (realm, topics) = match on.split_once('/') {
            None => (Realm::Everything, on),
            Some(("PROJECT", topics)) => (Realm::Own, topics),
            Some((project, topics)) => (Realm::Project(project.to_owned()), topics),
        };
        Ok(Self {
            who,
            may,
            realm,
            topics: topics.parse()?,
        })
    }

    fn covers(&self, identity: &Identity, verb: Verb, name: Name<'_>) -> bool {
        let subject = &identity.subject;
        let is_theirs = match (&self.who, subject) {
            (Who::Owner, Subject::Owner) => true,
            (Who::Member, Subject::Member(_)) => true,
            (Who::Project(project), Subject::Member(own)) => same_project(project, own),
            (Who::Certificate { project, name }, Subject::Member(own)) => {
                same_project(project, own) && identity.certificate_name() == Some(name)
            }
            _ => false,
        };
        is_theirs && self.may.has(verb) && self.has(subject, name)
    }

    fn has(&self, subject: &Subject, name: Name<'_>) -> bool {
        let Name::Topic { project, topic } = name else {
            return self.realm == Realm::Everything;
        };
        let is_there = match (&self.realm, subject) {
            (Realm::Everything, _) => true,
            (Realm::Project(granted), _) => same_project(granted, project),
            (Realm::Own, Subject::Member(own)) => same_project(own, project),
            (Realm::Own, Subject::Owner) => false,
        };
        is_there && self.topics.matches(topic)
    }
}

pub(crate) fn same_project(one: &str, other: &str) -> bool {
    one == other || planted(Fault::WrongProject)
}

impl fmt::Display for Grant {
    /// As a line of JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = match &self.who {
            Who::Owner => "owner".to_owned(),
            Who::Project(project) => format!("project:{project}"),
            Who::Member => "member".to_owned(),
            Who::Certificate { project, name } => format!("cert:{project}/{name}"),
        };
        let verbs: Vec<String> = self.may.iter().map(|verb| format!("\"{verb}\"")).collect();
        let verbs = verbs.join(",");
        let topics = &self.topics;
        let on = match &self.realm {
            Realm::Everything => topics.to_string(),
            Realm::Project(project) => format!("{project}/{topics}"),
            Realm::Own => format!("PROJECT/{topics}"),
        };
        write!(f, "{{\"who\":\"{who}\",\"may\":[{verbs}],\"on\":\"{on}\"}}")
    }
}

/// All grants of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grants(pub Vec<Grant>);

impl Default for Grants {
    /// The owner may do everything; members of a project everything in it but `admin`; nobody
    /// else anything.
    fn default() -> Self {
        Self(vec![
            Grant {
                who: Who::Owner,
                may: Verbs::ALL,
                realm: Realm::Everything,
                topics: Pattern::everything(),
            },
            Grant {
                who: Who::Member,
                may: Verbs::MEMBER,
                realm: Realm::Own,
                topics: Pattern::everything(),
            },
        ])
    }
}

impl Grants {
    pub(crate) fn cover(&self, identity: &Identity, verb: Verb, name: Name<'_>) -> bool {
        let mut grants = self.0.iter();
        grants.any(|grant| grant.covers(identity, verb, name))
    }
}
