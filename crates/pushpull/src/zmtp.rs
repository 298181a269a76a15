//! ZMTP 3.1 (rfc.zeromq.org/spec/37) with the mechanism NULL: a greeting of 64 bytes and a command READY each
//! way, then frames.

use crate::endpoint::Side;
use crate::faults::{Fault, planted};
use crate::link::{Frame, nonsense};
use bytes::Bytes;
use std::io::{self, Read, Write};

const GREETING_BYTES: usize = 64;
const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;
/// Longer ones are no command of NULL's: READY has the identity, up to 255 bytes, and a few names.
pub(crate) const COMMAND_BYTES_MAX: u64 = 4096;
/// Of what a peer says, in an error.
const SHOWN_BYTES_MAX: usize = 64;

fn name(side: Side) -> &'static str {
    match side {
        Side::Push => "PUSH",
        Side::Pull => "PULL",
    }
}

pub(crate) fn shake_hands(stream: &mut (impl Read + Write), side: Side) -> io::Result<()> {
    let mut greeting = [0; GREETING_BYTES];
    // The signature, which older versions take for a frame of their own.
    greeting[0] = 0xff;
    greeting[8] = 1;
    greeting[9] = 0x7f;
    greeting[10] = 3;
    greeting[11] = 1;
    greeting[12..16].copy_from_slice(b"NULL");
    stream.write_all(&greeting)?;
    let mut theirs = [0; GREETING_BYTES];
    // The signature. libzmq goes here without a word when it hears of another mechanism than its own.
    stream.read_exact(&mut theirs[..10])?;
    if theirs[0] != 0xff || theirs[9] & 1 != 1 {
        return Err(nonsense("it does not speak ZMTP".to_owned()));
    }
    // An older peer says no more than its version before it has an answer of that.
    stream.read_exact(&mut theirs[10..11]).map_err(gone)?;
    if theirs[10] < 3 {
        let version = theirs[10];
        return Err(nonsense(format!(
            "it speaks ZMTP {version}: ZeroMQ 4 and later are spoken to"
        )));
    }
    stream.read_exact(&mut theirs[11..]).map_err(gone)?;
    let mechanism = &theirs[12..32];
    if &mechanism[..5] != b"NULL\0" {
        let name = mechanism.split(|byte| *byte == 0).next();
        return Err(nonsense(format!(
            "it asks for the mechanism {}; NULL alone is spoken here",
            shown(name.unwrap_or_default())
        )));
    }
    let mut ready = command("READY");
    let ours = name(side);
    ready.push(11);
    ready.extend_from_slice(b"Socket-Type");
    ready.extend_from_slice(&(ours.len() as u32).to_be_bytes());
    ready.extend_from_slice(ours.as_bytes());
    stream.write_all(&framed(&ready))?;
    let mut first = [0];
    stream.read_exact(&mut first)?;
    let frame = read_frame(first[0], stream)?;
    if !frame.is_command {
        return Err(nonsense("its first frame is no READY".to_owned()));
    }
    let theirs = read_command(stream, frame.bytes)?;
    check_ready(&theirs, side)
}

/// What a peer means that goes when it has heard our greeting.
fn gone(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => nonsense(
            "it has gone at the mechanism NULL: it may want another one, as CURVE or PLAIN"
                .to_owned(),
        ),
        _ => error,
    }
}

/// A command's name, before what belongs to it.
fn command(name: &str) -> Vec<u8> {
    let mut bytes = vec![name.len() as u8];
    bytes.extend_from_slice(name.as_bytes());
    bytes
}

/// A command of ours as a frame.
fn framed(body: &[u8]) -> Vec<u8> {
    let length = u8::try_from(body.len()).expect("our commands are short");
    [&[COMMAND, length][..], body].concat()
}

fn read_command(stream: &mut impl Read, bytes: u64) -> io::Result<Vec<u8>> {
    if bytes > COMMAND_BYTES_MAX {
        let text = format!("it sends a command of {bytes} bytes; {COMMAND_BYTES_MAX} are the most");
        return Err(nonsense(text));
    }
    let mut body = vec![0; bytes as usize];
    stream.read_exact(&mut body)?;
    Ok(body)
}

/// The first `count` bytes, and what follows.
fn split(bytes: &[u8], count: usize) -> io::Result<(&[u8], &[u8])> {
    bytes
        .split_at_checked(count)
        .ok_or_else(|| nonsense("a command of its ends in the middle".to_owned()))
}

