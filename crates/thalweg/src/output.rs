//! Standard output: lines of JSON, or text for people.

use crate::failure::{About, Failure};
use serde_json::Value;
use std::io::{self, BufWriter, StdoutLock, Write};

/// A line for the operator, on standard error. Where that is gone, as a terminal
/// that was closed is, the line is lost and nothing else.
pub fn report(line: &str) {
    let _ = io::stderr().write_all(format!("thalweg: {line}\n").as_bytes());
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
