//! The server's log: `tracing` events, of which those for the operator are few.
//!
//! What happens thousands of times a second makes no thousands of lines: of each kind, which is
//! the place in the code that makes it, some are written in ten seconds, and how many were left
//! out is written with the next one, or behind these seconds with the last one left out.

use broker::{Line, Severity};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing::{Dispatch, Event, Metadata, Subscriber, dispatcher, span};

pub use tracing::Level;
pub use tracing::level_filters::LevelFilter;

/// In which time lines of a kind are counted.
const WINDOW: Duration = Duration::from_secs(10);
/// How many of a kind are written in it.
const LINES_MAX: u32 = 20;

/// Where the server's log goes. Copies are the same log.
#[derive(Clone)]
pub struct ServerLog {
    dispatch: Dispatch,
    /// By kind. Locked for a look, and seldom: lines are rare.
    windows: Arc<Mutex<BTreeMap<&'static Location<'static>, Window>>>,
}

/// What became of the lines of one kind.
struct Window {
    began: Instant,
    written: u32,
    left_out: u64,
    last: Option<Line>,
}

impl Window {
    fn new(began: Instant) -> Self {
        Self {
            began,
            written: 0,
            left_out: 0,
            last: None,
        }
    }
}

/// An event of the log.
#[derive(Debug, Clone, PartialEq)]
pub struct LogRecord {
    /// How much an operator should care.
    pub level: Level,
    /// What it says.
    pub message: String,
    /// What else: `source`, where in the code it is made; `left_out`, how many lines of its kind
    /// were not written before it.
    pub fields: Vec<(&'static str, Value)>,
}

impl ServerLog {
    /// A log of which `write` is handed each event of this level and above, on the thread that
    /// makes it.
    pub fn new(level: LevelFilter, write: impl Fn(&LogRecord) + Send + Sync + 'static) -> Self {
        if level == LevelFilter::TRACE {
            trace::turn_on();
        }
        Dispatch::new(Writer { level, write }).into()
    }

    /// Writes what an operator may want to know.
    pub(crate) fn info(&self, text: String) {
        self.write(&Line::info(text));
    }

    /// Writes a warning that belongs to no part of the server, as of its settings.
    pub fn warn(&self, text: String) {
        self.write(&Line::warning(text));
    }

    /// Writes what is for one who looks for more than an operator.
    pub(crate) fn debug(&self, text: &str) {
        self.scope(|| tracing::debug!(target: "thalweg", "{text}"));
    }

    /// Writes a line, unless there were too many of its kind.
    pub fn write(&self, line: &Line) {
        self.write_at(line, Instant::now());
    }

    fn write_at(&self, line: &Line, now: Instant) {
        let left_out = {
            let mut windows = self.windows.lock().expect("no holder panics here");
            let window = windows
                .entry(line.source)
                .or_insert_with(|| Window::new(now));
            let mut left_out = 0;
            if now >= window.began + WINDOW {
                left_out = window.left_out;
                *window = Window::new(now);
            }
            if window.written == LINES_MAX {
                window.left_out += 1;
                window.last = Some(line.clone());
                return;
            }
            window.written += 1;
            left_out
        };
        self.emit(line, left_out);
    }

    /// Writes a line, however many of its kind there were.
    pub fn write_each(&self, line: &Line) {
        self.emit(line, 0);
    }

    /// Writes how many lines were left out, of the kinds of which none has come since. To be
    /// called now and then.
    pub fn flush(&self) {
        self.flush_at(Instant::now());
    }

    /// Writes how many lines were left out of each kind: nothing comes any more.
    pub fn flush_all(&self) {
        self.flush_begun_before(None);
    }

    fn flush_at(&self, now: Instant) {
        if let Some(last) = now.checked_sub(WINDOW) {
            self.flush_begun_before(Some(last));
        }
    }

    fn flush_begun_before(&self, last: Option<Instant>) {
        let mut over = Vec::new();
        let mut windows = self.windows.lock().expect("no holder panics here");
        windows.retain(|_, window| {
            let is_over = last.is_none_or(|last| window.began <= last);
            if is_over {
                over.extend(window.last.take().map(|line| (line, window.left_out - 1)));
            }
            !is_over
        });
        drop(windows);
        for (line, left_out) in over {
            self.emit(&line, left_out);
        }
    }

    fn emit(&self, line: &Line, left_out: u64) {
        let (text, source) = (&line.text, line.source);
        let left_out = (left_out > 0).then_some(left_out);
        self.scope(|| match line.severity {
            Severity::Info => tracing::info!(target: "thalweg", %source, left_out, "{text}"),
            Severity::Warning => tracing::warn!(target: "thalweg", %source, left_out, "{text}"),
        });
    }

    /// Has what is traced in `run`, on this thread, go to this log.
    pub fn scope<T>(&self, run: impl FnOnce() -> T) -> T {
        dispatcher::with_default(&self.dispatch, run)
    }
}

/// A program that has a subscriber of `tracing` has the log go there.
impl From<Dispatch> for ServerLog {
    fn from(dispatch: Dispatch) -> Self {
        Self {
            dispatch,
            windows: Arc::default(),
        }
    }
}

/// The lines for the operator, as text.
impl<F: Fn(&str) + Send + Sync + ?Sized + 'static> From<Arc<F>> for ServerLog {
    fn from(write: Arc<F>) -> Self {
        Self::new(LevelFilter::INFO, move |record| write(&record.to_string()))
    }
}

