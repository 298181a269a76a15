//! Further connections of a session, which carry some of its bytes. A session says in its Hello that it would have
//! them, and has a key in its Welcome; who shows that key joins.
//!
//! ```text
//!  Welcome with a key ──► chunks ──Hello of role 1, right key──► one connection more, which is none of the node's
//!                                      └── wrong key, no such session, too many ──► refused, as a wrong token is
//! ```

use super::Sessions;
use super::connection::Stripes;
use super::credential::same;
use crate::ctx::Ctx;
use crate::faults::Fault;
use crate::ids::LinkId;
use crate::io::Output;
use crate::refusal::{Refused, refuse};
use crate::timers::Timer;
use bytes::Bytes;
use net::Message;
use wire::codec::{Appended, Codec};
use wire::frame::FrameKind;
use wire::message::{FEATURE_STRIPES, Hello, PROTOCOL_VERSION, STRIPES_MAX, Secret, Welcome};
use wire::{ErrorCode, SessionId};

impl Sessions {
    /// Lets a client that was let in have further connections, if it asks for them and its transport can. Returns
    /// the features, how many it may have, and their key.
    pub(super) fn grant_stripes(
        &mut self,
        link: LinkId,
        features: u64,
        asked: u8,
        ctx: &mut Ctx,
    ) -> (u64, u8, Secret) {
        let id = self.id(link);
        let most = asked.min(STRIPES_MAX);
        let session = self.get_mut(link);
        let session = session.filter(|session| {
            features & FEATURE_STRIPES != 0
                && most >= 2
                && session.carries.is_some()
                && id != SessionId(0)
        });
        let Some(session) = session else {
            return (features & !FEATURE_STRIPES, 0, Secret::default());
        };
        // Ids of the node can be guessed by who knows others; its token cannot.
        let of = [ctx.options.instance.0, id.0, link.0.into(), ctx.random.id()];
        let key = access::stripe_key(&ctx.options.token, &of);
        session.stripes = Some(Stripes {
            most,
            count: 1,
            key,
        });
        (features, most, Secret(Bytes::copy_from_slice(&key)))
    }

    /// Somebody comes with the key of a session: the connection carries some of its bytes from here on.
    ///
    /// # Errors
    /// If the key is wrong, or the session has as many connections as it may.
    pub(super) fn join(
        &mut self,
        link: LinkId,
        id: u64,
        hello: &Hello,
        ctx: &mut Ctx,
    ) -> Result<(), Refused> {
        let Some(carries) = self.get(link).and_then(|session| session.carries) else {
            let why = "further connections of a session are for tcp:// and tls://";
            return Err(refuse(ErrorCode::Unsupported, why));
        };
        let main = self.latest.get(&hello.session).copied();
        let main = main.filter(|main| self.takes_requests(*main));
        let known = main.and_then(|main| self.get(main)?.stripes.as_ref());
        // A session that is not there takes as long as a wrong key, and is called the same.
        let is_right = same(&hello.proof, known.map_or(&[0; 32], |stripes| &stripes.key));
        let is_any = ctx.planted(Fault::StripeOfAny)
            && self.iter().any(|(_, session)| {
                let stripes = session.stripes.as_ref();
                stripes.is_some_and(|stripes| same(&hello.proof, &stripes.key))
            });
        let is_let_in = is_right || is_any || ctx.planted(Fault::StripeUnproved);
        let session = main.filter(|_| is_let_in);
        let session = session.and_then(|main| Some((main, self.links.get_mut(&main)?)));
        let Some((main, session, stripes)) = session.and_then(|(main, session)| {
            let stripes = session.stripes.as_mut()?;
            Some((main, session.carries, stripes))
        }) else {
            return Err(refuse(
                ErrorCode::NotAuthenticated,
                "no session stands here that has this key: a further connection is for a session that \
                 stands, and is made by its client",
            ));
        };
        // What one of them encrypts, no other one is to show.
        if session != Some(carries) {
            return Err(refuse(
                ErrorCode::NotAuthorized,
                format!("the session is not by {carries}://: its connections are of one kind"),
            ));
        }
        if stripes.count >= stripes.most {
            return Err(refuse(
                ErrorCode::LimitExceeded,
                format!(
                    "the session has {} connections already (stripes)",
                    stripes.count
                ),
            ));
        }
        stripes.count += 1;
        let limits = &ctx.options.limits;
        let welcome = Welcome {
            version: PROTOCOL_VERSION,
            features: FEATURE_STRIPES,
            directory: ctx.options.directory_id,
            instance: ctx.options.instance,
            produce_credit: 0,
            payload_bytes_max: limits.payload_bytes_max,
            heartbeat_ms: limits.heartbeat.as_millis() as u32,
            server_version: ctx.options.server_version.clone(),
            stripes: Appended(stripes.most),
            stripe_key: Appended(Secret::default()),
        };
        // From here on it is a part of the session's connection, and nothing by itself.
        if let Some(timer_at) = self.links.remove(&link).and_then(|stripe| stripe.timer_at) {
            ctx.timers.remove(timer_at, Timer::Session(link));
        }
        ctx.outputs.push_back(Output::Join {
            link: main,
            stripe: link,
            welcome: Message::control(FrameKind::Welcome, id, welcome.to_bytes()),
        });
        Ok(())
    }
}
