//! Values by chance.

use crate::table::{Array, Table, Value};
use crate::{ContentHeader, Frame, Method, Properties, ShortBytes, ShortString};
use bytes::Bytes;

/// Chance for tests: splitmix64.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Bytes {
        (0..length).map(|_| self.next() as u8).collect()
    }

    fn some<T: Generated>(&mut self) -> Option<T> {
        self.one_in(2).then(|| T::generated(self))
    }

    fn value(&mut self, depth: usize) -> Value {
        let kinds = if depth == 0 { 16 } else { 18 };
        match self.below(kinds) {
            0 => Value::Bool(self.one_in(2)),
            1 => Value::I8(self.next() as i8),
            2 => Value::U8(self.next() as u8),
            3 => Value::I16(self.next() as i16),
            4 => Value::U16(self.next() as u16),
            5 => Value::I32(self.next() as i32),
            6 => Value::U32(self.next() as u32),
            7 => Value::I64(self.next() as i64),
            8 => Value::F32(self.below(1000) as f32 / 8.0),
            9 => Value::F64(self.below(1000) as f64 / 8.0),
            10 => Value::Decimal {
                scale: self.below(10) as u8,
                digits: self.next() as u32,
            },
            11 => Value::text(&ShortString::generated(self)),
            12 | 13 => Value::Timestamp(self.next()),
            14 => Value::Void,
            15 => {
                let length = self.below(20);
                Value::Bytes(self.bytes(length))
            }
            16 => {
                let count = self.below(4);
                Value::Array(Array::of((0..count).map(|_| self.value(depth - 1))))
            }
            _ => Value::Table(self.table(depth - 1)),
        }
    }

    /// A table with its names in order and none twice, which is how the oracle writes them.
    fn table(&mut self, depth: usize) -> Table {
        let names: Vec<_> = (0..self.below(5)).map(|at| format!("x-{at}")).collect();
        let fields: Vec<_> = names
            .iter()
            .map(|name| (name.as_str(), self.value(depth)))
            .collect();
        Table::of(fields)
    }

    /// A frame of any kind.
    pub(crate) fn frame(&mut self) -> Frame {
        let channel = self.next() as u16;
        match self.below(8) {
            0 => Frame::Heartbeat,
            1 => {
                let length = self.below(300);
                Frame::Body {
                    channel,
                    bytes: self.bytes(length),
                }
            }
            2 | 3 => Frame::Header {
                channel,
                header: ContentHeader {
                    class: 60,
                    body_bytes: self.next(),
                    properties: self.properties().encode(),
                },
            },
            _ => {
                let index = self.below(Method::ALL.len());
                Frame::Method {
                    channel,
                    method: Method::generate(index, self),
                }
            }
        }
    }

    pub(crate) fn properties(&mut self) -> Properties {
        Properties {
            content_type: self.some(),
            content_encoding: self.some(),
            headers: self.some(),
            delivery_mode: self.some(),
            priority: self.some(),
            correlation_id: self.some(),
            reply_to: self.some(),
            expiration: self.some(),
            message_id: self.some(),
            timestamp: self.some(),
            kind: self.some(),
            user_id: self.some(),
            app_id: self.some(),
            cluster_id: self.some(),
        }
    }
}

/// The seeds of a test: those of `AMQP_SEEDS`, as in `81000..82000`, or the first `count`.
pub(crate) fn seeds(count: u64) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("AMQP_SEEDS") else {
        return 0..count;
    };
    let (from, to) = text.split_once("..").expect("AMQP_SEEDS is FROM..TO");
    from.parse().unwrap()..to.parse().unwrap()
}

/// A type of fields whose values come by chance.
pub(crate) trait Generated: Sized {
    fn generated(chance: &mut Chance) -> Self;
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Generated for $type {
            fn generated(chance: &mut Chance) -> Self {
                chance.next() as Self
            }
        }
    )*};
}

integers!(u8, u16, u32, u64);

impl Generated for bool {
    fn generated(chance: &mut Chance) -> Self {
        chance.one_in(2)
    }
}

impl Generated for ShortString {
    fn generated(chance: &mut Chance) -> Self {
        let letters = ['a', '.', '#', 'ü', '\u{1f980}', 'Z', '0'];
        let longest = if chance.one_in(50) { 255 } else { 12 };
        let length = chance.below(longest);
        let text: String = (0..length).map(|_| letters[chance.below(7)]).collect();
        Self::truncated(&text)
    }
}

impl Generated for ShortBytes {
    fn generated(chance: &mut Chance) -> Self {
        Self::try_from(ShortString::generated(chance).as_bytes()).unwrap()
    }
}

impl Generated for Bytes {
    fn generated(chance: &mut Chance) -> Self {
        let length = chance.below(40);
        chance.bytes(length)
    }
}

impl Generated for Table {
    fn generated(chance: &mut Chance) -> Self {
        chance.table(3)
    }
}
