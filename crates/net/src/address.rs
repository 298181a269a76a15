//! Addresses: a scheme, `://`, and what the scheme makes of the rest.

use crate::contract::NetError;

/// The scheme of an address and what follows it.
pub(crate) fn split(address: &str) -> Result<(&str, &str), NetError> {
    address.split_once("://").ok_or_else(|| {
        NetError::Address(format!(
            "{address:?} is no address: it has no scheme, as in tcp://127.0.0.1:9000"
        ))
    })
}

/// What follows the scheme, which has to be `scheme`.
pub(crate) fn rest<'a>(scheme: &str, address: &'a str) -> Result<&'a str, NetError> {
    let (found, rest) = split(address)?;
    if found != scheme {
        return Err(NetError::Address(format!(
            "{address} is no address of {scheme}://"
        )));
    }
    Ok(rest)
}
