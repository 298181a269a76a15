//! The command on servers of one cluster.

use crate::rig;

use rig::{Rig, ServerProcess};
use serde_json::Value;
use std::time::Instant;

/// Three servers, started at once, that write one group file.
pub fn start(rig: &Rig) -> Vec<ServerProcess> {
    let started: Vec<_> = (0..3).map(|rank| serve(rig, rank, 3)).collect();
    started
        .into_iter()
        .map(|one| rig.until_ready(one))
        .collect()
}

/// One more, of the next rank.
pub fn join(rig: &Rig, rank: u32) -> ServerProcess {
    rig.until_ready(serve(rig, rank, rank + 1))
}

fn serve(rig: &Rig, rank: u32, size: u32) -> ServerProcess {
    serve_with(rig, (rank, size), &[])
}

/// Waits for other servers for longer than any test does.
const LONG: [&str; 2] = ["--cluster-wait-ms", "86400000"];

fn serve_with(rig: &Rig, ranks: (u32, u32), further: &[&str]) -> ServerProcess {
    serve_at(rig, "data-{rank}", ranks, further)
}

fn serve_at(
    rig: &Rig,
    directory: &str,
    (rank, size): (u32, u32),
    further: &[&str],
) -> ServerProcess {
    let (rank, size) = (rank.to_string(), size.to_string());
    let listen = "tls://127.0.0.1:0";
    let own = [
        "--cluster",
        "shared",
        "--rank",
        &rank,
        "--size",
        &size,
        "--cluster-listen",
        listen,
    ];
    rig.serve_on(directory, &[&own, further].concat())
}

fn status(rig: &Rig) -> Value {
    rig.run(&["status", "--json"]).json().remove(0)
}

#[test]
fn all_commands_find_the_topics_of_all_servers_and_say_which_one_is_away() {
    let rig = Rig::default();
    let mut servers = start(&rig);
    let names: Vec<String> = (0..9).map(|number| format!("run.{number}")).collect();
    for name in &names {
        rig.run(&["topic", "create", name]).ok();
        rig.run_with(&["produce", name], "1\n2\n3\n").ok();
    }
    let text = rig.run(&["status"]).ok();
    assert!(text.contains("3 nodes, 9 topics"), "{text}");
    assert_eq!(text.matches("serving").count(), 2, "{text}");
    for name in &names {
        let read = rig.run(&["consume", name, "--name", "one"]).ok();
        assert_eq!(read.lines().count(), 3, "{name}: {read}");
    }
    rig.run(&["audit"]).exits(0);
    let token = rig
        .run(&["token", "new", "--directory", "data-1", "--project", "p"])
        .ok();
    // One key of all servers: it is taken by whichever has the topic.
    let file = rig.path("token.txt").display().to_string();
    std::fs::write(&file, token).unwrap();
    for number in 0..6 {
        let name = format!("of-p.{number}");
        rig.run(&["topic", "create", &name, "--namespace", "p"])
            .ok();
        let described = ["topic", "describe", &name, "--credential", &file];
        rig.run(&described).ok();
    }
    let checked = rig.run(&["serve", "data-0", "--check"]).exits(1);
    assert!(
        checked.stdout.contains("start it with --cluster"),
        "{}",
        checked.stdout
    );

    // One dies: the others say so, and of its topics what they know.
    servers.remove(0).kill();
    let until = Instant::now() + rig::WATCHDOG;
    let away = |status: &Value| {
        let nodes = status["nodes"].as_array().unwrap();
        nodes.iter().filter(|node| node["state"] == "away").count()
    };
    while away(&status(&rig)) < 1 {
        assert!(Instant::now() < until, "{}", status(&rig));
    }
    let text = rig.run(&["status"]).ok();
    assert!(text.contains("is away"), "{text}");
    // Nothing moves from it, which is said at once, and it is not drained by that.
    let nodes = rig.run(&["nodes", "list", "--json"]).json();
    let dead = nodes.iter().find(|node| node["state"] == "away").unwrap();
    let dead = dead["node"].to_string();
    let refused = rig.run(&["nodes", "drain", &dead]).exits(5);
    assert!(
        refused.stderr.contains("is not reached"),
        "{}",
        refused.stderr
    );
    assert_eq!(away(&status(&rig)), 1);
    let listed = rig.run(&["topic", "list", "--json"]).json();
    assert_eq!(listed.len(), names.len());
    rig.run(&["topic", "create", "run.new"]).ok();
    rig.run_with(&["produce", "run.new"], "1\n").ok();

    servers.push(rig.until_ready(serve(&rig, 0, 3)));
    for name in &names {
        let read = rig.run(&["consume", name, "--name", "two"]);
        assert_eq!(read.ok().lines().count(), 3, "{name}");
    }
    for server in servers {
        let (status, log) = server.terminate();
        assert_eq!(status.code(), Some(0), "{log}");
    }
}

