//! Whom a server believes: the files in `access` of its data directory, which are the page
//! `docs/format/directory.md`.

use crate::durable_file::{self, make_private, read_if_there};
use crate::error::ServerError;
use crate::group_file::hex;
use crate::server_log::ServerLog;
use access::{IssuerKey, PublicKey, SEED_BYTES, Seed, TokenId, Trust};
use broker::Line;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DIRECTORY: &str = "access";
const ISSUER_FILE: &str = "issuer";
const REVOKED_FILE: &str = "revoked";

/// The files that say whom a server believes.
#[derive(Debug, Clone)]
pub struct AccessFiles {
    data: PathBuf,
    path: PathBuf,
}

/// What a look at the files found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Whose tokens are taken, if that can be known.
    trust: Option<Trust>,
    /// What an operator should know.
    strange: Vec<String>,
}

/// Whom a server that runs believes.
#[derive(Debug)]
pub struct Believed {
    files: AccessFiles,
    found: Found,
}

impl Believed {
    /// What the files say at a start.
    pub(crate) fn at_start(files: &AccessFiles, log: &ServerLog) -> Self {
        let nobody = Found {
            trust: None,
            strange: Vec::new(),
        };
        let mut believed = Self {
            files: files.clone(),
            found: nobody,
        };
        believed.changed(files.look(), log);
        believed
    }

    /// Whose tokens are taken; nobody's if the files could not be read.
    pub(crate) fn trust(&self) -> Arc<Trust> {
        Arc::new(self.found.trust.clone().unwrap_or_default())
    }

    /// The files.
    pub(crate) fn files(&self) -> &AccessFiles {
        &self.files
    }

    /// What a look found, if that is something else than before. What cannot be read leaves what
    /// was known.
    pub(crate) fn changed(&mut self, found: Found, log: &ServerLog) -> Option<Arc<Trust>> {
        for line in &found.strange {
            if !self.found.strange.contains(line) {
                log.write(&Line::warning(line.clone()));
            }
        }
        self.found.strange = found.strange;
        let trust = found
            .trust
            .filter(|trust| self.found.trust.as_ref() != Some(trust))?;
        self.found.trust = Some(trust);
        Some(self.trust())
    }
}

/// One line of what was revoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// The token, and all that were made from it.
    pub id: TokenId,
    /// When, and whatever else was said.
    pub note: String,
}

impl AccessFiles {
    pub(crate) fn within(data: &Path) -> Self {
        Self {
            data: data.to_owned(),
            path: data.join(DIRECTORY),
        }
    }

    /// Whether there is a key of an issuer.
    pub(crate) fn are_there(&self) -> bool {
        self.path.join(ISSUER_FILE).is_file()
    }

    /// Makes the issuer's key if there is none; says whether others may have the one that there is. Without space for it a server goes without: it
    /// takes no tokens, and says so.
    pub(crate) fn make(&self) -> Result<Option<String>, ServerError> {
        let path = self.path.join(ISSUER_FILE);
        if let Ok(found) = std::fs::metadata(&path) {
            let mode = found.mode() & 0o777;
            return Ok((mode & 0o077 != 0).then(|| {
                format!(
                    "{} has the mode {mode:04o}: others than its user may have the key that tokens \
                     are signed with. Its mode is to be 0600; removed, it is made anew by the next \
                     start, and all tokens that were made are none",
                    path.display()
                )
            }));
        }
        let mut seed = [0; SEED_BYTES];
        getrandom::fill(&mut seed).expect("the kernel gives random bytes once it has booted");
        let text = format!("{}\n", hex(&seed));
        let made = make_private(&self.path)
            .and_then(|()| durable_file::write(&self.path.join(ISSUER_FILE), text.as_bytes()));
        match made {
            Err(ServerError::File { source, .. }) if source.kind() == ErrorKind::StorageFull => {
                Ok(Some(format!(
                    "{}: there is no space for the key of tokens: none is taken until a start \
                     has made it",
                    self.path.display()
                )))
            }
            made => made.map(|()| None),
        }
    }

