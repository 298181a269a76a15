//! The credential of a connection: a file, read for each connection, and again before its end.

use super::io::{Output, RenewedCredential};
use super::wire_session::{Context, Timer, Wire};
use crate::options::CredentialEnds;
use crate::presented::{is_overheard, mechanism};
use crate::vouched;
use bytes::Bytes;
use net::{Identity, Message};
use std::path::PathBuf;
use std::time::Duration;
use wire::codec::Codec;
use wire::frame::FrameKind;
use wire::message::{
    Authenticate, Authenticated, CERTIFICATE, CertificateChain, ISSUED, RENEW_CERTIFICATE,
};

/// How soon the file is read again at the earliest.
const AGAIN: Duration = Duration::from_secs(5);

/// As [`AGAIN`], where a life is short, or over: everything waits for another one.
const AGAIN_OVER: Duration = Duration::from_secs(1);

/// With so little left it is said; the server tells of it then.
const WARNING: Duration = Duration::from_secs(60);

/// What was said of the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Warned {
    No,
    Soon,
    Over,
}

/// What is presented of who somebody is.
pub(super) struct Credential {
    /// Where it is.
    pub path: PathBuf,
    /// What was read there last, and presented: a token, or a certificate and its key.
    pub text: Bytes,
    /// What the file had before the server renewed it. Where it cannot be written it still has that, which is no news.
    replaced: Bytes,
    /// When the connection's credential is over, if that is known and ever so.
    expires_at: Option<Duration>,
    /// When the file is read again; `None` while it is, or for ever.
    pub renew_at: Option<Duration>,
    warned: Warned,
    /// Whether MUNGE makes it for each connection, so that there is no file.
    pub is_munged: bool,
    /// The SHA-256 of the certificate that the server has shown on this connection: MUNGE makes it for that server.
    pub shown_by_server: [u8; 32],
    /// Whether the server was asked for another certificate and has not answered, or refused.
    has_asked: bool,
}

/// What certificates begin with, in PEM, and keys.
const PEM: &[u8] = b"-----BEGIN ";
const PEM_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

impl Credential {
    pub fn new(path: PathBuf) -> Self {
        Self {
            is_munged: vouched::names_munge(&path),
            shown_by_server: [0; 32],
            path,
            text: Bytes::new(),
            replaced: Bytes::new(),
            expires_at: None,
            renew_at: None,
            warned: Warned::No,
            has_asked: false,
        }
    }

    /// The same for another connection.
    pub fn anew(&self) -> Self {
        Self::new(self.path.clone())
    }

    /// It was read for a connection.
    pub fn begin_with(&mut self, text: Bytes) {
        self.read(text);
        self.has_asked = false;
    }

    /// The file has that. Whether it is news: not if the server has renewed it, so that what is here is newer.
    fn read(&mut self, text: Bytes) -> bool {
        if !self.replaced.is_empty() && text == self.replaced {
            return false;
        }
        self.replaced = Bytes::new();
        let is_news = text != self.text;
        self.text = text;
        is_news
    }

    /// Whether it is a certificate and its key, and no token.
    pub fn is_certificate(&self) -> bool {
        self.text.windows(PEM.len()).any(|part| part == PEM)
    }

    /// Whether others have issued it, and not the server.
    pub fn is_issued(&self) -> bool {
        !self.is_certificate() && mechanism(&self.text) == ISSUED
    }

    /// What is to be done to have it, on a connection whose server is known if MUNGE makes it.
    pub fn fetched(&self) -> Output {
        let path = self.path.clone();
        match self.is_munged {
            true => Output::MakeCredential {
                path,
                certificate: self.shown_by_server,
            },
            false => Output::ReadCredential(path),
        }
    }

    /// What a Hello says of it.
    pub fn hello(&self) -> (&'static str, Bytes) {
        match self.is_certificate() {
            true => (CERTIFICATE, Bytes::new()),
            false => (mechanism(&self.text), self.text.clone()),
        }
    }

    /// What a connection shows of it in TLS.
    pub fn shown(&self) -> Option<Bytes> {
        self.is_certificate().then(|| self.text.clone())
    }

    /// Whether a refusal is of the certificate that the server was asked for: the connection goes on with
    /// the one that it has.
    pub fn is_refusal_to_renew(&self, said: &Authenticated) -> bool {
        self.has_asked && !said.refused.is_empty()
    }

