//! Writable memory from where the best of it is.

use crate::Buffer;
use bytes::Bytes;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Writable memory of one owner, of any kind: a transport's, for example,
/// from which it sends with fewer copies. Its content is undefined at first.
pub struct Allocation {
    owner: Box<dyn Backing>,
}

trait Backing: AsRef<[u8]> + AsMut<[u8]> + Send {}

impl<T: AsRef<[u8]> + AsMut<[u8]> + Send> Backing for T {}

impl Allocation {
    /// The memory behind `owner`, which keeps its place and length.
    pub fn new(owner: impl AsRef<[u8]> + AsMut<[u8]> + Send + 'static) -> Self {
        Self {
            owner: Box::new(owner),
        }
    }

    /// The bytes, shared from now on; the memory goes with the last share.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl From<Buffer> for Allocation {
    fn from(buffer: Buffer) -> Self {
        Self::new(buffer)
    }
}

impl AsRef<[u8]> for Allocation {
    fn as_ref(&self) -> &[u8] {
        (*self.owner).as_ref()
    }
}

impl AsMut<[u8]> for Allocation {
    fn as_mut(&mut self) -> &mut [u8] {
        (*self.owner).as_mut()
    }
}

impl Deref for Allocation {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.as_ref()
    }
}

impl DerefMut for Allocation {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.as_mut()
    }
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Allocation({} bytes)", self.len())
    }
}
