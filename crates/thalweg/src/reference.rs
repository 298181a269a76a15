//! The reference page of the command line, made from the commands themselves.

use crate::cli::Cli;
use crate::failure::Code;
use clap::{Command, CommandFactory};
use std::path::Path;

const HEAD: &str = "\
# The command line

<!-- Made from crates/thalweg/src/cli.rs by `UPDATE_DOCS=1 cargo test -p thalweg --bin thalweg`. -->

Standard output carries what was asked for, and nothing else; with `--json` every line of it is one
JSON value. Errors go to standard error as `thalweg: SUBJECT: WHAT`. The settings of `thalweg serve`
are in [configuration.md](configuration.md); `thalweg steps`, `thalweg bench`, `thalweg gateway`, `thalweg pair`, `thalweg relay`, `thalweg token`, `thalweg why-not` and `thalweg workload` have [pages](cli-steps.md) [of](cli-bench.md) [their](cli-relay.md) [own](cli-token.md), [too](cli-gateway.md); [workload](cli-workload.md);
and so have `thalweg topic` and `thalweg nodes`: [topics](cli-topic.md), [nodes](cli-nodes.md).

## Exit codes

| code | meaning |
|---|---|
";

const BENCH_HEAD: &str = "\
# `thalweg bench`

<!-- Made from crates/thalweg/src/cli.rs by `UPDATE_DOCS=1 cargo test -p thalweg --bin thalweg`. -->

The fields of `--json`, and what they measure, are in [bench-json.md](bench-json.md).
";

const STEPS_HEAD: &str = "\
# `thalweg steps`

<!-- Made from crates/thalweg/src/cli.rs by `UPDATE_DOCS=1 cargo test -p thalweg --bin thalweg`. -->

