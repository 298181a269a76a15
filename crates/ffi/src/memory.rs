//! `thalweg_memory`: memory that a driver's transport sends with fewest copies.

use crate::boundary::*;
use crate::driver::Driver;
use std::ffi::c_void;

/// `thalweg_memory`. The allocation's memory keeps its place.
pub struct Memory(::memory::Allocation);

/// Gives memory for data of events.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_memory_new(
    driver: Option<&Driver>,
    size: usize,
    memory: Out<'_, *mut Memory>,
    base: Out<'_, *mut c_void>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let driver = given("driver", driver)?;
        let (memory, base) = (given("memory", memory)?, given("base", base)?);
        let mut allocated = driver.connection.client.alloc_buffer(size);
        base.write(allocated.as_mut_ptr().cast());
        memory.write(give(Memory(allocated)));
        Ok(())
    })
}

/// Gives the memory back.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_memory_free(memory: Option<Box<Memory>>) {
    quietly(|| drop(memory.map(|memory| memory.0)));
}
