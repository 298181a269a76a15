//! A link between two models of a partition, cut at every place that a seed chooses: the copy has
//! what the source has, once, under the same offsets; and what it lacks, the source had lost.

use super::*;
use crate::faults;
use std::collections::BTreeMap;
use wire::batch::{BatchBuilder, BatchKind, EventParts, Origin, STAMP_BYTES};
use wire::{Codec, ProducerEpoch, ProducerId, Sequence};

const TOPIC: TopicId = TopicId(5);

/// A seeded generator (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// A partition of the source.
#[derive(Default)]
struct Source {
    life: Incarnation,
    batches: BTreeMap<u64, Bytes>,
    first: u64,
    end: u64,
    cursor: Option<Position>,
}

impl Source {
    fn append(&mut self, chance: &mut Chance) {
        let count = 1 + chance.below(4);
        let mut builder = BatchBuilder::default();
        for index in 0..count {
            let text = (self.end + index).to_string();
            builder.push(EventParts {
                metadata: text.as_bytes(),
                ..EventParts::default()
            });
        }
        let origin = Origin {
            topic: TOPIC,
            producer: ProducerId(1),
            epoch: ProducerEpoch(0),
            first_sequence: Sequence(self.end),
        };
        let mut batch = builder.seal(origin, 4096).to_vec();
        let (_, header_crc) = wire::batch::Header::read(&batch[STAMP_BYTES..]).unwrap();
        let stamp = Stamp {
            batch_bytes: batch.len() as u64,
            base_offset: Offset(self.end),
            append_time: 100 + self.end,
            header_crc,
            ..Stamp::default()
        };
        stamp.write(&mut batch);
        self.batches.insert(self.end, batch.into());
        self.end += count;
    }

    /// Retention takes what lies before `to`, a batch's beginning.
    fn remove_before(&mut self, to: u64) {
        let kept = self.batches.split_off(&to);
        self.first = kept.keys().next().copied().unwrap_or(self.end);
        self.batches = kept;
    }

    fn fetch(&self, from: Position, chance: &mut Chance) -> Found {
        let gap = |end: u64, next: Position| Found {
            batches: Vec::new(),
            gap: Some(Gap {
                incarnation: from.incarnation,
                first: from.offset,
                end: Offset(end),
                reason: GapReason::Retention,
                time: 1,
            }),
            next: Some(next),
        };
        let at = |offset| Position {
            incarnation: self.life,
            offset: Offset(offset),
        };
        if from.incarnation != self.life {
            return gap(from.offset.0, at(from.offset.0.min(self.end)));
        }
        if from.offset.0 < self.first {
            return gap(self.first, at(self.first));
        }
        let begun = self.batches.range(..=from.offset.0).next_back();
        let begun = begun.map_or(from.offset.0, |(base, _)| *base);
        let most = 1 + chance.below(5) as usize;
        let batches = self.batches.range(begun..).take(most);
        Found {
            batches: batches.map(|(_, batch)| batch.clone()).collect(),
            gap: None,
            next: None,
        }
    }
}

/// A partition of the copy, by the broker's rules.
#[derive(Default)]
struct Copy {
    batches: Vec<(u64, u64, Bytes)>,
    durable: usize,
}

impl Copy {
    fn end(&self) -> u64 {
        self.batches.last().map_or(0, |(_, end, _)| *end)
    }

    fn durable_end(&self) -> u64 {
        match self.durable {
            0 => 0,
            durable => self.batches[durable - 1].1,
        }
    }

    /// Whether it takes the piece, or has it.
    fn append(&mut self, piece: &Piece) -> bool {
        let end = self.end();
        if piece.base.0 == end {
            let entry = (piece.base.0, piece.end.0, piece.batch.clone());
            self.batches.push(entry);
            return true;
        }
        piece.end.0 <= end
    }

    fn crash(&mut self) {
        self.batches.truncate(self.durable);
    }
}

/// Whether the source keeps what the link has not acknowledged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeps {
    Unacknowledged,
    Nothing,
}

