//! What events cost may not grow: counts of one run are held against
//! `budgets.txt` beside this file. Copies are counted for the whole process
//! and allocations by its allocator, so that this is its only test.
//!
//! A count above its budget by more than the tolerance fails. If the growth is
//! wanted, or a count has become smaller, write new budgets:
//!
//! ```sh
//! UPDATE_BUDGETS=1 cargo test -p thalweg-sim --test budgets
//! ```
//!
//! and say in the commit why.

use memory::testing::CountingAllocator;
use sim::{Asking, Cost, Costs};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Hash tables of the standard library differ from run to run, and releases of
/// libraries a little.
const TOLERANCE: f64 = 1.04;

const HEAD: &str = "\
# What 1,000 events may cost. Written by
#     UPDATE_BUDGETS=1 cargo test -p thalweg-sim --test budgets
";

/// Counts for 1,000 events, by name.
fn counts() -> BTreeMap<String, f64> {
    let cases = [
        ("100 B", 10_000, 100, 0),
        ("1 kB", 10_000, 1000, 0),
        ("1 kB with 10 kB of data", 1000, 1000, 10_000),
        ("1 kB with 2 MiB of data", 16, 1000, 2 << 20),
    ];
    let mut counts = BTreeMap::new();
    for (name, events, metadata_bytes, data_bytes) in cases {
        let costs = Costs {
            events,
            metadata_bytes,
            data_bytes,
        };
        for (way, cost) in ["produce", "consume"].iter().zip(costs.run()) {
            note(&mut counts, &format!("{way} {name}"), events, cost);
        }
    }
    let asking = Asking {
        requests: 1000,
        metadata_bytes: 128,
    };
    note(&mut counts, "ask, 128 B", asking.requests, asking.run());
    let asked = sim::memory_of_copied_data() as f64 * 1000.0;
    let name = "produce 20 kB of data that is copied, again: bytes asked for";
    counts.insert(name.to_owned(), asked);
    counts
}

/// Counts of a case, for 1,000 events.
fn note(counts: &mut BTreeMap<String, f64>, case: &str, events: u64, cost: Cost) {
    let Cost {
        calls_allocations,
        client_allocations,
        server_allocations,
        copied_bytes,
        frames,
        disk_operations,
        disk_bytes,
    } = cost;
    for (what, count) in [
        ("allocations of calls", calls_allocations),
        ("allocations of the clients' runtimes", client_allocations),
        ("allocations of the server", server_allocations),
        ("bytes of data copied", copied_bytes),
        ("frames", frames),
        ("disk operations", disk_operations),
        ("bytes read and written", disk_bytes),
    ] {
        let per_thousand = count as f64 * 1000.0 / events as f64;
        counts.insert(format!("{case}: {what}"), per_thousand);
    }
}

fn read(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(" = ").expect("a line is NAME = COUNT");
            (name.to_owned(), value.parse().expect("a count is a number"))
        })
        .collect()
}

#[test]
fn events_cost_no_more_than_is_recorded() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/budgets.txt");
    let counts = counts();
    assert!(
        counts
            .iter()
            .any(|(name, count)| name.contains("alloc") && *count > 0.0),
        "the counting allocator is installed"
    );
    if std::env::var_os("UPDATE_BUDGETS").is_some() {
        let mut text = HEAD.to_owned();
        for (name, count) in &counts {
            writeln!(text, "{name} = {count:.1}").unwrap();
        }
        std::fs::write(&path, text).unwrap();
    }
    let budgets = read(&std::fs::read_to_string(&path).unwrap());
    assert_eq!(
        counts.keys().collect::<Vec<_>>(),
        budgets.keys().collect::<Vec<_>>(),
        "other counts are recorded than are made; see {}",
        file!()
    );
    let grown: Vec<String> = counts
        .iter()
        .filter_map(|(name, count)| {
            let budget = budgets[name];
            // A handful more or less is no growth.
            let allowed = (budget * TOLERANCE).max(budget + 3.0);
            (*count > allowed).then(|| format!("  {name}: {count:.1}, recorded {budget:.1}"))
        })
        .collect();
    assert!(
        grown.is_empty(),
        "1,000 events cost more than is recorded:\n{}\nIf that is wanted, see {}",
        grown.join("\n"),
        file!()
    );
}
