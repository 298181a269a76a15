//! Snapshots on their way, a piece at a time.

use super::id::VoterId;
use super::message::{Body, Chunk, Received, Transfer};
use bytes::Bytes;
use std::collections::BTreeMap;

/// A piece that is not answered for so many ticks is sent again,
const TICKS_PER_TRY: u32 = 5;
/// so many times in a row.
const TRIES_MAX: u32 = 6;

/// What a leader sends: one snapshot to a member at a time, one piece of it on the way.
#[derive(Debug)]
pub(crate) struct Sending {
    chunk_bytes: usize,
    to: BTreeMap<VoterId, Sent>,
}

#[derive(Debug)]
struct Sent {
    transfer: Transfer,
    bytes: Bytes,
    /// Where the piece begins that is on the way.
    offset: u64,
    ticks: u32,
    tries: u32,
}

impl Sent {
    fn chunk(&self, bytes_max: usize) -> Body {
        let start = self.offset as usize;
        let end = self.bytes.len().min(start + bytes_max);
        Body::Chunk(Chunk {
            transfer: self.transfer,
            offset: self.offset,
            bytes: self.bytes[start..end].to_vec(),
        })
    }
}

/// What became of an answer.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    /// The next piece.
    Chunk(Body),
    /// All of it has come.
    Complete,
    /// The answer is of no use.
    Nothing,
}

impl Sending {
    pub(crate) fn new(chunk_bytes: usize) -> Self {
        Self {
            chunk_bytes,
            to: BTreeMap::new(),
        }
    }

    /// Begins; whatever was sent to this member before is not sent on. Gives the first piece.
    pub(crate) fn begin(&mut self, to: VoterId, term: u64, index: u64, bytes: Bytes) -> Body {
        let transfer = Transfer {
            term,
            index,
            total: bytes.len() as u64,
        };
        let sent = Sent {
            transfer,
            bytes,
            offset: 0,
            ticks: 0,
            tries: 0,
        };
        let first = sent.chunk(self.chunk_bytes);
        self.to.insert(to, sent);
        first
    }

    /// The member says what it has.
    pub(crate) fn received(&mut self, from: VoterId, received: &Received) -> Next {
        let Some(sent) = self.to.get_mut(&from) else {
            return Next::Nothing;
        };
        // An answer that comes twice, or late, is that to a piece before; and a receiver that has
        // forgotten begins again.
        let old = received.next == sent.offset || received.next > sent.transfer.total;
        if received.transfer != sent.transfer || old {
            return Next::Nothing;
        }
        if received.next == sent.transfer.total {
            self.to.remove(&from);
            return Next::Complete;
        }
        if received.next > sent.offset {
            sent.tries = 0;
        }
        (sent.offset, sent.ticks) = (received.next, 0);
        Next::Chunk(sent.chunk(self.chunk_bytes))
    }

    /// Time passes. Gives what is sent again, and to whom nothing came through.
    pub(crate) fn tick(&mut self) -> (Vec<(VoterId, Body)>, Vec<VoterId>) {
        let (mut again, mut failed) = (Vec::new(), Vec::new());
        for (&to, sent) in &mut self.to {
            sent.ticks += 1;
            if sent.ticks < TICKS_PER_TRY {
                continue;
            }
            (sent.ticks, sent.tries) = (0, sent.tries + 1);
            match sent.tries > TRIES_MAX {
                true => failed.push(to),
                false => again.push((to, sent.chunk(self.chunk_bytes))),
            }
        }
        for to in &failed {
            self.to.remove(to);
        }
        (again, failed)
    }

    /// The leader is none any more.
    pub(crate) fn clear(&mut self) {
        self.to.clear();
    }
}

/// What a follower receives: one snapshot at a time.
#[derive(Debug, Default)]
pub(crate) struct Receiving {
    from: Option<(VoterId, Transfer)>,
    bytes: Vec<u8>,
    /// The last that was complete: its sender may not know that.
    complete: Option<(VoterId, Transfer)>,
}

impl Receiving {
    /// A piece came. Gives the answer, and the snapshot once all of it is there.
    pub(crate) fn chunk(&mut self, from: VoterId, chunk: &Chunk) -> (Received, Option<Bytes>) {
        let transfer = chunk.transfer;
        if self.complete == Some((from, transfer)) && chunk.offset != 0 {
            let next = transfer.total;
            return (Received { transfer, next }, None);
        }
        if self.from != Some((from, transfer)) {
            // A leader of a later term, or a later snapshot, takes the place of what came before.
            let newer = self
                .from
                .is_none_or(|(_, one)| (one.term, one.index) < (transfer.term, transfer.index));
            if !newer || chunk.offset != 0 {
                return (Received { transfer, next: 0 }, None);
            }
            self.from = Some((from, transfer));
            self.bytes = Vec::new();
        }
        if chunk.offset == self.bytes.len() as u64 {
            self.bytes.extend_from_slice(&chunk.bytes);
        }
        let next = self.bytes.len() as u64;
        let complete = (next == transfer.total).then(|| {
            self.complete = self.from.take();
            Bytes::from(std::mem::take(&mut self.bytes))
        });
        (Received { transfer, next }, complete)
    }

    /// Forgets a transfer of an earlier term: its leader is none any more.
    pub(crate) fn forget_before(&mut self, term: u64) {
        if self.from.is_some_and(|(_, transfer)| transfer.term < term) {
            self.from = None;
            self.bytes = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_comes_whole_whatever_is_lost_or_doubled() {
        let bytes: Bytes = (0..2500_u32).map(|at| (at / 7) as u8).collect();
        for seed in 0..50 {
            let mut random = crate::random::Random::new(seed);
            let (mut sending, mut receiving) = (Sending::new(1000), Receiving::default());
            let (leader, member) = (VoterId(1), VoterId(2));
            let mut wire = vec![sending.begin(member, 3, 9, bytes.clone())];
            let mut got = None;
            for _ in 0..200 {
                let (again, failed) = sending.tick();
                assert!(failed.is_empty());
                wire.extend(again.into_iter().map(|(_, body)| body));
                for body in std::mem::take(&mut wire) {
                    let Body::Chunk(chunk) = body else {
                        unreachable!("a leader sends chunks");
                    };
                    for _ in 0..random.below(3) {
                        let (answer, complete) = receiving.chunk(leader, &chunk);
                        got = complete.or(got);
                        if let Next::Chunk(next) = sending.received(member, &answer) {
                            wire.push(next);
                        }
                    }
                }
            }
            assert_eq!(got.as_ref(), Some(&bytes), "seed {seed}");
        }
    }

    #[test]
    fn nothing_is_sent_for_ever() {
        let mut sending = Sending::new(1000);
        sending.begin(VoterId(2), 1, 1, Bytes::from_static(b"x"));
        let failed = (0..100).map(|_| sending.tick().1.len()).sum::<usize>();
        assert_eq!(failed, 1);
        assert_eq!(sending.tick(), (Vec::new(), Vec::new()));
    }
}
