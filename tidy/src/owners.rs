//! A crate's central object has its methods in its own file.
//!
//! It holds all others, so that a method of it can change everything: where each part of the crate
//! adds some, no signature says what it may touch. What a part does are methods of the part's own
//! object, which is lent what it needs.

use crate::tree::File;

/// Sources, the type, and the file whose methods it has.
const OWNERS: &[(&str, &str, &str)] =
    &[("crates/broker/src/", "Node", "crates/broker/src/node.rs")];

/// Files that have methods of such a type for now. This list only gets shorter.
const ELSEWHERE: &[&str] = &[];

/// No file has methods of a central type but its own, and those that had.
pub fn owners(files: &[File]) -> Vec<String> {
    owners_but(files, ELSEWHERE)
}

fn owners_but(files: &[File], allowed: &[&str]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut found = Vec::new();
    for (sources, name, home) in OWNERS {
        let begins = format!("impl {name} {{");
        let has_methods = |file: &File| file.text.lines().any(|line| line == begins);
        if !files
            .iter()
            .any(|file| file.path == *home && has_methods(file))
        {
            complaints.push(format!(
                "{home}: has no methods of {name}: name its file and its type in tidy/src/owners.rs"
            ));
        }
        for file in files {
            let is_test = file.path.contains("/tests/");
            let is_elsewhere = file.path.starts_with(sources) && file.path != *home && !is_test;
            if !is_elsewhere || !has_methods(file) {
                continue;
            }
            found.push(file.path.as_str());
            if !allowed.contains(&file.path.as_str()) {
                complaints.push(format!(
                    "{}: has methods of {name}; give them to the object that they are about, \
                     which is lent what it needs, and let {home} call it",
                    file.path
                ));
            }
        }
    }
    let gone = allowed.iter().filter(|path| !found.contains(path));
    complaints.extend(gone.map(|path| {
        format!("{path}: has none of those methods any more; delete it from ELSEWHERE in tidy/src/owners.rs")
    }));
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_elsewhere_are_found() {
        let text = "use crate::node::Node;\n\nimpl Node {\n    fn f() {}\n}\n";
        let files = [
            "crates/broker/src/node.rs",
            "crates/broker/src/keep.rs",
            "crates/broker/src/tests/harness.rs",
            "crates/client/src/node.rs",
        ]
        .map(|path| File::of(path, text));
        let complaints = owners_but(&files, &[]);
        assert_eq!(complaints.len(), 1);
        assert!(complaints[0].starts_with("crates/broker/src/keep.rs: has methods of Node"));
        assert!(owners_but(&files, &["crates/broker/src/keep.rs"]).is_empty());
        let complaints = owners_but(&files[..1], &["crates/broker/src/keep.rs"]);
        assert!(complaints[0].contains("delete it from ELSEWHERE"));
    }
}
