//! Fields of a scenario's files, read one by one, with errors that say where and what.

use serde_json::{Map, Value};
use std::fmt;
use std::ops::RangeInclusive;

/// A file's text and its name, which errors state. Nothing here opens files.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a> {
    /// The file's name.
    pub file: &'a str,
    /// What is in it.
    pub text: &'a str,
}

/// Why a scenario is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioError {
    /// The file.
    pub file: String,
    /// The key, with dots between levels. Empty if the file as a whole is wrong.
    pub key: String,
    /// What stands there.
    pub found: String,
    /// What could stand there.
    pub expected: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            key,
            found,
            expected,
        } = self;
        match key.as_str() {
            "" => write!(f, "{file}: found {found}, expected {expected}"),
            key => write!(f, "{file}: {key}: found {found}, expected {expected}"),
        }
    }
}

impl std::error::Error for ScenarioError {}

/// The most bytes of a value that an error repeats.
const FOUND_BYTES_MAX: usize = 80;

/// Whether `Key` and `key` are the same: they are to the published simulator, whose language reads JSON so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Exact,
    Ignored,
}

/// The fields of one table that nobody has taken yet.
#[derive(Debug)]
pub(crate) struct Fields {
    file: String,
    path: String,
    map: Map<String, Value>,
    case: Case,
}

impl Fields {
    /// Those of a TOML file.
    pub(crate) fn of_toml(text: Text<'_>) -> Result<Self, ScenarioError> {
        let value = toml::from_str(text.text)
            .map_err(|error| unreadable(text.file, &error.to_string(), "a file of TOML"))?;
        Self::of(text.file, value, Case::Exact)
    }

    /// Those of a file of the published simulator.
    pub(crate) fn of_json(text: Text<'_>) -> Result<Self, ScenarioError> {
        let value = serde_json::from_str(text.text)
            .map_err(|error| unreadable(text.file, &error.to_string(), "a file of JSON"))?;
        Self::of(text.file, value, Case::Ignored)
    }

    fn of(file: &str, value: Value, case: Case) -> Result<Self, ScenarioError> {
        match value {
            Value::Object(map) => Ok(Self {
                file: file.to_owned(),
                path: String::new(),
                map,
                case,
            }),
            other => Err(unreadable(file, &short(&other), "a table of keys")),
        }
    }

    /// The key with the levels above it.
    fn full(&self, key: &str) -> String {
        match self.path.as_str() {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        }
    }

    /// An error at a key.
    pub(crate) fn error(&self, key: &str, found: &str, expected: &str) -> ScenarioError {
        ScenarioError {
            file: self.file.clone(),
            key: self.full(key),
            found: found.to_owned(),
            expected: expected.to_owned(),
        }
    }

    /// An error about a value.
    pub(crate) fn wrong(&self, key: &str, value: &Value, expected: &str) -> ScenarioError {
        self.error(key, &short(value), expected)
    }

    /// An error about a key that has to be there.
    pub(crate) fn missing(&self, key: &str, expected: &str) -> ScenarioError {
        self.error(key, "nothing", expected)
    }

    /// The value of a key. `null` is no value.
    pub(crate) fn value(&mut self, key: &str) -> Option<Value> {
        let name = match self.case {
            Case::Exact => key.to_owned(),
            Case::Ignored => {
                let same = |name: &&String| name.eq_ignore_ascii_case(key);
                self.map.keys().find(same)?.clone()
            }
        };
        self.map.remove(&name).filter(|value| !value.is_null())
    }

