//! Credentials of connections: what lets a client in, how long that is good, and how another one
//! takes its place.

use super::certificate;
use super::origin::origin;
use super::used::{Standing, Used};
use crate::ctx::Ctx;
use crate::faults::Fault;
use crate::identity::{Identity, Proof};
use crate::ids::{LinkId, Now};
use crate::pace::{Direction, Payer, Rate, Whose};
use crate::refusal::{Refused, refuse};
use access::{AtBound, Bound, Missing, Quota, Quotas, Token, TokenId, Trust, UnixTime};
use bytes::Bytes;
use net::Peer;
use std::sync::Arc;
use std::time::Duration;
use wire::message::{
    ACCESS_TOKEN, Authenticate, Authenticated, CERTIFICATE, Hello, ISSUED, RENEW_CERTIFICATE,
};
use wire::{ErrorCode, ErrorReply, SessionId};

/// When to come again with another credential, of a client whose credential is over.
const RETRY_MS: u32 = 1000;

/// Whom the server believes.
#[derive(Default)]
pub(super) struct Trusted {
    trust: Arc<Trust>,
    /// Tokens for one session that were presented.
    used: Used,
}

/// A client that has proved who it is.
pub(super) struct Proved {
    pub identity: Identity,
    /// The token for one session that it is the first to present.
    once: Option<TokenId>,
}

impl Trusted {
    pub fn new(used: Used, ctx: &Ctx) -> Self {
        Self {
            trust: ctx.options.trust.clone(),
            used,
        }
    }

    pub fn trust(&self) -> &Trust {
        &self.trust
    }

    pub fn set_trust(&mut self, trust: Arc<Trust>) {
        self.trust = trust;
    }

    /// Why the credential of somebody who was let in is none any more.
    pub fn revoked(&self, identity: &access::Identity) -> Option<String> {
        let credential = identity.credential.as_ref()?;
        let id = self.trust.revoked_of(credential.ids())?;
        Some(format!(
            "{credential} was revoked, or one that it was made from: {id}"
        ))
    }

    /// Lets in whoever shows a token of a project, as its member; this process itself, the owner's
    /// processes where the kernel vouches for them, and whoever shows the server's token, as the
    /// owner.
    pub fn authenticate(&self, hello: Hello, peer: &Peer, ctx: &Ctx) -> Result<Proved, Refused> {
        let options = &ctx.options;
        let known = match hello.mechanism.as_str() {
            ACCESS_TOKEN => {
                let (access, once) = self.admit(&hello.proof, peer, hello.session, ctx)?;
                Some((Proof::AccessToken, access, once))
            }
            // What Hello names counts, and nothing else that the client has shown.
            CERTIFICATE => {
                let access = certificate::admit(&peer.certificates, &self.trust, peer, ctx)?;
                Some((Proof::Certificate, access, None))
            }
            _ => None,
        };
        if let Some((proof, access, once)) = known {
            let project = match &access.subject {
                access::Subject::Member(project) => project.clone(),
                access::Subject::Owner => String::new(),
            };
            if !hello.namespace.is_empty() && hello.namespace != project {
                return Err(foreign(&access, &hello.namespace));
            }
            let identity = Identity {
                proof,
                access,
                namespace: project,
                client_name: hello.client_name,
                session: hello.session,
            };
            return Ok(Proved { identity, once });
        }
        let proof = match peer.uid {
            _ if peer.in_process => Proof::InProcess,
            Some(_) if peer.uid == options.owner_uid => Proof::Owner,
            _ if hello.mechanism == "token" && same(&hello.proof, &options.token) => Proof::Token,
            _ => {
                let reason = match hello.mechanism.as_str() {
                    "token" => {
                        "the token is not this server's: its present group file has it".into()
                    }
                    "" => "the server asks for a token: give its group file, or the token in it"
                        .into(),
                    other => {
                        format!(
                            "mechanism {other:?} is not known; token, {ACCESS_TOKEN}, {ISSUED} and \
                             {CERTIFICATE} are"
                        )
                    }
                };
                return Err(refuse(ErrorCode::NotAuthenticated, reason));
            }
        };
        let grants = ctx.rules.grants.clone();
        let identity = Identity {
            proof,
            access: access::Identity::owner(origin(peer, ctx), grants),
            namespace: hello.namespace,
            client_name: hello.client_name,
            session: hello.session,
        };
        Ok(Proved {
            identity,
            once: None,
        })
    }

