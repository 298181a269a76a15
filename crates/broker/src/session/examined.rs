//! Clients that present what somebody else has to look at: they wait for that, and are let in, or go on, then.

use super::credential::{Expiry, Renewed, Said};
use super::waiting::{Admission, Looked, OfWhom, Source, Stranger, Waiting};
use super::{Asked, Session, Sessions, Stage};
use crate::audit::{self, Audited};
use crate::ctx::Ctx;
use crate::examine::{Look, Presented};
use crate::faults::Fault;
use crate::ids::{JobId, LinkId, SessionJob};
use crate::io::{Examined, IssuersChange, JobResult};
use crate::paused::Pause;
use crate::refusal::{Refused, draining, refuse};
use access::UnixTime;
use bytes::Bytes;
use net::Peer;
use wire::{ErrorCode, ErrorReply};

impl Sessions {
    /// A client says who it is by something that others have issued. It waits until somebody has looked at that.
    pub(super) fn examine(
        &mut self,
        link: LinkId,
        mut stranger: Stranger,
        ctx: &mut Ctx,
    ) -> Result<(), Refused> {
        if self.is_draining {
            return Err(draining());
        }
        let presented = Presented {
            proof: std::mem::take(&mut stranger.hello.proof),
            namespace: stranger.hello.namespace.clone(),
            now: UnixTime(ctx.now.unix_ns),
        };
        let of = self.of_whom(link, Look::Short, ctx);
        let looked = self.under_way.begin(of, presented, ctx)?;
        let waiting = Waiting::Examined(Box::new(stranger), looked);
        self.admissions.insert(link, waiting);
        Ok(())
    }

    fn of_whom(&self, link: LinkId, look: Look, ctx: &Ctx) -> OfWhom {
        let peer = self.links.get(&link).map(|session| &session.peer);
        let identity = self.identity(link);
        let credential = identity.and_then(|identity| identity.access.credential.as_ref());
        let person = credential.and_then(|credential| credential.ids().first().copied());
        let source = match person {
            Some(person) => Source::Person(person),
            None => Source::of(peer.unwrap_or(&Peer::default()), ctx),
        };
        OfWhom { link, source, look }
    }

    /// A client presents on its connection something that others have issued. It goes on by what it has presented
    /// before.
    ///
    /// # Errors
    /// If there is no place, or no end of another look yet: it may present it again.
    pub(super) fn examine_renewal(
        &mut self,
        link: LinkId,
        proof: Bytes,
        ctx: &mut Ctx,
    ) -> Result<(), Refused> {
        let of = self.of_whom(link, Look::ShortRenewal, ctx);
        if self.is_draining {
            return Err(draining());
        }
        let Some(session) = self.links.get_mut(&link) else {
            return Ok(());
        };
        // It could not take the place of a token, and anybody who has one would have others look at what they like.
        let identity = session.identity();
        if identity.is_none_or(|identity| identity.access.issued().is_none()) {
            let why =
                "the connection was opened by something else than others vouch for: connect anew";
            return Err(refuse(ErrorCode::NotAuthenticated, why));
        }
        if session.renewal.is_some() {
            let why = "what was presented before is being looked at: wait for the answer";
            let code = ErrorCode::NotAuthenticated;
            return Err(ErrorReply::retryable(code, 0, why));
        }
        let namespace = session
            .identity()
            .map(|identity| identity.namespace.clone());
        let presented = Presented {
            proof,
            namespace: namespace.unwrap_or_default(),
            now: UnixTime(ctx.now.unix_ns),
        };
        session.renewal = Some(self.under_way.begin(of, presented, ctx)?);
        Ok(())
    }

    /// A connection ends: what is done for it elsewhere is awaited by nobody.
    pub(super) fn wait_no_more(&mut self, link: LinkId, ctx: &Ctx) {
        self.admissions.remove(&link);
        if let Some(session) = self.links.get_mut(&link) {
            session.renewal = None;
        }
        self.under_way.forget(link, ctx);
    }

    /// A job of the sessions was done. Returns the connection that takes deliveries again, if there is one.
    pub fn job_done(
        &mut self,
        what: SessionJob,
        job: JobId,
        result: JobResult,
        ctx: &mut Ctx,
    ) -> Option<LinkId> {
        match (what, result) {
            (SessionJob::KeepUsed, JobResult::Kept(result)) => self.used_kept(result, ctx),
            (SessionJob::Examine(link), JobResult::Examined(examined)) => {
                self.under_way.end(job);
                return self.examined(link, job, *examined, ctx).map(|_| link);
            }
            _ => {}
        }
        None
    }

    /// Somebody has looked at what a client presented. Returns what there is to be done besides.
    fn examined(
        &mut self,
        link: LinkId,
        job: JobId,
        examined: Examined,
        ctx: &mut Ctx,
    ) -> Option<Asked> {
        // It may be that nobody waits for it any more.
        let is_of_stranger = self.admissions.contains_key(&link);
        self.waits_for_examination(link, job)?;
        if job.0 < self.under_way.first_good && !ctx.planted(Fault::OutdatedIssuers) {
            let presented = Presented {
                now: UnixTime(ctx.now.unix_ns),
                ..examined.presented.clone()
            };
            let look = match is_of_stranger {
                true => Look::Short,
                false => Look::ShortRenewal,
            };
            let of = self.of_whom(link, look, ctx);
            let begun = self.under_way.begin(of, presented, ctx);
            match begun {
                Ok(again) => *self.waits_for_examination(link, job)? = again,
                // By the issuers that there are now it takes long, and too many do.
                Err(error) => {
                    let examined = Examined {
                        presented: examined.presented,
                        result: Err(error),
                    };
                    return self.was_examined(link, examined, ctx);
                }
            }
            return None;
        }
        self.was_examined(link, examined, ctx)
    }

