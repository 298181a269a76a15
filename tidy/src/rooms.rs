//! Who may import whom.
//!
//! The rooms stand in three layers that look in one direction: bytes (`wire`,
//! `memory`), mechanisms (`log`, `net`, `fabric`), roles (`broker`, `client`),
//! and the faces that put them together. Development dependencies are outside
//! the rules, except that none names `sim`.

use std::path::PathBuf;

use serde_json::Value;

use crate::tree::File;

/// One row of the table of rooms.
struct Rule {
    room: &'static str,
    /// Our own crates that it may name as normal or build dependencies.
    imports: &'static [&'static str],
    /// Why it may name no other.
    because: &'static str,
}

/// The rooms that a face puts together.
const FACE: &[&str] = &[
    "wire",
    "memory",
    "topic",
    "access",
    "net",
    "fabric",
    "plugin",
    "server",
    "client",
    "amqp",
    "step",
    "relay",
    "gateway",
    "scistream",
    "pushpull",
    "mirror",
    "workload",
];

/// The table of rooms. A room that is not built yet has its row all the same, so
/// that its first commit already keeps to it.
const RULES: &[Rule] = &[
    Rule {
        room: "wire",
        imports: &[],
        because: "formats are bytes alone: whoever reads them must not compile anything else of ours",
    },
    Rule {
        room: "memory",
        imports: &[],
        because: "regions, buffers and budgets serve every room, so they know none",
    },
    Rule {
        room: "topic",
        imports: &["wire"],
        because: "a topic's definition is the same for every client and needs no I/O",
    },
    Rule {
        room: "faults",
        imports: &[],
        because: "whatever tests plant faults into uses it",
    },
    Rule {
        room: "trace",
        imports: &[],
        because: "whatever an event passes marks it, from storage to client",
    },
    Rule {
        room: "access",
        imports: &["wire", "faults"],
        because: "who may do what is read in one sitting, and is the same wherever it is asked",
    },
    Rule {
        room: "munge",
        imports: &["memory"],
        because: "a library that may not be there is asked by those alone who are configured to",
    },
    Rule {
        room: "issuers",
        imports: &["access", "memory", "munge", "faults"],
        because: "credentials of others become identities of ours, for a server and for a gateway alike",
    },
    Rule {
        room: "log",
        imports: &["wire", "memory", "trace"],
        because: "storage knows nothing of who asks for it, so that every fault can be played against it",
    },
    Rule {
        room: "net",
        imports: &["wire", "memory", "faults", "trace"],
        because: "a transport carries frames and regions for either side and knows neither",
    },
    Rule {
        room: "fabric",
        imports: &["net", "memory"],
        because: "a native transport is one more implementation of net's contract, nothing more",
    },
    Rule {
        room: "broker",
        imports: &["wire", "memory", "topic", "access", "log", "net", "trace"],
        because: "the node is plain state under any executor: no concrete transport, no cluster, no client",
    },
    Rule {
        room: "client",
        imports: &["wire", "memory", "topic", "munge", "net", "trace"],
        because: "whoever only produces and consumes must not compile a server",
    },
    Rule {
        room: "server",
        imports: &[
            "wire", "memory", "topic", "access", "issuers", "net", "fabric", "plugin", "log",
            "broker", "cluster", "kafka", "amqp", "vhost", "faults", "trace",
        ],
        because: "the server executes the node; a client inside it would hide a loop",
    },
    Rule {
        room: "plugin",
        imports: &["topic", "memory"],
        because: "validators, selectors and serializers of users are handed over as trait objects",
    },
    Rule {
        room: "thalweg",
        imports: FACE,
        because: "a face reaches broker and log through the server only",
    },
    Rule {
        room: "ffi",
        imports: FACE,
        because: "a face reaches broker and log through the server only, and no other face",
    },
    Rule {
        room: "python",
        imports: FACE,
        because: "a face reaches broker and log through the server only, and no other face",
    },
    Rule {
        room: "step",
        imports: &["wire", "memory", "topic", "client"],
        because: "steps are made of events, so a client is all they need",
    },
    Rule {
        room: "cluster",
        imports: &["wire", "memory", "log", "net", "broker", "faults"],
        because: "replication drives the node, its log and the network between nodes",
    },
    Rule {
        room: "kafka",
        imports: &["broker"],
        because: "another protocol is a thin face over the node",
    },
    Rule {
        room: "amqp",
        imports: &["faults"],
        because: "a protocol of others is read without ours: the server turns its events into the node's requests",
    },
    Rule {
        room: "vhost",
        imports: &["wire", "amqp", "faults"],
        because: "exchanges and bindings are plain state: the server makes the topics and appends the records",
    },
    Rule {
        room: "mirror",
        imports: &["wire", "client", "net", "faults"],
        because: "a link is a client of two servers, and knows of them what the wire says",
    },
    Rule {
        room: "relay",
        imports: &["wire", "net", "access", "client", "faults"],
        because: "a tunnel carries bytes between two sites and holds no node of its own",
    },
    Rule {
        room: "gateway",
        imports: &["wire", "memory", "net", "access", "issuers", "faults"],
        because: "it starts servers as processes and passes bytes; it must not hold a node of its own",
    },
    Rule {
        room: "scistream",
        imports: &["net", "access", "relay", "faults"],
        because: "another protocol's calls set up tunnels of the relay, and nothing else",
    },
    Rule {
        room: "workload",
        imports: &["faults"],
        because: "an experiment is the same whatever carries its messages, so it knows nothing of ours",
    },
    Rule {
        room: "pushpull",
        imports: &["faults"],
        because: "sockets of other people's protocols know nothing of events; the command joins the two",
    },
    Rule {
        room: "sim",
        imports: &[
            "wire", "memory", "topic", "access", "log", "net", "fabric", "broker", "client",
            "server", "plugin", "thalweg", "step", "cluster", "kafka", "amqp", "vhost", "gateway",
            "relay", "mirror",
        ],
        because: "the simulation drives everything but the bindings to other languages",
    },
    Rule {
        room: "tidy",
        imports: &[],
        because: "the rules must build when nothing else does",
    },
];

