//! Figures of a run of steps: how long each took, and what a step costs beside its bytes.

use super::super::meter::Usage;
use super::job::{Done, Load};

/// Times of the steps of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Times {
    pub median: f64,
    pub lower_quartile: f64,
    pub max: f64,
}

impl Times {
    /// Of at least one time.
    pub fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        Self {
            median: quantile(&times, 0.5),
            lower_quartile: quantile(&times, 0.25),
            max: *times.last().expect("there is a step"),
        }
    }
}

/// Between the two that are nearest.
fn quantile(sorted: &[f64], fraction: f64) -> f64 {
    let place = (sorted.len() - 1) as f64 * fraction;
    let (low, high) = (
        sorted[place.floor() as usize],
        sorted[place.ceil() as usize],
    );
    low + (high - low) * place.fract()
}

/// The phases of a step, in the order in which they are: name in JSON, words for people.
pub const PHASES: [(&str, &str); 9] = [
    ("put", "put"),
    ("end_step", "end step"),
    ("commit", "record, behind the last part"),
    ("begin_step", "begin step"),
    ("gets", "gets"),
    ("release", "release"),
    ("delay", "from begin to read"),
    ("read_interval", "from read to read"),
    ("write_interval", "from end to end"),
];

/// What a run of steps has shown.
#[derive(Debug)]
pub struct Figures {
    /// Nanoseconds, in the order of [`PHASES`]. `None` if it was not looked at.
    pub phases: Vec<Option<Times>>,
    /// Steps that came to all readers, a second.
    pub steps_per_s: f64,
    /// The longest time between two steps at the readers, by the median one.
    pub stall: f64,
    /// Bytes that readers ask for in a step.
    pub asked_bytes: u64,
    /// Messages a step of all writers, and of all readers: sent and received.
    pub writer_frames: f64,
    pub reader_frames: f64,
    /// Of all writers, all readers, and the server, over all steps.
    pub writers: Usage,
    pub readers: Usage,
    pub server: Option<Usage>,
}

impl Figures {
    /// Of what all processes of writers and of readers have done. Of several ranks the slowest
    /// one counts.
    pub fn of(load: &Load, writers: &[Done], readers: &[Done], server: Option<Usage>) -> Self {
        let steps = || load.warmup..load.all_steps();
        let most = |side: &[Done], step: usize, time: &dyn Fn([u64; 4]) -> u64| {
            let ranks = side.iter().flat_map(|done| &done.ranks);
            ranks.map(|marks| time(marks[step])).max().unwrap_or(0) as f64
        };
        let least = |side: &[Done], step: usize, time: &dyn Fn([u64; 4]) -> u64| {
            let ranks = side.iter().flat_map(|done| &done.ranks);
            ranks.map(|marks| time(marks[step])).min().unwrap_or(0) as f64
        };
        let times = |time: &dyn Fn(usize) -> f64| Some(Times::of(steps().map(time).collect()));
        let phase = |side: &[Done], from: usize, to: usize| {
            times(&|step| most(side, step, &|marks| marks[to] - marks[from]))
        };
        let intervals = |side: &[Done], mark: usize| {
            let at = |step| most(side, step, &|marks| marks[mark]);
            let between = steps().skip(1).map(|step| at(step) - at(step - 1));
            Times::of(between.collect())
        };
        let read = intervals(readers, 2);
        let waits_for_record = load.wait == super::job::Awaited::Committed;
        let phases = vec![
            phase(writers, 0, 1),
            phase(writers, 1, 2),
            // The last part is acknowledged: how long until the last rank knows of the record.
            waits_for_record
                .then(|| {
                    times(&|step| {
                        most(writers, step, &|marks| marks[3])
                            - most(writers, step, &|marks| marks[2])
                    })
                })
                .flatten(),
            phase(readers, 0, 1),
            phase(readers, 1, 2),
            phase(readers, 2, 3),
            times(&|step| {
                most(readers, step, &|marks| marks[2]) - least(writers, step, &|marks| marks[0])
            }),
            Some(read),
            Some(intervals(writers, 3)),
        ];
        let at = |step| most(readers, step, &|marks| marks[2]);
        let (first, last) = (load.warmup, load.all_steps() - 1);
        let seconds = (at(last) - at(first)) / 1e9;
        let all = |side: &[Done]| {
            side.iter()
                .fold(Usage::default(), |sum, done| sum + done.usage)
        };
        let (writers, readers_usage) = (all(writers), all(readers));
        let count = load.all_steps() as f64;
        Self {
            phases,
            steps_per_s: (last - first) as f64 / seconds,
            stall: read.max / read.median,
            asked_bytes: readers.iter().map(|done| done.asked_bytes).sum(),
            writer_frames: writers.frames as f64 / count,
            reader_frames: readers_usage.frames as f64 / count,
            writers,
            readers: readers_usage,
            server,
        }
    }

    /// The times of a phase.
    pub fn phase(&self, name: &str) -> Option<Times> {
        let index = PHASES.iter().position(|(phase, _)| *phase == name)?;
        self.phases[index]
    }
}

/// Times of steps of several lengths as a line: overhead, and a time for each byte.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    pub overhead_ns: f64,
    pub bytes_per_s: f64,
    /// What each time is above the line, nanoseconds.
    pub residuals_ns: Vec<f64>,
}

impl Fit {
    /// Least squares through (bytes, nanoseconds) of two lengths or more.
    pub fn of(points: &[(f64, f64)]) -> Self {
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (bytes, times) = (mean(|point| point.0), mean(|point| point.1));
        let product = |(x, y): &(f64, f64)| (x - bytes) * (y - times);
        let square = |(x, _): &(f64, f64)| (x - bytes).powi(2);
        let slope =
            points.iter().map(product).sum::<f64>() / points.iter().map(square).sum::<f64>();
        let overhead_ns = times - slope * bytes;
        let residual = |(x, y): &(f64, f64)| y - overhead_ns - slope * x;
        Self {
            overhead_ns,
            bytes_per_s: 1e9 / slope,
            residuals_ns: points.iter().map(residual).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_again() {
        let fit = Fit::of(&[(1e6, 600.0), (2e6, 1100.0), (4e6, 2100.0)]);
        assert!((fit.overhead_ns - 100.0).abs() < 1e-6, "{fit:?}");
        assert!((fit.bytes_per_s - 2e12).abs() < 1.0, "{fit:?}");
        assert!(fit.residuals_ns.iter().all(|one| one.abs() < 1e-6));
        let bent = Fit::of(&[(1.0, 1.0), (2.0, 3.0), (3.0, 2.0)]);
        assert!(bent.residuals_ns[1] > 0.5, "{bent:?}");
    }

    #[test]
    fn quartiles_lie_between() {
        let times = Times::of(vec![4.0, 1.0, 3.0, 2.0, 5.0]);
        assert_eq!(
            (times.lower_quartile, times.median, times.max),
            (2.0, 3.0, 5.0)
        );
        assert_eq!(Times::of(vec![1.0, 2.0]).lower_quartile, 1.25);
    }
}
