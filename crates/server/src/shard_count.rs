//! How many shards a server is to have, as a setting.

use crate::value::Value;

/// The most shards of one server: more processors than this are shared by several servers.
pub const SHARDS_MAX: u32 = 64;

/// How many shards a server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shards {
    /// As many as its data directory has; a new one has one.
    #[default]
    Kept,
    /// One for each two processors that the process may use, and no fewer than its data directory has.
    Auto,
    /// So many.
    Count(u32),
}

impl Value for Shards {
    fn from_texts(texts: &[String]) -> Result<Self, String> {
        let [text] = texts else {
            return Err(format!("takes one value, not {}", texts.len()));
        };
        match text.as_str() {
            "" => Ok(Self::Kept),
            "auto" => Ok(Self::Auto),
            text => match text.parse() {
                Ok(count) if (1..=SHARDS_MAX).contains(&count) => Ok(Self::Count(count)),
                _ => Err(format!(
                    "{text} is neither auto nor a number from 1 to {SHARDS_MAX}"
                )),
            },
        }
    }

    fn to_text(&self) -> String {
        match self {
            Self::Kept => String::new(),
            Self::Auto => "auto".to_owned(),
            Self::Count(count) => count.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(shards: &str) -> Result<Shards, String> {
        Shards::from_texts(&[shards.to_owned()])
    }

    #[test]
    fn a_number_of_shards_is_read_and_written_back() {
        for (word, shards) in [
            ("", Shards::Kept),
            ("auto", Shards::Auto),
            ("1", Shards::Count(1)),
            ("64", Shards::Count(64)),
        ] {
            assert_eq!(text(word), Ok(shards));
            assert_eq!(shards.to_text(), word);
        }
        for wrong in ["0", "65", "-1", "two", "1.5"] {
            assert!(text(wrong).is_err(), "{wrong}");
        }
    }
}
