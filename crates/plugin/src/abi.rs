//! `include/thalweg/plugin.h`, in Rust. The header is what is promised; a
//! test compiles it against these layouts.

use std::ffi::{c_char, c_void};

/// `THALWEG_PLUGIN_ABI_VERSION`.
pub const ABI_VERSION: u32 = 1;
/// Before the name of a plugin, that of the function which returns its table.
pub const SYMBOL_PREFIX: &str = "thalweg_plugin_";

/// `THALWEG_PLUGIN_OK`.
pub const OK: i32 = 0;
/// `THALWEG_PLUGIN_REFUSED`.
pub const REFUSED: i32 = 1;
/// `THALWEG_PLUGIN_FAILED`.
pub const FAILED: i32 = 2;

/// `thalweg_plugin_output`.
#[repr(C)]
pub struct RawOutput {
    pub append: unsafe extern "C" fn(*mut RawOutput, *const c_void, usize) -> i32,
}

/// `thalweg_plugin_event`.
#[repr(C)]
pub struct RawEvent {
    pub metadata: *const u8,
    pub metadata_bytes: usize,
    pub key: *const u8,
    pub key_bytes: usize,
    pub partition_count: u32,
    pub reserved: u32,
}

pub type Create =
    unsafe extern "C" fn(*const c_char, usize, *mut *mut c_void, *mut RawOutput) -> i32;
pub type Destroy = unsafe extern "C" fn(*mut c_void);
pub type Validate = unsafe extern "C" fn(*mut c_void, *const u8, usize, *mut RawOutput) -> i32;
pub type Select =
    unsafe extern "C" fn(*mut c_void, *const RawEvent, *mut u32, *mut RawOutput) -> i32;
pub type Convert =
    unsafe extern "C" fn(*mut c_void, *const u8, usize, *mut RawOutput, *mut RawOutput) -> i32;

/// What every version of [`Table`] begins with.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct TableHead {
    pub abi_version: u32,
    pub table_bytes: u32,
}

/// `thalweg_plugin`.
#[repr(C)]
pub struct Table {
    pub head: TableHead,
    pub create: Option<Create>,
    pub destroy: Option<Destroy>,
    pub validate: Option<Validate>,
    pub select: Option<Select>,
    pub serialize: Option<Convert>,
    pub deserialize: Option<Convert>,
}

/// The function that a library exports for each plugin.
pub type GetTable = unsafe extern "C" fn() -> *const Table;

// The same numbers are in tests/fixtures/layout.c, beside the header.
#[cfg(target_pointer_width = "64")]
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<RawOutput>() == 8);
    assert!(size_of::<RawEvent>() == 40);
    assert!(offset_of!(RawEvent, key) == 16);
    assert!(offset_of!(RawEvent, partition_count) == 32);
    assert!(size_of::<Table>() == 56);
    assert!(offset_of!(Table, head.table_bytes) == 4);
    assert!(offset_of!(Table, create) == 8);
    assert!(offset_of!(Table, destroy) == 16);
    assert!(offset_of!(Table, validate) == 24);
    assert!(offset_of!(Table, select) == 32);
    assert!(offset_of!(Table, serialize) == 40);
    assert!(offset_of!(Table, deserialize) == 48);
};
