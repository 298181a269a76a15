//! `thalweg gateway`.

mod args;

pub use args::GatewayArgs;

use crate::failure::{Code, Failure};
use crate::interrupt::on_interrupt;
use crate::notify::Notifier;
use crate::output::{self, Output};
use gateway::{Gateway, GatewayError, Report};
use serde_json::json;
use std::sync::mpsc;
use std::time::Duration;

/// How long the end may take beyond that of the instances, before a service manager loses its patience.
const CLOSING: Duration = Duration::from_secs(15);

pub fn run(args: &GatewayArgs) -> Result<(), Failure> {
    // Each connection takes two, and the usual limit of a user is 1,024.
    let _ = server::raise_limit_of_files();
    let subject = args.directory().display().to_string();
    let program =
        std::env::current_exe().map_err(|error| Failure::new(Code::Failure, "thalweg", error))?;
    let report = Report::new(output::report);
    let options = args.options(&program.display().to_string(), report)?;
    let stop = options.limits.stop;
    let (asked, end) = mpsc::channel();
    // From the line that tells that it is ready on, no signal ends it without an order.
    on_interrupt(move || {
        // Nobody waits any more once the start has failed.
        let _ = asked.send(());
    })?;
    let manager = Notifier::from_environment();
    let gateway =
        Gateway::start(options).map_err(|error| Failure::new(code(&error), &subject, error))?;
    let addresses: Vec<String> = gateway
        .addresses()
        .iter()
        .map(|one| one.to_string())
        .collect();
    let mut output = Output::new(args.json);
    output.either(
        &json!({
            "ready": true,
            "addresses": addresses,
            "certificate": gateway.certificate(),
            "instances": gateway.instances(),
            "pid": std::process::id(),
        }),
        &format!("ready at {}", addresses.join(" ")),
    )?;
    output.flush()?;
    drop(output);
    manager.ready(&format!("serving {subject} at {}", addresses.join(" ")));
    // It lasts until it is asked to end; the sender lives as long as the signals' thread.
    let _ = end.recv();
    manager.stopping("ending", stop + CLOSING);
    gateway.stop();
    Ok(())
}

fn code(error: &GatewayError) -> Code {
    match error {
        GatewayError::Option(..) => Code::Usage,
        GatewayError::Locked(_) => Code::Locked,
        _ => Code::Failure,
    }
}
