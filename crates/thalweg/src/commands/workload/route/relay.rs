//! `thalweg relay` at both ends, as two sites have it.

use super::process::{Process, Start, Starter};
use crate::failure::{About, Code, Failure};
use serde_json::Value;

/// The target's name.
const TARGET: &str = "server";

/// An offer beside the server, and one who joins beside the clients.
pub fn pair(starter: &Starter<'_>, server: &str) -> Result<(Vec<Process>, u16), Failure> {
    let program = std::env::current_exe().about("thalweg relay")?;
    let start = |name: &str, words: &[&str], environment| {
        let arguments = words.iter().map(Into::into).collect();
        starter.start(Start {
            name,
            program: &program,
            arguments,
            environment,
            has_output: true,
        })
    };
    let target = format!("{TARGET}={server}");
    let words = ["relay", "offer", &target, "--listen", "127.0.0.1:0"];
    let words = [&words[..], &["--name", "127.0.0.1", "--json"]].concat();
    let far = start("far-relay", &words, Vec::new())?;
    let code = said(starter, &far, "offered", "join")?;
    let words = ["relay", "join", "--json"];
    // Nobody else sees what is in the environment, as the command line is seen.
    let environment = vec![("THALWEG_RELAY_CODE", code)];
    let near = start("near-relay", &words, environment)?;
    let address = said(starter, &near, "bound", "address")?;
    let port = address
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse().ok());
    let port = port.ok_or_else(|| {
        let what = format!("says that it listens at {address}, which has no port");
        Failure::new(Code::Failure, &near.name, what)
    })?;
    Ok((vec![near, far], port))
}

/// A value of an event that it prints, once it is there.
fn said(
    starter: &Starter<'_>,
    process: &Process,
    event: &str,
    key: &str,
) -> Result<String, Failure> {
    starter.until(process, || {
        let output = process.output()?;
        // The last line may not be whole yet.
        let values = output
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut events = values.filter(|value| value["event"] == event);
        Ok(events.find_map(|value| value[key].as_str().map(str::to_owned)))
    })
}
