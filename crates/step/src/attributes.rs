//! Attributes: what describes a run and its steps, with the types of their elements.

use crate::dtype::{ByteOrder, DType, Element};
use crate::error::StepError;
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::step::{Attribute, STEP_NAME_BYTES_MAX};

/// The value of an attribute: an element, or a list of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttributeValue {
    dtype: DType,
    is_list: bool,
    value: Bytes,
}

impl AttributeValue {
    /// One of elements as they lie in memory: of text each behind its length, a `u32` in little
    /// endian.
    ///
    /// # Errors
    /// [`StepError::Invalid`]: bytes that are no whole elements, or of a single value not one; text
    /// that is no UTF-8.
    pub fn raw(dtype: DType, is_list: bool, value: impl Into<Bytes>) -> Result<Self, StepError> {
        let value = value.into();
        let count = match dtype.is_text() {
            true => texts(&value).map_err(StepError::Invalid)?.len(),
            false => {
                let item = dtype.item_bytes() as usize;
                if value.len() % item != 0 {
                    let (had, dtype) = (value.len(), dtype.as_str());
                    return Err(StepError::Invalid(format!(
                        "{had} bytes are no whole elements of type {dtype}, of {item} bytes each"
                    )));
                }
                value.len() / item
            }
        };
        if !is_list && count != 1 {
            return Err(StepError::Invalid(format!(
                "a single value has one element, and here are {count}"
            )));
        }
        Ok(Self {
            dtype,
            is_list,
            value,
        })
    }

    /// A list of texts.
    pub fn texts<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::of_texts(texts, true)
    }

    fn of_texts<T: AsRef<str>>(texts: impl IntoIterator<Item = T>, is_list: bool) -> Self {
        let mut value = Vec::new();
        for text in texts {
            let text = text.as_ref();
            // No attribute has 4 GiB: a part's metadata is limited to less.
            value.extend_from_slice(&(text.len() as u32).to_le_bytes());
            value.extend_from_slice(text.as_bytes());
        }
        Self {
            dtype: DType::text(),
            is_list,
            value: value.into(),
        }
    }

    fn of_numbers(dtype: &str, is_list: bool, value: Vec<u8>) -> Self {
        Self {
            dtype: DType::parse(dtype).expect("one of the types below"),
            is_list,
            value: value.into(),
        }
    }

    /// Type of its elements.
    pub fn dtype(&self) -> &DType {
        &self.dtype
    }

    /// Whether it is a list, of any length.
    pub fn is_list(&self) -> bool {
        self.is_list
    }

    /// Its elements as they lie in memory; see [`Self::raw`].
    pub fn bytes(&self) -> &Bytes {
        &self.value
    }

    /// How many elements it has.
    pub fn count(&self) -> usize {
        match self.dtype.is_text() {
            true => self.as_texts().map_or(0, |texts| texts.len()),
            false => self.value.len() / self.dtype.item_bytes() as usize,
        }
    }

    /// Its texts, if it is of such.
    pub fn as_texts(&self) -> Option<Vec<&str>> {
        self.dtype.is_text().then_some(())?;
        texts(&self.value).ok()
    }

    /// Its text, if it is a single one.
    pub fn as_text(&self) -> Option<&str> {
        match (self.is_list, self.as_texts()?.as_slice()) {
            (false, [text]) => Some(text),
            _ => None,
        }
    }

    /// Its elements, if they are integers and all within `i64`.
    pub fn as_integers(&self) -> Option<Vec<i64>> {
        let is_signed = match self.dtype.element() {
            Element::Signed => true,
            Element::Unsigned | Element::Bool => false,
            _ => return None,
        };
        let item = self.dtype.item_bytes() as usize;
        let read = |bytes: &[u8]| {
            let mut wide = self.little_endian(bytes)?;
            let is_negative = is_signed && bytes_top_bit(&wide[..item]);
            if is_negative {
                wide[item..].fill(0xff);
            }
            match is_signed {
                true => Some(i64::from_le_bytes(wide)),
                false => i64::try_from(u64::from_le_bytes(wide)).ok(),
            }
        };
        self.value.chunks_exact(item).map(read).collect()
    }

    /// Its elements, if they are integers or floats of up to 8 bytes; integers beyond 2^53 are
    /// rounded.
    pub fn as_floats(&self) -> Option<Vec<f64>> {
        let item = self.dtype.item_bytes() as usize;
        match (self.dtype.element(), item) {
            (Element::Float, 4) => {
                let read = |bytes: &[u8]| {
                    let wide = self.little_endian(bytes)?;
                    let bits = u32::from_le_bytes([wide[0], wide[1], wide[2], wide[3]]);
                    Some(f64::from(f32::from_bits(bits)))
                };
                self.value.chunks_exact(item).map(read).collect()
            }
            (Element::Float, 8) => {
                let read = |bytes: &[u8]| Some(f64::from_le_bytes(self.little_endian(bytes)?));
                self.value.chunks_exact(item).map(read).collect()
            }
            _ => {
                let integers = self.as_integers()?;
                Some(integers.into_iter().map(|integer| integer as f64).collect())
            }
        }
    }

    /// An element of up to 8 bytes with the least significant one first, and zeros behind.
    fn little_endian(&self, bytes: &[u8]) -> Option<[u8; 8]> {
        let mut wide = [0; 8];
        let place = wide.get_mut(..bytes.len())?;
        place.copy_from_slice(bytes);
        if self.dtype.order() == ByteOrder::Big {
            place.reverse();
        }
        Some(wide)
    }

    pub(crate) fn to_attribute(&self, name: &str) -> Attribute {
        Attribute {
            name: name.to_owned(),
            dtype: self.dtype.as_str().to_owned(),
            is_list: self.is_list,
            value: self.value.clone(),
        }
    }

    /// What a part or a record says.
    ///
    /// # Errors
    /// [`StepError::Damaged`]: a type that is none, or bytes that do not fit it.
    pub(crate) fn of_attribute(attribute: &Attribute) -> Result<Self, StepError> {
        let damaged = |reason: &dyn std::fmt::Display| {
            StepError::Damaged(format!("attribute {:?}: {reason}", attribute.name))
        };
        let dtype = DType::parse(&attribute.dtype).map_err(|error| damaged(&error))?;
        Self::raw(dtype, attribute.is_list, attribute.value.clone())
            .map_err(|error| damaged(&error))
    }
}

