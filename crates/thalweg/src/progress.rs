//! Progress bars: on standard error, if that is a terminal, and only where
//! they are not in the way of output.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// How often a bar is drawn, Hertz.
const DRAWS_PER_SECOND: u8 = 8;
/// How often a bar is drawn that does not move.
const TICK: Duration = Duration::from_millis(250);

/// How far something long has come. Gone when dropped.
pub struct Progress {
    bar: ProgressBar,
}

/// What else a command writes while a bar is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// Lines on standard output: on the same terminal they would run through the bar.
    Lines,
}

impl Progress {
    /// Of `total` events, or without an end if it is not known how many come.
    pub fn events(what: &str, total: Option<u64>, beside: Beside) -> Self {
        let template = match total {
            Some(_) => "{msg} [{wide_bar}] {human_pos}/{human_len} events, {per_sec}, {eta} left",
            None => "{msg} {spinner} {human_pos} events, {per_sec}",
        };
        Self::new(what, total, template, beside)
    }

    /// Of `total` steps.
    pub fn steps(what: &str, total: u64) -> Self {
        let template = "{msg} [{wide_bar}] {human_pos}/{human_len} steps, {eta} left";
        Self::new(what, Some(total), template, Beside::Nothing)
    }

    /// Of `total` steps that are recorded, or without an end if it is not known how many come.
    pub fn recorded(what: &str, total: Option<u64>) -> Self {
        match total {
            Some(total) => Self::steps(what, total),
            None => Self::new(
                what,
                None,
                "{msg} {spinner} {human_pos} steps",
                Beside::Nothing,
            ),
        }
    }

    /// Of `total` bytes, which go to standard output: on the same terminal there is no bar.
    pub fn bytes(what: &str, total: u64) -> Self {
        let template = "{msg} [{wide_bar}] {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left";
        Self::new(what, Some(total), template, Beside::Lines)
    }

    fn new(what: &str, total: Option<u64>, template: &str, beside: Beside) -> Self {
        let target = match beside {
            Beside::Lines if std::io::stdout().is_terminal() => ProgressDrawTarget::hidden(),
            _ => ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND),
        };
        let style = ProgressStyle::with_template(template).expect("the templates are constants");
        let bar = ProgressBar::with_draw_target(total, target).with_style(style);
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(TICK);
        Self { bar }
    }

    /// Of partitions, of which it is not known how many there are.
    pub fn partitions(what: &str) -> Self {
        let target = ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND);
        let template = "{msg} {spinner} {human_pos} partitions{prefix}";
        let style = ProgressStyle::with_template(template).expect("the template is constant");
        let bar = ProgressBar::with_draw_target(None, target).with_style(style);
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(TICK);
        Self { bar }
    }

    /// Of something that says in words how far it is.
    pub fn line(what: &str) -> Self {
        let target = ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND);
        let style = ProgressStyle::with_template("{prefix} {spinner} {wide_msg}");
        let style = style.expect("the template is constant");
        let bar = ProgressBar::with_draw_target(None, target).with_style(style);
        bar.set_prefix(what.to_owned());
        bar.enable_steady_tick(TICK);
        Self { bar }
    }

    /// How far it is, in words.
    pub fn say(&self, text: &str) {
        self.bar.set_message(text.to_owned());
    }

    /// So many partitions with so many bytes are done.
    pub fn at(&self, partitions: u64, bytes: u64) {
        self.bar.set_prefix(format!(", {bytes} bytes"));
        self.bar.set_position(partitions);
    }

    /// It has come this much further.
    pub fn add(&self, count: u64) {
        self.bar.inc(count);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_can_be_drawn() {
        let bars = [
            Progress::events("a", Some(10), Beside::Nothing),
            Progress::events("b", None, Beside::Lines),
            Progress::steps("c", 10),
            Progress::recorded("e", None),
            Progress::bytes("d", 10),
        ];
        for bar in bars {
            bar.add(3);
            assert_eq!(bar.bar.position(), 3);
        }
    }
}
