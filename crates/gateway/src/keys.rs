//! Whose tokens the gateway takes, and the tokens that it makes for instances.

use crate::error::GatewayError;
use crate::files;
use crate::record::Record;
use access::{
    IssuerKey, Limits, PublicKey, SEED_BYTES, Seed, Token, TokenId, Trust, UnixTime, Verb,
};
use ring::hmac;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The folder and files, as in a data directory (docs/format/directory.md).
const FOLDER: &str = "access";
const ISSUER: &str = "issuer";
const REVOKED: &str = "revoked";
const ISSUER_BYTES_MAX: u64 = 1 << 10;
const REVOKED_BYTES_MAX: u64 = 16 << 20;
const NS: u64 = 1_000_000_000;

/// What tells one state of a file from another: inode, length, time of change.
type Stamp = Option<(u64, u64, i64, i64)>;

/// Whose tokens are taken.
#[derive(Debug)]
pub struct Keys {
    folder: PathBuf,
    /// What the files said last. Locked for a look.
    known: Mutex<(Stamp, Arc<Trust>)>,
}

impl Keys {
    /// Those of the gateway's directory; makes a key if there is none.
    ///
    /// # Errors
    /// If a file cannot be read or made.
    pub fn open(directory: &Path) -> Result<Self, GatewayError> {
        let folder = directory.join(FOLDER);
        files::make_private(&folder)?;
        if !folder.join(ISSUER).exists() {
            let digits: String = seed().0.iter().map(|byte| format!("{byte:02x}")).collect();
            files::write(&folder.join(ISSUER), format!("{digits}\n").as_bytes())?;
        }
        let keys = Self {
            known: Mutex::new((None, Arc::new(Trust::default()))),
            folder,
        };
        keys.read(keys.stamp())?;
        Ok(keys)
    }

    /// Whose tokens are taken now; what cannot be read leaves what was known.
    pub fn trust(&self) -> Arc<Trust> {
        let stamp = self.stamp();
        let (known, trust) = self.known.lock().expect("no holder panics").clone();
        if known == stamp {
            return trust;
        }
        self.read(stamp).unwrap_or(trust)
    }

    fn stamp(&self) -> Stamp {
        let found = std::fs::metadata(self.folder.join(REVOKED)).ok()?;
        Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
    }

    fn read(&self, stamp: Stamp) -> Result<Arc<Trust>, GatewayError> {
        let (key, _) = issuer(&self.folder.join(ISSUER))?;
        let text = files::read_if_there(&self.folder.join(REVOKED), REVOKED_BYTES_MAX)?;
        let text = text.unwrap_or_default();
        let ids = text
            .lines()
            .filter_map(|line| line.trim().split(' ').next()?.parse().ok());
        let trust = Arc::new(Trust {
            keys: vec![key.public()],
            revoked: ids.collect(),
        });
        *self.known.lock().expect("no holder panics") = (stamp, trust.clone());
        Ok(trust)
    }

    /// Revokes a token, and all that were made from it. Durable when it returns.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn revoke(&self, id: TokenId, note: &str) -> Result<(), GatewayError> {
        let path = self.folder.join(REVOKED);
        let append = || -> std::io::Result<()> {
            let mut file = OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o600)
                .open(&path)?;
            // A line that a crash cut short ends here; an empty one means nothing.
            file.write_all(format!("\n{id} {note}\n").as_bytes())?;
            file.sync_all()?;
            files::sync_parent(&path)
        };
        append().map_err(GatewayError::file(format!("writing {}", path.display())))
    }

    /// A token that may manage a project, for a first user and for tests; `thalweg token new` makes others.
    ///
    /// # Errors
    /// If the key cannot be read, or the project cannot be one.
    pub fn issue(&self, limits: &Limits) -> Result<Token, GatewayError> {
        let path = self.folder.join(ISSUER);
        let (key, _) = issuer(&path)?;
        let token = Token::issue(&key, limits, seed());
        token.map_err(|error| GatewayError::Content(path, error.to_string()))
    }
}

