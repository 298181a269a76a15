//! What `thalweg up` runs: which server is on which host, and the commands that start them.

use super::args::{PerNode, UpArgs, Via};
use super::hosts;
use crate::cli::{Cli, Command as Parsed};
use crate::connection::duration;
use crate::failure::{About, Code, Failure};
use clap::Parser;
use server::cluster::RANKS_MAX;
use server::{Interfaces, Origin};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// In a path: the rank.
const RANK: &str = "{rank}";
/// Servers on this host, where no others are named.
const PER_NODE_ALONE: u32 = 3;
/// The setting by which the servers of a host take its interfaces in turn.
const EACH: &str = "each";
/// Where servers listen for clients that are on other hosts.
const LISTEN: &str = "tls://0.0.0.0:0";
/// Where servers of one host listen for each other.
const CLUSTER_LISTEN: &str = "tls://127.0.0.1:0";

/// What is to be started.
#[derive(Debug)]
pub struct Plan {
    pub via: Via,
    /// Each once; empty where this host is the only one and is not named.
    hosts: Vec<String>,
    per_node: u32,
    /// How many servers there are.
    pub size: u32,
    pub directory: PathBuf,
    pub group_file: PathBuf,
    pub timeout: Duration,
    program: String,
    /// What each server takes, but for its rank.
    serve: Vec<String>,
}

impl Plan {
    /// Of the arguments and the environment.
    ///
    /// # Errors
    /// If they cannot be right: no server is started to find that out.
    pub fn of(args: &UpArgs) -> Result<Self, Failure> {
        let variable = |name: &str| std::env::var(name).ok();
        let (via, hosts) = means(args, variable)?;
        let by_nic = args.per_node == Some(PerNode::Nic);
        let per_node = match (args.per_node, hosts.len()) {
            (Some(PerNode::Count(count)), _) => count,
            (Some(PerNode::Nic), _) => interfaces()?,
            (None, 0) => PER_NODE_ALONE,
            (None, _) => 1,
        };
        let size = (hosts.len().max(1) as u64) * u64::from(per_node);
        if size > u64::from(RANKS_MAX) {
            let why = format!("{size} servers are more than {RANKS_MAX}");
            return Err(Failure::usage("--per-node", why));
        }
        let size = size as u32;
        if let Some(voters) = args.voters.filter(|voters| *voters > size) {
            let why = format!("{voters} voters are more than the {size} servers that are started");
            return Err(Failure::usage("--voters", why));
        }
        let mut data = absolute(Path::new(&args.data))?;
        if !data.contains(RANK) {
            data = format!("{}-{RANK}", data.trim_end_matches('/'));
        }
        let program = std::env::current_exe().about("this program")?;
        let (directory, group_file) = (
            absolute(Path::new(&args.cluster))?,
            absolute(&args.group_file)?,
        );
        let mut plan = Self {
            via,
            hosts,
            per_node,
            size,
            timeout: duration(args.timeout),
            program: absolute(&program)?,
            serve: [&data, "--cluster", &directory, "--group-file", &group_file]
                .map(str::to_owned)
                .to_vec(),
            directory: directory.into(),
            group_file: group_file.into(),
        };
        for (flag, value) in [
            ("--shards", args.shards.clone()),
            ("--voters", args.voters.map(|voters| voters.to_string())),
            ("--nic", by_nic.then(|| EACH.to_owned())),
        ] {
            plan.serve
                .extend(value.into_iter().flat_map(|value| [flag.to_owned(), value]));
        }
        plan.serve.extend(args.further.iter().cloned());
        plan.complete(by_nic, variable)?;
        Ok(plan)
    }

