//! What clients are refused with. Programs and tests of others read these texts, so that they are RabbitMQ's.

use crate::arguments::ArgumentError;
use crate::name::Name;
use amqp::{Failure, MethodId, ReplyCode};

/// Refusals of one method in one virtual host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refusal<'a> {
    pub vhost: &'a str,
    pub method: MethodId,
}

impl Refusal<'_> {
    pub fn with(self, code: ReplyCode, text: impl Into<String>) -> Failure {
        Failure::new(code, text).of(self.method)
    }

    pub fn precondition(self, text: impl Into<String>) -> Failure {
        self.with(ReplyCode::PreconditionFailed, text)
    }

    /// As texts name a queue or an exchange.
    pub fn named(self, name: &Name) -> String {
        format!(
            "{} '{}' in vhost '{}'",
            name.kind(),
            name.as_str(),
            self.vhost
        )
    }

    pub fn not_found(self, name: &Name) -> Failure {
        self.with(ReplyCode::NotFound, format!("no {}", self.named(name)))
    }

    pub fn default_exchange(self) -> Failure {
        self.with(
            ReplyCode::AccessRefused,
            "operation not permitted on the default exchange",
        )
    }

    pub fn reserved(self, name: &Name) -> Failure {
        let (kind, name) = (name.kind(), name.as_str());
        self.with(
            ReplyCode::AccessRefused,
            format!("{kind} name '{name}' contains reserved prefix 'amq.*'"),
        )
    }

    pub fn locked(self, name: &Name) -> Failure {
        let named = self.named(name);
        self.with(
            ReplyCode::ResourceLocked,
            format!(
                "cannot obtain exclusive access to locked {named}. It could be originally declared on another \
                 connection or the exclusive property value does not match that of the original declaration."
            ),
        )
    }

    /// A second declaration says something else than the first. The values are as [`quoted`] or an argument writes them.
    pub fn inequivalent(self, name: &Name, field: &str, received: &str, current: &str) -> Failure {
        let named = self.named(name);
        self.precondition(format!(
            "inequivalent arg '{field}' for {named}: received {received} but current is {current}"
        ))
    }

    pub fn argument(self, name: &Name, error: &ArgumentError) -> Failure {
        self.precondition(error.text(&self.named(name)))
    }

    pub fn arguments_too_long(self, what: &str, bytes: usize, max: usize) -> Failure {
        self.precondition(format!(
            "arguments of {what} have {bytes} bytes, and {max} are the most"
        ))
    }
}
