//! Where a client comes from.

use crate::ctx::Ctx;
use access::Origin;
use core::net::SocketAddr;
use net::Peer;

/// Where a client comes from: an address of the network, or this host.
pub(super) fn origin(peer: &Peer, ctx: &Ctx) -> Origin {
    let address = peer.address.rsplit_once("://");
    let address = address.map_or(peer.address.as_str(), |(_, address)| address);
    Origin {
        address: address.parse().ok().map(|address: SocketAddr| address.ip()),
        instance: ctx.options.directory_id,
    }
}
