//! Whether a Hello is one that this server can serve, whoever says it.

use crate::ctx::Ctx;
use crate::refusal::{Refused, refuse};
use wire::message::{FEATURES, Hello, PROTOCOL_VERSION, Role};
use wire::{DirectoryId, ErrorCode};

/// Refuses a client that this server cannot serve.
pub(super) fn check_hello(hello: &Hello, ctx: &Ctx) -> Result<(), Refused> {
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
    if hello.role != Role::Control {
        return Err(refuse(
            ErrorCode::Unsupported,
            "bulk stripes are not supported",
        ));
    }
    Ok(())
}

pub(super) fn check_names(namespace: &str, client_name: &str) -> Result<(), Refused> {
    let names =
        topic::check_namespace(namespace).and_then(|()| topic::check_client_name(client_name));
    names.map_err(|error| refuse(ErrorCode::Malformed, error.to_string()))
}
