//! `thalweg`: the server and the tools of the command line.
//!
//! Standard output carries what was asked for, and nothing else; errors and
//! remarks go to standard error. `docs/reference/cli.md` has the commands and
//! exit codes.

#![forbid(unsafe_code)]

mod cli;
mod commands;
mod connection;
mod event_json;
mod examination;
mod failure;
mod interrupt;
mod notify;
mod output;
mod progress;
#[cfg(test)]
mod reference;
mod settings;

use clap::Parser;
use cli::{Cli, Command};
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let result = run(Cli::parse().command);
    match result {
        Ok(code) => code,
        Err(Failure::OutputClosed) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("thalweg: {failure}");
            failure.exit_code().into()
        }
    }
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Serve(args) => commands::serve::run(&args),
        Command::Up(args) => commands::up::run(&args),
        Command::Down(args) => commands::down::run(&args),
        Command::Launch(command) => commands::launch::run(&command),
        Command::Config(command) => commands::config::run(&command).map(|()| ExitCode::SUCCESS),
        Command::Topic(args) => commands::topic::run(args).map(|()| ExitCode::SUCCESS),
        Command::Steps(args) => commands::steps::run(args).map(|()| ExitCode::SUCCESS),
        Command::Produce(args) => commands::produce::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Consume(args) => commands::consume::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Group(args) => commands::sharing::group(args).map(|()| ExitCode::SUCCESS),
        Command::Queue(args) => commands::sharing::queue(args).map(|()| ExitCode::SUCCESS),
        Command::Tail(args) => commands::look::tail(args).map(|()| ExitCode::SUCCESS),
        Command::Why(args) => commands::look::why(&args).map(|()| ExitCode::SUCCESS),
        Command::WhyNot(args) => commands::token::why_not(&args),
        Command::Lag(args) => commands::look::lag(&args).map(|()| ExitCode::SUCCESS),
        Command::Gaps(args) => commands::look::gaps(&args).map(|()| ExitCode::SUCCESS),
        Command::Cursor(args) => commands::cursor::run(args).map(|()| ExitCode::SUCCESS),
        Command::View(args) => commands::view::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Status(args) => commands::status::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Nodes(command) => commands::nodes::run(&command).map(|()| ExitCode::SUCCESS),
        Command::Token(command) => commands::token::run(&command).map(|()| ExitCode::SUCCESS),
        Command::Gateway(args) => commands::gateway::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Pair(command) => commands::pair::run(&command).map(|()| ExitCode::SUCCESS),
        Command::Relay(command) => commands::relay::run(command).map(|()| ExitCode::SUCCESS),
        Command::Audit(args) => commands::audit::run(&args),
        Command::Backup(args) => commands::backup::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Bench(command) => commands::bench::run(command).map(|()| ExitCode::SUCCESS),
        Command::Workload(command) => commands::workload::run(command),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Completions(args) => commands::completions::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Man(args) => commands::man::run(&args).map(|()| ExitCode::SUCCESS),
    }
}
