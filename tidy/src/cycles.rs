//! The files of a crate import in one direction.
//!
//! A file depends on the files that its `use`s and its paths through `crate::`,
//! `super::` and `self::` lead to. A name that a module only passes on (`pub use
//! self::feed::Feed`, and no other mention of `Feed`) counts as the file that it
//! comes from, so that a module may export what its children define. A cycle of files has no order in which
//! they could be read, tested or replaced; a pair is one too.
//!
//! The parser knows as much Rust as this takes: comments, strings and what is
//! behind `#[cfg(test)]` are left out, macros are read as code.

use crate::tree::File;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The crates that keep to it.
const CRATES: [&str; 7] = [
    "broker", "client", "cluster", "log", "net", "server", "vhost",
];

/// The files that are in a cycle for now. This list only gets shorter: a file
/// that leaves its cycle is deleted here, and none is added.
const IN_A_CYCLE: &[&str] = &[];

/// No file is in a cycle with others, but for those that were.
pub fn cycles(files: &[File]) -> Vec<String> {
    let mut complaints = cycles_but(files, IN_A_CYCLE);
    for name in CRATES {
        let root = format!("crates/{name}/src/lib.rs");
        if !files.iter().any(|file| file.path == root) {
            complaints.push(format!(
                "{root}: is not there: name the crate as it is in tidy/src/cycles.rs"
            ));
        }
    }
    complaints
}

fn cycles_but(files: &[File], allowed: &[&str]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut cyclic = BTreeSet::new();
    for name in CRATES {
        let modules = Modules::read(name, files);
        for cycle in in_cycles(&modules.imports()) {
            let path = cycle[0];
            if !allowed.contains(&path) {
                complaints.push(format!(
                    "{path}: imports itself by way of {}; let the lower file take a trait, a value \
                     or a callback for what it needs of the upper one, or move that to a file \
                     below both",
                    cycle[1..].join(", ")
                ));
            }
            cyclic.insert(path.to_owned());
        }
    }
    for path in allowed {
        if !cyclic.contains(*path) {
            complaints.push(format!(
                "{path}: is in no cycle any more; delete it from IN_A_CYCLE in tidy/src/cycles.rs"
            ));
        }
    }
    complaints
}

/// For each file in a cycle, the shortest one: the file, and those on the way
/// back to it.
fn in_cycles<'a>(imports: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> Vec<Vec<&'a str>> {
    imports
        .keys()
        .filter_map(|&path| shortest_cycle(path, imports))
        .collect()
}

fn shortest_cycle<'a>(
    from: &'a str,
    imports: &BTreeMap<&'a str, BTreeSet<&'a str>>,
) -> Option<Vec<&'a str>> {
    // Which file each one was first reached from.
    let mut reached: BTreeMap<&str, &str> = BTreeMap::new();
    let mut waiting = VecDeque::from([from]);
    while let Some(path) = waiting.pop_front() {
        for &next in &imports[path] {
            if next == from {
                let mut cycle = vec![];
                let mut at = path;
                while at != from {
                    cycle.push(at);
                    at = reached[at];
                }
                cycle.push(from);
                cycle.reverse();
                return Some(cycle);
            }
            if !reached.contains_key(next) {
                reached.insert(next, path);
                waiting.push_back(next);
            }
        }
    }
    None
}

/// The modules of one crate: paths such as `["queue", "feed"]`, none for the root.
struct Modules<'a> {
    files: BTreeMap<Vec<&'a str>, Module<'a>>,
}

struct Module<'a> {
    path: &'a str,
    /// Words and signs, without comments, strings and tests.
    tokens: Vec<String>,
    /// What it imports: the name here, and the path that it was imported by.
    names: BTreeMap<String, Vec<String>>,
}

