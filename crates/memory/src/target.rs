//! Memory that a transfer writes into.

use crate::Buffer;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Writable memory of somebody, lent for the time of a transfer.
///
/// The owner is moved in and comes back with the completion, so that the
/// memory is alive, and nobody else's, while bytes arrive.
pub struct Target {
    owner: Box<dyn AsMutBytes>,
    bytes: usize,
    on_received: Option<Box<OnReceived>>,
}

/// Called with where bytes begin in a target, and the bytes.
type OnReceived = dyn FnMut(usize, &[u8]) + Send;

// SAFETY: what is shared of a target is its length alone; the owner, and who is
// called with bytes, are reached through `&mut self` and by value only.
unsafe impl Sync for Target {}

/// Memory behind an owner of any type.
trait AsMutBytes: Send {
    fn as_mut_bytes(&mut self) -> &mut [u8];
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send>;
}

impl<T: AsMut<[u8]> + Send + 'static> AsMutBytes for T {
    fn as_mut_bytes(&mut self) -> &mut [u8] {
        self.as_mut()
    }
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send> {
        self
    }
}

impl Target {
    /// Lends `owner`'s memory, all of it.
    pub fn new(mut owner: impl AsMut<[u8]> + Send + 'static) -> Self {
        let bytes = owner.as_mut().len();
        Self {
            owner: Box::new(owner),
            bytes,
            on_received: None,
        }
    }

    /// Has `on_received` called with bytes right after a transfer has put them there,
    /// while they are in the cache, piece by piece as they come. What comes
    /// twice is reported twice; a transfer that does not see them reports nothing.
    pub fn with_on_received(
        mut self,
        on_received: impl FnMut(usize, &[u8]) + Send + 'static,
    ) -> Self {
        self.on_received = Some(Box::new(on_received));
        self
    }

    /// A transfer has written these bytes.
    ///
    /// # Panics
    /// If they are outside.
    pub fn received(&mut self, range: Range<usize>) {
        if let Some(on_received) = &mut self.on_received {
            on_received(range.start, &self.owner.as_mut_bytes()[range]);
        }
    }

    /// Length of the memory.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there is no memory.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Gives the owner back.
    ///
    /// # Panics
    /// If it is no `T`: the lender of the memory knows what it lent.
    pub fn into_owner<T: 'static>(self) -> T {
        match self.owner.into_any().downcast::<T>() {
            Ok(owner) => *owner,
            Err(_) => panic!(
                "a target of {} bytes is taken back as another type",
                self.bytes
            ),
        }
    }
}

impl AsMut<[u8]> for Target {
    /// The memory.
    ///
    /// # Panics
    /// If the owner's memory has another length than when it was lent.
    fn as_mut(&mut self) -> &mut [u8] {
        let bytes = self.owner.as_mut_bytes();
        assert_eq!(
            bytes.len(),
            self.bytes,
            "a target's memory keeps its length"
        );
        bytes
    }
}

impl From<Buffer> for Target {
    fn from(buffer: Buffer) -> Self {
        Self::new(buffer)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({} bytes)", self.bytes)
    }
}

impl Target {
    /// Cuts the memory into pieces of these lengths, which transfers fill one by
    /// one, each as a target; [`Split::join`] gives it back.
    ///
    /// # Panics
    /// If the lengths together are not that of the target.
    pub fn split(mut self, lengths: &[usize]) -> (Split, Vec<Self>) {
        assert_eq!(
            lengths.iter().sum::<usize>(),
            self.bytes,
            "the pieces are the whole"
        );
        let memory = self.as_mut().as_mut_ptr();
        let whole = Arc::new(Whole {
            owner: self.owner,
            bytes: self.bytes,
        });
        let mut at = 0;
        let piece = |length: &usize| {
            // SAFETY: the lengths together are the memory's, so `at` is within it
            // or at its end.
            let start = unsafe { memory.add(at) };
            at += *length;
            Self::new(Piece {
                start,
                bytes: *length,
                _whole: whole.clone(),
            })
        };
        let pieces = lengths.iter().map(piece).collect();
        (Split { whole }, pieces)
    }
}

/// A target that is cut into pieces.
pub struct Split {
    whole: Arc<Whole>,
}

/// An owner whose memory its pieces alone reach.
struct Whole {
    owner: Box<dyn AsMutBytes>,
    bytes: usize,
}

// SAFETY: the owner may go to another thread, and nothing of it is shared: it is
// used again by who has the last handle, by value.
unsafe impl Sync for Whole {}

/// A part of a target's memory, of which there is no other name.
struct Piece {
    start: *mut u8,
    bytes: usize,
    /// Keeps the memory.
    _whole: Arc<Whole>,
}

// SAFETY: a piece is the only way to its bytes, as a `&mut [u8]` is.
unsafe impl Send for Piece {}

impl AsMut<[u8]> for Piece {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: `start` and `bytes` are a part of the owner's memory that no
        // other piece has; the owner is alive with `_whole`, was boxed before its
        // memory was asked for, and is not used while there are pieces.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Split {
    /// The target again, for all of its pieces; `None` if they are not all.
    pub fn join(self, pieces: impl IntoIterator<Item = Target>) -> Option<Target> {
        pieces.into_iter().for_each(drop);
        let whole = Arc::into_inner(self.whole)?;
        Some(Target {
            owner: whole.owner,
            bytes: whole.bytes,
            on_received: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_filled_one_by_one_and_are_the_whole_again() {
        let (split, mut pieces) = Target::new(vec![0u8; 10]).split(&[3, 0, 6, 1]);
        let lengths: Vec<usize> = pieces.iter().map(Target::len).collect();
        assert_eq!(lengths, [3, 0, 6, 1]);
        for (number, piece) in pieces.iter_mut().enumerate() {
            piece.as_mut().fill(number as u8 + 1);
        }
        let whole = split.join(pieces).expect("all of them");
        assert_eq!(
            whole.into_owner::<Vec<u8>>(),
            [1, 1, 1, 3, 3, 3, 3, 3, 3, 4]
        );
    }

    #[test]
    fn a_piece_that_is_missing_keeps_the_memory() {
        let (split, mut pieces) = Target::new([0u8; 4]).split(&[2, 2]);
        let mut kept = pieces.pop().expect("two pieces");
        assert!(split.join(pieces).is_none());
        std::thread::spawn(move || kept.as_mut().fill(7))
            .join()
            .unwrap();
    }

    #[test]
    #[should_panic(expected = "the pieces are the whole")]
    fn pieces_of_another_length_are_refused() {
        let _ = Target::new(vec![0u8; 10]).split(&[3, 6]);
    }
}
