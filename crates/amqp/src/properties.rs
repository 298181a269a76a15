//! Properties of a message: 14 optional fields, as bytes that were looked through and as values.

use crate::decode::DecodeError;
use crate::field::{Field, Reader, ShortBytes, Writer};
use crate::table::Table;
use bytes::{Bytes, BytesMut};

/// Properties as they are on the wire, flags first. Their form was checked when they were made, so that
/// [`RawProperties::fields`] does not fail. A message can be kept and sent again with them as they are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RawProperties(Bytes);

/// Two octets of flags that say that there is none.
static NONE: [u8; 2] = [0, 0];

impl Default for RawProperties {
    fn default() -> Self {
        Self(Bytes::from_static(&NONE))
    }
}

impl RawProperties {
    /// The properties of these bytes.
    ///
    /// # Errors
    /// If they are none.
    pub fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        Self::checked(Reader::new(bytes.clone()))?;
        Ok(Self(bytes))
    }

    /// The same, of what follows 12 bytes of a content header.
    pub(crate) fn of_header(bytes: Bytes) -> Result<Self, DecodeError> {
        Self::checked(Reader::at(bytes.clone(), 12))?;
        Ok(Self(bytes))
    }

    fn checked(mut reader: Reader) -> Result<(), DecodeError> {
        Properties::read(&mut reader)?;
        reader.end()
    }

    /// Their values, which share the bytes.
    pub fn fields(&self) -> Properties {
        Properties::read(&mut Reader::new(self.0.clone())).expect("properties were checked")
    }

    /// Their bytes.
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }
}

/// Declares the properties in the order of the wire; the first has the highest flag.
macro_rules! properties {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $bit:literal, $read:expr, $write:expr;)*) => {
        /// The properties of a message.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct Properties { $($(#[$doc])* pub $name: Option<$type>),* }

        /// Flags that mean something. The lowest would say that more flags follow; there are none.
        const FLAGS: u16 = $(1 << $bit)|*;

        impl Properties {
            fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
                let flags = u16::from_be_bytes(reader.array()?);
                if flags & !FLAGS != 0 {
                    return Err(DecodeError::PropertyFlags(flags));
                }
                Ok(Self {
                    $($name: match flags & (1 << $bit) {
                        0 => None,
                        _ => Some($read(reader)?),
                    }),*
                })
            }

            /// Their bytes.
            pub fn encode(&self) -> RawProperties {
                let mut out = BytesMut::new();
                let mut writer = Writer::new(&mut out);
                let mut flags = 0u16;
                $(flags |= u16::from(self.$name.is_some()) << $bit;)*
                writer.put(&flags.to_be_bytes());
                $(if let Some(value) = &self.$name { $write(value, &mut writer); })*
                RawProperties(out.freeze())
            }
        }
    };
}

fn write_short(value: &ShortBytes, writer: &mut Writer<'_>) {
    writer.short(value);
}

properties! {
    /// MIME type of the body.
    content_type: ShortBytes = 15, Reader::short, write_short;
    /// MIME encoding of the body.
    content_encoding: ShortBytes = 14, Reader::short, write_short;
    /// Fields of the program's own, and CC, BCC and what queues add.
    headers: Table = 13, Table::read, Table::write;
    /// 2 is persistent; anything else is not.
    delivery_mode: u8 = 12, u8::read, u8::write;
    /// The greatest goes first.
    priority: u8 = 11, u8::read, u8::write;
    /// Joins a reply to its request.
    correlation_id: ShortBytes = 10, Reader::short, write_short;
    /// Where a reply goes.
    reply_to: ShortBytes = 9, Reader::short, write_short;
    /// Time to live, as the text of a number of milliseconds.
    expiration: ShortBytes = 8, Reader::short, write_short;
    /// The program's name of the message.
    message_id: ShortBytes = 7, Reader::short, write_short;
    /// Seconds since 1970 UTC.
    timestamp: u64 = 6, u64::read, u64::write;
    /// The program's type of the message.
    kind: ShortBytes = 5, Reader::short, write_short;
    /// Who published, checked against the login.
    user_id: ShortBytes = 4, Reader::short, write_short;
    /// Which program published.
    app_id: ShortBytes = 3, Reader::short, write_short;
    /// Reserved by the standard.
    cluster_id: ShortBytes = 2, Reader::short, write_short;
}
