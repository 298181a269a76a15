//! Memory that a transfer writes into.

use crate::Buffer;
use std::fmt;

/// Writable memory of somebody, lent for the time of a transfer.
///
/// The owner is moved in and comes back with the completion, so that the
/// memory is alive, and nobody else's, while bytes arrive.
pub struct Target {
    owner: Box<dyn AsMutBytes>,
    bytes: usize,
}

// SAFETY: what is shared of a target is its length alone; the owner is reached
// through `&mut self` and by value only.
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