impl fmt::Debug for ServerLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerLog").finish_non_exhaustive()
    }
}

/// As text: a line for the operator as it is, others with their level and their fields.
impl fmt::Display for LogRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_for_operator = self.level <= Level::INFO;
        if !is_for_operator {
            write!(f, "{}: ", self.level.as_str().to_ascii_lowercase())?;
        }
        f.write_str(&self.message)?;
        for (name, value) in &self.fields {
            match (*name, value) {
                ("left_out", count) => write!(f, " ({count} more such lines were left out)")?,
                _ if is_for_operator => {}
                (name, Value::String(text)) => write!(f, " {name}={text}")?,
                (name, value) => write!(f, " {name}={value}")?,
            }
        }
        Ok(())
    }
}

/// Hands records to a function.
struct Writer<F> {
    level: LevelFilter,
    write: F,
}

impl<F: Fn(&LogRecord) + Send + Sync + 'static> Subscriber for Writer<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn event(&self, event: &Event<'_>) {
        let mut record = LogRecord {
            level: *event.metadata().level(),
            message: String::new(),
            fields: Vec::new(),
        };
        event.record(&mut record);
        let at = event.metadata();
        if at.target() == trace::TARGET {
            // Without the file a mark says half.
            let file = at.file().unwrap_or_default();
            let place = format!("{file}:{}", at.line().unwrap_or_default());
            record.fields.push(("source", place.into()));
        }
        (self.write)(&record);
    }

    // The server makes no spans; those of a storage of a user's are not kept.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

impl Visit for LogRecord {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.fields.push((name, format!("{value:?}").into())),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.fields.push((field.name(), value.into()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.fields.push((field.name(), value.into()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.fields.push((field.name(), value.into()));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.push((field.name(), value.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collecting(level: LevelFilter) -> (ServerLog, Arc<Mutex<Vec<LogRecord>>>) {
        let records = Arc::new(Mutex::new(Vec::new()));
        let kept = records.clone();
        let log = ServerLog::new(level, move |record| {
            kept.lock().unwrap().push(record.clone());
        });
        (log, records)
    }

    fn texts(records: &Mutex<Vec<LogRecord>>) -> Vec<String> {
        let records = std::mem::take(&mut *records.lock().unwrap());
        records.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn of_many_lines_of_a_kind_some_are_written_and_the_others_counted() {
        let (log, records) = collecting(LevelFilter::INFO);
        let began = Instant::now();
        let full = |number| Line::warning(format!("full {number}"));
        for number in 0..100 {
            log.write_at(&full(number), began);
        }
        // Another kind is none of these.
        log.write_at(&Line::info("started".to_owned()), began);
        let lines = texts(&records);
        assert_eq!(lines.len() as u32, LINES_MAX + 1);
        assert_eq!((&*lines[19], &*lines[20]), ("full 19", "started"));
        // The next one says how many were left out.
        log.write_at(&full(100), began + WINDOW);
        let lines = texts(&records);
        assert_eq!(lines, ["full 100 (80 more such lines were left out)"]);
        // Or, if there is none, the last one left out.
        for number in 101..200 {
            log.write_at(&full(number), began + WINDOW);
        }
        texts(&records);
        log.flush_at(began + WINDOW * 3 / 2);
        assert!(texts(&records).is_empty());
        log.flush_at(began + WINDOW * 2);
        let lines = texts(&records);
        assert_eq!(lines, ["full 199 (79 more such lines were left out)"]);
        log.flush_at(began + WINDOW * 4);
        assert!(texts(&records).is_empty());
        // At the end of the server nothing is left unsaid.
        for number in 200..300 {
            log.write_at(&full(number), began + WINDOW * 5);
        }
        texts(&records);
        log.flush_all();
        let lines = texts(&records);
        assert_eq!(lines, ["full 299 (79 more such lines were left out)"]);
    }

    #[test]
    fn a_record_has_its_level_its_source_and_its_fields() {
        let (log, records) = collecting(LevelFilter::DEBUG);
        let line = Line::warning("full".to_owned());
        log.write(&line);
        log.scope(|| {
            tracing::debug!(link = 7_u64, "received");
            tracing::trace!("nobody asked for it");
        });
        let records = records.lock().unwrap();
        let [full, received] = records.as_slice() else {
            panic!("{records:?}");
        };
        assert_eq!(full.level, Level::WARN);
        let source = Value::from(line.source.to_string());
        assert_eq!(full.fields, [("source", source)]);
        assert_eq!(full.to_string(), "full");
        assert_eq!(received.to_string(), "debug: received link=7");
    }

    #[test]
    #[cfg(debug_assertions)]
    fn a_mark_of_the_path_of_events_says_in_which_file_it_is() {
        let (log, records) = collecting(LevelFilter::TRACE);
        let line = line!() + 2;
        log.scope(|| {
            trace::passes!("handed over");
        });
        let records = records.lock().unwrap();
        let source = format!("{}:{line}", file!());
        assert_eq!(
            records[0].to_string(),
            format!("trace: handed over source={source}")
        );
    }

    #[test]
    fn a_function_is_handed_the_lines_for_the_operator_as_text() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = lines.clone();
        let log = ServerLog::from(Arc::new(move |line: &str| {
            kept.lock().unwrap().push(line.to_owned());
        }));
        log.write(&Line::info("ready".to_owned()));
        log.scope(|| tracing::debug!("nothing for the operator"));
        assert_eq!(*lines.lock().unwrap(), ["ready"]);
    }
}
