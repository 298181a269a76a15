//! The arguments of `thalweg up`.

use crate::connection::seconds;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::str::FromStr;

#[derive(Debug, Args)]
pub struct UpArgs {
    /// The data directories: {rank} in it stands for the rank of a server, and is put behind it if it is not there
    pub data: String,
    /// The directory by which the servers find each other, on a file system that all hosts see
    #[arg(long, value_name = "DIR")]
    pub cluster: String,
    /// The hosts: a list as n[1-3],m2; a file with one a line; @slurm or @pbs for those of the job [default: this host]
    #[arg(long, value_name = "HOSTS")]
    pub nodes: Option<String>,
    /// How many servers a host has; or nic: one for each network interface of hardware that is up on this host, which the
    /// others are taken to be like, at that interface and on the processors near it [default: 1, and 3 where this host is the only one]
    #[arg(long, value_name = "COUNT")]
    pub per_node: Option<PerNode>,
    /// How many shards a server has: a number, or auto
    #[arg(long, value_name = "COUNT")]
    pub shards: Option<String>,
    /// How many servers decide where everything is: 1, 3 or 5 [default: 3, or 1 where fewer are started]
    #[arg(long, value_name = "COUNT")]
    pub voters: Option<u32>,
    /// The group file that all servers write, by which clients find them
    #[arg(
        short,
        long,
        value_name = "FILE",
        env = "THALWEG_GROUP_FILE",
        hide_env_values = true,
        default_value = "thalweg.json"
    )]
    pub group_file: PathBuf,
    /// How servers are started, by default local without --nodes, srun for @slurm, else ssh
    #[arg(long, value_enum)]
    pub via: Option<Via>,
    /// How long to wait until all servers are ready, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0, value_parser = seconds)]
    pub timeout: f64,
    /// Print the commands that would be run, and run none
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON, one value a line
    #[arg(long)]
    pub json: bool,
    /// Further arguments of `thalweg serve`
    #[arg(last = true, value_name = "ARGUMENTS")]
    pub further: Vec<String>,
}

/// How many servers a host has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PerNode {
    Count(u32),
    /// One for each network interface.
    Nic,
}

impl FromStr for PerNode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("nic", _) => Ok(Self::Nic),
            (_, Ok(count)) if count > 0 => Ok(Self::Count(count)),
            _ => Err("it is a number from 1, or nic".to_owned()),
        }
    }
}

/// How servers are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Via {
    /// On this host, by this command
    Local,
    /// By ssh to each host, which must ask for nothing
    Ssh,
    /// By one srun, which runs as long as they do
    Srun,
    /// By one mpiexec, which runs as long as they do
    Mpiexec,
}