fn named(body: &[u8]) -> io::Result<(&[u8], &[u8])> {
    let (length, rest) = split(body, 1)?;
    split(rest, usize::from(length[0]))
}

fn check_ready(body: &[u8], side: Side) -> io::Result<()> {
    let (name_of, mut rest) = named(body)?;
    if name_of == b"ERROR" {
        let (reason, _) = named(rest)?;
        return Err(nonsense(format!("it refuses: {}", shown(reason))));
    }
    if name_of != b"READY" {
        return Err(nonsense("its first command is no READY".to_owned()));
    }
    let mut found = None;
    while !rest.is_empty() {
        let (property, more) = named(rest)?;
        let (length, more) = split(more, 4)?;
        let length = u32::from_be_bytes(length.try_into().expect("four bytes"));
        let (value, more) = split(more, length as usize)?;
        if property.eq_ignore_ascii_case(b"Socket-Type") {
            found = Some(value);
        }
        rest = more;
    }
    let expected = match side {
        Side::Push => Side::Pull,
        Side::Pull => Side::Push,
    };
    if found == Some(name(expected).as_bytes()) || planted(Fault::AnyPeer) {
        return Ok(());
    }
    let found = shown(found.unwrap_or_default());
    let expected = name(expected);
    Err(nonsense(format!(
        "it is a socket of the type {found}: this one is for {expected}"
    )))
}

/// What a peer says, as a line may show it: short, and nothing in it that a terminal would obey.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES_MAX)]);
    format!("{text:?}")
}

/// The header of a frame whose first byte is known.
pub(crate) fn read_frame(flags: u8, stream: &mut impl Read) -> io::Result<Frame> {
    if flags & !(MORE | LONG | COMMAND) != 0 {
        let text =
            format!("it sends a frame with the flags {flags:#04x}, which are none of ZMTP's");
        return Err(nonsense(text));
    }
    let bytes = match flags & LONG {
        0 => {
            let mut length = [0];
            stream.read_exact(&mut length)?;
            u64::from(length[0])
        }
        _ => {
            let mut length = [0; 8];
            stream.read_exact(&mut length)?;
            u64::from_be_bytes(length)
        }
    };
    Ok(Frame {
        bytes,
        is_last: flags & MORE == 0,
        is_command: flags & COMMAND != 0,
    })
}

/// A command between messages: a PING is answered, others say nothing to a socket like this.
pub(crate) fn take_command(stream: &mut (impl Read + Write), bytes: u64) -> io::Result<()> {
    let body = read_command(stream, bytes)?;
    if let Some(pong) = pong(&body)? {
        stream.write_all(&pong)?;
    }
    Ok(())
}

/// The frame that answers a command, if it is a PING.
fn pong(body: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let (name, rest) = named(body)?;
    if name != b"PING" {
        return Ok(None);
    }
    let (_, context) = split(rest, 2)?;
    let mut pong = command("PONG");
    pong.extend_from_slice(&context[..context.len().min(16)]);
    Ok(Some(framed(&pong)))
}

/// What a socket that pulls has said, which is commands alone: how many bytes the first one has, and what
/// answers it. `None` if it is not whole yet.
pub(crate) fn heard(mut said: &[u8]) -> io::Result<Option<(usize, Option<Vec<u8>>)>> {
    let all = said.len();
    let Some((flags, rest)) = said.split_first() else {
        return Ok(None);
    };
    said = rest;
    let frame = match read_frame(*flags, &mut said) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        frame => frame?,
    };
    if !frame.is_command {
        return Err(nonsense(
            "it sends messages, which a PULL socket does not".to_owned(),
        ));
    }
    match read_command(&mut said, frame.bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        body => Ok(Some((all - said.len(), pong(&body?)?))),
    }
}

pub(crate) fn write(stream: &mut impl Write, message: &[Bytes]) -> io::Result<()> {
    let last = message.len().saturating_sub(1);
    for (at, part) in message.iter().enumerate() {
        let more = if at < last { MORE } else { 0 };
        match u8::try_from(part.len()) {
            Ok(length) => stream.write_all(&[more, length])?,
            Err(_) => {
                let mut header = [more | LONG; 9];
                header[1..].copy_from_slice(&(part.len() as u64).to_be_bytes());
                stream.write_all(&header)?;
            }
        }
        stream.write_all(part)?;
    }
    Ok(())
}
