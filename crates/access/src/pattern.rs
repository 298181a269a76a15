//! Patterns of topics' names.

use std::fmt;
use std::str::FromStr;

/// The longest pattern.
pub const PATTERN_BYTES_MAX: usize = 256;

/// A pattern of names. Levels are divided by `/`; `*` is any text within a level, and a level
/// `**`, of which there may be one, is one level or more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// The pattern of every name.
    pub fn everything() -> Self {
        Self("**".to_owned())
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a name is one of it.
    pub fn matches(&self, name: &str) -> bool {
        let is_wide = |level: &&str| *level == "**";
        let mut pattern = self.0.split('/');
        let mut levels = name.split('/');
        // From the front up to the wide level, and from the back up to it.
        loop {
            match (pattern.next(), levels.next()) {
                (None, None) => return true,
                (Some(wanted), Some(_)) if is_wide(&wanted) => break,
                (Some(wanted), Some(level)) if level_matches(wanted, level) => {}
                _ => return false,
            }
        }
        // The wide level has taken one level, and takes what is left over.
        while let Some(wanted) = pattern.next_back() {
            match levels.next_back() {
                Some(level) if level_matches(wanted, level) => {}
                _ => return false,
            }
        }
        true
    }
}

/// Whether a level, without `/`, is one of a pattern with any number of `*`.
fn level_matches(pattern: &str, level: &str) -> bool {
    let (pattern, level) = (pattern.as_bytes(), level.as_bytes());
    let (mut at, mut from) = (0, 0);
    // Where the last star was, and what it has taken up to now: if what follows does not fit,
    // it takes one byte more. An earlier star never has to be tried again.
    let mut star: Option<(usize, usize)> = None;
    while from < level.len() {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at, from));
            at += 1;
        } else if pattern.get(at) == Some(&level[from]) {
            at += 1;
            from += 1;
        } else if let Some((star_at, taken)) = star {
            star = Some((star_at, taken + 1));
            at = star_at + 1;
            from = taken + 1;
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|one| *one == b'*')
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = |why: &str| Err(format!("{text:?} is no pattern of names: {why}"));
        if text.len() > PATTERN_BYTES_MAX {
            return Err(format!(
                "a pattern is at most {PATTERN_BYTES_MAX} bytes long, and this one {}",
                text.len()
            ));
        }
        if text.contains(char::is_control) {
            return refuse("it has a control character");
        }
        if text.split('/').any(str::is_empty) {
            return refuse("a level of it is empty");
        }
        if text.split('/').filter(|level| *level == "**").count() > 1 {
            return refuse("it has more than one `**`");
        }
        if text
            .split('/')
            .any(|level| level != "**" && level.contains("**"))
        {
            return refuse("`**` stands alone between two `/`; within a level it is `*`");
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        pattern.parse::<Pattern>().unwrap().matches(name)
    }

    #[test]
    fn a_name_without_stars_is_itself_alone() {
        assert!(matches("frames", "frames"));
        assert!(!matches("frames", "frames2"));
        assert!(!matches("frames", "frame"));
        assert!(!matches("frames", "run42/frames"));
        assert!(!matches("run42/frames", "frames"));
    }

    #[test]
    fn a_star_stays_within_its_level() {
        assert!(matches("*", "frames"));
        assert!(!matches("*", "run42/frames"));
        assert!(matches("run42/*", "run42/frames"));
        assert!(!matches("run42/*", "run42/frames/raw"));
        assert!(!matches("run42/*", "run42"));
        assert!(matches("raw-*", "raw-") && matches("raw-*", "raw-7"));
        assert!(!matches("raw-*", "draw-7"));
        assert!(matches("*a*b", "xaab") && !matches("*a*b", "xaac"));
        assert!(matches("a*b*c", "abbcbc") && !matches("a*b*c", "abbcb"));
    }

    #[test]
    fn two_stars_cross_levels_and_need_one() {
        assert!(matches("**", "a") && matches("**", "a/b/c"));
        assert!(matches("a/**", "a/b") && matches("a/**", "a/b/c"));
        assert!(!matches("a/**", "a") && !matches("a/**", "b/a"));
        assert!(matches("a/**/z", "a/b/c/z"));
        assert!(!matches("a/**/z", "a/z"));
        assert!(matches("**/z", "a/z") && !matches("**/z", "z"));
    }

    #[test]
    fn what_is_no_pattern_says_why() {
        let long = "x".repeat(300);
        for (text, why) in [
            ("", "empty"),
            ("a//b", "empty"),
            ("/a", "empty"),
            ("**/a/**", "more than one"),
            ("a**", "stands alone"),
            ("a\nb", "control"),
            (&long, "256"),
        ] {
            let error = text.parse::<Pattern>().unwrap_err();
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }
}