Streams of steps at the command line. Every command finds its server by the options of
[Connection](cli.md#connection); exit codes are [there](cli.md#exit-codes) too.

";

const TOKEN_HEAD: &str = "\
# `thalweg token`

<!-- Made from crates/thalweg/src/cli.rs by `UPDATE_DOCS=1 cargo test -p thalweg --bin thalweg`. -->

Credentials at the command line; [how they are used](../how-to/tokens.md). None of these commands but `why-not` asks a
server, which it finds by the options of [Connection](cli.md#connection). Exit codes are [there](cli.md#exit-codes).
";

const TOPIC_HEAD: &str = "\
# `thalweg topic`

<!-- Made from crates/thalweg/src/cli.rs by `UPDATE_DOCS=1 cargo test -p thalweg --bin thalweg`. -->

Every command finds its server by the options of [Connection](cli.md#connection); exit codes are [there](cli.md#exit-codes)
too.
";

const NODES_HEAD: &str = "\
# `thalweg nodes`

<!-- Made from crates/thalweg/src/commands/nodes/args.rs by `UPDATE_DOCS=1 cargo test -p thalweg --bin thalweg`. -->

The nodes of a cluster at the command line; [how it is run](../operations/cluster.md). Every command finds its server by the options of
[Connection](cli.md#connection); exit codes are [there](cli.md#exit-codes) too.
";

const RELAY_HEAD: &str = "\
# `thalweg relay`

<!-- Made from crates/thalweg/src/cli.rs by `UPDATE_DOCS=1 cargo test -p thalweg --bin thalweg`. -->

Two sites at the command line; [how they are connected](../guide/two-sites.md). Exit codes are [there](cli.md#exit-codes).
";

const GATEWAY_HEAD: &str = "\
# The command `thalweg gateway`

<!-- Made from crates/thalweg/src/commands/gateway/args.rs by `UPDATE_DOCS=1 cargo test -p thalweg --bin thalweg`. -->

How one is run is in [the gateway](../operations/gateway.md), what it answers in [its interface](gateway.md). Exit codes are
[there](cli.md#exit-codes).
";

const PAIR_HEAD: &str = "\
# `thalweg pair`

<!-- Made from crates/thalweg/src/commands/pair/args.rs by `UPDATE_DOCS=1 cargo test -p thalweg --bin thalweg`. -->

How it is used is in [pairing](../how-to/pairing.md). Exit codes are [there](cli.md#exit-codes).
";

const WORKLOAD_HEAD: &str = "\
# `thalweg workload`

<!-- Made from crates/thalweg/src/commands/workload/args.rs by `UPDATE_DOCS=1 cargo test -p thalweg --bin thalweg`. -->

How it is used is in [workloads](../guide/workloads.md). Exit codes are [there](cli.md#exit-codes).
";

const STEPS_FIELDS: &str = include_str!("reference/steps.md");
const FIELDS: &str = include_str!("reference/fields.md");

fn page() -> String {
    let mut page = HEAD.to_owned();
    for (code, meaning) in Code::TABLE {
        page.push_str(&format!("| {code} | {meaning} |\n"));
    }
    page.push('\n');
    page.push_str(FIELDS);
    let mut root = Cli::command().term_width(100);
    root.build();
    describe_connection(&mut page, &root);
    for command in root.get_subcommands_mut() {
        if !matches!(
            command.get_name(),
            "bench"
                | "gateway"
                | "launch"
                | "nodes"
                | "pair"
                | "relay"
                | "steps"
                | "token"
                | "topic"
                | "why-not"
                | "workload"
        ) {
            describe(&mut page, command, "thalweg");
        }
    }
    page
}

fn bench_page() -> String {
    let mut page = BENCH_HEAD.to_owned();
    let mut root = Cli::command().term_width(100);
    root.build();
    describe_benchmark(&mut page, &root);
    let bench = root.find_subcommand_mut("bench");
    describe(&mut page, bench.expect("it is a command"), "thalweg");
    page
}

fn token_page() -> String {
    let mut page = TOKEN_HEAD.to_owned();
    let mut root = Cli::command().term_width(100);
    root.build();
    let token = root.find_subcommand_mut("token");
    describe(&mut page, token.expect("it is a command"), "thalweg");
    let why_not = root.find_subcommand_mut("why-not");
    describe(&mut page, why_not.expect("it is a command"), "thalweg");
    page
}

fn topic_page() -> String {
    page_of("topic", TOPIC_HEAD)
}

fn nodes_page() -> String {
    page_of("nodes", NODES_HEAD)
}

/// A page of one command.
fn page_of(name: &str, head: &str) -> String {
    let mut page = head.to_owned();
    let mut root = Cli::command().term_width(100);
    root.build();
    let command = root.find_subcommand_mut(name);
    describe(&mut page, command.expect("it is a command"), "thalweg");
    page
}

fn gateway_page() -> String {
    page_of("gateway", GATEWAY_HEAD)
}

fn relay_page() -> String {
    page_of("relay", RELAY_HEAD)
}

fn workload_page() -> String {
    page_of("workload", WORKLOAD_HEAD)
}

fn pair_page() -> String {
    page_of("pair", PAIR_HEAD)
}

fn steps_page() -> String {
    let mut page = format!("{STEPS_HEAD}{STEPS_FIELDS}");
    let mut root = Cli::command().term_width(100);
    root.build();
    let steps = root.find_subcommand_mut("steps");
    describe(&mut page, steps.expect("it is a command"), "thalweg");
    page
}

fn describe(page: &mut String, command: &mut Command, parent: &str) {
    let name = format!("{parent} {}", command.get_name());
    if command.get_name() == "help" {
        return;
    }
    if command.has_subcommands() {
        for nested in command.get_subcommands_mut() {
            describe(page, nested, &name);
        }
        return;
    }
    // What many commands take, and what has a page of its own, is told once.
    let mut command = command
        .clone()
        .mut_args(|arg| match arg.get_help_heading() {
            Some("Connection" | "Settings" | "Benchmark") => arg.hide(true),
            _ => arg,
        });
    push_help(page, &name, &mut command);
}

/// The options by which every command of a client finds its server.
fn describe_connection(page: &mut String, root: &Command) {
    let status = root
        .find_subcommand("status")
        .expect("it takes nothing else");
    let mut command = status
        .clone()
        .about(None)
        .mut_args(|arg| match arg.get_help_heading() {
            Some("Connection") => arg,
            _ => arg.hide(true),
        })
        .override_usage(
            "every command that follows, but for serve, up, config, token, gateway, relay, backup, bench, workload, doctor, completions and man",
        );
    push_help(page, "Connection", &mut command);
}

/// The options that all benchmarks of events take.
fn describe_benchmark(page: &mut String, root: &Command) {
    let produce = root
        .find_subcommand("bench")
        .and_then(|bench| bench.find_subcommand("produce"))
        .expect("it is a command");
    let mut command = produce
        .clone()
        .about(None)
        .mut_args(|arg| match arg.get_help_heading() {
            Some("Benchmark") => arg,
            _ => arg.hide(true),
        })
        .override_usage("thalweg bench produce, consume, pipeline, latency and floors");
    push_help(page, "Benchmark", &mut command);
}

fn push_help(page: &mut String, title: &str, command: &mut Command) {
    let help = command.render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    let text = help.join("\n");
    let title = match title.starts_with("thalweg") {
        true => format!("`{title}`"),
        false => title.to_owned(),
    };
    page.push_str(&format!(
        "\n## {title}\n\n```text\n{}\n```\n",
        text.trim_end()
    ));
}

#[test]
fn the_reference_pages_are_up_to_date() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let pages = [
        ("cli.md", page()),
        ("cli-bench.md", bench_page()),
        ("cli-gateway.md", gateway_page()),
        ("cli-pair.md", pair_page()),
        ("cli-relay.md", relay_page()),
        ("cli-steps.md", steps_page()),
        ("cli-token.md", token_page()),
        ("cli-topic.md", topic_page()),
        ("cli-nodes.md", nodes_page()),
        ("cli-workload.md", workload_page()),
    ];
    for (name, page) in pages {
        let path = directory.join(name);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == page,
            "{} is out of date: run UPDATE_DOCS=1 cargo test -p thalweg --bin thalweg",
            path.display()
        );
    }
}

#[test]
fn the_commands_are_consistent() {
    Cli::command().debug_assert();
}
