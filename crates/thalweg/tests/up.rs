//! A cluster that is started and ended by one command each.

use crate::rig;

use rig::{Ran, Rig, WATCHDOG, collect, signal, wait};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Stands for ssh: notes its arguments, and has a shell run the last one, as sshd does. Host `silent` does nothing.
const SSH: &str = r#"#!/bin/sh
for word in "$@"; do printf '%s\n' "$word" >> "$NOTED"; last=$word; done
case " $* " in *" silent "*) while read -r line; do :; done; exit 0;; esac
cd / && exec sh -c "$last"
"#;

/// Stands for srun and mpiexec: runs the rest of its arguments as often as is asked for, with the variables of the
/// launcher, and ends when all have.
const LAUNCHER: &str = r#"#!/bin/sh
name=$(basename "$0")
printf '%s\n' "$name" "$@" >> "$NOTED"
while :; do
    case "$1" in
        --ntasks=*) size=${1#--ntasks=} ;;
        -n) size=$2; shift ;;
        --host) shift ;;
        -*) ;;
        *) break ;;
    esac
    shift
done
rank=0
while [ $rank -lt $size ]; do
    case $name in
        srun) SLURM_PROCID=$rank SLURM_NTASKS=$size "$@" & ;;
        mpiexec) PMI_RANK=$rank PMI_SIZE=$size "$@" & ;;
    esac
    rank=$((rank + 1))
done
# They have the signal as well: it is to all of the group.
trap : TERM
wait
wait
"#;

/// A directory in which clusters are started. What runs of them is killed at its end.
#[derive(Default)]
struct Site {
    rig: Rig,
}

