//! Tokens for one session that were presented, and by which session.
//!
//! The file is `used-tokens.json`; its page is `docs/format/directory.md`. A client with such a token is
//! let in when the file has it, so that no later start takes the token of somebody else.

use crate::ctx::Ctx;
use crate::ids::{LinkId, Purpose, SessionJob};
use crate::io::Job;
use crate::options::NodeError;
use crate::refusal::{Refused, refuse};
use crate::small_file;
use access::{Credential, TokenId, UnixTime};
use log::{Disk, DiskError};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use wire::{ErrorCode, ErrorReply, SessionId};

/// The version of the format that is written.
const FORMAT: u64 = 1;
/// Tokens that are remembered until they expire, and of them such as were made of one token.
const USED_MAX: usize = 10_000;
const USED_OF_ONE_MAX: usize = 1000;
/// When to come again where a token could not be remembered.
const RETRY_MS: u32 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Use {
    session: SessionId,
    /// The first block of the token.
    root: TokenId,
    /// When it is good for nothing any more, and need not be remembered.
    expires: UnixTime,
}

/// How a client stands that presents a token for one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is known to have it, and that is in the file.
    Known,
    /// It is the one that is to have it, once that is in the file.
    Coming,
    /// Nobody has it yet.
    First,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Used {
    known: BTreeMap<TokenId, Use>,
    /// Since when all uses are known.
    since: UnixTime,
    /// Whether a start found no file that could be read.
    is_new: bool,
    /// Connections that are let in when the file that is being written is there.
    writing: Option<Vec<(LinkId, TokenId)>>,
    /// Connections that came meanwhile.
    queued: Vec<(LinkId, TokenId)>,
}

fn path(data: &Path) -> PathBuf {
    data.join("used-tokens.json")
}

impl Used {
    /// What is remembered. Blocks, and changes nothing. Where the file is missing or damaged, what was
    /// presented before now is not known.
    ///
    /// # Errors
    /// If a later version wrote the file.
    pub fn read(disk: &dyn Disk, data: &Path, now: UnixTime) -> Result<Self, NodeError> {
        let document = small_file::read_format(disk, &path(data), FORMAT)?.flatten();
        let used = document.and_then(|document| Self::of_document(&document));
        Ok(used.unwrap_or_else(|| Self {
            since: now,
            is_new: true,
            ..Self::default()
        }))
    }

    /// Writes the file where there was none. Blocks.
    ///
    /// # Errors
    /// If it cannot be written: the next start asks anew, and takes no token that was good before it.
    pub fn begin(&self, disk: &dyn Disk, data: &Path) -> Result<(), DiskError> {
        match self.is_new {
            true => small_file::keep(disk, &path(data), Some(self.to_bytes())),
            false => Ok(()),
        }
    }

    fn of_document(document: &Value) -> Option<Self> {
        let used = document["used"].as_array()?.iter().map(|one| {
            let session = u128::from_str_radix(one["session"].as_str()?, 16).ok()?;
            let used = Use {
                session: SessionId(session),
                root: one["root"].as_str()?.parse().ok()?,
                expires: UnixTime(one["expires"].as_u64()?),
            };
            Some((one["token"].as_str()?.parse().ok()?, used))
        });
        Some(Self {
            known: used.collect::<Option<_>>()?,
            since: UnixTime(document["since"].as_u64()?),
            ..Self::default()
        })
    }

    fn to_bytes(&self) -> Vec<u8> {
        let used = self.known.iter().map(|(token, used)| {
            json!({
                "token": token.to_string(),
                "session": format!("{:032x}", used.session.0),
                "root": used.root.to_string(),
                "expires": used.expires.0,
            })
        });
        small_file::to_bytes(&json!({
            "format": FORMAT,
            "since": self.since.0,
            "used": used.collect::<Vec<_>>(),
        }))
    }