/// The rooms that may use `unsafe`, because native code or lent memory is what
/// they are for.
const UNSAFE: [&str; 6] = ["memory", "fabric", "plugin", "munge", "ffi", "python"];

/// Rooms of plain state: no sockets, files, clocks or tasks. They are told the
/// time and handed the bytes, which is what lets one seed play a whole day.
const PURE: [&str; 7] = [
    "wire", "topic", "access", "amqp", "vhost", "broker", "workload",
];

/// Crates that bring what a pure room must not have.
const IMPURE_CRATES: [&str; 9] = [
    "async-std",
    "compio",
    "futures",
    "io-uring",
    "mio",
    "rustix",
    "smol",
    "socket2",
    "tokio",
];

/// Paths of the standard library that do.
const IMPURE_PATHS: [&str; 6] = [
    "std::fs",
    "std::net",
    "std::os",
    "std::thread",
    "Instant::now(",
    "SystemTime::now(",
];

/// Names that say nothing: what is in such a crate belongs to the noun it serves.
const NOT_MADE: [&str; 6] = ["utils", "common", "errors", "config", "macros", "helpers"];

/// One crate of the workspace.
pub struct Room {
    /// Its name without `thalweg-`.
    pub name: String,
    /// Where it lies, from the root.
    pub directory: String,
    /// What it depends on, ours and others'.
    pub dependencies: Vec<Dependency>,
    /// The first files of its libraries and binaries, from the root.
    pub roots: Vec<String>,
}

/// One line of a crate's `[dependencies]`.
pub struct Dependency {
    /// The package's name, less `thalweg-` if it is ours.
    pub name: String,
    /// Whether it is a crate of this workspace.
    pub ours: bool,
    /// Whether it serves tests, examples and benchmarks only.
    pub development: bool,
}