impl<'a> Modules<'a> {
    fn read(name: &str, files: &'a [File]) -> Self {
        let sources = format!("crates/{name}/src/");
        let mut modules = BTreeMap::new();
        for file in files {
            let Some(inside) = file.path.strip_prefix(&sources) else {
                continue;
            };
            let Some(inside) = inside.strip_suffix(".rs") else {
                continue;
            };
            let mut parts: Vec<&str> = inside.split('/').collect();
            if parts.iter().any(|part| ["tests", "testing"].contains(part)) {
                continue;
            }
            if parts.last() == Some(&"mod") || parts == ["lib"] {
                parts.pop();
            }
            let tokens = without_tests(tokens(&file.text));
            let names = imported_names(&tokens);
            let module = Module {
                path: &file.path,
                tokens,
                names,
            };
            modules.insert(parts, module);
        }
        Self { files: modules }
    }

    /// For each file the files that it depends on. The root is a table of
    /// contents, so it is in no cycle.
    fn imports(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut imports = BTreeMap::new();
        for (at, module) in &self.files {
            if at.is_empty() {
                continue;
            }
            let mut found = BTreeSet::new();
            for path in mentioned(&module.tokens) {
                if let Some(to) = self.resolve(at, &path, 0)
                    && !to.is_empty()
                    && to != *at
                {
                    found.insert(self.files[&to].path);
                }
            }
            imports.insert(module.path, found);
        }
        imports
    }