    /// Adds the settings that follow from where the servers are, unless the user has said them. They are checked here, as a
    /// server would.
    fn complete(
        &mut self,
        by_nic: bool,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<(), Failure> {
        let size = self.size.to_string();
        let own = ["thalweg", "serve", "--json", "--rank", "0", "--size", &size];
        let parsed =
            Cli::try_parse_from(own.into_iter().chain(self.serve.iter().map(String::as_str)));
        let parsed = parsed.map_err(|error| Failure::usage("thalweg serve", error))?;
        let Parsed::Serve(serve) = parsed.command else {
            unreachable!("the words say serve");
        };
        if serve.only_checks() {
            return Err(Failure::usage(
                "--check",
                "thalweg up starts servers: leave it out",
            ));
        }
        // What is set here is not known to a host that ssh leads to.
        let variable = |name: &str| variable(name).filter(|_| self.via != Via::Ssh);
        let settings = serve.settings(variable);
        let settings = settings.map_err(|error| Failure::usage("settings", error))?;
        settings
            .config()
            .map_err(|error| Failure::usage("settings", error))?;
        let wait_ms = self.timeout.as_millis().clamp(1, u32::MAX.into());
        let by_host = match self.via {
            Via::Local if !by_nic => (
                "cluster_listen",
                "--cluster-listen",
                CLUSTER_LISTEN.to_owned(),
            ),
            _ => ("listen", "--listen", LISTEN.to_owned()),
        };
        let more = [
            by_host,
            ("cluster_wait_ms", "--cluster-wait-ms", wait_ms.to_string()),
        ];
        for (key, flag, value) in more {
            let is_default = settings.rows().any(|(setting, _, origin)| {
                setting.key == key && matches!(origin, Origin::Default)
            });
            if is_default {
                self.serve.extend([flag.to_owned(), value]);
            }
        }
        Ok(())
    }

    /// Where logs are.
    pub fn logs(&self) -> PathBuf {
        self.directory.join("logs")
    }

    /// The host of a server; `None` is this one.
    pub fn host_of(&self, rank: u32) -> Option<&str> {
        let host = self.hosts.get((rank / self.per_node) as usize);
        host.map(String::as_str)
    }

    /// Starts one server: for [`Via::Local`] and [`Via::Ssh`].
    pub fn command_of(&self, rank: u32) -> Vec<String> {
        let (rank_text, size) = (rank.to_string(), self.size.to_string());
        let own = ["--rank", &rank_text, "--size", &size];
        let command = self.launch(&own.map(str::to_owned));
        match (self.via, self.host_of(rank)) {
            (Via::Ssh, Some(host)) => {
                let line = format!("exec {}", shell_line(&command));
                // What is quoted here is read by a shell there.
                let ssh = ["ssh", "-T", "-o", "BatchMode=yes", host, &line];
                ssh.map(str::to_owned).to_vec()
            }
            _ => command,
        }
    }

    /// Starts all servers: for [`Via::Srun`] and [`Via::Mpiexec`].
    pub fn command_of_all(&self) -> Vec<String> {
        let (size, per_node) = (self.size, self.per_node);
        let mut words: Vec<String> = match self.via {
            // Steps that come later share the processors, and one server that fails is no reason to end the others.
            Via::Srun => [
                "srun".to_owned(),
                "--overlap".to_owned(),
                "--kill-on-bad-exit=0".to_owned(),
                "--wait=0".to_owned(),
                format!("--nodes={}", self.hosts.len()),
                format!("--nodelist={}", self.hosts.join(",")),
                format!("--ntasks={size}"),
                format!("--ntasks-per-node={per_node}"),
                "--distribution=block".to_owned(),
            ]
            .to_vec(),
            _ => ["mpiexec".to_owned(), "-n".to_owned(), size.to_string()].to_vec(),
        };
        if self.via == Via::Mpiexec && !self.hosts.is_empty() {
            let hosts = self.hosts.iter();
            let hosts: Vec<_> = hosts.map(|host| format!("{host}:{per_node}")).collect();
            words.extend(["--host".to_owned(), hosts.join(",")]);
        }
        words.extend(self.launch(&[]));
        words
    }

    /// The program as it is run beside a server, which has the server's log in a file.
    fn launch(&self, which: &[String]) -> Vec<String> {
        let log = self.logs().join(format!("rank-{RANK}.log"));
        let log = log.to_string_lossy().into_owned();
        let begin = [self.program.as_str(), "launch", "server", "--log", &log];
        let mut words: Vec<String> = begin.map(str::to_owned).to_vec();
        words.extend_from_slice(which);
        words.push("--".to_owned());
        words.extend(self.serve.iter().cloned());
        words
    }

    /// The same as a program that lives on in a session of its own.
    pub fn in_session(&self, words: Vec<String>) -> Vec<String> {
        let begin = [self.program.as_str(), "launch", "session", "--"];
        begin.into_iter().map(str::to_owned).chain(words).collect()
    }
}

/// How servers are started, and on which hosts.
fn means(
    args: &UpArgs,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<(Via, Vec<String>), Failure> {
    let via = args.via.unwrap_or(match args.nodes.as_deref() {
        None => Via::Local,
        Some("@slurm") => Via::Srun,
        Some(_) => Via::Ssh,
    });
    let nodes = match (&args.nodes, via) {
        (Some(_), Via::Local) => {
            let why = "--via local starts servers on this host: leave it out, or --nodes";
            return Err(Failure::usage("--nodes", why));
        }
        (None, Via::Ssh) => {
            return Err(Failure::usage("--via ssh", "say where by --nodes"));
        }
        (None, Via::Srun) => Some("@slurm"),
        (nodes, _) => nodes.as_deref(),
    };
    let hosts = nodes.map(|nodes| hosts::of(nodes, variable)).transpose()?;
    Ok((via, hosts.unwrap_or_default()))
}

/// How many servers a host has that has one for each of its network interfaces.
fn interfaces() -> Result<u32, Failure> {
    let usable = Interfaces::of_host().map(|all| all.usable());
    let usable = usable.map_err(|error| Failure::new(Code::Failure, "--per-node nic", error))?;
    match usable.len() {
        0 => {
            let why = "no network interface of hardware is up on this host and has an address";
            Err(Failure::usage("--per-node nic", why))
        }
        count => Ok(count as u32),
    }
}

/// A path that means the same wherever a command is run.
fn absolute(path: &Path) -> Result<String, Failure> {
    let subject = path.display().to_string();
    let path = std::path::absolute(path).about(&subject)?;
    let text = path.into_os_string().into_string();
    text.map_err(|_| Failure::usage(subject, "is no text in UTF-8"))
}

/// Words as a shell takes them.
pub fn shell_line(words: &[String]) -> String {
    let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,@%+".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_shell_takes_quoted_words_as_they_are() {
        let words = [
            "",
            "a b",
            "it's",
            "$HOME `x` \\ \"q\" !",
            "*",
            "~",
            "a\nb",
            "-x=1",
            "{rank}",
            "#",
        ];
        let words = words.map(str::to_owned).to_vec();
        let script = format!("printf '%s\\0' {}", shell_line(&words));
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let found: Vec<_> = printed.trim_end_matches('\0').split('\0').collect();
        assert_eq!(found, words);
    }

    fn plan(words: &[&str]) -> Result<Plan, Failure> {
        let words = ["thalweg", "up"].iter().chain(words);
        match Cli::try_parse_from(words).unwrap().command {
            Parsed::Up(args) => Plan::of(&args),
            _ => unreachable!("the words say up"),
        }
    }

    fn has(words: &[String], wanted: &[&str]) -> bool {
        words.windows(wanted.len()).any(|words| words == wanted)
    }

    #[test]
    fn ranks_are_numbered_host_by_host() {
        let plan = plan(&[
            "/d/x",
            "--cluster",
            "/s",
            "--nodes",
            "b,a",
            "--per-node",
            "2",
        ])
        .unwrap();
        assert_eq!((plan.via, plan.size), (Via::Ssh, 4));
        let hosts: Vec<_> = (0..5).map(|rank| plan.host_of(rank)).collect();
        assert_eq!(hosts, [Some("b"), Some("b"), Some("a"), Some("a"), None]);
        let command = plan.command_of(3);
        assert_eq!(command[..5], ["ssh", "-T", "-o", "BatchMode=yes", "a"]);
        assert!(
            command[5].contains("--rank 3 --size 4 -- '/d/x-{rank}' --cluster /s"),
            "{command:?}"
        );
    }

    #[test]
    fn what_the_user_says_is_not_said_again() {
        let alone = plan(&["d", "--cluster", "s"]).unwrap();
        assert_eq!(
            (alone.via, alone.size, alone.host_of(0)),
            (Via::Local, 3, None)
        );
        let command = alone.command_of(0);
        assert!(
            has(&command, &["--cluster-listen", CLUSTER_LISTEN]),
            "{command:?}"
        );
        assert!(
            has(&command, &["--cluster-wait-ms", "120000"]),
            "{command:?}"
        );
        assert!(
            !command.iter().any(|word| word == "--listen"),
            "{command:?}"
        );
        let own = [
            "d-{rank}/x",
            "--cluster",
            "s",
            "--",
            "--cluster-listen=tcp://127.0.0.1:0",
        ];
        let command = plan(&own).unwrap().command_of(0);
        assert!(
            !command.iter().any(|word| word == "--cluster-listen"),
            "{command:?}"
        );
        assert!(
            command.iter().any(|word| word.ends_with("/d-{rank}/x")),
            "{command:?}"
        );
        let srun = plan(&[
            "d",
            "--cluster",
            "s",
            "--nodes",
            "n[1-2]",
            "--via",
            "srun",
            "--per-node",
            "3",
        ]);
        let command = srun.unwrap().command_of_all();
        for word in [
            "--nodelist=n1,n2",
            "--ntasks=6",
            "--ntasks-per-node=3",
            "--distribution=block",
        ] {
            assert!(has(&command, &[word]), "{word}: {command:?}");
        }
        assert!(has(&command, &["--listen", LISTEN]), "{command:?}");
        let mpi = plan(&["d", "--cluster", "s", "--nodes", "a,b", "--via", "mpiexec"]);
        let command = mpi.unwrap().command_of_all();
        assert!(
            has(&command, &["mpiexec", "-n", "2", "--host", "a:1,b:1"]),
            "{command:?}"
        );
    }

    #[test]
    fn a_host_has_a_server_for_each_of_its_interfaces() {
        let usable = Interfaces::of_host().unwrap().usable().len();
        for (nodes, hosts) in [(None, 1), (Some("b,a"), 2)] {
            let mut words = vec!["d", "--cluster", "s", "--per-node", "nic"];
            words.extend(nodes.into_iter().flat_map(|nodes| ["--nodes", nodes]));
            let plan = match plan(&words) {
                Ok(plan) => plan,
                Err(refused) => {
                    let refused = refused.to_string();
                    assert!(usable == 0 && refused.contains("of hardware"), "{refused}");
                    continue;
                }
            };
            assert_eq!(plan.size as usize, hosts * usable);
            let command = shell_line(&plan.command_of(0));
            for words in ["--nic each", &format!("--listen {LISTEN}")] {
                assert!(command.contains(words), "{words}: {command}");
            }
            assert!(!command.contains(CLUSTER_LISTEN), "{command}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_before_anything_starts() {
        let begin = ["d", "--cluster", "s"];
        for (words, why) in [
            (vec!["--via", "ssh"], "--nodes"),
            (vec!["--via", "local", "--nodes", "a"], "this host"),
            (vec!["--nodes", "a;b"], "no name"),
            (vec!["--voters", "5"], "more than the 3 servers"),
            (vec!["--voters", "2"], "1, 3 or 5"),
            (vec!["--per-node", "70000"], "more than 65536"),
            (vec!["--", "--nonsense"], "--nonsense"),
            (vec!["--", "--rank", "1"], "--rank"),
            (vec!["--", "--cluster", "t"], "--cluster"),
            (vec!["--", "--json"], "--json"),
            (vec!["--", "--check"], "leave it out"),
            (vec!["--", "other"], "other"),
            (vec!["--", "--listen", "tcp://0.0.0.0:0"], "0.0.0.0"),
        ] {
            let refused = plan(&[&begin[..], &words].concat())
                .unwrap_err()
                .to_string();
            assert!(refused.contains(why), "{words:?}: {refused}");
        }
    }
}
