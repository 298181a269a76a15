//! RESP2, as much of it as a client needs: commands out, answers in.

use bytes::{Buf, Bytes, BytesMut};
use std::fmt;
use std::io::Write;

/// A line of an answer: what an error says, or a number.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Values of an answer, those in others too.
const VALUES_MAX: u64 = 1 << 20;
/// How deep values are in others.
const DEPTH_MAX: u32 = 16;
/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 1 << 30;

/// What a server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text, or the bytes of something.
    Bytes(Bytes),
    /// Why it did not do what it was asked for.
    Error(String),
    Integer(i64),
    Array(Vec<Value>),
    Nil,
}

impl Value {
    /// As bytes, if it is some.
    pub fn bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// As values, if it has some. None is no value too.
    pub fn values(self) -> Option<Vec<Self>> {
        match self {
            Self::Array(values) => Some(values),
            Self::Nil => Some(Vec::new()),
            _ => None,
        }
    }
}

/// Why bytes are no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RespError(String);

impl fmt::Display for RespError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn wrong<T>(what: impl Into<String>) -> Result<T, RespError> {
    Err(RespError(what.into()))
}

/// Appends a command.
pub fn encode(out: &mut Vec<u8>, parts: &[&[u8]]) {
    head(out, parts.len(), parts);
}

