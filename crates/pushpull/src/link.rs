//! One connection, after its handshake: messages as parts, within a bound.

use crate::endpoint::{Protocol, Side};
use crate::faults::{Fault, planted};
use crate::stream::Stream;
use crate::{sp, zmtp};
use bytes::Bytes;
use std::io::{self, Read, Write};
use std::time::Instant;

/// A message: one part over SP, one or more over ZMTP.
pub type Message = Vec<Bytes>;

/// Parts of one message at most.
pub const PARTS_MAX: usize = 1024;

/// What is allocated before it has come.
pub(crate) const AHEAD_BYTES: usize = 64 << 10;

/// Commands that are heard at a time; others wait for the next.
const HEARD_MAX: usize = 16;

/// A header of a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub bytes: u64,
    pub is_last: bool,
    pub is_command: bool,
}

/// For what a connection is waited for, and so for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// For a handshake, which has to be done by then.
    Until(Instant),
    /// For a message: as long as it takes.
    Message,
    /// For the rest of one that has begun: not long.
    Rest,
}

/// A connection.
pub(crate) trait Wire: Read + Write {
    /// Says what is waited for from now on.
    fn waits(&mut self, wait: Wait);
}

/// What the parts of a message cost whoever holds them.
pub(crate) trait Charge {
    /// Waits for so many bytes. False if nobody is there any more.
    fn take(&mut self, bytes: u64) -> bool;
}

/// Finds who is at the other end, and that it fits.
pub(crate) fn shake_hands(
    stream: &mut impl Wire,
    protocol: Protocol,
    side: Side,
    until: Instant,
) -> io::Result<()> {
    stream.waits(Wait::Until(until));
    match protocol {
        Protocol::Zmtp => zmtp::shake_hands(stream, side),
        Protocol::Sp => sp::shake_hands(stream, side),
    }
}

/// The next message. `None` if whoever holds it is gone.
///
/// # Errors
/// [`io::ErrorKind::UnexpectedEof`] if the other side has ended between two messages.
pub(crate) fn read(
    stream: &mut impl Wire,
    protocol: Protocol,
    bytes_max: u64,
    charge: &mut impl Charge,
) -> io::Result<Option<Message>> {
    let mut first = [0];
    stream.waits(Wait::Message);
    stream.read_exact(&mut first)?;
    stream.waits(Wait::Rest);
    read_rest(stream, protocol, bytes_max, charge, first[0]).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            nonsense("it has gone in the middle of a message, which is lost".to_owned())
        }
        _ => error,
    })
}

/// A message whose first byte is known.
fn read_rest(
    stream: &mut impl Wire,
    protocol: Protocol,
    bytes_max: u64,
    charge: &mut impl Charge,
    mut first: u8,
) -> io::Result<Option<Message>> {
    let mut parts = Message::new();
    let mut bytes = 0_u64;
    loop {
        let frame = match protocol {
            Protocol::Zmtp => zmtp::read_frame(first, stream)?,
            Protocol::Sp => sp::read_frame(first, stream)?,
        };
        if frame.is_command {
            zmtp::take_command(stream, frame.bytes)?;
            if parts.is_empty() {
                stream.waits(Wait::Message);
            }
        } else {
            bytes = bytes.saturating_add(frame.bytes);
            if bytes > bytes_max && !planted(Fault::Unbounded) {
                return Err(nonsense(format!(
                    "it sends a message of {bytes} bytes or more; the limit is {bytes_max}"
                )));
            }
            if parts.len() == PARTS_MAX {
                return Err(nonsense(format!(
                    "it sends a message of more than {PARTS_MAX} parts"
                )));
            }
            // A part costs more than its bytes.
            if !charge.take(size_of::<Bytes>() as u64) {
                return Ok(None);
            }
            match read_part(stream, frame.bytes, charge)? {
                Some(part) => parts.push(part.into()),
                None => return Ok(None),
            }
            if frame.is_last {
                return Ok(Some(parts));
            }
        }
        let mut next = [0];
        stream.read_exact(&mut next)?;
        stream.waits(Wait::Rest);
        first = next[0];
    }
}

/// So many bytes. They are paid for, and memory grows, as they come: no more than came is ahead of them,
/// or 64 KiB.
pub(crate) fn read_part(
    stream: &mut impl Read,
    bytes: u64,
    charge: &mut impl Charge,
) -> io::Result<Option<Vec<u8>>> {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut part = Vec::new();
    while part.len() < bytes {
        let came = part.len();
        let ahead = match planted(Fault::BelievesLength) {
            true => 64 << 20,
            false => came.max(AHEAD_BYTES),
        };
        let more = (bytes - came).min(ahead);
        if !charge.take(more as u64) {
            return Ok(None);
        }
        part.reserve_exact(more);
        part.resize(came + more, 0);
        stream.read_exact(&mut part[came..])?;
    }
    Ok(Some(part))
}

/// Takes what a socket that pulls has said until now, without a wait.
///
/// # Errors
/// If it has gone, or says what such a socket does not.
pub(crate) fn hear(stream: &mut Stream, protocol: Protocol) -> io::Result<()> {
    for _ in 0..HEARD_MAX {
        let arrived = stream.arrived()?;
        let (bytes, answer) = match protocol {
            // It has nothing to say, and whatever it says is passed over.
            Protocol::Sp => (arrived.len(), None),
            Protocol::Zmtp => match zmtp::heard(arrived)? {
                Some(heard) => heard,
                None => return Ok(()),
            },
        };
        if bytes == 0 {
            return Ok(());
        }
        stream.consume(bytes);
        if let Some(answer) = answer {
            stream.send_at_once(&answer)?;
        }
    }
    Ok(())
}

/// Writes a message; the last of it may wait in `stream`.
pub(crate) fn write(
    stream: &mut impl Write,
    protocol: Protocol,
    message: &[Bytes],
) -> io::Result<()> {
    match protocol {
        Protocol::Zmtp => zmtp::write(stream, message),
        Protocol::Sp => sp::write(stream, message),
    }
}

pub(crate) fn nonsense(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}
