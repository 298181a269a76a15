//! An allocator that counts, for tests that guard how often memory is asked
//! for. Each thread counts its own, so that others do not disturb. And the time of a simulation.

pub use crate::deadline::testing::say as say_time;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with its calls counted. For use as
/// `#[global_allocator]` of a test.
pub struct CountingAllocator;

thread_local! {
    /// Allocations, and their bytes. Without a destructor, so that it can be
    /// used until the thread's very end.
    static COUNT: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

fn count(bytes: usize) {
    COUNT.set({
        let (calls, sum) = COUNT.get();
        (calls + 1, sum + bytes as u64)
    });
}

/// How often this thread asked for memory so far, and for how many bytes; zero
/// where the counting allocator is not installed.
pub fn allocations() -> (u64, u64) {
    COUNT.get()
}

// SAFETY: every call goes to the system's allocator as it came; counting
// touches a cell of the thread's own, which neither allocates nor panics.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's obligations are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(bytes.saturating_sub(layout.size()));
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, bytes) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}
