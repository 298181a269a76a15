//! What a queue is.

use crate::arguments::{ArgumentError, Arguments, plain, quoted, type_name};
use crate::exchange::check_argument;
use crate::faults::{Fault, planted};
use crate::id::{ConnectionId, QueueId};
use crate::name::Name;
use crate::refusal::Refusal;
use amqp::{Failure, Value};
use std::sync::Arc;
use std::time::Duration;

const DEAD_LETTER_EXCHANGE: &str = "x-dead-letter-exchange";
const DEAD_LETTER_ROUTING_KEY: &str = "x-dead-letter-routing-key";
const QUEUE_TYPE: &str = "x-queue-type";

/// The longest time that an argument may say: ten years, in milliseconds.
const MILLISECONDS_MAX: u64 = 315_360_000_000;

/// The arguments in which two declarations of a queue are compared.
const COMPARED: [&str; 14] = [
    "x-expires",
    "x-message-ttl",
    DEAD_LETTER_EXCHANGE,
    DEAD_LETTER_ROUTING_KEY,
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-overflow",
    "x-queue-mode",
    "x-queue-version",
    "x-single-active-consumer",
    QUEUE_TYPE,
    "x-queue-master-locator",
    "x-queue-leader-locator",
];

/// Arguments that only a stream has.
const OF_STREAMS: [&str; 3] = [
    "x-max-age",
    "x-stream-max-segment-size-bytes",
    "x-stream-filter-size-bytes",
];

/// What a queue that is full does with a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Overflow {
    /// Its oldest ready messages go, as dead letters.
    #[default]
    DropHead,
    /// The message is refused.
    RejectPublish,
    /// The message is refused, and is a dead letter.
    RejectPublishDeadLetter,
}

/// What the arguments of a queue ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueOptions {
    /// How many ready messages it has at most.
    pub length_max: Option<u64>,
    /// How many bytes the bodies of its ready messages have at most.
    pub length_bytes_max: Option<u64>,
    /// What happens at these bounds.
    pub overflow: Overflow,
    /// How long a message stays.
    pub message_ttl: Option<Duration>,
    /// How long the queue stays when nobody uses it.
    pub expires: Option<Duration>,
    /// Where its dead letters go.
    pub dead_letter_exchange: Option<Arc<str>>,
    /// Under which key, if not their own ones.
    pub dead_letter_routing_key: Option<Arc<str>>,
    /// One of its consumers gets everything.
    pub single_active_consumer: bool,
}

/// Reads arguments of one queue.
struct Parser<'a>(&'a Arguments);

