//! SP over TCP (the mapping of nanomsg and nng): a header of 8 bytes each way, then messages behind
//! their lengths.

use crate::endpoint::Side;
use crate::faults::{Fault, planted};
use crate::link::{Frame, nonsense};
use bytes::Bytes;
use std::io::{self, Read, Write};

/// The numbers of the pipeline protocol's two sides.
const PUSH: u16 = 5 * 16;
const PULL: u16 = 5 * 16 + 1;

fn number(side: Side) -> u16 {
    match side {
        Side::Push => PUSH,
        Side::Pull => PULL,
    }
}

pub(crate) fn shake_hands(stream: &mut (impl Read + Write), side: Side) -> io::Result<()> {
    let mut hello = [0, b'S', b'P', 0, 0, 0, 0, 0];
    hello[4..6].copy_from_slice(&number(side).to_be_bytes());
    stream.write_all(&hello)?;
    let mut theirs = [0; 8];
    stream.read_exact(&mut theirs)?;
    if theirs[..4] != hello[..4] || theirs[6..] != [0, 0] {
        return Err(nonsense("it does not speak SP".to_owned()));
    }
    let expected = match side {
        Side::Push => PULL,
        Side::Pull => PUSH,
    };
    let found = u16::from_be_bytes([theirs[4], theirs[5]]);
    match found == expected || planted(Fault::AnyPeer) {
        true => Ok(()),
        false => Err(nonsense(format!(
            "it is a socket of SP's protocol {found}, not of {expected}: one side pushes, the other pulls"
        ))),
    }
}

/// The header of a frame whose first byte is known.
pub(crate) fn read_frame(first: u8, stream: &mut impl Read) -> io::Result<Frame> {
    let mut length = [first, 0, 0, 0, 0, 0, 0, 0];
    stream.read_exact(&mut length[1..])?;
    Ok(Frame {
        bytes: u64::from_be_bytes(length),
        is_last: true,
        is_command: false,
    })
}

/// A message of several parts is one here, its parts one behind the other.
pub(crate) fn write(stream: &mut impl Write, message: &[Bytes]) -> io::Result<()> {
    let bytes: u64 = message.iter().map(|part| part.len() as u64).sum();
    stream.write_all(&bytes.to_be_bytes())?;
    for part in message {
        stream.write_all(part)?;
    }
    Ok(())
}
