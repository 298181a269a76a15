//! What clients are held to: their rights, their project's quota, their token's rate.

use super::credential::{expired, quotas, rates};
use super::{Session, Sessions, Stage, audited};
use crate::audit::{self, Audited};
use crate::coordinator::served_topic::Topics;
use crate::ctx::Ctx;
use crate::faults::Fault;
use crate::identity::{self, Identity};
use crate::ids::{LinkId, RequestId};
use crate::io::AccessChange;
use crate::pace::{Direction, Whose};
use crate::paused::Pause;
use crate::quota::{self, InUse};
use crate::refusal::Refused;
use crate::request::Request;
use crate::timers::Timer;
use access::{Bound, Rules};
use std::sync::Arc;
use wire::message::Method;
use wire::{ErrorCode, ErrorReply, SessionId};

impl Sessions {
    /// Whether the client of a connection may have a request done, by its rights and by its quota.
    pub fn authorize(
        &mut self,
        caller: RequestId,
        request: &Request,
        in_use: InUse<'_>,
        ctx: &mut Ctx,
    ) -> Result<(), Refused> {
        trace::passes!("whether its client may, within which quota");
        // A connection that is gone waits for no answer.
        let Some(session) = self.links.get_mut(&caller.link) else {
            return Ok(());
        };
        let Some(identity) = session.identity() else {
            return Ok(());
        };
        let allowed = rights(identity, request, in_use.topics, ctx);
        audited::request(session, identity, request, (in_use.topics, &allowed), ctx);
        allowed?;
        let who = (identity.project(), session.unpaid_bytes);
        let charge = quota::charge(caller, request, who, in_use, ctx)?;
        if let Some(charge) = charge {
            session.requests.pay(caller.id, charge);
        }
        Ok(())
    }

    /// Whom the node believes, or what they may do, has changed.
    pub fn access_changed(&mut self, change: AccessChange, ctx: &mut Ctx) {
        match change {
            AccessChange::Trust(trust) => self.set_trust(trust, ctx),
            AccessChange::Rules(rules) => self.set_rules(rules, ctx),
            AccessChange::Issuers(change) => self.issuers_changed(&change, ctx),
        }
    }

    /// Who may do what, and how much, has changed.
    fn set_rules(&mut self, rules: Arc<Rules>, ctx: &mut Ctx) {
        ctx.audit(Audited::Rules, audit::rules(&rules));
        ctx.rules = rules;
        let mut outdated = Vec::new();
        for (link, session) in &mut self.links {
            if let Stage::Open(identity) = &mut session.stage {
                // What it reads by rights that it had is asked for anew, on another connection.
                if identity.access.grants != ctx.rules.grants && identity.project().is_some() {
                    outdated.push(*link);
                }
                identity.access.grants = ctx.rules.grants.clone();
                let rates = rates(identity, ctx);
                ctx.paces.bind(*link, rates, ctx.now.monotonic);
            }
        }
        for link in outdated {
            let error = "the server's rules have changed: connect anew".to_owned();
            let error = ErrorReply::retryable(ErrorCode::Cancelled, 0, error);
            self.end(link, 0, error, ctx);
        }
    }

    /// Why a client is not let in: its project, or who has its token, has as many connections as they
    /// may have. The one that a session leaves by this one does not count.
    pub(super) fn refuse_connection(&self, identity: &Identity, ctx: &Ctx) -> Result<(), Refused> {
        if ctx.planted(Fault::NoQuota) {
            return Ok(());
        }
        for (whose, quota) in quotas(identity, &ctx.rules.quotas) {
            let Some(most) = quota.most(Bound::Connections) else {
                continue;
            };
            let others = self.links.values().filter_map(Session::identity);
            // Those that wait until it is durable that their tokens were used are as good as there.
            let coming = self.admissions.values().filter_map(|one| one.admission());
            let coming = coming.map(|admission| &admission.identity);
            let others = others.chain(coming).filter(|other| {
                let is_left = other.session == identity.session && other.session != SessionId(0);
                !is_left && is_held(other, &whose)
            });
            if others.count() as u64 >= most {
                // A client tries again by itself, up to its own time for connecting.
                return Err(ErrorReply {
                    retryable: true,
                    ..quota::at_bound(&whose, quota, Bound::Connections)
                });
            }
        }
        Ok(())
    }

    /// What a connection has moved is paid for, or some of it: answers that waited for that go. Returns
    /// whether the connection takes deliveries again.
    pub fn paid(&mut self, link: LinkId, ctx: &mut Ctx) -> bool {
        let now = ctx.now.monotonic;
        let Some(session) = self.links.get_mut(&link) else {
            return false;
        };
        let later = session.unpaid.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut session.unpaid, later);
        for answer in due.values() {
            session.unpaid_bytes -= answer.events_bytes();
        }
        for ((_, id), answer) in due {
            self.answer_now(RequestId { link, id }, answer, ctx);
        }
        match ctx.paces.paid_at(link, Direction::Out, now) {
            Some(at) if ctx.paused.is_for(link, Pause::Rate) => {
                ctx.timers.insert(at, Timer::Pace(link));
                false
            }
            _ => ctx.paused.end(link, Pause::Rate),
        }
    }
}

/// Whether a client may have a request done now. Behind the end of its credential only what gives
/// back what it was given before is: it may present another one.
fn rights(
    identity: &Identity,
    request: &Request,
    topics: &Topics,
    ctx: &Ctx,
) -> Result<(), Refused> {
    if ctx.planted(Fault::Unauthorized) && request.method() == Method::ReadData {
        return Ok(());
    }
    let expires = identity.access.expires();
    let is_over = expires.is_some_and(|expires| ctx.now.unix_ns >= expires.0);
    if is_over && !request.gives_back() && !ctx.planted(Fault::GraceServes) {
        return Err(expired(&identity.access, ctx));
    }
    identity::authorize(identity, request, topics, ctx.now)
}

/// Whether a client is held to this quota.
fn is_held(identity: &Identity, whose: &Whose) -> bool {
    match whose {
        Whose::Project(project) => identity.project() == Some(project),
        Whose::Token(id) => {
            let credential = identity.access.credential.as_ref();
            credential.is_some_and(|credential| credential.ids().contains(id))
        }
    }
}