    /// Takes the certificate that the server has made: what its file is to hold.
    pub fn take_issued(&mut self, said: &Authenticated) -> Option<RenewedCredential> {
        // A server that was not asked has nothing to say about the file.
        if said.issued.is_empty() || !self.has_asked {
            return None;
        }
        self.has_asked = false;
        let text = self.text.clone();
        let text = std::str::from_utf8(&text).ok()?;
        // What the file has: where it could not be written, that is older than what is here.
        let before = match self.replaced.is_empty() {
            true => self.text.clone(),
            false => self.replaced.clone(),
        };
        // The key and what is said above it stay.
        let (kept, _) = text.split_at(text.find(PEM_CERTIFICATE)?);
        self.text = format!("{kept}{}", net::certificates_pem(&said.issued)).into();
        self.replaced = before.clone();
        Some(RenewedCredential {
            path: self.path.clone(),
            before,
            after: self.text.clone(),
            left: Duration::from_millis(said.expires_in_ms),
        })
    }

    /// The server says how long it is good. The file is looked at when two thirds of that are
    /// over, and then again and again; at once when it is over. Gives what is to be said if little is left, once, and
    /// at the end.
    pub fn good_for(
        &mut self,
        context: &mut Context,
        said: &Authenticated,
        chance: u64,
    ) -> Option<CredentialEnds> {
        if said.expires_in_ms == u64::MAX {
            (self.expires_at, self.renew_at) = (None, None);
            return None;
        }
        let left = Duration::from_millis(said.expires_in_ms);
        let renew = Duration::from_millis(said.renew_in_ms).min(left);
        self.expires_at = Some(context.now.saturating_add(left));
        let warned = match left {
            Duration::ZERO => Warned::Over,
            left if left <= WARNING => Warned::Soon,
            _ => Warned::No,
        };
        let is_news = warned > std::mem::replace(&mut self.warned, warned);
        match (warned, is_news) {
            (Warned::Over, true) => self.look_at(context, context.now),
            // Two thirds of a certificate's life were over before the connection began.
            _ if renew.is_zero() && self.is_certificate() && !self.has_asked => {
                self.look_at(context, context.now);
            }
            // The server has said that it does not renew it; somebody else may.
            _ if renew.is_zero() => self.look_again(context, left, left / 3),
            // Who shares a certificate's file would come at the same time.
            _ if self.is_certificate() => {
                let spread = (left - renew) / 4 * (chance % 256) as u32 / 256;
                self.look_again(context, left, renew + spread);
            }
            _ => self.look_again(context, left, renew),
        }
        is_news.then(|| CredentialEnds {
            path: self.path.clone(),
            left,
            message: said.message.clone(),
        })
    }

    /// Of a file that is good for `left`.
    fn look_again(&mut self, context: &mut Context, left: Duration, after: Duration) {
        // A short life is over before that.
        let least = AGAIN.min(left * 2 / 3).max(AGAIN_OVER);
        self.look_at(context, context.now.saturating_add(after.max(least)));
    }

    fn look_at(&mut self, context: &mut Context, at: Duration) {
        self.renew_at = Some(at);
        context.arm(at, Timer::Connection);
    }

    /// The file was read while a connection stands: what is new in it is presented. What cannot be
    /// read leaves what there is, and so does what others have issued where it may be overheard.
    pub fn renew(&mut self, wire: &mut Wire<'_>, result: Result<Bytes, String>, address: &str) {
        let left = self.expires_at.unwrap_or_default();
        let left = left.saturating_sub(wire.now());
        self.look_again(wire.context, left, left / 3);
        let is_secret = |text: &Bytes| mechanism(text) == ISSUED && is_overheard(address);
        let asked = match result.ok().filter(|text| !is_secret(text)) {
            // What others have issued is asked about anew: it may be good for longer than was said.
            Some(text) if self.read(text.clone()) || self.is_issued() => {
                self.has_asked = false;
                self.presented()
            }
            // Who shares the file has not renewed it.
            Some(_) if self.is_certificate() && !self.has_asked => {
                self.has_asked = true;
                Some(Authenticate {
                    mechanism: RENEW_CERTIFICATE.to_owned(),
                    proof: Bytes::new(),
                })
            }
            _ => None,
        };
        if let Some(asked) = asked {
            let message = Message::control(FrameKind::Authenticate, 0, asked.to_bytes());
            wire.send(message);
        }
    }

    /// What is presented of another credential on a connection that stands; nothing of a file that is none.
    fn presented(&self) -> Option<Authenticate> {
        let (mechanism, proof) = match self.is_certificate() {
            true => {
                let identity = Identity::from_pem(&self.text, &self.text).ok()?;
                let certificates = identity.certificates();
                (
                    CERTIFICATE,
                    CertificateChain { certificates }.to_bytes().into(),
                )
            }
            false => (mechanism(&self.text), self.text.clone()),
        };
        Some(Authenticate {
            mechanism: mechanism.to_owned(),
            proof,
        })
    }
}
