//! Instructions in user space, as the kernel's `perf stat` counts them.
//!
//! Times move with the machine and with whoever else uses it; instructions
//! hardly do. `perf` attaches to the threads of a process and to those that
//! they start, and counts only while it is told to.

use crate::failure::{About, Code, Failure};
use rustix::fs::{CWD, FileType, Mode};
use rustix::process::{Pid, Signal};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SUBJECT: &str = "perf stat";
/// How long it may take to answer: against one that never does.
const WAIT: Duration = Duration::from_secs(30);
/// How often its answer is looked for.
const LOOK: Duration = Duration::from_millis(1);

/// Counts the instructions of some processes. Ended when it is dropped.
pub struct Counter {
    perf: Child,
    orders: File,
    answers: File,
    // The pipes and its report.
    _directory: tempfile::TempDir,
    report: std::path::PathBuf,
}

impl Counter {
    /// Attaches to `processes`, without counting yet.
    pub fn attach(processes: &[u32]) -> Result<Self, Failure> {
        let directory = tempfile::tempdir().about(SUBJECT)?;
        let [orders, answers] = ["orders", "answers"].map(|name| directory.path().join(name));
        for path in [&orders, &answers] {
            let mode = Mode::RUSR | Mode::WUSR;
            rustix::fs::mknodat(CWD, path, FileType::Fifo, mode, 0)
                .map_err(io::Error::from)
                .about(SUBJECT)?;
        }
        let report = directory.path().join("report");
        let list: Vec<String> = processes.iter().map(u32::to_string).collect();
        let perf = Command::new("perf")
            .args(["stat", "-x", ",", "-e", "instructions:u", "-D", "-1"])
            .arg("--control")
            .arg(control(&orders, &answers))
            .args(["-p", &list.join(",")])
            .arg("-o")
            .arg(&report)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => Failure::new(
                    Code::Failure,
                    "--instructions",
                    "the program `perf` is not there (Debian: linux-perf)",
                ),
                _ => Failure::new(Code::Failure, SUBJECT, error),
            })?;
        let mut counter = Self {
            perf,
            // For reading and writing, so that opening waits for nobody.
            orders: open(&orders)?,
            answers: open(&answers)?,
            _directory: directory,
            report,
        };
        counter.send("ping")?;
        Ok(counter)
    }

    /// Counts from now on.
    pub fn begin(&mut self) -> Result<(), Failure> {
        self.send("enable")
    }

    /// Counts no longer; returns what was counted.
    pub fn end(mut self) -> Result<u64, Failure> {
        self.send("disable")?;
        rustix::process::kill_process(Pid::from_child(&self.perf), Signal::INT)
            .map_err(io::Error::from)
            .about(SUBJECT)?;
        self.perf.wait().about(SUBJECT)?;
        let report = std::fs::read_to_string(&self.report).about(SUBJECT)?;
        counted(&report).ok_or_else(|| {
            let what = format!("it counts no instructions on this machine: {report:?}");
            Failure::new(Code::Failure, SUBJECT, what)
        })
    }

    fn send(&mut self, order: &str) -> Result<(), Failure> {
        writeln!(self.orders, "{order}").about(SUBJECT)?;
        let began = Instant::now();
        let mut byte = [0];
        loop {
            match self.answers.read(&mut byte) {
                Ok(1) if byte == *b"\n" => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if let Some(status) = self.perf.try_wait().about(SUBJECT)? {
                        let what = format!("ended ({status}); may this user count instructions?");
                        return Err(Failure::new(Code::Failure, SUBJECT, what));
                    }
                    if began.elapsed() > WAIT {
                        let what = format!("did not answer {order:?} for {WAIT:?}");
                        return Err(Failure::new(Code::Timeout, SUBJECT, what));
                    }
                    std::thread::sleep(LOOK);
                }
                Err(error) => return Err(error).about(SUBJECT),
            }
        }
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        // After `end` it is gone, and there is nobody to tell.
        let _ = self.perf.kill();
        let _ = self.perf.wait();
    }
}

fn control(orders: &Path, answers: &Path) -> String {
    format!("fifo:{},{}", orders.display(), answers.display())
}

fn open(path: &Path) -> Result<File, Failure> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(flags);
    options.open(path).about(SUBJECT)
}

/// The number in a report; 0 if the processes never ran. None where the
/// machine cannot count.
fn counted(report: &str) -> Option<u64> {
    let line = report.lines().find(|line| line.contains("instructions"))?;
    match line.split(',').next()? {
        "<not counted>" => Some(0),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read() {
        let report = "# started on Sun Nov 22\n\n5421886,,instructions:u,5026326,100.00,,\n";
        assert_eq!(counted(report), Some(5_421_886));
        let idle = "\n<not counted>,,instructions:u,0,100.00,,\n";
        assert_eq!(counted(idle), Some(0));
        let unknown = "\n<not supported>,,instructions:u,0,100.00,,\n";
        assert_eq!(counted(unknown), None);
        assert_eq!(counted(""), None);
    }
}
