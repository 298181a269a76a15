//! The callbacks of consumers, which choose data and say where it goes.

use crate::boundary::*;
use crate::error::{Code, Failure, MESSAGE_BYTES, ThalwegError};
use crate::event::ThalwegEventInfo;
use crate::view::View;
use client::{DataAllocator, DataMode, DataSelector, EventInfo, Target};
use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::sync::Arc;

/// `thalweg_buffer`.
#[repr(C)]
pub struct ThalwegBuffer {
    pub base: *mut c_void,
    pub size: usize,
    pub owner: *mut c_void,
}

type Select = extern "C" fn(
    *mut c_void,
    *const ThalwegEventInfo,
    *mut View,
    *mut MaybeUninit<ThalwegError>,
) -> i32;
type Allocate = extern "C" fn(
    *mut c_void,
    *const ThalwegEventInfo,
    *const View,
    *mut ThalwegBuffer,
    *mut MaybeUninit<ThalwegError>,
) -> i32;

/// `thalweg_data_callbacks`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ThalwegDataCallbacks {
    pub select: Option<Select>,
    pub allocate: Option<Allocate>,
    pub release: Option<extern "C" fn(*mut c_void, *mut c_void)>,
    pub destroy: Option<extern "C" fn(*mut c_void)>,
    pub context: *mut c_void,
}

/// The callbacks of one consumer; the last who holds them tells the user.
pub struct Callbacks {
    given: ThalwegDataCallbacks,
    context: UserPointer,
}

// SAFETY: the header says that the functions are called on any thread; the
// context is handed to them alone.
unsafe impl Send for Callbacks {}
// SAFETY: as above.
unsafe impl Sync for Callbacks {}

impl Drop for Callbacks {
    fn drop(&mut self) {
        if let Some(destroy) = self.given.destroy {
            let context = self.context;
            client::deferred_drop(move || destroy(context.get()));
        }
    }
}

/// Memory of the user's allocator.
pub struct ReceiveBuffer {
    buffer: ThalwegBuffer,
    callbacks: Arc<Callbacks>,
}

// SAFETY: plain memory, of which the allocator's contract says that nobody
// else uses it until it is released.
unsafe impl Send for ReceiveBuffer {}
// SAFETY: shared use reads the address and the length alone.
unsafe impl Sync for ReceiveBuffer {}

impl ReceiveBuffer {
    pub fn bytes(&self) -> ThalwegBytes {
        ThalwegBytes {
            base: self.buffer.base,
            size: self.buffer.size,
        }
    }

    pub fn owner(&self) -> *mut c_void {
        self.buffer.owner
    }
}

impl AsMut<[u8]> for ReceiveBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        if self.buffer.size == 0 {
            return &mut [];
        }
        // SAFETY: the allocator gave memory of that size, which is nobody
        // else's until it is released.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.base.cast(), self.buffer.size) }
    }
}

impl Drop for ReceiveBuffer {
    fn drop(&mut self) {
        if let Some(release) = self.callbacks.given.release {
            let (callbacks, owner) = (self.callbacks.clone(), UserPointer(self.buffer.owner));
            client::deferred_drop(move || release(callbacks.context.get(), owner.get()));
        }
    }
}

/// Calls a callback, and turns what it refuses into words.
fn ask(call: impl FnOnce(*mut MaybeUninit<ThalwegError>) -> i32) -> Result<(), String> {
    let mut error = MaybeUninit::<ThalwegError>::zeroed();
    let code = call(&raw mut error);
    if code == Code::Ok as i32 {
        return Ok(());
    }
    // SAFETY: all zeroes are an error without a message, and whatever the
    // callback wrote over them is plain numbers.
    let mut error = unsafe { error.assume_init() };
    error.message[MESSAGE_BYTES - 1] = 0;
    // SAFETY: the last byte is a zero.
    let message = unsafe { CStr::from_ptr(error.message.as_ptr()) };
    Err(match message.to_string_lossy() {
        text if text.is_empty() => format!("the callback returned {code}"),
        text => text.into_owned(),
    })
}

impl Callbacks {
    /// The user's: from now on `destroy` is called when nobody holds them.
    pub fn new(given: &ThalwegDataCallbacks) -> Arc<Self> {
        Arc::new(Self {
            given: *given,
            context: UserPointer(given.context),
        })
    }

    /// Which data is wanted, where `data` is what the options say, and where it goes.
    pub fn choose(
        self: Arc<Self>,
        data: DataMode,
    ) -> Result<(DataMode, Option<Arc<DataAllocator>>), Failure> {
        let allocator = self.given.allocate.map(|allocate| self.allocator(allocate));
        let Some(select) = self.given.select else {
            return Ok((data, allocator));
        };
        match data {
            DataMode::None => Err(Failure::invalid("data is none, and there is a selector")),
            _ => Ok((DataMode::Select(self.selector(select)), allocator)),
        }
    }

    fn selector(self: &Arc<Self>, select: Select) -> Arc<DataSelector> {
        let callbacks = self.clone();
        Arc::new(move |info: &EventInfo<'_>| {
            let info = ThalwegEventInfo::of(info);
            let mut view = View(client::DataView::whole(info.data_bytes_total));
            ask(|error| select(callbacks.context.0, &raw const info, &raw mut view, error))?;
            Ok(view.0)
        })
    }

    fn allocator(self: &Arc<Self>, allocate: Allocate) -> Arc<DataAllocator> {
        let callbacks = self.clone();
        Arc::new(move |info: &EventInfo<'_>, view: &client::DataView| {
            let info = ThalwegEventInfo::of(info);
            let view = View(view.clone());
            let mut buffer = ThalwegBuffer {
                base: std::ptr::null_mut(),
                size: 0,
                owner: std::ptr::null_mut(),
            };
            ask(|error| {
                let (info, view) = (&raw const info, &raw const view);
                allocate(callbacks.context.0, info, view, &raw mut buffer, error)
            })?;
            let received = ReceiveBuffer {
                buffer,
                callbacks: callbacks.clone(),
            };
            if received.buffer.base.is_null() && received.buffer.size > 0 {
                return Err(format!("it gave {} bytes at NULL", received.buffer.size));
            }
            Ok(Target::new(received))
        })
    }
}
