//! `thalweg serve`.

use crate::failure::{About, Failure};
use crate::interrupt::DrainOnSignal;
use crate::output::{self, Output};
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches, ValueEnum, value_parser};
use serde_json::json;
use server::{Config, LevelFilter, LogRecord, Server, ServerLog};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The settings given as flags; their flags are made from [`Config::SETTINGS`].
#[derive(Debug, Default)]
pub struct ServeArgs {
    config: Option<PathBuf>,
    flags: Vec<(&'static str, Vec<String>)>,
    json: bool,
    log_format: LogFormat,
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

const POSITION: &str = "DIR";

impl clap::Args for ServeArgs {
    fn augment_args(command: Command) -> Command {
        let mut command = command
            .arg(Arg::new(POSITION).help("The data directory, as --directory"))
            .arg(
                Arg::new("config")
                    .long("config")
                    .value_name("FILE")
                    .env("THALWEG_CONFIG")
                    .hide_env_values(true)
                    .value_parser(value_parser!(PathBuf))
                    .help("A TOML file with settings; flags and environment win over it"),
            )
            .arg(
                Arg::new("json")
                    .long("json")
                    .action(ArgAction::SetTrue)
                    .help("Print the line that tells that it is ready as JSON"),
            )
            .arg(
                Arg::new("log-format")
                    .long("log-format")
                    .value_name("FORMAT")
                    .env("THALWEG_LOG_FORMAT")
                    .hide_env_values(true)
                    .value_parser(value_parser!(LogFormat))
                    .default_value("text")
                    .help("How lines of the log are written to standard error"),
            )
            .arg(
                Arg::new("log-level")
                    .long("log-level")
                    .value_name("LEVEL")
                    .env("THALWEG_LOG_LEVEL")
                    .hide_env_values(true)
                    .value_parser(value_parser!(LogLevel))
                    .default_value("info")
                    .help(
                        "Which lines: debug adds connections, and trace each message, which \
                         makes the server slow",
                    ),
            );
        for setting in Config::SETTINGS {
            let mut help = setting.help.trim().replace("\n ", "\n");
            let default = (setting.default)();
            if !setting.is_switch && !default.is_empty() {
                help.push_str(&format!("\n\n[default: {default}]"));
            }
            help.push_str(&format!("\n\n[env: {}]", setting.environment()));
            let summary = help.lines().next().unwrap_or_default().trim().to_owned();
            let arg = Arg::new(setting.key)
                .long(setting.flag())
                .help(summary)
                .long_help(help)
                .help_heading("Settings");
            command = command.arg(match (setting.is_switch, setting.is_list) {
                (true, _) => arg
                    .action(ArgAction::Append)
                    .num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value("true")
                    .value_name("YES"),
                (false, true) => arg
                    .action(ArgAction::Append)
                    .value_name(setting.kind.to_ascii_uppercase()),
                (false, false) => arg.value_name(setting.kind.to_ascii_uppercase()),
            });
        }
        command.mut_arg("directory", |arg| arg.conflicts_with(POSITION))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ServeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.config = matches.get_one("config").cloned();
        self.json = matches.get_flag("json");
        self.log_format = matches.get_one("log-format").copied().unwrap_or_default();
        self.log_level = matches.get_one("log-level").copied().unwrap_or_default();
        self.flags.clear();
        if let Some(directory) = matches.get_one::<String>(POSITION) {
            self.flags.push(("directory", vec![directory.clone()]));
        }
        for setting in Config::SETTINGS {
            if let Some(texts) = matches.get_many::<String>(setting.key) {
                self.flags.push((setting.key, texts.cloned().collect()));
            }
        }
        Ok(())
    }
}

impl ServeArgs {
    /// The settings: defaults, then the file, the environment, the flags.
    fn config(
        &self,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Config, server::ConfigError> {
        let mut config = Config::default();
        if let Some(path) = &self.config {
            config.read_file(path)?;
        }
        config.read_environment(environment)?;
        for (key, texts) in &self.flags {
            config.set(key, texts)?;
        }
        config.validate()?;
        Ok(config)
    }
}

pub fn run(args: &ServeArgs) -> Result<ExitCode, Failure> {
    let config = args
        .config(|name| std::env::var(name).ok())
        .map_err(|error| Failure::usage("settings", error))?;
    let directory = config.directory.display().to_string();
    let drain_timeout = Duration::from_millis(config.drain_timeout_ms.into());
    // Before the start, so that from the group file on, and all the more from the line that
    // tells that it is ready, no signal ends the server without a drain.
    let signals = DrainOnSignal::install()?;
    let write: fn(&LogRecord) = match args.log_format {
        LogFormat::Text => |record: &LogRecord| output::report(&record.to_string()),
        LogFormat::Json => output::log_json,
    };
    let log = ServerLog::new(args.log_level.filter(), write);
    let server = Server::start(config, log).about(&directory)?;
    signals.server_runs(server.drain_handle(), drain_timeout);
    let mut output = Output::new(args.json);
    let endpoints = server.endpoints();
    output.either(
        &json!({
            "ready": true,
            "directory": server.directory().to_string(),
            "instance": server.instance().to_string(),
            "endpoints": endpoints,
            "pid": std::process::id(),
        }),
        &format!("ready at {}", endpoints.join(" ")),
    )?;
    output.flush()?;
    drop(output);
    server.wait().about(&directory)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

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
