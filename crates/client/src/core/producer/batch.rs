//! One sealed batch, from its sealing to its ack.

use super::super::wire_session::Wire;
use crate::batch_queue::{Gathering, Identity, ProducerShared};
use crate::error::ClientError;
use crate::event::Piece;
use crate::future::BatchPromise;
use bytes::Bytes;
use memory::Reservation;
use std::sync::Arc;
use std::time::Duration;
use wire::batch::{Header, Origin, STAMP_BYTES};
use wire::checksum::crc32c_append;
use wire::message::{Produced, Region};
use wire::{ErrorReply, Sequence};

/// A batch that was sealed and is not acknowledged.
pub(super) struct SentBatch {
    /// Head, metadata, inline data.
    pub payload: Vec<Bytes>,
    pub payload_bytes: u64,
    /// Large data, sent from where it lies.
    pieces: Vec<Piece>,
    /// Where the pieces can be reached while the request is under way.
    regions: Vec<Region>,
    /// The request's id on the present connection; none while it is not sent.
    pub request: Option<u64>,
    pub was_sent: bool,
    /// The server has taken it for one that leaves a hole: it is sent again
    /// when everything before it is stored.
    pub must_be_first: bool,
    /// The ack, or that a full topic dropped it, while an earlier batch's is missing.
    pub outcome: Option<Result<Produced, ErrorReply>>,
    pub identity: Identity,
    pub first_sequence: Sequence,
    pub count: u32,
    pub promise: Arc<BatchPromise>,
    pub taken_at: Duration,
    _reservation: Reservation,
}

impl SentBatch {
    pub fn seal(
        producer: &ProducerShared,
        identity: Identity,
        first_sequence: Sequence,
        mut gathering: Gathering,
        now: Duration,
    ) -> Self {
        gathering.reservation.shrink_to(gathering.used_bytes());
        let origin = Origin {
            topic: producer.topic.id,
            producer: identity.producer,
            epoch: identity.epoch,
            first_sequence,
        };
        let block_bytes = producer.topic.definition.data_block_bytes();
        let sealed = gathering.builder.seal(origin, block_bytes);
        let payload_bytes = sealed.bytes() as u64;
        let mut payload = vec![Bytes::from(sealed.head)];
        let metadata = producer.metadata_buffers.lend(sealed.metadata);
        let inline = producer.inline_buffers.lend(sealed.inline);
        let sections = [metadata].into_iter().chain(sealed.shared).chain([inline]);
        payload.extend(sections.filter(|piece| !piece.is_empty()));
        Self {
            payload,
            payload_bytes,
            pieces: gathering.pieces,
            regions: Vec::new(),
            request: None,
            was_sent: false,
            must_be_first: false,
            outcome: None,
            identity,
            first_sequence,
            count: sealed.event_count,
            promise: gathering.promise,
            taken_at: now,
            _reservation: gathering.reservation,
        }
    }

    /// Lets the server read the large data; one region a piece.
    pub fn expose(&mut self, wire: &mut Wire<'_>) -> Vec<Region> {
        self.was_sent = true;
        if let Some(link) = wire.link() {
            self.regions = self
                .pieces
                .iter()
                .map(|piece| match &piece.lent {
                    None => link.expose(piece.bytes.clone()),
                    Some(lent) => link.expose_sealed(piece.bytes.clone(), lent.seal.clone()),
                })
                .collect();
        }
        self.regions.clone()
    }

    /// That somebody changed large data which he had lent, if that was found
    /// when it was sent.
    pub fn changed(&self) -> Option<ClientError> {
        let lent = self.pieces.iter().filter_map(|piece| piece.lent.as_ref());
        lent.into_iter().find_map(|lent| lent.changed())
    }

    /// The request is answered, or of no interest any more.
    pub fn unsend(&mut self, wire: &mut Wire<'_>) {
        let Some(id) = self.request.take() else {
            return;
        };
        wire.end_route(id);
        wire.return_produce_credit(self.payload_bytes);
        if let Some(link) = wire.link() {
            for region in &self.regions {
                link.withdraw(region);
            }
        }
        self.regions.clear();
    }

    /// Gives the batch another first sequence number.
    pub fn renumber(&mut self, first_sequence: Sequence) {
        let mut head = self.payload[0].to_vec();
        let (header, _) =
            Header::read(&head[STAMP_BYTES..]).expect("the header was written by this process");
        let header = Header {
            first_sequence,
            ..header
        };
        header.write(&mut head[STAMP_BYTES..]);
        self.payload[0] = head.into();
        self.first_sequence = first_sequence;
    }

    /// Bytes of the batch and its large data.
    pub fn bytes(&self) -> u64 {
        let pieces: u64 = self
            .pieces
            .iter()
            .map(|piece| piece.bytes.len() as u64)
            .sum();
        self.payload_bytes + pieces
    }

    /// The checksum that the journal keeps: of metadata, inline data and
    /// large data, one behind the other.
    pub fn checksum(&self) -> u32 {
        let sections = self.payload[1..]
            .iter()
            .chain(self.pieces.iter().map(|piece| &piece.bytes));
        sections.fold(0, |crc, bytes| crc32c_append(crc, bytes))
    }
}
