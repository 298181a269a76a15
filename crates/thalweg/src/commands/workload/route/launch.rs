//! A process that ends with the command: it becomes the program of a proxy.

use crate::failure::{About, Code, Failure};
use clap::Args;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

#[derive(Debug, Args)]
pub struct LaunchArgs {
    /// End when this process has ended, which started it
    #[arg(long, value_name = "PID")]
    end_with: u32,
    /// The file of a control group that takes processes
    #[arg(long, value_name = "FILE")]
    within: Vec<PathBuf>,
    /// The program, and its arguments
    #[arg(value_name = "WORDS", required = true, last = true)]
    words: Vec<OsString>,
}

/// Becomes the program. Returns only why it does not.
pub fn run(args: &LaunchArgs) -> Failure {
    match prepare(args) {
        Ok(()) => {
            let (program, rest) = args.words.split_first().expect("there is a program");
            let error = Command::new(program).args(rest).exec();
            Failure::new(Code::Failure, program.to_string_lossy(), error)
        }
        Err(failure) => failure,
    }
}

fn prepare(args: &LaunchArgs) -> Result<(), Failure> {
    const SUBJECT: &str = "the end of the command";
    // A program that it becomes keeps it. SIGTERM, so that what has processes of its own ends them.
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(io::Error::from)
        .about(SUBJECT)?;
    // It may have ended before this was asked for.
    let parent = getppid().map(|parent| parent.as_raw_nonzero().get() as u32);
    if parent != Some(args.end_with) {
        return Err(Failure::new(Code::Failure, SUBJECT, "it has ended"));
    }
    for path in &args.within {
        std::fs::write(path, "0").about(path.display().to_string())?;
    }
    Ok(())
}
