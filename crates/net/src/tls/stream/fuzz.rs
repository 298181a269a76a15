//! Handshakes that somebody in between disturbs: whatever comes, both sides end or go on, and take no byte that the other
//! did not send. `THALWEG_FUZZ_SECONDS=600` goes on for so long.

use super::{Expected, TlsBytes};
use crate::byte_stream::ByteStream;
use crate::chance::{Chance, inputs};
use crate::socket::SocketBytes;
use crate::tls::session::Session;
use crate::tls::{Authorities, Identities, Identity, Trust};
use mio::net::UnixStream;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::sync::Arc;

/// What each side has to say once it may.
const WORDS_BYTES: usize = 20_000;
/// Without a word of TLS for so many turns, nothing more comes.
const IDLE_TURNS: usize = 3;
/// The most turns that a conversation may take: pieces are of a byte at least.
const TURNS_MAX: usize = 100_000;
/// Where disturbances lie: a handshake has 2 to 3 KB in each direction.
const HANDSHAKE_BYTES: usize = 3000;
/// Where headers of records and messages, versions and lengths begin.
const HEADERS_BYTES: usize = 90;

/// One side of a conversation.
struct Side {
    stream: Box<dyn ByteStream>,
    is_up: bool,
    is_over: bool,
    sent: usize,
    received: Vec<u8>,
}

impl Side {
    fn new(stream: impl ByteStream + 'static) -> Self {
        Self {
            stream: Box::new(stream),
            is_up: false,
            is_over: false,
            sent: 0,
            received: Vec::new(),
        }
    }

    /// Does what it can, and says whether that was anything.
    fn turn(&mut self, words: &[u8]) -> bool {
        if self.is_over {
            return false;
        }
        if !self.is_up {
            match self.stream.is_connected() {
                Ok(is_up) => self.is_up = is_up,
                Err(_) => self.is_over = true,
            }
            return self.is_up || self.is_over;
        }
        let mut moved = false;
        if let Ok(bytes) = self
            .stream
            .write_vectored(&[IoSlice::new(&words[self.sent..])])
        {
            self.sent += bytes;
            moved |= bytes > 0;
        }
        let mut space = [0; 5000];
        match self
            .stream
            .read_vectored(&mut [IoSliceMut::new(&mut space)])
        {
            Ok(0) => self.is_over = true,
            Ok(bytes) => {
                self.received.extend_from_slice(&space[..bytes]);
                moved = true;
            }
            Err(error) => self.is_over = error.kind() != std::io::ErrorKind::WouldBlock,
        }
        moved | self.is_over
    }
}

/// What is done to the bytes of one direction.
#[derive(Debug, Clone, Copy)]
enum Disturb {
    Change(u8),
    Flip(u8),
    Drop(usize),
    Insert(usize),
    Again(usize),
    Cut,
}

/// One direction of the way, with somebody on it.
struct Between {
    from: UnixStream,
    /// The other end of the way, to which bytes go.
    to: UnixStream,
    held: Vec<u8>,
    /// How many bytes have passed that came.
    passed: usize,
    /// Where something happens, the first first.
    disturbances: Vec<(usize, Disturb)>,
    piece: usize,
    is_cut: bool,
}

impl Between {
    fn turn(&mut self, chance: &mut Chance) -> bool {
        let mut space = [0; 4096];
        let read = self.from.read(&mut space);
        if let Ok(bytes) = read {
            for byte in &space[..bytes] {
                self.pass(*byte, chance);
            }
        }
        // Small ones are for the handshake.
        let piece = match self.passed {
            0..HANDSHAKE_BYTES => self.held.len().min(self.piece),
            _ => self.held.len(),
        };
        let written = match piece {
            0 => 0,
            _ => self.to.write(&self.held[..piece]).unwrap_or(0),
        };
        self.held.drain(..written);
        matches!(read, Ok(1..)) || written > 0
    }

    fn pass(&mut self, byte: u8, chance: &mut Chance) {
        let at = self.passed;
        self.passed += 1;
        if self.is_cut {
            return;
        }
        let mut byte = Some(byte);
        while let Some((_, disturb)) = self.disturbances.pop_if(|(place, _)| *place <= at) {
            match disturb {
                Disturb::Change(other) => byte = byte.map(|_| other),
                Disturb::Flip(bit) => byte = byte.map(|byte| byte ^ 1 << bit),
                Disturb::Drop(count) => {
                    byte = None;
                    // Those behind it go as well.
                    let next = (1..count).map(|more| (at + more, Disturb::Drop(1)));
                    self.disturbances.extend(next.rev());
                }
                Disturb::Insert(count) => self.held.extend((0..count).map(|_| chance.byte())),
                Disturb::Again(count) => {
                    let from = self.held.len().saturating_sub(count);
                    let again = self.held[from..].to_vec();
                    self.held.extend(again);
                }
                Disturb::Cut => {
                    self.is_cut = true;
                    return;
                }
            }
        }
        self.held.extend(byte);
    }
}