/// Appends the first parts of a command that has so many.
pub fn head(out: &mut Vec<u8>, count: usize, parts: &[&[u8]]) {
    number(out, b'*', count);
    for part in parts {
        length(out, part.len());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends what comes before a part of so many bytes. A line end is to follow the part.
pub fn length(out: &mut Vec<u8>, bytes: usize) {
    number(out, b'$', bytes);
}

fn number(out: &mut Vec<u8>, kind: u8, number: usize) {
    out.push(kind);
    write!(out, "{number}\r\n").expect("memory takes what is written");
}

/// Answers, from bytes as they come.
#[derive(Debug)]
pub struct Reader {
    input: BytesMut,
    /// The longest part of an answer.
    part_bytes_max: u64,
    /// Where the first value begins that was not seen.
    at: usize,
    /// Values that are missing to the end of the answer.
    missing: u64,
}

/// A value's first line.
enum Line {
    /// It has all of it.
    Whole,
    /// So many bytes and a line end follow.
    Bytes(usize),
    /// So many values follow.
    Values(u64),
}

impl Reader {
    pub fn new(part_bytes_max: u64) -> Self {
        Self {
            input: BytesMut::new(),
            part_bytes_max,
            at: 0,
            missing: 1,
        }
    }

    /// Takes bytes that came.
    pub fn take(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// The next answer, once all of it has come. Its bytes are those that came, without a copy.
    pub fn next(&mut self) -> Result<Option<Value>, RespError> {
        while self.missing > 0 {
            let rest = &self.input[self.at..];
            let Some(end) = line_end(rest)? else {
                return Ok(None);
            };
            let line = first_line(&rest[..end], self.part_bytes_max)?;
            let mut end = end + 2;
            self.missing -= 1;
            match line {
                Line::Whole => {}
                Line::Values(count) => self.missing += count,
                Line::Bytes(bytes) => {
                    let all = end + bytes + 2;
                    if rest.len() < all {
                        self.missing += 1;
                        return self.wait_for(all);
                    }
                    if &rest[all - 2..all] != b"\r\n" {
                        return wrong("a part that is longer than it says");
                    }
                    end = all;
                }
            }
            if self.missing > VALUES_MAX {
                return wrong(format!("an answer of more than {VALUES_MAX} values"));
            }
            self.at += end;
        }
        let mut whole = self.input.split_to(self.at).freeze();
        self.at = 0;
        self.missing = 1;
        decode(&mut whole, self.part_bytes_max, DEPTH_MAX).map(Some)
    }

    /// Makes room for what is to come, where that is known and not too much.
    fn wait_for(&mut self, bytes: usize) -> Result<Option<Value>, RespError> {
        let all = self.at + bytes;
        if all > ANSWER_BYTES_MAX {
            return wrong(format!("an answer of more than {ANSWER_BYTES_MAX} bytes"));
        }
        Ok(None)
    }
}

/// Where a line ends, if that is there.
fn line_end(bytes: &[u8]) -> Result<Option<usize>, RespError> {
    let most = bytes.len().min(LINE_BYTES_MAX);
    let found = bytes[..most].windows(2).position(|two| two == b"\r\n");
    match found {
        None if bytes.len() > LINE_BYTES_MAX => {
            wrong(format!("a line of more than {LINE_BYTES_MAX} bytes"))
        }
        // What is no answer is known before its line has an end.
        None if bytes.first().is_some_and(|kind| !b"+-:$*".contains(kind)) => {
            wrong("something that is no answer")
        }
        found => Ok(found),
    }
}

fn first_line(line: &[u8], part_bytes_max: u64) -> Result<Line, RespError> {
    let Some((kind, rest)) = line.split_first() else {
        return wrong("an empty line");
    };
    match kind {
        b'+' | b'-' => Ok(Line::Whole),
        b':' => integer(rest).map(|_| Line::Whole),
        b'$' => match integer(rest)? {
            -1 => Ok(Line::Whole),
            bytes => match u64::try_from(bytes) {
                Ok(bytes) if bytes <= part_bytes_max => Ok(Line::Bytes(bytes as usize)),
                _ => wrong(format!(
                    "a part of {bytes} bytes where at most {part_bytes_max} are expected"
                )),
            },
        },
        b'*' => match integer(rest)? {
            -1 => Ok(Line::Whole),
            count => match u64::try_from(count) {
                Ok(count) if count <= VALUES_MAX => Ok(Line::Values(count)),
                _ => wrong(format!("an answer of {count} values")),
            },
        },
        _ => wrong("something that is no answer"),
    }
}

fn integer(digits: &[u8]) -> Result<i64, RespError> {
    let text = std::str::from_utf8(digits).ok();
    match text.and_then(|text| text.parse().ok()) {
        Some(number) => Ok(number),
        None => wrong("a number that is none"),
    }
}

/// The first value of bytes that have all of it.
fn decode(bytes: &mut Bytes, part_bytes_max: u64, depth: u32) -> Result<Value, RespError> {
    let Some(end) = line_end(bytes)? else {
        return wrong("the end of an answer inside of it");
    };
    let line = bytes.split_to(end);
    bytes.advance(2);
    Ok(match first_line(&line, part_bytes_max)? {
        Line::Bytes(count) => {
            let part = bytes.split_to(count);
            bytes.advance(2);
            Value::Bytes(part)
        }
        Line::Values(count) => {
            let Some(depth) = depth.checked_sub(1) else {
                return wrong(format!("values in more than {DEPTH_MAX} others"));
            };
            let values = (0..count).map(|_| decode(bytes, part_bytes_max, depth));
            Value::Array(values.collect::<Result<_, _>>()?)
        }
        Line::Whole => match line[0] {
            b'+' => Value::Bytes(line.slice(1..)),
            b'-' => Value::Error(String::from_utf8_lossy(&line[1..]).into_owned()),
            b':' => Value::Integer(integer(&line[1..])?),
            _ => Value::Nil,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::Bytes(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn answers_come_in_pieces_of_any_length() {
        let bytes =
            b"+OK\r\n*3\r\n$3\r\na\r\n\r\n*-1\r\n*2\r\n:-7\r\n$-1\r\n-ERR no\r\n*0\r\n$0\r\n\r\n";
        let expected = [
            text("OK"),
            Value::Array(vec![
                text("a\r\n"),
                Value::Nil,
                Value::Array(vec![Value::Integer(-7), Value::Nil]),
            ]),
            Value::Error("ERR no".to_owned()),
            Value::Array(Vec::new()),
            text(""),
        ];
        for piece in 1..bytes.len() {
            let mut reader = Reader::new(16);
            let mut found = Vec::new();
            for bytes in bytes.chunks(piece) {
                reader.take(bytes);
                while let Some(value) = reader.next().unwrap() {
                    found.push(value);
                }
            }
            assert_eq!(found, expected, "in pieces of {piece}");
            assert!(reader.input.is_empty());
        }
    }

    #[test]
    fn what_is_no_answer_is_refused_and_nothing_is_reserved_for_it() {
        let deep = "*1\r\n".repeat(DEPTH_MAX as usize + 1) + ":1\r\n";
        let long = format!("+{}", "x".repeat(LINE_BYTES_MAX + 1));
        let wide = "*1048576\r\n*1048576\r\n";
        for (bytes, says) in [
            ("HTTP/1.1 400", "no answer"),
            ("$17\r\n", "a part of 17 bytes"),
            ("$-2\r\n", "a part of -2 bytes"),
            ("*1048577\r\n", "1048577 values"),
            ("$2\r\nabc\r\n", "longer than it says"),
            (":x\r\n", "a number"),
            ("$99999999999999999999\r\n", "a number"),
            ("\r\n", "an empty line"),
            (wide, "more than"),
            (&deep, "in more than"),
            (&long, "a line of more than"),
        ] {
            let mut reader = Reader::new(16);
            reader.take(bytes.as_bytes());
            let why = loop {
                match reader.next() {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("{bytes:.40}: nothing is wrong"),
                    Err(error) => break error.to_string(),
                }
            };
            assert!(why.contains(says), "{bytes:.40}: {why}");
        }
    }

    #[test]
    fn any_bytes_give_an_answer_or_an_error() {
        let mut chance: u64 = 7;
        let mut below = |count: u64| {
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            chance % count
        };
        for _ in 0..2000 {
            let alphabet = b"*$+-:0123456789\r\n\r\nab";
            let bytes: Vec<u8> = (0..below(64))
                .map(|_| alphabet[below(alphabet.len() as u64) as usize])
                .collect();
            let mut reader = Reader::new(8);
            reader.take(&bytes);
            while let Ok(Some(_)) = reader.next() {}
        }
    }

    #[test]
    fn a_command_is_an_array_of_parts() {
        let mut out = Vec::new();
        encode(&mut out, &[b"SET", b"", b"a\r\n"]);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$3\r\na\r\n\r\n");
        let mut reader = Reader::new(16);
        reader.take(&out);
        let parts = reader.next().unwrap().unwrap().values().unwrap();
        assert_eq!(parts, [text("SET"), text(""), text("a\r\n")]);
    }
}
