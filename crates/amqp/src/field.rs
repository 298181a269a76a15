//! Fields of methods: integers, strings, and bits that share octets.

use crate::decode::DecodeError;
use crate::faults::{Fault, planted};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::fmt;

/// What is left of a payload, and how much of it was read.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    rest: Bytes,
    at: usize,
    /// The octet of the bits before, and how many of it were read.
    bits: Option<(u8, u8)>,
}

impl Reader {
    pub(crate) fn new(payload: Bytes) -> Self {
        Self::at(payload, 0)
    }

    /// Of a part of a payload that begins at `at`.
    pub(crate) fn at(payload: Bytes, at: usize) -> Self {
        Self {
            rest: payload,
            at,
            bits: None,
        }
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next bytes, without a copy.
    pub(crate) fn take(&mut self, needed: usize) -> Result<Bytes, DecodeError> {
        self.bits = None;
        let had = self.rest.len();
        if had < needed {
            let at = self.at;
            return Err(DecodeError::Short { at, needed, had });
        }
        self.at += needed;
        Ok(self.rest.split_to(needed))
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.bits = None;
        let Some(array) = self.rest.first_chunk::<N>().copied() else {
            return Err(DecodeError::Short {
                at: self.at,
                needed: N,
                had: self.rest.len(),
            });
        };
        self.rest.advance(N);
        self.at += N;
        Ok(array)
    }

    /// A short string of any bytes.
    pub(crate) fn short(&mut self) -> Result<ShortBytes, DecodeError> {
        let [length] = self.array()?;
        Ok(ShortBytes(self.take(usize::from(length))?))
    }

    /// A long string.
    pub(crate) fn long(&mut self) -> Result<Bytes, DecodeError> {
        let length = u32::from_be_bytes(self.array()?);
        // A length that no usize holds is more than there is.
        self.take(usize::try_from(length).unwrap_or(usize::MAX))
    }

    fn bit(&mut self) -> Result<bool, DecodeError> {
        let (octet, read) = match self.bits.take() {
            Some((octet, read)) if read < 8 && !planted(Fault::BitsApart) => (octet, read),
            _ => (self.array::<1>()?[0], 0),
        };
        self.bits = Some((octet, read + 1));
        Ok(octet >> read & 1 == 1)
    }

    /// Ends the reading.
    pub(crate) fn end(&self) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            had => Err(DecodeError::Extra { at: self.at, had }),
        }
    }
}

/// Where fields are written.
pub(crate) struct Writer<'a> {
    pub(crate) out: &'a mut BytesMut,
    /// How many bits the last octet has, if it is one of bits.
    bits: Option<u8>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut BytesMut) -> Self {
        Self { out, bits: None }
    }

    /// Appends bytes that no bit may share an octet with.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.bits = None;
        self.out.put_slice(bytes);
    }

    pub(crate) fn short(&mut self, bytes: &[u8]) {
        let length =
            u8::try_from(bytes.len()).expect("ShortBytes and ShortString have 255 at most");
        self.put(&[length]);
        self.put(bytes);
    }

    pub(crate) fn long(&mut self, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).expect("no frame has 4 GiB");
        self.put(&length.to_be_bytes());
        self.put(bytes);
    }

    fn bit(&mut self, bit: bool) {
        let written = match self.bits {
            Some(written) if written < 8 && !planted(Fault::BitsApart) => written,
            _ => {
                self.out.put_u8(0);
                0
            }
        };
        let last = self.out.last_mut().expect("bits have an octet");
        *last |= u8::from(bit) << written;
        self.bits = Some(written + 1);
    }
}

/// A type of fields of methods.
pub(crate) trait Field: Sized {
    fn read(reader: &mut Reader) -> Result<Self, DecodeError>;
    fn write(&self, writer: &mut Writer<'_>);
}

/// Integers are big endian.
macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Field for $type {
            fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
                reader.array().map(Self::from_be_bytes)
            }

            fn write(&self, writer: &mut Writer<'_>) {
                writer.put(&self.to_be_bytes());
            }
        }
    )*};
}

integers!(u8, u16, u32, u64);

impl Field for bool {
    fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        reader.bit()
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.bit(*self);
    }
}

/// A long string.
impl Field for Bytes {
    fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        reader.long()
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.long(self);
    }
}

impl Field for ShortString {
    fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        let at = reader.position();
        let bytes = reader.short()?.0;
        match std::str::from_utf8(&bytes) {
            Ok(_) => Ok(Self(bytes)),
            Err(_) => Err(DecodeError::Text { at }),
        }
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.short(&self.0);
    }
}

/// The first characters of a text, as many as have 255 bytes.
pub(crate) fn cut(text: &str) -> &str {
    let mut end = text.len().min(255);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A text or bytes of more than 255 bytes, which no short string has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong {
    /// How many it has.
    pub bytes: usize,
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes, and a short string has 255 at most",
            self.bytes
        )
    }
}

impl std::error::Error for TooLong {}

/// A short string of a method: up to 255 bytes of UTF-8, shared with the frame that it came in.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShortString(Bytes);

impl ShortString {
    /// The text, cut to 255 bytes where it is longer.
    pub fn truncated(text: &str) -> Self {
        Self(Bytes::copy_from_slice(cut(text).as_bytes()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("it was UTF-8 when it was made")
    }
}

impl std::ops::Deref for ShortString {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl TryFrom<&str> for ShortString {
    type Error = TooLong;

    fn try_from(text: &str) -> Result<Self, TooLong> {
        match text.len() {
            0..=255 => Ok(Self(Bytes::copy_from_slice(text.as_bytes()))),
            bytes => Err(TooLong { bytes }),
        }
    }
}

impl fmt::Debug for ShortString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for ShortString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

/// A short string of a property: up to 255 bytes. Programs put binary ids there, so that nobody checks for UTF-8.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShortBytes(Bytes);

impl ShortBytes {
    /// As a text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl std::ops::Deref for ShortBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<&[u8]> for ShortBytes {
    type Error = TooLong;

    fn try_from(bytes: &[u8]) -> Result<Self, TooLong> {
        match bytes.len() {
            0..=255 => Ok(Self(Bytes::copy_from_slice(bytes))),
            bytes => Err(TooLong { bytes }),
        }
    }
}
