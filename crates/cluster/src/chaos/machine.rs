//! A voter's machine: its disk, its clock, and the state machine that it keeps.

use super::judge::Op;
use crate::quorum::{Identity, Quorum, RequestId};
use bytes::Bytes;
use log::Operation;
use log::testing::FaultyDisk;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::codec::{Reader, Write};

/// A voter's machine.
pub(super) struct Machine {
    pub(super) identity: Identity,
    pub(super) disk: FaultyDisk,
    /// None: it is down.
    pub(super) quorum: Option<Quorum>,
    /// Grows with each start: what was meant for an earlier life is of no use.
    pub(super) life: u64,
    pub(super) clock: Clock,
    /// Until when it handles nothing, microseconds.
    pub(super) paused_until: u64,
    /// When its timer is to ring, if that is planned.
    pub(super) timer_at: Option<u64>,
    /// The operation that its disk is at.
    pub(super) operation: Option<Operation>,
    /// What it was asked in this life, and how often it is still to answer.
    pub(super) asked: BTreeMap<RequestId, u32>,
    /// The next sync fails.
    pub(super) sync_fails: bool,
    /// A fault of its disk has hit it: it may fail.
    pub(super) may_fail: bool,
    /// It has lost its directory and came back under its id: it may fail too.
    pub(super) stranger: bool,
    /// It is not started again.
    pub(super) retired: bool,
    pub(super) state: StateMachine,
}

impl Machine {
    pub(super) fn new(identity: Identity, clock: Clock) -> Self {
        Self {
            identity,
            disk: FaultyDisk::new(),
            quorum: None,
            life: 0,
            clock,
            paused_until: 0,
            timer_at: None,
            operation: None,
            asked: BTreeMap::new(),
            sync_fails: false,
            may_fail: false,
            stranger: false,
            retired: false,
            state: StateMachine::default(),
        }
    }

    /// Bytes on its disk.
    pub(super) fn used(&self) -> u64 {
        let files = self.disk.paths();
        let lengths = files
            .iter()
            .filter_map(|path| Some(self.disk.content(path)?.len() as u64));
        lengths.sum()
    }
}

/// A clock that began at any time and runs a little fast or slow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    pub(super) began_us: u64,
    /// Thousandths.
    pub(super) rate: u64,
}

impl Clock {
    /// What it shows at a time of the world.
    pub(super) fn shows(&self, now: u64) -> Duration {
        Duration::from_micros(self.began_us + now * self.rate / 1000)
    }

    /// When it shows this at the earliest.
    pub(super) fn when(&self, shown: Duration) -> u64 {
        let us = shown.as_micros() as u64;
        (us.saturating_sub(self.began_us) * 1000).div_ceil(self.rate)
    }
}

/// All ops in the order in which they were applied.
#[derive(Debug, Default)]
pub(super) struct StateMachine {
    pub(super) applied: Vec<(u64, Op)>,
}

impl StateMachine {
    pub(super) fn to_bytes(&self) -> Bytes {
        let mut out = Vec::new();
        for (index, op) in &self.applied {
            out.put_u64(*index);
            out.put_u64(*op);
        }
        out.into()
    }

    pub(super) fn of_bytes(bytes: &[u8]) -> Self {
        let mut from = Reader::new("state", bytes);
        let mut applied = Vec::new();
        while let (Ok(index), Ok(op)) = (from.u64(), from.u64()) {
            applied.push((index, op));
        }
        Self { applied }
    }
}

/// The op that a payload is.
pub(super) fn op_of(payload: &[u8]) -> Op {
    Reader::new("op", payload).u64().unwrap_or(0)
}

/// The payload of an op.
pub(super) fn payload_of(op: Op, bytes: usize) -> Bytes {
    let mut payload = op.to_le_bytes().to_vec();
    payload.resize(8 + bytes, op as u8);
    payload.into()
}
