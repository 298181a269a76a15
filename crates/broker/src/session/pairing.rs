//! Pairing: who has a one-time code gets a certificate.
//!
//! ```text
//!  OfferPairing ──► Offered ──Hello `pairing`, right proof──► certificate given, code forgotten
//!                      └── 10 minutes, or 100 wrong proofs ──► forgotten
//! ```
//!
//! A code lives in memory alone: a server that starts has none. Who pairs is no client: the connection ends with the
//! certificate, by which another one is let in.

use super::Sessions;
use super::certificate::settings;
use super::offers::OFFERS_MAX;
use crate::answer::Answer;
use crate::audit::{self, Audited};
use crate::certificates::Certified;
use crate::ctx::Ctx;
use crate::ids::{LinkId, RequestId};
use crate::refusal::{Refused, malformed, refuse};
use access::{CODE_LASTS, Holder, Pairing, UnixTime, prove_pairing};
use net::Message;
use std::time::Duration;
use wire::ErrorCode;
use wire::codec::Codec;
use wire::frame::FrameKind;
use wire::message::{OfferPairing, Pair, Paired, PairingOffered};

/// How long a certificate may be good, and how short.
const LIFE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
const LIFE_MIN: Duration = Duration::from_secs(3);

impl Sessions {
    /// Gives out a code. The caller may administer the server.
    pub fn offer(
        &mut self,
        caller: RequestId,
        asked: &OfferPairing,
        ctx: &mut Ctx,
    ) -> Result<(), Refused> {
        let settings = settings(ctx)?;
        let invalid = |why: String| refuse(ErrorCode::Unsupported, why);
        let holder = Holder::new(&settings.site, &asked.project, &asked.name).map_err(invalid)?;
        let life = Duration::from_millis(asked.life_ms);
        if !(LIFE_MIN..=LIFE_MAX).contains(&life) {
            return Err(refuse(
                ErrorCode::Unsupported,
                format!(
                    "a certificate is good for {} s to {} days, and not for {life:?}",
                    LIFE_MIN.as_secs(),
                    LIFE_MAX.as_secs() / (24 * 3600)
                ),
            ));
        }
        let code = settings.certifier.new_code();
        let code = code.map_err(|why| refuse(ErrorCode::Internal, why))?;
        let offered = PairingOffered {
            code: code.to_text(),
            holder: holder.uri(),
            lasts_ms: CODE_LASTS.as_millis() as u64,
        };
        if !self.offers.add(code, holder, life, ctx) {
            return Err(refuse(
                ErrorCode::LimitExceeded,
                format!(
                    "{OFFERS_MAX} codes are waiting to be used: wait until one is, or 10 minutes"
                ),
            ));
        }
        ctx.answer(caller, Answer::PairingOffered(offered));
        Ok(())
    }

    /// Somebody comes with a code, on a connection that nothing else is done on.
    pub(super) fn pair(
        &mut self,
        link: LinkId,
        id: u64,
        proof: &[u8],
        ctx: &mut Ctx,
    ) -> Result<(), Refused> {
        let pair = Pair::from_bytes("pairing", proof).map_err(malformed)?;
        let settings = settings(ctx)?.clone();
        let shown = settings.shown.current().certificates();
        let server = shown.first().cloned().unwrap_or_default();
        let offered = self.offers.take(&server, &pair, ctx).ok_or_else(|| {
            refuse(
                ErrorCode::NotAuthenticated,
                "the code is wrong, was used, or its 10 minutes are over; or somebody in between shows \
                 another certificate than this server's: make another one with `thalweg pair offer`",
            )
        })?;
        let now = UnixTime(ctx.now.unix_ns);
        let request = Certified::Request(&pair.request);
        let made = settings
            .certifier
            .certify(request, &offered.holder, now, offered.life);
        let certificates = made.map_err(|why| {
            let why = format!("the request for a certificate: {why}; the code is used up");
            refuse(ErrorCode::Unsupported, why)
        })?;
        let own = certificates.first().cloned().unwrap_or_default();
        if let Some(session) = self.links.get(&link) {
            let mut fields = audit::from(&session.peer.address);
            fields = audit::with(fields, "who", &offered.holder.uri());
            if let Ok(made) = access::Certificate::read(&own) {
                fields = audit::with(fields, "certificate", &made.ids()[0].to_string());
                fields = audit::with(fields, "expires", &made.expires().to_string());
            }
            ctx.audit(Audited::Pair, fields);
        }
        let paired = Paired {
            proof: prove_pairing(&offered.code, &server, Pairing::Offers(&own))
                .to_vec()
                .into(),
            holder: offered.holder.uri(),
            life_ms: offered.life.as_millis() as u64,
            certificates,
        };
        self.send(
            link,
            Message::control(FrameKind::Reply, id, paired.to_bytes()),
            ctx,
        );
        self.close(link, "it was paired".to_owned(), ctx);
        Ok(())
    }
}
