//! Types of elements, as NumPy writes them.

use serde_json::Value;
use std::fmt;

pub use wire::step::DTYPE_BYTES_MAX;

/// How deep structures may stand in one another.
pub const DEPTH_MAX: usize = 8;

/// In which order the bytes of a number stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteOrder {
    /// The least significant byte first.
    Little,
    /// The most significant byte first.
    Big,
    /// It has none: single bytes, strings of bytes, structures (whose fields have).
    None,
}

/// What an element is, less its length and the order of its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Element {
    /// One byte, 0 or 1.
    Bool,
    /// An integer with a sign, in two's complement, of 1, 2, 4 or 8 bytes.
    Signed,
    /// An integer without one, of 1, 2, 4 or 8 bytes.
    Unsigned,
    /// IEEE 754 of 2, 4 or 8 bytes; of 12 or 16 bytes, the machine's long double as it is.
    Float,
    /// Two floats, real and imaginary part, 8 or 16 bytes; of 24 or 32, two long doubles.
    Complex,
    /// A time: a signed count of units since 1970; the least number is no time.
    Time,
    /// A length of time: a signed count of units; the least number is none.
    Duration,
    /// A string of bytes of one length, padded with 0.
    Bytes,
    /// A string of Unicode characters, 4 bytes each, padded with 0.
    Unicode,
    /// Bytes that mean nothing to NumPy.
    Void,
    /// UTF-8 of any length. Only single values are text.
    Text,
    /// Fields, one behind the other.
    Structure(Vec<Field>),
}

/// A field of a structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Empty for padding, which is void.
    pub name: String,
    /// Type of its elements.
    pub dtype: DType,
    /// Lengths of an array that stands in each element; empty for a single one.
    pub shape: Vec<u64>,
    /// Where it begins in the structure, bytes.
    pub offset: u32,
}

/// The type of a variable's elements.
///
/// Its text is what NumPy gives as `dtype.str`: `<f8`, `>i4`, `|u1`, `<c16`, `|S8`, `<U4`,
/// `|V16`, `<M8[ns]`; `str` for text; or, for a structure, NumPy's `dtype.descr` as JSON:
/// `[["x","<f8"],["m","<f4",[2,3]]]`. Two that are equal have the same text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DType {
    text: String,
    item_bytes: u32,
    order: ByteOrder,
    element: Element,
}

/// A text that names no type: which, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DTypeError {
    text: String,
    reason: String,
}

impl fmt::Display for DTypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dtype {:?}: {}", self.text, self.reason)
    }
}

impl std::error::Error for DTypeError {}

/// Least and greatest element of a block, as bytes in the order of its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extremes {
    /// The least one.
    pub min: Vec<u8>,
    /// The greatest one.
    pub max: Vec<u8>,
}

impl DType {
    /// Reads a type. Without a mark of its order (`f8`, `=f8`) a number's bytes stand in this
    /// machine's.
    ///
    /// # Errors
    /// What is no type of a fixed length: Python objects, empty strings, unknown letters; or a
    /// structure with two fields of a name, a title, more than 4 GiB, or deeper than
    /// [`DEPTH_MAX`].
    pub fn parse(text: &str) -> Result<Self, DTypeError> {
        let fail = |reason: String| DTypeError {
            // A long one is cut: an error is for reading.
            text: text.chars().take(100).collect(),
            reason,
        };
        if text.len() > DTYPE_BYTES_MAX {
            let (had, max) = (text.len(), DTYPE_BYTES_MAX);
            return Err(fail(format!("{had} bytes long; the limit is {max}")));
        }
        if !text.trim_start().starts_with('[') {
            return Self::simple(text).map_err(fail);
        }
        let value = serde_json::from_str(text)
            .map_err(|error| fail(format!("not the JSON of a structure: {error}")))?;
        Self::structure(&value, 0).map_err(fail)
    }

    /// Reads the type of a variable in a part or table, whose elements are said to have
    /// `item_bytes` bytes.
    ///
    /// # Errors
    /// As [`Self::parse`], and a type of another length.
    pub fn of_items(text: &str, item_bytes: u32) -> Result<Self, DTypeError> {
        let dtype = Self::parse(text)?;
        match dtype.item_bytes == item_bytes {
            true => Ok(dtype),
            false => Err(DTypeError {
                text: dtype.text.chars().take(100).collect(),
                reason: format!(
                    "its items have {} bytes, and are said to have {item_bytes}",
                    dtype.item_bytes
                ),
            }),
        }
    }