    /// The key that tokens are signed with.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    pub fn issuer(&self) -> Result<IssuerKey, ServerError> {
        let key = self.issuer_if_there()?;
        key.ok_or_else(|| {
            self.refuse("it has no key of tokens yet: the next start of a server makes it".into())
        })
    }

    fn issuer_if_there(&self) -> Result<Option<IssuerKey>, ServerError> {
        let Some(text) = read_if_there(&self.path.join(ISSUER_FILE))? else {
            return Ok(None);
        };
        // A seed has the form of a public key: 32 bytes in hexadecimal digits.
        let seed: PublicKey = text.parse().map_err(|_| {
            self.refuse(format!(
                "{DIRECTORY}/{ISSUER_FILE} is not 32 bytes in hexadecimal digits"
            ))
        })?;
        Ok(Some(IssuerKey::new(Seed(seed.0))))
    }

    /// Whose tokens are taken, which are not, and lines that could not be understood.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn trust(&self) -> Result<(Trust, Vec<String>), ServerError> {
        let (revoked, strange) = self.revoked()?;
        let keys = self.issuer_if_there()?;
        let trust = Trust {
            keys: keys.iter().map(IssuerKey::public).collect(),
            revoked: revoked.into_iter().map(|revoked| revoked.id).collect(),
        };
        Ok((trust, strange))
    }

    /// Whose tokens are taken now, for a server that runs.
    pub(crate) fn look(&self) -> Found {
        match self.trust() {
            Ok((trust, strange)) => Found {
                trust: Some(trust),
                strange,
            },
            Err(error) => Found {
                trust: None,
                strange: vec![format!("whose tokens are taken stays as it was: {error}")],
            },
        }
    }

    /// What was revoked, and lines that could not be understood.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn revoked(&self) -> Result<(Vec<Revocation>, Vec<String>), ServerError> {
        let path = self.path.join(REVOKED_FILE);
        let text = read_if_there(&path)?.unwrap_or_default();
        let (mut revoked, mut strange) = (Vec::new(), Vec::new());
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let (id, note) = line.split_once(' ').unwrap_or((line, ""));
            match id.parse() {
                Ok(id) => revoked.push(Revocation {
                    id,
                    note: note.trim().to_owned(),
                }),
                // What of it was to be revoked nobody knows; the rest counts.
                Err(_) => strange.push(format!(
                    "{}: line {} names no token: what it was to revoke is not known",
                    path.display(),
                    index + 1
                )),
            }
        }
        Ok((revoked, strange))
    }

    /// Revokes a token, and all that are made from it. When this returns, the line is durable; a
    /// server that runs reads it within seconds.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn revoke(&self, id: TokenId, note: &str) -> Result<(), ServerError> {
        make_private(&self.path)?;
        let path = self.path.join(REVOKED_FILE);
        let note = note.replace(char::is_control, " ");
        let append = || -> std::io::Result<()> {
            let mut file = OpenOptions::new()
                .read(true)
                .append(true)
                .create(true)
                .mode(0o600)
                .open(&path)?;
            // A line that a crash cut short ends here, so that this one stands alone.
            let start = if ends_in_a_line(&mut file)? { "" } else { "\n" };
            file.write_all(format!("{start}{id} {note}\n").as_bytes())?;
            file.sync_all()?;
            durable_file::sync_parent(&path)
        };
        append().map_err(ServerError::file(format!("writing {}", path.display())))
    }

    fn refuse(&self, why: String) -> ServerError {
        ServerError::Directory {
            directory: self.data.clone(),
            why,
        }
    }
}

fn ends_in_a_line(file: &mut std::fs::File) -> std::io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_key_is_made_once_and_is_the_owners_alone() {
        let data = tempfile::tempdir().unwrap();
        let files = AccessFiles::within(data.path());
        assert!(files.issuer().is_err());
        assert_eq!(files.make().unwrap(), None);
        let key = files.issuer().unwrap().public();
        files.make().unwrap();
        assert_eq!(files.issuer().unwrap().public(), key);
        let mode = |name: &str| {
            let found = std::fs::metadata(data.path().join(name)).unwrap();
            found.permissions().mode() & 0o777
        };
        assert_eq!((mode("access"), mode("access/issuer")), (0o700, 0o600));
        assert_eq!(files.trust().unwrap().0.keys, [key]);
    }

    #[test]
    fn what_is_revoked_stays_so_whatever_else_is_in_the_file() {
        let data = tempfile::tempdir().unwrap();
        let files = AccessFiles::within(data.path());
        files.revoke(TokenId(1), "lost\nlaptop").unwrap();
        let path = data.path().join("access/revoked");
        // A crash amid a line.
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str("0000");
        std::fs::write(&path, text).unwrap();
        files.revoke(TokenId(2), "").unwrap();
        let (revoked, strange) = files.revoked().unwrap();
        let ids: Vec<TokenId> = revoked.iter().map(|one| one.id).collect();
        assert_eq!(ids, [TokenId(1), TokenId(2)]);
        assert_eq!(revoked[0].note, "lost laptop");
        assert_eq!(strange.len(), 1);
        assert!(strange[0].contains("line 2 names no token"));
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
