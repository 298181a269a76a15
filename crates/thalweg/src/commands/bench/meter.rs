//! What a process has used so far, as the kernel counts it.

use serde::{Deserialize, Serialize};
use std::io;
use std::ops::{Add, Sub};

/// Counts since a process began, or differences of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Time of all threads on a core, user and system.
    pub cpu_ns: u64,
    /// Times that a thread went to sleep, and had to be woken.
    pub wakeups: u64,
    /// Times that a thread lost its core to another.
    pub preemptions: u64,
    /// System calls that read or write, files and sockets and event
    /// descriptors alike. Others are not counted: waiting for sockets or
    /// locks, syncing, allocating memory or disk space.
    pub reads_and_writes: u64,
    /// Bytes of event data that Thalweg copied from memory to memory.
    pub copied_bytes: u64,
    /// Messages that Thalweg sent and received.
    pub frames: u64,
    /// Instructions in user space; 0 where nobody counted them.
    pub instructions: u64,
}

impl Usage {
    /// Of a process: what can be seen from outside.
    ///
    /// A thread that has ended takes its times along; clients and server keep
    /// theirs while they are measured.
    pub fn of_process(process: u32) -> io::Result<Self> {
        let mut usage = Self {
            reads_and_writes: numbers(&format!("/proc/{process}/io"), &["syscr:", "syscw:"])?,
            ..Self::default()
        };
        for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
            let thread = thread?.path();
            // A thread may end meanwhile.
            let Ok(times) = std::fs::read_to_string(thread.join("schedstat")) else {
                continue;
            };
            let on_core = times.split(' ').next();
            usage.cpu_ns += on_core.and_then(|word| word.parse().ok()).unwrap_or(0);
            let status = thread.join("status").display().to_string();
            usage.wakeups += numbers(&status, &["voluntary_ctxt_switches:"]).unwrap_or(0);
            usage.preemptions += numbers(&status, &["nonvoluntary_ctxt_switches:"]).unwrap_or(0);
        }
        Ok(usage)
    }

    /// Of this process, with what only it knows. `frames` are counted by its driver.
    pub fn own(frames: u64) -> io::Result<Self> {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Ok(Self {
            cpu_ns: now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64,
            copied_bytes: memory::copies::bytes(),
            frames,
            ..Self::of_process(std::process::id())?
        })
    }
}

/// The sum of the numbers behind `names`, which begin lines of a file.
fn numbers(path: &str, names: &[&str]) -> io::Result<u64> {
    let text = std::fs::read_to_string(path)?;
    let values = text.lines().filter_map(|line| {
        let rest = names.iter().find_map(|name| line.strip_prefix(name))?;
        rest.trim().parse::<u64>().ok()
    });
    Ok(values.sum())
}

impl Add for Usage {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns + other.cpu_ns,
            wakeups: self.wakeups + other.wakeups,
            preemptions: self.preemptions + other.preemptions,
            reads_and_writes: self.reads_and_writes + other.reads_and_writes,
            copied_bytes: self.copied_bytes + other.copied_bytes,
            frames: self.frames + other.frames,
            instructions: self.instructions + other.instructions,
        }
    }
}

impl Sub for Usage {
    type Output = Self;
    /// What was used since `other`. Never below 0: a thread that has ended
    /// takes its counts along.
    fn sub(self, other: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(other.cpu_ns),
            wakeups: self.wakeups.saturating_sub(other.wakeups),
            preemptions: self.preemptions.saturating_sub(other.preemptions),
            reads_and_writes: self.reads_and_writes.saturating_sub(other.reads_and_writes),
            copied_bytes: self.copied_bytes.saturating_sub(other.copied_bytes),
            frames: self.frames.saturating_sub(other.frames),
            instructions: self.instructions.saturating_sub(other.instructions),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_sleeps_and_time_are_counted() {
        let before = Usage::own(0).unwrap();
        for _ in 0..100 {
            std::fs::read("/proc/self/stat").unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
        let used = Usage::own(3).unwrap() - before;
        assert!(used.reads_and_writes >= 100, "{used:?}");
        assert!(used.wakeups >= 1 && used.cpu_ns > 0, "{used:?}");
        assert_eq!(used.frames, 3);
    }
}