    /// Text: UTF-8 of any length.
    pub fn text() -> Self {
        Self {
            text: "str".to_owned(),
            item_bytes: 0,
            order: ByteOrder::None,
            element: Element::Text,
        }
    }

    /// Its canonical text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Length of an element in bytes; 0 of text.
    pub fn item_bytes(&self) -> u32 {
        self.item_bytes
    }

    /// In which order the bytes of its numbers stand.
    pub fn order(&self) -> ByteOrder {
        self.order
    }

    /// What an element is.
    pub fn element(&self) -> &Element {
        &self.element
    }

    /// Whether it is text, of any length.
    pub fn is_text(&self) -> bool {
        self.element == Element::Text
    }

    fn simple(text: &str) -> Result<Self, String> {
        if text == "str" {
            return Ok(Self::text());
        }
        let is_mark = |c: char| matches!(c, '<' | '>' | '=' | '|');
        let (mark, rest) = match text.chars().next() {
            Some(mark) if is_mark(mark) => (Some(mark), &text[1..]),
            Some(_) => (None, text),
            None => return Err("it is empty".to_owned()),
        };
        let mut letters = rest.chars();
        let Some(letter) = letters.next() else {
            return Err("a letter is missing".to_owned());
        };
        let (digits, unit) = match letters.as_str().split_once('[') {
            Some((digits, unit)) => (digits, Some(unit)),
            None => (letters.as_str(), None),
        };
        let is_digits = digits.bytes().all(|digit| digit.is_ascii_digit());
        let count: u32 = match (digits, is_digits) {
            ("", _) if letter == '?' => 1,
            (_, true) => digits
                .parse()
                .map_err(|_| format!("`{letter}` needs a length behind it"))?,
            (_, false) => return Err(format!("`{digits}` is no length")),
        };
        let element = match (letter, count) {
            ('b' | '?', 1) => Element::Bool,
            ('i', 1 | 2 | 4 | 8) => Element::Signed,
            ('u', 1 | 2 | 4 | 8) => Element::Unsigned,
            ('f', 2 | 4 | 8 | 12 | 16) => Element::Float,
            ('c', 8 | 16 | 24 | 32) => Element::Complex,
            ('M', 8) => Element::Time,
            ('m', 8) => Element::Duration,
            ('S' | 'a', 1..) => Element::Bytes,
            ('U', 1..) => Element::Unicode,
            ('V', 1..) => Element::Void,
            ('S' | 'a' | 'U' | 'V', 0) => return Err("its elements have no bytes".to_owned()),
            ('b' | '?' | 'i' | 'u' | 'f' | 'c' | 'M' | 'm', _) => {
                return Err(format!("there is no `{letter}` of {count} bytes"));
            }
            ('O', _) => return Err("Python objects have no bytes of their own".to_owned()),
            _ => return Err(format!("`{letter}` is no kind of element")),
        };
        let is_time = matches!(element, Element::Time | Element::Duration);
        let unit = match unit {
            Some(unit) if is_time => format!("[{}]", unit_of_time(unit)?),
            Some(_) => return Err(format!("`{letter}` has no unit")),
            None => String::new(),
        };
        let item_bytes = match element {
            Element::Unicode => count
                .checked_mul(4)
                .ok_or_else(|| "its elements have 4 GiB or more".to_owned())?,
            _ => count,
        };
        let is_plain = matches!(element, Element::Bytes | Element::Void) || item_bytes == 1;
        let order = match mark {
            _ if is_plain => ByteOrder::None,
            Some('<') => ByteOrder::Little,
            Some('>') => ByteOrder::Big,
            Some('|') => return Err("`|` is for what has no order of bytes".to_owned()),
            _ if cfg!(target_endian = "big") => ByteOrder::Big,
            _ => ByteOrder::Little,
        };
        let mark = match order {
            ByteOrder::Little => '<',
            ByteOrder::Big => '>',
            ByteOrder::None => '|',
        };
        let letter = match letter {
            '?' => 'b',
            'a' => 'S',
            other => other,
        };
        Ok(Self {
            text: format!("{mark}{letter}{count}{unit}"),
            item_bytes,
            order,
            element,
        })
    }

