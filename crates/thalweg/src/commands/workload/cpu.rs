//! What processes have used of processors.

use std::path::PathBuf;

/// Of `/proc/PID/stat` in a second: Linux has the same on every machine that this is built for.
const TICKS: f64 = 100.0;

/// What `/proc/PID/stat` says of a process.
pub struct Stat {
    pub pid: u32,
    pub parent: u32,
    pub group: u32,
    /// CPU seconds so far, threads that have ended among them.
    pub seconds: f64,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name of a program, which may have anything in it, ends with the last parenthesis. What stands behind it
        // begins with the 3rd field; the parent is the 4th, the group the 5th, times are the 14th and 15th.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            pid,
            parent: number(4)? as u32,
            group: number(5)? as u32,
            seconds: (number(14)? + number(15)?) as f64 / TICKS,
        })
    }
}

/// CPU seconds of a process so far.
pub fn seconds_of(process: u32) -> Option<f64> {
    Stat::read(process).map(|stat| stat.seconds)
}

/// All processes of this host that can be seen.
pub fn processes() -> impl Iterator<Item = Stat> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(Stat::read)
}

/// The directory of a process.
pub fn directory(process: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{process}"))
}
