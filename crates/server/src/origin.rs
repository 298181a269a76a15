//! Settings, and where each of them comes from.

use crate::config::{Config, Setting};
use crate::error::ConfigError;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where the value of a setting comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said otherwise.
    Default,
    /// A configuration file.
    File(PathBuf),
    /// An environment variable, by its name.
    Environment(String),
    /// A flag, with its dashes.
    Flag(String),
}

impl Origin {
    /// Its kind, in a word: `default`, `file`, `environment` or `flag`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File(_) => "file",
            Self::Environment(_) => "environment",
            Self::Flag(_) => "flag",
        }
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(flag) => write!(f, "flag {flag}"),
        }
    }
}

/// Settings as they come from several places, of which the later win: the defaults, and then
/// what is read, in the order of the calls.
#[derive(Debug, Default)]
pub struct Settings {
    config: Config,
    origins: BTreeMap<&'static str, Origin>,
}

impl Settings {
    /// Takes settings from a TOML file.
    pub fn read_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        for key in self.config.read_file(path)? {
            self.origins.insert(key, Origin::File(path.to_owned()));
        }
        Ok(())
    }

    /// Takes settings from environment variables; `lookup` gives the value of one.
    pub fn read_environment(
        &mut self,
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<(), ConfigError> {
        let keys = self.config.read_environment(lookup)?;
        for setting in Config::SETTINGS {
            if keys.contains(&setting.key) {
                let origin = Origin::Environment(setting.environment());
                self.origins.insert(setting.key, origin);
            }
        }
        Ok(())
    }

    /// Takes one setting from `flag`, as the user wrote it.
    pub fn set(
        &mut self,
        key: &'static str,
        texts: &[String],
        flag: String,
    ) -> Result<(), ConfigError> {
        self.config.set(key, texts)?;
        self.origins.insert(key, Origin::Flag(flag));
        Ok(())
    }

    /// The settings, checked together.
    ///
    /// # Errors
    /// As [`Config::validate`].
    pub fn config(&self) -> Result<Config, ConfigError> {
        self.config.validate()?;
        Ok(self.config.clone())
    }

    /// Every setting with its value as text and where that comes from.
    pub fn rows(&self) -> impl Iterator<Item = (&'static Setting, String, Origin)> {
        Config::SETTINGS.iter().map(|setting| {
            let value = self.config.get(setting.key);
            let origin = self.origins.get(setting.key);
            (
                setting,
                value.expect("each setting has a value"),
                origin.cloned().unwrap_or(Origin::Default),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_says_where_it_comes_from() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "disk_threads = 2\nspin_us = 0\nslice_us = 0\n").unwrap();
        let mut settings = Settings::default();
        settings.read_file(file.path()).unwrap();
        settings
            .read_environment(|name| (name == "THALWEG_SPIN_US").then(|| "1".to_owned()))
            .unwrap();
        let two = ["200".to_owned()];
        settings
            .set("slice_us", &two, "--slice-us".to_owned())
            .unwrap();
        let of = |key: &str| {
            let row = settings.rows().find(|(setting, ..)| setting.key == key);
            let (_, value, origin) = row.unwrap();
            format!("{value} {origin}")
        };
        let path = file.path().display();
        assert_eq!(of("disk_threads"), format!("2 file {path}"));
        assert_eq!(of("spin_us"), "1 environment THALWEG_SPIN_US");
        assert_eq!(of("slice_us"), "200 flag --slice-us");
        assert_eq!(of("heartbeat_ms"), "10000 default");
        assert_eq!(settings.rows().count(), Config::SETTINGS.len());
    }
}
