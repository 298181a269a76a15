//! The audit is audited: what is done to a server behind its back is found.

use crate::rig;

use rig::{Ran, Rig, json_lines};
use serde_json::Value;
use std::path::Path;

fn produce(rig: &Rig, range: std::ops::Range<u32>) {
    let lines: String = range.map(|number| format!("{number}\n")).collect();
    let args = [
        "produce",
        "t",
        "--batch-count",
        "10",
        "--journal",
        "journal",
    ];
    rig.run_with(&args, lines).ok();
}

fn audit(rig: &Rig) -> Ran {
    rig.run(&["audit", "--journal", "journal", "--json"])
}

fn findings(ran: Ran) -> Vec<Value> {
    let lines = json_lines(&ran.exits(3).stdout);
    lines
        .into_iter()
        .filter(|line| line["type"] == "finding")
        .collect()
}

fn copy(from: &Path, to: &Path) {
    for file in rig::files(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        std::fs::copy(file, target).unwrap();
    }
}

#[test]
fn a_server_that_forgot_what_it_acknowledged_is_found_out() {
    let rig = Rig::default();
    let server = rig.serve(&[]);
    rig.run(&["topic", "create", "t"]).ok();
    produce(&rig, 0..100);
    server.terminate();
    copy(&rig.path("data"), &rig.path("earlier"));
    let server = rig.serve(&[]);
    produce(&rig, 100..200);
    rig.run(&["consume", "t", "-n", "c"]).ok();
    audit(&rig).exits(0);
    server.kill();
    std::fs::remove_dir_all(rig.path("data")).unwrap();
    std::fs::rename(rig.path("earlier"), rig.path("data")).unwrap();

    let _server = rig.serve(&[]);
    let found = findings(audit(&rig));
    assert!(
        found.iter().all(|finding| finding["kind"] == "lost"),
        "{found:?}"
    );
    let lost: u64 = found
        .iter()
        .map(|finding| finding["end"].as_u64().unwrap() - finding["first"].as_u64().unwrap())
        .sum();
    assert_eq!(lost, 100);
    // New events at the old places are no substitute.
    produce(&rig, 300..400);
    let kinds: Vec<Value> = findings(audit(&rig))
        .iter()
        .map(|f| f["kind"].clone())
        .collect();
    assert!(kinds.contains(&"altered".into()), "{kinds:?}");
}

#[test]
fn other_events_than_the_acknowledged_are_found_out() {
    let rig = Rig::default();
    let _server = rig.serve(&[]);
    rig.run(&["topic", "create", "t"]).ok();
    produce(&rig, 0..30);
    audit(&rig).exits(0);
    // The producer says that it sent something else.
    let mut records = std::fs::read(rig.path("journal")).unwrap();
    let record_bytes = client::journal::JOURNAL_RECORD_BYTES;
    let last = records.len() - record_bytes;
    let record: &mut [u8; 96] = (&mut records[last..]).try_into().unwrap();
    let mut told = client::journal::JournalRecord::from_bytes(record).unwrap();
    told.checksum ^= 1;
    *record = told.to_bytes();
    std::fs::write(rig.path("journal"), &records).unwrap();
    let found = findings(audit(&rig));
    assert_eq!(
        (found.len(), &found[0]["kind"]),
        (1, &"altered".into()),
        "{found:?}"
    );

    // A journal that is damaged itself proves nothing, and is no finding.
    records[20] ^= 1;
    std::fs::write(rig.path("journal"), &records).unwrap();
    let ran = audit(&rig).exits(1);
    assert!(
        ran.stderr.contains("journal: ") && ran.stderr.contains("byte 0"),
        "{}",
        ran.stderr
    );
}
