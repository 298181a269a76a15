//! Total little-endian reading, and its mirror: any bytes give a value or a
//! [`DecodeError`]; nothing panics and nothing is allocated from an unchecked
//! length.

use std::fmt;

/// Space for what most messages and records take.
const USUAL_BYTES: usize = 128;

/// What to do about bytes that an older version wrote.
pub const OLDER_ADVICE: &str = "whose format this one does not read: read the events out with \
     that version, and push them to a server of this one with an empty data directory";

/// Bytes that are not what they should be, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    /// What was being read, for example `"batch header"`.
    pub what: &'static str,
    /// Where in the input, in bytes.
    pub offset: usize,
    /// What is wrong there.
    pub problem: Problem,
}

/// The kinds of [`DecodeError`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "each variant has its line; the names of its fields say the rest"
)]
pub enum Problem {
    /// The input ends too early: bytes needed from `offset` on, and had.
    Short { needed: u64, had: u64 },
    /// A checksum differs.
    Checksum {
        /// The checksum that the bytes have.
        computed: u32,
        /// The checksum that is stored.
        stored: u32,
    },
    /// A field has a value that this version does not know or allow.
    Value { field: &'static str, found: u64 },
    /// A field of bytes whose checksum is right has a value that this version reserves: they
    /// were written by a later version, and are no damage.
    Newer { field: &'static str, found: u64 },
    /// A version, in bytes whose checksum is right, that this version no longer reads: they were
    /// written by an earlier one, and are no damage.
    Older { field: &'static str, found: u64 },
    /// Text that is not UTF-8.
    Text,
}

impl DecodeError {
    /// A field with a value that is not allowed.
    pub fn value(what: &'static str, offset: usize, field: &'static str, found: u64) -> Self {
        Self {
            what,
            offset,
            problem: Problem::Value { field, found },
        }
    }

    /// A field of verified bytes with a value that is reserved for later versions.
    pub fn newer(what: &'static str, offset: usize, field: &'static str, found: u64) -> Self {
        Self {
            what,
            offset,
            problem: Problem::Newer { field, found },
        }
    }

    /// A version of verified bytes that is not `own`.
    pub fn version(
        what: &'static str,
        offset: usize,
        field: &'static str,
        found: u64,
        own: u64,
    ) -> Self {
        let problem = match found < own {
            true => Problem::Older { field, found },
            false => Problem::Newer { field, found },
        };
        Self {
            what,
            offset,
            problem,
        }
    }

    /// Whether the bytes are those of an earlier or a later version: whole, but not to be read.
    pub fn is_of_another_version(&self) -> bool {
        matches!(self.problem, Problem::Newer { .. } | Problem::Older { .. })
    }

    /// A stored checksum that differs from that of the bytes.
    pub fn checksum(what: &'static str, offset: usize, computed: u32, stored: u32) -> Self {
        Self {
            what,
            offset,
            problem: Problem::Checksum { computed, stored },
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reading {} at byte {}: ", self.what, self.offset)?;
        match &self.problem {
            Problem::Short { needed, had } => write!(f, "needs {needed} bytes, has {had}"),
            Problem::Checksum { computed, stored } => {
                write!(f, "crc {computed:08x}, stored {stored:08x}")
            }
            Problem::Value { field, found } => write!(f, "{field} is {found:#x}"),
            Problem::Newer { field, found } => write!(
                f,
                "{field} is {found:#x}: written by a newer version of Thalweg"
            ),
            Problem::Older { field, found } => write!(
                f,
                "{field} is {found:#x}: written by an older version of Thalweg, {OLDER_ADVICE}"
            ),
            Problem::Text => write!(f, "text is not UTF-8"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// A cursor over bytes that are being decoded.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    what: &'static str,
    bytes: &'a [u8],
    position: usize,
}

macro_rules! read_integer {
    ($($name:ident: $type:ty),*) => {$(
        /// The next little-endian integer.
        #[inline]
        pub fn $name(&mut self) -> Result<$type, DecodeError> {
            let bytes = self.bytes(size_of::<$type>())?;
            Ok(<$type>::from_le_bytes(bytes.try_into().expect("length was asked for")))
        }
    )*};
}

impl<'a> Reader<'a> {
    /// Starts at the first of `bytes`; `what` names them in errors.
    pub fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self {
            what,
            bytes,
            position: 0,
        }
    }

    read_integer!(u8: u8, u16: u16, u32: u32, u64: u64, u128: u128);

    /// How far reading has come, in bytes.
    pub fn position(&self) -> usize {
        self.position
    }

    /// What is left to read.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.position..]
    }

    /// The next `count` bytes.
    #[inline]
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let had = self.bytes.len() - self.position;
        if had < count {
            let problem = Problem::Short {
                needed: count as u64,
                had: had as u64,
            };
            return Err(DecodeError {
                what: self.what,
                offset: self.position,
                problem,
            });
        }
        let taken = &self.bytes[self.position..self.position + count];
        self.position += count;
        Ok(taken)
    }

    /// Bytes behind their length, a `u32`.
    #[inline]
    pub fn sized(&mut self) -> Result<&'a [u8], DecodeError> {
        let count = self.u32()?;
        self.bytes(count as usize)
    }

    /// Text behind its length, a `u32`.
    pub fn text(&mut self) -> Result<&'a str, DecodeError> {
        let offset = self.position;
        std::str::from_utf8(self.sized()?).map_err(|_| DecodeError {
            what: self.what,
            offset,
            problem: Problem::Text,
        })
    }

    /// A count of items that take at least `item_bytes` each, so that space
    /// for them may be allocated.
    #[inline]
    pub fn count(&mut self, item_bytes: usize) -> Result<usize, DecodeError> {
        let offset = self.position;
        let count = self.u32()? as usize;
        let needed = count as u64 * item_bytes.max(1) as u64;
        let had = (self.bytes.len() - self.position) as u64;
        if needed > had {
            let problem = Problem::Short { needed, had };
            return Err(DecodeError {
                what: self.what,
                offset,
                problem,
            });
        }
        Ok(count)
    }

    /// A field's value is not allowed; the error points behind it.
    pub fn refuse(&self, field: &'static str, found: u64) -> DecodeError {
        DecodeError::value(self.what, self.position, field, found)
    }
}

/// What [`Reader`] reads, written.
pub trait Write {
    /// Appends bytes as they are.
    fn put(&mut self, bytes: &[u8]);

    /// Appends a `u8`.
    fn put_u8(&mut self, value: u8) {
        self.put(&[value]);
    }
    /// Appends a `u16`.
    fn put_u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }
    /// Appends a `u32`.
    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }
    /// Appends a `u64`.
    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }
    /// Appends a `u128`.
    fn put_u128(&mut self, value: u128) {
        self.put(&value.to_le_bytes());
    }
    /// Appends the length as a `u32`, then the bytes.
    ///
    /// # Panics
    /// If there are 4 GiB or more: such bytes travel as payload, never here.
    fn put_sized(&mut self, bytes: &[u8]) {
        self.put_u32(u32::try_from(bytes.len()).expect("sized bytes are below 4 GiB"));
        self.put(bytes);
    }
}

