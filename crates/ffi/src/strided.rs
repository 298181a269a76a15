//! Arrays of the caller's whose elements do not lie one behind the other.

use crate::boundary::array;
use crate::error::Failure;
use std::ffi::c_void;

/// An array in the caller's memory: where its first element is, and how far from one to the next.
pub struct Strided<'a> {
    base: *mut u8,
    count: &'a [u64],
    strides: &'a [i64],
    /// Elements that lie one behind the other, and their dimensions, are one piece.
    piece_bytes: usize,
    outer: usize,
    bytes: usize,
}

impl<'a> Strided<'a> {
    /// One of `count` elements of `item_bytes`, `strides` bytes apart.
    ///
    /// # Safety
    /// `strides` points to as many numbers as `count` has for `'a`, and all elements that they
    /// and `base` say are there, and nobody else's, for `'a`.
    pub unsafe fn given(
        what: &str,
        base: *mut c_void,
        count: &'a [u64],
        strides: *const i64,
        item_bytes: usize,
    ) -> Result<Self, Failure> {
        // SAFETY: the caller says so.
        let strides = unsafe { array("strides", strides, count.len()) }?;
        let bytes = bytes_of(count, item_bytes)
            .ok_or_else(|| Failure::invalid(format!("{what}: {count:?} elements are too many")))?;
        if base.is_null() && bytes > 0 {
            return Err(Failure::invalid(format!("{what}: {bytes} bytes at NULL")));
        }
        for (count, stride) in count.iter().zip(strides) {
            let span = stride.checked_mul((*count).saturating_sub(1) as i64);
            if bytes > 0 && span.is_none() {
                return Err(Failure::invalid(format!(
                    "{what}: {count} elements {stride} bytes apart are more than memory has"
                )));
            }
        }
        let (mut outer, mut piece_bytes) = (count.len(), item_bytes);
        while outer > 0 && (strides[outer - 1] == piece_bytes as i64 || count[outer - 1] == 1) {
            outer -= 1;
            piece_bytes = piece_bytes.saturating_mul(count[outer] as usize);
        }
        Ok(Self {
            base: base.cast(),
            count,
            strides,
            piece_bytes,
            outer,
            bytes,
        })
    }

    /// Bytes of its elements.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies its elements to `dense`, which is as long.
    pub fn gather(&self, dense: &mut [u8]) {
        let mut pieces = dense.chunks_exact_mut(self.piece_bytes.max(1));
        self.each_piece(|at| {
            if let Some(piece) = pieces.next() {
                // SAFETY: the piece is there, as `given` was told, and `dense` is other memory.
                unsafe { std::ptr::copy_nonoverlapping(at, piece.as_mut_ptr(), piece.len()) };
            }
        });
    }

    /// Copies the elements of `dense`, which is as long, to it.
    pub fn scatter(&self, dense: &[u8]) {
        let mut pieces = dense.chunks_exact(self.piece_bytes.max(1));
        self.each_piece(|at| {
            if let Some(piece) = pieces.next() {
                // SAFETY: as above.
                unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), at, piece.len()) };
            }
        });
    }

    /// Calls `visit` with each piece, in the order of the elements.
    fn each_piece(&self, mut visit: impl FnMut(*mut u8)) {
        if self.bytes == 0 {
            return;
        }
        let mut index = vec![0u64; self.outer];
        let mut at = self.base;
        loop {
            visit(at);
            let mut dimension = self.outer;
            loop {
                let Some(next) = dimension.checked_sub(1) else {
                    return;
                };
                dimension = next;
                let stride = self.strides[dimension] as isize;
                index[dimension] += 1;
                if index[dimension] < self.count[dimension] {
                    at = at.wrapping_offset(stride);
                    break;
                }
                at = at.wrapping_offset(-(stride * (index[dimension] as isize - 1)));
                index[dimension] = 0;
            }
        }
    }
}

/// How many bytes so many elements have; `None` if they are too many.
pub fn bytes_of(count: &[u64], item_bytes: usize) -> Option<usize> {
    let bytes = count
        .iter()
        .try_fold(item_bytes as u64, |bytes, count| bytes.checked_mul(*count))?;
    usize::try_from(bytes)
        .ok()
        .filter(|bytes| *bytes <= isize::MAX as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is gathered of an array of bytes, the inverse of which is scattered.
    fn gathered(from: usize, count: &[u64], strides: &[i64], item_bytes: usize) -> Vec<u8> {
        let mut memory: Vec<u8> = (0..24).collect();
        let before = memory.clone();
        let base = memory.as_mut_ptr().wrapping_add(from).cast();
        // SAFETY: the tests stay within 24 bytes.
        let array =
            unsafe { Strided::given("array", base, count, strides.as_ptr(), item_bytes) }.unwrap();
        let mut dense = vec![0; array.bytes()];
        array.gather(&mut dense);
        let other = vec![0xff; dense.len()];
        array.scatter(&other);
        assert_eq!(
            memory.iter().filter(|byte| **byte == 0xff).count(),
            dense.len()
        );
        let base = memory.as_mut_ptr().wrapping_add(from).cast();
        // SAFETY: as above.
        let array =
            unsafe { Strided::given("array", base, count, strides.as_ptr(), item_bytes) }.unwrap();
        array.scatter(&dense);
        assert_eq!(memory, before);
        dense
    }

    #[test]
    fn elements_come_in_their_order() {
        // The inside of 4 x 6, without its edge.
        assert_eq!(
            gathered(7, &[2, 4], &[6, 1], 1),
            [7, 8, 9, 10, 13, 14, 15, 16]
        );
        // Transposed.
        assert_eq!(gathered(0, &[3, 2], &[1, 12], 1), [0, 12, 1, 13, 2, 14]);
        // Backwards.
        assert_eq!(gathered(3, &[4], &[-1], 1), [3, 2, 1, 0]);
        // All in one piece, and of elements of two bytes every other.
        assert_eq!(gathered(0, &[2, 3], &[3, 1], 1), [0, 1, 2, 3, 4, 5]);
        assert_eq!(gathered(0, &[3], &[4], 2), [0, 1, 4, 5, 8, 9]);
        // Nothing, and one element without dimensions.
        assert!(gathered(0, &[3, 0], &[8, 1], 1).is_empty());
        assert_eq!(gathered(5, &[], &[], 2), [5, 6]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let strides = [i64::MAX, 1];
        for count in [[3, 1], [u64::MAX, 2]] {
            let base = std::ptr::dangling_mut::<u8>().cast();
            // SAFETY: it is refused.
            assert!(unsafe { Strided::given("array", base, &count, strides.as_ptr(), 1) }.is_err());
        }
    }
}
