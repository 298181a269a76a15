//! Checksums of selected data, computed while its bytes come: then they are in
//! the cache, and the pull finds them done.

use memory::Target;
use std::fmt;
use std::sync::{Arc, Mutex};
use wire::checksum::{crc32c_append, crc32c_combine};

/// What a read of data gives: the memory filled, and what is known of it.
pub(crate) struct ReadBack {
    /// The memory of the read, in order.
    pub targets: Vec<Target>,
    /// Of each selection, its length and the checksum of what is stored.
    stored: Vec<(u64, u32)>,
    received: ReceivedChecksums,
}

/// A selection whose bytes are not what is stored.
pub(crate) struct Mismatch {
    pub selection: usize,
    pub computed: u32,
    pub stored: u32,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (computed, stored) = (self.computed, self.stored);
        write!(f, "crc {computed:08x}, the server says {stored:08x}")
    }
}

/// Checksums of the memory that one selection after the other is received in.
pub(crate) struct ReceivedChecksums {
    targets: Vec<Arc<Mutex<Received>>>,
}

/// How far one target is filled, and the checksums of that.
struct Received {
    /// The parts of selections that lie in it: the lengths.
    parts: Vec<u64>,
    /// Of the parts that are begun.
    checksums: Vec<u32>,
    /// Bytes that have come in order, from the first on; `None` once some
    /// came out of order, for what was summed may have been overwritten.
    filled: Option<u64>,
    /// Bytes of the part that is under way which have not come.
    left: u64,
}

impl Received {
    fn new(parts: Vec<u64>) -> Self {
        Self {
            checksums: Vec::with_capacity(parts.len()),
            parts,
            filled: Some(0),
            left: 0,
        }
    }

    fn add(&mut self, at: usize, mut bytes: &[u8]) {
        if at == 0 {
            // Perhaps again, after the connection was lost.
            (self.filled, self.left) = (Some(0), 0);
            self.checksums.clear();
        }
        let Some(filled) = self.filled.filter(|filled| *filled == at as u64) else {
            self.filled = None;
            return;
        };
        self.filled = Some(filled + bytes.len() as u64);
        while !bytes.is_empty() {
            if self.left == 0 {
                let Some(next) = self.parts.get(self.checksums.len()) else {
                    return;
                };
                self.left = *next;
                self.checksums.push(0);
            }
            let (now, rest) = bytes.split_at(self.left.min(bytes.len() as u64) as usize);
            if let Some(checksum) = self.checksums.last_mut() {
                *checksum = crc32c_append(*checksum, now);
            }
            self.left -= now.len() as u64;
            bytes = rest;
        }
    }

    /// Checksums and lengths of the parts, if all of them have come.
    fn done(&self) -> Option<impl Iterator<Item = (u32, u64)> + '_> {
        let is_done = self.filled == Some(self.parts.iter().sum());
        let checksums = self.checksums.iter().copied();
        is_done.then(|| checksums.zip(self.parts.iter().copied()))
    }
}

impl ReceivedChecksums {
    /// Watches `targets`, in which selections of these lengths come one behind
    /// the other.
    pub fn watch(lengths: &[u64], targets: Vec<Target>) -> (Self, Vec<Target>) {
        let mut lengths = lengths.iter().copied().filter(|length| *length > 0);
        let mut left = 0;
        let mut watched = Vec::with_capacity(targets.len());
        let watch = |target: Target| {
            let (mut space, mut parts) = (target.len() as u64, Vec::new());
            while space > 0 {
                if left == 0 {
                    left = lengths.next().unwrap_or(space);
                }
                let part = left.min(space);
                parts.push(part);
                (left, space) = (left - part, space - part);
            }
            let received = Arc::new(Mutex::new(Received::new(parts)));
            watched.push(received.clone());
            target.with_on_received(move |at, bytes| {
                received
                    .lock()
                    .expect("no holder panics here")
                    .add(at, bytes);
            })
        };
        let targets = targets.into_iter().map(watch).collect();
        (Self { targets: watched }, targets)
    }

    /// The checksums of selections of these lengths, if all their bytes were seen.
    fn checksums(&self, lengths: impl Iterator<Item = u64>) -> Option<Vec<u32>> {
        let mut parts = Vec::new();
        for target in &self.targets {
            let received = target.lock().expect("no holder panics here");
            parts.extend(received.done()?);
        }
        let mut parts = parts.into_iter();
        let whole = |length| {
            let (mut checksum, mut got) = (0, 0);
            while got < length {
                let (part, bytes) = parts.next()?;
                checksum = match got {
                    0 => part,
                    _ => crc32c_combine(checksum, part, bytes),
                };
                got += bytes;
            }
            Some(checksum)
        };
        lengths.map(whole).collect()
    }
}

impl ReadBack {
    /// What came of a read of selections with these lengths; `None` if the
    /// server returned another number of checksums.
    pub fn new(
        lengths: &[u64],
        stored: &[u32],
        targets: Vec<Target>,
        received: ReceivedChecksums,
    ) -> Option<Self> {
        let is_whole = lengths.len() == stored.len();
        let stored = lengths.iter().copied().zip(stored.iter().copied());
        is_whole.then(|| Self {
            targets,
            stored: stored.collect(),
            received,
        })
    }

