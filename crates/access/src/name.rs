//! What something is done with.

use std::fmt;

/// The longest name of a project: that of a namespace.
const PROJECT_BYTES_MAX: usize = 256;

/// What something is done with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name<'a> {
    /// The server itself.
    Server,
    /// A topic of a project, which is a namespace; empty is the default one.
    Topic {
        /// The project.
        project: &'a str,
        /// The topic.
        topic: &'a str,
    },
}

impl<'a> Name<'a> {
    /// The topic of a text, `PROJECT/TOPIC`, or `TOPIC` of the default project.
    pub fn topic(text: &'a str) -> Self {
        let (project, topic) = text.split_once('/').unwrap_or(("", text));
        Self::Topic { project, topic }
    }
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server => f.write_str("the server"),
            Self::Topic { project: "", topic } => f.write_str(topic),
            Self::Topic { project, topic } => write!(f, "{project}/{topic}"),
        }
    }
}

/// Whether a project may be called that: as a namespace, up to 256 bytes without a control
/// character or a `/`. Empty is the default one.
///
/// # Errors
/// Says which rule is broken.
pub fn check_project(name: &str) -> Result<(), String> {
    if name.len() > PROJECT_BYTES_MAX {
        let bytes = name.len();
        return Err(format!(
            "a project's name is at most {PROJECT_BYTES_MAX} bytes long, and this one {bytes}"
        ));
    }
    if name.contains(|one: char| one.is_control() || one == '/') {
        return Err(format!(
            "{name:?} is no project: it has a '/' or a control character"
        ));
    }
    Ok(())
}

/// A project, for people.
pub(crate) fn project_text(name: &str) -> String {
    match name {
        "" => "the default project".to_owned(),
        name => format!("project {name}"),
    }
}
