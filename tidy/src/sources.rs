//! What no source file says, and how long none of them is.

use crate::tree::File;

/// Past this a file hides a second noun.
const LINES_MAX: usize = 1000;

/// Pages that are read in one sitting, and how many lines that is.
const PAGES: [(&str, usize); 2] = [("ARCHITECTURE.md", 160), ("docs/benchmarks.md", 150)];

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
const GENERATED: [&str; 3] = [
    "Cargo.lock",
    "python/thalweg/_thalweg.pyi",
    "docs/reference/python.md",
];

/// No file is so long that nobody reads it.
pub fn length(files: &[File]) -> Vec<String> {
    by_hand(files)
        .filter_map(|file| {
            let count = file.text.lines().count();
            let page = PAGES.iter().find(|(path, _)| *path == file.path);
            let most = page.map_or(LINES_MAX, |(_, most)| *most);
            (count > most).then(|| {
                format!(
                    "{}: {count} lines, and {most} are the most; find its second noun and \
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

/// Every file of tests is run: where a crate has one program for all of them, each is a module of it or is
/// named in Cargo.toml.
pub fn tests(files: &[File]) -> Vec<String> {
    let text_of = |path: &str| {
        files
            .iter()
            .find(|file| file.path == path)
            .map(|file| &*file.text)
    };
    let mut complaints = Vec::new();
    for file in files {
        let Some((directory, name)) = file.path.rsplit_once('/') else {
            continue;
        };
        let (Some(name), Some(room)) = (name.strip_suffix(".rs"), directory.strip_suffix("/tests"))
        else {
            continue;
        };
        let Some(all) = text_of(&format!("{directory}/all.rs")) else {
            continue;
        };
        let cargo = text_of(&format!("{room}/Cargo.toml")).unwrap_or_default();
        let is_run = all.contains(&format!("mod {name};"))
            || all.contains(&format!("#[path = \"{name}.rs\"]"))
            || cargo.contains(&format!("name = \"{name}\""));
        if !is_run {
            complaints.push(format!(
                "{}: nothing runs it; name it in {directory}/all.rs, or in {room}/Cargo.toml if it needs a process of its own",
                file.path
            ));
        }
    }
    complaints
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
    fn a_page_has_a_bound_of_its_own() {
        let said = length(&[File::of("ARCHITECTURE.md", &"x\n".repeat(161))]);
        assert!(said[0].starts_with("ARCHITECTURE.md: 161 lines, and 160"));
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

    #[test]
    fn a_file_of_tests_that_nothing_runs_is_told() {
        let files = |all: &str, cargo: &str| {
            [
                File::of("crates/a/tests/all.rs", all),
                File::of("crates/a/tests/one.rs", ""),
                File::of("crates/a/Cargo.toml", cargo),
                File::of("crates/b/tests/two.rs", ""),
            ]
        };
        let named = "[[test]]\nname = \"all\"\n";
        assert_eq!(super::tests(&files("mod one;\n", named)), [""; 0]);
        let both = format!("{named}[[test]]\nname = \"one\"\n");
        assert_eq!(super::tests(&files("", &both)), [""; 0]);
        assert_eq!(super::tests(&files("", named)).len(), 1);
    }
}
