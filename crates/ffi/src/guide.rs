//! That the code of docs/guide/c-and-cpp.md and docs/programs/cpp.md is that of
//! the programs that scripts/examples builds and runs.

use std::path::Path;

/// Text without what indentation and line breaks add.
fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_code_of_the_guide_is_that_of_the_examples() {
    let checked = blocks_from_programs("docs/guide/c-and-cpp.md");
    assert!(checked > 10, "only {checked} blocks are checked");
}

#[test]
fn the_code_for_programs_that_exist_is_that_of_their_tests() {
    let checked = blocks_from_programs("docs/programs/cpp.md");
    assert!(checked > 1, "only {checked} blocks are checked");
}

/// Checks the page's blocks against the files that they are from: how many there are.
fn blocks_from_programs(page: &str) -> usize {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join(page)).unwrap();
    let mut source = None;
    let mut block: Option<(usize, String)> = None;
    let mut checked = 0;
    for (index, line) in page.lines().enumerate() {
        let number = index + 1;
        match &mut block {
            None => {
                if let Some(named) = line.strip_prefix("<!-- from ") {
                    source = Some(named.trim_end_matches(" -->").to_owned());
                } else if let Some(language) = line.strip_prefix("```") {
                    let is_ours = ["c", "cpp", "cmake"].contains(&language);
                    assert_eq!(
                        is_ours,
                        source.is_some(),
                        "line {number}: a block of C, C++ or CMake says which example it is from"
                    );
                    block = Some((number, String::new()));
                }
            }
            Some((begin, text)) if line == "```" => {
                if let Some(from) = source.take() {
                    let example = std::fs::read_to_string(root.join(&from)).unwrap();
                    assert!(
                        squeezed(&example).contains(&squeezed(text)),
                        "line {begin}: this is not in {from}:\n{text}"
                    );
                    checked += 1;
                }
                block = None;
            }
            Some((_, text)) => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    checked
}
