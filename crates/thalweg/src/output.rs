//! Standard output: lines of JSON, or text for people.

use crate::failure::{About, Failure};
use jiff::Timestamp;
use serde_json::{Value, json};
use server::LogRecord;
use std::io::{self, BufWriter, StdoutLock, Write};

/// A line for the operator, on standard error. Where that is gone, as a terminal
/// that was closed is, the line is lost and nothing else.
pub fn report(line: &str) {
    let _ = io::stderr().write_all(format!("thalweg: {line}\n").as_bytes());
}

/// A record of the server's log, as a line of JSON on standard error.
pub fn log_json(record: &LogRecord) {
    let _ = io::stderr().write_all(record_json(record, &Timestamp::now()).as_bytes());
}

fn record_json(record: &LogRecord, time: &Timestamp) -> String {
    let mut line = format!(
        "{{\"time\":\"{time:.3}\",\"level\":{},\"message\":{}",
        json!(record.level.as_str().to_ascii_lowercase()),
        json!(record.message)
    );
    for (name, value) in &record.fields {
        line.push_str(&format!(",{}:{value}", json!(name)));
    }
    line.push_str("}\n");
    line
}

/// Buffered standard output, for as long as a command runs.
pub struct Output {
    out: BufWriter<StdoutLock<'static>>,
    json: bool,
}

impl Output {
    /// Takes standard output; `json` is what the user asked for.
    pub fn new(json: bool) -> Self {
        Self {
            out: BufWriter::with_capacity(64 << 10, io::stdout().lock()),
            json,
        }
    }

    /// Whether JSON was asked for.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// A line of JSON.
    pub fn json(&mut self, value: &Value) -> Result<(), Failure> {
        let text = serde_json::to_string(value).expect("a JSON value becomes text");
        self.line(&text)
    }

    /// `value` if JSON was asked for, else `text`.
    pub fn either(&mut self, value: &Value, text: &str) -> Result<(), Failure> {
        match self.json {
            true => self.json(value),
            false => self.line(text),
        }
    }

    /// A line of text.
    pub fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())?;
        self.bytes(b"\n")
    }

    /// Bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        told(self.out.write_all(bytes))
    }

    /// Hands everything to the reader.
    pub fn flush(&mut self) -> Result<(), Failure> {
        told(self.out.flush())
    }
}

fn told(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::OutputClosed),
        other => other.about("standard output"),
    }
}

/// Columns of text, as wide as they need to be.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = header.iter().map(|cell| cell.len()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (cell, width) in cells.zip(&widths) {
            text.push_str(&format!("{cell:<width$}  "));
        }
        text.trim_end().to_owned()
    };
    let mut lines = vec![line(&mut header.iter().copied())];
    lines.extend(
        rows.iter()
            .map(|row| line(&mut row.iter().map(String::as_str))),
    );
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_the_log_is_a_line_of_json() {
        let record = LogRecord {
            level: server::Level::WARN,
            message: "\"t\" is full".to_owned(),
            fields: vec![("source", json!("a.rs:1:2")), ("left_out", json!(7))],
        };
        let time = Timestamp::from_millisecond(1_700_000_000_120).unwrap();
        assert_eq!(
            record_json(&record, &time),
            "{\"time\":\"2023-11-14T22:13:20.120Z\",\"level\":\"warn\",\
             \"message\":\"\\\"t\\\" is full\",\"source\":\"a.rs:1:2\",\"left_out\":7}\n"
        );
    }
}
