//! Names from outside: of projects and instances, and of hosts. What is not one never becomes a path or a
//! target.

use crate::faults::{Fault, planted};
use std::fmt;

/// The longest label of a name of a host.
const LABEL_BYTES_MAX: usize = 63;

/// Which instance: its project and its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceName {
    project: String,
    name: String,
}

impl InstanceName {
    /// That of a project. Both are small letters, digits and `-`, not at an end: they become a label of a
    /// host's name and folders.
    ///
    /// # Errors
    /// Says which rule is broken.
    pub fn new(project: &str, name: &str) -> Result<Self, String> {
        check("a project that can have instances", project)?;
        check("a name of an instance", name)?;
        let length = project.len() + 1 + name.len();
        if length > LABEL_BYTES_MAX {
            return Err(format!(
                "{project}-{name} has {length} bytes: project, - and name have {LABEL_BYTES_MAX} at \
                 most, for they are a part of a host's name"
            ));
        }
        Ok(Self {
            project: project.to_owned(),
            name: name.to_owned(),
        })
    }

    /// Its project.
    pub fn project(&self) -> &str {
        &self.project
    }

    /// Its name in the project.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The first label of its host's name.
    pub fn label(&self) -> String {
        format!("{}-{}", self.project, self.name)
    }
}

impl fmt::Display for InstanceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.project, self.name)
    }
}

fn check(what: &str, text: &str) -> Result<(), String> {
    if planted(Fault::AnyName) {
        return Ok(());
    }
    let is_right = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label = !text.is_empty()
        && text.len() <= LABEL_BYTES_MAX
        && text.bytes().all(is_right)
        && !text.starts_with('-')
        && !text.ends_with('-');
    match is_label {
        true => Ok(()),
        false => Err(format!(
            "{} is not {what}: that is small letters, digits and -, which is not at an end",
            quoted(text)
        )),
    }
}

/// A text from outside, for a line or an answer: short, and without anything that a terminal or a reader of logs
/// would take for its own.
pub fn quoted(text: &str) -> String {
    const CHARS_MAX: usize = 80;
    let mut short: String = text.chars().take(CHARS_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("{short:?}")
}

/// Whether a text is the name of a host, of labels with dots between them.
pub fn is_host(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_right =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && label.bytes().all(is_right)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults;
    use std::path::Path;

    const NO_NAMES: [&str; 18] = [
        "", ".", "..", "../x", "a/b", "a\\b", "a.b", "-a", "a-", "A", "a b", "a\0", "a\n", "é",
        "%2e%2e", "/etc", "~", "a_b",
    ];

    #[test]
    fn a_name_is_a_label() {
        let name = InstanceName::new("stf008", "run-42").unwrap();
        assert_eq!(
            (name.label().as_str(), name.to_string().as_str()),
            ("stf008-run-42", "stf008/run-42")
        );
        for bad in NO_NAMES {
            assert!(InstanceName::new(bad, "run").is_err(), "{bad:?}");
            assert!(InstanceName::new("stf008", bad).is_err(), "{bad:?}");
        }
        assert!(InstanceName::new(&"p".repeat(32), &"n".repeat(30)).is_ok());
        assert!(InstanceName::new(&"p".repeat(32), &"n".repeat(31)).is_err());
    }

    #[test]
    fn no_name_leads_out_of_its_folder() {
        let root = Path::new("/var/gateway");
        let leads_out = || {
            NO_NAMES.iter().any(|bad| {
                InstanceName::new("stf008", bad).is_ok_and(|name| {
                    let path = crate::directory::folder_of(root, &name);
                    let below = path.strip_prefix(root.join("instances").join("stf008"));
                    !below.is_ok_and(|rest| {
                        let parts: Vec<_> = rest.components().collect();
                        matches!(parts[..], [std::path::Component::Normal(_)])
                    })
                })
            })
        };
        assert!(!leads_out());
        assert!(faults::with(Fault::AnyName, leads_out));
    }

    #[test]
    fn what_comes_from_outside_is_short_and_harmless_in_a_line() {
        assert_eq!(quoted("a\u{1b}[31m\n"), "\"a\\u{1b}[31m\\n\"");
        assert!(quoted(&"x".repeat(500)).chars().count() < 90);
    }

    #[test]
    fn hosts_are_known() {
        for good in ["stream.site.org", "a", "0-1.b"] {
            assert!(is_host(good), "{good}");
        }
        for bad in ["", "a..b", ".a", "a.", "-a.b", "A.b", "a_b", "*.a"] {
            assert!(!is_host(bad), "{bad}");
        }
    }
}