/// Reads what `cargo metadata --no-deps` printed.
///
/// # Panics
/// If it is not what cargo prints.
pub fn read(metadata: &Value) -> Vec<Room> {
    let text = |value: &Value| {
        value
            .as_str()
            .expect("cargo prints a string here")
            .to_owned()
    };
    let list = |value: &Value| value.as_array().expect("cargo prints a list here").clone();
    let root = PathBuf::from(text(&metadata["workspace_root"]));
    let from_root = |path: &Value| {
        PathBuf::from(text(path))
            .strip_prefix(&root)
            .expect("the workspace's crates lie under its root")
            .to_string_lossy()
            .into_owned()
    };
    list(&metadata["packages"])
        .iter()
        .map(|package| Room {
            name: short(&text(&package["name"])),
            directory: from_root(&package["manifest_path"])
                .trim_end_matches("/Cargo.toml")
                .to_owned(),
            dependencies: list(&package["dependencies"])
                .iter()
                .map(|dependency| Dependency {
                    name: short(&text(&dependency["name"])),
                    ours: dependency["path"].is_string(),
                    development: dependency["kind"] == "dev",
                })
                .collect(),
            roots: list(&package["targets"])
                .iter()
                .filter(|target| {
                    list(&target["kind"]).iter().all(|kind| {
                        !["test", "example", "bench", "custom-build"].contains(&text(kind).as_str())
                    })
                })
                .map(|target| from_root(&target["src_path"]))
                .collect(),
        })
        .collect()
}

fn short(package: &str) -> String {
    package
        .strip_prefix("thalweg-")
        .unwrap_or(package)
        .to_owned()
}

/// Every room has a row in the table and imports what the row allows.
pub fn imports(rooms: &[Room]) -> Vec<String> {
    let mut complaints = Vec::new();
    for room in rooms {
        if NOT_MADE.contains(&room.name.as_str()) {
            complaints.push(format!(
                "{}: no crate is called `{}`; put each part of it where its noun lives",
                room.directory, room.name
            ));
            continue;
        }
        let Some(rule) = RULES.iter().find(|rule| rule.room == room.name) else {
            complaints.push(format!(
                "{}: `{}` is in no row of the table of rooms; if it has one of the three reasons \
                 for a crate (native code, a user who must not compile the rest, an independence \
                 that the compiler should prove), add a row to RULES in tidy/src/rooms.rs",
                room.directory, room.name
            ));
            continue;
        };
        for dependency in room.dependencies.iter().filter(|one| one.ours) {
            if dependency.name == "sim" {
                complaints.push(format!(
                    "{}/Cargo.toml: nothing imports `sim`, tests neither; a test that needs the \
                     simulation lives in crates/sim/tests",
                    room.directory
                ));
            } else if !dependency.development && !rule.imports.contains(&dependency.name.as_str()) {
                complaints.push(format!(
                    "{}/Cargo.toml: `{}` may import {} but not `{}`, for {}; move what is needed \
                     to a room that both may import, or hand it over as a trait object",
                    room.directory,
                    room.name,
                    several(rule.imports),
                    dependency.name,
                    rule.because
                ));
            }
        }
    }
    complaints
}

fn several(names: &[&str]) -> String {
    match names {
        [] => "none of our crates".to_owned(),
        names => names.join(", "),
    }
}

/// The rooms of plain state name neither an I/O crate nor the standard library's
/// files, sockets, threads and clocks.
pub fn purity(rooms: &[Room], files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for room in rooms {
        if !PURE.contains(&room.name.as_str()) {
            continue;
        }
        for dependency in &room.dependencies {
            if !dependency.development && IMPURE_CRATES.contains(&dependency.name.as_str()) {
                complaints.push(format!(
                    "{}/Cargo.toml: `{}` is plain state and must not have `{}`; take the bytes or \
                     the time as an argument, and do the I/O in `server` or `client`",
                    room.directory, room.name, dependency.name
                ));
            }
        }
        let sources = format!("{}/src/", room.directory);
        for file in files.iter().filter(|file| file.path.starts_with(&sources)) {
            for (number, line) in code_lines(&file.text) {
                for path in IMPURE_PATHS {
                    if line.contains(path) {
                        complaints.push(format!(
                            "{}:{number}: `{}` is plain state and must not name `{path}`; take \
                             the bytes or the time as an argument",
                            file.path, room.name
                        ));
                    }
                }
            }
        }
    }
    complaints
}

