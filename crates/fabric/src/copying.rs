//! Copies between memory of our own and memory that another process may be
//! writing at the same time.
//!
//! Such bytes may be anything, and different at every look. The copy is plain
//! `memcpy`; the empty piece of assembly behind (or before) it may, for all
//! the compiler knows, read and write the copied memory. So it knows nothing
//! of the bytes but that they are there, and can neither look at the shared
//! memory a second time nor conclude anything from the first.

use std::arch::asm;

/// Fills `into` with the bytes at `from`.
///
/// # Safety
/// As many bytes as `into` has can be read at `from`, which is no memory of
/// the Rust program: nothing in this process has a reference to it.
pub(crate) unsafe fn from_shared(from: *const u8, into: &mut [u8]) {
    let to = into.as_mut_ptr();
    // SAFETY: both ranges are valid by the contract above, and apart because
    // one of them is no memory of the program.
    unsafe { std::ptr::copy_nonoverlapping(from, to, into.len()) };
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {0} */", in(reg) to, options(nostack, preserves_flags)) };
}

/// Puts the bytes of `from` at `to`.
///
/// # Safety
/// As many bytes as `from` has can be written at `to`, which is no memory of
/// the Rust program: nothing in this process has a reference to it.
pub(crate) unsafe fn to_shared(from: &[u8], to: *mut u8) {
    // SAFETY: both ranges are valid by the contract above, and apart because
    // one of them is no memory of the program.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {0} */", in(reg) to, options(nostack, preserves_flags)) };
}
