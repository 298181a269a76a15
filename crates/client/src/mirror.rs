//! What a link asks of the server that keeps a mirror.

use crate::error::ClientError;
use crate::promise::Pending;
use crate::session::Call;
use crate::topic_handle::TopicHandle;
use bytes::Bytes;
use std::time::Duration;
use wire::batch::{SHARED_STAMP_BYTES, STAMP_BYTES};
use wire::codec::Codec;
use wire::message::{Method, MirrorOpened, OpenMirror, Produced};
use wire::{Durability, PartitionIndex, TopicId};

/// A batch of a mirror's source.
#[derive(Debug, Clone)]
pub struct CopiedBatch {
    /// The partition, of the source and of the mirror.
    pub partition: PartitionIndex,
    /// The batch as its source gave it, stamped.
    pub batch: Bytes,
    /// That of [`TopicHandle::begin_open_mirror`].
    pub opening: u64,
    /// Its external data, in the order of the events; in any pieces.
    pub data: Vec<Bytes>,
}

impl TopicHandle {
    /// Begins to write a mirror, on the connection that stands: nobody else writes it until that
    /// is gone. Says how far each partition has come. To be asked again on each connection. `opening` is another
    /// number each time: batches with an earlier one are refused from now on, also those that are under way.
    ///
    /// # Errors
    /// [`wire::ErrorCode::ProducerFenced`] if another link is at work, [`wire::ErrorCode::InvalidTopic`]
    /// if the topic is no mirror, or one of another topic or link.
    pub fn begin_open_mirror(
        &self,
        link: &str,
        source: TopicId,
        opening: u64,
    ) -> Pending<MirrorOpened> {
        let open = OpenMirror {
            link: link.to_owned(),
            source,
            opening,
        };
        let what = format!("the mirror {} to be opened", self.name());
        let method = Method::OpenMirror;
        self.driver
            .begin_call(method, self.id(), &open, what, |reply| {
                let opened = MirrorOpened::from_bytes("mirror opened", &reply.head);
                opened.map_err(ClientError::damaged)
            })
    }

    /// Appends a batch of the source to a mirror that was opened; done when it is as durable as the
    /// mirror promises. Batches of a partition are sent in the order in which they are begun, and
    /// never again: with the connection, or with one that was refused, those behind it fail too.
    ///
    /// # Errors
    /// [`wire::ErrorCode::OutOfSequence`] if it leaves a hole, [`wire::ErrorCode::StorageFull`],
    /// [`wire::ErrorCode::ProducerFenced`], [`ClientError::Unreachable`].
    pub fn begin_append_mirrored(
        &self,
        batch: CopiedBatch,
        timeout: Duration,
    ) -> Pending<Produced> {
        let session = match self.driver.session() {
            Ok(session) => session,
            Err(error) => return Pending::failed(error),
        };
        // The regions of its data follow, once there is a connection that has them.
        let mut body = batch.partition.to_bytes();
        batch.opening.encode(&mut body);
        Durability::Memory.encode(&mut body);
        let what = format!(
            "a batch of {}/{} to be stored",
            self.name(),
            batch.partition
        );
        let call = Call {
            timeout,
            grace: Duration::ZERO,
            method: Method::AppendMirrored,
            topic: self.id(),
            body,
            targets: Vec::new(),
            behind: Vec::new(),
            payload: without_local_stamp(&batch.batch),
            exposed: batch.data,
            what,
        };
        session.begin(call, |reply| {
            Produced::from_bytes("produced", &reply.head).map_err(ClientError::damaged)
        })
    }
}

/// The batch as it is on the way to another copy: what is true of its first disk only is zero.
fn without_local_stamp(batch: &Bytes) -> Vec<Bytes> {
    if batch.len() < STAMP_BYTES {
        return vec![batch.clone()];
    }
    let mut stamp = batch[..STAMP_BYTES].to_vec();
    stamp[SHARED_STAMP_BYTES..].fill(0);
    vec![stamp.into(), batch.slice(STAMP_BYTES..)]
}
