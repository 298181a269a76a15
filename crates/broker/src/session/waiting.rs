//! Clients that have said who they are, and wait to be let in; and what is looked at meanwhile.

use super::origin::origin;
use crate::ctx::Ctx;
use crate::examine::{Awaited, Look, Presented};
use crate::faults::Fault;
use crate::identity::Identity;
use crate::ids::{JobId, LinkId, Purpose, SessionJob};
use crate::io::Job;
use crate::refusal::Refused;
use access::TokenId;
use core::net::{IpAddr, Ipv6Addr};
use net::Peer;
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::message::Hello;
use wire::{ErrorCode, ErrorReply};

/// So many of each kind are looked at at once, or wait for their turn: each has what it presents in memory.
const UNDER_WAY_MAX: usize = 64;
/// So many of them are of strangers who come from one address, or are of one user of this host; or of one who is in.
const OF_ONE_MAX: usize = 16;
/// When to come again where too many are.
const RETRY_MS: u32 = 1000;

/// A client that has proved who it is, and is to be welcomed.
pub(super) struct Admission {
    pub identity: Identity,
    /// Of its Hello.
    pub id: u64,
    pub features: u64,
    /// How many connections it would have.
    pub stripes: u8,
}

/// For what a client waits that is not let in yet.
pub(super) enum Waiting {
    /// Until it is durable that it has used its token.
    Used(Box<Admission>),
    /// Until somebody has looked at what it presents.
    Examined(Box<Stranger>, Looked),
}

impl Waiting {
    /// Who it is that is as good as let in.
    pub fn admission(&self) -> Option<&Admission> {
        match self {
            Self::Used(admission) => Some(admission),
            Self::Examined(..) => None,
        }
    }
}

/// A client that has said who it is, and is not believed yet.
pub(super) struct Stranger {
    /// What it said, without the secret.
    pub hello: Hello,
    pub id: u64,
    pub features: u64,
}

/// A look that a client waits for. Dropped, it is awaited no more.
pub(super) struct Looked {
    pub job: JobId,
    _waits: Arc<()>,
}

/// Of whom something is looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct OfWhom {
    pub link: LinkId,
    pub source: Source,
    /// How long it takes is not known yet.
    pub look: Look,
}

/// Who somebody is taken to be, so that looks of theirs are held against each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A stranger: of IPv6 the network, for that is what one host has; of this host the user.
    Stranger {
        address: Option<IpAddr>,
        uid: Option<u32>,
    },
    /// Who is in.
    Person(TokenId),
}

impl Source {
    pub fn of(peer: &Peer, ctx: &Ctx) -> Self {
        let address = origin(peer, ctx)
            .address
            .map(|address| address.to_canonical());
        let address = address.map(|address| match address {
            IpAddr::V4(_) => address,
            IpAddr::V6(address) => {
                let network = u128::from(address) >> 64 << 64;
                Ipv6Addr::from(network).into()
            }
        });
        let uid = peer.uid;
        Self::Stranger { address, uid }
    }
}

/// What is looked at. It is forgotten with its client, so that who goes keeps no place.
#[derive(Default)]
pub(super) struct UnderWay {
    looks: BTreeMap<JobId, OfWhom>,
    /// What was begun before this one was looked at by issuers that are others now.
    pub first_good: u64,
}

impl UnderWay {
    /// Has something looked at.
    ///
    /// # Errors
    /// If there is no place; it may be tried again.
    pub fn begin(
        &mut self,
        of: OfWhom,
        presented: Presented,
        ctx: &mut Ctx,
    ) -> Result<Looked, Refused> {
        if self.looks.len() >= Look::ALL.len() * UNDER_WAY_MAX {
            return Err(full());
        }
        let by = ctx.options.examiner.clone();
        let look = of.look.taking(by.takes_long(&presented));
        let of = OfWhom { look, ..of };
        self.refuse_look(of, ctx)?;
        let waits = Arc::new(());
        let work = Job::Examine {
            by,
            presented,
            look,
            awaited: Awaited::by(&waits),
        };
        let purpose = Purpose::Session(SessionJob::Examine(of.link));
        let job = ctx.start_job(purpose, work);
        self.looks.insert(job, of);
        Ok(Looked { job, _waits: waits })
    }

    fn refuse_look(&self, of: OfWhom, ctx: &Ctx) -> Result<(), Refused> {
        let others = self.looks.values().filter(|one| one.look == of.look);
        let of_source = others.clone().filter(|one| one.source == of.source);
        let is_one_of_many = of_source.count() >= OF_ONE_MAX && !ctx.planted(Fault::OneTakesAll);
        let why = match (others.count() >= UNDER_WAY_MAX, is_one_of_many) {
            (true, _) => return Err(full()),
            (_, true) => format!(
                "{OF_ONE_MAX} credentials of others are being looked at already that came from the same"
            ),
            (false, false) => return Ok(()),
        };
        let code = ErrorCode::LimitExceeded;
        Err(ErrorReply::retryable(code, RETRY_MS, why))
    }

    /// A look has come back.
    pub fn end(&mut self, job: JobId) {
        self.looks.remove(&job);
    }

    /// A client is gone.
    pub fn forget(&mut self, link: LinkId, ctx: &Ctx) {
        if !ctx.planted(Fault::GoneKeepPlaces) {
            self.looks.retain(|_, one| one.link != link);
        }
    }
}

fn full() -> Refused {
    let why = format!("{UNDER_WAY_MAX} credentials of others are being looked at already");
    ErrorReply::retryable(ErrorCode::LimitExceeded, RETRY_MS, why)
}
