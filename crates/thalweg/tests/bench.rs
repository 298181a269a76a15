//! `thalweg bench` runs by itself and says what it measured.

use std::process::Command;

#[test]
fn the_floors_are_measured_beside_the_raw_stream() {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args([
            "bench",
            "floors",
            "--events",
            "5000",
            "--repetitions",
            "2",
            "--json",
            "--directory",
        ])
        .arg(directory.path().join("data"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let cases: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let works = cases
        .iter()
        .map(|case| format!("{} {}", case["work"], case["durability"]));
    let expected = [
        "produce\" \"memory",
        "produce\" \"written",
        "consume\" \"written",
    ];
    assert_eq!(
        works.collect::<Vec<_>>(),
        expected.map(|names| format!("\"{names}\""))
    );
    for case in cases {
        assert_eq!(case["repetitions"], 2);
        for figure in [
            "events_per_s",
            "raw_bytes_per_s",
            "share_of_raw",
            "client_cpu_ns_per_event",
        ] {
            let [min, median, max] =
                ["min", "median", "max"].map(|which| case[figure][which].as_f64().unwrap());
            assert!(
                0.0 < min && min <= median && median <= max,
                "{figure} of {case}"
            );
        }
    }
}
