//! What an address says of the way there: who hears what goes by it, and whom it trusts.

/// An address of TLS with the trust of another one's, if it says none of its own.
pub(super) fn trusted_as(address: String, other: &str) -> String {
    match other.split_once('?') {
        Some((_, trust)) if is_tls(&address) && is_tls(other) && !address.contains('?') => {
            format!("{address}?{trust}")
        }
        _ => address,
    }
}

/// Whether an address is a socket of this host, which nobody else hears.
pub(super) fn is_socket(address: &str) -> bool {
    address.starts_with("unix://") || address.starts_with("shm://")
}

pub(super) fn is_tls(address: &str) -> bool {
    address.starts_with("tls://")
}

/// Whether both addresses are of one transport. What was presented at one of them is as safe on the way to the other.
pub(super) fn is_alike(address: &str, other: &str) -> bool {
    match (address.split_once("://"), other.split_once("://")) {
        (Some((scheme, _)), Some((other, _))) => scheme == other,
        _ => false,
    }
}
