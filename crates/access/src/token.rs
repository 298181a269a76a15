//! Tokens: chains of signed blocks, each of which only takes away.
//!
//! The first block is signed by the issuer's key, each other one by a key whose public half the
//! block before it names. The private half of the key that the last block names is part of the
//! token: it lets whoever holds the token add a block, and proves that no block was cut off, for
//! the private halves of the earlier keys are in no token any more. The bytes are the page
//! `docs/format/token.md`.

use crate::faults::{Fault, planted};
use crate::grant::Grants;
use crate::identity::{Credential, Identity, Issued, Kind, Origin, Subject};
use crate::key::{IssuerKey, PublicKey, SEED_BYTES, SIGNATURE_BYTES, Seed};
use crate::limits::Limits;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use wire::codec::{DecodeError, Reader, Write};

/// The version of the format that this code speaks.
const VERSION: u8 = 1;
/// The most blocks: a token can be narrowed seven times.
pub const BLOCKS_MAX: usize = 8;
/// The longest token.
pub const TOKEN_BYTES_MAX: usize = 4096;
/// What the text of a token begins with, so that people and scanners know it.
pub const TEXT_PREFIX: &str = "thalweg-token-1:";
/// The longest text of a token: four characters for three bytes.
const TEXT_BYTES_MAX: usize = TEXT_PREFIX.len() + TOKEN_BYTES_MAX.div_ceil(3) * 4;
/// What is signed begins with this, so that no signature of another use counts.
const CONTEXT: &[u8] = b"thalweg token block";
/// As [`CONTEXT`], for ids of what others have issued.
const ISSUED_CONTEXT: &[u8] = b"thalweg issued credential";
const WHAT: &str = "token";

/// Names a block of a token, and so all tokens that were made from it: what is revoked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(pub u128);

impl TokenId {
    /// Names what is known by these parts, and by no others.
    pub(crate) fn of_parts(parts: &[&[u8]]) -> Self {
        let mut all = ISSUED_CONTEXT.to_vec();
        for part in parts {
            all.extend((part.len() as u64).to_le_bytes());
            all.extend(*part);
        }
        let hash = digest(&SHA256, &all);
        let first = hash.as_ref()[..16].try_into();
        Self(u128::from_be_bytes(first.expect("16 bytes are taken")))
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenId({self})")
    }
}

impl FromStr for TokenId {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let is_id = text.len() == 32 && text.bytes().all(|one| one.is_ascii_hexdigit());
        let id = u128::from_str_radix(text, 16).ok().filter(|_| is_id);
        id.map(Self).ok_or(TokenError::Text(
            "the id of a token is 32 hexadecimal digits",
        ))
    }
}

/// Whom a server believes, and what it does not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trust {
    /// Keys of those who issue tokens for it.
    pub keys: Vec<PublicKey>,
    /// What was revoked: tokens, and all that were made from them.
    pub revoked: BTreeSet<TokenId>,
}

impl Trust {
    /// The first of these ids that was revoked.
    pub fn revoked_of(&self, ids: &[TokenId]) -> Option<TokenId> {
        let asked = match planted(Fault::RevokedParent) {
            true => &ids[ids.len().saturating_sub(1)..],
            false => ids,
        };
        asked.iter().copied().find(|id| self.revoked.contains(id))
    }
}