    fn structure(value: &Value, depth: usize) -> Result<Self, String> {
        if depth >= DEPTH_MAX {
            return Err(format!("structures more than {DEPTH_MAX} deep"));
        }
        let Some(list) = value.as_array().filter(|list| !list.is_empty()) else {
            return Err("a structure is a list of fields, one at least".to_owned());
        };
        let too_long = || "its elements have 4 GiB or more".to_owned();
        let mut fields: Vec<Field> = Vec::new();
        let mut names = std::collections::BTreeSet::new();
        let mut text = String::from("[");
        let mut offset = 0u32;
        for (index, field) in list.iter().enumerate() {
            let parts = field.as_array().map_or(&[][..], Vec::as_slice);
            let (name, dtype, shape) = match parts {
                [name, dtype] => (name, dtype, None),
                [name, dtype, shape] => (name, dtype, Some(shape)),
                _ => {
                    return Err(format!(
                        "field {index} is not [name, type] or [name, type, shape]"
                    ));
                }
            };
            let Some(name) = name.as_str() else {
                return Err(format!("the name of field {index} is no string"));
            };
            if !name.is_empty() && !names.insert(name.to_owned()) {
                return Err(format!("two fields are called {name:?}"));
            }
            let dtype = match dtype {
                Value::String(dtype) => Self::simple(dtype),
                Value::Array(_) => Self::structure(dtype, depth + 1),
                _ => Err("its type is neither a string nor a list".to_owned()),
            };
            let dtype = dtype.map_err(|reason| format!("field {name:?}: {reason}"))?;
            if dtype.is_text() {
                return Err(format!("field {name:?}: text has no length of its own"));
            }
            let shape = match shape {
                None => Vec::new(),
                Some(shape) => lengths(shape)
                    .ok_or_else(|| format!("field {name:?}: its shape is no list of lengths"))?,
            };
            let count = shape
                .iter()
                .try_fold(1u64, |count, length| count.checked_mul(*length));
            let end = count
                .and_then(|count| count.checked_mul(u64::from(dtype.item_bytes)))
                .and_then(|bytes| bytes.checked_add(u64::from(offset)))
                .and_then(|end| u32::try_from(end).ok())
                .ok_or_else(too_long)?;
            if index > 0 {
                text.push(',');
            }
            text.push('[');
            text.push_str(&Value::from(name).to_string());
            text.push(',');
            match dtype.element {
                Element::Structure(_) => text.push_str(&dtype.text),
                _ => text.push_str(&Value::from(dtype.as_str()).to_string()),
            }
            if !shape.is_empty() {
                text.push(',');
                text.push_str(&Value::from(shape.clone()).to_string());
            }
            text.push(']');
            fields.push(Field {
                name: name.to_owned(),
                dtype,
                shape,
                offset,
            });
            offset = end;
        }
        text.push(']');
        if offset == 0 {
            return Err("its elements have no bytes".to_owned());
        }
        Ok(Self {
            text,
            item_bytes: offset,
            order: ByteOrder::None,
            element: Element::Structure(fields),
        })
    }

