//! The arguments of `thalweg token`.

use super::time;
use crate::commands::relay::rate;
use access::{Network, Pattern, Verb};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token, where the server's data directory is
    ///
    /// Prints one line, which is the secret: whoever has it has what it allows. What it allows is
    /// told on standard error.
    New(NewArgs),
    /// Say in sentences what a token allows
    Show(ShowArgs),
    /// Make a narrower token of one, anywhere
    ///
    /// Reads a token, and prints one that allows what it does and what is said here: less, never
    /// more. No server is asked. Revoking the first one ends the second one too.
    Restrict(RestrictArgs),
    /// Say whether a token will be good for something, before a job is queued
    ///
    /// Exits with 1 if it is not, and says why. Limits to where it is used are not looked at.
    Check(CheckArgs),
    /// End a token, and all that were made from it, where the server's data directory is
    Revoke(RevokeArgs),
}

/// Where the key of tokens is.
#[derive(Debug, Args)]
pub struct Directory {
    /// The server's data directory
    #[arg(
        long,
        value_name = "DIR",
        env = "THALWEG_DIRECTORY",
        hide_env_values = true,
        default_value = "thalweg-data"
    )]
    pub directory: PathBuf,
}

/// Limits that a holder may add as well.
#[derive(Debug, Args)]
pub struct Narrow {
    /// For topics of these patterns, divided by commas: * is any text within a level, ** any levels
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',')]
    pub topics: Option<Vec<Pattern>>,
    /// For these verbs, divided by commas: read, write, manage
    #[arg(long, value_name = "VERBS", value_delimiter = ',')]
    pub can: Option<Vec<Verb>>,
    /// For so long, as in 90s, 8h or 2d
    #[arg(long = "for", value_name = "TIME", value_parser = time::length)]
    pub lasts: Option<Duration>,
    /// From then on: a time, as in 2026-12-01T08:00, or so long from now, as in +3d
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// For clients that come from one of these networks, divided by commas, as in 10.1.0.0/16
    #[arg(long, value_name = "NETWORKS", value_delimiter = ',')]
    pub network: Option<Vec<Network>>,
    /// For so many bytes of events a second, each way, as in 50MB or 1Gbit: shared by all who have it
    #[arg(long, value_name = "RATE", value_parser = rate::parse)]
    pub rate: Option<u64>,
    /// For whom or what it is made: shown wherever the token is
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
}

/// Where a token goes.
#[derive(Debug, Args)]
pub struct Destination {
    /// Write it to a file of mode 0600 that is not there yet, and not to standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Without --can it may read, and without --for it is good for 8 hours; 7 \
    days are the most."
)]
pub struct NewArgs {
    #[command(flatten)]
    pub directory: Directory,
    /// The project: the namespace of the names; the default one where nothing is said
    #[arg(long, value_name = "NAME", default_value = "")]
    pub project: String,
    #[command(flatten)]
    pub narrow: Narrow,
    /// For one session: who comes first has it
    #[arg(long)]
    pub once: bool,
    #[command(flatten)]
    pub destination: Destination,
}

#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The file that it is in [default: standard input]
    pub file: Option<PathBuf>,
    /// Verify it, too, by this data directory of the server
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct RestrictArgs {
    /// The file that it is in [default: standard input]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub narrow: Narrow,
    #[command(flatten)]
    pub destination: Destination,
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// A topic of the token's project; the project and a / may stand before it
    pub name: Option<String>,
    /// The file that it is in [default: standard input]
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// For these verbs, divided by commas
    #[arg(
        long,
        value_name = "VERBS",
        value_delimiter = ',',
        default_value = "read"
    )]
    pub can: Vec<Verb>,
    /// Until then: a time, or so long from now, as in +3d
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Verify it, too, by this data directory of the server
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct RevokeArgs {
    /// The id of a token or of a certificate's key, or a file with one of them
    #[arg(value_name = "ID|FILE")]
    pub token: String,
    #[command(flatten)]
    pub directory: Directory,
    /// Why, for those who read the list
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
