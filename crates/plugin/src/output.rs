//! Where plugins write to: memory of ours that only grows through a call.

use crate::abi::RawOutput;
use std::ffi::c_void;

/// The longest reason; what a plugin says beyond it is cut.
pub const REASON_BYTES_MAX: usize = 1024;

/// An output as a plugin sees it, and behind that what it does not see.
#[repr(C)]
pub struct Output {
    raw: RawOutput,
    bytes: Vec<u8>,
    /// Of `bytes`, with what was there before.
    length_max: usize,
    fault: Option<Fault>,
}

/// What a plugin did wrong with an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It wrote more than it may.
    TooLong,
    /// It gave a null pointer for bytes.
    Null,
}

impl Output {
    /// An output that appends up to `bytes_max` to what is in `bytes`.
    pub fn new(bytes: Vec<u8>, bytes_max: usize) -> Self {
        Self {
            raw: RawOutput { append },
            length_max: bytes.len().saturating_add(bytes_max),
            bytes,
            fault: None,
        }
    }

    /// An output for a reason.
    pub fn reason() -> Self {
        Self::new(Vec::new(), REASON_BYTES_MAX)
    }

    /// To be handed to a plugin.
    pub fn as_raw(&mut self) -> *mut RawOutput {
        (&raw mut *self).cast()
    }

    /// What was written, or what was wrong with it. The bytes are given back
    /// in either case.
    pub fn finish(self) -> (Vec<u8>, Option<Fault>) {
        (self.bytes, self.fault)
    }

    /// What was written as a sentence. Too long is no fault here, and nothing
    /// of it can disturb a terminal.
    pub fn into_reason(self) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        let mut reason: String = text
            .chars()
            .map(|char| if char.is_control() { ' ' } else { char })
            .collect();
        if self.fault == Some(Fault::TooLong) {
            reason.push('…');
        }
        match reason.trim() {
            "" => "without a reason".to_owned(),
            said => said.to_owned(),
        }
    }
}

/// What a plugin calls.
unsafe extern "C" fn append(output: *mut RawOutput, data: *const c_void, bytes: usize) -> i32 {
    // SAFETY: plugins hand back the pointer that they were given, which is of
    // a whole `Output` that nobody else uses during the call.
    let output = unsafe { &mut *output.cast::<Output>() };
    if bytes == 0 {
        return i32::from(output.fault.is_some());
    }
    if data.is_null() {
        output.fault = output.fault.or(Some(Fault::Null));
        return 1;
    }
    let space = output.length_max.saturating_sub(output.bytes.len());
    let taken = bytes.min(space);
    // SAFETY: the plugin promises that `bytes` bytes can be read there.
    let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), taken) };
    if output.bytes.try_reserve(taken).is_ok() {
        output.bytes.extend_from_slice(data);
        if taken == bytes {
            return i32::from(output.fault.is_some());
        }
    }
    output.fault = output.fault.or(Some(Fault::TooLong));
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(output: &mut Output, bytes: &[u8]) -> i32 {
        let raw = output.as_raw();
        // SAFETY: as a plugin calls it.
        unsafe { ((*raw).append)(raw, bytes.as_ptr().cast(), bytes.len()) }
    }

    #[test]
    fn it_grows_to_its_limit_and_not_further() {
        let mut output = Output::new(b"before".to_vec(), 5);
        assert_eq!(write(&mut output, b"abc"), 0);
        assert_eq!(write(&mut output, b"de"), 0);
        assert_eq!(write(&mut output, b""), 0);
        assert_eq!(write(&mut output, b"f"), 1);
        assert_eq!(write(&mut output, b""), 1);
        let (bytes, fault) = output.finish();
        assert_eq!(
            (&bytes[..], fault),
            (&b"beforeabcde"[..], Some(Fault::TooLong))
        );
    }

    #[test]
    fn a_null_pointer_is_a_fault_unless_nothing_is_there() {
        let mut output = Output::reason();
        let raw = output.as_raw();
        // SAFETY: as a plugin calls it.
        unsafe {
            assert_eq!(((*raw).append)(raw, std::ptr::null(), 0), 0);
            assert_eq!(((*raw).append)(raw, std::ptr::null(), 7), 1);
        }
        assert_eq!(output.finish(), (Vec::new(), Some(Fault::Null)));
    }

    #[test]
    fn reasons_are_cut_and_made_printable() {
        let mut output = Output::reason();
        assert_eq!(write(&mut output, b" too\x1b[31m\xffhot\n"), 0);
        assert_eq!(output.into_reason(), "too [31m\u{fffd}hot");
        let mut output = Output::reason();
        assert_eq!(write(&mut output, &[b'x'; REASON_BYTES_MAX + 1]), 1);
        let reason = output.into_reason();
        assert_eq!(reason.chars().count(), REASON_BYTES_MAX + 1);
        assert!(reason.ends_with("x…"));
        assert_eq!(Output::reason().into_reason(), "without a reason");
    }
}
