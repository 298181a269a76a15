//! The messages of SciStream's package `scistream`, as bytes of protobuf: texts, lists of texts and small numbers
//! are all that they have. Fields that are not known are left out, as protobuf has it.
//!
//! | message | fields |
//! | --- | --- |
//! | `Request` | 1 `uid`, 2 `role`, 3 `num_conn`, 4 `rate` |
//! | `UpdateTargets` | 1 `uid`, 2 `remote_listeners` (list), 3 `role` |
//! | `Hello` | 1 `uid`, 2 `prod_listeners` (list), 3 `role` |
//! | `Release` | 1 `uid` |
//! | `Response` | 1 `listeners` (list), 2 `prod_listeners` (list) |
//! | `AppResponse` | 1 `message`, 2 `listeners` (list) |

/// The longest text of a message.
const TEXT_BYTES_MAX: usize = 4096;
/// The longest list.
const LIST_MAX: usize = 64;

const VARINT: u8 = 0;
const EIGHT_BYTES: u8 = 1;
const SIZED: u8 = 2;
const FOUR_BYTES: u8 = 5;

/// `Request`: listeners are asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub uid: String,
    pub role: String,
    pub num_conn: i32,
    /// Kilobytes a second; SciStream's own servers do not look at it.
    pub rate: i32,
}

/// `UpdateTargets`, and `Hello`, which has the same form: where something is.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Places {
    pub uid: String,
    /// `HOST:PORT` each.
    pub places: Vec<String>,
    pub role: String,
}

/// `Release`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Release {
    pub uid: String,
}

/// What is wrong with bytes.
pub type Wrong = &'static str;

impl Request {
    /// Reads the message. Takes any bytes.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, Wrong> {
        let mut request = Self::default();
        fields(bytes, |number, field| {
            match (number, field) {
                (1, Field::Text(text)) => request.uid = owned(text)?,
                (2, Field::Text(text)) => request.role = owned(text)?,
                // Negative numbers are written as 64 bits; what counts are the lower ones.
                (3, Field::Number(number)) => request.num_conn = number as i32,
                (4, Field::Number(number)) => request.rate = number as i32,
                _ => {}
            }
            Ok(())
        })?;
        Ok(request)
    }
}

