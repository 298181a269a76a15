//! Whether a Hello is one that this server can serve, whoever says it.

use super::Sessions;
use super::names::check_names;
use super::waiting::{Admission, Stranger, Waiting};
use crate::ctx::Ctx;
use crate::ids::LinkId;
use crate::refusal::{Refused, malformed, refuse};
use net::Received;
use wire::message::{FEATURES, Hello, ISSUED, PAIRING, PROTOCOL_VERSION, Role, STRIPE};
use wire::{Codec, DirectoryId, ErrorCode};

impl Sessions {
    /// A client says who it is.
    pub(super) fn hello(
        &mut self,
        link: LinkId,
        message: &Received,
        ctx: &mut Ctx,
    ) -> Result<(), Refused> {
        let hello = Hello::from_bytes("hello", &message.head).map_err(malformed)?;
        check_hello(&hello, ctx)?;
        if hello.mechanism == PAIRING {
            return self.pair(link, message.id, &hello.proof, ctx);
        }
        if hello.role == Role::BulkStripe {
            return self.join(link, message.id, &hello, ctx);
        }
        self.introduce(link, message.id, hello, ctx)
    }

    /// A client of another protocol says who it is.
    pub(super) fn foreign_hello(
        &mut self,
        link: LinkId,
        hello: Hello,
        ctx: &mut Ctx,
    ) -> Result<(), Refused> {
        check_hello(&hello, ctx)?;
        if hello.mechanism == PAIRING || hello.role == Role::BulkStripe {
            let why = "a client of another protocol is paired elsewhere, and has one connection";
            return Err(refuse(ErrorCode::Unsupported, why));
        }
        self.introduce(link, 0, hello, ctx)
    }

    /// Lets a client in that can be served, or finds out whether it is to be.
    fn introduce(
        &mut self,
        link: LinkId,
        id: u64,
        hello: Hello,
        ctx: &mut Ctx,
    ) -> Result<(), Refused> {
        let features = (hello.features_required | hello.features_optional) & FEATURES;
        if hello.mechanism == ISSUED {
            let stranger = Stranger {
                hello,
                id,
                features,
            };
            return self.examine(link, stranger, ctx);
        }
        let peer = self.get(link).map(|session| session.peer.clone());
        let peer = peer.unwrap_or_default();
        let stripes = hello.stripes.0;
        let proved = self.trusted.authenticate(hello, &peer, ctx)?;
        self.refuse_admission(&proved.identity, ctx)?;
        let waits = self.trusted.remember(link, &proved, ctx);
        let admission = Admission {
            identity: proved.identity,
            id,
            features,
            stripes,
        };
        match waits {
            true => {
                let waiting = Waiting::Used(Box::new(admission));
                self.admissions.insert(link, waiting);
            }
            false => self.welcome(link, admission, ctx),
        }
        Ok(())
    }
}

/// Refuses a client that this server cannot serve.
fn check_hello(hello: &Hello, ctx: &Ctx) -> Result<(), Refused> {
    let (least, greatest) = (hello.version_min, hello.version_max);
    if !(least..=greatest).contains(&PROTOCOL_VERSION) {
        let own = &ctx.options.server_version;
        let advice = match greatest < PROTOCOL_VERSION {
            true => {
                format!("the client is older: update it to Thalweg {own}, the server's version")
            }
            false => "the server is older: update it to the client's version of Thalweg".to_owned(),
        };
        return Err(refuse(
            ErrorCode::Unsupported,
            format!(
                "the client speaks protocol {least} to {greatest}, this server {PROTOCOL_VERSION}; \
                 {advice}"
            ),
        ));
    }
    let features = hello.features_required & !FEATURES;
    if features != 0 {
        return Err(refuse(
            ErrorCode::Unsupported,
            format!("required features {features:#x} are not known to this server"),
        ));
    }
    let own = ctx.options.directory_id;
    if hello.directory != DirectoryId(0) && hello.directory != own {
        let expected = hello.directory;
        return Err(refuse(
            ErrorCode::WrongServer,
            format!("the client expects data directory {expected}, this server owns {own}"),
        ));
    }
    check_names(&hello.namespace, &hello.client_name)?;
    let is_stripe = hello.role == Role::BulkStripe;
    if is_stripe != (hello.mechanism == STRIPE) {
        return Err(refuse(
            ErrorCode::Unsupported,
            "a further connection of a session has the role of a bulk stripe and the mechanism \"stripe\"",
        ));
    }
    Ok(())
}
