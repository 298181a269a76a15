//! What one value has to be.

use super::All;
use crate::steps::take;
use core::net::IpAddr;
use serde_json::Value;
use std::cmp::Ordering;

/// What one value has to be.
pub(crate) enum Matcher {
    /// Equal; of numbers their value counts.
    Equals(Value),
    /// A number for which each of these holds.
    Numeric(Vec<(Operator, f64)>),
    /// A string that begins so.
    Prefix(String, Case),
    /// A string that ends so.
    Suffix(String, Case),
    /// A string that is this one, whatever its case.
    SameIgnoringCase(String),
    /// A string of these pieces in this order, the first at its beginning and
    /// the last at its end, with anything between them.
    Wildcard(Vec<String>),
    /// An address whose first bits are those of another.
    Cidr(IpAddr, u32),
    /// An object that one of these match.
    Objects(Vec<All>),
    AnyOf(Vec<Matcher>),
    Not(Box<Matcher>),
}

#[derive(Clone, Copy)]
pub(crate) enum Case {
    Counts,
    /// What is compared with is in small letters.
    Ignored,
}

#[derive(Clone, Copy)]
pub(crate) enum Operator {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Operator {
    fn new(text: &str) -> Option<Self> {
        Some(match text {
            "=" => Self::Equal,
            "<" => Self::Less,
            "<=" => Self::LessOrEqual,
            ">" => Self::Greater,
            ">=" => Self::GreaterOrEqual,
            _ => return None,
        })
    }

    fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Equal => left == right,
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
        }
    }
}

impl Matcher {
    pub(super) fn numeric(value: &Value) -> Result<Self, String> {
        let wrong = || {
            "expected a list of operators (=, <, <=, >, >=), each with a number after it".to_owned()
        };
        let list = value.as_array().ok_or_else(wrong)?;
        if list.is_empty() || list.len() % 2 != 0 {
            return Err(wrong());
        }
        let pairs = list.chunks(2).map(|pair| {
            let operator = Operator::new(pair[0].as_str()?)?;
            Some((operator, pair[1].as_f64()?))
        });
        let pairs: Option<_> = pairs.collect();
        pairs.map(Self::Numeric).ok_or_else(wrong)
    }

    pub(super) fn matches(&self, value: &Value) -> bool {
        let text = value.as_str();
        take(1 + text.map_or(0, |text| text.len() as u64 / 16));
        match self {
            Self::Equals(expected) => equals(expected, value),
            Self::Numeric(all) => value.as_f64().is_some_and(|number| {
                let mut each = all.iter();
                each.all(|(operator, right)| operator.holds(number, *right))
            }),
            Self::Prefix(prefix, Case::Counts) => text.is_some_and(|text| text.starts_with(prefix)),
            Self::Prefix(prefix, Case::Ignored) => {
                text.is_some_and(|text| text.to_lowercase().starts_with(prefix))
            }
            Self::Suffix(suffix, Case::Counts) => text.is_some_and(|text| text.ends_with(suffix)),
            Self::Suffix(suffix, Case::Ignored) => {
                text.is_some_and(|text| text.to_lowercase().ends_with(suffix))
            }
            Self::SameIgnoringCase(same) => text.is_some_and(|text| text.to_lowercase() == *same),
            Self::Wildcard(pieces) => text.is_some_and(|text| has_pieces(text, pieces)),
            Self::Cidr(network, bits) => text
                .and_then(|text| text.parse().ok())
                .is_some_and(|address| shares_bits(address, *network, *bits)),
            Self::Objects(several) => {
                value.is_object() && several.iter().any(|all| all.matches(value))
            }
            Self::AnyOf(several) => several.iter().any(|one| one.matches(value)),
            Self::Not(not) => !not.matches(value),
        }
    }
}

fn equals(left: &Value, right: &Value) -> bool {
    let (Value::Number(one), Value::Number(other)) = (left, right) else {
        return left == right;
    };
    // Whole numbers are compared as such: not all of them are doubles.
    let whole = |number: &serde_json::Number| {
        let signed = number.as_i64().map(i128::from);
        signed.or_else(|| number.as_u64().map(i128::from))
    };
    match (whole(one), whole(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one.as_f64().partial_cmp(&other.as_f64()) == Some(Ordering::Equal),
    }
}

/// Whether `text` consists of the pieces and anything between them. Taking
/// each piece as early as it comes leaves most to the others.
fn has_pieces(text: &str, pieces: &[String]) -> bool {
    let [first, middle @ .., last] = pieces else {
        return pieces.iter().all(|piece| piece == text);
    };
    let Some(mut rest) = text.strip_prefix(first.as_str()) else {
        return false;
    };
    for piece in middle {
        match rest.find(piece.as_str()) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(last.as_str())
}

fn shares_bits(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    let differ = match (address, network) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            u128::from(one.to_bits() ^ other.to_bits()) << (u128::BITS - u32::BITS)
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => one.to_bits() ^ other.to_bits(),
        _ => return false,
    };
    differ.leading_zeros() >= bits
}

/// The alternatives of a rule on strings: of one, or of each in a list. `None`
/// if there is no rule of this name.
pub(super) fn text_matchers(name: &str, value: &Value) -> Option<Result<Vec<Matcher>, String>> {
    let ignoring_case = |value: &Value| match value {
        Value::Object(members) if members.len() == 1 => members.get("equals-ignore-case").cloned(),
        _ => None,
    };
    Some(match name {
        "prefix" | "suffix" => {
            let matcher = match name {
                "prefix" => Matcher::Prefix,
                _ => Matcher::Suffix,
            };
            match ignoring_case(value) {
                Some(value) => each(&value, |text| {
                    Ok(matcher(text.to_lowercase(), Case::Ignored))
                }),
                None => each(value, |text| Ok(matcher(text.to_owned(), Case::Counts))),
            }
        }
        "equals-ignore-case" => each(value, |text| {
            Ok(Matcher::SameIgnoringCase(text.to_lowercase()))
        }),
        "wildcard" => each(value, |text| pieces(text).map(Matcher::Wildcard)),
        "cidr" => each(value, cidr),
        _ => return None,
    })
}

fn each(
    value: &Value,
    matcher: impl Fn(&str) -> Result<Matcher, String>,
) -> Result<Vec<Matcher>, String> {
    let wrong = || "expected a string, or a list of strings".to_owned();
    match value {
        Value::String(text) => Ok(vec![matcher(text)?]),
        Value::Array(several) if !several.is_empty() => several
            .iter()
            .map(|one| matcher(one.as_str().ok_or_else(wrong)?))
            .collect(),
        _ => Err(wrong()),
    }
}

/// What lies between the stars. `\*` and `\\` are a star and a backslash.
fn pieces(text: &str) -> Result<Vec<String>, String> {
    let mut pieces = vec![String::new()];
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        let letter = match letter {
            '*' => {
                pieces.push(String::new());
                continue;
            }
            '\\' => match letters.next() {
                Some(escaped @ ('*' | '\\')) => escaped,
                _ => return Err(format!("{text:?} has a backslash before neither \\ nor *")),
            },
            letter => letter,
        };
        let piece = pieces.last_mut().expect("there is one from the start");
        piece.push(letter);
    }
    Ok(pieces)
}

fn cidr(text: &str) -> Result<Matcher, String> {
    let wrong = || format!("{text:?} is no address with a slash and a number of bits after it");
    let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let bits: u32 = bits.parse().map_err(|_| wrong())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    match bits <= most {
        true => Ok(Matcher::Cidr(address, bits)),
        false => Err(wrong()),
    }
}