fn disturbances(chance: &mut Chance) -> Vec<(usize, Disturb)> {
    let mut all: Vec<_> = (0..chance.below(4))
        .map(|_| {
            let place = match chance.below(3) {
                0 => chance.below(HEADERS_BYTES),
                1 => chance.below(HANDSHAKE_BYTES),
                _ => chance.below(HANDSHAKE_BYTES + WORDS_BYTES),
            };
            let disturb = match chance.below(12) {
                0..3 => Disturb::Change([0, 1, 0x7f, 0x80, 0xff, chance.byte()][chance.below(6)]),
                3..6 => Disturb::Flip(chance.below(8) as u8),
                6..8 => Disturb::Drop(1 + chance.below(40)),
                8..10 => Disturb::Insert(1 + chance.below(40)),
                10 => Disturb::Again(1 + chance.below(600)),
                _ => Disturb::Cut,
            };
            (place, disturb)
        })
        .collect();
    // They are taken from the end.
    all.sort_by_key(|(place, _)| std::cmp::Reverse(*place));
    all
}

/// What both sides are made of.
#[derive(Clone)]
struct Made {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    trust: Trust,
}

impl Made {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let identity =
            Identity::from_pem(certificate.pem().as_bytes(), key.serialize_pem().as_bytes())
                .unwrap();
        let trust = Trust::Certificates(identity.fingerprints());
        // Each side shows it to the other.
        let authorities = Authorities::from_pem(certificate.pem().as_bytes()).unwrap();
        Self {
            client: trust.config(Some(&identity)).unwrap(),
            server: Identities::new(identity.clone())
                .config(Some(&authorities))
                .unwrap(),
            trust,
        }
    }

    fn sides(&self, client: UnixStream, server: UnixStream) -> [Side; 2] {
        let name = ServerName::try_from("localhost").unwrap();
        let session = Session::client(self.client.clone(), name).unwrap();
        let expected = Expected {
            trust: self.trust.clone(),
            name: "localhost".to_owned(),
        };
        let client = TlsBytes::new(client, session, Some(expected));
        let session = Session::server(self.server.clone()).unwrap();
        [client, TlsBytes::new(server, session, None)].map(Side::new)
    }
}

/// Plays one conversation, and says what came of it: whether somebody disturbed it, and what both sides have of each other.
///
/// # Errors
/// What must not be, in words.
fn play(
    chance: &mut Chance,
    sides: impl FnOnce(UnixStream, UnixStream) -> [Side; 2],
) -> Result<[usize; 2], String> {
    let words: [Vec<u8>; 2] = [3, 5].map(|step| {
        let bytes = (0..WORDS_BYTES).map(|at| ((at * step) >> 2) as u8);
        bytes.collect()
    });
    let (client, near) = UnixStream::pair().unwrap();
    let (server, far) = UnixStream::pair().unwrap();
    let again = |end: &UnixStream| {
        let end = std::os::fd::AsFd::as_fd(end).try_clone_to_owned().unwrap();
        UnixStream::from_std(end.into())
    };
    let mut ways = [(again(&near), again(&far)), (far, near)].map(|(from, to)| Between {
        from,
        to,
        held: Vec::new(),
        passed: 0,
        disturbances: disturbances(chance),
        piece: [1 + chance.below(200), 1 << 16][usize::from(chance.below(3) > 0)],
        is_cut: false,
    });
    let is_disturbed = ways.iter().any(|way| !way.disturbances.is_empty());
    let mut sides = sides(client, server);
    let mut idle = 0;
    let mut turns = 0;
    while idle < IDLE_TURNS {
        let mut moved = false;
        for (side, words) in sides.iter_mut().zip(&words) {
            moved |= side.turn(words);
        }
        for way in &mut ways {
            moved |= way.turn(chance);
        }
        idle = if moved { 0 } else { idle + 1 };
        turns += 1;
        if turns > TURNS_MAX {
            return Err("it does not end".to_owned());
        }
    }
    for (side, other) in [(0, 1), (1, 0)] {
        let received = &sides[side].received;
        if !words[other].starts_with(received) {
            return Err(format!("side {side} has bytes that the other did not send"));
        }
        if !is_disturbed && received.len() < WORDS_BYTES {
            return Err(format!("side {side} has {} bytes only", received.len()));
        }
    }
    Ok([0, 1].map(|side| sides[side].received.len()))
}

#[test]
fn who_disturbs_a_handshake_gets_no_byte_in() {
    let made = Made::new();
    let (mut whole, mut refused) = (0, 0);
    inputs(1..400, |chance| {
        let received = play(chance, |client, server| made.sides(client, server)).unwrap();
        whole += usize::from(received == [WORDS_BYTES; 2]);
        refused += usize::from(received == [0; 2]);
    });
    println!("{whole} whole, {refused} refused");
    assert!(whole > 0 && refused > 0, "{whole} whole, {refused} refused");
}

/// Planted: both sides take what comes, as without TLS.
#[test]
fn bytes_of_somebody_else_are_found() {
    let plain = |client, server| [client, server].map(|end| Side::new(SocketBytes(end)));
    let mut found = 0;
    inputs(1..100, |chance| {
        found += usize::from(play(chance, plain).is_err());
    });
    assert!(found > 20, "{found}");
}