/// One run: some events, cuts and crashes, and then all goes well until the link is idle.
fn run(seed: u64, keeps: Keeps) -> Result<(), String> {
    let chance = &mut Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut source = Source {
        life: Incarnation(1),
        batches: BTreeMap::new(),
        first: 0,
        end: 0,
        cursor: None,
    };
    let mut all = BTreeMap::new();
    let mut copy = Copy::default();
    let mut flow: Option<Flow> = None;
    // Sent, and not answered; those that have come are answered when they are durable.
    let mut sent: VecDeque<(Piece, bool)> = VecDeque::new();
    let mut idle = 0;
    for step in 0.. {
        let is_quiet = step > 400;
        if idle > 20 {
            break;
        }
        if step > 20_000 {
            return Err("the link does not end".to_owned());
        }
        match chance.below(if is_quiet { 5 } else { 12 }) {
            0 | 1 => {
                let current = flow.get_or_insert_with(|| {
                    sent.clear();
                    let life = source
                        .cursor
                        .map_or(source.life, |cursor| cursor.incarnation);
                    let next = Offset(copy.end());
                    if source.cursor.is_none() {
                        source.cursor = Some(Position {
                            incarnation: life,
                            offset: next,
                        });
                    }
                    Flow::new(
                        TOPIC,
                        (life, next),
                        Offset(copy.durable_end()),
                        source.cursor,
                    )
                });
                let from = current.fetch_at();
                let found = source.fetch(from, chance);
                let is_all = is_quiet
                    && current.front().is_none()
                    && sent.is_empty()
                    && from.offset.0 == source.end
                    && copy.durable_end() == source.end;
                idle += u32::from(is_all);
                current
                    .fetched(found)
                    .map_err(|error| format!("{error:?}"))?;
            }
            2 => {
                if let Some(piece) = flow.as_mut().and_then(Flow::next_piece) {
                    sent.push_back((piece, false));
                }
            }
            3 => {
                // The next one comes over, and perhaps becomes durable, with its answer.
                let next = sent.iter_mut().find(|(_, came)| !came);
                if let Some((piece, came)) = next {
                    *came = true;
                    if !copy.append(piece) {
                        flow = None;
                        continue;
                    }
                }
                if chance.below(2) == 0 {
                    copy.durable = copy.batches.len();
                    while sent.front().is_some_and(|(_, came)| *came) {
                        sent.pop_front();
                        if let Some(flow) = &mut flow {
                            flow.stored();
                        }
                    }
                }
            }
            4 => {
                let told = flow.as_ref().and_then(Flow::acknowledgement);
                if let (Some(flow), Some(position)) = (&mut flow, told) {
                    source.cursor = Some(position);
                    flow.acknowledged(position);
                }
            }
            5..=7 => {
                source.append(chance);
                all.extend(
                    source
                        .batches
                        .last_key_value()
                        .map(|(k, v)| (*k, v.clone())),
                );
            }
            8 => {
                let to = match keeps {
                    Keeps::Unacknowledged => source.cursor.map_or(0, |cursor| cursor.offset.0),
                    Keeps::Nothing => source.end,
                };
                let bases: Vec<u64> = source.batches.range(..=to).map(|(base, _)| *base).collect();
                if !bases.is_empty() {
                    source.remove_before(bases[chance.below(bases.len() as u64) as usize]);
                }
            }
            // A cut: nothing more is heard of what was sent, part of which has come.
            9 | 10 => flow = None,
            // The copy's machine loses its power.
            _ => {
                copy.crash();
                flow = None;
            }
        }
    }
    check(&source, &copy, &all, keeps)
}

fn check(
    source: &Source,
    copy: &Copy,
    all: &BTreeMap<u64, Bytes>,
    keeps: Keeps,
) -> Result<(), String> {
    let mut next = 0;
    for (base, end, bytes) in &copy.batches {
        if *base != next {
            return Err(format!("offset {base} follows {next}"));
        }
        next = *end;
        let batch = Batch::read(bytes.as_ref(), Verify::Sections).unwrap();
        match batch.header.kind {
            BatchKind::Skipped => {
                let gap = Gap::from_bytes("gap", batch.metadata_section()).unwrap();
                if (gap.first.0, gap.end.0) != (*base, *end) {
                    return Err(format!("{gap:?} stands for {base} to {end}"));
                }
                if keeps == Keeps::Unacknowledged {
                    return Err(format!("{base} to {end} are lost"));
                }
            }
            _ if all.get(base) == Some(bytes) => {}
            _ => return Err(format!("the batch at {base} is another one")),
        }
    }
    match next == source.end {
        true => Ok(()),
        false => Err(format!(
            "the copy ends at {next}, the source at {}",
            source.end
        )),
    }
}

fn seeds(keeps: Keeps) -> Result<(), String> {
    for seed in 1..400 {
        run(seed, keeps).map_err(|error| format!("seed {seed}: {error}"))?;
    }
    Ok(())
}

#[test]
fn whatever_is_cut_the_copy_is_whole() {
    assert_eq!(seeds(Keeps::Unacknowledged), Ok(()));
    let caught = faults::with(Fault::AcknowledgeSent, || seeds(Keeps::Unacknowledged));
    assert!(caught.is_err(), "an early acknowledgement is not noticed");
}

#[test]
fn what_the_source_loses_is_a_gap_of_the_copy() {
    assert_eq!(seeds(Keeps::Nothing), Ok(()));
    let caught = faults::with(Fault::NoGap, || seeds(Keeps::Nothing));
    assert!(caught.is_err(), "a missing gap is not noticed");
}

