//! What pages and comments point to is there.

use std::collections::HashSet;

use crate::tree::File;

/// The pages that describe what is on disk and on the wire. The code points to
/// them instead of repeating them, so they come with the first byte.
const FORMATS: [&str; 2] = ["docs/format/wire.md", "docs/format/log.md"];

/// The format pages exist, and so does every page that a source file names.
pub fn pages(files: &[File]) -> Vec<String> {
    let there: HashSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let mut complaints: Vec<String> = FORMATS
        .iter()
        .filter(|page| !there.contains(*page))
        .map(|page| format!("{page}: every format has its page; write it (STYLE: Bytes)"))
        .collect();
    for file in files.iter().filter(|file| file.extension() != "md") {
        for (index, line) in file.text.lines().enumerate() {
            for page in named_pages(line) {
                if !there.contains(page) {
                    complaints.push(format!(
                        "{}:{}: points to {page}, which is not there; write the page or point to \
                         the right one",
                        file.path,
                        index + 1
                    ));
                }
            }
        }
    }
    complaints
}

/// The words of a line that look like `docs/….md`.
fn named_pages(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_ascii_alphanumeric() || "/._-".contains(c)))
        .filter(|word| word.starts_with("docs/") && word.ends_with(".md"))
}

/// Every Rust file that a page names in code, whole or from some directory on, is there.
pub fn sources(files: &[File]) -> Vec<String> {
    let is_there = |name: &str| {
        let mut all = files.iter().map(|file| file.path.as_str());
        all.any(|path| path == name || path.ends_with(&format!("/{name}")))
    };
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.extension() == "md") {
        for (number, line) in prose(&file.text) {
            // Every second piece is a code span; with braces or a star it names several files.
            let spans = line.split('`').skip(1).step_by(2);
            for span in spans.filter(|span| !span.contains(['{', '*'])) {
                let words =
                    span.split(|c: char| !(c.is_ascii_alphanumeric() || "/._-".contains(c)));
                for name in words.filter(|word| word.ends_with(".rs") && word.len() > 3) {
                    if !is_there(name) {
                        complaints.push(format!(
                            "{}:{number}: names {name}, which is not there; name the file that took \
                             its place",
                            file.path
                        ));
                    }
                }
            }
        }
    }
    complaints
}

/// The rows of docs/promises.md are numbered from 1 on, each with a number of its own.
pub fn promises(files: &[File]) -> Vec<String> {
    let path = "docs/promises.md";
    let Some(page) = files.iter().find(|file| file.path == path) else {
        return vec![format!("{path} is not there")];
    };
    let rows = page.text.lines().enumerate().filter_map(|(index, line)| {
        let number = line.strip_prefix("| ")?.split(' ').next()?;
        Some((index + 1, number.parse::<usize>().ok()?))
    });
    rows.zip(1..)
        .filter(|((_, number), expected)| number != expected)
        .map(|((line, number), expected)| {
            format!("{path}:{line}: row {number} is the {expected}. of the table; number it so")
        })
        .collect()
}

/// Links between pages lead to files and headings that are there.
pub fn links(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.extension() == "md") {
        for (number, line) in prose(&file.text) {
            for link in targets(line) {
                if let Some(wrong) = broken(files, &file.path, link) {
                    complaints.push(format!(
                        "{}:{number}: the link to {link} {wrong}",
                        file.path
                    ));
                }
            }
        }
    }
    complaints
}

/// What is wrong with a link, if anything is.
fn broken(files: &[File], from: &str, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = if path.is_empty() {
        from.to_owned()
    } else {
        match resolve(from, path) {
            Some(target) => target,
            None => return Some("leads out of the repository".to_owned()),
        }
    };
    let folder = format!("{}/", target.trim_end_matches('/'));
    let Some(page) = files.iter().find(|file| file.path == target) else {
        // A picture is no text, so the tree does not list it; a folder is no file.
        let there = files.iter().any(|file| file.path.starts_with(&folder))
            || crate::tree::root().join(&target).exists();
        return (!there).then(|| format!("leads to {target}, which is not there; correct it"));
    };
    if heading.is_empty() || headings(&page.text).contains(heading) {
        return None;
    }
    Some(format!(
        "leads to a heading that {target} does not have; correct it"
    ))
}

/// Where a link written in `from` leads, as a path from the root, if it stays
/// inside.
fn resolve(from: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = if link.starts_with('/') {
        Vec::new()
    } else {
        from.split('/').collect()
    };
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The lines outside fenced code, each with its number from 1.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    text.lines()
        .enumerate()
        .filter(|(_, line)| {
            let fence = line.trim_start().starts_with("```");
            fenced ^= fence;
            !fenced && !fence
        })
        .map(|(index, line)| (index + 1, line))
        .collect()
}