/// Whether the number is negative, if it has a sign.
fn bytes_top_bit(little_endian: &[u8]) -> bool {
    little_endian.last().is_some_and(|top| top & 0x80 != 0)
}

/// Texts, each behind its length.
fn texts(mut value: &[u8]) -> Result<Vec<&str>, String> {
    let mut found = Vec::new();
    while !value.is_empty() {
        let (length, behind) = value
            .split_first_chunk::<4>()
            .ok_or("the length of a text is cut off")?;
        let length = u32::from_le_bytes(*length) as usize;
        let (text, behind) = behind
            .split_at_checked(length)
            .ok_or_else(|| format!("a text of {length} bytes is cut off after {}", behind.len()))?;
        found.push(std::str::from_utf8(text).map_err(|error| format!("a text: {error}"))?);
        value = behind;
    }
    Ok(found)
}

macro_rules! from_numbers {
    ($($type:ty: $dtype:literal),*) => {$(
        impl From<$type> for AttributeValue {
            fn from(value: $type) -> Self {
                Self::of_numbers($dtype, false, value.to_le_bytes().to_vec())
            }
        }
        impl From<&[$type]> for AttributeValue {
            fn from(values: &[$type]) -> Self {
                let bytes = values.iter().flat_map(|value| value.to_le_bytes());
                Self::of_numbers($dtype, true, bytes.collect())
            }
        }
        impl From<Vec<$type>> for AttributeValue {
            fn from(values: Vec<$type>) -> Self {
                Self::from(values.as_slice())
            }
        }
    )*};
}

from_numbers!(
    i8: "|i1", i16: "<i2", i32: "<i4", i64: "<i8",
    u8: "|u1", u16: "<u2", u32: "<u4", u64: "<u8",
    f32: "<f4", f64: "<f8"
);

impl From<bool> for AttributeValue {
    fn from(value: bool) -> Self {
        Self::of_numbers("|b1", false, vec![u8::from(value)])
    }
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> Self {
        Self::of_texts([text], false)
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

/// Attributes of a run, as they are at a step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes {
    values: BTreeMap<String, AttributeValue>,
}

impl Attributes {
    /// The value of one.
    pub fn get(&self, name: &str) -> Option<&AttributeValue> {
        self.values.get(name)
    }

    /// All, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &AttributeValue)> {
        self.values
            .iter()
            .map(|(name, value)| (name.as_str(), value))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Sets one. Says whether it is another one than before.
    ///
    /// # Errors
    /// [`StepError::Invalid`]: a name that is empty or too long.
    pub(crate) fn set(&mut self, name: &str, value: AttributeValue) -> Result<bool, StepError> {
        check_name("an attribute", name)?;
        if self.values.get(name) == Some(&value) {
            return Ok(false);
        }
        self.values.insert(name.to_owned(), value);
        Ok(true)
    }

