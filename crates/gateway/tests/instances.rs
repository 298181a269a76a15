//! Instances, from the request that makes one to the archive.

mod rig;

use rig::{Echo, Rig, is_alive, rest, until};
use serde_json::Value;
use std::io::{Read, Write};
use std::process::Command;
use std::time::Duration;

const RUN42: &str = "stf008-run42.stream.site.org";

fn reaches(running: &rig::Running<'_>) -> bool {
    reaches_by(running, RUN42)
}

fn reaches_by(running: &rig::Running<'_>, name: &str) -> bool {
    let (mut stream, hello) = running.greet(name);
    let mut back = vec![0; hello.len()];
    stream.read_exact(&mut back).is_ok() && back == hello
}

#[test]
fn a_request_makes_a_server_and_says_how_it_is_reached() {
    let mut rig = Rig::new(Echo::start().address);
    let told = rig.directory.path().join("told");
    let script = format!(
        "env | grep THALWEG_ > {0}.tmp; mv {0}.tmp {0}",
        told.display()
    );
    rig.options.on_ready = Some(["sh", "-c", &script].map(str::to_owned).to_vec());
    rig.options.dialled = Some(("gate.site.org".to_owned(), Some(443)));
    let running = rig.start();
    let made = running.provision("run42");
    let text = |key: &str| made[key].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        (text("state"), text("healthStatus"), text("syncStatus")),
        ("ready".into(), "healthy".into(), "synced".into())
    );
    assert_eq!(
        (text("project"), text("username")),
        ("stf008".into(), "stf008".into())
    );
    let token = text("password");
    let bare = token.strip_prefix("thalweg-token-1:").unwrap();
    let hash = "ab".repeat(32);
    let url = format!("thalweg://{bare}@gate.site.org:443/stf008/run42?name={RUN42}&sha256={hash}");
    assert_eq!(text("thalwegUrl"), url);
    assert!(text("thalwegUrlInside").contains("@127.0.0.1:"), "{made}");
    assert_eq!(
        text("amqpsUrl"),
        format!(
            "amqps://stf008:{}@gate.site.org:443",
            token.replace(':', "%3A")
        )
    );
    assert_eq!(text("amqpsServerName"), RUN42);
    until("the command is called", || told.exists());
    let told = std::fs::read_to_string(told).unwrap();
    for line in [
        format!("THALWEG_URL={url}"),
        format!("THALWEG_TOKEN={token}"),
        "THALWEG_INSTANCE=run42".to_owned(),
    ] {
        assert!(told.lines().any(|one| one == line), "{line} in {told}");
    }
    // Who asks again is told the same; a list has no secrets.
    let (_, info) = running.ask("GET", "cluster/run42", "");
    assert_eq!(info["thalwegUrl"], made["thalwegUrl"]);
    let (_, list) = running.ask("GET", "list_clusters", "");
    assert!(!list.to_string().contains(bare));
    // Nor has a line, a file of the gateway's, or the list of processes.
    assert!(!rig.lines().contains(bare));
    assert!(
        !std::fs::read_to_string(rig.folder("run42").join("record.json"))
            .unwrap()
            .contains(bare)
    );
    let command = std::fs::read(format!("/proc/{}/environ", rig.pid("run42").unwrap())).unwrap();
    assert!(!String::from_utf8_lossy(&command).contains(bare));
    running.gateway.stop();
}