    fn was_examined(&mut self, link: LinkId, examined: Examined, ctx: &mut Ctx) -> Option<Asked> {
        match self.admissions.remove(&link) {
            Some(Waiting::Examined(stranger, _)) => {
                let id = stranger.id;
                let admitted = self.admit_examined(link, *stranger, examined, ctx);
                if let Err(error) = admitted {
                    self.audit_stranger(link, &error, ctx);
                    self.end(link, id, error, ctx);
                }
                None
            }
            _ => self.renewal_examined(link, examined, ctx),
        }
    }

    /// Where it is noted that a client waits for this.
    fn waits_for_examination(&mut self, link: LinkId, job: JobId) -> Option<&mut Looked> {
        let of_stranger = match self.admissions.get_mut(&link) {
            Some(Waiting::Examined(_, waits)) => Some(waits),
            _ => None,
        };
        let renewal = self
            .links
            .get_mut(&link)
            .and_then(|session| session.renewal.as_mut());
        let waits = of_stranger.or(renewal);
        waits.filter(|waits| waits.job == job)
    }

    fn admit_examined(
        &mut self,
        link: LinkId,
        stranger: Stranger,
        examined: Examined,
        ctx: &mut Ctx,
    ) -> Result<(), Refused> {
        let Some(session) = self.links.get(&link) else {
            return Ok(());
        };
        let verified = examined.result?;
        let Stranger {
            hello,
            id,
            features,
        } = stranger;
        let stripes = hello.stripes.0;
        let proved = self.trusted.examined(hello, verified, &session.peer, ctx)?;
        self.refuse_admission(&proved, ctx)?;
        let admission = Admission {
            identity: proved,
            id,
            features,
            stripes,
        };
        self.welcome(link, admission, ctx);
        Ok(())
    }

    fn renewal_examined(
        &mut self,
        link: LinkId,
        examined: Examined,
        ctx: &mut Ctx,
    ) -> Option<Asked> {
        let session = self.links.get_mut(&link)?;
        session.renewal = None;
        let Session {
            stage: Stage::Open(identity),
            peer,
            ..
        } = session
        else {
            return None;
        };
        let examined = examined.result;
        let renewed = examined
            .and_then(|verified| self.trusted.renew_examined(identity, verified, peer, ctx));
        if let Err(error) = &renewed
            && error.retryable
            && error.code != ErrorCode::CredentialExpired
        {
            ctx.report(format!("{}: {}", identity.access, error.message));
        }
        self.renewed_by_others(link, renewed, ctx)
    }

    /// As [`Sessions::renewed`]. What may be presented again, or is the present one, which is over, is no reason to
    /// come anew: that one stays, and is good for as long as it is.
    pub(super) fn renewed_by_others(
        &mut self,
        link: LinkId,
        renewed: Result<Renewed, Refused>,
        ctx: &mut Ctx,
    ) -> Option<Asked> {
        match renewed {
            Err(error) if error.retryable && !ctx.planted(Fault::LaterIsRefused) => {
                self.say_how_long(link, Said::default(), ctx);
                None
            }
            renewed => self.renewed(link, renewed, ctx),
        }
    }

    /// Whose credentials are taken besides has changed: connections whose clients were let in by what is not so
    /// any more end, and come anew.
    pub fn issuers_changed(&mut self, change: &IssuersChange, ctx: &mut Ctx) {
        ctx.audit(Audited::Rules, audit::others(&change.known));
        if change.changed.is_empty() {
            return;
        }
        self.under_way.first_good = ctx.next_id();
        let is_of_them = |session: &Session| {
            let credential = session.identity()?.access.credential.as_ref()?;
            let issuer = &credential.issued()?.issuer;
            change.changed.contains(issuer).then_some(())
        };
        let ended = self.links.iter();
        let ended = ended.filter(|(_, session)| is_of_them(session).is_some());
        for link in ended.map(|(link, _)| *link).collect::<Vec<_>>() {
            let why = "what credentials of its issuer are good for has changed: connect anew";
            self.audit_of(link, Audited::Revoke, why, ctx);
            let error = ErrorReply::retryable(ErrorCode::Cancelled, 0, why);
            self.end(link, 0, error, ctx);
        }
    }

    /// Whether another credential took the place of a client's, or why not. Returns what there is to be done besides.
    pub(super) fn renewed(
        &mut self,
        link: LinkId,
        renewed: Result<Renewed, Refused>,
        ctx: &mut Ctx,
    ) -> Option<Asked> {
        let session = self.links.get_mut(&link)?;
        let Stage::Open(identity) = &session.stage else {
            return None;
        };
        let mut goes_on = false;
        if renewed.is_ok() {
            let rates = super::credential::rates(identity, ctx);
            ctx.paces.bind(link, rates, ctx.now.monotonic);
            session.expiry = Expiry::default();
            goes_on = ctx.paused.end(link, Pause::Expired);
        }
        let said = match renewed {
            Ok(Renewed { is_new, issued }) => {
                if is_new {
                    self.audit_of(link, Audited::Renew, "", ctx);
                }
                Said {
                    issued,
                    ..Said::default()
                }
            }
            Err(error) => {
                self.audit_of(link, Audited::Refuse, &error.message, ctx);
                Said {
                    refused: error.message,
                    ..Said::default()
                }
            }
        };
        self.say_how_long(link, said, ctx);
        self.arm(link, ctx);
        goes_on.then_some(Asked::Deliveries)
    }
}
