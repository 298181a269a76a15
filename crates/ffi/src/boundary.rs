//! What comes over the boundary, and what goes back.

use crate::error::{Code, Failure, ThalwegError};
use client::{EventId, Incarnation, Offset, PartitionIndex};
use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Where a failure is written, or NULL.
pub type ErrorOut<'a> = Option<&'a mut MaybeUninit<ThalwegError>>;
/// Where a result is written.
pub type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;

/// Runs what a function does. Its failure, be it a panic, is written to
/// `error` and its code returned.
pub fn guard(error: ErrorOut<'_>, call: impl FnOnce() -> Result<(), Failure>) -> i32 {
    let outcome = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("for no known reason");
        Err(Failure::new(
            Code::Internal,
            format!("a bug of the library's: it panicked: {text}"),
        ))
    });
    let Err(failure) = outcome else {
        return Code::Ok as i32;
    };
    if let Some(error) = error {
        failure.write(error);
    }
    failure.code
}

/// Runs what a function without a result does; a panic ends here.
pub fn quietly(call: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(call));
}

/// What a pointer points to; `what` names it in the refusal of NULL.
pub fn given<T>(what: &str, pointer: Option<T>) -> Result<T, Failure> {
    pointer.ok_or_else(|| Failure::invalid(format!("{what} is NULL")))
}

/// Text that is needed.
pub fn text<'a>(what: &str, text: *const c_char) -> Result<&'a str, Failure> {
    optional_text(what, text)?.ok_or_else(|| Failure::invalid(format!("{what} is NULL")))
}

/// Text that may be NULL.
pub fn optional_text<'a>(what: &str, text: *const c_char) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the header asks for NULL or a string that ends with a zero and
    // stays as it is for the time of the call.
    let text = unsafe { CStr::from_ptr(text) };
    match text.to_str() {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(Failure::invalid(format!("{what} is not UTF-8"))),
    }
}

/// Hands a string to the caller, who frees it with `thalweg_string_free`.
pub fn give_text(out: Out<'_, *mut c_char>, text: String) -> Result<(), Failure> {
    let out = given("where the string goes", out)?;
    let text = CString::new(text)
        .map_err(|_| Failure::new(Code::Internal, "a string of the server's holds a zero byte"))?;
    out.write(text.into_raw());
    Ok(())
}

/// The caller's array for up to `max` handles, and where their number goes.
pub struct Array<'a, T> {
    handles: *mut *mut T,
    max: usize,
    count: &'a mut MaybeUninit<usize>,
}

impl<'a, T> Array<'a, T> {
    /// An array that is empty so far.
    ///
    /// # Safety
    /// `handles` is NULL or has space for `max` pointers for `'a`.
    pub unsafe fn given(
        handles: *mut *mut T,
        max: usize,
        count: Out<'a, usize>,
    ) -> Result<Self, Failure> {
        let count = given("count", count)?;
        count.write(0);
        if handles.is_null() {
            return Err(Failure::invalid("events is NULL"));
        }
        Ok(Self {
            handles,
            max,
            count,
        })
    }

    /// Fills it.
    pub fn fill(self, given: impl ExactSizeIterator<Item = *mut T>) {
        assert!(given.len() <= self.max, "no more than were asked for");
        self.count.write(given.len());
        for (index, handle) in given.enumerate().take(self.max) {
            // SAFETY: there is space for `max`.
            unsafe { self.handles.add(index).write(handle) };
        }
    }
}

/// A number of milliseconds; none if it is negative.
pub fn limit(timeout_ms: i64) -> Option<Duration> {
    u64::try_from(timeout_ms).ok().map(Duration::from_millis)
}

/// `thalweg_bytes`: a piece of memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ThalwegBytes {
    pub base: *const c_void,
    pub size: usize,
}

impl ThalwegBytes {
    pub const NONE: Self = Self {
        base: std::ptr::null(),
        size: 0,
    };

    pub fn of(bytes: &[u8]) -> Self {
        Self {
            base: bytes.as_ptr().cast(),
            size: bytes.len(),
        }
    }

