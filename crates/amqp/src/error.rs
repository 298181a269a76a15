//! Reply codes, and errors as a peer gets them.

use crate::id::MethodId;
use std::fmt;

/// Declares the codes with their values, names and hardness.
macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $name:literal, $hard:literal;)*) => {
        /// A reply code of the standard, or of RabbitMQ where the standard has none.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ReplyCode { $($(#[$doc])* $variant = $code),* }

        impl ReplyCode {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Its name, as reply texts begin with it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Whether it ends the connection; a soft error ends the channel alone.
            pub const fn is_hard(self) -> bool {
                match self { $(Self::$variant => $hard),* }
            }
        }
    };
}

codes! {
    /// All went well.
    Success = 200, "OK", true;
    /// The content is larger than the peer takes now.
    ContentTooLarge = 311, "CONTENT_TOO_LARGE", false;
    /// A message was not routed to any queue.
    NoRoute = 312, "NO_ROUTE", false;
    /// An immediate message has no consumer.
    NoConsumers = 313, "NO_CONSUMERS", false;
    /// An operator closes the connection.
    ConnectionForced = 320, "CONNECTION_FORCED", true;
    /// The virtual host is not known.
    InvalidPath = 402, "INVALID_PATH", true;
    /// The identity may not do this.
    AccessRefused = 403, "ACCESS_REFUSED", false;
    /// There is no such queue or exchange.
    NotFound = 404, "NOT_FOUND", false;
    /// Another connection has it for itself.
    ResourceLocked = 405, "RESOURCE_LOCKED", false;
    /// Something that must hold for the method does not.
    PreconditionFailed = 406, "PRECONDITION_FAILED", false;
    /// A frame is malformed.
    FrameError = 501, "FRAME_ERROR", true;
    /// Fields of a frame have impossible values.
    SyntaxError = 502, "SYNTAX_ERROR", true;
    /// A method comes where it may not.
    CommandInvalid = 503, "COMMAND_INVALID", true;
    /// A channel is used that is not open, or opened twice.
    ChannelError = 504, "CHANNEL_ERROR", true;
    /// A frame comes where another kind is due.
    UnexpectedFrame = 505, "UNEXPECTED_FRAME", true;
    /// The peer asks for more than there is.
    ResourceError = 506, "RESOURCE_ERROR", true;
    /// The peer does what the negotiation or the server's rules exclude.
    NotAllowed = 530, "NOT_ALLOWED", true;
    /// The server does not have this.
    NotImplemented = 540, "NOT_IMPLEMENTED", true;
    /// The server failed.
    InternalError = 541, "INTERNAL_ERROR", true;
}

impl ReplyCode {
    /// Its number on the wire.
    pub const fn number(self) -> u16 {
        self as u16
    }
}

/// An error of a peer: what `connection.close` or `channel.close` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The code. Its hardness decides what is closed.
    pub code: ReplyCode,
    /// What is wrong, without the name of the code.
    pub text: String,
    /// The method that failed, if a method did.
    pub method: Option<MethodId>,
}

impl Failure {
    /// A failure of no certain method.
    pub fn new(code: ReplyCode, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
            method: None,
        }
    }

    /// The same, of a method.
    pub fn of(self, method: MethodId) -> Self {
        Self {
            method: Some(method),
            ..self
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} - {}", self.code.name(), self.text)
    }
}

impl std::error::Error for Failure {}