#[test]
fn a_cluster_that_cannot_be_is_refused_with_what_to_do() {
    let rig = Rig::default();
    for (arguments, why) in [
        (vec!["--cluster", "shared"], "give --rank and --size"),
        (vec!["--rank", "0"], "is of no use without cluster"),
        (
            vec![
                "--cluster",
                "shared",
                "--rank",
                "0",
                "--size",
                "1",
                "--amqp",
                "tcp://127.0.0.1:0",
            ],
            "AMQP",
        ),
        (
            vec![
                "--cluster",
                "shared",
                "--rank",
                "0",
                "--size",
                "1",
                "--voters",
                "2",
            ],
            "1, 3 or 5",
        ),
        (
            vec![
                "--cluster",
                "shared",
                "--rank",
                "0",
                "--size",
                "1",
                "--cluster-listen",
                "tcp://0.0.0.0:0",
            ],
            "tls://",
        ),
    ] {
        let refused = rig.run(&[&["serve", "data"], &arguments[..]].concat());
        assert_ne!(refused.status.code(), Some(0));
        assert!(
            refused.stderr.contains(why),
            "{arguments:?}: {}",
            refused.stderr
        );
    }
    let alone = [
        "--cluster",
        "shared",
        "--rank",
        "1",
        "--size",
        "3",
        "--cluster-wait-ms",
        "100",
    ];
    let refused = rig.run(&[&["serve", "data"], &alone[..]].concat());
    assert!(refused.stderr.contains("rank-0.json"), "{}", refused.stderr);
}

#[test]
fn a_signal_ends_a_server_that_waits_for_others_and_it_names_them() {
    let rig = Rig::default();
    let founder = serve_with(&rig, (0, 3), &LONG);
    founder.wait_for_log("waiting for other servers");
    let (status, log) = founder.terminate();
    assert_eq!(status.code(), Some(0), "{log}");
    let last = log.lines().last().unwrap_or_default();
    for rank in ["rank 1, ", "rank 2, "] {
        assert!(last.contains(rank), "{log}");
    }

    for server in start(&rig) {
        let (status, log) = server.terminate();
        assert_eq!(status.code(), Some(0), "{log}");
    }
    // It goes on by itself, and most of the voters are missing.
    let member = serve_with(&rig, (1, 3), &LONG);
    member.wait_for_log("server 1 of 3 of cluster");
    let (status, log) = member.terminate();
    assert_eq!(status.code(), Some(0), "{log}");
    let last = log.lines().last().unwrap_or_default();
    assert!(last.contains("more than half of its 3 voters"), "{log}");
}

#[test]
fn a_rank_that_a_running_server_has_is_refused_and_that_one_stays_where_others_look() {
    let rig = Rig::default();
    let servers = start(&rig);
    let pid = servers[1].pid();
    let second = serve_at(&rig, "other", (1, 3), &[]);
    second.wait_for_log("rank 1 is in use");
    let log = second.log();
    assert!(log.contains(&format!("process {pid} on ")), "{log}");
    assert!(log.contains("nodes remove"), "{log}");
    assert_eq!(second.wait().code(), Some(1));
    let file = std::fs::read_to_string(rig.path("shared/rank-1.json")).unwrap();
    let file: Value = serde_json::from_str(&file).unwrap();
    assert_eq!(file["pid"], pid, "{file}");
    // What it says is enough for one that joins.
    drop(join(&rig, 3));
    for server in servers {
        let (status, log) = server.terminate();
        assert_eq!(status.code(), Some(0), "{log}");
    }
}
