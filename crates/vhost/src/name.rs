//! Names of queues and exchanges: what clients may take, and what they mean.

use amqp::ShortString;
use std::sync::Arc;

/// The pseudo-queue of replies, as a consumer of it names it.
const REPLY_TO: &str = "amq.rabbitmq.reply-to";

/// What has a name in a virtual host. A queue and an exchange may have the same one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "each is the name that it holds")]
pub enum Name {
    Queue(Arc<str>),
    Exchange(Arc<str>),
}

impl Name {
    /// The kind of what has the name, as texts say it.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Queue(_) => "queue",
            Self::Exchange(_) => "exchange",
        }
    }

    /// The name without its kind.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Queue(name) | Self::Exchange(name) => name,
        }
    }
}

/// A name as a client wrote it, without line ends: RabbitMQ strips them, and programs rely on it.
pub(crate) fn stripped(name: &str) -> Arc<str> {
    match name.contains(['\r', '\n']) {
        true => name.replace(['\r', '\n'], "").into(),
        false => name.into(),
    }
}

/// Whether clients may not declare this name.
pub(crate) fn is_reserved(name: &str) -> bool {
    name.starts_with("amq.")
}

/// The name that the server gives to a queue without one.
pub(crate) fn generated(chance: u128) -> Arc<str> {
    with_chance("amq.gen-", chance).into()
}

/// The tag that the server gives to a consumer without one.
pub(crate) fn generated_tag(chance: u128) -> ShortString {
    ShortString::truncated(&with_chance("amq.ctag-", chance))
}

/// 128 bits of chance in the alphabet of URLs.
fn with_chance(prefix: &str, chance: u128) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut name = String::from(prefix);
    // 22 letters of 6 bits hold 132 bits; the last has 2 of the 128.
    for letter in 0..22 {
        let bits = match 128u32.checked_sub(6 * (letter + 1)) {
            Some(shift) => chance >> shift,
            None => chance << 4,
        };
        name.push(char::from(LETTERS[(bits & 63) as usize]));
    }
    name
}

/// The pseudo-queue of direct replies, which no virtual host keeps.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DirectReply {
    /// The name by which a consumer of replies asks for them.
    Own,
    /// The address of such a consumer: what follows the dot, for the owner of the virtual host to understand.
    Address(Arc<str>),
}

impl DirectReply {
    /// What a queue's name means, if it is such a one.
    pub fn of(queue: &str) -> Option<Self> {
        let rest = queue.strip_prefix(REPLY_TO)?;
        match rest.strip_prefix('.') {
            Some(address) => Some(Self::Address(address.into())),
            None if rest.is_empty() => Some(Self::Own),
            None => None,
        }
    }
}