#[test]
fn an_instance_that_dies_is_started_again_and_that_is_said() {
    let rig = Rig::new(Echo::start().address);
    let running = rig.start();
    running.provision("run42");
    let first = rig.pid("run42").unwrap();
    let killed = Command::new("kill")
        .args(["-9", &first.to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    until("another one runs", || {
        rig.pid("run42").is_some_and(|pid| pid != first)
    });
    until("it is reached", || reaches(&running));
    assert!(
        rig.lines()
            .contains("stf008/run42: its process ended: signal: 9"),
        "{}",
        rig.lines()
    );
    running.gateway.stop();
}

#[test]
fn an_idle_instance_rests_and_the_next_connection_starts_it() {
    let mut rig = Rig::new(Echo::start().address);
    rig.options.limits.rest = Some(Duration::from_millis(100));
    let running = rig.start();
    running.provision("run42");
    until("it rests", || rig.record("run42")["runs"] == false);
    assert_eq!(rig.pid("run42"), None);
    let before = rig.starts("run42");
    assert!(reaches(&running));
    assert_eq!(rig.starts("run42"), before + 1);
    // While somebody is connected it does not rest.
    let (mut stream, hello) = running.greet(RUN42);
    stream.read_exact(&mut vec![0; hello.len()]).unwrap();
    let starts = rig.starts("run42");
    // One that nobody is connected to rests in the same time, twice.
    running.provision("run43");
    for round in 1..=2 {
        until("the other one rests", || {
            rig.record("run43")["runs"] == false
        });
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        assert!(reaches_by(&running, "stf008-run43.stream.site.org"));
        assert_eq!(rig.starts("run43"), 1 + round);
    }
    assert_eq!(rig.starts("run42"), starts);
    running.gateway.stop();
}

#[test]
fn instances_outlive_a_gateway_that_dies_and_end_with_one_that_ends() {
    let rig = Rig::new(Echo::start().address);
    let running = rig.start();
    let made = running.provision("run42");
    let pid = rig.pid("run42").unwrap();
    // As a death: nothing is told to anybody.
    drop(running);
    assert!(is_alive(pid));
    let running = until_it_starts(&rig);
    assert!(
        rig.lines().contains(&format!("its process {pid} goes on")),
        "{}",
        rig.lines()
    );
    assert!(reaches(&running));
    assert_eq!(rig.starts("run42"), 1);
    let (_, info) = running.ask("GET", "cluster/run42", "");
    // The same token for the same server; this gateway listens at another port.
    let token_of = |said: &Value| {
        let url = said["thalwegUrl"].as_str().unwrap();
        url.split_once('@').unwrap().0.to_owned()
    };
    assert_eq!(token_of(&info), token_of(&made));
    assert_eq!(info["state"], "ready");
    running.gateway.stop();
    until("it has ended", || !is_alive(pid));
    // One that ran when the gateway ended runs again with it.
    let running = rig.start();
    until("it runs", || running.state("run42") == "ready");
    assert_eq!(rig.starts("run42"), 2);
    // One whose process dies without a gateway is started by the next.
    let pid = rig.pid("run42").unwrap();
    drop(running);
    assert!(
        Command::new("kill")
            .args(["-9", &pid.to_string()])
            .status()
            .unwrap()
            .success()
    );
    until("it is dead", || !is_alive(pid));
    let running = until_it_starts(&rig);
    until("it runs", || running.state("run42") == "ready");
    assert_eq!(rig.starts("run42"), 3);
    running.gateway.stop();
}

/// The lock of a gateway that is gone may be held a moment longer.
fn until_it_starts(rig: &Rig) -> rig::Running<'_> {
    until("the directory is free", || {
        let path = rig.options.directory.join("lock");
        let lock = std::fs::File::open(path).unwrap();
        lock.try_lock().is_ok()
    });
    rig.start()
}

#[test]
fn a_gateway_may_leave_its_instances() {
    let mut rig = Rig::new(Echo::start().address);
    rig.options.leave_instances = true;
    let running = rig.start();
    running.provision("run42");
    let pid = rig.pid("run42").unwrap();
    running.gateway.stop();
    assert!(is_alive(pid));
    rig.options.leave_instances = false;
    let running = rig.start();
    assert!(reaches(&running));
    assert_eq!(rig.starts("run42"), 1);
    running.gateway.stop();
    until("it has ended", || !is_alive(pid));
}

#[test]
fn an_instance_lives_for_seven_days_from_its_last_extension_on_and_is_kept_aside() {
    let rig = Rig::new(Echo::start().address);
    let running = rig.start();
    let first = running.provision("run42");
    let day = 24 * 3600;
    running.gateway.clock().pass(6 * day);
    let (status, extended) = running.ask("POST", "extend/run42", "");
    assert_eq!(status, 200);
    assert!(extended["lifetime"]["secondsRemaining"].as_u64().unwrap() > 7 * day - 60);
    // A token is over with the life that it was made for.
    assert_ne!(extended["password"], first["password"]);
    running.gateway.clock().pass(6 * day);
    assert_eq!(running.state("run42"), "ready");
    let pid = rig.pid("run42").unwrap();
    running.gateway.clock().pass(day);
    until("it is gone", || {
        running.ask("GET", "cluster/run42", "").0 == 404
    });
    assert!(!is_alive(pid));
    let (mut stream, _) = running.greet(RUN42);
    assert_eq!(rest(&mut stream).last(), Some(&112));
    let archive = std::fs::read_dir(rig.options.directory.join("archive")).unwrap();
    let kept: Vec<_> = archive.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(kept.len(), 1);
    assert!(kept[0].join("data/access/issuer").exists());
    running.gateway.stop();
}

#[test]
fn what_was_deleted_stays_so_whenever_the_gateway_dies() {
    let rig = Rig::new(Echo::start().address);
    let running = rig.start();
    running.provision("run42");
    running.gateway.stop();
    // It died between the decision and the act.
    let path = rig.folder("run42").join("record.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(
        &path,
        text.replace("\"removed\": false", "\"removed\": true"),
    )
    .unwrap();
    let running = rig.start();
    until("it is archived", || !rig.folder("run42").exists());
    assert_eq!(running.ask("GET", "cluster/run42", "").0, 404);
    running.provision("run42");
    let (status, said) = running.ask("DELETE", "cluster/run42", "");
    assert_eq!((status, &said["success"]), (200, &true.into()));
    assert!(!rig.folder("run42").exists());
    running.gateway.stop();
}

#[test]
fn one_gateway_has_a_directory() {
    let rig = Rig::new(Echo::start().address);
    let running = rig.start();
    let Err(error) = gateway::Gateway::start(rig.options.clone()) else {
        panic!("two have it");
    };
    assert!(
        error.to_string().contains("another gateway has it"),
        "{error}"
    );
    running.gateway.stop();
}
