//! Tokens of the site: a command says who their holders are.

use crate::report::{RareLine, Report};
use ring::digest::{SHA256, digest};
use serde_json::Value;
use std::collections::HashMap;
use std::process::Stdio;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::sync::Semaphore;

/// How long an answer counts.
const KEPT: Duration = Duration::from_secs(60);
/// Answers that are kept.
const KEPT_MAX: usize = 1024;
/// Commands that run at once.
const AT_ONCE: usize = 4;
/// How long a command may take, with the wait for its turn.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Who the holder of a token of the site is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The project that it is of.
    pub project: String,
    /// What the site calls it.
    pub username: String,
    /// When the token is over, as the site says.
    pub expires: Option<String>,
}

/// Until when an answer counts, and who the holder is, if the token is one.
type Said = (Instant, Option<Holder>);

/// The command, and what it has said.
#[derive(Debug)]
pub struct Introspection {
    command: Vec<String>,
    report: Report,
    failing: RareLine,
    turns: Semaphore,
    /// By the hash of the token. Locked for a look.
    known: Mutex<HashMap<[u8; 32], Said>>,
}

impl Introspection {
    /// By this command: it reads the token on its standard input, and prints JSON: `{"active": true, "project": …,
    /// "username": …, "expires": …}`, or what S3M answers, `{"token": {"project": …, "username": …,
    /// "plannedExpiration": …}}`.
    pub fn new(command: Vec<String>, report: Report) -> Self {
        Self {
            command,
            report,
            failing: RareLine::default(),
            turns: Semaphore::new(AT_ONCE),
            known: Mutex::default(),
        }
    }

    /// Who the holder of a token is, if it is one.
    pub async fn holder(&self, token: &str) -> Option<Holder> {
        let hash = digest(&SHA256, token.as_bytes());
        let hash: [u8; 32] = hash.as_ref().try_into().expect("SHA-256 has 32 bytes");
        let now = Instant::now();
        let known = self
            .known
            .lock()
            .expect("no holder panics")
            .get(&hash)
            .cloned();
        if let Some((until, holder)) = known
            && now < until
        {
            return holder;
        }
        let asked = tokio::time::timeout(TIMEOUT, self.ask(token)).await;
        let said = asked.unwrap_or_else(|_| Err(format!("no answer in {} s", TIMEOUT.as_secs())));
        let holder = match said {
            Ok(holder) => holder,
            Err(why) => {
                // An outage of the site's service is not remembered.
                let text = || format!("introspection by {}: {why}", self.command[0]);
                self.failing.write(&self.report, text);
                return None;
            }
        };
        let mut known = self.known.lock().expect("no holder panics");
        if known.len() >= KEPT_MAX {
            known.retain(|_, (until, _)| now < *until);
        }
        if known.len() < KEPT_MAX {
            known.insert(hash, (now + KEPT, holder.clone()));
        }
        holder
    }

    /// Forgets what was said of a token.
    pub fn forget(&self, token: &str) {
        let hash = digest(&SHA256, token.as_bytes());
        let hash: [u8; 32] = hash.as_ref().try_into().expect("SHA-256 has 32 bytes");
        self.known.lock().expect("no holder panics").remove(&hash);
    }

    async fn ask(&self, token: &str) -> Result<Option<Holder>, String> {
        let words = |error: std::io::Error| error.to_string();
        let _turn = self
            .turns
            .acquire()
            .await
            .map_err(|error| error.to_string())?;
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).kill_on_drop(true);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().map_err(words)?;
        let mut stdin = child.stdin.take().expect("it was asked for");
        let stdout = child.stdout.take().expect("it was asked for");
        // Who does not read it fails in another way.
        let _ = stdin.write_all(format!("{token}\n").as_bytes()).await;
        drop(stdin);
        let mut text = String::new();
        let read = stdout
            .take(ANSWER_BYTES_MAX)
            .read_to_string(&mut text)
            .await;
        read.map_err(words)?;
        let status = child.wait().await.map_err(words)?;
        match status.success() {
            true => Ok(parse(&text)),
            false => Err(status.to_string()),
        }
    }
}

/// Who somebody is, as an answer has it; none if it says that the token is none.
fn parse(text: &str) -> Option<Holder> {
    let value: Value = serde_json::from_str(text).ok()?;
    let about = value.get("token").unwrap_or(&value);
    if about
        .get("active")
        .is_some_and(|active| active != &Value::Bool(true))
    {
        return None;
    }
    let text = |keys: &[&str]| {
        let found = keys.iter().find_map(|key| about.get(key)?.as_str());
        found.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let project = text(&["project"])?;
    Some(Holder {
        username: text(&["username", "sub"]).unwrap_or_else(|| project.clone()),
        expires: text(&["expires", "plannedExpiration"]),
        project,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(test: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(test)
    }

    fn by(script: &str) -> Introspection {
        let command = ["sh", "-c", script].map(str::to_owned).to_vec();
        Introspection::new(command, Report::new(|_| {}))
    }

    #[test]
    fn a_command_says_who_somebody_is_and_is_not_asked_again_at_once() {
        let parent = tempfile::tempdir().unwrap();
        let asked = parent.path().join("asked");
        let script = format!(
            "read t; echo x >> {}; if [ $t = good ]; then echo '{{\"token\": {{\"project\": \"stf008\", \
             \"username\": \"stf008_auser\"}}}}'; else echo '{{\"active\": false}}'; fi",
            asked.display()
        );
        let introspection = by(&script);
        run(async {
            for _ in 0..3 {
                let holder = introspection.holder("good").await.unwrap();
                assert_eq!(
                    (holder.project.as_str(), holder.username.as_str()),
                    ("stf008", "stf008_auser")
                );
                assert_eq!(introspection.holder("bad").await, None);
            }
        });
        assert_eq!(std::fs::read_to_string(asked).unwrap().lines().count(), 2);
    }

    #[test]
    fn a_command_that_fails_lets_nobody_in() {
        for script in [
            "exit 1",
            "echo nonsense",
            "echo '{}'",
            "echo '{\"project\": \"\"}'",
        ] {
            assert_eq!(run(by(script).holder("good")), None, "{script}");
        }
        let none = Introspection::new(vec!["/nonexistent".to_owned()], Report::new(|_| {}));
        assert_eq!(run(none.holder("good")), None);
    }
}
