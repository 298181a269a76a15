//! Words that the code has given up for the field's own. `docs/glossary.md` has those that it uses.

use crate::tree::File;

/// What has left the code, and what is said instead: in identifiers, comments and texts. A word that is still in
/// use is not here; whoever replaces the last use of one adds it.
const GIVEN_UP: &[(&str, &str)] = &[
    ("askers", "callers"),
    ("bell", "notify, wake"),
    ("bells", "notifications, wake-ups"),
    ("crowded", "above the high watermark; oversubscribed"),
    ("door", "listener"),
    ("doors", "listeners"),
    ("farewell", "final flush"),
    ("hungry", "ready"),
    ("kick", "wake"),
    ("nudged", "woken, notified"),
    ("nudges", "wakes, notifies"),
    ("puts off", "defers, delays"),
    ("rung", "notified, woken"),
    ("stand by", "park; caller-driven"),
    ("wish", "request"),
    ("wishes", "requests"),
];

/// The endings of files of code. Pages and this crate name the words to speak of them.
const CODE: [&str; 8] = ["rs", "py", "pyi", "c", "cpp", "h", "hpp", "toml"];

/// No file of code has a word that was given up.
pub fn given_up(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    let code = |file: &&File| CODE.contains(&file.extension()) && !file.path.starts_with("tidy/");
    for file in files.iter().filter(code) {
        for (index, line) in file.text.lines().enumerate() {
            let words = apart(line);
            for (word, instead) in GIVEN_UP {
                if words.contains(&format!(" {word} ")) {
                    complaints.push(format!(
                        "{}:{}: \"{word}\" has left the code; say \"{instead}\", as docs/glossary.md does",
                        file.path,
                        index + 1
                    ));
                }
            }
        }
    }
    complaints
}

/// The words of a line, each between two spaces: `StandBy`, `stand_by` and "stand by" are the same two. Other
/// marks stay as they are, so that two words with a dot between them are no phrase.
fn apart(line: &str) -> String {
    let mut words = String::from(" ");
    let mut before = ' ';
    for character in line.chars() {
        if character.is_uppercase() && before.is_lowercase() {
            words.push(' ');
        }
        match character {
            '_' | '-' => words.push(' '),
            letter if letter.is_alphanumeric() => words.extend(letter.to_lowercase()),
            ' ' => words.push(' '),
            mark => words.extend([' ', mark, ' ']),
        }
        before = character;
    }
    words.push(' ');
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(path: &str, text: &str) -> usize {
        given_up(&[File::of(path, text)]).len()
    }

    #[test]
    fn a_word_is_found_however_it_is_written() {
        for text in [
            "stand by",
            "fn stand_by() {}",
            "struct StandBy;",
            "// Stand by: no",
        ] {
            assert_eq!(said("crates/a/src/a.rs", text), 1, "{text}");
        }
    }

    #[test]
    fn other_words_are_not_meant() {
        for text in ["standby", "we stand. By then", "wishful", "a bystander"] {
            assert_eq!(said("crates/a/src/a.rs", text), 0, "{text}");
        }
    }

    #[test]
    fn pages_may_speak_of_it() {
        assert_eq!(said("docs/glossary.md", "wish"), 0);
    }
}
