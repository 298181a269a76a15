//! Clients that have proved who they are, and are let in.

use super::Sessions;
use super::connection::Language;
use super::credential::Said;
use super::used::not_kept;
use super::waiting::{Admission, Waiting};
use crate::answer::ClientOutput;
use crate::ctx::Ctx;
use crate::ids::LinkId;
use crate::io::Output;
use crate::refusal::refuse;
use log::DiskError;
use net::Message;
use wire::codec::Appended;
use wire::frame::FrameKind;
use wire::message::{PROTOCOL_VERSION, Welcome};
use wire::{Codec, ErrorCode};

impl Sessions {
    /// What is remembered of used tokens was written, or not: who waited for it is let in, or not.
    pub(super) fn used_kept(&mut self, result: Result<(), DiskError>, ctx: &mut Ctx) {
        for link in self.trusted.kept(result.is_ok(), ctx) {
            match (self.admissions.remove(&link), &result) {
                (Some(Waiting::Used(admission)), Ok(())) => self.welcome(link, *admission, ctx),
                (Some(Waiting::Used(admission)), Err(error)) => {
                    let error = not_kept(error);
                    self.audit_stranger(link, &error, ctx);
                    self.end(link, admission.id, error, ctx);
                }
                // It is gone.
                (Some(Waiting::Examined(..)) | None, _) => {}
            }
        }
    }

    /// Lets a client in.
    pub(super) fn welcome(&mut self, link: LinkId, admission: Admission, ctx: &mut Ctx) {
        let Admission {
            mut identity,
            id,
            features,
            stripes,
        } = admission;
        // What was changed while it waited counts.
        identity.access.grants = ctx.rules.grants.clone();
        if let Some(why) = self.trusted.revoked(&identity.access) {
            let error = refuse(ErrorCode::NotAuthenticated, why);
            self.audit_stranger(link, &error, ctx);
            return self.end(link, id, error, ctx);
        }
        let produce_credit = self.open(link, identity, ctx);
        self.audit_connect(link, ctx);
        if self.language(link) == Language::Foreign {
            let welcome = ClientOutput::Welcome {
                produce_credit,
                namespace: self.namespace(link).to_owned(),
            };
            super::send_decoded(link, welcome, ctx);
            if self.is_draining {
                self.say_go_away(link, ctx);
            }
            return;
        }
        let (features, stripes, stripe_key) = self.grant_stripes(link, features, stripes, ctx);
        let limits = &ctx.options.limits;
        let welcome = Welcome {
            version: PROTOCOL_VERSION,
            features,
            directory: ctx.options.directory_id,
            instance: ctx.options.instance,
            produce_credit,
            payload_bytes_max: limits.payload_bytes_max,
            heartbeat_ms: limits.heartbeat.as_millis() as u32,
            server_version: ctx.options.server_version.clone(),
            stripes: Appended(stripes),
            stripe_key: Appended(stripe_key),
        };
        let message = Message::control(FrameKind::Welcome, id, welcome.to_bytes());
        self.send(link, message, ctx);
        if stripes > 0 {
            // All that follows is in chunks.
            ctx.outputs.push_back(Output::Stripe { link });
        }
        let identity = self.identity(link);
        if identity.is_some_and(|identity| identity.access.expires().is_some()) {
            self.say_how_long(link, Said::default(), ctx);
        }
        if self.is_draining {
            self.say_go_away(link, ctx);
        }
    }
}
