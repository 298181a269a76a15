//! What a subscription asks of the server.

use bytes::Bytes;
use wire::MemberId;
use wire::codec::{Appended, Codec};
use wire::message::{Method, Subscribe, SubscribeScoped};

/// Which events of a partition are asked for.
pub(super) enum Asked {
    /// All, in their order.
    All,
    /// The newest one, whenever there is credit; those before it are passed over.
    Latest,
    /// Those of a key, or all, for a group's member; none is `MemberId(0)`.
    Scoped(MemberId, Option<Bytes>),
}

impl Asked {
    /// The request: `subscribe` says what is common to all of them.
    pub fn request(self, subscribe: Subscribe) -> (Method, Vec<u8>) {
        match self {
            Self::All => (Method::Subscribe, subscribe.to_bytes()),
            Self::Latest => {
                let latest = Appended(true);
                let subscribe = Subscribe {
                    latest,
                    ..subscribe
                };
                (Method::Subscribe, subscribe.to_bytes())
            }
            Self::Scoped(member, key) => {
                let scoped = SubscribeScoped {
                    member,
                    key,
                    subscribe,
                };
                (Method::SubscribeScoped, scoped.to_bytes())
            }
        }
    }
}
