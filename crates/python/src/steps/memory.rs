//! Memory of a block that is made in place.

use bytes::Bytes;
use memory::Allocation;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use std::sync::Arc;

/// The memory of a block, for a program to fill: over shared memory the server reads it where it is.
#[pyclass(frozen, module = "thalweg._thalweg", name = "_StepMemory")]
pub struct StepMemory(Arc<Shared>);

/// Memory that its program fills and the client reads after that.
struct Shared {
    start: *mut u8,
    bytes: usize,
    /// Keeps it.
    _allocation: Allocation,
}

// SAFETY: the allocation can be sent, and is used by nobody but through the pointer.
unsafe impl Send for Shared {}
// SAFETY: the client only reads. What a program writes meanwhile is a race of its own, as with
// memory that is lent.
unsafe impl Sync for Shared {}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the allocation keeps its place and length, and lives as long as this.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }
}

struct Owner(Arc<Shared>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl StepMemory {
    pub fn new(mut allocation: Allocation) -> Self {
        let memory = allocation.as_mut();
        Self(Arc::new(Shared {
            start: memory.as_mut_ptr(),
            bytes: memory.len(),
            _allocation: allocation,
        }))
    }

    /// The memory, as the client reads it.
    pub fn bytes(&self) -> Bytes {
        Bytes::from_owner(Owner(Arc::clone(&self.0)))
    }
}

#[pymethods]
impl StepMemory {
    /// # Safety
    /// Called by the interpreter, as the buffer protocol says.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let shared = &slf.get().0;
        // SAFETY: the memory lives as long as `slf`, to which the view gets a reference.
        let status = unsafe {
            let start = shared.start.cast();
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, shared.bytes as isize, 0, flags)
        };
        match status {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}