    /// Least and greatest of the elements that `data` holds, one behind the other. NaN, and times
    /// that are none, count only if there is nothing else. None of no elements, and of a type that
    /// has no order: complex, strings, structures, text, long double.
    ///
    /// # Panics
    /// If `data` is no whole number of elements.
    pub fn extremes(&self, data: &[u8]) -> Option<Extremes> {
        if self.item_bytes == 0 || data.is_empty() {
            return None;
        }
        assert_eq!(data.len() % self.item_bytes as usize, 0, "whole elements");
        let is_big = self.order == ByteOrder::Big;
        macro_rules! of {
            ($type:ident as $read:expr, $seed:expr) => {
                match is_big {
                    true => of_elements(data, |b| $read($type::from_be_bytes(b)), $seed),
                    false => of_elements(data, |b| $read($type::from_le_bytes(b)), $seed),
                }
            };
            ($type:ident) => {
                of!($type as |value| value, ($type::MAX, $type::MIN))
            };
        }
        macro_rules! give {
            ($pair:expr) => {{
                let (min, max) = $pair;
                let [min, max] = [min, max].map(|value| match is_big {
                    true => value.to_be_bytes().to_vec(),
                    false => value.to_le_bytes().to_vec(),
                });
                Some(Extremes { min, max })
            }};
        }
        macro_rules! float {
            ($type:ident) => {{
                let (min, max) = of!($type as |value| value, ($type::INFINITY, $type::NEG_INFINITY));
                // With one number, and be it infinite, the least is not above the greatest.
                match min > max {
                    true => give!(($type::NAN, $type::NAN)),
                    false => give!((min, max)),
                }
            }};
        }
        match (&self.element, self.item_bytes) {
            (Element::Bool | Element::Unsigned, 1) => give!(of!(u8)),
            (Element::Unsigned, 2) => give!(of!(u16)),
            (Element::Unsigned, 4) => give!(of!(u32)),
            (Element::Unsigned, 8) => give!(of!(u64)),
            (Element::Signed, 1) => give!(of!(i8)),
            (Element::Signed, 2) => give!(of!(i16)),
            (Element::Signed, 4) => give!(of!(i32)),
            (Element::Signed, 8) => give!(of!(i64)),
            (Element::Time | Element::Duration, 8) => {
                // No time, the least number, is neither: it becomes the greatest for the one,
                // and is the least for the other.
                let (min, _) = of!(i64 as |value: i64| value.wrapping_sub(1), (i64::MAX, i64::MIN));
                let (_, max) = of!(i64);
                give!((min.wrapping_add(1), max))
            }
            (Element::Float, 2) => {
                let (min, max) = of!(u16 as Half, (Half(0x7c00), Half(0xfc00)));
                match min > max {
                    true => give!((HALF_NAN, HALF_NAN)),
                    false => give!((min.0, max.0)),
                }
            }
            (Element::Float, 4) => float!(f32),
            (Element::Float, 8) => float!(f64),
            _ => None,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::str::FromStr for DType {
    type Err = DTypeError;

    fn from_str(text: &str) -> Result<Self, DTypeError> {
        Self::parse(text)
    }
}

/// What stands behind the bracket of a time's unit: `ns]`, `25s]`.
fn unit_of_time(text: &str) -> Result<&str, String> {
    const UNITS: [&str; 13] = [
        "Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as",
    ];
    let refuse = || format!("`[{text}` is no unit of time");
    let unit = text.strip_suffix(']').ok_or_else(refuse)?;
    let name = unit.trim_start_matches(|c: char| c.is_ascii_digit());
    let multiple = &unit[..unit.len() - name.len()];
    let is_good = UNITS.contains(&name) && !multiple.starts_with('0') && multiple.len() < 10;
    match is_good {
        true => Ok(unit),
        false => Err(refuse()),
    }
}

/// A shape in a structure: a length, or a list of them.
fn lengths(value: &Value) -> Option<Vec<u64>> {
    match value {
        Value::Array(list) if list.len() <= wire::step::DIMENSIONS_MAX => {
            list.iter().map(Value::as_u64).collect()
        }
        Value::Number(_) => Some(vec![value.as_u64()?]),
        _ => None,
    }
}

/// So many extremes are kept side by side, so that the processor compares several at once.
const LANES: usize = 8;

/// Least and greatest of the values that `read` makes of `N` bytes each. One that is ordered to
/// nothing leaves both as they are.
fn of_elements<const N: usize, T: Copy + PartialOrd>(
    data: &[u8],
    read: impl Fn([u8; N]) -> T,
    (least, greatest): (T, T),
) -> (T, T) {
    let (elements, _) = data.as_chunks::<N>();
    let (mut mins, mut maxs) = ([least; LANES], [greatest; LANES]);
    let (rows, rest) = elements.as_chunks::<LANES>();
    for row in rows {
        for lane in 0..LANES {
            let value = read(row[lane]);
            mins[lane] = if value < mins[lane] {
                value
            } else {
                mins[lane]
            };
            maxs[lane] = if value > maxs[lane] {
                value
            } else {
                maxs[lane]
            };
        }
    }
    for element in rest {
        let value = read(*element);
        mins[0] = if value < mins[0] { value } else { mins[0] };
        maxs[0] = if value > maxs[0] { value } else { maxs[0] };
    }
    let fold = |all: [T; LANES], is_better: fn(&T, &T) -> bool| {
        let pick = |best, value| {
            if is_better(&value, &best) {
                value
            } else {
                best
            }
        };
        all.into_iter().reduce(pick).expect("there are lanes")
    };
    (fold(mins, T::lt), fold(maxs, T::gt))
}

const HALF_NAN: u16 = 0x7e00;

/// Halves by their bits, in the order of their values; a NaN is ordered to nothing.
#[derive(Clone, Copy, PartialEq)]
struct Half(u16);

impl Half {
    fn key(self) -> Option<i32> {
        let size = i32::from(self.0 & 0x7fff);
        match (size > 0x7c00, self.0 & 0x8000 != 0) {
            (true, _) => None,
            (false, true) => Some(-size),
            (false, false) => Some(size),
        }
    }
}

impl PartialOrd for Half {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.key()?.cmp(&other.key()?))
    }
}

#[cfg(test)]
mod tests;
