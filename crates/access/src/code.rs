//! The one-time code: what one person tells another.

use ring::hmac;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// 2048 words that differ in their first four letters (BIP 39, public domain): 11 bits each.
const WORDS: &str = include_str!("words.txt");
const WORD_BITS: u32 = 11;
/// Words in a code, behind a number from 0 to 7: 80 bits.
const WORD_COUNT: usize = 7;
/// Letters by which a word is known.
const LETTERS: usize = 4;
/// Random bytes in a code.
pub const CODE_BYTES: usize = 10;

/// What the rendezvous is a hash over: no proof has these bytes.
const RENDEZVOUS: &[u8] = b"meets";

/// By what both sides of a code find each other at a meeting place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rendezvous([u8; 16]);

impl fmt::Display for Rendezvous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A one-time code: 80 random bits as a number and seven words, `7-olive-harbor-…`.
///
/// 80 bits are enough without a password-authenticated exchange: what passes of a code is a hash
/// over it and the connection, and who hears that would have to find the code while the
/// connection waits, at most 10 minutes. What it buys is a secret of its own, so that a code that is
/// found later opens nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Code([u8; CODE_BYTES]);

impl Code {
    /// The code of these random bytes.
    pub fn new(bytes: [u8; CODE_BYTES]) -> Self {
        Self(bytes)
    }

    /// The code itself, for who is to use it: there is no `Display`, so that no message has it by chance.
    pub fn to_text(&self) -> String {
        let words: Vec<&str> = words().collect();
        let bits = self.bits();
        let mut text = format!("{}", bits >> (WORD_BITS as usize * WORD_COUNT));
        for position in (0..WORD_COUNT).rev() {
            let index = (bits >> (WORD_BITS as usize * position)) & 0x7ff;
            text.push('-');
            text.push_str(words[index as usize]);
        }
        text
    }

    /// The key of the proofs of who has the code.
    pub fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }

    /// By what both sides find each other at a meeting place, which anybody on the way sees. Who would learn the code from
    /// it has to guess all of its 80 bits, and the code is good for minutes.
    pub fn rendezvous(&self) -> Rendezvous {
        let tag = hmac::sign(&self.key(), RENDEZVOUS);
        let bytes = tag.as_ref().first_chunk();
        Rendezvous(*bytes.expect("SHA-256 has 32 bytes"))
    }

    fn bits(&self) -> u128 {
        let bytes = self.0.iter();
        bytes.fold(0, |bits, byte| bits << 8 | u128::from(*byte))
    }
}

impl FromStr for Code {
    type Err = CodeError;

    /// Reads a code as people type it: capitals, spaces for hyphens, and words of which four letters are there.
    fn from_str(text: &str) -> Result<Self, CodeError> {
        let mut parts = text
            .split(|c: char| c == '-' || c.is_whitespace())
            .filter(|part| !part.is_empty());
        let number = parts.next().and_then(|part| part.parse::<u128>().ok());
        let mut bits = number
            .filter(|number| *number < 8)
            .ok_or(CodeError::Number)?;
        let mut count = 0;
        for part in parts {
            count += 1;
            let index = index_of(part).ok_or(CodeError::Word(count))?;
            if count > WORD_COUNT {
                break;
            }
            bits = bits << WORD_BITS | index as u128;
        }
        if count != WORD_COUNT {
            return Err(CodeError::Length(count));
        }
        let bytes = bits.to_be_bytes();
        let tail = bytes.last_chunk().expect("16 bytes have 10");
        Ok(Self(*tail))
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Code(..)")
    }
}

/// For how long a code is good where nothing else is said.
pub const CODE_LASTS: Duration = Duration::from_secs(600);
/// Wrong codes after which none is taken any more.
pub const CODE_WRONG_MAX: u32 = 100;

/// A code that lets one in: until somebody has used it, its time is over, or too many have guessed. Plain state: the time, of
/// whatever clock, is brought.
#[derive(Debug)]
pub struct OneTime<Time> {
    code: Code,
    until: Time,
    wrong: u32,
}

/// What came of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tried {
    /// Who tried has the code. The caller forgets it now.
    Right,
    /// They have not.
    Wrong,
    /// They have not, and nobody may try again.
    LastWrong,
}

impl<Time: Copy + PartialOrd> OneTime<Time> {
    /// A code that is good until then.
    pub fn new(code: Code, until: Time) -> Self {
        Self {
            code,
            until,
            wrong: 0,
        }
    }

    /// Until when it is good.
    pub fn until(&self) -> Time {
        self.until
    }

    /// Whether its time is over.
    pub fn is_over(&self, now: Time) -> bool {
        now >= self.until
    }

