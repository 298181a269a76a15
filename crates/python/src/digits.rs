//! Hexadecimal digits as bytes, for programs that send pickles as text. Python's
//! own does a digit at a time, and holds the GIL meanwhile.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

/// What is shorter is done sooner than the GIL is let go of and had again.
const DETACHED_BYTES_MIN: usize = 64 << 10;

/// Bytes that are done at a time: loops of that length without a branch or a
/// table become a few instructions.
const LANE: usize = 16;

/// `bytes.fromhex(digits)`, without white space and without the GIL while it lasts.
#[pyfunction]
#[pyo3(signature = (digits, /))]
pub fn _unhex<'py>(
    py: Python<'py>,
    digits: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyBytes>> {
    let digits = digits.to_str()?.as_bytes();
    let count = digits.len() / 2;
    PyBytes::new_with(py, count, |out| {
        let is_good = match digits.len() < DETACHED_BYTES_MIN {
            true => bytes_of(digits, out),
            false => py.detach(|| bytes_of(digits, out)),
        };
        match is_good && digits.len() == 2 * count {
            true => Ok(()),
            false => Err(PyValueError::new_err(
                "they are not pairs of hexadecimal digits",
            )),
        }
    })
}

/// False if something is no digit.
fn bytes_of(digits: &[u8], out: &mut [u8]) -> bool {
    let mut bad = [0; 2 * LANE];
    let (whole, rest) = digits.as_chunks();
    let (outs, out_rest) = out.as_chunks_mut();
    for (lane, out) in whole.iter().zip(outs) {
        *out = bytes_of_lane(lane, &mut bad);
    }
    let mut last = [b'0'; 2 * LANE];
    last[..rest.len()].copy_from_slice(rest);
    let last = bytes_of_lane(&last, &mut bad);
    out_rest.copy_from_slice(&last[..out_rest.len()]);
    bad == [0; 2 * LANE]
}

/// Marks in `bad` where something is no digit.
fn bytes_of_lane(digits: &[u8; 2 * LANE], bad: &mut [u8; 2 * LANE]) -> [u8; LANE] {
    let mut halves = [0; 2 * LANE];
    for ((digit, half), bad) in digits.iter().zip(&mut halves).zip(bad) {
        let number = digit.wrapping_sub(b'0');
        let letter = (digit | 0x20).wrapping_sub(b'a');
        *half = if number < 10 {
            number
        } else {
            letter.wrapping_add(10)
        };
        *bad |= u8::from(number >= 10 && letter >= 6);
    }
    let mut bytes = [0; LANE];
    for (pair, byte) in halves.as_chunks().0.iter().zip(&mut bytes) {
        let halves = u16::from_le_bytes(*pair);
        *byte = (halves << 4 | halves >> 8) as u8;
    }
    bytes
}
