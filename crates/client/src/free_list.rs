//! Buffers of batches, between two batches.

use bytes::Bytes;
use std::sync::{Arc, Mutex, MutexGuard};

/// The largest buffer that is kept for reuse.
const KEPT_BUFFER_BYTES_MAX: usize = 8 << 20;

/// Buffers of batches that were sent, for the next ones: fresh pages cost
/// more than the bytes put into them.
pub(crate) struct FreeList {
    /// The last one put is the first one taken: it may still be in the cache.
    free: Mutex<Free>,
    /// As many bytes as the producer may use anyhow.
    kept_bytes_max: u64,
}

#[derive(Default)]
struct Free {
    buffers: Vec<Vec<u8>>,
    bytes: u64,
}

impl FreeList {
    pub fn new(kept_bytes_max: u64) -> Self {
        Self {
            free: Mutex::default(),
            kept_bytes_max,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        self.free.lock().expect("no holder panics here")
    }

    pub fn take(&self) -> Vec<u8> {
        let mut free = self.lock();
        let buffer = free.buffers.pop().unwrap_or_default();
        free.bytes -= buffer.capacity() as u64;
        buffer
    }

    fn put(&self, buffer: Vec<u8>) {
        let bytes = buffer.capacity() as u64;
        if bytes == 0 || bytes > KEPT_BUFFER_BYTES_MAX as u64 {
            return;
        }
        let mut free = self.lock();
        if free.bytes + bytes <= self.kept_bytes_max {
            free.bytes += bytes;
            free.buffers.push(buffer);
        }
    }

    /// `buffer` as shared bytes, whose memory comes back when nobody needs them.
    pub fn lend(self: &Arc<Self>, buffer: Vec<u8>) -> Bytes {
        if buffer.is_empty() {
            self.put(buffer);
            return Bytes::new();
        }
        Bytes::from_owner(LentBuffer {
            buffer,
            list: self.clone(),
        })
    }
}

struct LentBuffer {
    buffer: Vec<u8>,
    list: Arc<FreeList>,
}

impl AsRef<[u8]> for LentBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for LentBuffer {
    fn drop(&mut self) {
        self.list.put(std::mem::take(&mut self.buffer));
    }
}