    /// The key of proofs of who has it.
    pub fn key(&self) -> hmac::Key {
        self.code.key()
    }

    /// Somebody tries, with a proof that they have it: a hash by its key over a message that names the connection.
    pub fn try_proof(&mut self, message: &[u8], proof: &[u8]) -> Tried {
        if hmac::verify(&self.key(), message, proof).is_ok() {
            return Tried::Right;
        }
        self.wrong += 1;
        match self.wrong >= CODE_WRONG_MAX {
            true => Tried::LastWrong,
            false => Tried::Wrong,
        }
    }
}

fn words() -> impl Iterator<Item = &'static str> {
    WORDS.split_ascii_whitespace()
}

fn index_of(typed: &str) -> Option<usize> {
    let typed = typed.to_ascii_lowercase();
    words().position(|word| word == typed || typed.len() >= LETTERS && word.starts_with(&typed))
}

/// Why a text is no code. Says where, never what: it may be nearly right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodeError {
    /// It does not begin with a number.
    Number,
    /// So many words, and not seven.
    Length(usize),
    /// This one, from 1, is none of the words.
    Word(usize),
}

impl fmt::Display for CodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number => write!(
                f,
                "a code begins with a number from 0 to 7, as in 7-olive-…"
            ),
            Self::Length(count) => {
                write!(
                    f,
                    "a code has {WORD_COUNT} words behind its number; these are {count}"
                )
            }
            Self::Word(position) => {
                write!(
                    f,
                    "word {position} of the code is none that a code has: is it spelled right?"
                )
            }
        }
    }
}

impl std::error::Error for CodeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_2048_and_differ_in_four_letters() {
        let mut heads: Vec<&str> = words()
            .map(|word| &word[..word.len().min(LETTERS)])
            .collect();
        assert_eq!(heads.len(), 2048);
        heads.sort_unstable();
        heads.dedup();
        assert_eq!(heads.len(), 2048);
    }

    #[test]
    fn a_code_is_read_as_it_is_written_and_as_people_type_it() {
        for byte in [0, 1, 0x5a, 0xff] {
            let code = Code::new(std::array::from_fn(|at| byte ^ (at as u8).wrapping_mul(37)));
            let text = code.to_text();
            assert_eq!(text.split('-').count(), 8, "{text}");
            assert_eq!(text.parse(), Ok(code.clone()));
            assert_eq!(
                text.to_uppercase().replace('-', " ").parse(),
                Ok(code.clone())
            );
            let short: Vec<&str> = text
                .split('-')
                .map(|word| &word[..word.len().min(4)])
                .collect();
            assert_eq!(short.join("-").parse(), Ok(code.clone()));
            assert_eq!(format!("{code:?}"), "Code(..)");
        }
    }

    #[test]
    fn a_rendezvous_is_of_one_code_and_is_no_part_of_it_and_no_proof() {
        let code = |byte: u8| Code::new([byte; CODE_BYTES]);
        let shown = code(7).rendezvous().to_string();
        assert_eq!(shown.len(), 32);
        assert_eq!(code(7).rendezvous(), code(7).rendezvous());
        assert_ne!(code(7).rendezvous(), code(8).rendezvous());
        assert!(!shown.contains("0707"), "{shown}");
    }

    #[test]
    fn a_code_lets_nobody_in_after_so_many_guesses_and_its_time() {
        let code = Code::new([7; CODE_BYTES]);
        let mut offered = OneTime::new(code.clone(), 10);
        assert!(!offered.is_over(9) && offered.is_over(10));
        let proof = hmac::sign(&code.key(), b"here");
        for _ in 1..CODE_WRONG_MAX {
            assert_eq!(offered.try_proof(b"there", proof.as_ref()), Tried::Wrong);
        }
        assert_eq!(offered.try_proof(b"here", proof.as_ref()), Tried::Right);
        assert_eq!(
            offered.try_proof(b"here", &proof.as_ref()[1..]),
            Tried::LastWrong
        );
    }

    #[test]
    fn what_is_no_code_is_told_by_place_and_not_by_word() {
        let parse = |text: &str| text.parse::<Code>();
        assert_eq!(parse(""), Err(CodeError::Number));
        assert_eq!(parse("9-olive"), Err(CodeError::Number));
        assert_eq!(parse("7-olive"), Err(CodeError::Length(1)));
        assert_eq!(parse("7-olive-nosuchword"), Err(CodeError::Word(2)));
        let long = format!("7{}", "-olive".repeat(9));
        assert_eq!(parse(&long), Err(CodeError::Length(8)));
        let said = parse("7-olive-nosuchword").unwrap_err().to_string();
        assert!(!said.contains("nosuchword"), "{said}");
    }
}