    /// Remembers that a client has used its token, if it is the first with one for one session. False
    /// if there is nothing to be remembered; else it is let in by [`Trusted::kept`].
    pub fn remember(&mut self, link: LinkId, proved: &Proved, ctx: &mut Ctx) -> bool {
        let Some(id) = proved.once.filter(|_| !ctx.planted(Fault::UsedForgotten)) else {
            return false;
        };
        let identity = &proved.identity;
        if let Some(credential) = &identity.access.credential {
            let session = identity.session;
            self.used.take(link, id, credential, session, ctx);
        }
        true
    }

    /// What is remembered of used tokens was written, or not. Returns who waited for it.
    pub fn kept(&mut self, is_kept: bool, ctx: &mut Ctx) -> Vec<LinkId> {
        self.used.kept(is_kept, ctx)
    }

    /// Who presents the text of a token, and which one for one session that is new.
    fn admit(
        &self,
        text: &[u8],
        peer: &Peer,
        session: SessionId,
        ctx: &Ctx,
    ) -> Result<(access::Identity, Option<TokenId>), Refused> {
        let refused = |why: String| refuse(ErrorCode::NotAuthenticated, why);
        let text = std::str::from_utf8(text).map_err(|_| refused("this is no token".into()))?;
        let token = Token::from_text(text).map_err(|error| refused(error.to_string()))?;
        let verified = token.verify(&self.trust);
        let verified = verified.map_err(|error| refused(error.to_string()))?;
        let identity = verified.identity(origin(peer, ctx), ctx.rules.grants.clone());
        let now = UnixTime(ctx.now.unix_ns);
        check_now(&identity, ctx)?;
        let credential = identity.credential.as_ref();
        let credential = credential.expect("a token is a credential");
        let once = match credential.once() {
            Some(id) => match self.used.stand(id, credential, session, now)? {
                Standing::First | Standing::Coming => Some(id),
                Standing::Known => None,
            },
            None => None,
        };
        Ok((identity, once))
    }

    /// Lets in somebody for whom another issuer vouches, as was found.
    ///
    /// # Errors
    /// If that counts no more, or not from where they come, or not for the namespace that they name.
    pub fn examined(
        &self,
        hello: Hello,
        verified: access::Verified,
        peer: &Peer,
        ctx: &Ctx,
    ) -> Result<Identity, Refused> {
        let project = verified.project().to_owned();
        let access = self.believed(verified, peer, ctx)?;
        if !hello.namespace.is_empty() && hello.namespace != project {
            return Err(foreign(&access, &hello.namespace));
        }
        Ok(Identity {
            proof: Proof::Issued,
            access,
            namespace: project,
            client_name: hello.client_name,
            session: hello.session,
        })
    }

    /// Takes what another issuer vouches for in the place of a client's present credential.
    ///
    /// # Errors
    /// Why it does not count; the present one stays.
    pub fn renew_examined(
        &self,
        identity: &mut Identity,
        verified: access::Verified,
        peer: &Peer,
        ctx: &Ctx,
    ) -> Result<Renewed, Refused> {
        let fresh = self.believed(verified, peer, ctx)?;
        let is_new = take_over(identity, fresh, Proof::Issued)?;
        let issued = Vec::new();
        Ok(Renewed { is_new, issued })
    }

    /// Somebody for whom another issuer vouches, if that was not revoked, and counts here and now.
    fn believed(
        &self,
        verified: access::Verified,
        peer: &Peer,
        ctx: &Ctx,
    ) -> Result<access::Identity, Refused> {
        let identity = verified.identity(origin(peer, ctx), ctx.rules.grants.clone());
        if let Some(why) = self.revoked(&identity) {
            return Err(refuse(ErrorCode::NotAuthenticated, why));
        }
        check_now(&identity, ctx)?;
        Ok(identity)
    }