    /// The module that `path`, written in `at`, leads to; through re-exports.
    fn resolve(&self, at: &[&'a str], path: &[String], depth: usize) -> Option<Vec<&'a str>> {
        // Imports in a circle would not compile, but a name may shadow another.
        if depth > 16 {
            return None;
        }
        let mut parts = path.iter().map(String::as_str).peekable();
        let mut here: Vec<&'a str> = match *parts.peek()? {
            "crate" => {
                parts.next();
                Vec::new()
            }
            "self" | "super" => at.to_vec(),
            first => {
                self.child(at, first)?;
                at.to_vec()
            }
        };
        while let Some(&part) = parts.peek() {
            match part {
                "self" => {}
                "super" => {
                    here.pop();
                }
                part => match self.child(&here, part) {
                    Some(child) => here = child,
                    None => break,
                },
            }
            parts.next();
        }
        let Some(&name) = parts.peek() else {
            return Some(here);
        };
        // A name of that module: its own, or one that it passes on.
        let module = self.files.get(&here)?;
        if let Some(imported) = module.names.get(name)
            && let Some(from) = self.resolve(&here, imported, depth + 1)
        {
            return Some(from);
        }
        Some(here)
    }

    fn child(&self, at: &[&'a str], name: &str) -> Option<Vec<&'a str>> {
        self.files
            .keys()
            .find(|path| {
                path.len() == at.len() + 1 && path.starts_with(at) && path.last() == Some(&name)
            })
            .cloned()
    }
}

/// Words, and every sign by itself but for `::`.
fn tokens(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |at| at + 2)
        } else if let Some(hashes) = raw_string(rest) {
            let end = format!("\"{}", "#".repeat(hashes));
            let body = hashes + 2;
            rest[body..]
                .find(&end)
                .map_or(rest.len(), |at| body + at + end.len())
        } else if first == '"' {
            string_length(rest)
        } else if first == '\'' {
            char_length(rest)
        } else if first.is_alphanumeric() || first == '_' {
            let word = rest
                .find(|sign: char| !sign.is_alphanumeric() && sign != '_')
                .unwrap_or(rest.len());
            found.push(rest[..word].to_owned());
            word
        } else if rest.starts_with("::") {
            found.push("::".to_owned());
            2
        } else {
            if !first.is_whitespace() {
                found.push(first.to_string());
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    found
}

fn is_word(token: &str) -> bool {
    token.starts_with(|sign: char| sign.is_alphanumeric() || sign == '_')
}

/// How many `#` a raw string that begins here has.
fn raw_string(rest: &str) -> Option<usize> {
    let inside = rest.strip_prefix('r')?;
    let hashes = inside.len() - inside.trim_start_matches('#').len();
    inside[hashes..].starts_with('"').then_some(hashes)
}

fn string_length(rest: &str) -> usize {
    let mut escaped = false;
    for (at, sign) in rest.char_indices().skip(1) {
        match sign {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// A character in quotes; 1 for a lifetime's quote.
fn char_length(rest: &str) -> usize {
    let mut signs = rest.char_indices().skip(1);
    match (signs.next(), signs.next()) {
        (Some((_, '\\')), Some((at, sign))) => {
            let end = at + sign.len_utf8();
            rest[end..]
                .find('\'')
                .map_or(rest.len(), |more| end + more + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

/// Leaves out each item behind `#[cfg(test)]`, to its `;` or closing brace.
fn without_tests(tokens: Vec<String>) -> Vec<String> {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        if !tokens[at..].iter().take(MARK.len()).eq(MARK.iter()) {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        let mut depth = 0;
        for token in &tokens[at + MARK.len()..] {
            at += 1;
            match token.as_str() {
                "{" => depth += 1,
                "}" => depth -= 1,
                _ => {}
            }
            if depth == 0 && (token == ";" || token == "}") {
                break;
            }
        }
        at += MARK.len();
    }
    kept
}

/// The paths of all `use`s, each with the name that it has here.
fn uses(tokens: &[String]) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at] == "use" {
            at = tree(tokens, at + 1, &mut Vec::new(), &mut found);
        } else {
            at += 1;
        }
    }
    found
}

/// Reads one tree of a `use` from `at`; gives where it ends.
fn tree(
    tokens: &[String],
    mut at: usize,
    before: &mut Vec<String>,
    found: &mut Vec<(String, Vec<String>)>,
) -> usize {
    let depth = before.len();
    while let Some(token) = tokens.get(at) {
        match token.as_str() {
            "::" => at += 1,
            "{" => {
                at += 1;
                loop {
                    at = tree(tokens, at, before, found);
                    match tokens.get(at).map(String::as_str) {
                        Some(",") => at += 1,
                        _ => break,
                    }
                }
                before.truncate(depth);
                return at + 1;
            }
            "*" => {
                found.push(("*".to_owned(), before.clone()));
                before.truncate(depth);
                return at + 1;
            }
            "as" => {
                let name = tokens.get(at + 1).cloned().unwrap_or_default();
                found.push((name, before.clone()));
                before.truncate(depth);
                return at + 2;
            }
            word if is_word(word) => {
                before.push(word.to_owned());
                at += 1;
            }
            _ => break,
        }
    }
    if before.last().is_some_and(|last| last == "self") && before.len() > 1 {
        before.pop();
    }
    if before.len() > depth
        && let Some(name) = before.last()
    {
        found.push((name.clone(), before.clone()));
    }
    before.truncate(depth);
    at
}

fn imported_names(tokens: &[String]) -> BTreeMap<String, Vec<String>> {
    uses(tokens)
        .into_iter()
        .filter(|(name, path)| name != "*" && path.len() > 1)
        .collect()
}

/// Every path that the file mentions and that may lead into its crate. What it
/// exports and does not name otherwise it does not need.
fn mentioned(tokens: &[String]) -> Vec<Vec<String>> {
    let (mut code, mut found, mut exported) = (BTreeSet::new(), Vec::new(), Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at] == "use" {
            let before = at.checked_sub(1).map(|before| tokens[before].as_str());
            let is_export = matches!(before, Some("pub" | ")"));
            let mut names = Vec::new();
            at = tree(tokens, at + 1, &mut Vec::new(), &mut names);
            match is_export {
                true => exported.extend(names),
                false => found.extend(names.into_iter().map(|(_, path)| path)),
            }
            continue;
        }
        code.insert(tokens[at].as_str());
        let begins = at == 0 || tokens[at - 1] != "::";
        if !begins || tokens.get(at + 1).is_none_or(|next| next != "::") {
            at += 1;
            continue;
        }
        let begin = at;
        let mut path = vec![tokens[at].clone()];
        at += 2;
        while let Some(word) = tokens.get(at)
            && is_word(word)
        {
            path.push(word.clone());
            if tokens.get(at + 1).is_none_or(|next| next != "::") {
                break;
            }
            at += 2;
        }
        code.extend(tokens[begin..at].iter().map(String::as_str));
        found.push(path);
    }
    let needed = exported
        .into_iter()
        .filter(|(name, _)| code.contains(name.as_str()));
    found.extend(needed.map(|(_, path)| path));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(texts: &[(&str, &str)]) -> Vec<File> {
        texts
            .iter()
            .map(|(path, text)| File::of(&format!("crates/client/src/{path}"), text))
            .collect()
    }

    /// The files that are in cycles, by their names.
    fn found(texts: &[(&str, &str)]) -> Vec<String> {
        let files = files(texts);
        let modules = Modules::read("client", &files);
        let imports = modules.imports();
        let cycles = in_cycles(&imports);
        let name = |cycle: &Vec<&str>| {
            cycle[0]
                .rsplit("src/")
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        cycles.iter().map(name).collect()
    }

    #[test]
    fn files_in_one_direction_are_silent() {
        let texts = [
            ("lib.rs", "mod a; mod b; pub use a::A;"),
            ("a.rs", "use crate::b::{B, self};\nstruct A;"),
            (
                "b.rs",
                "// use crate::a::A;\nconst S: &str = \"crate::a::A\"; struct B;",
            ),
        ];
        assert!(found(&texts).is_empty());
    }

    #[test]
    fn a_pair_is_a_cycle_however_it_is_written() {
        for back in [
            "use crate::a::A;",
            "use crate::{a::A, c};",
            "use super::a as other;",
            "pub(crate) use super::a as other; fn f() { other() }",
            "fn f(x: &'_ u8) { let c = '\"'; crate::a::f(x) }",
            "use super::a::*;",
            // Through the root, which passes it on.
            "use crate::A;",
        ] {
            let texts = [
                ("lib.rs", "mod a; mod b; pub use a::A;"),
                ("a.rs", "use crate::b::B;"),
                ("b.rs", back),
            ];
            assert_eq!(found(&texts), ["a.rs", "b.rs"], "{back}");
        }
    }

    #[test]
    fn what_a_parent_passes_on_is_its_childs() {
        let parent = "mod feed; mod event; pub use self::feed::Feed; use event::Event;";
        let texts = [
            ("lib.rs", "mod queue;"),
            ("queue.rs", parent),
            ("queue/feed.rs", "struct Feed;"),
            ("queue/event.rs", "use super::Feed;\nstruct Event;"),
        ];
        assert!(found(&texts).is_empty());
        let mut texts = texts;
        texts[3].1 = "use super::{Feed};\nstruct Event;";
        assert!(found(&texts).is_empty());
        texts[1].1 = "mod feed; mod event; use event::Event; struct Feed;";
        assert_eq!(found(&texts), ["queue.rs", "queue/event.rs"]);
    }

    #[test]
    fn tests_may_import_what_they_like() {
        let texts = [
            ("a.rs", "use crate::b::B;"),
            (
                "b.rs",
                "#[cfg(test)] use crate::a::A;\n#[cfg(test)]\nmod tests { use crate::a::A; fn f() {} }",
            ),
            ("b/tests.rs", "use crate::a::A;"),
        ];
        assert!(found(&texts).is_empty());
    }

    #[test]
    fn the_list_of_old_cycles_only_shrinks() {
        let cyclic = files(&[("a.rs", "use crate::b::B;"), ("b.rs", "use crate::a::A;")]);
        let both = ["crates/client/src/a.rs", "crates/client/src/b.rs"];
        assert!(cycles_but(&cyclic, &both).is_empty());
        let complaints = cycles_but(&cyclic, &both[..1]);
        assert!(complaints[0].starts_with(concat!(
            "crates/client/src/b.rs: ",
            "imports itself by way of crates/client/src/a.rs"
        )));
        let complaints = cycles_but(&[], &both[..1]);
        assert!(complaints[0].contains("delete it from IN_A_CYCLE"));
    }
}
