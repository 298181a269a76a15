//! `thalweg status`.

use crate::cli::StatusArgs;
use crate::failure::{About, Code, Failure};
use crate::output::Output;
use serde_json::Value;

pub fn run(args: &StatusArgs) -> Result<(), Failure> {
    let connection = &args.client.connection;
    let driver = connection.driver()?;
    let text = driver.status().about(connection.subject())?;
    let status: Value = serde_json::from_str(&text).map_err(|error| {
        Failure::new(
            Code::Failure,
            connection.subject(),
            format!("its status is no JSON: {error}"),
        )
    })?;
    let mut output = Output::new(args.client.json);
    if output.is_json() {
        output.json(&status)?;
    } else {
        write_tree(&mut output, &status, 0)?;
    }
    output.flush()
}

/// Names and values, indented.
fn write_tree(output: &mut Output, value: &Value, depth: usize) -> Result<(), Failure> {
    let indent = "  ".repeat(depth);
    let entries: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.clone(), value))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(index, value)| (index.to_string(), value))
            .collect(),
        other => return output.line(&format!("{indent}{other}")),
    };
    for (key, value) in entries {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                output.line(&format!("{indent}{key}:"))?;
                write_tree(output, value, depth + 1)?;
            }
            Value::Array(items) if !items.is_empty() => {
                output.line(&format!("{indent}{key}:"))?;
                write_tree(output, value, depth + 1)?;
            }
            Value::String(text) => output.line(&format!("{indent}{key}: {text}"))?,
            other => output.line(&format!("{indent}{key}: {other}"))?,
        }
    }
    Ok(())
}