/// The targets of a line's links: `](target)` and `[label]: target`, outside
/// code spans.
fn targets(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (index, piece) in line.split('`').enumerate() {
        // A code span may stand in a link's text, so only its own piece is skipped.
        if index % 2 == 0 {
            for (at, opening) in piece.match_indices("](") {
                let rest = &piece[at + opening.len()..];
                if let Some((target, _)) = rest.split_once(')') {
                    found.extend(target.split_whitespace().next());
                }
            }
        }
    }
    // The label ends at the line's first bracket: one further on is prose.
    if line.starts_with('[')
        && let Some((_, rest)) = line.split_once(']')
        && let Some(target) = rest.strip_prefix(": ")
    {
        found.extend(target.split_whitespace().next());
    }
    found
}

/// What a page's headings are called in links: lower case, no punctuation,
/// hyphens for spaces.
fn headings(text: &str) -> HashSet<String> {
    prose(text)
        .into_iter()
        .filter_map(|(_, line)| {
            let title = line.trim_start_matches('#');
            (title.len() < line.len() && title.starts_with(' ')).then(|| {
                title
                    .trim()
                    .to_lowercase()
                    .chars()
                    .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
                    .map(|c| if c == ' ' { '-' } else { c })
                    .collect()
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages_of(text: &str) -> Vec<File> {
        vec![
            File::of("docs/guide/first.md", text),
            File::of("docs/format/wire.md", "# The wire\n\n## Hello, twice\n"),
            File::of("README.md", "# Thalweg\n"),
        ]
    }

    #[test]
    fn links_that_lead_somewhere_are_silent() {
        let text = "# First\n[a](../format/wire.md) [b](../format/wire.md#hello-twice) [c](#first)\n\
                    [d](/README.md) [e](../format) [f](https://example.org/x)\n[g]: ../../README.md\n";
        assert_eq!(links(&pages_of(text)), Vec::<String>::new());
    }

    #[test]
    fn links_that_lead_nowhere_are_told() {
        let text = "[a](../format/nowhere.md)\n[b](../format/wire.md#goodbye)\n[c](#second)\n\
                    [d](../../../out.md)\n[e]: gone.md\n[`f`](gone.md)\n";
        let said = links(&pages_of(text));
        assert_eq!(said.len(), 6, "{said:#?}");
        assert!(said[0].starts_with("docs/guide/first.md:1:"));
        assert!(said[1].contains("a heading that docs/format/wire.md does not have"));
        assert!(said[3].contains("leads out of the repository"));
    }

    #[test]
    fn a_source_that_a_page_names_is_there() {
        let page = "`src/a.rs` `fn f`, `a.rs`, `{a,b}.rs` and `gone.rs`\n\n```\n`b.rs`\n```\n";
        let files = [File::of("x/src/a.rs", ""), File::of("README.md", page)];
        let said = sources(&files);
        assert_eq!(said.len(), 1, "{said:#?}");
        assert!(said[0].starts_with("README.md:1: names gone.rs"));
    }

    #[test]
    fn code_is_not_read_as_links() {
        let text = "```\n[a](gone.md)\n```\nand `[b](gone.md)`\n";
        assert_eq!(links(&pages_of(text)), Vec::<String>::new());
    }

    #[test]
    fn brackets_of_figures_are_not_read_as_links() {
        let text = "[149 to 284], of others 158 [135 to 167]: in one round of three\n";
        assert_eq!(links(&pages_of(text)), Vec::<String>::new());
    }

    #[test]
    fn a_page_that_a_source_names_is_there() {
        let mut files = pages_of("");
        files.push(File::of("docs/format/log.md", ""));
        files.push(File::of(
            "a.rs",
            "//! See `docs/format/wire.md`.\n//! See `docs/gone.md`.\n",
        ));
        let said = pages(&files);
        assert_eq!(said.len(), 1, "{said:#?}");
        assert!(said[0].starts_with("a.rs:2: points to docs/gone.md"));
    }

    #[test]
    fn two_promises_of_one_number_are_told() {
        let page = "| promise | today |\n|---|---|\n| 1 order | yes |\n| 1 acks | yes |\n";
        let said = promises(&[File::of("docs/promises.md", page)]);
        assert_eq!(said.len(), 1, "{said:#?}");
        assert!(
            said[0].starts_with("docs/promises.md:4: row 1 "),
            "{said:#?}"
        );
        assert!(promises(&[File::of("docs/promises.md", "| 1 order |\n| 2 acks |\n")]).is_empty());
    }

    #[test]
    fn a_format_without_a_page_is_told() {
        assert!(pages(&pages_of(""))[0].starts_with("docs/format/log.md:"));
    }
}
