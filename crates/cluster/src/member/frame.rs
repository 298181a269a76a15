//! What the servers of a cluster say to each other about the table.

use bytes::Bytes;
use wire::codec::{Codec, DecodeError, Reader, Write};
use wire::table::{Register, Registered, TableMessage};
use wire::{DirectoryId, ErrorReply, NodeId};

/// A message between two servers, on a link that keeps their order.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Frame {
    /// A message of a voter for another: [`crate::quorum::Output::Send`].
    Quorum(Bytes),
    /// A node asks to follow the table that the receiver leads.
    Attach(Attachment),
    /// It follows.
    Attached(Attachment),
    /// It does not, or not any more.
    NotLed {
        /// Which.
        attachment: Attachment,
        /// The server that is said to lead; 0 if none is known.
        leader: DirectoryId,
    },
    /// A message from or to a node that follows.
    Table {
        /// Which.
        attachment: Attachment,
        /// The message.
        message: TableMessage,
    },
    /// A server asks which node it is.
    Register {
        /// Another one each time that it asks.
        number: u64,
        /// What it says of itself.
        register: Register,
    },
    /// The answer.
    Registered {
        /// What it was asked with.
        number: u64,
        /// Which node the server is, or why it is none.
        result: Result<Registered, ErrorReply>,
    },
}

/// A node that follows, or asks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Attachment {
    pub(super) node: NodeId,
    /// Chosen by the node's server, another one each time that the node asks: what is about an earlier one is over.
    pub(super) number: u64,
}

const WHAT: &str = "message between servers";
const VERSION: u8 = 1;

impl Frame {
    pub(super) fn to_bytes(&self) -> Bytes {
        let mut out = vec![VERSION];
        match self {
            Self::Quorum(bytes) => {
                out.push(1);
                out.extend_from_slice(bytes);
            }
            Self::Attach(attachment) => attachment.put(2, &mut out),
            Self::Attached(attachment) => attachment.put(3, &mut out),
            Self::NotLed { attachment, leader } => {
                attachment.put(4, &mut out);
                out.put_u128(leader.0);
            }
            Self::Table {
                attachment,
                message,
            } => {
                attachment.put(5, &mut out);
                message.encode(&mut out);
            }
            Self::Register { number, register } => {
                out.push(6);
                out.put_u64(*number);
                register.encode(&mut out);
            }
            Self::Registered { number, result } => {
                out.push(if result.is_ok() { 7 } else { 8 });
                out.put_u64(*number);
                match result {
                    Ok(registered) => registered.encode(&mut out),
                    Err(error) => error.encode(&mut out),
                }
            }
        }
        out.into()
    }

    /// Reads a message that is all of `bytes`.
    pub(super) fn read(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut from = Reader::new(WHAT, bytes);
        let version = from.u8()?;
        if version != VERSION {
            return Err(DecodeError::version(
                WHAT,
                0,
                "version",
                version.into(),
                VERSION.into(),
            ));
        }
        let kind = from.u8()?;
        let frame = match kind {
            1 => return Ok(Self::Quorum(bytes.slice(2..))),
            2 => Self::Attach(Attachment::get(&mut from)?),
            3 => Self::Attached(Attachment::get(&mut from)?),
            4 => Self::NotLed {
                attachment: Attachment::get(&mut from)?,
                leader: DirectoryId(from.u128()?),
            },
            5 => {
                return Ok(Self::Table {
                    attachment: Attachment::get(&mut from)?,
                    message: TableMessage::read(from.rest())?,
                });
            }
            6 => Self::Register {
                number: from.u64()?,
                register: Codec::decode(&mut from)?,
            },
            7 => Self::Registered {
                number: from.u64()?,
                result: Ok(Codec::decode(&mut from)?),
            },
            8 => Self::Registered {
                number: from.u64()?,
                result: Err(Codec::decode(&mut from)?),
            },
            other => return Err(DecodeError::newer(WHAT, 1, "type", other.into())),
        };
        match from.rest() {
            [] => Ok(frame),
            rest => Err(from.refuse("bytes behind the message", rest.len() as u64)),
        }
    }
}

impl Attachment {
    fn put(self, kind: u8, out: &mut Vec<u8>) {
        out.push(kind);
        out.put_u32(self.node.0);
        out.put_u64(self.number);
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            node: NodeId(from.u32()?),
            number: from.u64()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ErrorCode;
    use wire::record::{Endpoints, Labels};
    use wire::table::Took;

    fn frames() -> Vec<Frame> {
        let attachment = Attachment {
            node: NodeId(7),
            number: 9,
        };
        let leader = DirectoryId(3);
        let message = TableMessage::Took(Took { count: 2 });
        vec![
            Frame::Quorum(Bytes::from_static(b"any")),
            Frame::Quorum(Bytes::new()),
            Frame::Attach(attachment),
            Frame::Attached(attachment),
            Frame::NotLed { attachment, leader },
            Frame::Table {
                attachment,
                message,
            },
            Frame::Register {
                number: 3,
                register: Register {
                    directory: leader,
                    endpoints: Endpoints(vec!["tcp://h:1".to_owned()]),
                    labels: Labels::default(),
                    shard: 2,
                },
            },
            Frame::Registered {
                number: 3,
                result: Ok(Registered {
                    node: NodeId(7),
                    epoch: 1,
                }),
            },
            Frame::Registered {
                number: 3,
                result: Err(ErrorReply::fatal(ErrorCode::WrongServer, "removed")),
            },
        ]
    }

    #[test]
    fn each_is_read_as_it_was_written_and_nothing_else_is() {
        for frame in frames() {
            let bytes = frame.to_bytes();
            assert_eq!(Frame::read(&bytes).unwrap(), frame);
            for length in 0..bytes.len() {
                let found = Frame::read(&bytes.slice(..length));
                let is_shorter = matches!(&found, Ok(Frame::Quorum(_)));
                assert!(found.is_err() || is_shorter, "{frame:?} cut at {length}");
            }
            let longer = Bytes::from([&bytes[..], &[0]].concat());
            let found = Frame::read(&longer);
            assert!(
                found.is_err() || matches!(frame, Frame::Quorum(_)),
                "{frame:?}"
            );
            for bit in 0..bytes.len() * 8 {
                let mut changed = bytes.to_vec();
                changed[bit / 8] ^= 1 << (bit % 8);
                // It may be another message; it is no panic.
                let _ = Frame::read(&changed.into());
            }
        }
        for bytes in [&[][..], &[1], &[2, 1], &[1, 0], &[1, 9], &[1, 200]] {
            assert!(
                Frame::read(&Bytes::copy_from_slice(bytes)).is_err(),
                "{bytes:?}"
            );
        }
    }
}
