//! The published experiments at the command line, with small counts.

use crate::rig;

use rig::{Rig, signal, wait};
use serde_json::Value;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};

/// A scenario of few small messages.
fn scenario(rig: &Rig, pattern: &str, more: &str) -> String {
    paced(rig, "message_bytes = 1000", "unlimited", pattern, more)
}

/// The same of messages of this size, at this rate.
fn paced(rig: &Rig, workload: &str, rate: &str, pattern: &str, more: &str) -> String {
    let text = format!(
        "name = \"small\"\nworkload = {{ {workload} }}\npattern = \"{pattern}\"\nconsumers = [2]\n\
         repeat = 1\nrate = \"{rate}\"\nidle_seconds = 3\n{more}\n[settings]\nqueues = 1\n\
         confirms = {{ batch = 16 }}\nacks = {{ every = 16 }}\nprefetch = 16\n"
    );
    std::fs::write(rig.path("small.toml"), text).unwrap();
    "small.toml".to_owned()
}

fn results(rig: &Rig) -> Value {
    let text = std::fs::read_to_string(rig.path("out.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

const RUN: [&str; 5] = ["workload", "run", "--serve", "--json", "out.json"];

#[test]
fn each_pattern_brings_every_message_once() {
    for (pattern, messages, copies, replies) in [
        ("work sharing", 500, 1, 0),
        ("work sharing with feedback", 500, 1, 500),
        ("broadcast", 200, 2, 0),
        ("broadcast and gather", 200, 2, 400),
    ] {
        let rig = Rig::default();
        let file = scenario(&rig, pattern, &format!("messages = {messages}"));
        rig.run(&[&RUN[..], &[&file]].concat()).ok();
        let result = &results(&rig)["runs"][0]["result"];
        assert_eq!(result["pattern"], pattern);
        assert_eq!(result["sent"], messages, "{pattern}");
        assert_eq!(
            result["received"]["distinct"],
            messages * copies,
            "{pattern}"
        );
        assert_eq!(result["unanswered"], 0, "{pattern}");
        match replies {
            0 => assert!(result["rtt"].is_null(), "{pattern}"),
            count => assert_eq!(result["rtt"]["count"], count, "{pattern}"),
        }
    }
}

/// A producer that has many replies outstanding, and consumers whose prefetch is smaller than a batch of
/// acknowledgements.
#[test]
fn a_prefetch_below_a_batch_of_acknowledgements_stops_nobody() {
    let rig = Rig::default();
    let file = scenario(&rig, "work sharing with feedback", "messages = 100");
    let text = std::fs::read_to_string(rig.path(&file)).unwrap();
    std::fs::write(
        rig.path(&file),
        text.replace("prefetch = 16", "prefetch = 3"),
    )
    .unwrap();
    rig.run(&[&RUN[..], &[&file]].concat()).ok();
    assert_eq!(results(&rig)["runs"][0]["result"]["unanswered"], 0);
}

#[test]
fn members_of_a_pack_share_a_process() {
    let rig = Rig::default();
    let file = scenario(&rig, "work sharing", "messages = 300");
    let output = rig.run(&[
        "workload",
        "plan",
        &file,
        "--pack",
        "2",
        "--consumers",
        "1,4",
    ]);
    let text = output.ok();
    assert!(
        text.contains("consumer 3") && text.contains("300 deliveries"),
        "{text}"
    );
    rig.run(&[&RUN[..], &[&file, "--pack", "2", "--consumers", "1,4"]].concat())
        .ok();
    assert_eq!(results(&rig)["runs"].as_array().unwrap().len(), 2);
}

#[cfg(debug_assertions)]
#[test]
fn a_message_that_a_consumer_leaves_out_is_found() {
    let rig = Rig::default();
    let file = scenario(&rig, "broadcast", "messages = 100");
    let mut command = rig.thalweg(&[&RUN[..], &[&file]].concat());
    command.env("THALWEG_WORKLOAD_FAULT", "skip consumer 0");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(
        text.contains("1 messages were taken and did not come"),
        "{text}"
    );
    assert_eq!(results(&rig)["runs"][0]["result"]["received"]["lost"], 1);
}

#[cfg(debug_assertions)]
#[test]
fn a_client_that_dies_before_all_are_ready_is_named() {
    for member in ["consumer 1", "producer 0"] {
        let rig = Rig::default();
        let file = scenario(&rig, "work sharing", "messages = 100");
        let mut command = rig.thalweg(&[&RUN[..], &[&file]].concat());
        command.env("THALWEG_WORKLOAD_FAULT", format!("die {member}"));
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(&format!("{member} is gone")), "{text}");
        assert!(text.contains("exit status: 3"), "{text}");
    }
}

/// The processes whose temporary files are in this directory.
fn processes_of(directory: &Path) -> Vec<String> {
    let variable = format!("TMPDIR={}", directory.display());
    let all = std::fs::read_dir("/proc").unwrap();
    let paths = all.filter_map(|entry| Some(entry.ok()?.path()));
    let ours = paths.filter(|path| {
        let environment = std::fs::read(path.join("environ")).unwrap_or_default();
        let mut variables = environment.split(|byte| *byte == 0);
        variables.any(|one| one == variable.as_bytes())
    });
    ours.map(|path| path.display().to_string()).collect()
}

#[test]
fn an_interrupt_leaves_no_process_and_no_directory() {
    let rig = Rig::default();
    let temporary = rig.path("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let file = scenario(&rig, "work sharing", "seconds = 600");
    let mut child = rig
        .thalweg(&["workload", "run", "--serve", &file])
        .env("TMPDIR", &temporary)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The runner, its server, two consumers, two producers.
    while processes_of(&temporary).len() < 6 {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    signal(child.id(), rustix::process::Signal::INT);
    assert_eq!(wait(&mut child).code(), Some(1));
    assert_eq!(processes_of(&temporary), Vec::<String>::new());
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_run_is_refused_with_what_there_is() {
    for (more, subject) in [
        ("backend = \"kafka\"", "backend"),
        (
            "backend = \"redis\"\narchitecture = \"managed\"",
            "architecture",
        ),
        ("faults = [\"kill server@30%\"]", "faults"),
        ("faults = [\"expire token@30%\"]", "faults"),
        ("faults = [\"expire token@100ms\"]", "faults"),
    ] {
        let rig = Rig::default();
        let file = scenario(&rig, "work sharing", &format!("messages = 100\n{more}"));
        let ran = rig.run(&[&RUN[..], &[&file]].concat()).exits(2);
        assert!(
            ran.stderr.starts_with(&format!("thalweg: {subject}: ")),
            "{}",
            ran.stderr
        );
    }
    let rig = Rig::default();
    let file = scenario(&rig, "work sharing", "messages = 100");
    let ran = rig.run(&["workload", "run", &file]).exits(2);
    assert!(ran.stderr.contains("--serve"), "{}", ran.stderr);
}

/// Starts a run that lasts until it is ended, and waits until so many processes are there.
fn lasting_run(rig: &Rig, temporary: &Path, more: &[&str], fault: &str, count: usize) -> Child {
    std::fs::create_dir(temporary).unwrap();
    let file = scenario(rig, "work sharing", "seconds = 600");
    let mut child = rig
        .thalweg(&[&["workload", "run", "--serve", &file], more].concat())
        .env("TMPDIR", temporary)
        .env("THALWEG_WORKLOAD_FAULT", fault)
        // As a shell starts it: Ctrl-C reaches its group.
        .process_group(0)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while processes_of(temporary).len() < count {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    child
}

fn errors(child: &mut Child) -> String {
    let mut text = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut text).unwrap();
    text
}

/// Ctrl-C reaches the server and the clients too, which are gone when topics could be removed.
#[test]
fn an_interrupt_of_all_processes_waits_for_none_that_has_gone() {
    let rig = Rig::default();
    let temporary = rig.path("temporary");
    let mut child = lasting_run(&rig, &temporary, &[], "", 6);
    rustix::process::kill_process_group(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::INT,
    )
    .unwrap();
    assert_eq!(wait(&mut child).code(), Some(1));
    assert!(errors(&mut child).ends_with("thalweg: the run: was ended by a signal\n"));
    assert_eq!(processes_of(&temporary), Vec::<String>::new());
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
}

/// Its assignment is longer than a pipe holds.
#[cfg(debug_assertions)]
#[test]
fn a_client_that_does_not_read_holds_no_interrupt_up() {
    let rig = Rig::default();
    let temporary = rig.path("temporary");
    let more = ["--pack", "1000", "--consumers", "1000"];
    let mut child = lasting_run(&rig, &temporary, &more, "deaf", 3);
    signal(child.id(), rustix::process::Signal::INT);
    assert_eq!(wait(&mut child).code(), Some(1));
    assert_eq!(processes_of(&temporary), Vec::<String>::new());
}

#[test]
fn a_command_that_is_killed_leaves_no_process() {
    let rig = Rig::default();
    let temporary = rig.path("temporary");
    let mut child = lasting_run(&rig, &temporary, &[], "", 6);
    signal(child.id(), rustix::process::Signal::KILL);
    wait(&mut child);
    while !processes_of(&temporary).is_empty() {
        std::thread::yield_now();
    }
}

/// The process whose command line has this word.
fn process_with(temporary: &Path, word: &str) -> u32 {
    let mut processes = processes_of(temporary).into_iter();
    let found = processes.find(|process| {
        let line = std::fs::read(format!("{process}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0)
            .any(|one| one == word.as_bytes())
    });
    let path = found.expect("it runs");
    path.trim_start_matches("/proc/").parse().unwrap()
}

#[test]
fn a_server_that_ends_is_named_and_its_run_ends() {
    let rig = Rig::default();
    let temporary = rig.path("temporary");
    let more = ["--json", "out.json"];
    let mut child = lasting_run(&rig, &temporary, &more, "", 6);
    signal(
        process_with(&temporary, "serve"),
        rustix::process::Signal::KILL,
    );
    assert_eq!(wait(&mut child).code(), Some(1));
    let text = errors(&mut child);
    assert!(
        text.contains("the server: has ended by itself: signal: 9"),
        "{text}"
    );
    assert_eq!(processes_of(&temporary), Vec::<String>::new());
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
}

#[test]
fn a_file_that_cannot_be_written_is_said_before_anything_is_run() {
    let rig = Rig::default();
    let file = scenario(&rig, "work sharing", "messages = 100");
    let args = [
        "workload",
        "run",
        "--serve",
        &file,
        "--json",
        "none/out.json",
    ];
    let ran = rig.run(&args).exits(1);
    assert!(
        ran.stderr.starts_with("thalweg: none/out.json: "),
        "{}",
        ran.stderr
    );
    assert_eq!(ran.stdout, "");
    // What was measured is shown although the file is full.
    let args = ["workload", "run", "--serve", &file, "--json", "/dev/full"];
    let ran = rig.run(&args).exits(1);
    assert!(ran.stdout.contains("nothing"), "{}", ran.stdout);
    assert!(
        ran.stderr.contains("thalweg: /dev/full: "),
        "{}",
        ran.stderr
    );
}

#[test]
fn results_say_what_they_are_compared_by() {
    let rig = Rig::default();
    let file = scenario(&rig, "work sharing", "messages = 100\nseed = 7");
    rig.run(&[&RUN[..], &[&file]].concat()).ok();
    let document = results(&rig);
    assert!(
        document["made_by"]
            .as_str()
            .unwrap()
            .starts_with("thalweg ")
    );
    assert!(document["host"]["cores"].as_u64().unwrap() > 0);
    assert_eq!(document["scenario"]["seed"], 7);
    let result = &document["runs"][0]["result"];
    assert_eq!(
        (&result["seed"], &result["wanted"]),
        (&7.into(), &100.into())
    );
    assert_eq!(result["transport"], "tcp");
    assert_eq!(result["tls"], false);
    let cpu = &result["cpu_seconds_per_gigabyte"];
    assert!(cpu["server"].as_f64().is_some(), "{cpu}");
    assert!(cpu["clients"].as_f64().unwrap() > 0.0, "{cpu}");
}

#[test]
fn a_measured_rate_is_one_of_the_loop_and_of_one_run() {
    let rig = Rig::default();
    let share = scenario(
        &rig,
        "work sharing",
        "messages = 100\nloop = { share = 0.5 }",
    );
    let text = std::fs::read_to_string(rig.path(&share)).unwrap();
    std::fs::write(rig.path(&share), text.replace("rate = \"unlimited\"\n", "")).unwrap();
    for (measured, more) in [("0", "1"), ("nan", "1"), ("inf", "1"), ("10", "1,2")] {
        let args = [
            "workload",
            "plan",
            &share,
            "--measured",
            measured,
            "--consumers",
            more,
        ];
        let ran = rig.run(&args).exits(2);
        assert!(
            ran.stderr.starts_with("thalweg: --measured: "),
            "{}",
            ran.stderr
        );
    }
    let open = scenario(&rig, "work sharing", "messages = 100");
    let ran = rig
        .run(&["workload", "plan", &open, "--measured", "10"])
        .exits(2);
    assert!(ran.stderr.contains("has no effect"), "{}", ran.stderr);
}

/// What a result calls encrypted is.
#[test]
fn encryption_that_is_not_there_is_refused() {
    let rig = Rig::default();
    let server = rig.serve(&[
        "--listen",
        "tcp://127.0.0.1:0",
        "--group-file",
        "thalweg.json",
    ]);
    let file = scenario(&rig, "work sharing", "messages = 100\ntls = \"yes\"");
    let args = ["workload", "run", &file, "--url", "thalweg.json"];
    let ran = rig.run(&args).exits(2);
    assert!(ran.stderr.contains("tls://"), "{}", ran.stderr);
    drop(server);
}

/// A run in which something is done to a member. It takes two seconds at least, on the fastest machine too, so that
/// the member is met at work.
fn disturbed(pattern: &str, more: &[&str]) -> Value {
    let rig = Rig::default();
    let workload = "message_bytes = 1000, rate_bytes_per_second = 10000000";
    let file = paced(&rig, workload, "enforced", pattern, "messages = 20000");
    let ran = rig.run(&[&RUN[..], &[&file], more].concat());
    let run = results(&rig)["runs"][0].clone();
    assert_eq!(
        ran.status.code(),
        Some(0),
        "{}{}{run:#}",
        ran.stdout,
        ran.stderr
    );
    assert!(
        ran.stdout.contains("messages that were taken is lost"),
        "{}",
        ran.stdout
    );
    run
}

fn number(run: &Value, path: &str) -> u64 {
    run.pointer(path).and_then(Value::as_u64).unwrap()
}

/// All that was taken came, although one of two consumers is gone with what it had.
#[test]
fn a_killed_consumer_takes_nothing_along_that_was_taken() {
    let run = disturbed("work sharing", &["--kill", "consumer@30%"]);
    let result = &run["result"];
    assert_eq!(
        result["missing"],
        serde_json::json!(["consumer 0: kill consumer 0@30%"])
    );
    assert_eq!(result["done"][0]["fault"], "kill consumer 0@30%");
    assert_eq!(number(result, "/confirmed"), 20_000);
    assert_eq!(number(result, "/received/distinct"), 20_000);
    assert_eq!(number(result, "/received/lost"), 0);
    assert_eq!(number(result, "/received/unaccounted"), 0);
    assert!(number(result, "/received/deliveries") >= 20_000);
}

#[test]
fn a_killed_producer_leaves_what_was_taken_of_it() {
    let run = disturbed("work sharing", &["--kill", "producer 1@30%"]);
    let result = &run["result"];
    assert_eq!(number(result, "/received/lost"), 0);
    assert!(number(result, "/received/distinct") >= number(result, "/confirmed"));
    assert_eq!(
        result["missing"],
        serde_json::json!(["producer 1: kill producer 1@30%"])
    );
}

#[test]
fn a_member_that_stood_still_goes_on() {
    for who in ["consumer@20%:300ms", "producer@20%:300ms"] {
        let run = disturbed("work sharing", &["--stop", who]);
        let result = &run["result"];
        assert_eq!(result["missing"], serde_json::json!([]));
        assert_eq!(number(result, "/received/distinct"), 20_000);
        assert!(number(result, "/done/0/received") < 20_000, "{result:#}");
        // Some consumer got nothing meanwhile; of two producers the other one goes on.
        let stood_still = number(result, "/silence_ns") >= 290_000_000;
        assert!(stood_still || who.starts_with("producer"), "{result:#}");
    }
}

#[test]
fn others_of_a_broadcast_miss_nothing_when_one_is_killed() {
    let run = disturbed_broadcast();
    let result = &run["result"];
    assert_eq!(number(result, "/received/lost"), 0);
    let counts = number(result, "/received/distinct") + number(result, "/received/unaccounted");
    assert_eq!(counts, 40_000);
}

fn disturbed_broadcast() -> Value {
    let rig = Rig::default();
    let file = scenario(&rig, "broadcast", "messages = 20000");
    let more = ["--kill", "consumer 1@10%"];
    let ran = rig.run(&[&RUN[..], &[&file], &more].concat());
    let run = results(&rig)["runs"][0].clone();
    assert_eq!(
        ran.status.code(),
        Some(0),
        "{}{}{run:#}",
        ran.stdout,
        ran.stderr
    );
    run
}

#[test]
fn faults_of_the_command_line_are_read_as_those_of_a_file() {
    let rig = Rig::default();
    let file = scenario(
        &rig,
        "work sharing",
        "messages = 100\nfaults = [\"kill producer@9s\"]",
    );
    for (args, says) in [
        (["--kill", "consumer@130%"], "--kill: "),
        (
            ["--kill", "consumer 7@30%"],
            "faults: found \"kill consumer 7@30%\"",
        ),
        (
            ["--stop", "consumer@30%"],
            "--stop: \"consumer@30%\" does not say for how long",
        ),
        (
            ["--kill", "server@30%"],
            "faults: \"kill server@30%\" cannot be done",
        ),
        (["--slow", "server@30%:2s"], "--slow: "),
        (["--cut", "30%"], "--cut: \"30%\" does not say for how long"),
        (["--expire-token", "2s:0s"], "--expire-token: "),
        (["--pack", "2"], "pack: "),
    ] {
        let ran = rig.run(&[&["workload", "plan", &file], &args[..]].concat());
        let ran = ran.exits(2);
        assert!(ran.stderr.contains(says), "{}", ran.stderr);
    }
    // What only a server of its own can have.
    let args = ["workload", "run", &file, "--url", "tcp://127.0.0.1:1"];
    for fault in [["--stop", "server@30%:2s"], ["--expire-token", "2s"]] {
        let ran = rig.run(&[&args[..], &fault].concat()).exits(2);
        assert!(ran.stderr.contains("needs --serve"), "{}", ran.stderr);
    }
    // A fault that comes too late was not done, and that is said.
    let ran = rig.run(&[&RUN[..], &[&file]].concat()).exits(3);
    assert!(
        ran.stdout.contains("kill producer 0@9000ms: was not done"),
        "{}",
        ran.stdout
    );
}

/// The published files of a small experiment, in a directory of their own.
fn published(rig: &Rig) {
    let directory = rig.path("streamsim");
    std::fs::create_dir(&directory).unwrap();
    let experiment = |role: &str| {
        format!(
            r#"{{"role": "{role}", "testType": "throughput", "testPattern": "work-sharing", "testMode": "msgCount",
                "msgCount": 512, "numPhases": [1], "concurrency": 0}}"#
        )
    };
    let workload = r#"{"WorkloadName": "deleria", "PayloadSize": 2000, "PayloadFormat": "binary",
        "PayloadElement": "variable", "DataRate": 4000000, "NumProducers": 2, "NumConsumers": 2,
        "DataPackaging": {"type": "batched", "batchMessageCount": 8}, "Variability": "steady"}"#;
    let tunables = r#"{"Acknowledgements": {"PublisherConfirms": {"type": "batch_sync", "batchSize": 64},
        "ConsumerAcks": {"mode": "manual", "manualAckType": "multiple", "manualAckMultipleCount": 64}},
        "Durability": {"MessageDurability": "none", "QueueDurability": "none"}, "PrefetchCount": {"PerConsumer": 64},
        "QueueProperties": {"QueueStructure": "classic", "QueueSizeMessages": 131072,
        "QueueOverflow": "reject-publish"}, "TotalQueues": 2}"#;
    let framework = r#"{"toolkit": "none", "tlsEncryption": "NoTls", "amqpsUrl": "amqp://user:secret@host:5672/",
        "hostname": "host", "port": 5672, "authentication": {"password": "secret"}, "color": "blue"}"#;
    for (name, text) in [
        ("producer.json", experiment("producer")),
        ("consumer.json", experiment("consumer")),
        ("coordinator.json", experiment("coordinator")),
        ("workload.json", workload.to_owned()),
        ("tunables.json", tunables.to_owned()),
        ("framework.json", framework.to_owned()),
    ] {
        std::fs::write(directory.join(name), text).unwrap();
    }
}

#[test]
fn published_files_are_run_and_converted() {
    let rig = Rig::default();
    published(&rig);
    let text = rig.run(&["workload", "convert", "streamsim"]).ok();
    assert!(
        text.contains("Variability = \"steady\" is ignored: the published program reads it and"),
        "{text}"
    );
    assert!(text.contains("color = \"blue\" is ignored"), "{text}");
    assert!(!text.contains("secret"), "{text}");
    // What was converted is a scenario.
    std::fs::write(
        rig.path("own.toml"),
        text.replace("backend = \"amqp\"", "backend = \"thalweg\""),
    )
    .unwrap();
    let plan = rig.run(&["workload", "plan", "own.toml"]).ok();
    assert!(plan.contains("128 deliveries"), "{plan}");
    let ran = rig.run(&[&RUN[..], &["--streamsim", "streamsim"]].concat());
    assert_eq!(ran.status.code(), Some(0), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("color = \"blue\" is ignored"),
        "{}",
        ran.stderr
    );
    assert!(!ran.stderr.contains("secret"), "{}", ran.stderr);
    let result = &results(&rig)["runs"][0]["result"];
    assert_eq!(number(result, "/received/distinct"), 128);
    assert_eq!(number(result, "/workload/message_bytes"), 16_000);
    // As the published program runs them.
    rig.run(&[&RUN[..], &["--streamsim", "streamsim", "--backend", "amqp"]].concat())
        .ok();
    let result = &results(&rig)["runs"][0]["result"];
    assert_eq!(result["transport"], "amqp");
    assert_eq!(number(result, "/received/distinct"), 128);
}

#[test]
fn a_role_that_is_not_there_or_there_twice_is_named() {
    let rig = Rig::default();
    published(&rig);
    let workload = rig.path("streamsim/workload.json");
    std::fs::copy(&workload, rig.path("streamsim/again.json")).unwrap();
    let ran = rig.run(&["workload", "convert", "streamsim"]).exits(2);
    assert!(
        ran.stderr
            .contains("again.json and streamsim/workload.json are both a workload"),
        "{}",
        ran.stderr
    );
    std::fs::remove_file(rig.path("streamsim/again.json")).unwrap();
    std::fs::remove_file(workload).unwrap();
    let ran = rig.run(&["workload", "convert", "streamsim"]).exits(2);
    assert!(
        ran.stderr.contains("there is no file with a workload"),
        "{}",
        ran.stderr
    );
}

#[test]
fn experiments_are_listed_and_results_laid_beside_each_other() {
    let rig = Rig::default();
    let text = rig.run(&["workload", "list"]).ok();
    assert!(text.contains("dstream-sharing"), "{text}");
    assert!(text.contains("work sharing with feedback"), "{text}");
    let file = scenario(&rig, "work sharing with feedback", "messages = 200");
    rig.run(&[&RUN[..], &[&file]].concat()).ok();
    std::fs::copy(rig.path("out.json"), rig.path("other.json")).unwrap();
    let args = [
        "workload",
        "page",
        "out.json",
        "other.json",
        "--out",
        "page.html",
    ];
    rig.run(&args).ok();
    let page = std::fs::read_to_string(rig.path("page.html")).unwrap();
    for part in [
        "<svg",
        "small: work sharing with feedback",
        "<b>other</b>",
        "Time to the reply, 2 consumers",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}