/// `unsafe` stays in its rooms, and every other room has the compiler forbid it.
pub fn unsafe_code(rooms: &[Room], files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for room in rooms {
        if UNSAFE.contains(&room.name.as_str()) {
            continue;
        }
        for root in &room.roots {
            let forbids = files.iter().any(|file| {
                file.path == *root
                    && code_lines(&file.text).any(|(_, line)| line == "#![forbid(unsafe_code)]")
            });
            if !forbids {
                complaints.push(format!(
                    "{root}: add `#![forbid(unsafe_code)]` below the crate's doc comment; only {} \
                     may go without",
                    UNSAFE.join(", ")
                ));
            }
        }
        // Tests, examples and benchmarks are crates of their own, which the
        // attribute above does not reach.
        let inside = format!("{}/", room.directory);
        for file in files {
            if !file.path.starts_with(&inside) || file.extension() != "rs" {
                continue;
            }
            for (number, line) in code_lines(&file.text) {
                if uses_unsafe(line) {
                    complaints.push(format!(
                        "{}:{number}: `unsafe` lives in {} alone; find the safe call in rustix or \
                         std, or put the unsafe part into one of those rooms",
                        file.path,
                        UNSAFE.join(", ")
                    ));
                }
            }
        }
    }
    complaints
}

fn uses_unsafe(line: &str) -> bool {
    [
        "unsafe {",
        "unsafe fn",
        "unsafe impl",
        "unsafe extern",
        "unsafe trait",
    ]
    .iter()
    .any(|form| {
        line.match_indices(form).any(|(at, _)| {
            // Not inside a word, and not inside a literal such as this list's.
            line[..at]
                .chars()
                .next_back()
                .is_none_or(|before| !before.is_alphanumeric() && before != '_' && before != '"')
        })
    })
}