/// The source has begun another life, which has its first `kept` events only.
fn in_another_life(kept: u64) -> Result<Vec<Piece>, FlowError> {
    let at = |life, offset| Position {
        incarnation: Incarnation(life),
        offset: Offset(offset),
    };
    let mut flow = Flow::new(TOPIC, (Incarnation(1), Offset(7)), Offset(7), None);
    let gap = Gap {
        incarnation: Incarnation(1),
        first: Offset(kept),
        end: Offset(kept),
        reason: GapReason::PowerLoss,
        time: 3,
    };
    flow.fetched(Found {
        batches: Vec::new(),
        gap: Some(gap),
        next: Some(at(2, kept)),
    })?;
    assert_eq!(flow.fetch_at(), at(2, 7.max(kept)));
    Ok(std::iter::from_fn(|| flow.next_piece()).collect())
}

#[test]
fn a_source_that_has_lost_what_the_copy_has_is_another_one() {
    assert_eq!(in_another_life(7), Ok(Vec::new()), "nothing is lost");
    let refused = in_another_life(6);
    assert!(
        matches!(refused, Err(FlowError::Diverged(_))),
        "{refused:?}"
    );
    let act = || std::panic::catch_unwind(|| in_another_life(6));
    let caught = faults::with(Fault::AnyLife, act);
    let is_refused = caught.is_ok_and(|result| result.is_err());
    assert!(!is_refused, "it is planted");
}

#[test]
fn a_gap_that_is_longer_than_a_batch_can_say_is_several() {
    let mut flow = Flow::new(TOPIC, (Incarnation(1), Offset(0)), Offset(0), None);
    let end = 2 * SKIPPED_OFFSETS_MAX + 5;
    let gap = Gap {
        incarnation: Incarnation(1),
        first: Offset(0),
        end: Offset(end),
        reason: GapReason::Retention,
        time: 3,
    };
    flow.fetched(Found {
        batches: Vec::new(),
        gap: Some(gap),
        next: Some(Position {
            incarnation: Incarnation(1),
            offset: Offset(end),
        }),
    })
    .unwrap();
    let pieces: Vec<_> = std::iter::from_fn(|| flow.next_piece()).collect();
    let ends: Vec<u64> = pieces.iter().map(|piece| piece.end.0).collect();
    assert_eq!(ends, [SKIPPED_OFFSETS_MAX, 2 * SKIPPED_OFFSETS_MAX, end]);
}

#[test]
fn a_batch_beyond_all_offsets_is_damaged() {
    let mut source = Source::default();
    source.append(&mut Chance(1));
    let mut bytes = source.batches[&0].to_vec();
    let mut stamp = Stamp::read(&bytes).unwrap();
    stamp.base_offset = Offset(u64::MAX);
    stamp.write(&mut bytes);
    let mut flow = Flow::new(TOPIC, (Incarnation(0), Offset(0)), Offset(0), None);
    let found = Found {
        batches: vec![bytes.into()],
        ..Found::default()
    };
    assert!(matches!(flow.fetched(found), Err(FlowError::Damaged(_))));
}

#[test]
fn what_cannot_be_read_is_a_gap_of_the_same_offsets() {
    let mut source = Source::default();
    source.append(&mut Chance(1));
    let mut flow = Flow::new(TOPIC, (Incarnation(0), Offset(0)), Offset(0), None);
    let found = Found {
        batches: source.batches.values().cloned().collect(),
        ..Found::default()
    };
    flow.fetched(found).unwrap();
    flow.skip_front(GapReason::Damaged);
    let piece = flow.next_piece().unwrap();
    let batch = Batch::read(piece.batch.as_ref(), Verify::Sections).unwrap();
    assert_eq!(
        (piece.base, piece.end, piece.events),
        (Offset(0), Offset(source.end), 0)
    );
    assert_eq!(batch.header.kind, BatchKind::Skipped);
    let gap = Gap::from_bytes("gap", batch.metadata_section()).unwrap();
    assert_eq!(
        (gap.first, gap.end, gap.reason),
        (piece.base, piece.end, GapReason::Damaged)
    );
}

#[test]
fn a_gap_that_no_partition_can_have_is_damaged() {
    let mut flow = Flow::new(TOPIC, (Incarnation(0), Offset(0)), Offset(0), None);
    let next = Position {
        incarnation: Incarnation(0),
        offset: Offset(1 << 62),
    };
    let found = Found {
        batches: Vec::new(),
        gap: Some(Gap {
            incarnation: Incarnation(0),
            first: Offset(0),
            end: next.offset,
            reason: GapReason::Retention,
            time: 1,
        }),
        next: Some(next),
    };
    assert!(matches!(flow.fetched(found), Err(FlowError::Damaged(_))));
    assert_eq!(flow.queued_bytes(), 0);
}
