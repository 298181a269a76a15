//! The process of an instance: started, or found again after a restart of the gateway.

use crate::error::GatewayError;
use crate::files;
use crate::names::InstanceName;
use crate::options::Launch;
use crate::record::{Process, Record};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use serde_json::Value;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines, Take};
use tokio::process::{Child, ChildStdout, Command};

/// The data directory of an instance, its group file and its log, in its folder.
pub const DATA: &str = "data";
const GROUP_FILE: &str = "thalweg.json";
const LOG: &str = "log";
const OLD_LOG: &str = "log.1";
/// A log longer than this is put aside at the next start.
const LOG_BYTES_MAX: u64 = 8 << 20;
const GROUP_FILE_BYTES_MAX: u64 = 1 << 20;
/// The longest line that a server says when it is ready, and whatever else it prints.
const OUTPUT_BYTES_MAX: u64 = 64 << 10;
/// How often a process that is not a child is looked at.
const LOOK: Duration = Duration::from_millis(200);
const GIB: u64 = 1 << 30;
/// Bounds of a server's settings, which a request may not break.
const PAYLOAD_BYTES: std::ops::RangeInclusive<u64> = 2 << 20..=1 << 31;
const DISK_THREADS_MAX: u32 = 64;

/// Where a server listens, and by which certificates it is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Endpoints {
    /// Host and port of TLS.
    pub tls: Option<String>,
    /// Host and port without, on this host.
    pub plain: Option<String>,
    /// SHA-256.
    pub certificates: Vec<String>,
}

impl Endpoints {
    /// Those of a group file, or of the line that a server says when it is ready.
    fn of(value: &Value) -> Self {
        let texts = |key: &str| -> Vec<String> {
            let list = value.get(key).and_then(Value::as_array);
            let texts = list.into_iter().flatten().filter_map(Value::as_str);
            texts.map(str::to_owned).collect()
        };
        let endpoints = texts("endpoints");
        let first = |scheme: &str| {
            let found = endpoints.iter().find_map(|one| one.strip_prefix(scheme));
            found.map(str::to_owned)
        };
        Self {
            tls: first("tls://"),
            plain: first("tcp://"),
            certificates: texts("certificates"),
        }
    }

    /// Those in the group file of an instance's folder.
    ///
    /// # Errors
    /// If it is not there, or is none.
    pub fn in_folder(folder: &Path) -> Result<Self, String> {
        let text = files::read_if_there(&folder.join(GROUP_FILE), GROUP_FILE_BYTES_MAX);
        let text = text.map_err(|error| error.to_string())?;
        let text = text.ok_or("there is no group file")?;
        let value: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        Ok(Self::of(&value))
    }
}

/// What happened to a process.
#[derive(Debug)]
pub enum Happened {
    /// It says that it serves.
    Serves,
    /// It has ended; how.
    Ended(String),
}

/// A process that runs.
#[derive(Debug)]
pub struct Running {
    process: Process,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Started by this gateway.
    Child {
        child: Box<Child>,
        lines: Option<Lines<BufReader<Take<ChildStdout>>>>,
    },
    /// Found again: not a child, so that it is looked at now and then.
    Found,
}

impl Running {
    /// Starts the server of an instance. To be called within a runtime.
    ///
    /// # Errors
    /// If the program cannot be run.
    pub fn start(
        launch: &Launch,
        host: &str,
        folder: &Path,
        record: &Record,
    ) -> Result<Self, GatewayError> {
        let words = launch.words(host, folder, record);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        for (name, _) in std::env::vars_os() {
            // Settings and credentials of the gateway's own environment are not the instance's.
            if name.to_string_lossy().starts_with("THALWEG_") || name == "NOTIFY_SOCKET" {
                command.env_remove(name);
            }
        }
        command.process_group(0).current_dir(folder);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(open_log(folder)?);
        let attempt = format!("starting {}", words[0]);
        let mut child = command.spawn().map_err(GatewayError::file(attempt))?;
        let pid = child.id().expect("it was not waited for");
        let lines = child
            .stdout
            .take()
            .map(|stdout| BufReader::new(stdout.take(OUTPUT_BYTES_MAX)).lines());
        Ok(Self {
            process: Process {
                pid,
                began: began(pid).unwrap_or(0),
            },
            kind: Kind::Child {
                child: Box::new(child),
                lines,
            },
        })
    }

