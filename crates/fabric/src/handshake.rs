//! What is said over the socket before the rings are used: who offers what,
//! and the proof that it works. The layout is `docs/format/shm.md`.

use mio::net::UnixStream;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Every message of the handshake has this length.
pub(crate) const MESSAGE_BYTES: usize = 256;
/// Every message begins with this, which no frame begins with.
pub(crate) const MAGIC: [u8; 8] = *b"THALSHM1";
const REASON_AT: usize = 64;

/// Random bytes that are read back.
pub(crate) type Nonce = [u8; 16];

/// A nonce that nobody could guess.
pub(crate) fn nonce() -> io::Result<Nonce> {
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).map_err(io::Error::other)?;
    Ok(nonce)
}

/// A message of the handshake. Which of its fields mean something depends on
/// whose turn it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Greeting {
    /// Empty if shared memory is wanted; else why it is not.
    pub reason: String,
    /// Where in the sender's memory there is a nonce to be read; 0 is nowhere.
    pub probe_address: u64,
    /// The nonce that was found in the receiver's segment.
    pub segment_echo: Nonce,
    /// The nonce that was found at the receiver's probe address.
    pub probe_echo: Nonce,
}

impl Greeting {
    pub(crate) fn refusal(reason: &str) -> Self {
        Self {
            reason: reason.to_owned(),
            ..Self::default()
        }
    }

    pub(crate) fn to_bytes(&self) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.probe_address.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.segment_echo);
        bytes[32..48].copy_from_slice(&self.probe_echo);
        // A reason is never empty, however it is cut.
        let reason = &self.reason.as_bytes()[..self.reason.len().min(MESSAGE_BYTES - REASON_AT)];
        bytes[48..56].copy_from_slice(&(reason.len() as u64).to_le_bytes());
        bytes[REASON_AT..REASON_AT + reason.len()].copy_from_slice(reason);
        bytes
    }

    /// # Errors
    /// What is wrong with it.
    pub(crate) fn from_bytes(bytes: &[u8; MESSAGE_BYTES]) -> Result<Self, String> {
        if bytes[..8] != MAGIC {
            return Err(format!("begins with {:02x?}", &bytes[..8]));
        }
        let word = |at: usize| {
            let word = bytes[at..at + 8].try_into().expect("eight bytes");
            u64::from_le_bytes(word)
        };
        let reason_bytes = usize::try_from(word(48)).unwrap_or(usize::MAX);
        let reason = bytes[REASON_AT..]
            .get(..reason_bytes)
            .ok_or_else(|| format!("has a reason of {reason_bytes} bytes"))?;
        if word(56) != 0
            || bytes[REASON_AT + reason_bytes..]
                .iter()
                .any(|byte| *byte != 0)
        {
            return Err("has bytes that are not zero where they have to be".to_owned());
        }
        let nonce = |at: usize| bytes[at..at + 16].try_into().expect("sixteen bytes");
        Ok(Self {
            // It goes to a log: nothing in it shall look like another line.
            reason: String::from_utf8_lossy(reason)
                .replace(|letter: char| letter.is_control(), " "),
            probe_address: word(8),
            segment_echo: nonce(16),
            probe_echo: nonce(32),
        })
    }
}

/// Sends bytes and descriptors, all or nothing.
pub(crate) fn send(socket: &UnixStream, bytes: &[u8], with: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !with.is_empty() {
        let fits = control.push(SendAncillaryMessage::ScmRights(with));
        assert!(fits, "at most one descriptor goes with a message");
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = rustix::net::sendmsg(socket.as_fd(), &[IoSlice::new(bytes)], &mut control, flags)?;
    if sent < bytes.len() {
        return Err(io::Error::other(format!(
            "the socket took {sent} of {} bytes",
            bytes.len()
        )));
    }
    Ok(())
}

/// Descriptors that may wait to be used; more are closed.
const DESCRIPTORS_MAX: usize = 64;

/// Receives once, what there is. Returns how many bytes; 0 is the end.
pub(crate) fn receive(
    socket: &UnixStream,
    into: &mut [u8],
    descriptors: &mut VecDeque<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let slices = &mut [IoSliceMut::new(into)];
    let received = rustix::net::recvmsg(socket.as_fd(), slices, &mut control, flags)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            descriptors.extend(came);
        }
    }
    descriptors.truncate(DESCRIPTORS_MAX);
    Ok(received.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_arrive_as_they_were_and_nonsense_does_not() {
        let greeting = Greeting {
            reason: "no\nmemory".to_owned(),
            probe_address: 0x1234_5678_9abc,
            segment_echo: [1; 16],
            probe_echo: [2; 16],
        };
        let bytes = greeting.to_bytes();
        let read = Greeting::from_bytes(&bytes).unwrap();
        assert_eq!(read.reason, "no memory");
        assert_eq!(
            Greeting {
                reason: greeting.reason.clone(),
                ..read
            },
            greeting
        );
        let long = Greeting::refusal(&"x".repeat(1000)).to_bytes();
        assert_eq!(Greeting::from_bytes(&long).unwrap().reason.len(), 192);
        for (at, byte) in [(0, 0x89), (56, 1), (255, 1), (55, 1), (48, 255)] {
            let mut bad = bytes;
            bad[at] = byte;
            assert!(Greeting::from_bytes(&bad).is_err(), "{at}");
        }
    }

    #[test]
    fn descriptors_travel_with_bytes() {
        let (a, b) = UnixStream::pair().unwrap();
        send(&a, b"hello", &[a.as_fd()]).unwrap();
        send(&a, b"again", &[]).unwrap();
        let mut into = [0; 100];
        let mut came = VecDeque::new();
        assert_eq!(receive(&b, &mut into, &mut came).unwrap(), 5);
        assert_eq!(came.len(), 1);
        assert_eq!(receive(&b, &mut into, &mut came).unwrap(), 5);
        let error = receive(&b, &mut into, &mut came).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop((a, came));
        let mut came = VecDeque::new();
        assert_eq!(receive(&b, &mut into, &mut came).unwrap(), 0);
    }
}
