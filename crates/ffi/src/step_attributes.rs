//! `thalweg_step_attributes`: the attributes of a run, as they were when they were asked for.

use crate::boundary::*;
use std::ffi::{CString, c_char, c_void};
use step::{AttributeValue, Attributes};

/// `thalweg_step_attributes`.
pub struct StepAttributes(Vec<Kept>);

struct Kept {
    text: String,
    name: CString,
    dtype: CString,
    value: AttributeValue,
    count: usize,
}

/// `thalweg_step_attribute`.
#[repr(C)]
pub struct ThalwegStepAttribute {
    pub name: *const c_char,
    pub dtype: *const c_char,
    pub value: *const c_void,
    pub size: usize,
    pub count: usize,
    pub item_bytes: u32,
    pub is_list: i32,
    pub reserved: [u64; 2],
}

/// What a search found nothing by.
pub const NONE: usize = usize::MAX;

impl StepAttributes {
    pub fn new(attributes: &Attributes) -> Self {
        let kept = attributes.iter().map(|(name, value)| Kept {
            text: name.to_owned(),
            name: c_text(name),
            dtype: c_text(value.dtype().as_str()),
            value: value.clone(),
            count: value.count(),
        });
        Self(kept.collect())
    }
}

/// How many there are.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_attributes_count(attributes: Option<&StepAttributes>) -> usize {
    attributes.map_or(0, |attributes| attributes.0.len())
}

/// One of them.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_attributes_at(
    attributes: Option<&StepAttributes>,
    index: usize,
    attribute: Out<'_, ThalwegStepAttribute>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let all = &given("attributes", attributes)?.0;
        let kept = all.get(index);
        let kept = kept.ok_or_else(|| none(index, "attributes", all.len()))?;
        let dtype = kept.value.dtype();
        let bytes = kept.value.bytes();
        given("attribute", attribute)?.write(ThalwegStepAttribute {
            name: kept.name.as_ptr(),
            dtype: kept.dtype.as_ptr(),
            value: match dtype.is_text() {
                true => std::ptr::null(),
                false => bytes.as_ptr().cast(),
            },
            size: bytes.len(),
            count: kept.count,
            item_bytes: dtype.item_bytes(),
            is_list: i32::from(kept.value.is_list()),
            reserved: [0; 2],
        });
        Ok(())
    })
}

/// The index of one.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_attributes_find(
    attributes: Option<&StepAttributes>,
    name: *const c_char,
) -> usize {
    let (Some(attributes), Ok(name)) = (attributes, text("name", name)) else {
        return NONE;
    };
    let found = attributes.0.iter().position(|kept| kept.text == name);
    found.unwrap_or(NONE)
}

/// A text of one.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_attributes_text(
    attributes: Option<&StepAttributes>,
    index: usize,
    text: usize,
    value: Out<'_, ThalwegBytes>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let all = &given("attributes", attributes)?.0;
        let kept = all.get(index);
        let kept = kept.ok_or_else(|| none(index, "attributes", all.len()))?;
        let texts = kept.value.as_texts().unwrap_or_default();
        let found = texts.get(text);
        let found = found.ok_or_else(|| none(text, "texts", texts.len()))?;
        given("value", value)?.write(ThalwegBytes::of(found.as_bytes()));
        Ok(())
    })
}

/// Frees them.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_step_attributes_free(attributes: Option<Box<StepAttributes>>) {
    quietly(|| drop(attributes));
}
