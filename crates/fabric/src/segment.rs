//! Memory shared with another process: made and sealed by one side, mapped
//! for reading by the other.

use crate::copying;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Nobody can shrink the memory or take pages out of it under a reader (that
/// would be a SIGBUS there), nobody but its maker's mapping can write it, and
/// none of that can be undone.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::FUTURE_WRITE)
    .union(SealFlags::SEAL);

/// A mapping of shared memory, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    writable: bool,
}

// SAFETY: the mapping is plain memory that outlives every borrow of it, and
// all access goes through atomics and `copying`, which bear concurrent writes.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(memory: impl AsFd, bytes: usize, writable: bool, warm: bool) -> io::Result<Self> {
        let access = match writable {
            true => ProtFlags::READ | ProtFlags::WRITE,
            false => ProtFlags::READ,
        };
        let warmth = match warm {
            true => MapFlags::POPULATE,
            false => MapFlags::empty(),
        };
        // SAFETY: a new mapping at an address of the system's choice touches
        // no memory that anybody uses.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                access,
                MapFlags::SHARED | warmth,
                memory,
                0,
            )
        }?;
        let base = NonNull::new(base.cast()).expect("a mapping is nowhere near zero");
        Ok(Self {
            base,
            bytes,
            writable,
        })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where it begins.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// The word at `at`. One that the other side owns is for loading alone.
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.bytes);
        // SAFETY: it is inside the mapping, aligned because mappings begin at
        // pages, and valid as long as `self`. A word of a mapping that cannot
        // be written is only loaded, by the users in `ring`.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// Copies what is there now, though others may be writing it.
    pub(crate) fn copy_out(&self, at: usize, into: &mut [u8]) {
        assert!(at <= self.bytes && into.len() <= self.bytes - at);
        // SAFETY: the source is inside the mapping, checked above; the
        // destination is the caller's alone.
        unsafe { copying::from_shared(self.base.as_ptr().add(at), into) }
    }

    /// Copies `from` to where the other side will read it.
    pub(crate) fn copy_in(&self, from: &[u8], at: usize) {
        assert!(self.writable && at <= self.bytes && from.len() <= self.bytes - at);
        // SAFETY: the destination is inside the mapping, checked above, which
        // is writable; no reference to that memory exists in this process.
        unsafe { copying::to_shared(from, self.base.as_ptr().add(at)) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `new` with this length, and all borrows of
        // it have ended.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "what was mapped can be unmapped");
    }
}

/// Makes memory of `bytes` bytes, all there from the beginning, sealed, and
/// mapped for writing here. The descriptor is for the other side.
pub(crate) fn make(name: &str, bytes: usize) -> io::Result<(Mapping, OwnedFd)> {
    make_sealed(name, bytes, true)
}

/// [`make`], for much memory of which little may be used: pages are mapped
/// when they are touched.
pub(crate) fn make_cold(name: &str, bytes: usize) -> io::Result<(Mapping, OwnedFd)> {
    make_sealed(name, bytes, false)
}

fn make_sealed(name: &str, bytes: usize, warm: bool) -> io::Result<(Mapping, OwnedFd)> {
    let failed = |doing: &str, error: rustix::io::Errno| {
        io::Error::new(error.kind(), format!("{doing}: {}", io::Error::from(error)))
    };
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = rustix::fs::memfd_create(name, flags)
        .map_err(|error| failed("making shared memory", error))?;
    // Now, so that a full system says so here and not by a SIGBUS later.
    rustix::fs::ftruncate(&memory, bytes as u64)
        .and_then(|()| rustix::fs::fallocate(&memory, FallocateFlags::empty(), 0, bytes as u64))
        .map_err(|error| failed(&format!("allocating {bytes} bytes of shared memory"), error))?;
    let mapping = Mapping::new(&memory, bytes, true, warm)?;
    rustix::fs::fcntl_add_seals(&memory, SEALS)
        .map_err(|error| failed("sealing shared memory", error))?;
    Ok((mapping, memory))
}

/// Maps memory that the other side made, for reading; says what is wrong
/// with it.
pub(crate) fn map(memory: &OwnedFd, bytes_max: usize) -> io::Result<Mapping> {
    map_sealed(memory, bytes_max, true)
}

/// [`map`], for what was made by [`make_cold`].
pub(crate) fn map_cold(memory: &OwnedFd, bytes_max: usize) -> io::Result<Mapping> {
    map_sealed(memory, bytes_max, false)
}

fn map_sealed(memory: &OwnedFd, bytes_max: usize, warm: bool) -> io::Result<Mapping> {
    let seals = rustix::fs::fcntl_get_seals(memory)?;
    if !seals.contains(SEALS) {
        return Err(io::Error::other(format!(
            "the memory is not sealed: {seals:?}"
        )));
    }
    // Sealed: what is found out now stays so.
    let status = rustix::fs::fstat(memory)?;
    let bytes = usize::try_from(status.st_size).unwrap_or(0);
    if bytes == 0 || bytes > bytes_max {
        return Err(io::Error::other(format!(
            "{bytes} bytes of memory; the limit is {bytes_max}"
        )));
    }
    if (status.st_blocks as u64) * 512 < bytes as u64 {
        return Err(io::Error::other(format!(
            "of {bytes} bytes of memory only {} blocks are there",
            status.st_blocks
        )));
    }
    Mapping::new(memory, bytes, false, warm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn what_one_side_writes_the_other_reads_and_cannot_change() {
        let (ours, descriptor) = make("test", 8192).unwrap();
        let theirs = map(&descriptor, 1 << 20).unwrap();
        ours.copy_in(b"hello", 8187);
        ours.word(64).store(7, Ordering::Release);
        let mut read = [0; 5];
        theirs.copy_out(8187, &mut read);
        assert_eq!(&read, b"hello");
        assert_eq!(theirs.word(64).load(Ordering::Acquire), 7);
        // Neither by another mapping, nor by a write, a hole or another size.
        assert!(Mapping::new(&descriptor, 8192, true, false).is_err());
        assert!(rustix::io::write(&descriptor, b"x").is_err());
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert!(rustix::fs::fallocate(&descriptor, hole, 0, 4096).is_err());
        assert!(rustix::fs::ftruncate(&descriptor, 0).is_err());
        assert!(rustix::fs::fcntl_add_seals(&descriptor, SealFlags::WRITE).is_err());
    }

    #[test]
    fn memory_that_could_vanish_is_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create("test", flags).unwrap();
        rustix::fs::ftruncate(&memory, 8192).unwrap();
        let error = map(&memory, 1 << 20).unwrap_err().to_string();
        assert!(error.contains("not sealed"), "{error}");
        rustix::fs::fcntl_add_seals(&memory, SEALS).unwrap();
        let error = map(&memory, 1 << 20).unwrap_err().to_string();
        assert!(error.contains("only 0 blocks"), "{error}");
        let (_, memory) = make("test", 8192).unwrap();
        let error = map(&memory, 4096).unwrap_err().to_string();
        assert!(error.contains("the limit is 4096"), "{error}");
    }
}
