//! `thalweg serve`.

use crate::failure::{About, Code, Failure};
use crate::interrupt::DrainOnSignal;
use crate::notify::Notifier;
use crate::output::{self, Output};
use crate::settings::SettingsArgs;
use clap::{Args, ValueEnum};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use serde_json::json;
use server::{
    Config, Finding, LevelFilter, LogRecord, Server, ServerError, ServerLog, Settings, Verdict,
};
use std::io;
use std::process::ExitCode;
use std::time::Duration;

/// How long the end may take beyond the drain, before a service manager loses its patience.
const CLOSING: Duration = Duration::from_secs(15);

/// What `thalweg serve` takes.
#[derive(Debug, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    settings: SettingsArgs,
    /// Say what a start with these settings would meet, and start nothing
    ///
    /// Looks at the settings, the directory, its lock, its records of topics and consumers, the
    /// addresses, the group file, memory and the limit of open files, and changes nothing; events are
    /// not read. Exits with the code that the start would fail with, 6 where nothing else is wrong than
    /// that a server has the directory.
    #[arg(long)]
    check: bool,
    /// End when this process has ended, which started it
    #[arg(long, hide = true, value_name = "PID")]
    end_with: Option<u32>,
    /// Print the line that tells that it is ready, or what --check finds, as JSON
    #[arg(long)]
    json: bool,
    /// How lines of the log are written to standard error
    #[arg(
        long,
        value_name = "FORMAT",
        env = "THALWEG_LOG_FORMAT",
        hide_env_values = true,
        default_value = "text"
    )]
    log_format: LogFormat,
    /// Which lines: debug adds connections, and trace each message, which makes the server slow
    #[arg(
        long,
        value_name = "LEVEL",
        env = "THALWEG_LOG_LEVEL",
        hide_env_values = true,
        default_value = "info"
    )]
    log_level: LogLevel,
}

/// How lines of the log are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum LogFormat {
    #[default]
    Text,
    Json,
}

/// What is written to the log: lines of this level and those above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum LogLevel {
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    fn filter(self) -> LevelFilter {
        match self {
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
            Self::Trace => LevelFilter::TRACE,
        }
    }
}

