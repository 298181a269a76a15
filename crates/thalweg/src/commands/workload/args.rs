//! What `thalweg workload` takes.

use super::client::ClientArgs;
use super::route::launch::LaunchArgs;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum WorkloadCommand {
    /// Run a scenario and say what was lost, doubled or out of order, and how fast it went
    ///
    /// Producers and consumers are processes of this host. Exits with 3 if anything was lost, doubled, damaged or out
    /// of order, or if somebody's figures are missing.
    Run(RunArgs),
    /// Print the scenario of files of the published simulator (StreamSim), which fields have no effect and why
    Convert(ConvertArgs),
    /// List the published experiments
    List,
    /// Lay results beside each other: one page of HTML with plots, which loads nothing
    Page(PageArgs),
    /// Print what a scenario would run, process by process, without running it
    Plan(PlanArgs),
    /// A process of a run
    #[command(hide = true)]
    Client(ClientArgs),
    /// A process that becomes what stands between clients and server
    #[command(hide = true)]
    Launch(LaunchArgs),
}

/// What is run.
#[derive(Debug, Clone, Args)]
pub struct WhatArgs {
    /// A file with a scenario
    #[arg(value_name = "SCENARIO", required_unless_present_any = ["experiment", "streamsim"])]
    pub scenario: Option<PathBuf>,
    /// One of the published experiments, scaled to one machine: dstream-sharing, lstream-sharing,
    /// dstream-feedback, lstream-feedback, generic-broadcast, generic-gather
    #[arg(long, value_name = "NAME", conflicts_with = "scenario")]
    pub experiment: Option<String>,
    /// Files of the published simulator (StreamSim), or a directory of such: one of each role and a workload,
    /// tunables and a framework
    #[arg(long, value_name = "PATH", num_args = 1.., conflicts_with_all = ["scenario", "experiment"])]
    pub streamsim: Vec<PathBuf>,
    /// Numbers of consumers, each a run, in place of the scenario's
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    pub consumers: Vec<u64>,
    /// Messages of all producers, in place of the scenario's
    #[arg(long, value_name = "COUNT")]
    pub messages: Option<u64>,
    /// How often each run is made, in place of the scenario's
    #[arg(long, value_name = "COUNT")]
    pub repeat: Option<u64>,
    /// Clients of a process, each a thread, in place of the scenario's
    #[arg(long, value_name = "COUNT")]
    pub pack: Option<u64>,
    /// Who carries the messages: thalweg, its own protocol; amqp, AMQP 0-9-1 of any server; redis, streams of Redis; or
    /// kafka, in a program that was built with it; in place of the scenario's
    #[arg(long, value_name = "NAME")]
    pub backend: Option<String>,
    /// What stands between clients and server, each a run, in place of the scenario's: direct; proxied, a pair with TLS
    /// in between, by relay, haproxy, stunnel or nginx; managed, a service behind one entrance, by gateway or haproxy.
    /// As in direct,proxied:haproxy; proxied and managed alone are Thalweg's own
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub arch: Vec<String>,
    /// How fast producers send: published, enforced or unlimited, in place of the scenario's
    #[arg(long, value_name = "RATE")]
    pub rate: Option<String>,
    /// Kill a member with SIGKILL: WHOM@WHEN, as in consumer@30% of what is to come, or "producer 2@500ms" after go; or
    /// the server of --serve, which is started again at once
    #[arg(long, value_name = "FAULT")]
    pub kill: Vec<String>,
    /// Let a member, or the server of --serve, stand still for some time, with SIGSTOP and SIGCONT: WHOM@WHEN:TIME, as
    /// in consumer@30%:2s
    #[arg(long, value_name = "FAULT")]
    pub stop: Vec<String>,
    /// Let a member wait 20 ms before each message for some time: WHOM@WHEN:TIME, as in consumer@30%:5s
    #[arg(long, value_name = "FAULT")]
    pub slow: Vec<String>,
    /// Let nothing pass between clients and server for some time: WHEN:TIME, as in 40%:5s
    #[arg(long, value_name = "FAULT")]
    pub cut: Vec<String>,
    /// Let the token of all clients expire so long after go, and put another one in its place some time later, or never:
    /// TIME or TIME:TIME, as in 2s:3s. With --serve alone
    #[arg(long, value_name = "FAULT")]
    pub expire_token: Option<String>,
    /// Messages a second of an open loop at the same numbers, of which the scenario's loop is a share
    #[arg(long, value_name = "RATE")]
    pub measured: Option<f64>,
}

#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// The files, or a directory of such: one of each role and a workload, tunables and a framework
    #[arg(value_name = "PATH", required = true)]
    pub files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub struct PageArgs {
    /// Files of `thalweg workload run --json`, up to 8
    #[arg(value_name = "RESULTS", required = true)]
    pub results: Vec<PathBuf>,
    /// The page
    #[arg(long, value_name = "FILE", default_value = "workloads.html")]
    pub out: PathBuf,
}

#[derive(Debug, Args)]
pub struct PlanArgs {
    #[command(flatten)]
    pub what: WhatArgs,
}

#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub what: WhatArgs,
    /// The server: an address, or a file that is a group file or has a thalweg:// URL; with amqp, redis or kafka a URL
    /// amqp:// or amqps://, redis:// or kafka://, or a file that has one in its first line [default: the scenario's url;
    /// with these also the environment variable THALWEG_AMQP_URL, THALWEG_REDIS_URL or THALWEG_KAFKA_URL]
    #[arg(long, value_name = "URL", conflicts_with = "serve")]
    pub url: Option<String>,
    /// Start a server of one's own, on a temporary directory, and end it. With amqp it is a Thalweg server that listens
    /// for AMQP
    #[arg(long)]
    pub serve: bool,
    /// A file for the results, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}