    /// Whether a session may have a token that is for one.
    pub fn stand(
        &self,
        id: TokenId,
        credential: &Credential,
        session: SessionId,
        now: UnixTime,
    ) -> Result<Standing, Refused> {
        let refused = |why: String| Err(refuse(ErrorCode::NotAuthenticated, why));
        match self.known.get(&id) {
            Some(used) if used.session == session && session != SessionId(0) => {
                return Ok(match self.is_coming(id) {
                    true => Standing::Coming,
                    false => Standing::Known,
                });
            }
            Some(_) => {
                return refused(format!(
                    "{credential} is for one session, and another one has used it"
                ));
            }
            None => {}
        }
        // Blocks behind the one that is for one session are its holder's, who may say what he likes.
        let blocks = credential.limits();
        let until = blocks
            .iter()
            .position(|one| one.once)
            .map_or(0, |at| at + 1);
        let begins = blocks[..until].iter().filter_map(|one| one.not_before);
        if begins.max().is_none_or(|begins| begins < self.since) {
            return refused(format!(
                "{credential} is for one session, and was made before this server could know \
                 whether it was used: make another one"
            ));
        }
        if self.known.len() >= USED_OF_ONE_MAX {
            let root = root_of(credential, id);
            let good = self.known.values().filter(|used| used.expires > now);
            let (all, of_one) = good.fold((0, 0), |(all, of_one), used| {
                (all + 1, of_one + usize::from(used.root == root))
            });
            let most = match of_one >= USED_OF_ONE_MAX {
                true => format!("{USED_OF_ONE_MAX} that were made of the same token"),
                false => USED_MAX.to_string(),
            };
            if all >= USED_MAX || of_one >= USED_OF_ONE_MAX {
                return Err(ErrorReply::retryable(
                    ErrorCode::LimitExceeded,
                    RETRY_MS,
                    format!(
                        "tokens for one session are remembered until they expire, and of these {most} are already"
                    ),
                ));
            }
        }
        Ok(Standing::First)
    }

    /// Whether a use is to be written yet.
    fn is_coming(&self, id: TokenId) -> bool {
        let mut coming = self.writing.iter().flatten().chain(&self.queued);
        coming.any(|(_, other)| *other == id)
    }

    /// A session has a token, and is let in once that is in the file.
    pub fn take(
        &mut self,
        link: LinkId,
        id: TokenId,
        credential: &Credential,
        session: SessionId,
        ctx: &mut Ctx,
    ) {
        let now = UnixTime(ctx.now.unix_ns);
        self.known.retain(|_, used| used.expires > now);
        let expires = credential.expires().unwrap_or(UnixTime(u64::MAX));
        let root = root_of(credential, id);
        let used = Use {
            session,
            root,
            expires,
        };
        self.known.insert(id, used);
        self.queued.push((link, id));
        self.write(ctx);
    }

    fn write(&mut self, ctx: &mut Ctx) {
        if self.writing.is_some() || self.queued.is_empty() {
            return;
        }
        self.writing = Some(std::mem::take(&mut self.queued));
        let work = Job::Keep {
            disk: ctx.options.disk.clone(),
            path: path(&ctx.options.directory),
            bytes: Some(self.to_bytes()),
        };
        ctx.start_job(Purpose::Session(SessionJob::KeepUsed), work);
    }

    /// The file was written, or not. Returns who waited for it.
    pub fn kept(&mut self, is_kept: bool, ctx: &mut Ctx) -> Vec<LinkId> {
        let mut waited = self.writing.take().unwrap_or_default();
        if !is_kept {
            // Nobody was let in by them, and nobody is who came for the same one meanwhile.
            let failed: BTreeSet<TokenId> = waited.iter().map(|(_, id)| *id).collect();
            self.known.retain(|id, _| !failed.contains(id));
            let (same, others) = std::mem::take(&mut self.queued)
                .into_iter()
                .partition::<Vec<_>, _>(|(_, id)| failed.contains(id));
            waited.extend(same);
            self.queued = others;
        }
        self.write(ctx);
        waited.into_iter().map(|(link, _)| link).collect()
    }
}

/// The first block of a credential: those that were made of one token have it in common.
fn root_of(credential: &Credential, id: TokenId) -> TokenId {
    credential.ids().first().copied().unwrap_or(id)
}

/// Why a client is not let in whose token could not be remembered.
pub(super) fn not_kept(error: &DiskError) -> Refused {
    ErrorReply::retryable(
        ErrorCode::StorageFailed,
        RETRY_MS,
        format!("that the token was used cannot be remembered: {error}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_is_read_back() {
        let used = Used {
            known: BTreeMap::from([(
                TokenId(7),
                Use {
                    session: SessionId(8),
                    root: TokenId(6),
                    expires: UnixTime(u64::MAX),
                },
            )]),
            since: UnixTime(9),
            ..Used::default()
        };
        let document = small_file::from_bytes(&used.to_bytes()).unwrap();
        let read = Used::of_document(&document).unwrap();
        assert_eq!((read.known, read.since), (used.known, used.since));
        assert!(Used::of_document(&json!({"format": 1})).is_none());
    }
}