    /// Takes over what a record says: those that changed, or all.
    ///
    /// # Errors
    /// [`StepError::Damaged`].
    pub(crate) fn apply(&mut self, changed: &[Attribute], are_all: bool) -> Result<(), StepError> {
        if are_all {
            self.values.clear();
        }
        for attribute in changed {
            let value = AttributeValue::of_attribute(attribute)?;
            self.values.insert(attribute.name.clone(), value);
        }
        Ok(())
    }
}

/// Refuses a name that no variable or attribute may have.
pub(crate) fn check_name(of: &str, name: &str) -> Result<(), StepError> {
    match name.len() {
        0 => Err(StepError::Invalid(format!("the name of {of} is empty"))),
        1..=STEP_NAME_BYTES_MAX => Ok(()),
        had => Err(StepError::Invalid(format!(
            "the name of {of} has {had} bytes; the limit is {STEP_NAME_BYTES_MAX}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(value: &AttributeValue) -> AttributeValue {
        AttributeValue::of_attribute(&value.to_attribute("a")).unwrap()
    }

    #[test]
    fn values_of_every_type_come_back_as_they_were() {
        let values: Vec<AttributeValue> = vec![
            (-3i8).into(),
            7u64.into(),
            2.5f32.into(),
            true.into(),
            vec![1.0f64, -2.0].into(),
            Vec::<i32>::new().into(),
            "".into(),
            "µ".into(),
            AttributeValue::texts(["x", "", "time"]),
            AttributeValue::texts(Vec::<String>::new()),
            AttributeValue::raw(DType::parse("<c16").unwrap(), false, vec![1; 16]).unwrap(),
            AttributeValue::raw(DType::parse(">i2").unwrap(), true, vec![1, 0, 0xff, 0xfe])
                .unwrap(),
        ];
        for value in &values {
            assert_eq!(&there_and_back(value), value);
        }
        assert_eq!(values[0].as_integers(), Some(vec![-3]));
        assert_eq!(values[2].as_floats(), Some(vec![2.5]));
        assert_eq!(values[3].as_integers(), Some(vec![1]));
        assert_eq!(values[4].as_floats(), Some(vec![1.0, -2.0]));
        assert_eq!(values[7].as_text(), Some("µ"));
        assert_eq!(values[8].as_texts(), Some(vec!["x", "", "time"]));
        assert_eq!(values[8].as_text(), None);
        assert_eq!(values[9].count(), 0);
        assert_eq!(values[10].as_floats(), None);
        assert_eq!(values[11].as_integers(), Some(vec![256, -2]));
    }

    #[test]
    fn an_integer_beyond_the_signed_ones_is_no_other_number() {
        assert_eq!(AttributeValue::from(u64::MAX).as_integers(), None);
        assert_eq!(
            AttributeValue::from(i64::MIN).as_integers(),
            Some(vec![i64::MIN])
        );
    }

    #[test]
    fn bytes_that_do_not_fit_the_type_are_refused() {
        let double = || DType::parse("<f8").unwrap();
        let refused = [
            AttributeValue::raw(double(), true, vec![0; 7]),
            AttributeValue::raw(double(), false, vec![0; 16]),
            AttributeValue::raw(double(), false, vec![]),
            AttributeValue::raw(DType::text(), false, vec![]),
            AttributeValue::raw(DType::text(), true, vec![2, 0, 0, 0, b'a']),
            AttributeValue::raw(DType::text(), true, vec![1, 0]),
            AttributeValue::raw(DType::text(), true, vec![1, 0, 0, 0, 0xff]),
        ];
        for refused in refused {
            assert!(matches!(refused, Err(StepError::Invalid(_))), "{refused:?}");
        }
    }

    #[test]
    fn changes_add_up_until_all_come() {
        let mut all = Attributes::default();
        assert!(all.set("a", 1i64.into()).unwrap());
        assert!(!all.set("a", 1i64.into()).unwrap());
        all.apply(&[AttributeValue::from(2i64).to_attribute("b")], false)
            .unwrap();
        assert_eq!(
            all.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            ["a", "b"]
        );
        all.apply(&[AttributeValue::from(3i64).to_attribute("b")], true)
            .unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!(all.get("b").unwrap().as_integers(), Some(vec![3]));
        assert!(all.set("", 1i64.into()).is_err());
        let long = "n".repeat(STEP_NAME_BYTES_MAX + 1);
        assert!(all.set(&long, 1i64.into()).is_err());
    }
}
