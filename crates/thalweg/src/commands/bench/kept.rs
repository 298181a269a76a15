//! The topics of past repetitions, kept until nothing more is measured.
//!
//! Removing files costs the disk and its threads time long after the topic's
//! deletion was answered, and the next repetition would pay for it. What is
//! kept is bounded: beyond the bound all of it is deleted between two
//! repetitions, and the next begins when the files are gone.

use crate::failure::{About, Code, Failure};
use client::Driver;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long files may take to vanish before the benchmark gives up.
const SETTLE: Duration = Duration::from_secs(120);

/// Topics that were measured and still exist.
pub struct Kept {
    /// The server's data directory, whose files tell when a deletion is over.
    directory: PathBuf,
    /// Bytes of its files before the first repetition.
    bytes_before: u64,
    bytes_max: u64,
    bytes: u64,
    topics: Vec<String>,
    /// How many names were given out.
    named: u64,
}

impl Kept {
    /// Keeps at most `bytes_max`; by default a quarter of the memory that is
    /// available now, for that is where both a memory partition's events and
    /// the page cache of a disk partition's files are.
    pub fn new(directory: &Path, bytes_max: Option<u64>) -> Result<Self, Failure> {
        let bytes_max = match bytes_max {
            Some(bytes) => bytes,
            None => available_bytes().about("available memory")? / 4,
        };
        Ok(Self {
            directory: directory.to_owned(),
            bytes_before: bytes_below(directory).about("the data directory")?,
            bytes_max,
            bytes: 0,
            topics: Vec::new(),
            named: 0,
        })
    }

    /// Makes space for a repetition of `bytes`. What the kernel still has to
    /// write of earlier ones is written before this returns.
    pub fn make_space(&mut self, driver: &Driver, bytes: u64) -> Result<(), Failure> {
        if !self.topics.is_empty() && self.bytes + bytes > self.bytes_max {
            self.delete_all(driver)?;
        }
        let directory = std::fs::File::open(&self.directory).about("the data directory")?;
        rustix::fs::syncfs(&directory)
            .map_err(io::Error::from)
            .about("the data directory")
    }

    /// The name of a new topic, which will hold `bytes`.
    pub fn name(&mut self, bytes: u64) -> String {
        let name = format!("bench-{}-{}", std::process::id(), self.named);
        self.named += 1;
        self.bytes += bytes;
        self.topics.push(name.clone());
        name
    }

    /// Deletes every topic and waits until its files are gone.
    pub fn delete_all(&mut self, driver: &Driver) -> Result<(), Failure> {
        for topic in self.topics.drain(..) {
            // Queues and requests make topics of their own beside it.
            for end in ["", ".dead", ".replies"] {
                let topic = format!("{topic}{end}");
                if driver.topic_exists(&topic).about(&topic)? {
                    driver.delete_topic(&topic).about(&topic)?;
                }
            }
        }
        self.bytes = 0;
        let began = Instant::now();
        // The server's own partition grows a little with every topic.
        const GROWN: u64 = 32 << 20;
        let rest = self.bytes_before + GROWN;
        while bytes_below(&self.directory).about("the data directory")? > rest {
            if began.elapsed() > SETTLE {
                let what = format!("files of deleted topics are still there after {SETTLE:?}");
                return Err(Failure::new(Code::Timeout, "the data directory", what));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

/// What the kernel says could be used without swapping.
fn available_bytes() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let kilobytes = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .and_then(|number| number.trim().parse::<u64>().ok());
    kilobytes
        .map(|count| count * 1024)
        .ok_or_else(|| io::Error::other("/proc/meminfo has no MemAvailable"))
}

/// Bytes of the files in a directory and below. Files that vanish meanwhile
/// count for nothing.
fn bytes_below(directory: &Path) -> io::Result<u64> {
    let mut sum = 0;
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        let entries = match std::fs::read_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            match entry.metadata() {
                Ok(found) if found.is_dir() => left.push(entry.path()),
                Ok(found) => sum += found.len(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_tree_are_those_of_its_files() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("a/b")).unwrap();
        std::fs::write(directory.path().join("a/b/c"), [0; 100]).unwrap();
        std::fs::write(directory.path().join("d"), [0; 11]).unwrap();
        assert_eq!(bytes_below(directory.path()).unwrap(), 111);
        assert_eq!(bytes_below(&directory.path().join("none")).unwrap(), 0);
    }

    #[test]
    fn the_kernel_tells_how_much_memory_is_available() {
        assert!(available_bytes().unwrap() > 0);
    }
}