impl Site {
    /// With programs that stand for these.
    fn with(programs: &[(&str, &str)]) -> Self {
        let site = Self::default();
        std::fs::create_dir(site.rig.path("bin")).unwrap();
        for (name, text) in programs {
            let path = site.rig.path("bin").join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        site
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.rig.thalweg(words);
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", self.rig.path("bin").display());
        command
            .env("PATH", path)
            .env("NOTED", self.rig.path("noted"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // What a launcher says that runs the tests.
        for name in ["SLURM_PROCID", "SLURM_NTASKS", "PMI_RANK", "PMI_SIZE"] {
            command.env_remove(name);
        }
        command
    }

    fn run(&self, words: &[&str]) -> Ran {
        Ran::of(words, self.command(words).output().unwrap())
    }

    fn up(&self, words: &[&str]) -> Ran {
        self.run(&[&["up", "data", "--cluster", "shared"], words].concat())
    }

    /// What was noted by a program that stands for another.
    fn noted(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.rig.path("noted")).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// The processes that were started here, but for one.
    fn processes_but(&self, but: Option<u32>) -> Vec<(u32, String)> {
        let here = self.rig.path("").display().to_string();
        let here = here.trim_end_matches('/');
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            // One that has ended has no words.
            let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).replace('\0', " ");
            if words.contains(here) && Some(pid) != but {
                found.push((pid, words));
            }
        }
        found
    }

    /// Waits until nothing of it runs, but for one process.
    #[track_caller]
    fn until_nothing_runs_but(&self, but: Option<u32>) {
        let until = Instant::now() + WATCHDOG;
        loop {
            let found = self.processes_but(but);
            if found.is_empty() {
                return;
            }
            assert!(Instant::now() < until, "{found:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[track_caller]
    fn produce_and_consume(&self, topic: &str) {
        self.rig.run(&["topic", "create", topic]).ok();
        self.rig.run_with(&["produce", topic], "1\n2\n3\n").ok();
        let read = self.rig.run(&["consume", topic, "--name", "one"]).ok();
        assert_eq!(read.lines().count(), 3, "{read}");
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for (pid, _) in self.processes_but(None) {
            let _ = Pid::from_raw(pid as i32).map(|pid| kill_process(pid, Signal::KILL));
        }
    }
}

fn pids(lines: &[Value]) -> Vec<u64> {
    let lines = lines.iter();
    lines.filter_map(|line| line["pid"].as_u64()).collect()
}

fn started(lines: &[Value]) -> Vec<bool> {
    let lines = lines.iter();
    lines.filter_map(|line| line["started"].as_bool()).collect()
}

#[test]
fn a_cluster_comes_up_and_down_and_up_again_with_its_events() {
    let site = Site::default();
    let first = site.up(&["--json"]).json();
    assert_eq!(started(&first), [true; 3]);
    assert_eq!(first[3]["servers"], 3);
    assert_eq!(
        first[3]["group_file"],
        site.rig.group_file().to_str().unwrap()
    );
    let named = std::fs::read_to_string(site.rig.group_file()).unwrap();
    let named: Value = serde_json::from_str(&named).unwrap();
    assert_eq!(named["others"].as_array().map(Vec::len), Some(2), "{named}");
    for number in 0..4 {
        site.produce_and_consume(&format!("run.{number}"));
    }

    // What runs is left as it is.
    let again = site.up(&["--json"]).json();
    assert_eq!(started(&again), [false; 3]);
    assert_eq!(pids(&again), pids(&first));
    signal(pids(&first)[1] as u32, Signal::KILL);
    let mended = site.up(&["--json"]).json();
    assert_eq!(started(&mended), [false, true, false]);
    // One more, which joins.
    let four = site.up(&["--per-node", "4", "--json"]).json();
    assert_eq!(started(&four), [false, false, false, true]);
    assert_eq!(site.processes_but(None).len(), 4);

    let down = site.rig.run(&["down", "--json"]).json();
    assert_eq!(down.len(), 4);
    assert!(down.iter().all(|line| line["state"] == "ended"), "{down:?}");
    assert_eq!(site.processes_but(None), []);
    let nobody = site.rig.run(&["down"]).exits(5);
    assert!(
        nobody.stderr.contains("none of the servers"),
        "{}",
        nobody.stderr
    );

    let text = site.up(&["--per-node", "4"]).ok();
    assert_eq!(text.matches("is ready").count(), 4, "{text}");
    for number in 0..4 {
        let topic = format!("run.{number}");
        let read = site.rig.run(&["consume", &topic, "--name", "two"]).ok();
        assert_eq!(read.lines().count(), 3, "{read}");
    }
    site.rig.run(&["audit"]).exits(0);
    site.rig.run(&["down"]).ok();
    assert_eq!(site.processes_but(None), []);
}

#[test]
fn servers_outlive_the_command_its_session_and_its_terminal() {
    let site = Site::default();
    let lines = site.up(&["--per-node", "1", "--json"]).json();
    // In a container the own session may be one of outside, which has no number here: 0.
    let session_and_terminal = |process: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        let fields: Vec<i64> = rest
            .split(' ')
            .skip(3)
            .map_while(|field| field.parse().ok())
            .collect();
        (fields[0], fields[1])
    };
    let (session, terminal) = session_and_terminal(&pids(&lines)[0].to_string());
    assert_ne!(session, session_and_terminal("self").0);
    assert_eq!(terminal, 0);
    site.produce_and_consume("t");
    site.rig.run(&["down"]).ok();
    site.until_nothing_runs_but(None);
}

#[test]
fn ssh_starts_them_with_names_that_a_shell_would_take_apart() {
    let site = Site::with(&[("ssh", SSH)]);
    let words = ["--nodes", "one,two", "--per-node", "2", "--json"];
    let up = [
        &["up", "it's data", "--cluster", "a $HOME dir"],
        &words[..],
        // Names of hosts that there are not.
        &["--", "--cluster-listen", "tls://127.0.0.1:0"],
    ]
    .concat();
    let lines = site.run(&up).json();
    assert_eq!(started(&lines), [true; 4]);
    for rank in 0..4 {
        assert!(site.rig.path(&format!("it's data-{rank}/lock")).is_file());
        assert!(
            site.rig
                .path(&format!("a $HOME dir/logs/rank-{rank}.log"))
                .is_file()
        );
    }
    let noted = site.noted();
    for host in ["one", "two"] {
        let times = noted.iter().filter(|word| *word == host).count();
        assert_eq!(times, 2, "{noted:?}");
    }
    assert_eq!(
        noted.iter().filter(|word| *word == "BatchMode=yes").count(),
        4
    );
    site.produce_and_consume("t");
    assert_eq!(started(&site.run(&up).json()), [false; 4]);
    site.rig.run(&["down"]).ok();
    site.until_nothing_runs_but(None);
}

#[test]
fn a_launcher_starts_all_and_ends_with_them() {
    let site = Site::with(&[("srun", LAUNCHER), ("mpiexec", LAUNCHER)]);
    let further = [
        "--",
        "--listen",
        "tls://127.0.0.1:0",
        "--cluster-listen",
        "tls://127.0.0.1:0",
    ];
    for (via, wanted) in [
        (
            "srun",
            &["--nodelist=n1,n2", "--ntasks=4", "--ntasks-per-node=2"][..],
        ),
        ("mpiexec", &["-n", "4", "--host", "n1:2,n2:2"]),
    ] {
        let words = [
            "--nodes",
            "n[1-2]",
            "--per-node",
            "2",
            "--via",
            via,
            "--json",
        ];
        let words = [&words[..], &further].concat();
        let lines = site.up(&words).json();
        assert_eq!(started(&lines), [true; 4]);
        let noted = site.noted();
        for word in wanted {
            assert!(noted.iter().any(|noted| noted == word), "{word}: {noted:?}");
        }
        site.produce_and_consume(via);
        assert_eq!(started(&site.up(&words).json()), [false; 4]);
        // It starts all or none.
        let more = [&words[..2], &["--per-node", "3", "--via", via], &further].concat();
        let refused = site.up(&more).exits(1);
        assert!(
            refused.stderr.contains("4 of 6 servers run"),
            "{}",
            refused.stderr
        );
        site.rig.run(&["down"]).ok();
        site.until_nothing_runs_but(None);
    }
}

#[test]
fn a_server_that_cannot_start_is_reported_and_the_others_end() {
    let site = Site::with(&[("srun", LAUNCHER)]);
    let taken = site.rig.serve_on("data-1", &["--group-file", "own.json"]);
    let taken = site.rig.until_ready(taken);
    let srun = ["--nodes", "n", "--per-node", "3", "--via", "srun"];
    // The others would wait for it for longer than this test does.
    let further = ["--", "--cluster-wait-ms", "3600000"];
    for words in [&[][..], &srun] {
        let failed = site.up(&[words, &further].concat()).exits(1);
        assert!(failed.stderr.contains("rank 1 on "), "{}", failed.stderr);
        assert!(failed.stderr.contains("exit code 6"), "{}", failed.stderr);
        // What its log says of that.
        assert!(failed.stderr.contains("data-1"), "{}", failed.stderr);
        assert_eq!(failed.stdout, "");
        site.until_nothing_runs_but(Some(taken.pid()));
    }
    let other = site.up(&["--group-file", "own.json"]).exits(1);
    assert!(
        other.stderr.contains("another --group-file"),
        "{}",
        other.stderr
    );
    let (status, _) = taken.terminate();
    assert!(status.success());
}

#[test]
fn what_was_started_ends_when_time_is_over_or_the_user_wants_it() {
    let site = Site::with(&[("ssh", SSH)]);
    let hosts = ["--nodes", "one,two,silent"];
    let further = ["--", "--cluster-listen", "tls://127.0.0.1:0"];
    let words = [&["up", "data", "--cluster", "shared"], &hosts[..], &further].concat();
    let mut up = site.command(&words).spawn().unwrap();
    let log = collect(up.stderr.take().unwrap());
    // Two wait for the third.
    let until = Instant::now() + WATCHDOG;
    while !(0..2).all(|rank| site.rig.path(&format!("shared/rank-{rank}.json")).exists()) {
        assert!(Instant::now() < until, "{}", log.text());
        thread::sleep(Duration::from_millis(5));
    }
    signal(up.id(), Signal::INT);
    assert_eq!(wait(&mut up).code(), Some(1));
    let log = log.whole();
    assert!(log.contains("interrupted"), "{log}");
    site.until_nothing_runs_but(None);

    let late = [&hosts[..], &["--timeout", "0.5"], &further].concat();
    let late = site.up(&late).exits(4);
    assert!(
        late.stderr.contains("not ready after 0.5 s: rank"),
        "{}",
        late.stderr
    );
    site.until_nothing_runs_but(None);
}

#[test]
fn a_command_that_dies_while_it_waits_leaves_no_servers() {
    let site = Site::with(&[("ssh", SSH)]);
    let words = ["up", "data", "--cluster", "shared", "--nodes", "one,silent"];
    let mut up = site.command(&words).spawn().unwrap();
    let until = Instant::now() + WATCHDOG;
    while !site.rig.path("shared/logs/rank-0.log").exists() {
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(5));
    }
    up.kill().unwrap();
    up.wait().unwrap();
    site.until_nothing_runs_but(None);
}

#[test]
fn a_server_that_is_not_reached_is_reported_and_the_others_end() {
    let site = Site::default();
    let lines = site.up(&["--json"]).json();
    let text = std::fs::read_to_string(site.rig.group_file()).unwrap();
    let group: Value = serde_json::from_str(&text).unwrap();
    // Not the one that wrote the file last.
    let stuck = lines
        .iter()
        .find(|line| !line["pid"].is_null() && line["endpoints"] != group["endpoints"]);
    let stuck = stuck.unwrap();
    let pid = stuck["pid"].as_u64().unwrap() as u32;
    signal(pid, Signal::STOP);
    let down = site.rig.run(&["down"]).exits(1);
    let name = format!("rank {} on ", stuck["rank"]);
    assert!(down.stderr.contains(&name), "{}", down.stderr);
    let remedy = format!("`kill {pid}` on ");
    assert!(down.stderr.contains(&remedy), "{}", down.stderr);
    assert!(down.stdout.contains("was not reached"), "{}", down.stdout);
    assert_eq!(
        down.stdout.matches("has ended").count(),
        2,
        "{}",
        down.stdout
    );
    let left = site.processes_but(None);
    assert_eq!(left.iter().map(|(pid, _)| *pid).collect::<Vec<_>>(), [pid]);
}

#[test]
fn a_dry_run_prints_what_a_shell_can_run_and_starts_nothing() {
    let site = Site::default();
    let shown = site.up(&["--dry-run", "--per-node", "2"]).ok();
    assert_eq!(shown.lines().count(), 2, "{shown}");
    assert!(shown.contains("--rank 1 --size 2 --"), "{shown}");
    assert_eq!(
        rig::files(&site.rig.path("")),
        Vec::<std::path::PathBuf>::new()
    );
    assert!(!site.rig.path("shared").exists());
    let refused = site.up(&["--", "--nonsense"]).exits(2);
    assert!(refused.stderr.contains("--nonsense"), "{}", refused.stderr);
}
