//! Many client processes at once.

use crate::rig;

use rig::{Rig, wait};
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::process::Stdio;

const CLIENTS: u64 = 64;
const EVENTS: u64 = 50;

#[test]
fn sixty_four_client_processes_finish_without_error_or_loss() {
    let rig = Rig::default();
    let server = rig.serve(&[]);
    rig.run(&["topic", "create", "crowd", "--partitions", "4"])
        .ok();
    let mut children: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let mut command = match client % 4 {
                // A quarter of them consume what the others produce.
                0 => {
                    let name = format!("reader-{client}");
                    let max = (CLIENTS / 4 * 3 * EVENTS).to_string();
                    rig.thalweg(&[
                        "consume", "crowd", "--name", &name, "--follow", "--max", &max,
                    ])
                }
                _ => rig.thalweg(&["produce", "crowd"]),
            };
            let stdout = std::fs::File::create(rig.path(&format!("{client}.out"))).unwrap();
            let stderr = std::fs::File::create(rig.path(&format!("{client}.err"))).unwrap();
            let command = command.stdin(Stdio::piped()).stdout(stdout).stderr(stderr);
            let mut child = command.spawn().unwrap();
            let mut stdin = child.stdin.take().unwrap();
            if client % 4 != 0 {
                for number in 0..EVENTS {
                    writeln!(stdin, r#"{{"client":{client},"number":{number}}}"#).unwrap();
                }
            }
            child
        })
        .collect();
    for (client, child) in children.iter_mut().enumerate() {
        let status = wait(child);
        let errors = std::fs::read_to_string(rig.path(&format!("{client}.err"))).unwrap();
        assert!(
            status.success(),
            "client {client}: {errors}{}",
            server.log()
        );
    }
    for reader in (0..CLIENTS).step_by(4) {
        let text = std::fs::read_to_string(rig.path(&format!("{reader}.out"))).unwrap();
        let mut next: HashMap<(u64, u64), u64> = HashMap::new();
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        for event in rig::json_lines(&text) {
            let client = event["metadata"]["client"].as_u64().unwrap();
            let number = event["metadata"]["number"].as_u64().unwrap();
            *counts.entry(client).or_default() += 1;
            let next = next
                .entry((event["partition"].as_u64().unwrap(), client))
                .or_default();
            assert!(
                number >= *next,
                "reader {reader}: client {client}: {number} after {next}"
            );
            *next = number + 1;
        }
        let expected = (0..CLIENTS)
            .filter(|client| client % 4 != 0)
            .map(|client| (client, EVENTS));
        assert_eq!(counts, expected.collect(), "reader {reader}");
    }
    let (status, log) = server.terminate();
    assert!(status.success(), "{log}");
}
