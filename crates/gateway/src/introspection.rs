//! Tokens of the site: a command says who their holders are. The command is [`issuers::Introspection`]'s, as that of
//! servers is.

use crate::report::{RareLine, Report};
use issuers::{Claims, Failure, TIMEOUT};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Commands that run at once.
const AT_ONCE: usize = 4;

/// How much later than that an answer may be.
const LATE: Duration = Duration::from_secs(2);

impl Drop for Introspection {
    fn drop(&mut self) {
        self.asked.end();
    }
}

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

/// The command, and what it has said.
#[derive(Debug)]
pub struct Introspection {
    asked: Arc<issuers::Introspection>,
    report: Report,
    failing: RareLine,
    turns: Arc<Semaphore>,
}

impl Introspection {
    /// By this command, of which `project`, `username` or `sub`, and `expires` or `plannedExpiration` are taken.
    pub fn new(command: Vec<String>, report: Report) -> Self {
        Self {
            asked: Arc::new(issuers::Introspection::new(command)),
            report,
            failing: RareLine::default(),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Who the holder of a token is, if it is one.
    pub async fn holder(&self, token: &str) -> Option<Holder> {
        let said = match self.asked.answered(token) {
            Some(claims) => Ok(claims),
            None => self.ask(token).await,
        };
        match said {
            Ok(claims) => claims.as_ref().and_then(holder),
            Err(why) => {
                // An outage of the site's service is not remembered.
                let text = || format!("introspection by {}: {why}", self.asked.command()[0]);
                self.failing.write(&self.report, text);
                None
            }
        }
    }

    /// Forgets what was said of a token.
    pub fn forget(&self, token: &str) {
        self.asked.forget(token);
    }

    async fn ask(&self, token: &str) -> Result<Option<Claims>, Failure> {
        let deadline = Instant::now() + TIMEOUT;
        let failed = |why: String| Failure(why);
        let turn = self.turns.clone().acquire_owned();
        let turn = tokio::time::timeout(TIMEOUT, turn).await;
        let turn = turn.map_err(|_| failed("too many others are asked about".to_owned()))?;
        let turn = turn.map_err(|error| failed(error.to_string()))?;
        let (asked, token) = (self.asked.clone(), token.to_owned());
        let answer = tokio::task::spawn_blocking(move || {
            // Held until the command has ended, whoever still waits for its answer.
            let _turn = turn;
            asked.ask(&token, deadline)
        });
        let answer = tokio::time::timeout(TIMEOUT + LATE, answer).await;
        let answer = answer.map_err(|_| failed("there is no answer in time".to_owned()))?;
        answer.unwrap_or_else(|error| Err(failed(error.to_string())))
    }
}

/// Who somebody is, as an answer has it.
fn holder(claims: &Claims) -> Option<Holder> {
    let text = |keys: &[&str]| {
        let found = keys.iter().find_map(|key| claims.get(*key)?.as_str());
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
