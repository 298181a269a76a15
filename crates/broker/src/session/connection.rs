//! One connection: how far it has come, and what it has asked for.

use super::credential::Expiry;
use super::request::{Requests, Work};
use super::waiting::Looked;
use crate::answer::Answer;
use crate::identity::Identity;
use crate::ids::{Membership, StorageId};
use net::Peer;
use std::collections::BTreeMap;
use std::time::Duration;

/// One connection.
pub(crate) struct Session {
    pub peer: Peer,
    pub stage: Stage,
    pub(super) language: Language,
    pub(super) since: Duration,
    pub last_heard: Duration,
    /// Whether a sign of life was asked for since something was heard.
    pub(super) asked: bool,
    pub requests: Requests,
    /// Subscriptions, and where each reads.
    pub subscriptions: BTreeMap<u64, StorageId>,
    /// By the ids of the requests that began them.
    pub memberships: BTreeMap<u64, Membership>,
    /// Whether members of this connection have fallen silent.
    pub silent_members: bool,
    /// The timer that is armed.
    pub(super) timer_at: Option<Duration>,
    /// Produce payload that may be unanswered.
    pub credit: u64,
    /// Answers that wait until what they cost is paid for, by when that is.
    pub(super) unpaid: BTreeMap<(Duration, u64), Answer>,
    /// Bytes of events in them.
    pub(super) unpaid_bytes: u64,
    /// What its client was told of the end of its credential.
    pub(super) expiry: Expiry,
    /// Looks at what its client has presented in place of its present credential.
    pub(super) renewal: Option<Looked>,
    /// The scheme of the connections that can carry its bytes, if it is of one of those.
    pub(super) carries: Option<&'static str>,
    /// The further connections that its client may open.
    pub(super) stripes: Option<Stripes>,
}

/// The connections of one session.
pub(crate) struct Stripes {
    /// How many there may be.
    pub(super) most: u8,
    /// How many there are.
    pub(super) count: u8,
    /// Who shows it joins.
    pub(super) key: [u8; 32],
}

/// In what a client is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    /// Frames of Thalweg's own protocol.
    Frames,
    /// Another protocol: its listener is given what is to be said.
    Foreign,
}

/// How far a connection has come.
pub(crate) enum Stage {
    /// Nothing was said yet.
    New,
    /// The client is known.
    Open(Box<Identity>),
    /// An error was sent and the connection is to end.
    Closing,
}

impl Session {
    pub(super) fn new(peer: Peer, language: Language, now: Duration) -> Self {
        Self {
            peer,
            stage: Stage::New,
            language,
            since: now,
            last_heard: now,
            asked: false,
            requests: Requests::default(),
            subscriptions: BTreeMap::new(),
            memberships: BTreeMap::new(),
            silent_members: false,
            timer_at: None,
            credit: 0,
            unpaid: BTreeMap::new(),
            unpaid_bytes: 0,
            expiry: Expiry::default(),
            renewal: None,
            carries: None,
            stripes: None,
        }
    }

    /// Who its client is, once that is known.
    pub fn identity(&self) -> Option<&Identity> {
        match &self.stage {
            Stage::Open(identity) => Some(identity),
            Stage::New | Stage::Closing => None,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open(_))
    }

    /// A partition takes a request on. Returns what the connection was granted of unanswered
    /// bytes.
    pub fn begin_work(&mut self, id: u64, work: Work) -> u64 {
        self.requests.begin_work(id, work);
        self.credit
    }

    /// Silence after which a sign of life is asked for: early enough for a
    /// member that has less time than its connection.
    pub(super) fn patience(&self, heartbeat: Duration) -> Duration {
        let members = self.memberships.values();
        let members = members.map(|membership| membership.session_timeout / 3);
        members.fold(heartbeat, Duration::min)
    }
}