    /// A text.
    pub(crate) fn text(&mut self, key: &str) -> Result<Option<String>, ScenarioError> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(key, &other, "a text")),
        }
    }

    /// A whole number within bounds.
    pub(crate) fn number(
        &mut self,
        key: &str,
        within: RangeInclusive<u64>,
    ) -> Result<Option<u64>, ScenarioError> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        match number_of(&value, &within) {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(key, &value, &whole(&within))),
        }
    }

    /// One of some words.
    pub(crate) fn word<T: Copy>(
        &mut self,
        key: &str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, ScenarioError> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let same = |&&(word, _): &&(&str, T)| value.as_str() == Some(word);
        match words.iter().find(same) {
            Some(&(_, meant)) => Ok(Some(meant)),
            None => Err(self.wrong(key, &value, &one_of(words.iter().map(|&(word, _)| word)))),
        }
    }

    /// The fields of a table in this one.
    pub(crate) fn table(&mut self, key: &str) -> Result<Option<Self>, ScenarioError> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => self.inside(key, value).map(Some),
        }
    }

    /// The fields of a value that was taken from this table.
    pub(crate) fn inside(&self, key: &str, value: Value) -> Result<Self, ScenarioError> {
        match value {
            Value::Object(map) => Ok(Self {
                file: self.file.clone(),
                path: self.full(key),
                map,
                case: self.case,
            }),
            other => Err(self.wrong(key, &other, "a table")),
        }
    }

    /// What nobody has taken, as full keys and values.
    pub(crate) fn rest(self) -> Vec<(String, String)> {
        let full = |(key, value): (&String, &Value)| (self.full(key), short(value));
        self.map.iter().map(full).collect()
    }

    /// Refuses what nobody has taken: a misspelled key is not a default.
    pub(crate) fn end(self, known: &[&str]) -> Result<(), ScenarioError> {
        match self.map.iter().next() {
            None => Ok(()),
            Some((key, value)) => {
                let expected = format!("no such key here; {}", one_of(known.iter().copied()));
                Err(self.wrong(key, value, &expected))
            }
        }
    }
}

/// A whole number, if it is one within bounds.
pub(crate) fn number_of(value: &Value, within: &RangeInclusive<u64>) -> Option<u64> {
    value.as_u64().filter(|number| within.contains(number))
}

/// What a whole number within bounds is called.
pub(crate) fn whole(within: &RangeInclusive<u64>) -> String {
    match *within.end() {
        u64::MAX => format!("a whole number from {}", within.start()),
        end => format!("a whole number from {} to {end}", within.start()),
    }
}

/// "one of a, b, c".
pub(crate) fn one_of<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.map(|word| format!("{word:?}")).collect();
    format!("one of {}", words.join(", "))
}

/// A value as an error repeats it.
pub(crate) fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.len() <= FOUND_BYTES_MAX {
        return text;
    }
    let cut = (0..=FOUND_BYTES_MAX)
        .rev()
        .find(|&at| text.is_char_boundary(at))
        .expect("a text begins at a boundary");
    format!("{}…", &text[..cut])
}

fn unreadable(file: &str, found: &str, expected: &str) -> ScenarioError {
    ScenarioError {
        file: file.to_owned(),
        key: String::new(),
        found: found.trim_end().to_owned(),
        expected: expected.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Fields {
        Fields::of_toml(Text {
            file: "a.toml",
            text,
        })
        .unwrap()
    }

    #[test]
    fn an_error_says_file_key_found_and_expected() {
        let mut outer = fields("[rate]\nbytes = 'many'\n");
        let mut inner = outer.table("rate").unwrap().unwrap();
        assert_eq!(
            inner.number("bytes", 1..=9).unwrap_err().to_string(),
            "a.toml: rate.bytes: found \"many\", expected a whole number from 1 to 9"
        );
    }

    #[test]
    fn a_key_that_nobody_knows_is_refused() {
        let mut all = fields("known = 1\nknwon = 2\n");
        all.number("known", 0..=9).unwrap();
        assert_eq!(
            all.end(&["known"]).unwrap_err().to_string(),
            "a.toml: knwon: found 2, expected no such key here; one of \"known\""
        );
    }

    #[test]
    fn the_published_files_are_read_in_any_case() {
        let mut all = Fields::of_json(Text {
            file: "a.json",
            text: r#"{"RoLe": "producer", "none": null}"#,
        })
        .unwrap();
        assert_eq!(all.text("role").unwrap().as_deref(), Some("producer"));
        assert!(all.value("none").is_none());
        assert!(all.rest().is_empty());
    }

    #[test]
    fn a_file_that_is_none_is_refused_with_its_line() {
        let text = "a = 1\nb = = 2\n";
        let error = Fields::of_toml(Text { file: "x", text }).unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
        let error = Fields::of_json(Text {
            file: "x",
            text: "[]",
        })
        .unwrap_err();
        assert_eq!(error.to_string(), "x: found [], expected a table of keys");
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        let long = Value::String("é".repeat(100));
        assert!(short(&long).len() <= FOUND_BYTES_MAX + '…'.len_utf8());
    }
}
