//! The content of a message, and its assembly from a method, a header and body frames.

use crate::error::{Failure, ReplyCode};
use crate::frame::ContentHeader;
use crate::id::MethodId;
use crate::method::basic;
use crate::properties::RawProperties;
use bytes::Bytes;

/// Properties and body of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// Its properties.
    pub properties: RawProperties,
    /// Its body, in one piece.
    pub body: Bytes,
}

impl Content {
    /// Bytes of its properties and its body.
    pub(crate) fn bytes(&self) -> u64 {
        bytes(&self.properties, &self.body)
    }
}

fn bytes(properties: &RawProperties, body: &[u8]) -> u64 {
    (properties.as_bytes().len() + body.len()) as u64
}

/// What of a message has come on a channel.
///
/// ```text
///   Idle ──basic.publish──► Header ──header──► Body ──all bytes──► Idle
///                             └──header of an empty body──────────►
/// ```
#[derive(Debug, Default)]
pub(crate) enum Assembly {
    /// No message is under way.
    #[default]
    Idle,
    /// The method has come.
    Header(basic::Publish),
    /// The header has come too.
    Body(Partial),
}

/// A message whose body is coming.
#[derive(Debug)]
pub(crate) struct Partial {
    publish: basic::Publish,
    properties: RawProperties,
    body: Vec<u8>,
    body_bytes: usize,
}

/// What the first bytes of a body reserve, if it is so long: a body of this length is never moved. Memory that nothing
/// was written to costs addresses alone.
const RESERVED_BYTES: usize = 1 << 20;

/// The ids of the method whose contents are assembled.
const PUBLISH: MethodId = basic::Publish::ID;

fn unexpected(text: String) -> Failure {
    Failure::new(ReplyCode::UnexpectedFrame, text).of(PUBLISH)
}

impl Assembly {
    pub(crate) const fn is_idle(&self) -> bool {
        matches!(self, Self::Idle)
    }

    /// Bytes that it holds of properties and body.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Body(partial) => bytes(&partial.properties, &partial.body),
            _ => 0,
        }
    }

    /// Takes the header of the message.
    pub(crate) fn header(&mut self, header: ContentHeader, body_max: u64) -> Result<(), Failure> {
        let publish = match std::mem::take(self) {
            Self::Header(publish) => publish,
            other => {
                *self = other;
                return Err(unexpected("a content header without its method".to_owned()));
            }
        };
        if header.class != PUBLISH.class {
            let class = header.class;
            return Err(unexpected(format!(
                "expected the content header of class 60, got one of class {class}"
            )));
        }
        if header.body_bytes > body_max {
            let text = format!(
                "message size {} is larger than configured max size {body_max}",
                header.body_bytes
            );
            return Err(Failure::new(ReplyCode::PreconditionFailed, text).of(PUBLISH));
        }
        *self = Self::Body(Partial {
            publish,
            properties: header.properties,
            body: Vec::new(),
            body_bytes: usize::try_from(header.body_bytes)
                .expect("body_max is an amount of memory"),
        });
        Ok(())
    }

    /// Sees a body frame begin.
    pub(crate) fn body_start(&self, bytes: u32) -> Result<(), Failure> {
        let Self::Body(partial) = self else {
            return Err(unexpected("a content body without its header".to_owned()));
        };
        let left = partial.body_bytes - partial.body.len();
        if bytes as usize > left {
            let text = format!("a body frame of {bytes} bytes, and {left} are to come");
            return Err(Failure::new(ReplyCode::FrameError, text).of(PUBLISH));
        }
        Ok(())
    }

    /// Takes bytes of the body frame that began last. Memory grows with what comes, fourfold from [`RESERVED_BYTES`] on,
    /// and never beyond the length that the header says; the length alone reserves nothing.
    pub(crate) fn body(&mut self, bytes: &[u8]) {
        let Self::Body(partial) = self else { return };
        let body = &mut partial.body;
        let needed = body.len() + bytes.len();
        if body.capacity() < needed {
            let grown = needed.max(4 * body.len()).max(RESERVED_BYTES);
            let grown = grown.min(partial.body_bytes);
            body.reserve_exact(grown - body.len());
        }
        body.extend_from_slice(bytes);
    }

    /// The message, if all of it has come.
    pub(crate) fn finish(&mut self) -> Option<(basic::Publish, Content)> {
        match std::mem::take(self) {
            Self::Body(partial) if partial.body.len() == partial.body_bytes => {
                let content = Content {
                    properties: partial.properties,
                    body: partial.body.into(),
                };
                Some((partial.publish, content))
            }
            other => {
                *self = other;
                None
            }
        }
    }
}
