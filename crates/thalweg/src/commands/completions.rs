//! `thalweg completions`.

use crate::cli::{Cli, CompletionsArgs};
use crate::failure::Failure;
use crate::output::Output;
use clap::CommandFactory;

pub fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "thalweg", &mut script);
    let mut output = Output::new(false);
    output.bytes(&script)?;
    output.flush()
}