    /// The first selection whose bytes are not what is stored, if one's are not.
    pub fn verify(&mut self) -> Result<(), Mismatch> {
        let lengths = self.stored.iter().map(|(length, _)| *length);
        let computed = self.received.checksums(lengths.clone());
        let computed = computed.unwrap_or_else(|| checksums_of(lengths, &mut self.targets));
        let pairs = self.stored.iter().zip(computed).enumerate();
        for (selection, ((_, stored), computed)) in pairs {
            if computed != *stored {
                return Err(Mismatch {
                    selection,
                    computed,
                    stored: *stored,
                });
            }
        }
        Ok(())
    }
}

/// The checksums of one selection after the other, wherever they lie in the targets.
fn checksums_of(lengths: impl Iterator<Item = u64>, targets: &mut [Target]) -> Vec<u32> {
    let mut targets = targets.iter_mut().map(AsMut::as_mut);
    let mut rest: &[u8] = &[];
    let whole = |length: u64| {
        let (mut checksum, mut left) = (0, length);
        while left > 0 {
            if rest.is_empty() {
                rest = targets.next().expect("targets are as long as selections");
                continue;
            }
            let (now, behind) = rest.split_at(left.min(rest.len() as u64) as usize);
            checksum = crc32c_append(checksum, now);
            left -= now.len() as u64;
            rest = behind;
        }
        checksum
    };
    lengths.map(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::checksum::crc32c;

    fn bytes(count: usize) -> Vec<u8> {
        (0..count).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    /// Puts `pieces`, as ranges of `data`, into targets that are `spaces` long.
    fn receive(
        data: &[u8],
        spaces: &[usize],
        lengths: &[u64],
        pieces: &[(usize, usize)],
    ) -> ReadBack {
        let targets = spaces.iter().map(|space| Target::new(vec![0u8; *space]));
        let (received, mut targets) = ReceivedChecksums::watch(lengths, targets.collect());
        for (start, end) in pieces {
            let mut base = 0;
            for (target, space) in targets.iter_mut().zip(spaces) {
                let (from, to) = (base.max(*start), (base + space).min(*end));
                if from < to {
                    target.as_mut()[from - base..to - base].copy_from_slice(&data[from..to]);
                    target.received(from - base..to - base);
                }
                base += space;
            }
        }
        let mut at = 0;
        let sum = |length: &u64| {
            let part = &data[at..at + *length as usize];
            at += *length as usize;
            crc32c(part)
        };
        let stored: Vec<u32> = lengths.iter().map(sum).collect();
        ReadBack::new(lengths, &stored, targets, received).expect("a checksum for each")
    }

    fn computed_on_landing(read: &ReadBack) -> Option<Vec<u32>> {
        read.received
            .checksums(read.stored.iter().map(|(length, _)| *length))
    }

    #[test]
    fn bytes_that_land_in_order_are_summed_wherever_selections_end() {
        let data = bytes(1000);
        let spaces: [&[usize]; 4] = [&[1000], &[300, 700], &[1, 0, 998, 1], &[250; 4]];
        let lengths: [&[u64]; 4] = [&[1000], &[10, 0, 990], &[300, 700], &[999, 1]];
        for spaces in spaces {
            for lengths in lengths {
                let pieces = [(0, 13), (13, 600), (600, 601), (601, 1000)];
                let mut read = receive(&data, spaces, lengths, &pieces);
                let stored: Vec<u32> = read.stored.iter().map(|(_, stored)| *stored).collect();
                assert_eq!(
                    computed_on_landing(&read),
                    Some(stored),
                    "{spaces:?} {lengths:?}"
                );
                assert!(read.verify().is_ok());
            }
        }
    }

    #[test]
    fn what_comes_again_from_the_beginning_counts_anew() {
        let data = bytes(100);
        let mut read = receive(&data, &[100], &[60, 40], &[(0, 70), (0, 50), (50, 100)]);
        assert!(computed_on_landing(&read).is_some());
        assert!(read.verify().is_ok());
    }

    #[test]
    fn what_comes_out_of_order_or_not_at_all_is_looked_at_where_it_lies() {
        let data = bytes(100);
        let out_of_order: [&[(usize, usize)]; 4] = [
            &[(50, 100), (0, 50)],
            &[(0, 60), (50, 100)],
            &[(0, 100), (20, 30)],
            &[(0, 40), (50, 100), (40, 50)],
        ];
        for pieces in out_of_order {
            let mut read = receive(&data, &[100], &[60, 40], pieces);
            assert_eq!(computed_on_landing(&read), None, "{pieces:?}");
            assert!(read.verify().is_ok(), "{pieces:?}");
        }
        let mut read = receive(&data, &[100], &[60, 40], &[(0, 90)]);
        let wrong = read.verify().expect_err("ten bytes are missing");
        assert_eq!(wrong.selection, 1);
    }

    #[test]
    fn what_is_overwritten_behind_a_sum_is_found() {
        let data = bytes(100);
        let mut read = receive(&data, &[100], &[100], &[(0, 100)]);
        let target = &mut read.targets[0];
        target.as_mut()[20] ^= 1;
        target.received(20..21);
        assert_eq!(read.verify().expect_err("a bit differs").selection, 0);
    }

    #[test]
    fn another_number_of_checksums_is_refused() {
        let (received, targets) = ReceivedChecksums::watch(&[10], vec![Target::new(vec![0u8; 10])]);
        assert!(ReadBack::new(&[10], &[1, 2], targets, received).is_none());
    }
}