impl Parser<'_> {
    fn invalid<T>(argument: &'static str, why: impl Into<String>) -> Result<T, ArgumentError> {
        Err(ArgumentError::Invalid {
            argument,
            why: why.into(),
        })
    }

    fn count(&self, argument: &'static str) -> Result<Option<u64>, ArgumentError> {
        let Some(value) = self.0.get(argument) else {
            return Ok(None);
        };
        let Some(number) = value.as_integer() else {
            let why = format!("\"expected integer, got {}\"", type_name(&value));
            return Self::invalid(argument, why);
        };
        match u64::try_from(number) {
            Ok(count) => Ok(Some(count)),
            Err(_) => Self::invalid(argument, format!("{{value_negative,{number}}}")),
        }
    }

    fn milliseconds(&self, argument: &'static str) -> Result<Option<Duration>, ArgumentError> {
        match self.count(argument)? {
            Some(number) if number > MILLISECONDS_MAX => {
                Self::invalid(argument, format!("{{value_too_large,{number}}}"))
            }
            number => Ok(number.map(Duration::from_millis)),
        }
    }

    fn unacceptable<T>(argument: &'static str, value: &Value) -> Result<T, ArgumentError> {
        let why = format!("{{unacceptable_type,{}}}", type_name(value));
        Self::invalid(argument, why)
    }

    fn flag(&self, argument: &'static str) -> Result<bool, ArgumentError> {
        match self.0.get(argument) {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(value),
            Some(other) => Self::unacceptable(argument, &other),
        }
    }

    fn text(&self, argument: &'static str) -> Result<Option<Value>, ArgumentError> {
        match self.0.get(argument) {
            None => Ok(None),
            Some(value @ Value::String(_)) => Ok(Some(value)),
            Some(other) => Self::unacceptable(argument, &other),
        }
    }

    /// A name or a key: what no short string holds matches nothing that is published, and is refused.
    fn short(&self, argument: &'static str) -> Result<Option<Arc<str>>, ArgumentError> {
        let Some(value) = self.text(argument)? else {
            return Ok(None);
        };
        match value.as_str() {
            Some(text) if text.len() <= 255 => Ok(Some(text.into())),
            _ => Self::invalid(argument, "\"expected UTF-8 of 255 bytes at most\""),
        }
    }

    fn dead_letter_exchange(&self) -> Result<Option<Arc<str>>, ArgumentError> {
        match self.0.get(DEAD_LETTER_EXCHANGE) {
            None | Some(Value::String(_)) => self.short(DEAD_LETTER_EXCHANGE),
            Some(other) => Err(ArgumentError::Type {
                argument: DEAD_LETTER_EXCHANGE,
                found: type_name(&other),
            }),
        }
    }

    fn overflow(&self) -> Result<Overflow, ArgumentError> {
        let value = self.text("x-overflow")?;
        match value.as_ref().and_then(Value::as_str) {
            None if value.is_none() => Ok(Overflow::DropHead),
            Some("drop-head") => Ok(Overflow::DropHead),
            Some("reject-publish") => Ok(Overflow::RejectPublish),
            Some("reject-publish-dlx") => Ok(Overflow::RejectPublishDeadLetter),
            _ => Self::invalid("x-overflow", "invalid_overflow"),
        }
    }

    /// Quorum queues are taken for what they are to their users: durable ones. Streams are something else.
    fn queue_type(&self) -> Result<(), ArgumentError> {
        let Some(value) = self.text(QUEUE_TYPE)? else {
            return Ok(());
        };
        match value.as_str() {
            Some("classic" | "quorum") => Ok(()),
            _ => {
                let why = format!("\"unsupported queue type '{}'\"", plain(&value));
                Self::invalid(QUEUE_TYPE, why)
            }
        }
    }

    /// There are none here. RabbitMQ refuses them with 406 in queues of the types that have none.
    fn priorities(&self) -> Result<(), ArgumentError> {
        match self.count("x-max-priority")? {
            None => Ok(()),
            Some(found @ 256..) => {
                Self::invalid("x-max-priority", format!("{{max_value_exceeded,{found}}}"))
            }
            Some(_) => Self::invalid(
                "x-max-priority",
                "\"queues with priorities are not supported\"",
            ),
        }
    }
}

impl QueueOptions {
    /// What arguments ask for.
    pub(crate) fn parse(arguments: &Arguments) -> Result<Self, ArgumentError> {
        let parser = Parser(arguments);
        let dead_letter_exchange = parser.dead_letter_exchange()?;
        parser.queue_type()?;
        let expires = parser.milliseconds("x-expires")?;
        if expires == Some(Duration::ZERO) {
            return Parser::invalid("x-expires", "{value_zero,0}");
        }
        let message_ttl = parser.milliseconds("x-message-ttl")?;
        let dead_letter_routing_key = parser.short(DEAD_LETTER_ROUTING_KEY)?;
        if dead_letter_routing_key.is_some() && dead_letter_exchange.is_none() {
            return Parser::invalid(DEAD_LETTER_ROUTING_KEY, "routing_key_but_no_dlx_defined");
        }
        let options = Self {
            length_max: parser.count("x-max-length")?,
            length_bytes_max: parser.count("x-max-length-bytes")?,
            overflow: parser.overflow()?,
            message_ttl,
            expires,
            dead_letter_exchange,
            dead_letter_routing_key,
            single_active_consumer: parser.flag("x-single-active-consumer")?,
        };
        let mut of_streams = OF_STREAMS.into_iter();
        if let Some(argument) = of_streams.find(|name| arguments.get(name).is_some()) {
            return Err(ArgumentError::Foreign { argument });
        }
        parser.priorities()?;
        Ok(options)
    }
}

