//! What topics, consumers and producers may be called.

use std::fmt;

/// The longest name, in bytes of UTF-8.
pub const NAME_BYTES_MAX: usize = 256;
/// Topics whose names begin with this are the system's own.
pub const RESERVED_PREFIX: &str = "__";

/// A name that is refused, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameError {
    /// What was to be named: `topic`, `consumer` or `producer`.
    what: &'static str,
    reason: String,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} name {}", self.what, self.reason)
    }
}

impl std::error::Error for NameError {}

/// Whether a topic may have this name: 1 to [`NAME_BYTES_MAX`] bytes, no
/// control character, no `/` (kept for namespaces), not starting with
/// [`RESERVED_PREFIX`].
///
/// # Errors
/// Says which rule is broken, and where.
pub fn check_topic_name(name: &str) -> Result<(), NameError> {
    check("topic", name)?;
    if let Some(at) = name.find('/') {
        let reason = format!("{name:?} has a '/' at byte {at}; '/' is kept for namespaces");
        return Err(NameError {
            what: "topic",
            reason,
        });
    }
    if name.starts_with(RESERVED_PREFIX) {
        let reason =
            format!("{name:?} starts with {RESERVED_PREFIX:?}, which is kept for internal topics");
        return Err(NameError {
            what: "topic",
            reason,
        });
    }
    Ok(())
}

/// Whether a consumer may have this name: 1 to [`NAME_BYTES_MAX`] bytes, no
/// control character.
///
/// # Errors
/// Says which rule is broken, and where.
pub fn check_consumer_name(name: &str) -> Result<(), NameError> {
    check("consumer", name)
}

/// Whether a producer may have this name: 1 to [`NAME_BYTES_MAX`] bytes, no
/// control character. A producer without a name has none to check.
///
/// # Errors
/// Says which rule is broken, and where.
pub fn check_producer_name(name: &str) -> Result<(), NameError> {
    check("producer", name)
}

fn check(what: &'static str, name: &str) -> Result<(), NameError> {
    let refuse = |reason: String| Err(NameError { what, reason });
    if name.is_empty() {
        return refuse(format!("is empty; it needs 1 to {NAME_BYTES_MAX} bytes"));
    }
    if name.len() > NAME_BYTES_MAX {
        return refuse(format!(
            "is {} bytes long; the limit is {NAME_BYTES_MAX}",
            name.len()
        ));
    }
    // Debug formatting escapes the character, so that no message carries it
    // to a terminal.
    if let Some((at, found)) = name.char_indices().find(|(_, c)| c.is_control()) {
        return refuse(format!(
            "{name:?} has the control character {found:?} at byte {at}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_pass() {
        let longest = "x".repeat(NAME_BYTES_MAX);
        for name in [
            "a", "daq dist", "Größe", "_one", "a__b", "x.y-z:1", &longest,
        ] {
            assert_eq!(check_topic_name(name), Ok(()), "{name:?}");
            assert_eq!(check_consumer_name(name), Ok(()), "{name:?}");
            assert_eq!(check_producer_name(name), Ok(()), "{name:?}");
        }
        // Only topics live in namespaces and beside internal ones.
        for name in ["a/b", "__a"] {
            assert_eq!(check_consumer_name(name), Ok(()), "{name:?}");
            assert_eq!(check_producer_name(name), Ok(()), "{name:?}");
        }
    }

    #[test]
    fn bad_names_are_refused_with_the_reason() {
        let long = "é".repeat(129);
        let cases = [
            ("", "topic name is empty; it needs 1 to 256 bytes"),
            (&long, "topic name is 258 bytes long; the limit is 256"),
            (
                "a\nb",
                r#"topic name "a\nb" has the control character '\n' at byte 1"#,
            ),
            (
                "ab\u{85}",
                r#"topic name "ab\u{85}" has the control character '\u{85}' at byte 2"#,
            ),
            (
                "run/7",
                r#"topic name "run/7" has a '/' at byte 3; '/' is kept for namespaces"#,
            ),
            (
                "__cursors",
                r#"topic name "__cursors" starts with "__", which is kept for internal topics"#,
            ),
        ];
        for (name, message) in cases {
            let error = check_topic_name(name).expect_err(name);
            assert_eq!(error.to_string(), message);
        }
        for name in ["", &long, "a\0"] {
            let consumer = check_consumer_name(name).expect_err(name).to_string();
            assert!(consumer.starts_with("consumer name "), "{consumer}");
            let producer = check_producer_name(name).expect_err(name).to_string();
            assert!(producer.starts_with("producer name "), "{producer}");
        }
    }
}