/// Why something is no token, or none that counts. Never has a part of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenError {
    /// The text is not one; what one looks like.
    Text(&'static str),
    /// The bytes are not one.
    Bytes(DecodeError),
    /// It is of a version that this code does not know.
    Version(u8),
    /// It has a limit of a kind that this code does not know, so that what it forbids is not known.
    UnknownLimit(u16),
    /// Its limits are none.
    Limits(String),
    /// It is too long, or would be.
    TooLong,
    /// No key that is known has issued it.
    Issuer(PublicKey),
    /// A block, counted from 1, is not signed by the key that was to.
    Signature(usize),
    /// What proves that nothing was cut off does not.
    CutOff,
    /// It, or one that it was made from, was revoked.
    Revoked(TokenId),
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(what) => f.write_str(what),
            Self::Bytes(error) => write!(f, "{error}"),
            Self::Version(version) => write!(
                f,
                "the token is of version {version}, and this Thalweg reads version {VERSION}"
            ),
            Self::UnknownLimit(kind) => write!(
                f,
                "the token has a limit of kind {kind}, which this version does not know: it is \
                 refused, for what it forbids is not known; a newer version made it"
            ),
            Self::Limits(what) => f.write_str(what),
            Self::TooLong => write!(
                f,
                "a token has at most {BLOCKS_MAX} blocks and {TOKEN_BYTES_MAX} bytes"
            ),
            Self::Issuer(key) => write!(
                f,
                "the token was issued by key {key}, which this server does not know: it is for \
                 another server"
            ),
            Self::Signature(block) => write!(
                f,
                "the signature of the token's block {block} is wrong: it was damaged or forged"
            ),
            Self::CutOff => f.write_str(
                "the token's last key is not the one that its last block names: a restriction \
                 was cut off, or it was damaged",
            ),
            Self::Revoked(id) => write!(
                f,
                "the token was revoked, or one that it was made from: {id}"
            ),
        }
    }
}

impl std::error::Error for TokenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Bytes(error) => Some(error),
            _ => None,
        }
    }
}

impl From<DecodeError> for TokenError {
    fn from(error: DecodeError) -> Self {
        Self::Bytes(error)
    }
}

/// One link of the chain.
#[derive(Clone, PartialEq, Eq)]
struct Block {
    payload: Vec<u8>,
    /// Signs the block that follows.
    next: PublicKey,
    signature: [u8; SIGNATURE_BYTES],
    /// The payload, decoded.
    limits: Limits,
}

impl Block {
    fn sign(index: usize, before: Option<&Block>, limits: &Limits, by: &Seed, next: &Seed) -> Self {
        let payload = limits.encode();
        let next = next.public();
        let message = signed(index, before, &payload, &next);
        let signature = by.key().sign(&message);
        Self {
            payload,
            next,
            signature: signature
                .as_ref()
                .try_into()
                .expect("Ed25519 signs in 64 bytes"),
            limits: limits.clone(),
        }
    }

    fn id(&self) -> TokenId {
        let hash = digest(&SHA256, &self.signature);
        let first = hash.as_ref()[..16].try_into();
        TokenId(u128::from_be_bytes(first.expect("16 bytes are taken")))
    }
}

/// What a block's signature is of.
fn signed(index: usize, before: Option<&Block>, payload: &[u8], next: &PublicKey) -> Vec<u8> {
    let mut message = CONTEXT.to_vec();
    message.put_u8(VERSION);
    message.put_u8(u8::try_from(index).expect("a token has few blocks"));
    if let Some(before) = before {
        message.put(&before.signature);
    }
    message.put_u16(u16::try_from(payload.len()).expect("a token is shorter than that"));
    message.put(payload);
    message.put(&next.0);
    message
}

/// A token as it was read, or made: its limits can be shown, and it can be narrowed, but nothing
/// of it counts before [`Token::verify`]. Who has it has what it allows, so that its
/// [`Token::to_text`] belongs into a file that nobody else reads; `Debug` has no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    issuer: PublicKey,
    blocks: Vec<Block>,
    /// Of the key that the last block names.
    last: Seed,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<TokenId> = self.ids();
        f.debug_struct("Token")
            .field("ids", &ids)
            .finish_non_exhaustive()
    }
}

impl Token {
    /// A new token. `next` is chance, used for nothing else.
    ///
    /// # Errors
    /// [`TokenError::Limits`] if the limits cannot be right, [`TokenError::TooLong`] if they are
    /// too long.
    pub fn issue(key: &IssuerKey, limits: &Limits, next: Seed) -> Result<Self, TokenError> {
        limits.check().map_err(TokenError::Limits)?;
        let project = limits.project.as_ref();
        project.ok_or_else(|| TokenError::Limits("a token is for a project".to_owned()))?;
        let token = Self {
            issuer: key.public(),
            blocks: vec![Block::sign(0, None, limits, &key.0, &next)],
            last: next,
        };
        token.of_allowed_length()
    }