impl Places {
    /// Reads the message. Takes any bytes.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, Wrong> {
        let mut said = Self::default();
        fields(bytes, |number, field| {
            match (number, field) {
                (1, Field::Text(text)) => said.uid = owned(text)?,
                (2, Field::Text(text)) if said.places.len() < LIST_MAX => {
                    said.places.push(owned(text)?)
                }
                (2, Field::Text(_)) => return Err("it has a list that is too long"),
                (3, Field::Text(text)) => said.role = owned(text)?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(said)
    }
}

impl Release {
    /// Reads the message. Takes any bytes.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, Wrong> {
        let mut release = Self::default();
        fields(bytes, |number, field| {
            if let (1, Field::Text(text)) = (number, field) {
                release.uid = owned(text)?;
            }
            Ok(())
        })?;
        Ok(release)
    }
}

/// The bytes of `Response`: two lists of texts.
pub fn response(listeners: &[String], prod_listeners: &[String]) -> Vec<u8> {
    let mut out = Vec::new();
    listeners
        .iter()
        .for_each(|text| put_text(&mut out, 1, text));
    prod_listeners
        .iter()
        .for_each(|text| put_text(&mut out, 2, text));
    out
}

/// The bytes of `AppResponse`: a text, and a list.
pub fn app_response(message: &str, listeners: &[String]) -> Vec<u8> {
    let mut out = Vec::new();
    put_text(&mut out, 1, message);
    listeners
        .iter()
        .for_each(|text| put_text(&mut out, 2, text));
    out
}

fn put_text(out: &mut Vec<u8>, number: u8, text: &str) {
    out.push(number << 3 | SIZED);
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

enum Field<'a> {
    Number(u64),
    Text(&'a [u8]),
    Other,
}

fn owned(bytes: &[u8]) -> Result<String, Wrong> {
    if bytes.len() > TEXT_BYTES_MAX {
        return Err("it has a text that is too long");
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "it has a text that is not UTF-8")?;
    Ok(text.to_owned())
}

fn fields<'a>(
    mut bytes: &'a [u8],
    mut take: impl FnMut(u64, Field<'a>) -> Result<(), Wrong>,
) -> Result<(), Wrong> {
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let number = key >> 3;
        if number == 0 {
            return Err("it has a field that is none");
        }
        let field = match (key & 7) as u8 {
            VARINT => Field::Number(varint(&mut bytes)?),
            SIZED => {
                let length = varint(&mut bytes)?;
                let length = usize::try_from(length).map_err(|_| ENDS)?;
                Field::Text(taken(&mut bytes, length)?)
            }
            EIGHT_BYTES => taken(&mut bytes, 8).map(|_| Field::Other)?,
            FOUR_BYTES => taken(&mut bytes, 4).map(|_| Field::Other)?,
            _ => return Err("it has a field of an unknown form"),
        };
        take(number, field)?;
    }
    Ok(())
}

const ENDS: Wrong = "it ends too early";

fn taken<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], Wrong> {
    let (taken, rest) = bytes.split_at_checked(count).ok_or(ENDS)?;
    *bytes = rest;
    Ok(taken)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Wrong> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = taken(bytes, 1)?[0];
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err("it has a number that is too long")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of a seed (splitmix64).
    struct Chance(u64);

    impl Chance {
        fn below(&mut self, bound: usize) -> usize {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.0;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((mixed ^ (mixed >> 31)) % bound as u64) as usize
        }
    }

    #[test]
    fn messages_are_read_as_other_programs_write_them() {
        // As Python's protobuf writes Request(uid="u", role="PROD", num_conn=5, rate=10000).
        let bytes = b"\x0a\x01u\x12\x04PROD\x18\x05\x20\x90\x4e";
        let request = Request {
            uid: "u".to_owned(),
            role: "PROD".to_owned(),
            num_conn: 5,
            rate: 10_000,
        };
        assert_eq!(Request::decode(bytes), Ok(request));
        // num_conn = -1, and a field that is not known.
        let negative = b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x7a\x02hi";
        assert_eq!(Request::decode(negative).unwrap().num_conn, -1);
        let hello = b"\x0a\x01u\x12\x03a:1\x12\x03b:2\x1a\x04PROD";
        let places = vec!["a:1".to_owned(), "b:2".to_owned()];
        assert_eq!(Places::decode(hello).unwrap().places, places);
        assert_eq!(
            response(&places, &["c".to_owned()]),
            b"\x0a\x03a:1\x0a\x03b:2\x12\x01c"
        );
        assert_eq!(app_response("m", &["a".to_owned()]), b"\x0a\x01m\x12\x01a");
        assert_eq!(Release::decode(b"\x0a\x02xy").unwrap().uid, "xy");
    }

    #[test]
    fn any_bytes_are_a_message_or_none() {
        let original = b"\x0a\x01u\x12\x03a:1\x12\x03b:2\x1a\x04PROD\x18\x05";
        let mut chance = Chance(7);
        for _ in 0..5000 {
            let mut bytes = original.to_vec();
            for _ in 0..chance.below(8) {
                let at = chance.below(bytes.len());
                match chance.below(3) {
                    0 => bytes[at] = chance.below(256) as u8,
                    1 if bytes.len() > 1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, chance.below(256) as u8),
                }
            }
            let _ = (Request::decode(&bytes), Release::decode(&bytes));
            if let Ok(said) = Places::decode(&bytes) {
                assert!(said.places.iter().map(String::len).sum::<usize>() <= bytes.len());
            }
        }
        let many = b"\x12\x01a".repeat(LIST_MAX + 1);
        assert!(Places::decode(&many).is_err());
    }
}
