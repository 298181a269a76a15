//! Whether bytes are a JSON text, without building anything from them.

use std::fmt;

/// How deeply arrays and objects may nest. serde_json reads just as much.
pub const JSON_DEPTH_MAX: u32 = 127;

// The nesting is kept as a bit a level.
const _: () = assert!(JSON_DEPTH_MAX <= u128::BITS);

/// Where bytes stop being JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonError {
    offset: usize,
    problem: Problem,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Problem {
    /// What could have been here, and what is, if not the end.
    Expected(&'static str, Option<u8>),
    NotUtf8,
    ControlInString(u8),
    LoneSurrogate,
    TooDeep,
}

impl JsonError {
    /// The first byte that does not fit; the length of the text if it is cut short.
    pub fn offset(&self) -> usize {
        self.offset
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problem {
            Problem::Expected(what, Some(found)) => {
                let found = char::from(found);
                match found {
                    ' '..='~' => write!(f, "expected {what}, found {found:?}")?,
                    _ => write!(f, "expected {what}, found 0x{:02x}", u32::from(found))?,
                }
            }
            Problem::Expected(what, None) => write!(f, "expected {what}, found the end")?,
            Problem::NotUtf8 => f.write_str("not UTF-8")?,
            Problem::ControlInString(found) => {
                write!(f, "control character 0x{found:02x} in a string")?;
            }
            Problem::LoneSurrogate => f.write_str("escaped surrogate without its pair")?,
            Problem::TooDeep => write!(f, "nested deeper than {JSON_DEPTH_MAX}")?,
        }
        write!(f, " at byte {}", self.offset)
    }
}

impl std::error::Error for JsonError {}

/// Checks that `text` is one JSON value (RFC 8259) in UTF-8, with white space
/// around it at most.
///
/// Two things that the grammar allows are refused, because readers differ
/// about them or fail: escaped surrogates without their pair (RFC 7493,
/// section 2.1) and nesting deeper than [`JSON_DEPTH_MAX`]. Names that appear
/// twice in an object are let through. Allocates nothing.
///
/// # Errors
/// The first place that does not fit.
pub fn check_json(text: &[u8]) -> Result<(), JsonError> {
    if let Err(error) = std::str::from_utf8(text) {
        return Err(JsonError {
            offset: error.valid_up_to(),
            problem: Problem::NotUtf8,
        });
    }
    Scanner { text, at: 0 }.document()
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    fn document(&mut self) -> Result<(), JsonError> {
        // Level n is bit n: 1 in an object, 0 in an array.
        let mut in_object = 0u128;
        let mut depth = 0;
        'value: loop {
            match self.after_space() {
                Some(b'"') => self.string()?,
                Some(open @ (b'{' | b'[')) => {
                    if depth == JSON_DEPTH_MAX {
                        return Err(self.error(self.at, Problem::TooDeep));
                    }
                    self.at += 1;
                    let is_object = open == b'{';
                    let next = self.after_space();
                    if next == Some(if is_object { b'}' } else { b']' }) {
                        self.at += 1;
                    } else {
                        in_object = in_object << 1 | u128::from(is_object);
                        depth += 1;
                        if is_object {
                            self.name()?;
                        }
                        continue 'value;
                    }
                }
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(b't') => self.literal("true")?,
                Some(b'f') => self.literal("false")?,
                Some(b'n') => self.literal("null")?,
                _ => return self.expected("a value"),
            }
            // After a value: ends of what it is in, then a comma or the end.
            loop {
                let next = self.after_space();
                if depth == 0 {
                    return match next {
                        None => Ok(()),
                        Some(_) => self.expected("the end"),
                    };
                }
                let is_object = in_object & 1 == 1;
                match next {
                    Some(b',') => {
                        self.at += 1;
                        if is_object {
                            self.name()?;
                        }
                        continue 'value;
                    }
                    Some(b'}') if is_object => {}
                    Some(b']') if !is_object => {}
                    _ if is_object => return self.expected("',' or '}'"),
                    _ => return self.expected("',' or ']'"),
                }
                self.at += 1;
                in_object >>= 1;
                depth -= 1;
            }
        }
    }

    /// A member's name and its colon.
    fn name(&mut self) -> Result<(), JsonError> {
        if self.after_space() != Some(b'"') {
            return self.expected("a name in '\"'");
        }
        self.string()?;
        if self.after_space() != Some(b':') {
            return self.expected("':'");
        }
        self.at += 1;
        Ok(())
    }

    fn string(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        loop {
            self.skip_plain();
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                Some(found @ 0..0x20) => {
                    return Err(self.error(self.at, Problem::ControlInString(found)));
                }
                Some(_) => self.at += 1,
                None => return self.expected("'\"'"),
            }
        }
    }

    /// Passes over what means nothing in a string, up to the last few bytes
    /// of the text: eight bytes at a time, because most strings are short, and
    /// where they are not, 32, for which the compiler uses vector instructions.
    fn skip_plain(&mut self) {
        const ONES: u64 = u64::from_le_bytes([1; 8]);
        const HIGHS: u64 = u64::from_le_bytes([0x80; 8]);
        // The high bit of each byte of `word` that is below `limit`. Borrows
        // make bits above the first one doubtful; the first one is exact.
        let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word & HIGHS;
        while let Some(bytes) = self.text[self.at..].first_chunk::<8>() {
            let word = u64::from_le_bytes(*bytes);
            let quote = below(word ^ (ONES * u64::from(b'"')), 1);
            let backslash = below(word ^ (ONES * u64::from(b'\\')), 1);
            let found = quote | backslash | below(word, 0x20);
            if found != 0 {
                self.at += found.trailing_zeros() as usize / 8;
                return;
            }
            self.at += 8;
            while self.text[self.at..]
                .first_chunk::<32>()
                .is_some_and(all_plain)
            {
                self.at += 32;
            }
        }
    }

    fn escape(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        self.at += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => match self.code_unit()? {
                0xd800..=0xdbff => {
                    if !self.text[self.at..].starts_with(b"\\u") {
                        return Err(self.error(start, Problem::LoneSurrogate));
                    }
                    self.at += 1;
                    if !matches!(self.code_unit()?, 0xdc00..=0xdfff) {
                        return Err(self.error(start, Problem::LoneSurrogate));
                    }
                }
                0xdc00..=0xdfff => return Err(self.error(start, Problem::LoneSurrogate)),
                _ => {}
            },
            _ => return self.expected("an escape character"),
        }
        Ok(())
    }

    /// The four hexadecimal digits after the `u` that is next.
    fn code_unit(&mut self) -> Result<u32, JsonError> {
        self.at += 1;
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else {
                self.expected("a hexadecimal digit")?;
                break;
            };
            unit = unit << 4 | digit;
            self.at += 1;
        }
        Ok(unit)
    }

    fn number(&mut self) -> Result<(), JsonError> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    /// One digit or more.
    fn digits(&mut self) -> Result<(), JsonError> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return self.expected("a digit");
        }
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        Ok(())
    }

    fn literal(&mut self, literal: &'static str) -> Result<(), JsonError> {
        for byte in literal.bytes() {
            if self.peek() != Some(byte) {
                return self.expected(literal);
            }
            self.at += 1;
        }
        Ok(())
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// The next byte that is no white space; it stays next.
    fn after_space(&mut self) -> Option<u8> {
        loop {
            match self.peek() {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                other => return other,
            }
        }
    }

    fn expected(&self, what: &'static str) -> Result<(), JsonError> {
        Err(self.error(self.at, Problem::Expected(what, self.peek())))
    }

    fn error(&self, offset: usize, problem: Problem) -> JsonError {
        JsonError { offset, problem }
    }
}

/// Whether none of the bytes means anything in a string.
fn all_plain(bytes: &[u8; 32]) -> bool {
    let special = |byte: &u8| (*byte < 0x20) | (*byte == b'"') | (*byte == b'\\');
    // Without a way out, which vector instructions have no use for.
    !bytes.iter().fold(false, |any, byte| any | special(byte))
}

#[cfg(test)]
mod tests;
