//! Field tables: bytes that were looked through once, and values that are read from them on need.
//!
//! The types are RabbitMQ's, not those of the standard's document: `l` and `L` are the same signed
//! integer, `s` is a short one, and `x` are bytes.

use crate::decode::DecodeError;
use crate::faults::{Fault, planted};
use crate::field::{Field, Reader, ShortBytes, Writer, cut};
use bytes::{Bytes, BytesMut};

/// How deep tables and arrays may be nested.
pub const TABLE_DEPTH_MAX: usize = 32;
/// The longest table. It is RabbitMQ's frame_max, so that it has no longer ones.
pub const TABLE_BYTES_MAX: usize = 128 << 10;

/// A field table as it is on the wire, without its length. Its form was checked when it was made, so that
/// reading it does not fail. It shares the frame that it came in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Table(Bytes);

/// The values of an array, likewise.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Array(Bytes);

/// A value of a table or an array.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `t`
    Bool(bool),
    /// `b`
    I8(i8),
    /// `B`
    U8(u8),
    /// `s`
    I16(i16),
    /// `u`
    U16(u16),
    /// `I`
    I32(i32),
    /// `i`
    U32(u32),
    /// `l`, and `L`
    I64(i64),
    /// `f`
    F32(f32),
    /// `d`
    F64(f64),
    /// `D`: `digits` divided by 10 to the power of `scale`.
    Decimal {
        /// How many digits are after the point.
        scale: u8,
        /// All digits.
        digits: u32,
    },
    /// `S`: a text as a rule, and any bytes if need be.
    String(Bytes),
    /// `A`
    Array(Array),
    /// `T`: seconds since 1970 UTC.
    Timestamp(u64),
    /// `F`
    Table(Table),
    /// `V`
    Void,
    /// `x`
    Bytes(Bytes),
}

impl Value {
    /// The value of a text.
    pub fn text(text: &str) -> Self {
        Self::String(Bytes::copy_from_slice(text.as_bytes()))
    }

    /// As an integer, of whatever width it came in.
    pub fn as_integer(&self) -> Option<i64> {
        match *self {
            Self::I8(value) => Some(value.into()),
            Self::U8(value) => Some(value.into()),
            Self::I16(value) => Some(value.into()),
            Self::U16(value) => Some(value.into()),
            Self::I32(value) => Some(value.into()),
            Self::U32(value) => Some(value.into()),
            Self::I64(value) => Some(value),
            _ => None,
        }
    }

    /// As a text, if it is a string and UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Bool(value) => writer.put(&[b't', u8::from(*value)]),
            Self::I8(value) => tagged(writer, b'b', &value.to_be_bytes()),
            Self::U8(value) => tagged(writer, b'B', &value.to_be_bytes()),
            Self::I16(value) => tagged(writer, b's', &value.to_be_bytes()),
            Self::U16(value) => tagged(writer, b'u', &value.to_be_bytes()),
            Self::I32(value) => tagged(writer, b'I', &value.to_be_bytes()),
            Self::U32(value) => tagged(writer, b'i', &value.to_be_bytes()),
            Self::I64(value) => tagged(writer, b'l', &value.to_be_bytes()),
            Self::F32(value) => tagged(writer, b'f', &value.to_be_bytes()),
            Self::F64(value) => tagged(writer, b'd', &value.to_be_bytes()),
            Self::Decimal { scale, digits } => {
                tagged(writer, b'D', &[*scale]);
                writer.put(&digits.to_be_bytes());
            }
            Self::String(bytes) => {
                writer.put(b"S");
                writer.long(bytes);
            }
            Self::Array(array) => {
                writer.put(b"A");
                writer.long(&array.0);
            }
            Self::Timestamp(value) => tagged(writer, b'T', &value.to_be_bytes()),
            Self::Table(table) => {
                writer.put(b"F");
                writer.long(&table.0);
            }
            Self::Void => writer.put(b"V"),
            Self::Bytes(bytes) => {
                writer.put(b"x");
                writer.long(bytes);
            }
        }
    }

    /// Reads a value whose tables and arrays are taken for checked.
    fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        let at = reader.position();
        let [kind] = reader.array()?;
        Ok(match kind {
            b't' => Self::Bool(reader.array::<1>()? != [0]),
            b'b' => Self::I8(i8::from_be_bytes(reader.array()?)),
            b'B' => Self::U8(u8::from_be_bytes(reader.array()?)),
            b's' => Self::I16(i16::from_be_bytes(reader.array()?)),
            b'u' => Self::U16(u16::from_be_bytes(reader.array()?)),
            b'I' => Self::I32(i32::from_be_bytes(reader.array()?)),
            b'i' => Self::U32(u32::from_be_bytes(reader.array()?)),
            b'l' | b'L' => Self::I64(i64::from_be_bytes(reader.array()?)),
            b'f' => Self::F32(f32::from_be_bytes(reader.array()?)),
            b'd' => Self::F64(f64::from_be_bytes(reader.array()?)),
            b'D' => Self::Decimal {
                scale: u8::from_be_bytes(reader.array()?),
                digits: u32::from_be_bytes(reader.array()?),
            },
            b'S' => Self::String(reader.long()?),
            b'A' => Self::Array(Array(reader.long()?)),
            b'T' => Self::Timestamp(u64::from_be_bytes(reader.array()?)),
            b'F' => Self::Table(Table(reader.long()?)),
            b'V' => Self::Void,
            b'x' => Self::Bytes(reader.long()?),
            kind => return Err(DecodeError::FieldType { at, kind }),
        })
    }
}

