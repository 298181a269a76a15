//! The transport contract and the transports of one host and one network:
//! in-process, unix socket, TCP, TLS. On top of it: calls and the reactor.
//!
//! Knows nothing of topics, logs or who plays server.

#![forbid(unsafe_code)]

mod address;
mod bucket;
mod bundle;
mod byte_stream;
mod bytes_link;
mod calls;
#[cfg(test)]
mod chance;
mod contract;
mod faults;
mod inproc;
mod options;
mod poller;
mod reactor;
mod readiness;
mod regions;
mod seal;
mod socket;
mod spin;
mod stream;
mod stripes;
mod tcp;
#[cfg(feature = "testing")]
pub mod testing;
mod tls;
mod transports;
mod unix;
mod unix_socket;

pub use bucket::Bucket;
pub use byte_stream::{ByteStream, Carrier};
pub use calls::Calls;
pub use contract::*;
pub use inproc::Inproc;
pub use options::{Carries, LinkOptions};
pub use poller::{Poller, PollerHandle};
pub use reactor::{LinkId, ListenerId, Reactor, ReactorEvent, Waker};
pub use seal::Seal;
pub use socket::write_to_socket;
pub use stream::{KEPT_BYTES_MIN, StreamLink};
pub use stripes::{Striped, StripesFrom};
pub use tcp::Tcp;
pub use tls::{
    Authorities, CRYPTO_PROVIDER, Fingerprint, Identities, Identity, Proxies, Proxy, Tls, Trust,
    Untrusted, certificates_in, certificates_pem, crypto_provider, is_for_name,
};
pub use transports::Transports;
pub use unix::Unix;
pub use unix_socket::UnixSocket;
