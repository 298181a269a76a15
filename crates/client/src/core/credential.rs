//! The credential of a connection: a file, read for each connection, and again before its end.

use super::wire_session::{Context, Timer, Wire};
use crate::options::CredentialEnds;
use bytes::Bytes;
use net::Message;
use std::path::PathBuf;
use std::time::Duration;
use wire::codec::Codec;
use wire::frame::FrameKind;
use wire::message::{ACCESS_TOKEN, Authenticate, Authenticated};

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
    /// What was read there last, and presented.
    pub text: Bytes,
    /// When the connection's credential is over, if that is known and ever so.
    expires_at: Option<Duration>,
    /// When the file is read again; `None` while it is, or for ever.
    pub renew_at: Option<Duration>,
    warned: Warned,
}

impl Credential {
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            text: Bytes::new(),
            expires_at: None,
            renew_at: None,
            warned: Warned::No,
        }
    }

    /// The server says how long it is good. The file is looked at when two thirds of that are
    /// over, and then again and again; at once when it is over. Gives what is to be said if little is left, once, and at
    /// the end.
    pub fn good_for(
        &mut self,
        context: &mut Context,
        said: &Authenticated,
    ) -> Option<CredentialEnds> {
        if said.expires_in_ms == u64::MAX {
            (self.expires_at, self.renew_at) = (None, None);
            return None;
        }
        let left = Duration::from_millis(said.expires_in_ms);
        self.expires_at = Some(context.now.saturating_add(left));
        let warned = match left {
            Duration::ZERO => Warned::Over,
            left if left <= WARNING => Warned::Soon,
            _ => Warned::No,
        };
        let is_news = warned > std::mem::replace(&mut self.warned, warned);
        match (warned, is_news) {
            (Warned::Over, true) => self.look_at(context, context.now),
            _ => self.look_again(context, left, left * 2 / 3),
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
    /// read leaves what there is.
    pub fn renew(&mut self, wire: &mut Wire<'_>, result: Result<Bytes, String>) {
        let left = self.expires_at.unwrap_or_default();
        let left = left.saturating_sub(wire.now());
        self.look_again(wire.context, left, left / 3);
        match result {
            Ok(text) if text != self.text => {
                self.text = text.clone();
                let asked = Authenticate {
                    mechanism: ACCESS_TOKEN.to_owned(),
                    proof: text,
                };
                let message = Message::control(FrameKind::Authenticate, 0, asked.to_bytes());
                wire.send(message);
            }
            Ok(_) | Err(_) => {}
        }
    }
}