/// The lines that are not comments, trimmed, each with its number from 1.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .map(str::trim)
        .enumerate()
        .filter(|(_, line)| !line.starts_with("//"))
        .map(|(index, line)| (index + 1, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(name: &str, dependencies: &[(&str, bool, bool)]) -> Room {
        Room {
            name: name.to_owned(),
            directory: format!("crates/{name}"),
            dependencies: dependencies
                .iter()
                .map(|&(name, ours, development)| Dependency {
                    name: name.to_owned(),
                    ours,
                    development,
                })
                .collect(),
            roots: vec![format!("crates/{name}/src/lib.rs")],
        }
    }

    // In two parts, so that this file has no such line.
    const BLOCK: &str = concat!("unsafe", " { map() }\n");

    fn only(complaints: Vec<String>) -> String {
        assert_eq!(complaints.len(), 1, "{complaints:#?}");
        complaints.into_iter().next().expect("there is one")
    }

    #[test]
    fn an_import_that_the_table_allows_is_silent() {
        let rooms = [room(
            "log",
            &[("wire", true, false), ("memory", true, false)],
        )];
        assert!(imports(&rooms).is_empty());
    }

    #[test]
    fn an_import_against_the_direction_is_told_with_its_reason() {
        let said = only(imports(&[room("client", &[("broker", true, false)])]));
        assert!(said.contains(
            "`client` may import wire, memory, topic, munge, net, trace but not `broker`"
        ));
        assert!(said.contains("must not compile a server"));
    }

    #[test]
    fn a_face_may_not_reach_past_the_server() {
        for face in ["thalweg", "ffi", "python"] {
            assert_eq!(imports(&[room(face, &[("log", true, false)])]).len(), 1);
        }
    }

    #[test]
    fn development_dependencies_are_free_except_for_the_simulation() {
        assert!(imports(&[room("client", &[("server", true, true)])]).is_empty());
        let said = only(imports(&[room("client", &[("sim", true, true)])]));
        assert!(said.contains("nothing imports `sim`"));
    }

    #[test]
    fn nothing_imports_the_simulation() {
        assert_eq!(imports(&[room("server", &[("sim", true, false)])]).len(), 1);
    }

    #[test]
    fn another_crate_of_the_same_name_is_not_ours() {
        assert!(imports(&[room("wire", &[("log", false, false)])]).is_empty());
    }

    #[test]
    fn a_room_without_a_row_is_refused() {
        assert!(only(imports(&[room("attic", &[])])).contains("add a row"));
        assert!(only(imports(&[room("utils", &[])])).contains("where its noun lives"));
    }

    #[test]
    fn plain_state_has_no_files_no_clock_and_no_runtime() {
        let rooms = [room("broker", &[("tokio", false, false)])];
        let clock = File::of(
            "crates/broker/src/node.rs",
            "// not Instant::now() here\nlet now = Instant::now();\n",
        );
        let said = purity(&rooms, &[clock]);
        assert_eq!(said.len(), 2, "{said:#?}");
        assert!(said[0].contains("must not have `tokio`"));
        assert!(said[1].starts_with("crates/broker/src/node.rs:2:"));
    }

    #[test]
    fn a_room_that_does_not_forbid_unsafe_code_is_told_so() {
        let rooms = [room("log", &[])];
        let bare = File::of("crates/log/src/lib.rs", "//! #![forbid(unsafe_code)]\n");
        assert!(only(unsafe_code(&rooms, &[bare])).contains("add `#![forbid(unsafe_code)]`"));
        let good = File::of(
            "crates/log/src/lib.rs",
            "//! Log.\n\n#![forbid(unsafe_code)]\n",
        );
        assert!(unsafe_code(&rooms, &[good]).is_empty());
    }

    #[test]
    fn unsafe_code_in_a_test_is_found_too() {
        let rooms = [room("log", &[])];
        let files = [
            File::of("crates/log/src/lib.rs", "#![forbid(unsafe_code)]\n"),
            File::of("crates/log/tests/map.rs", BLOCK),
        ];
        assert!(only(unsafe_code(&rooms, &files)).starts_with("crates/log/tests/map.rs:1:"));
    }

    #[test]
    fn unsafe_code_in_its_rooms_is_silent() {
        let lib = File::of("crates/memory/src/lib.rs", BLOCK);
        assert!(unsafe_code(&[room("memory", &[])], &[lib]).is_empty());
    }

    #[test]
    fn cargo_is_read_as_it_prints() {
        let metadata = serde_json::json!({
            "workspace_root": "/here",
            "packages": [{
                "name": "thalweg-log",
                "manifest_path": "/here/crates/log/Cargo.toml",
                "dependencies": [
                    {"name": "thalweg-wire", "path": "/here/crates/wire", "kind": null},
                    {"name": "tempfile", "kind": "dev"},
                ],
                "targets": [
                    {"kind": ["lib"], "src_path": "/here/crates/log/src/lib.rs"},
                    {"kind": ["test"], "src_path": "/here/crates/log/tests/faults.rs"},
                ],
            }],
        });
        let rooms = read(&metadata);
        assert_eq!(rooms[0].name, "log");
        assert_eq!(rooms[0].directory, "crates/log");
        assert_eq!(rooms[0].roots, ["crates/log/src/lib.rs"]);
        let [wire, tempfile] = &rooms[0].dependencies[..] else {
            panic!("two dependencies go in");
        };
        assert!(wire.ours && !wire.development && wire.name == "wire");
        assert!(!tempfile.ours && tempfile.development);
    }
}
