//! Credentials that MUNGE has made: who has one is a user of the cluster whose hosts have the same key.

use crate::check::Refusal;
use crate::faults::{Fault, planted};
use crate::introspection::Claims;
use crate::mapping::Maps;
use access::UnixTime;
use munge::{DAEMON, Error, Patient, Vouched};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What every credential of MUNGE begins with. Nothing else that is presented does.
pub const MUNGE_PREFIX: &str = "MUNGE:";
/// How long one lets somebody in at most, whatever its maker has asked for.
const LIFE_MAX: u64 = 300;

/// The cluster whose users are taken.
#[derive(Clone)]
pub struct Munged {
    /// What the cluster is called in the audit trail, and in errors.
    pub name: String,
    /// Where the daemon listens, if not where its library thinks.
    socket: Option<PathBuf>,
    pub(crate) realm: Patient,
    pub(crate) maps: Maps,
}

impl PartialEq for Munged {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.socket == other.socket && self.maps == other.maps
    }
}

impl std::fmt::Debug for Munged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Munged");
        shown.field("name", &self.name).finish_non_exhaustive()
    }
}

/// Whether MUNGE has made a text.
pub(crate) fn is_munged(text: &str) -> bool {
    text.starts_with(MUNGE_PREFIX)
}

impl Munged {
    /// Of the daemon of this host.
    pub(crate) fn new(name: &str, socket: Option<&Path>, maps: Maps) -> Self {
        Self {
            name: name.to_owned(),
            socket: socket.map(Path::to_owned),
            realm: Patient::at(socket),
            maps,
        }
    }

    /// Goes on with what an older state of the same daemon has.
    pub(crate) fn keep_of(&mut self, before: &Self) {
        if self.socket == before.socket {
            self.realm = before.realm.clone();
        }
    }

    /// Who has made a credential for a server that shows one of these certificates, by their SHA-256: the subject,
    /// what is so of them, and until when. Blocks until `deadline` at most.
    ///
    /// # Errors
    /// Why it does not count.
    pub(crate) fn check(
        &self,
        text: &str,
        certificates: &[[u8; 32]],
        now: UnixTime,
        deadline: Instant,
    ) -> Result<(String, Claims, UnixTime), Refusal> {
        let vouched = self.decode(text, deadline)?;
        let is_for = |one: &[u8; 32]| vouched.payload == munge::bound_to(one);
        if !certificates.iter().any(is_for) && !planted(Fault::AnyCertificate) {
            return Err(Refusal::No(
                "the MUNGE credential was made for a server that shows another certificate: connect anew"
                    .to_owned(),
            ));
        }
        let lasts = u64::from(vouched.lasts).min(LIFE_MAX);
        let over = vouched.made_at.saturating_add(lasts);
        // A clock that is ahead makes no longer life.
        let latest = now.0.saturating_add(LIFE_MAX * 1_000_000_000);
        let over = UnixTime(over.saturating_mul(1_000_000_000).min(latest));
        if over <= now && !planted(Fault::NeverOver) {
            return Err(Refusal::Expired(Error::Expired.to_string()));
        }
        let mut claims = Claims::new();
        claims.insert("uid".to_owned(), vouched.uid.into());
        claims.insert("gid".to_owned(), vouched.gid.into());
        Ok((vouched.uid.to_string(), claims, over))
    }

    fn decode(&self, text: &str, deadline: Instant) -> Result<Vouched, Refusal> {
        let left = deadline.saturating_duration_since(Instant::now());
        let decoded = self.realm.decode(text.to_owned(), left.min(DAEMON));
        decoded.map_err(|error| match &error {
            error if error.is_unknown() => Refusal::Unknown(error.to_string()),
            Error::Expired => Refusal::Expired(error.to_string()),
            _ => Refusal::No(error.to_string()),
        })
    }
}
