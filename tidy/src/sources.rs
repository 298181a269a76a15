//! What no source file says, and how long none of them is.

use crate::tree::File;

/// Past this a file hides a second noun.
const LINES_MAX: usize = 1000;

/// Marks of work put off. In two parts, so that this file has none of them.
const PUT_OFF: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
];

/// Package registries: which one is used is the builder's choice, so that a site
/// with a mirror of its own has nothing to replace. In two parts as above.
const REGISTRIES: [&str; 8] = [
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("crates", ".io"),
    concat!("deb.debian", ".org"),
    concat!("npmjs", ".org"),
    concat!("golang", ".org"),
    concat!("maven", ".org"),
    concat!("rustup", ".rs"),
];

/// Written by tools, not by people; of the stub, which is one file a module,
/// two thirds are the module's own words.
const GENERATED: [&str; 2] = ["Cargo.lock", "python/thalweg/_thalweg.pyi"];

/// No file is so long that nobody reads it.
pub fn length(files: &[File]) -> Vec<String> {
    by_hand(files)
        .filter_map(|file| {
            let count = file.text.lines().count();
            (count > LINES_MAX).then(|| {
                format!(
                    "{}: {count} lines, and {LINES_MAX} are the most; find its second noun and \
                     give it a file",
                    file.path
                )
            })
        })
        .collect()
}

/// No file puts work off or names a package registry.
pub fn words(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in by_hand(files) {
        for (index, line) in file.text.lines().enumerate() {
            for word in PUT_OFF {
                if has_word(line, word) {
                    complaints.push(format!(
                        "{}:{}: {word}: do it, or say in a full sentence what holds today",
                        file.path,
                        index + 1
                    ));
                }
            }
            for host in REGISTRIES {
                if line.contains(host) {
                    complaints.push(format!(
                        "{}:{}: names the package registry {host}; name the package and leave the \
                         registry to the client's own configuration",
                        file.path,
                        index + 1
                    ));
                }
            }
        }
    }
    complaints
}

fn by_hand(files: &[File]) -> impl Iterator<Item = &File> {
    files
        .iter()
        .filter(|file| !GENERATED.contains(&file.path.as_str()))
}

fn has_word(line: &str, word: &str) -> bool {
    let part_of_a_word = |character: char| character.is_alphanumeric() || character == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(part_of_a_word) && !after.is_some_and(part_of_a_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_have_as_many_lines_as_the_limit_and_no_more() {
        let full = File::of("a.rs", &"x\n".repeat(LINES_MAX));
        let over = File::of("b.rs", &"x\n".repeat(LINES_MAX + 1));
        let said = length(&[full, over]);
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("b.rs: 1001 lines"));
    }

    #[test]
    fn generated_files_are_as_long_as_they_are() {
        assert!(length(&[File::of("Cargo.lock", &"x\n".repeat(5000))]).is_empty());
    }

    #[test]
    fn work_put_off_is_found_as_a_word() {
        let text = format!("// {}: later\nlet {}S = 1;\n", PUT_OFF[0], PUT_OFF[0]);
        let said = words(&[File::of("a.rs", &text)]);
        assert_eq!(said.len(), 1, "{said:#?}");
        assert!(said[0].starts_with("a.rs:1:"));
    }

    #[test]
    fn a_registry_is_found() {
        let text = format!("pip install --index-url https://{}/simple\n", REGISTRIES[0]);
        assert!(words(&[File::of("README.md", &text)])[0].contains("names the package registry"));
    }
}
