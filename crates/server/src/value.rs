//! The types that settings have, and how they are read from text.

use std::path::PathBuf;

/// A type of settings.
pub trait Value: Sized {
    /// Whether it is a yes or no.
    const IS_SWITCH: bool = false;
    /// Whether it takes any number of texts.
    const IS_LIST: bool = false;

    /// Reads it; says why not.
    fn from_texts(texts: &[String]) -> Result<Self, String>;

    /// Its text, which [`Value::from_texts`] reads back.
    fn to_text(&self) -> String;
}

fn one(texts: &[String]) -> Result<&str, String> {
    match texts {
        [text] => Ok(text),
        other => Err(format!("takes one value, not {}", other.len())),
    }
}

impl Value for PathBuf {
    fn from_texts(texts: &[String]) -> Result<Self, String> {
        one(texts).map(PathBuf::from)
    }
    fn to_text(&self) -> String {
        self.display().to_string()
    }
}

impl Value for String {
    fn from_texts(texts: &[String]) -> Result<Self, String> {
        one(texts).map(str::to_owned)
    }
    fn to_text(&self) -> String {
        self.clone()
    }
}

/// An empty text is none.
impl Value for Option<PathBuf> {
    fn from_texts(texts: &[String]) -> Result<Self, String> {
        one(texts).map(|text| (!text.is_empty()).then(|| PathBuf::from(text)))
    }
    fn to_text(&self) -> String {
        self.as_ref()
            .map(|path| path.display().to_string())
            .unwrap_or_default()
    }
}

impl Value for Vec<String> {
    const IS_LIST: bool = true;
    fn from_texts(texts: &[String]) -> Result<Self, String> {
        Ok(texts.to_vec())
    }
    fn to_text(&self) -> String {
        self.join(",")
    }
}

impl Value for bool {
    const IS_SWITCH: bool = true;
    fn from_texts(texts: &[String]) -> Result<Self, String> {
        match one(texts)? {
            "true" | "yes" | "1" => Ok(true),
            "false" | "no" | "0" => Ok(false),
            other => Err(format!("{other:?} is neither true nor false")),
        }
    }
    fn to_text(&self) -> String {
        self.to_string()
    }
}

impl Value for u32 {
    fn from_texts(texts: &[String]) -> Result<Self, String> {
        let text = one(texts)?;
        text.parse()
            .map_err(|_| format!("{text} is no whole number from 0 on"))
    }
    fn to_text(&self) -> String {
        self.to_string()
    }
}

/// An empty text is none.
impl Value for Option<u32> {
    fn from_texts(texts: &[String]) -> Result<Self, String> {
        match one(texts)? {
            "" => Ok(None),
            _ => u32::from_texts(texts).map(Some),
        }
    }
    fn to_text(&self) -> String {
        self.map(|number| number.to_string()).unwrap_or_default()
    }
}

/// Bytes: a number, or a number with a binary unit.
impl Value for u64 {
    fn from_texts(texts: &[String]) -> Result<Self, String> {
        let text = one(texts)?;
        parse_bytes(text).ok_or_else(|| format!("{text:?} is no number of bytes"))
    }
    fn to_text(&self) -> String {
        const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        let unit = UNITS
            .iter()
            .find(|(bytes, _)| *self >= *bytes && self.is_multiple_of(*bytes));
        match unit {
            Some((bytes, unit)) => format!("{}{unit}", self / bytes),
            None => self.to_string(),
        }
    }
}

fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim_start() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// The texts that stand for a value of a TOML file.
pub(super) fn texts_of_toml(value: &toml::Value) -> Result<Vec<String>, String> {
    let text_of = |value: &toml::Value| match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Boolean(yes) => Ok(yes.to_string()),
        _ => Err("takes text, a whole number, yes or no, or a list of these".to_owned()),
    };
    match value {
        toml::Value::Array(entries) => entries.iter().map(text_of).collect(),
        single => Ok(vec![text_of(single)?]),
    }
}
