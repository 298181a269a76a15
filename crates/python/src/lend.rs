//! Memory of Python objects, lent to the client without a copy.
//!
//! The client drops lent memory on threads that must not wait for the GIL. So
//! a dropped loan is only put on a stack, and given back to Python by the
//! next thread that holds the GIL anyway, or by a call that the interpreter
//! is asked to make soon. The stack has no lock, because a lock that another
//! thread holds during `fork` is held for ever in the child.

use crate::error;
use bytes::Bytes;
use memory::Target;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyMemoryView, PyString, PyTuple};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Loans that were dropped and not yet given back: a stack, newest first.
static RETURNED: AtomicPtr<Loan> = AtomicPtr::new(ptr::null_mut());

/// Whether the interpreter ends: it is asked for nothing then.
static ENDING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread holds the GIL in [`giving_back_at_once`].
    static ATTACHED: Cell<bool> = const { Cell::new(false) };
}

struct Loan {
    view: ffi::Py_buffer,
    next: *mut Loan,
}

/// A hold on the memory of a Python object. The pointer is of a `Box`.
pub struct Held(*mut Loan);

// SAFETY: the loan is used by one thread at a time, its bytes are plain
// memory, and `drop` gives it back without touching Python.
unsafe impl Send for Held {}
// SAFETY: shared use only reads the view's pointer and length, which don't change.
unsafe impl Sync for Held {}

/// Memory that is read. It can't change, or its owner must not change it
/// before it is dropped, which is the contract of `borrow=True`.
struct Lent(Held);

/// The data of one event, as a user gives it.
pub enum Payload {
    /// Sent from where it lies: it can't change, or the user said `borrow=True`.
    Lent(Vec<Bytes>),
    /// Copied by the call that it is given to, and then the user's again.
    Held(Vec<Held>),
}

/// Memory that is written to, by the client alone until it comes back, and
/// the object that it is of.
pub struct ReceiveBuffer {
    held: Held,
    object: Py<PyAny>,
}

impl Held {
    /// The memory. Other threads of the program may change it while they have
    /// the GIL: what is copied from it then is what they make of it.
    pub fn as_slice(&self) -> &[u8] {
        slice_of(self.bytes(), self.len())
    }

    fn bytes(&self) -> *mut u8 {
        // SAFETY: the box lives until `drop`.
        unsafe { (*self.0).view.buf.cast() }
    }

    fn len(&self) -> usize {
        // SAFETY: as above. The length of a buffer is not negative.
        unsafe { (*self.0).view.len as usize }
    }

    /// Asks `object` for its memory as one block.
    fn of(object: &Bound<'_, PyAny>, writable: bool) -> PyResult<Self> {
        // Strides are asked for, so that an object which isn't contiguous can
        // be told from one that has no memory to share; a format is not, for
        // numpy has types that have none.
        let flags = if writable {
            ffi::PyBUF_STRIDED
        } else {
            ffi::PyBUF_STRIDED_RO
        };
        let loan = Box::new(Loan {
            view: ffi::Py_buffer::new(),
            next: ptr::null_mut(),
        });
        let loan = Box::into_raw(loan);
        // SAFETY: `object` is alive, the GIL is held, and the view stays where it is.
        let status = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &mut (*loan).view, flags) };
        if status != 0 {
            // SAFETY: the box was made above and the view was not filled.
            drop(unsafe { Box::from_raw(loan) });
            return Err(PyErr::fetch(object.py()));
        }
        let held = Self(loan);
        // SAFETY: the view was filled by `PyObject_GetBuffer`.
        let contiguous = unsafe { ffi::PyBuffer_IsContiguous(&(*loan).view, b'C' as _) } != 0;
        if contiguous {
            return Ok(held);
        }
        give_back(object.py(), held);
        Err(PyBufferError::new_err(
            "it is not contiguous in C order; numpy.ascontiguousarray makes such a copy",
        ))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if ATTACHED.get() {
            // SAFETY: this thread holds the GIL, see `giving_back_at_once`.
            unsafe { release(self.0) };
            return;
        }
        let mut head = RETURNED.load(Ordering::Relaxed);
        loop {
            // SAFETY: the box is this thread's own until it is on the stack.
            unsafe { (*self.0).next = head };
            // Release: whoever takes the stack sees `next`.
            match RETURNED.compare_exchange_weak(head, self.0, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        if head.is_null() && !ENDING.load(Ordering::Relaxed) {
            // SAFETY: may be called from any thread, without the GIL. That it
            // finds no space is no loss: the next call gives back.
            unsafe { ffi::Py_AddPendingCall(Some(release_pending), ptr::null_mut()) };
        }
    }
}

extern "C" fn release_pending(_: *mut c_void) -> c_int {
    release_all();
    0
}

/// Gives back what was dropped since. Cheap when there is nothing.
pub fn release_returned(_: Python<'_>) {
    if !RETURNED.load(Ordering::Relaxed).is_null() {
        release_all();
    }
}

