//! `thalweg config`.

use crate::cli::{ConfigCommand, ConfigShowArgs};
use crate::failure::Failure;
use crate::output::{Output, table};
use serde_json::json;

pub fn run(command: &ConfigCommand) -> Result<(), Failure> {
    match command {
        ConfigCommand::Show(args) => show(args),
        ConfigCommand::Example => example(),
    }
}

fn show(args: &ConfigShowArgs) -> Result<(), Failure> {
    let settings = args.settings.settings(|name| std::env::var(name).ok());
    let settings = settings.map_err(|error| Failure::usage("settings", error))?;
    let mut output = Output::new(args.json);
    let mut rows = Vec::new();
    for (setting, value, origin) in settings.rows() {
        let (default, kind) = ((setting.default)(), setting.kind);
        if !args.json {
            let value = match value.is_empty() {
                true => "-".to_owned(),
                false => value,
            };
            rows.push(vec![
                setting.key.to_owned(),
                value,
                kind.to_owned(),
                origin.to_string(),
            ]);
            continue;
        }
        let from = match &origin {
            server::Origin::Default => None,
            server::Origin::File(path) => Some(path.display().to_string()),
            server::Origin::Environment(name) => Some(name.clone()),
            server::Origin::Flag(flag) => Some(flag.clone()),
        };
        output.json(&json!({
            "key": setting.key,
            "value": value,
            "kind": kind,
            "source": origin.kind(),
            "from": from,
            "default": default,
        }))?;
    }
    if !args.json {
        output.line(&table(&["SETTING", "VALUE", "UNIT", "SOURCE"], &rows))?;
    }
    output.flush()?;
    // What holds was shown; that it cannot hold together is an error all the same.
    let checked = settings.config().map(drop);
    checked.map_err(|error| Failure::usage("settings", error))
}

fn example() -> Result<(), Failure> {
    let mut output = Output::new(false);
    output.bytes(server::config::example().as_bytes())?;
    output.flush()
}
