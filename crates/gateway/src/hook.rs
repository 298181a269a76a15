//! The command that is called when an instance serves for the first time: to submit a job, say.

use crate::keeper::View;
use crate::report::Report;
use crate::way::Ways;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// How long the command may take before it is ended.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The command, and how clients reach instances.
#[derive(Debug)]
pub struct OnReady {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Of which the URL is made.
    pub ways: Ways,
}

impl OnReady {
    /// Calls it, beside all else. What it needs is in its environment: `THALWEG_URL`, `THALWEG_URL_INSIDE`,
    /// `THALWEG_TOKEN`, `THALWEG_PROJECT`, `THALWEG_INSTANCE`, `THALWEG_EXPIRES`. What it prints is dropped: a line of
    /// it might have the token.
    pub fn call(&self, view: &View, folder: &Path, report: &Report) {
        let name = view.record.instance();
        let access = match self.ways.access(view, folder) {
            Ok(access) => access,
            Err(error) => {
                return report.line(format!(
                    "instance {name}: its command is not called: {error}"
                ));
            }
        };
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        command
            .env("THALWEG_URL", &access.thalweg)
            .env("THALWEG_TOKEN", &access.token);
        if let Some(inside) = &access.inside {
            command.env("THALWEG_URL_INSIDE", inside);
        }
        command
            .env("THALWEG_PROJECT", name.project())
            .env("THALWEG_INSTANCE", name.name());
        command.env(
            "THALWEG_EXPIRES",
            access::UnixTime(view.record.expires_at * 1_000_000_000).to_string(),
        );
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.kill_on_drop(true);
        let report = report.clone();
        let program = self.command[0].clone();
        tokio::spawn(async move {
            let ran = tokio::time::timeout(TIMEOUT, async { command.spawn()?.wait().await }).await;
            match ran {
                Ok(Ok(status)) if status.success() => {}
                Ok(Ok(status)) => report.line(format!("instance {name}: {program}: {status}")),
                Ok(Err(error)) => report.line(format!("instance {name}: {program}: {error}")),
                Err(_) => report.line(format!(
                    "instance {name}: {program}: ended after {} s",
                    TIMEOUT.as_secs()
                )),
            }
        });
    }
}