/// Must be called with the GIL held.
fn release_all() {
    // Acquire: pairs with the push. The whole stack is taken at once, so no
    // loan can be put back on it while it is walked.
    let mut loan = RETURNED.swap(ptr::null_mut(), Ordering::Acquire);
    while !loan.is_null() {
        // SAFETY: loans on the stack are nobody's; this one is ours now.
        let next = unsafe { (*loan).next };
        // SAFETY: as above, and the GIL is held.
        unsafe { release(loan) };
        loan = next;
    }
}

/// # Safety
/// The GIL is held, and `loan` is a box that nobody else uses.
unsafe fn release(loan: *mut Loan) {
    // SAFETY: the caller says so.
    let mut loan = unsafe { Box::from_raw(loan) };
    // SAFETY: the view was filled by `PyObject_GetBuffer` and is released once.
    unsafe { ffi::PyBuffer_Release(&mut loan.view) };
}

fn give_back(_: Python<'_>, held: Held) {
    let loan = held.0;
    std::mem::forget(held);
    // SAFETY: the GIL is held, and the loan was the forgotten owner's alone.
    unsafe { release(loan) };
}

/// Runs `call`, in which loans that are dropped go back at once. `call` must
/// not let go of the GIL.
pub fn giving_back_at_once<T>(_: Python<'_>, call: impl FnOnce() -> T) -> T {
    struct Reset(bool);
    impl Drop for Reset {
        fn drop(&mut self) {
            ATTACHED.set(self.0);
        }
    }
    let _reset = Reset(ATTACHED.replace(true));
    call()
}

/// Asks the interpreter for nothing any more: it ends.
pub fn end() {
    ENDING.store(true, Ordering::Relaxed);
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

impl AsMut<[u8]> for ReceiveBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        if self.held.len() == 0 {
            return &mut [];
        }
        // SAFETY: the object's memory is held and writable; that nothing else
        // uses it meanwhile is the contract of the allocator.
        unsafe { std::slice::from_raw_parts_mut(self.held.bytes(), self.held.len()) }
    }
}

fn slice_of<'a>(bytes: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the object's memory is held. Nobody writes to it while it is lent,
    // by the contract of `borrow`, nor while a call copies it: whoever pushes an
    // array that another thread is writing has a race of the program's own.
    unsafe { std::slice::from_raw_parts(bytes, len) }
}

impl ReceiveBuffer {
    /// The writable memory of `object`, which must be `bytes` long.
    pub fn new(object: &Bound<'_, PyAny>, bytes: u64) -> PyResult<Self> {
        let held = Held::of(object, true).map_err(|reason| {
            let message = format!(
                "data is received in a writable, contiguous buffer; a {} is none",
                type_name(object)
            );
            refuse(object.py(), "InvalidArgument", message, reason)
        })?;
        if held.len() as u64 != bytes {
            let len = held.len();
            give_back(object.py(), held);
            let message = format!("a buffer of {len} bytes was given for a view of {bytes} bytes");
            return Err(error::new(object.py(), "InvalidArgument", message));
        }
        Ok(Self {
            held,
            object: object.clone().unbind(),
        })
    }

    /// The object, its memory given back to it.
    pub fn into_object(self, py: Python<'_>) -> Py<PyAny> {
        give_back(py, self.held);
        self.object
    }
}

impl From<ReceiveBuffer> for Target {
    fn from(buffer: ReceiveBuffer) -> Self {
        Target::new(buffer)
    }
}

impl Payload {
    /// Of nothing, one buffer, or a list of them, to be sent from where it
    /// lies if the user says so (`borrow`) or none of it can change.
    pub fn new(data: Option<&Bound<'_, PyAny>>, borrow: bool) -> PyResult<Self> {
        let Some(data) = data else {
            return Ok(Self::default());
        };
        if let Ok(list) = data.cast::<PyList>() {
            return Self::of(list.iter(), borrow);
        }
        if let Ok(tuple) = data.cast::<PyTuple>() {
            return Self::of(tuple.iter(), borrow);
        }
        let held = hold(data)?;
        Ok(match borrow || is_immutable(data) {
            true => Self::Lent(vec![held.lend()]),
            false => Self::Held(vec![held]),
        })
    }

    fn of<'py>(objects: impl Iterator<Item = Bound<'py, PyAny>>, borrow: bool) -> PyResult<Self> {
        let mut is_lent = true;
        let hold = |object| {
            let held = hold(&object)?;
            is_lent &= borrow || is_immutable(&object);
            Ok(held)
        };
        let held = objects.map(hold).collect::<PyResult<Vec<_>>>()?;
        // One copy of all is better than some pieces here and some there.
        Ok(match is_lent {
            true => Self::Lent(held.into_iter().map(Held::lend).collect()),
            false => Self::Held(held),
        })
    }

    /// What the client may keep.
    pub fn lent(&self) -> Vec<Bytes> {
        match self {
            Self::Lent(pieces) => pieces.clone(),
            Self::Held(_) => Vec::new(),
        }
    }

    /// What the client has to copy.
    pub fn copied(&self) -> Vec<&[u8]> {
        match self {
            Self::Lent(_) => Vec::new(),
            Self::Held(pieces) => pieces.iter().map(Held::as_slice).collect(),
        }
    }
}

