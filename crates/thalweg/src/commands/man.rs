//! `thalweg man`.

use crate::cli::{Cli, ManArgs};
use crate::failure::{About, Failure};
use clap::CommandFactory;

pub fn run(args: &ManArgs) -> Result<(), Failure> {
    let subject = args.directory.display().to_string();
    std::fs::create_dir_all(&args.directory).about(&subject)?;
    clap_mangen::generate_to(Cli::command(), &args.directory).about(&subject)
}
