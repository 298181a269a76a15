//! Memory that a transfer writes into.

use crate::Buffer;
use std::fmt;
use std::ops::Range;

/// Writable memory of somebody, lent for the time of a transfer.
///
/// The owner is moved in and comes back with the completion, so that the
/// memory is alive, and nobody else's, while bytes arrive.
pub struct Target {
    owner: Box<dyn AsMutBytes>,
    bytes: usize,
    on_landed: Option<Box<OnLanded>>,
}

/// Told where bytes begin in a target, and the bytes.
type OnLanded = dyn FnMut(usize, &[u8]) + Send;

// SAFETY: what is shared of a target is its length alone; the owner, and who is
// told of bytes, are reached through `&mut self` and by value only.
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
            on_landed: None,
        }
    }

    /// Has `on_landed` told of bytes right after a transfer has put them there,
    /// while they are in the cache, piece by piece as they come. What comes
    /// twice is told twice; a transfer that can't tell does not.
    pub fn with_on_landed(mut self, on_landed: impl FnMut(usize, &[u8]) + Send + 'static) -> Self {
        self.on_landed = Some(Box::new(on_landed));
        self
    }

    /// A transfer has written these bytes.
    ///
    /// # Panics
    /// If they are outside.
    pub fn landed(&mut self, range: Range<usize>) {
        if let Some(on_landed) = &mut self.on_landed {
            on_landed(range.start, &self.owner.as_mut_bytes()[range]);
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
    /// If it is no `T`: whoever lent the memory knows what it lent.
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