/// The key in a file, and what it is made of.
fn issuer(path: &Path) -> Result<(IssuerKey, Seed), GatewayError> {
    let refuse = |why: &str| GatewayError::Content(path.to_owned(), why.to_owned());
    let text = files::read_if_there(path, ISSUER_BYTES_MAX)?;
    let text = text.ok_or_else(|| refuse("there is no key of tokens yet"))?;
    // A seed has the form of a public key: 32 bytes in hexadecimal digits.
    let seed: PublicKey = text
        .parse()
        .map_err(|_| refuse("it is not 32 bytes in hexadecimal digits"))?;
    let seed = Seed(seed.0);
    Ok((IssuerKey::new(seed.clone()), seed))
}

/// Chance for a key.
pub fn seed() -> Seed {
    let mut seed = [0; SEED_BYTES];
    getrandom::fill(&mut seed).expect("the kernel gives random bytes once it has booted");
    Seed(seed)
}

/// The token of an instance: for all that members of its project may do there, until its time is over. The same
/// each time for one life, so that nobody has to store it; `data` is the data directory, whose server has started
/// once and takes its own tokens alone.
///
/// # Errors
/// If there is no key yet.
pub fn instance_token(data: &Path, record: &Record) -> Result<Token, GatewayError> {
    let path = data.join(FOLDER).join(ISSUER);
    let (key, seed) = issuer(&path)?;
    let instance = record.instance();
    let limits = Limits {
        project: Some(instance.project().to_owned()),
        verbs: Some(
            [Verb::Read, Verb::Write, Verb::Manage]
                .into_iter()
                .collect(),
        ),
        expires: Some(UnixTime(record.expires_at.saturating_mul(NS))),
        note: Some(format!("gateway: {instance}")),
        ..Limits::default()
    };
    let what = format!(
        "thalweg gateway token {instance} {} {}",
        record.provisioned_at, record.expires_at
    );
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &seed.0), what.as_bytes());
    let next = Seed(tag.as_ref().try_into().expect("HMAC-SHA256 has 32 bytes"));
    let token = Token::issue(&key, &limits, next);
    token.map_err(|error| GatewayError::Content(path, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::InstanceName;
    use crate::record::Resources;

    #[test]
    fn what_is_revoked_is_known_at_once_and_after_a_restart() {
        let parent = tempfile::tempdir().unwrap();
        let keys = Keys::open(parent.path()).unwrap();
        let limits = Limits {
            project: Some("stf008".to_owned()),
            ..Limits::default()
        };
        let token = keys.issue(&limits).unwrap();
        assert!(token.verify(&keys.trust()).is_ok());
        keys.revoke(*token.ids().last().unwrap(), "lost").unwrap();
        assert!(token.verify(&keys.trust()).is_err());
        let again = Keys::open(parent.path()).unwrap();
        assert!(token.verify(&again.trust()).is_err());
        assert!(again.issue(&limits).unwrap().verify(&again.trust()).is_ok());
    }

    #[test]
    fn an_instances_token_is_the_same_for_one_life_and_another_in_the_next() {
        let parent = tempfile::tempdir().unwrap();
        let keys = Keys::open(parent.path()).unwrap();
        let name = InstanceName::new("stf008", "run42").unwrap();
        let mut record = Record::new(&name, "rabbitmq", Resources::default(), 1000);
        let first = instance_token(parent.path(), &record).unwrap();
        assert_eq!(instance_token(parent.path(), &record).unwrap(), first);
        assert!(first.verify(&keys.trust()).is_ok());
        record.extend(2000);
        assert_ne!(instance_token(parent.path(), &record).unwrap(), first);
        let other = tempfile::tempdir().unwrap();
        assert!(instance_token(other.path(), &record).is_err());
    }
}