impl Write for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// A value with one binary form.
pub trait Codec: Sized {
    /// Appends the value to `out`.
    fn encode(&self, out: &mut Vec<u8>);

    /// Reads the value. Bytes that follow it are left in `from`.
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError>;

    /// The value as bytes of its own.
    fn to_bytes(&self) -> Vec<u8> {
        // A vector that grows field by field is moved again and again.
        let mut out = Vec::with_capacity(USUAL_BYTES);
        self.encode(&mut out);
        out
    }

    /// Reads the value from the start of `bytes`; what follows it is ignored,
    /// so that a later version may append fields.
    fn from_bytes(what: &'static str, bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::decode(&mut Reader::new(what, bytes))
    }
}

/// A field that was appended to a message when others that lack it were about:
/// a message that ends before it says 0, or an empty list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Appended<T>(pub T);

impl<T: Codec + Default> Codec for Appended<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match from.rest() {
            [] => Ok(Self::default()),
            _ => T::decode(from).map(Self),
        }
    }
}

macro_rules! integer_codec {
    ($($type:ident $put:ident),*) => {$(
        impl Codec for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                out.$put(*self);
            }
            fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                from.$type()
            }
        }
    )*};
}
integer_codec!(u8 put_u8, u16 put_u16, u32 put_u32, u64 put_u64, u128 put_u128);

impl Codec for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(u8::from(*self));
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match from.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(from.refuse("bool", u64::from(other))),
        }
    }
}

impl Codec for String {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_sized(self.as_bytes());
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(from.text()?.to_owned())
    }
}

impl Codec for bytes::Bytes {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_sized(self);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(bytes::Bytes::copy_from_slice(from.sized()?))
    }
}

impl<T: Codec> Codec for Option<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.is_some().encode(out);
        if let Some(value) = self {
            value.encode(out);
        }
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(if bool::decode(from)? {
            Some(T::decode(from)?)
        } else {
            None
        })
    }
}

impl<T: Codec> Codec for Vec<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(u32::try_from(self.len()).expect("lists in messages are below 2^32 items"));
        for item in self {
            item.encode(out);
        }
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        // Every item takes a byte or more, so this allocates at most
        // size_of::<T>() times the input.
        let count = from.count(1)?;
        // Few are the rule; of many it is not believed before they are there.
        let mut items = Vec::with_capacity(count.min(4));
        for _ in 0..count {
            items.push(T::decode(from)?);
        }
        Ok(items)
    }
}

impl<A: Codec, B: Codec> Codec for (A, B) {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
        self.1.encode(out);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok((A::decode(from)?, B::decode(from)?))
    }
}

/// Declares a struct whose binary form is its fields, in order.
macro_rules! record {
    ($(#[$meta:meta])+ pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$meta])+
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the pages of the formats have a row for each field")]
        pub struct $name { $($(#[$field_meta])* pub $field: $type,)* }

        impl $crate::codec::Codec for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                let _ = &out;
                $($crate::codec::Codec::encode(&self.$field, out);)*
            }
            fn decode(from: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::codec::DecodeError> {
                let _ = &from;
                Ok(Self { $($field: <$type as $crate::codec::Codec>::decode(from)?,)* })
            }
        }
    };
}
pub(crate) use record;