    /// The process, if it still is that one.
    pub fn find(process: Process) -> Option<Self> {
        let kind = Kind::Found;
        (began(process.pid) == Some(process.began)).then_some(Self { process, kind })
    }

    /// Which process has a data directory, as its lock says, if that is a server on this host.
    pub fn holder(folder: &Path) -> Option<Process> {
        #[derive(Deserialize)]
        struct Owner {
            boot_id: String,
            pid: u32,
        }
        let data = folder.join(DATA);
        let text = files::read_if_there(&data.join("lock"), GROUP_FILE_BYTES_MAX).ok()??;
        let owner: Owner = serde_json::from_str(text.trim()).ok()?;
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let words = std::fs::read(format!("/proc/{}/cmdline", owner.pid)).ok()?;
        let data = data.to_str()?.as_bytes();
        let is_that = words.split(|byte| *byte == 0).any(|word| word == data);
        let began = began(owner.pid)?;
        (owner.boot_id == boot.trim() && is_that).then_some(Process {
            pid: owner.pid,
            began,
        })
    }

    /// Which process it is.
    pub fn process(&self) -> Process {
        self.process
    }

    /// What happens to it next. May be dropped and asked again.
    pub async fn next(&mut self) -> Happened {
        match &mut self.kind {
            Kind::Found => {
                while began(self.process.pid) == Some(self.process.began) {
                    tokio::time::sleep(LOOK).await;
                }
                Happened::Ended("its process has ended".to_owned())
            }
            Kind::Child { child, lines } => loop {
                let Some(reader) = lines else {
                    return Happened::Ended(ended(child.wait().await));
                };
                tokio::select! {
                    line = reader.next_line() => match line {
                        Ok(Some(line)) if is_ready(&line) => return Happened::Serves,
                        Ok(Some(_)) => {}
                        Ok(None) | Err(_) => *lines = None,
                    },
                    status = child.wait() => return Happened::Ended(ended(status)),
                }
            },
        }
    }

    /// Asks it to end, with those that it was started by.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Ends it.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        // Another process may have its number by now.
        let is_that = began(self.process.pid) == Some(self.process.began);
        let pid = i32::try_from(self.process.pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| is_that) {
            let _ = kill_process_group(pid, signal);
        }
    }
}

fn is_ready(line: &str) -> bool {
    let value: Result<Value, _> = serde_json::from_str(line);
    value.is_ok_and(|value| value.get("ready") == Some(&Value::Bool(true)))
}

fn ended(status: std::io::Result<std::process::ExitStatus>) -> String {
    match status {
        Ok(status) => format!("its process ended: {status}"),
        Err(error) => format!("its process cannot be waited for: {error}"),
    }
}

/// When a process began, as the kernel counts; none if there is none.
fn began(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may have anything in it. The state is the third field, this the 22nd.
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

fn open_log(folder: &Path) -> Result<std::fs::File, GatewayError> {
    let path = folder.join(LOG);
    let is_long = std::fs::metadata(&path).is_ok_and(|found| found.len() > LOG_BYTES_MAX);
    if is_long {
        // What cannot be put aside is written on.
        let _ = std::fs::rename(&path, folder.join(OLD_LOG));
    }
    let opened = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&path);
    opened.map_err(GatewayError::file(format!("opening {}", path.display())))
}