    /// Takes another credential in the place of a client's present one. Returns whether it is another one, and
    /// the certificates that were asked for.
    ///
    /// # Errors
    /// Why it does not count; the present one stays.
    pub fn renew(
        &self,
        identity: &mut Identity,
        asked: &Authenticate,
        peer: &Peer,
        ctx: &Ctx,
    ) -> Result<Renewed, Refused> {
        let refused = |why: String| refuse(ErrorCode::NotAuthenticated, why);
        let (proof, fresh, once, issued) = match asked.mechanism.as_str() {
            ACCESS_TOKEN => {
                let (fresh, once) = self.admit(&asked.proof, peer, identity.session, ctx)?;
                (Proof::AccessToken, fresh, once, Vec::new())
            }
            CERTIFICATE => {
                let fresh = certificate::present(&asked.proof, &self.trust, peer, ctx)?;
                (Proof::Certificate, fresh, None, Vec::new())
            }
            RENEW_CERTIFICATE if identity.proof == Proof::Certificate => {
                let now = UnixTime(ctx.now.unix_ns);
                let is_good = identity.access.check(now);
                is_good.map_err(|denied| refused(denied.to_string()))?;
                let (issued, fresh) = certificate::renew(&self.trust, peer, ctx)?;
                (Proof::Certificate, fresh, None, issued)
            }
            other => {
                return Err(refused(format!(
                    "mechanism {other:?} is not known here; {ACCESS_TOKEN}, {ISSUED}, {CERTIFICATE} and, by \
                     whom a certificate has let in, {RENEW_CERTIFICATE} are"
                )));
            }
        };
        if once.is_some() {
            return Err(refused(format!(
                "{fresh} is for one session, which begins with a connection: connect anew with it"
            )));
        }
        let is_new = take_over(identity, fresh, proof)?;
        Ok(Renewed { is_new, issued })
    }
}

/// What came of another credential.
#[derive(Debug)]
pub(super) struct Renewed {
    /// Whether it is another one than before.
    pub is_new: bool,
    /// The certificates that were asked for.
    pub issued: Vec<Bytes>,
}

fn take_over(
    identity: &mut Identity,
    fresh: access::Identity,
    proof: Proof,
) -> Result<bool, Refused> {
    let present = &identity.access;
    // What was begun under the one before goes on under this one: it must allow just that.
    if !present.has_rights_of(&fresh) {
        return Err(refuse(
            ErrorCode::NotAuthenticated,
            format!(
                "{fresh} allows something else than {present}, by which the connection was \
                 opened: connect anew with it"
            ),
        ));
    }
    let is_new = *present != fresh;
    identity.access = fresh;
    identity.proof = proof;
    Ok(is_new)
}

/// Whether a credential is good for anything now.
fn check_now(identity: &access::Identity, ctx: &Ctx) -> Result<(), Refused> {
    let checked = identity.check(UnixTime(ctx.now.unix_ns));
    checked.map_err(|denied| match denied.missing {
        Missing::Expired(_) => {
            ErrorReply::retryable(ErrorCode::CredentialExpired, RETRY_MS, denied.to_string())
        }
        _ => refuse(ErrorCode::NotAuthenticated, denied.to_string()),
    })
}

fn foreign(access: &access::Identity, namespace: &str) -> Refused {
    refuse(
        ErrorCode::NotAuthorized,
        format!("{access} has no names of namespace {namespace:?}: ask without one"),
    )
}

/// The quotas that a client is held to, and whose they are.
pub(super) fn quotas<'a>(identity: &Identity, quotas: &'a Quotas) -> Vec<(Whose, &'a Quota)> {
    let mut found = Vec::new();
    if let Some(project) = identity.project() {
        let quota = quotas.of(project);
        found.push((Whose::Project(project.to_owned()), quota));
    }
    let credential = identity.access.credential.iter();
    for id in credential.flat_map(|credential| credential.ids()) {
        let quota = quotas.tokens.get(id);
        found.extend(quota.map(|quota| (Whose::Token(*id), quota)));
    }
    found
}

/// The rates that the holder of a credential is held to.
pub(super) fn rates(identity: &Identity, ctx: &Ctx) -> Vec<Rate> {
    let mut rates = Vec::new();
    if ctx.planted(Fault::NoQuota) {
        return rates;
    }
    let ways = [
        (Direction::In, Bound::BytesInPerSecond),
        (Direction::Out, Bound::BytesOutPerSecond),
    ];
    for (whose, quota) in quotas(identity, &ctx.rules.quotas) {
        for (direction, bound) in ways {
            rates.extend(quota.most(bound).map(|bytes_per_second| Rate {
                payer: Payer::Quota(whose.clone()),
                direction,
                bytes_per_second,
                // Deliveries are asked for by nobody who could be told.
                at_bound: match direction {
                    Direction::In => quota.at_bound,
                    Direction::Out => AtBound::Wait,
                },
            }));
        }
    }
    let credential = identity.access.credential.iter();
    for (id, limits) in credential.flat_map(|one| one.ids().iter().zip(one.limits())) {
        for (direction, _) in ways {
            rates.extend(limits.bytes_per_second.map(|bytes_per_second| Rate {
                payer: Payer::Token(*id),
                direction,
                bytes_per_second,
                at_bound: AtBound::Wait,
            }));
        }
    }
    rates
}