fn tagged(writer: &mut Writer<'_>, kind: u8, bytes: &[u8]) {
    writer.put(&[kind]);
    writer.put(bytes);
}

/// What stands in a table or an array.
#[derive(Clone, Copy)]
enum Nest {
    Table,
    Array,
}

/// Looks through a table or an array. Allocates nothing.
fn check(nest: Nest, bytes: Bytes, at: usize, depth: usize) -> Result<(), DecodeError> {
    if depth > TABLE_DEPTH_MAX && !planted(Fault::AnyDepth) {
        return Err(DecodeError::Depth {
            at,
            max: TABLE_DEPTH_MAX,
        });
    }
    let mut reader = Reader::at(bytes, at);
    while !reader.is_empty() {
        if let Nest::Table = nest {
            reader.short()?;
        }
        // Past the type and the length, where the value begins.
        let inside = reader.position() + 5;
        match Value::read(&mut reader)? {
            Value::Table(table) => check(Nest::Table, table.0, inside, depth + 1)?,
            Value::Array(array) => check(Nest::Array, array.0, inside, depth + 1)?,
            _ => {}
        }
    }
    Ok(())
}

impl Table {
    /// The table of these bytes, which come without a length.
    ///
    /// # Errors
    /// If they are none, are more than [`TABLE_BYTES_MAX`], or are nested deeper than [`TABLE_DEPTH_MAX`].
    pub fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        Self::checked(bytes, 0)
    }

    fn checked(bytes: Bytes, at: usize) -> Result<Self, DecodeError> {
        if bytes.len() > TABLE_BYTES_MAX {
            return Err(DecodeError::TableTooLong {
                at,
                bytes: bytes.len(),
                max: TABLE_BYTES_MAX,
            });
        }
        check(Nest::Table, bytes.clone(), at, 1)?;
        Ok(Self(bytes))
    }

    /// A table of fields. Names are cut to 255 bytes.
    pub fn of<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        let mut out = BytesMut::new();
        let mut writer = Writer::new(&mut out);
        for (name, value) in fields {
            writer.short(cut(name).as_bytes());
            value.write(&mut writer);
        }
        Self(out.freeze())
    }

    /// Its fields, in the order of the wire. A name may come twice.
    pub fn fields(&self) -> Fields {
        Fields(Reader::new(self.0.clone()))
    }

    /// The first field of a name.
    pub fn get(&self, name: &str) -> Option<Value> {
        let mut fields = self.fields();
        fields.find_map(|(found, value)| (*found == *name.as_bytes()).then_some(value))
    }

    /// Whether a field says true.
    pub fn is_true(&self, name: &str) -> bool {
        self.get(name) == Some(Value::Bool(true))
    }

    /// Whether it has no field.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its bytes, without the length.
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }
}

impl Array {
    /// An array of values.
    pub fn of(values: impl IntoIterator<Item = Value>) -> Self {
        let mut out = BytesMut::new();
        let mut writer = Writer::new(&mut out);
        for value in values {
            value.write(&mut writer);
        }
        Self(out.freeze())
    }

    /// Its values.
    pub fn values(&self) -> Values {
        Values(Reader::new(self.0.clone()))
    }
}

/// The fields of a table.
#[derive(Debug, Clone)]
pub struct Fields(Reader);

impl Iterator for Fields {
    type Item = (ShortBytes, Value);

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let name = self.0.short().expect("the table was checked");
        let value = Value::read(&mut self.0).expect("the table was checked");
        Some((name, value))
    }
}

/// The values of an array.
#[derive(Debug, Clone)]
pub struct Values(Reader);

impl Iterator for Values {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        if self.0.is_empty() {
            return None;
        }
        Some(Value::read(&mut self.0).expect("the array was checked"))
    }
}

impl Field for Table {
    fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        let at = reader.position() + 4;
        Self::checked(reader.long()?, at)
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.long(&self.0);
    }
}