impl Launch {
    /// The command of an instance's server: the launcher's words, and `thalweg serve`. Nothing of it is secret.
    fn words(&self, host: &str, folder: &Path, record: &Record) -> Vec<String> {
        let resources = &record.resources;
        let instance = record.instance();
        let mut words: Vec<String> = self
            .launcher
            .iter()
            .map(|word| fill(word, &instance, record))
            .collect();
        let path = |name: &str| folder.join(name).display().to_string();
        // Half of the memory is for events under way, the rest for all else.
        let memory = u64::from(resources.ram_gbs.max(1)) * GIB / 2;
        words.extend(self.program.iter().cloned());
        words.extend([path(DATA), "--json".to_owned()]);
        let mut add = |option: &str, value: String| words.extend([option.to_owned(), value]);
        add("--group-file", path(GROUP_FILE));
        add("--listen", format!("tls://{}:0", self.inside));
        if self.plain {
            add("--listen", "tcp://127.0.0.1:0".to_owned());
        }
        add("--amqp", "listen".to_owned());
        add("--tls-names", host.to_owned());
        add("--memory-bytes-max", memory.to_string());
        add(
            "--disk-threads",
            resources.cpus.clamp(1, DISK_THREADS_MAX).to_string(),
        );
        if resources.message_bytes_max > 0 {
            let most = *PAYLOAD_BYTES.end();
            let bytes = resources
                .message_bytes_max
                .clamp(*PAYLOAD_BYTES.start(), most);
            add("--payload-bytes-max", bytes.to_string());
        }
        words
    }
}

fn fill(word: &str, instance: &InstanceName, record: &Record) -> String {
    let resources = &record.resources;
    let values = [
        ("{label}", instance.label()),
        ("{project}", instance.project().to_owned()),
        ("{name}", instance.name().to_owned()),
        ("{cpus}", resources.cpus.to_string()),
        ("{cpu_percent}", (resources.cpus * 100).to_string()),
        ("{ram_gbs}", resources.ram_gbs.to_string()),
    ];
    let mut word = word.to_owned();
    for (place, value) in values {
        word = word.replace(place, &value);
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Resources;

    #[test]
    fn the_command_has_the_limits_that_were_asked_for_within_those_of_a_server() {
        let launch = Launch {
            program: vec!["/bin/thalweg".into(), "serve".into()],
            launcher: vec![
                "srun".into(),
                "--job-name={label}".into(),
                "-c{cpus}".into(),
            ],
            inside: "127.0.0.1".into(),
            plain: false,
        };
        let name = InstanceName::new("stf008", "run42").unwrap();
        let resources = Resources {
            cpus: 1000,
            ram_gbs: 4,
            nodes: 3,
            message_bytes_max: 5,
        };
        let record = Record::new(&name, "rabbitmq", resources, 0);
        let words = launch
            .words("stf008-run42.site.org", Path::new("/g"), &record)
            .join(" ");
        assert_eq!(
            words,
            "srun --job-name=stf008-run42 -c1000 /bin/thalweg serve /g/data --json --group-file \
             /g/thalweg.json --listen tls://127.0.0.1:0 --amqp listen --tls-names stf008-run42.site.org \
             --memory-bytes-max 2147483648 --disk-threads 64 --payload-bytes-max 2097152"
        );
    }

    #[test]
    fn a_process_is_known_by_its_number_and_its_beginning() {
        let me = std::process::id();
        assert!(began(me).is_some());
        assert_eq!(began(u32::MAX), None);
    }

    #[test]
    fn where_a_server_listens_is_in_its_group_file() {
        let value = serde_json::json!({
            "endpoints": ["unix:///d/thalweg.sock", "tls://127.0.0.1:7", "tcp://127.0.0.1:8"],
            "certificates": ["ab"],
        });
        let endpoints = Endpoints::of(&value);
        assert_eq!(endpoints.tls.as_deref(), Some("127.0.0.1:7"));
        assert_eq!(endpoints.plain.as_deref(), Some("127.0.0.1:8"));
        assert_eq!(endpoints.certificates, ["ab"]);
        assert_eq!(Endpoints::of(&serde_json::json!(7)), Endpoints::default());
    }
}
