//! What a client may call itself and its namespace.

use crate::refusal::{Refused, refuse};
use wire::ErrorCode;

/// Refuses names that nothing has.
pub(super) fn check_names(namespace: &str, client_name: &str) -> Result<(), Refused> {
    let names =
        topic::check_namespace(namespace).and_then(|()| topic::check_client_name(client_name));
    names.map_err(|error| refuse(ErrorCode::Malformed, error.to_string()))
}
