//! `thalweg_view`: which bytes of an event's data are wanted.

use crate::boundary::*;
use crate::error::Failure;
use client::{DataView, Segment, Stride};

/// `thalweg_view`.
#[derive(Clone)]
pub struct View(pub DataView);

/// `thalweg_segment`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ThalwegSegment {
    pub offset: u64,
    pub bytes: u64,
}

impl From<&ThalwegSegment> for Segment {
    fn from(segment: &ThalwegSegment) -> Self {
        Self {
            offset: segment.offset,
            bytes: segment.bytes,
        }
    }
}

impl View {
    /// Narrows the view, or leaves it as it is.
    fn narrow<E: ToString>(
        view: Option<&mut Self>,
        narrow: impl FnOnce(&DataView) -> Result<DataView, E>,
    ) -> Result<(), Failure> {
        let view = given("view", view)?;
        view.0 = narrow(&view.0).map_err(|error| Failure::invalid(error.to_string()))?;
        Ok(())
    }
}

/// All of `bytes` bytes.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_view_new(bytes: u64) -> *mut View {
    give(View(DataView::whole(bytes)))
}

/// The same selection again.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_view_copy(view: Option<&View>) -> *mut View {
    view.map_or(std::ptr::null_mut(), |view| give(view.clone()))
}

/// Makes `view` select what `other` selects.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_view_assign(view: Option<&mut View>, other: Option<&View>) {
    if let (Some(view), Some(other)) = (view, other) {
        view.0.clone_from(&other.0);
    }
}

/// Narrows the view to a range of it.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_view_range(
    view: Option<&mut View>,
    offset: u64,
    bytes: u64,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        View::narrow(view, |view| view.range(offset, bytes))
    })
}

/// Narrows the view to blocks at equal distances.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_view_stride(
    view: Option<&mut View>,
    offset: u64,
    count: u64,
    block_bytes: u64,
    gap_bytes: u64,
    error: ErrorOut<'_>,
) -> i32 {
    let stride = Stride {
        offset,
        count,
        block_bytes,
        gap_bytes,
    };
    guard(error, || View::narrow(view, |view| view.stride(stride)))
}

/// Narrows the view to a list of parts of it.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_view_list(
    view: Option<&mut View>,
    segments: *const ThalwegSegment,
    count: usize,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        // SAFETY: the header asks for that many segments.
        let segments = unsafe { array("segments", segments, count) }?;
        let segments: Vec<Segment> = segments.iter().map(Segment::from).collect();
        View::narrow(view, |view| view.unstructured(&segments))
    })
}

/// How many bytes are selected.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_view_bytes(view: Option<&View>) -> u64 {
    view.map_or(0, |view| view.0.bytes())
}

/// Writes up to `max` segments of the selection; returns how many there are.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_view_segments(
    view: Option<&View>,
    segments: *mut ThalwegSegment,
    max: usize,
) -> usize {
    let Some(view) = view else { return 0 };
    let max = if segments.is_null() { 0 } else { max };
    for (index, segment) in view.0.segments().iter().take(max).enumerate() {
        let segment = ThalwegSegment {
            offset: segment.offset,
            bytes: segment.bytes,
        };
        // SAFETY: the header asks for space for `max` segments, and `index` is less.
        unsafe { segments.add(index).write(segment) };
    }
    view.0.segments().len()
}

/// Frees a view that `thalweg_view_new` or `thalweg_view_copy` made.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_view_free(view: Option<Box<View>>) {
    quietly(|| drop(view));
}
