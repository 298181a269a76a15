//! Looks at credentials of others for the node.

use broker::{Examiner, Presented};
use issuers::{Asker, Issuers, Refusal, TIMEOUT};
use net::Identities;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;
use wire::{ErrorCode, ErrorReply};

const _: () = assert!(
    TIMEOUT.as_nanos() <= wire::message::ISSUED_TIMEOUT.as_nanos(),
    "a client waits for a look"
);

/// When to come again with what could not be looked at, or with another one.
const RETRY_MS: u32 = 1000;

/// Certificates of the server that are remembered.
const RECENT_MAX: usize = 4;

/// Knows the issuers that the files of the data directory name.
#[derive(Debug, Default)]
pub(crate) struct Others {
    /// Changed by the server's thread, and taken by those that look at something. None before it is known who they are.
    issuers: Mutex<Option<Arc<Issuers>>>,
    /// What the server shows in TLS.
    shown: OnceLock<Identities>,
    /// Certificates that it showed when somebody was looked at; the latest last.
    recent: Mutex<Vec<[u8; 32]>>,
}

impl Others {
    /// The issuers that are known.
    pub fn issuers(&self) -> Arc<Issuers> {
        self.known().unwrap_or_default()
    }

    /// The same, if it is known who they are.
    pub fn known(&self) -> Option<Arc<Issuers>> {
        self.issuers.lock().expect("no holder panics here").clone()
    }

    /// From now on these are known.
    pub fn set(&self, issuers: Arc<Issuers>) {
        *self.issuers.lock().expect("no holder panics here") = Some(issuers);
    }

    /// What the server shows in TLS, which is said once.
    pub fn show(&self, identities: Identities) {
        let _ = self.shown.set(identities);
        // Who is shown this one may come when there is another.
        self.certificates();
    }

    /// The SHA-256 of certificates that clients may have been shown: of the present one, and, for connections that were
    /// looked at before it came, of a few before.
    fn certificates(&self) -> Vec<[u8; 32]> {
        let Some(shown) = self.shown.get() else {
            return Vec::new();
        };
        let mut recent = self.recent.lock().expect("no holder panics here");
        let present = shown.current().fingerprints().first().map(|one| one.0);
        if let Some(present) = present
            && recent.last() != Some(&present)
        {
            recent.push(present);
            let surplus = recent.len().saturating_sub(RECENT_MAX);
            recent.drain(..surplus);
        }
        recent.clone()
    }

    /// Who a client is that presents something. Blocks until `deadline` at most.
    pub fn examine_until(
        &self,
        presented: &Presented,
        deadline: Instant,
    ) -> Result<access::Verified, ErrorReply> {
        let is_munged = presented
            .proof
            .starts_with(issuers::MUNGE_PREFIX.as_bytes());
        let certificates = match is_munged {
            true => self.certificates(),
            false => Vec::new(),
        };
        let asker = Asker {
            namespace: &presented.namespace,
            now: presented.now,
            certificates: &certificates,
        };
        let check = || {
            let text = std::str::from_utf8(&presented.proof);
            let text = text.map_err(|_| Refusal::No("the credential is no text".to_owned()))?;
            let unknown = "whose credentials are taken is not known: the server's log says why";
            let unknown = || Refusal::Unknown(unknown.to_owned());
            self.known()
                .ok_or_else(unknown)?
                .check(text, asker, deadline)
        };
        // A bug of it is one client's.
        let checked = catch_unwind(AssertUnwindSafe(check));
        let checked =
            checked.unwrap_or_else(|_| Err(Refusal::Unknown("a bug: it panicked".into())));
        checked.map_err(reply)
    }
}

impl Examiner for Others {
    /// Whether a command is asked.
    fn takes_long(&self, presented: &Presented) -> bool {
        let text = std::str::from_utf8(&presented.proof);
        text.is_ok_and(|text| self.issuers().takes_long(text))
    }

    fn examine(&self, presented: &Presented) -> Result<access::Verified, ErrorReply> {
        self.examine_until(presented, Instant::now() + TIMEOUT)
    }
}

fn reply(refusal: Refusal) -> ErrorReply {
    match refusal {
        Refusal::No(why) => ErrorReply::fatal(ErrorCode::NotAuthenticated, why),
        Refusal::Expired(why) => ErrorReply::retryable(ErrorCode::CredentialExpired, RETRY_MS, why),
        Refusal::Unknown(why) => ErrorReply::retryable(ErrorCode::NotAuthenticated, RETRY_MS, why),
    }
}

/// What is said of something that found no turn.
pub(crate) fn unlooked() -> ErrorReply {
    let why = "the credential could not be looked at: too many others are";
    reply(Refusal::Unknown(why.to_owned()))
}