/// A queue as it was declared.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say it")]
pub struct Queue {
    pub id: QueueId,
    pub name: Arc<str>,
    /// It comes back after a restart. An exclusive queue does not, whatever its client asked for.
    pub durable: bool,
    /// It goes when the last of its consumers goes.
    pub auto_delete: bool,
    /// The only connection that may use it, and with which it goes.
    pub owner: Option<ConnectionId>,
    pub arguments: Arguments,
    /// What the arguments ask for.
    pub options: QueueOptions,
}

impl Queue {
    /// Bytes of what a client chose of it.
    pub(crate) fn bytes(&self) -> usize {
        self.name.len() + self.arguments.as_bytes().len()
    }

    pub(crate) fn as_name(&self) -> Name {
        Name::Queue(self.name.clone())
    }

    /// Whether a connection may use it.
    pub(crate) fn check_access(
        &self,
        connection: ConnectionId,
        refusal: Refusal<'_>,
    ) -> Result<(), Failure> {
        match self.owner {
            Some(owner) if owner != connection && !planted(Fault::Shared) => {
                Err(refusal.locked(&self.as_name()))
            }
            _ => Ok(()),
        }
    }

    /// Whether a second declaration says the same.
    pub(crate) fn check_same(&self, again: &Self, refusal: Refusal<'_>) -> Result<(), Failure> {
        let name = self.as_name();
        if self.owner != again.owner && !planted(Fault::Shared) {
            return Err(refusal.locked(&name));
        }
        if planted(Fault::NotCompared) {
            return Ok(());
        }
        let flags = [
            ("durable", self.durable, again.durable),
            ("auto_delete", self.auto_delete, again.auto_delete),
        ];
        for (field, current, received) in flags {
            if current != received {
                let (received, current) = (quoted(received), quoted(current));
                return Err(refusal.inequivalent(&name, field, &received, &current));
            }
        }
        for argument in COMPARED {
            if argument == QUEUE_TYPE && self.is_classic() && again.is_classic() {
                continue;
            }
            check_argument(&name, argument, &again.arguments, &self.arguments, refusal)?;
        }
        Ok(())
    }

    /// A queue whose type is not said is a classic one.
    fn is_classic(&self) -> bool {
        match self.arguments.get(QUEUE_TYPE) {
            None => true,
            Some(value) => value.as_str() == Some("classic"),
        }
    }
}

/// Who consumes a queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Consumers {
    /// Nobody, and nobody ever has.
    #[default]
    Never,
    /// Nobody any more.
    Gone,
    /// Several.
    Some(u32),
    /// One that wants no other beside it.
    Exclusive,
}

impl Consumers {
    pub const fn count(&self) -> u32 {
        match self {
            Self::Never | Self::Gone => 0,
            Self::Some(count) => *count,
            Self::Exclusive => 1,
        }
    }

    /// The same with one more, if it is possible.
    pub const fn with(&self, exclusive: bool) -> Option<Self> {
        match (self, exclusive) {
            (Self::Never | Self::Gone, true) => Some(Self::Exclusive),
            (Self::Never | Self::Gone, false) => Some(Self::Some(1)),
            (Self::Some(count), false) => Some(Self::Some(*count + 1)),
            (Self::Some(_), true) | (Self::Exclusive, _) => None,
        }
    }

    /// The same with one less.
    pub const fn without(&self) -> Self {
        match self {
            Self::Some(count) if *count > 1 => Self::Some(*count - 1),
            Self::Never => Self::Never,
            _ => Self::Gone,
        }
    }
}