    /// A token that allows what this one does within more limits. Needs no server. `next` is
    /// chance, used for nothing else.
    ///
    /// # Errors
    /// As [`Token::issue`].
    pub fn restrict(&self, limits: &Limits, next: Seed) -> Result<Self, TokenError> {
        limits.check().map_err(TokenError::Limits)?;
        let mut token = self.clone();
        let (index, before) = (self.blocks.len(), self.blocks.last());
        if index == BLOCKS_MAX {
            return Err(TokenError::TooLong);
        }
        let block = Block::sign(index, before, limits, &self.last, &next);
        token.blocks.push(block);
        token.last = next;
        token.of_allowed_length()
    }

    fn of_allowed_length(self) -> Result<Self, TokenError> {
        match self.to_bytes().len() <= TOKEN_BYTES_MAX {
            true => Ok(self),
            false => Err(TokenError::TooLong),
        }
    }

    /// Its bytes. Whoever has them has the token.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.put(&self.issuer.0);
        out.put_u8(self.blocks.len() as u8);
        for block in &self.blocks {
            out.put_u16(block.payload.len() as u16);
            out.put(&block.payload);
            out.put(&block.next.0);
            out.put(&block.signature);
        }
        out.put(&self.last.0);
        out
    }

    /// A token of bytes, to the last of them. Takes any bytes.
    ///
    /// # Errors
    /// Says what is no token, or of a version or with a limit that is not known.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TokenError> {
        if bytes.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::TooLong);
        }
        let mut from = Reader::new(WHAT, bytes);
        match from.u8()? {
            VERSION => {}
            other => return Err(TokenError::Version(other)),
        }
        let issuer = key(&mut from)?;
        let count = usize::from(from.u8()?);
        if !(1..=BLOCKS_MAX).contains(&count) {
            return Err(from.refuse("blocks", count as u64).into());
        }
        let blocks = (0..count).map(|_| block(&mut from));
        let blocks: Vec<Block> = blocks.collect::<Result<_, _>>()?;
        let last = Seed(array(from.bytes(SEED_BYTES)?));
        if !from.rest().is_empty() {
            let left = from.rest().len() as u64;
            return Err(from.refuse("bytes left over", left).into());
        }
        if blocks[0].limits.project.is_none() {
            return Err(TokenError::Limits("the token is for no project".to_owned()));
        }
        Ok(Self {
            issuer,
            blocks,
            last,
        })
    }

    /// Its text: one line without an end. Whoever has it has the token.
    pub fn to_text(&self) -> String {
        format!("{TEXT_PREFIX}{}", URL_SAFE_NO_PAD.encode(self.to_bytes()))
    }

    /// A token of a text, such as a file's: blank lines and those that begin with `#` are left
    /// out.
    ///
    /// # Errors
    /// As [`Token::from_bytes`].
    pub fn from_text(text: &str) -> Result<Self, TokenError> {
        let lines = text.lines().map(str::trim);
        let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let line = lines.next().and_then(|line| line.strip_prefix(TEXT_PREFIX));
        let line = line.ok_or(TokenError::Text(
            "this is no token: one is a line that begins with thalweg-token-1:",
        ))?;
        if lines.next().is_some() {
            return Err(TokenError::Text(
                "this is more than one line: a token is one",
            ));
        }
        if line.len() > TEXT_BYTES_MAX {
            return Err(TokenError::TooLong);
        }
        let bytes = URL_SAFE_NO_PAD.decode(line);
        let bytes = bytes.map_err(|_| {
            TokenError::Text("the token was damaged: it has characters that none has")
        })?;
        Self::from_bytes(&bytes)
    }

    /// Who issued it, as it says.
    pub fn issuer(&self) -> PublicKey {
        self.issuer
    }

    /// The project that it is for, as it says.
    pub fn project(&self) -> &str {
        let project = self.blocks[0].limits.project.as_deref();
        project.expect("the first block names one")
    }

    /// What each block limits, as it says; the first is the issuer's.
    pub fn limits(&self) -> impl ExactSizeIterator<Item = &Limits> {
        self.blocks.iter().map(|block| &block.limits)
    }

    /// The ids of its blocks; the last is its own.
    pub fn ids(&self) -> Vec<TokenId> {
        self.blocks.iter().map(Block::id).collect()
    }

    /// Whether it counts: a known key has issued it, every block is signed by the key that was to,
    /// nothing was cut off, and nothing of it revoked. When it is good is for [`decide`] to say.
    ///
    /// # Errors
    /// The first of these that is not so.
    ///
    /// [`decide`]: crate::decide
    pub fn verify(&self, trust: &Trust) -> Result<Verified, TokenError> {
        // A token of somebody else costs no look at a signature.
        if !trust.keys.contains(&self.issuer) {
            return Err(TokenError::Issuer(self.issuer));
        }
        let mut key = self.issuer;
        let mut before = None;
        for (index, block) in self.blocks.iter().enumerate() {
            let message = signed(index, before, &block.payload, &block.next);
            if !key.verify(&message, &block.signature) {
                return Err(TokenError::Signature(index + 1));
            }
            key = block.next;
            before = Some(block);
        }
        if self.last.public() != key && !planted(Fault::CutRestriction) {
            return Err(TokenError::CutOff);
        }
        let ids = self.ids();
        if let Some(id) = trust.revoked_of(&ids) {
            return Err(TokenError::Revoked(id));
        }
        Ok(Verified {
            project: self.project().to_owned(),
            ids,
            limits: self.limits().cloned().collect(),
            issued: None,
        })
    }

    /// What it would be if it counted, for what is asked where no server's key is known.
    pub fn as_if_verified(&self) -> Verified {
        Verified {
            project: self.project().to_owned(),
            ids: self.ids(),
            limits: self.limits().cloned().collect(),
            issued: None,
        }
    }
}

