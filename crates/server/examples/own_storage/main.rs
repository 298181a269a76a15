//! A server with a kind of storage of its own, `journaled`:
//!
//! ```text
//! cargo run -p thalweg-server --example own_storage -- DIRECTORY
//! thalweg -g DIRECTORY/thalweg.json topic create events --storage journaled
//! ```
//!
//! It serves until its standard input ends.

mod journaled;

use std::error::Error;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args_os().nth(1);
    let directory = directory.ok_or("usage: own_storage DIRECTORY")?;
    let directory = std::path::PathBuf::from(directory);
    let config = server::Config {
        directory: directory.join("data"),
        group_file: Some(directory.join("thalweg.json")),
        ..server::Config::default()
    };
    let storages =
        server::Storages::new().with(|disk| Arc::new(journaled::JournaledKind::new(disk)));
    let report = Arc::new(|line: &str| eprintln!("{line}"));
    let server = server::Server::start_with(config, storages, report)?;
    println!("{}", server.endpoints().join(" "));
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    server.drain(std::time::Duration::from_secs(10))?;
    Ok(())
}
