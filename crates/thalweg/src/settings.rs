//! The settings of a server, as flags made from [`Config::SETTINGS`].

use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches, value_parser};
use server::{Config, ConfigError, Settings};
use std::path::PathBuf;

/// The settings given as flags, and the file with others.
#[derive(Debug, Default)]
pub struct SettingsArgs {
    config: Option<PathBuf>,
    /// Key, values, and the flag as it is written.
    flags: Vec<(&'static str, Vec<String>, String)>,
}

const POSITION: &str = "DIR";

impl clap::Args for SettingsArgs {
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

impl FromArgMatches for SettingsArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.config = matches.get_one("config").cloned();
        self.flags.clear();
        if let Some(directory) = matches.get_one::<String>(POSITION) {
            let flag = ("directory", vec![directory.clone()], POSITION.to_owned());
            self.flags.push(flag);
        }
        for setting in Config::SETTINGS {
            if let Some(texts) = matches.get_many::<String>(setting.key) {
                let flag = format!("--{}", setting.flag());
                self.flags
                    .push((setting.key, texts.cloned().collect(), flag));
            }
        }
        Ok(())
    }
}

impl SettingsArgs {
    /// The settings: defaults, then the file, the environment, the flags.
    pub fn settings(
        &self,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Settings, ConfigError> {
        let mut settings = Settings::default();
        if let Some(path) = &self.config {
            settings.read_file(path)?;
        }
        settings.read_environment(environment)?;
        for (key, texts, flag) in &self.flags {
            settings.set(key, texts, flag.clone())?;
        }
        Ok(settings)
    }
}
