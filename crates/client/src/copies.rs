//! Memory for copies of data that is pushed.

use crate::mailbox::Liveness;
use bytes::Bytes;
use memory::{Allocation, Pool, copies};
use net::Transports;
use std::sync::Arc;

/// Bytes that are kept for the next copies, beside those in use. What is in
/// use is bounded by the budgets of the producers.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// Where a driver's producers copy data to that they do not borrow: memory of
/// the connection's transport, if it sends from there with fewer copies, and
/// otherwise a pool's, which is used again. Cloning shares it.
#[derive(Clone)]
pub(crate) struct CopyMemory {
    transports: Arc<Transports>,
    pool: Pool,
}

impl CopyMemory {
    pub fn new(transports: &Arc<Transports>) -> Self {
        Self {
            transports: transports.clone(),
            pool: Pool::new(KEPT_BYTES_MAX),
        }
    }

    /// Gives the system what has lain ready since the last call and was not needed.
    pub fn give_back_idle(&self) {
        if self.pool.kept_bytes() > 0 {
            self.pool.give_back_idle();
        }
    }

    /// One piece with the bytes of `pieces`, one behind the other, for what is
    /// sent to the server `node`. The caller has reserved as much of its
    /// budget.
    pub fn copy(&self, node: &Liveness, pieces: &[&[u8]]) -> Bytes {
        let bytes = pieces.iter().map(|piece| piece.len()).sum();
        let address = node.address();
        let mut copy = self
            .transports
            .try_allocate(&address, bytes)
            .unwrap_or_else(|| Allocation::from(self.pool.take(bytes)));
        let mut rest = &mut copy[..];
        for piece in pieces {
            let (place, behind) = rest.split_at_mut(piece.len());
            copies::copy(piece, place);
            rest = behind;
        }
        copy.freeze()
    }
}
