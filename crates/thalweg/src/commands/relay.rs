//! `thalweg relay`: tunnels between two sites.

mod args;
mod rate;

pub use args::RelayCommand;

use crate::failure::Failure;

pub fn run(command: RelayCommand) -> Result<(), Failure> {
    match command {
        RelayCommand::Offer(_) | RelayCommand::Join(_) => {
            Err(Failure::usage("relay", "is not in this build"))
        }
    }
}