fn key(from: &mut Reader<'_>) -> Result<PublicKey, TokenError> {
    Ok(PublicKey(array(from.bytes(SEED_BYTES)?)))
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("so many bytes were asked for")
}

fn block(from: &mut Reader<'_>) -> Result<Block, TokenError> {
    let count = from.u16()?;
    let payload = from.bytes(count.into())?;
    Ok(Block {
        limits: Limits::decode(payload)?,
        payload: payload.to_vec(),
        next: key(from)?,
        signature: array(from.bytes(SIGNATURE_BYTES)?),
    })
}

/// What is left of a token that counts, or of what another issuer vouches for: no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    project: String,
    ids: Vec<TokenId>,
    limits: Vec<Limits>,
    issued: Option<Issued>,
}

impl Verified {
    /// Somebody whom another issuer vouches for, by something that was verified, within these limits.
    /// `presented` names it: see [`Issued::ids`].
    ///
    /// # Errors
    /// If the limits cannot be right, or are for no project or without an end.
    pub fn of_issuer(issued: Issued, limits: Limits, presented: &[u8]) -> Result<Self, String> {
        limits.check()?;
        let project = limits.project.clone().ok_or("it is for no project")?;
        if limits.verbs.is_none() || limits.topics.is_none() || limits.expires.is_none() {
            return Err("it is without a limit to verbs, topics or time".to_owned());
        }
        Ok(Self {
            project,
            ids: issued.ids(presented),
            limits: vec![limits],
            issued: Some(issued),
        })
    }

    /// The project that it is for.
    pub fn project(&self) -> &str {
        &self.project
    }

    /// The same without limits to where it is used, for what is asked before that is known.
    #[must_use]
    pub fn anywhere(mut self) -> Self {
        for limits in &mut self.limits {
            limits.networks = None;
            limits.instance = None;
        }
        self
    }

    /// Who presents it, there, where these grants are.
    pub fn identity(self, origin: Origin, grants: Arc<Grants>) -> Identity {
        let issued = self.issued.map(|issued| Kind::Issued(Box::new(issued)));
        let kind = issued.unwrap_or(Kind::Token);
        Identity {
            subject: Subject::Member(self.project),
            credential: Some(Credential::of_kind(kind, self.ids, self.limits)),
            origin,
            grants,
        }
    }
}
