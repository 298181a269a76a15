//! What topics, consumers and producers may be called.

use std::fmt;

/// The longest name, in bytes of UTF-8.
pub const NAME_BYTES_MAX: usize = 256;
/// Topics whose names begin with this are the system's own.
pub const RESERVED_PREFIX: &str = "__";

/// A name that is refused, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameError {
    /// What was to be named: `topic`, `consumer`, `producer`, `client`.
    what: &'static str,
    reason: String,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what {
            "namespace" => write!(f, "namespace {}", self.reason),
            what => write!(f, "{what} name {}", self.reason),
        }
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

/// Whether a client's names may be in this namespace: none (empty, the default
/// one), or up to [`NAME_BYTES_MAX`] bytes, no control character, no `/`, which
/// divides a namespace from a name.
///
/// # Errors
/// Says which rule is broken, and where.
pub fn check_namespace(namespace: &str) -> Result<(), NameError> {
    if namespace.is_empty() {
        return Ok(());
    }
    check("namespace", namespace)?;
    match namespace.find('/') {
        None => Ok(()),
        Some(at) => Err(NameError {
            what: "namespace",
            reason: format!("{namespace:?} has a '/' at byte {at}; '/' divides it from a name"),
        }),
    }
}

/// Whether a client may call itself that, for the server's log and status: up
/// to [`NAME_BYTES_MAX`] bytes, no control character. It may be empty.
///
/// # Errors
/// Says which rule is broken, and where.
pub fn check_client_name(name: &str) -> Result<(), NameError> {
    match name.is_empty() {
        true => Ok(()),
        false => check("client", name),
    }
}

/// Whether a member of a group or queue may have this instance name: 1 to
/// [`NAME_BYTES_MAX`] bytes, no control character.
///
/// # Errors
/// Says which rule is broken, and where.
pub fn check_instance_name(name: &str) -> Result<(), NameError> {
    check("instance", name)
}

/// What is left of a text that a client may call itself: without control
/// characters, and of what is too long the end, where a process id is.
pub fn fit_client_name(text: &str) -> String {
    let name: String = text.chars().filter(|one| !one.is_control()).collect();
    let mut from = name.len().saturating_sub(NAME_BYTES_MAX);
    while !name.is_char_boundary(from) {
        from += 1;
    }
    name[from..].to_owned()
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

    #[test]
    fn a_namespace_and_a_client_name_may_be_empty_and_no_more() {
        for good in ["", "beamline 7", "Größe"] {
            assert_eq!(check_namespace(good), Ok(()), "{good:?}");
            assert_eq!(check_client_name(good), Ok(()), "{good:?}");
        }
        assert_eq!(check_client_name("bin/worker:7"), Ok(()));
        let long = "x".repeat(10 << 20);
        for bad in ["a/b", "a\0b", "\n", &long] {
            let error = check_namespace(bad).expect_err("refused").to_string();
            assert!(error.starts_with("namespace "), "{error}");
            assert!(error.len() < 200, "{error}");
        }
        for bad in ["a\0b", &long] {
            let error = check_client_name(bad).expect_err("refused").to_string();
            assert!(error.starts_with("client name "), "{error}");
        }
    }

    #[test]
    fn any_text_is_made_a_client_name() {
        for text in [
            "python 7",
            "",
            "a\0\nb:1",
            &"é".repeat(1000),
            &"ab".repeat(1000),
        ] {
            let name = fit_client_name(text);
            assert_eq!(check_client_name(&name), Ok(()), "{name:?}");
        }
        assert_eq!(fit_client_name("a\0b:17"), "ab:17");
        assert!(fit_client_name(&format!("{}:17", "é".repeat(1000))).ends_with("é:17"));
    }
}