/// How far a client was told of the end of its credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Expiry {
    /// Nothing but when it is.
    #[default]
    Far,
    /// That it is near.
    Near,
    /// That it has come; the connection goes on for a while.
    Come,
}

/// What is to be done about a credential.
pub(super) enum Next {
    Nothing,
    /// Its client is told how long it is good.
    Say,
    /// Its connection ends.
    End(ErrorReply),
}

impl Expiry {
    /// When a credential is to be looked at.
    pub fn timer(self, identity: &access::Identity, ctx: &Ctx) -> Option<Duration> {
        let limits = &ctx.options.limits;
        let (left, past) = left_and_past(identity.expires()?, ctx.now);
        let wait = match self {
            Self::Far => left.saturating_sub(limits.credential_warning),
            Self::Near => left,
            Self::Come if ctx.planted(Fault::NeverExpires) => return None,
            Self::Come => (left + limits.credential_grace).saturating_sub(past),
        };
        Some(ctx.now.monotonic.saturating_add(wait))
    }

    /// What is to be done about a credential now.
    pub fn look(&mut self, identity: &access::Identity, ctx: &Ctx) -> Next {
        let Some(expires) = identity.expires() else {
            return Next::Nothing;
        };
        let limits = &ctx.options.limits;
        let (left, past) = left_and_past(expires, ctx.now);
        let is_over = left.is_zero() && past >= limits.credential_grace;
        if is_over && !ctx.planted(Fault::NeverExpires) {
            return Next::End(expired(identity, ctx));
        }
        let reached = match () {
            () if left.is_zero() => Self::Come,
            () if left <= limits.credential_warning => Self::Near,
            () => Self::Far,
        };
        match std::mem::replace(self, reached) == reached {
            true => Next::Nothing,
            false => Next::Say,
        }
    }
}

pub(super) fn expired(identity: &access::Identity, ctx: &Ctx) -> ErrorReply {
    let denied = identity.check(UnixTime(ctx.now.unix_ns)).err();
    let why = denied.map_or_else(String::new, |denied| denied.to_string());
    ErrorReply::retryable(ErrorCode::CredentialExpired, RETRY_MS, why)
}

/// How long it is until a time, and since it; one of them is nothing.
fn left_and_past(at: UnixTime, now: Now) -> (Duration, Duration) {
    let left = Duration::from_nanos(at.0.saturating_sub(now.unix_ns));
    let past = Duration::from_nanos(now.unix_ns.saturating_sub(at.0));
    (left, past)
}

/// What a client hears beside how long its credential is good.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// Why what it presented does not count.
    pub refused: String,
    /// The certificates that it asked for.
    pub issued: Vec<Bytes>,
}

pub(super) fn said_of(identity: &access::Identity, said: Said, ctx: &Ctx) -> Authenticated {
    let Said { refused, issued } = said;
    let Some(expires) = identity.expires() else {
        return Authenticated {
            expires_in_ms: u64::MAX,
            renew_in_ms: u64::MAX,
            refused,
            message: String::new(),
            issued,
        };
    };
    let (left, _) = left_and_past(expires, ctx.now);
    let grace = ctx.options.limits.credential_grace.as_secs();
    let message = match left.is_zero() {
        true => format!(
            "{} expired at {expires}: nothing new is done, and the connection ends {grace} s later, \
             unless another one is presented",
            identity
        ),
        false => format!("{} expires at {expires}", identity),
    };
    Authenticated {
        expires_in_ms: left.as_millis() as u64,
        renew_in_ms: renew_in(identity, left, ctx.now).as_millis() as u64,
        refused,
        message,
        issued,
    }
}

/// When two thirds of the life of a credential are over: of all of it, where it says when it began.
fn renew_in(identity: &access::Identity, left: Duration, now: Now) -> Duration {
    match identity.begins() {
        Some(begins) => {
            let (_, past) = left_and_past(begins, now);
            ((left + past) * 2 / 3).saturating_sub(past)
        }
        None => left * 2 / 3,
    }
}

/// Compares in a time that does not depend on where the bytes differ.
pub(super) fn same(given: &[u8], token: &[u8; 32]) -> bool {
    if given.len() != token.len() {
        return false;
    }
    let differing = given.iter().zip(token).fold(0, |sum, (a, b)| sum | (a ^ b));
    std::hint::black_box(differing) == 0
}