impl Default for Payload {
    fn default() -> Self {
        Self::Lent(Vec::new())
    }
}

impl Held {
    /// Lent to the client.
    pub fn lend(self) -> Bytes {
        Bytes::from_owner(Lent(self))
    }
}

/// Whether nobody can change what `object` shows: `bytes`, data of a consumed
/// event, and a `memoryview` of these.
pub fn is_immutable(object: &Bound<'_, PyAny>) -> bool {
    // A subclass may show memory of another object.
    let is_constant = |object: &Bound<'_, PyAny>| {
        object.is_exact_instance_of::<PyBytes>() || object.is_exact_instance_of::<Memory>()
    };
    is_constant(object)
        || object.is_exact_instance_of::<PyMemoryView>()
            && object.getattr("obj").is_ok_and(|shown| is_constant(&shown))
}

/// The memory of an array of two or more dimensions, and the length of its
/// first axis.
pub fn array(object: &Bound<'_, PyAny>) -> PyResult<(Held, usize)> {
    let held = hold(object)?;
    // SAFETY: the view was filled and is alive; its shape has `ndim` entries
    // because strides were asked for.
    let (ndim, rows) = unsafe {
        let view = &(*held.0).view;
        (
            view.ndim,
            if view.ndim >= 2 {
                *view.shape as usize
            } else {
                0
            },
        )
    };
    if ndim >= 2 {
        return Ok((held, rows));
    }
    give_back(object.py(), held);
    let message = format!(
        "data for many events is a list, or an array of two or more dimensions; this {} has {ndim}",
        type_name(object)
    );
    Err(error::new(object.py(), "InvalidArgument", message))
}

fn hold(object: &Bound<'_, PyAny>) -> PyResult<Held> {
    Held::of(object, false).map_err(|reason| {
        let kind = type_name(object);
        let message = if reason.is_instance_of::<PyBufferError>(object.py()) {
            format!(
                "the memory of this {kind} can't be sent: {}",
                reason.value(object.py())
            )
        } else {
            format!(
                "data is an object with the buffer protocol or a list of them, not a {kind}{}",
                remedy(object)
            )
        };
        refuse(object.py(), "InvalidEvent", message, reason)
    })
}

/// How the data of what has no memory to share is sent.
fn remedy(object: &Bound<'_, PyAny>) -> &'static str {
    let has = |name| object.hasattr(name).unwrap_or(false);
    match () {
        () if object.is_instance_of::<PyString>() => "; its encode() gives bytes",
        () if has("to_numpy") && has("dtypes") => "; its columns have to_numpy()",
        () if has("to_numpy") => "; its to_numpy() gives an array",
        () if has("__arrow_c_stream__") || has("__arrow_c_array__") => {
            "; pyarrow.ipc writes it into a buffer"
        }
        () if has("data_vars") => "; its variables have to_numpy()",
        () if has("__array__") => "; numpy.asarray(it) may give an array",
        () => "",
    }
}

fn refuse(py: Python<'_>, class: &str, message: String, reason: PyErr) -> PyErr {
    let refusal = error::new(py, class, message);
    refusal.set_cause(py, Some(reason));
    refusal
}

fn type_name(object: &Bound<'_, PyAny>) -> String {
    object
        .get_type()
        .fully_qualified_name()
        .map_or_else(|_| "object".into(), |name| name.to_string())
}

/// Bytes of the client, shown to Python as read-only memory.
#[pyclass(frozen, module = "thalweg._thalweg", name = "_Memory")]
pub struct Memory(Bytes);

#[pymethods]
impl Memory {
    /// # Safety
    /// Called by the interpreter, as the buffer protocol says.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let bytes = &slf.get().0;
        // SAFETY: the bytes live as long as `slf`, to which the view gets a
        // reference, and read-only is asked for.
        let status = unsafe {
            let start = bytes.as_ptr().cast_mut().cast();
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, bytes.len() as isize, 1, flags)
        };
        if status == 0 {
            Ok(())
        } else {
            Err(PyErr::fetch(slf.py()))
        }
    }
}

/// A read-only `memoryview` of `bytes`, which lives as long as anybody uses it.
pub fn memoryview<'py>(py: Python<'py>, bytes: Bytes) -> PyResult<Bound<'py, PyAny>> {
    let memory = Bound::new(py, Memory(bytes))?;
    view_of(memory.as_any())
}

/// A `memoryview` of bytes over the memory of any object.
pub fn view_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the object is alive and the GIL is held.
    unsafe {
        Bound::from_owned_ptr_or_err(object.py(), ffi::PyMemoryView_FromObject(object.as_ptr()))
    }
}