    /// The memory.
    ///
    /// # Safety
    /// `base` points to `size` bytes that stay as they are for `'a`, or `size` is 0.
    pub unsafe fn as_slice<'a>(self, what: &str) -> Result<&'a [u8], Failure> {
        if self.size == 0 {
            return Ok(&[]);
        }
        if self.base.is_null() || self.size > isize::MAX as usize {
            return Err(Failure::invalid(format!(
                "{what}: {} bytes at NULL",
                self.size
            )));
        }
        // SAFETY: the caller says so.
        Ok(unsafe { std::slice::from_raw_parts(self.base.cast(), self.size) })
    }
}

/// An array of the caller's.
///
/// # Safety
/// `base` points to `count` elements that stay as they are for `'a`, or `count` is 0.
pub unsafe fn array<'a, T>(what: &str, base: *const T, count: usize) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if base.is_null() || count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Failure::invalid(format!("{what}: {count} of them at NULL")));
    }
    // SAFETY: the caller says so.
    Ok(unsafe { std::slice::from_raw_parts(base, count) })
}

/// An array of the caller's that is written to.
///
/// # Safety
/// `base` points to `count` elements that nobody else uses for `'a`, or `count` is 0.
pub unsafe fn array_mut<'a, T>(
    what: &str,
    base: *mut T,
    count: usize,
) -> Result<&'a mut [T], Failure> {
    // SAFETY: the caller says so.
    match unsafe { array(what, base.cast_const(), count) }?.len() {
        0 => Ok(&mut []),
        // SAFETY: as above, and looked at.
        count => Ok(unsafe { std::slice::from_raw_parts_mut(base, count) }),
    }
}

/// `thalweg_event_id`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ThalwegEventId {
    pub partition: u32,
    pub reserved: u32,
    pub incarnation: u64,
    pub offset: u64,
}

impl From<EventId> for ThalwegEventId {
    fn from(id: EventId) -> Self {
        Self {
            partition: id.partition.0,
            reserved: 0,
            incarnation: id.incarnation.0,
            offset: id.offset.0,
        }
    }
}

impl From<ThalwegEventId> for EventId {
    fn from(id: ThalwegEventId) -> Self {
        Self {
            partition: PartitionIndex(id.partition),
            incarnation: Incarnation(id.incarnation),
            offset: Offset(id.offset),
        }
    }
}

/// A pointer of the user's, for callbacks, which may come on any thread: that
/// it can bear this is the user's part of the contract.
#[derive(Clone, Copy)]
pub struct UserPointer(pub *mut c_void);

impl UserPointer {
    /// As it is handed to the user's functions.
    pub fn get(self) -> *mut c_void {
        self.0
    }
}

// SAFETY: the pointer is only handed back to the user's own functions, of
// which the header says that they may be called on any thread.
unsafe impl Send for UserPointer {}
// SAFETY: as above.
unsafe impl Sync for UserPointer {}

/// The number that counts the changes of this ABI which old programs would notice.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_abi_version() -> u32 {
    1
}

/// The library's version.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// A code in words.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_code_name(code: i32) -> *const c_char {
    crate::error::name(code).as_ptr()
}

/// Text for C: a zero within it, which names of other programs may have, is shown as one that
/// cannot be.
pub fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{fffd}")).expect("zeros are replaced")
}

/// The refusal of an index.
pub fn none(index: usize, of: &str, count: usize) -> Failure {
    Failure::invalid(format!("index {index}: there are {count} {of}"))
}

/// Waits for the call of another thread.
pub fn turn<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>, Failure> {
    let poisoned = |_| Failure::new(Code::Internal, "an earlier call of the handle panicked");
    mutex.lock().map_err(poisoned)
}

/// Frees a string of the library's.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_string_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: the header asks for NULL or a string that the library gave,
        // which came from `CString::into_raw`, and for it once.
        drop(unsafe { CString::from_raw(text) });
    }
}

/// Hands an object to the caller, who frees it by the function for it.
pub fn give<T>(object: T) -> *mut T {
    Box::into_raw(Box::new(object))
}
