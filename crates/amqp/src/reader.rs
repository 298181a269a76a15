//! Frames out of a stream of bytes. Bodies come out in pieces as they come in; all else is whole.

use crate::decode::DecodeError;
use crate::frame::{FrameKind, HEAD_BYTES, Head, check_end};
use bytes::{Bytes, BytesMut};
use std::fmt;

/// What the next bytes of a stream are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    /// The payload of a method or of a content header.
    Payload(Head, Bytes),
    /// A body frame begins.
    BodyStart(Head),
    /// The next bytes of the body frame that began last.
    Body { channel: u16, bytes: &'a [u8] },
    /// The body frame has ended in order.
    BodyEnd { channel: u16 },
    /// A heartbeat.
    Heartbeat,
}

impl Part<'_> {
    /// The channel that it comes on.
    pub(crate) const fn channel(&self) -> u16 {
        match self {
            Self::Payload(head, _) | Self::BodyStart(head) => head.channel,
            Self::Body { channel, .. } | Self::BodyEnd { channel } => *channel,
            Self::Heartbeat => 0,
        }
    }
}

/// ```text
///   Head ──whole──► Payload ──whole──► Head       (method, header, heartbeat)
///     └──a body's──► Body ──all──► End ──0xCE──► Head
/// ```
enum State {
    /// So many bytes of the head have come.
    Head([u8; HEAD_BYTES], usize),
    /// The payload and the end octet come.
    Payload(Head, BytesMut),
    /// So many bytes of the body frame are to come.
    Body(Head, u32),
    /// The end octet of the body frame is to come.
    End(Head),
}

/// The reader. It holds a head, or the payload of one frame: at most `frame_max` bytes, and never more than have come.
pub(crate) struct FrameReader {
    state: State,
    frame_max: u32,
}

/// Without the payload: it may be that of a login.
impl fmt::Debug for FrameReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameReader")
            .field("frame_max", &self.frame_max)
            .finish_non_exhaustive()
    }
}

const START: State = State::Head([0; HEAD_BYTES], 0);

impl FrameReader {
    pub(crate) fn new(frame_max: u32) -> Self {
        Self {
            state: START,
            frame_max,
        }
    }

    /// Sets the limit of the frames whose head has not come.
    pub(crate) fn set_frame_max(&mut self, frame_max: u32) {
        self.frame_max = frame_max;
    }

    /// Bytes that it has room for.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        match &self.state {
            State::Payload(_, have) => have.capacity(),
            _ => 0,
        }
    }

    /// The next part; nothing if it takes more bytes. `input` is moved past what was read.
    pub(crate) fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<Part<'a>>, DecodeError> {
        loop {
            match &mut self.state {
                State::Head(head, have) => {
                    let taken = take(input, HEAD_BYTES - *have);
                    head[*have..*have + taken.len()].copy_from_slice(taken);
                    *have += taken.len();
                    if *have < HEAD_BYTES {
                        return Ok(None);
                    }
                    let head = Head::decode(*head, self.frame_max)?;
                    if head.kind == FrameKind::Body {
                        self.state = State::Body(head, head.bytes);
                        return Ok(Some(Part::BodyStart(head)));
                    }
                    self.state = State::Payload(head, BytesMut::new());
                }
                State::Payload(head, have) => {
                    let needed = head.bytes as usize + 1;
                    // Grows with what comes: the head's size alone reserves nothing.
                    have.extend_from_slice(take(input, needed - have.len()));
                    if have.len() < needed {
                        return Ok(None);
                    }
                    check_end(have[needed - 1])?;
                    have.truncate(needed - 1);
                    let part = match head.kind {
                        FrameKind::Heartbeat => Part::Heartbeat,
                        _ => Part::Payload(*head, std::mem::take(have).freeze()),
                    };
                    self.state = START;
                    return Ok(Some(part));
                }
                State::Body(head, 0) => self.state = State::End(*head),
                State::Body(head, left) => {
                    let bytes = take(input, *left as usize);
                    if bytes.is_empty() {
                        return Ok(None);
                    }
                    *left -= bytes.len() as u32;
                    let channel = head.channel;
                    return Ok(Some(Part::Body { channel, bytes }));
                }
                State::End(head) => {
                    let [end] = *take(input, 1) else {
                        return Ok(None);
                    };
                    check_end(end)?;
                    let channel = head.channel;
                    self.state = START;
                    return Ok(Some(Part::BodyEnd { channel }));
                }
            }
        }
    }
}

/// The next bytes, `count` at most.
fn take<'a>(input: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(count.min(input.len()));
    *input = rest;
    taken
}