impl ServeArgs {
    /// The settings, each with where it comes from.
    pub fn settings(
        &self,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Settings, server::ConfigError> {
        self.settings.settings(environment)
    }

    /// Whether nothing is to be started.
    pub fn only_checks(&self) -> bool {
        self.check
    }

    fn config(
        &self,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Config, server::ConfigError> {
        self.settings(environment)?.config()
    }
}

pub fn run(args: &ServeArgs) -> Result<ExitCode, Failure> {
    let config = args
        .config(|name| std::env::var(name).ok())
        .map_err(|error| Failure::usage("settings", error))?;
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let misspelt = Config::misspelt_environment(names);
    if args.check {
        return check(&config, misspelt, args.json);
    }
    let directory = config.directory.display().to_string();
    let drain_timeout = Duration::from_millis(config.drain_timeout_ms.into());
    // Before the start, so that from the group file on, and all the more from the line that
    // tells that it is ready, no signal ends the server without a drain.
    args.end_with.map_or(Ok(()), end_with)?;
    let signals = DrainOnSignal::install()?;
    let write: fn(&LogRecord) = match args.log_format {
        LogFormat::Text => |record: &LogRecord| output::report(&record.to_string()),
        LogFormat::Json => output::log_json,
    };
    let log = ServerLog::new(args.log_level.filter(), write);
    misspelt.into_iter().for_each(|what| log.warn(what));
    let manager = Notifier::from_environment();
    manager.status(&format!("opening {directory}"));
    let server = match Server::start_until(config, log, signals.start()) {
        // Nothing was open: it is an end in order.
        Err(error @ ServerError::Interrupted(_)) => {
            output::report(&format!("{directory}: {error}"));
            return Ok(ExitCode::SUCCESS);
        }
        started => started.about(&directory)?,
    };
    signals.server_runs(server.drain_handle(), drain_timeout);
    let mut output = Output::new(args.json);
    let endpoints = server.endpoints();
    let amqp = server.amqp_endpoints();
    let mut ready = json!({
        "ready": true,
        "directory": server.directory().to_string(),
        "instance": server.instance().to_string(),
        "endpoints": endpoints,
        "pid": std::process::id(),
    });
    let mut line = format!("ready at {}", endpoints.join(" "));
    if !amqp.is_empty() {
        ready["amqp"] = json!(amqp);
        line.push_str(&format!(", for AMQP at {}", amqp.join(" ")));
    }
    let shards: Vec<&[String]> = server.shards().collect();
    if shards.len() > 1 {
        ready["shards"] = json!(shards);
        line.push_str(&format!(", with {} shards", shards.len()));
    }
    output.either(&ready, &line)?;
    output.flush()?;
    drop(output);
    manager.ready(&format!("serving {directory} at {}", endpoints.join(" ")));
    server.wait_for_drain();
    manager.stopping(
        &format!("draining, for at most {} s", drain_timeout.as_secs_f64()),
        drain_timeout + CLOSING,
    );
    server.wait().about(&directory)?;
    Ok(ExitCode::SUCCESS)
}

/// Drains the server when the process that started it ends, however it does.
fn end_with(parent: u32) -> Result<(), Failure> {
    const SUBJECT: &str = "the end of who started it";
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(io::Error::from)
        .about(SUBJECT)?;
    // It may have ended before this was asked for.
    match getppid() {
        Some(now) if now.as_raw_nonzero().get() as u32 == parent => Ok(()),
        _ => Err(Failure::new(Code::Failure, SUBJECT, "it has ended")),
    }
}

/// Prints what a start would meet, and gives the code that it would fail with.
fn check(config: &Config, misspelt: Vec<String>, json: bool) -> Result<ExitCode, Failure> {
    let mut output = Output::new(json);
    let mut code = None;
    let misspelt = misspelt.into_iter().map(|what| Finding {
        subject: "environment",
        verdict: Verdict::Caution(what),
    });
    for finding in misspelt.chain(server::check(config)) {
        let (verdict, what) = match finding.verdict {
            Verdict::Fine(what) => ("ok", what),
            Verdict::Caution(what) => ("warning", what),
            Verdict::Wrong(error) => {
                // What else is wrong stays wrong when the server that has the directory has ended.
                let known = code.filter(|code| *code != Code::Locked);
                code = known.or(Some(Code::of(&error)));
                ("error", error.to_string())
            }
        };
        let subject = finding.subject;
        output.either(
            &json!({"verdict": verdict, "subject": subject, "what": what}),
            &format!("{verdict:<8} {subject}: {what}"),
        )?;
    }
    output.flush()?;
    Ok(code.map_or(ExitCode::SUCCESS, ExitCode::from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;
    use std::path::PathBuf;

    fn args(words: &[&str]) -> ServeArgs {
        let words = ["thalweg", "serve"].iter().chain(words);
        match Cli::try_parse_from(words).unwrap().command {
            Command::Serve(args) => args,
            _ => unreachable!("the words say serve"),
        }
    }

    #[test]
    fn flags_win_over_environment_over_file_over_defaults() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(
            file.path(),
            "disk_threads = 2\nheartbeat_ms = 500\npayload_bytes_max = \"4MiB\"\n",
        )
        .unwrap();
        let path = file.path().to_str().unwrap();
        let environment = |name: &str| match name {
            "THALWEG_DISK_THREADS" => Some("3".to_owned()),
            "THALWEG_HEARTBEAT_MS" => Some("600".to_owned()),
            _ => None,
        };
        let words = [
            "data",
            "--config",
            path,
            "--disk-threads",
            "5",
            "--listen",
            "unix:///a",
            "--listen",
            "tcp://127.0.0.1:0",
        ];
        let config = args(&words).config(environment).unwrap();
        assert_eq!(config.directory, PathBuf::from("data"));
        assert_eq!((config.disk_threads, config.heartbeat_ms), (5, 600));
        assert_eq!(config.payload_bytes_max, 4 << 20);
        assert_eq!(config.drain_timeout_ms, Config::default().drain_timeout_ms);
        assert_eq!(config.listen, ["unix:///a", "tcp://127.0.0.1:0"]);
    }

    #[test]
    fn switches_need_no_value_and_take_one() {
        let none = |_: &str| None;
        assert!(
            args(&["--insecure-listen"])
                .config(none)
                .unwrap()
                .insecure_listen
        );
        let yes = |name: &str| (name == "THALWEG_INSECURE_LISTEN").then(|| "true".to_owned());
        assert!(
            !args(&["--insecure-listen=false"])
                .config(yes)
                .unwrap()
                .insecure_listen
        );
        assert!(
            args(&["--take-over", "dir"])
                .config(none)
                .unwrap()
                .take_over
        );
    }
}
