//! The first message of a client of TLS, as far as it says which server is meant (RFC 8446, 4.1.2; RFC 6066, 3), or
//! that another client is (RFC 7301; [relay.md](../../../docs/format/relay.md)).
//!
//! Nothing is kept or changed: who reads it passes the same bytes on.

/// The most bytes that are read for it, with the headers of its records.
pub const HELLO_BYTES_MAX: usize = 32 << 10;
/// The longest message: those of clients with post-quantum keys have 2 KiB.
const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// The longest record without encryption.
const RECORD_BYTES_MAX: usize = 16 << 10;
/// The longest name of a host.
const NAME_BYTES_MAX: usize = 253;

const RECORD_HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const EXTENSION_SERVER_NAME: u16 = 0;
const EXTENSION_PROTOCOLS: u16 = 16;
const HOST_NAME: u8 = 0;

/// What the bytes are so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// The beginning of one.
    More,
    /// One.
    Hello(Hello),
    /// None, and nothing that comes will make it one.
    Refused(&'static str),
}

/// Whom a client means.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hello {
    /// The name that it asks for, in small letters, if it asks for any.
    pub name: Option<String>,
    /// Who it is to another relay, if it wants to meet one.
    pub guest: Option<Guest>,
}

/// By what two relays find each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rendezvous(pub [u8; 16]);

/// Which side of two relays that meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guest {
    /// It waits for who joins, and is the server of the TLS between them.
    Offers(Rendezvous),
    /// It has sent the first bytes of that TLS.
    Joins(Rendezvous),
}

/// Looks at what has come of a connection. Takes any bytes.
pub fn look(bytes: &[u8]) -> Look {
    match message(bytes).and_then(|message| match message {
        Some(message) => hello_in(&message).map(Look::Hello),
        None => Ok(Look::More),
    }) {
        Ok(Look::More) if bytes.len() >= HELLO_BYTES_MAX => Look::Refused("it is too long"),
        Ok(look) => look,
        Err(why) => Look::Refused(why),
    }
}

/// The body of the message, from the records that it is in, once all of it is there.
fn message(mut bytes: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    let mut message = Vec::new();
    loop {
        match bytes.first() {
            Some(&RECORD_HANDSHAKE) => {}
            Some(_) => return Err("it does not begin as TLS does"),
            None => return Ok(None),
        }
        if bytes.get(1).is_some_and(|major| *major != 3) {
            return Err("it is of no version of TLS");
        }
        let Some((header, rest)) = bytes.split_at_checked(5) else {
            return Ok(None);
        };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if !(1..=RECORD_BYTES_MAX).contains(&length) {
            return Err("it has a record of a length that none has");
        }
        let (payload, rest) = rest.split_at(length.min(rest.len()));
        message.extend_from_slice(payload);
        if let Some(body) = body(&message)? {
            return Ok(Some(body.to_vec()));
        }
        if payload.len() < length {
            return Ok(None);
        }
        bytes = rest;
    }
}

/// What is behind the header of a message, once it is whole.
fn body(message: &[u8]) -> Result<Option<&[u8]>, &'static str> {
    match message.first() {
        Some(&CLIENT_HELLO) => {}
        Some(_) => return Err("its first message is not a client's"),
        None => return Ok(None),
    }
    let Some((header, rest)) = message.split_at_checked(4) else {
        return Ok(None);
    };
    let length =
        usize::from(header[1]) << 16 | usize::from(header[2]) << 8 | usize::from(header[3]);
    if length > MESSAGE_BYTES_MAX {
        return Err("it is too long");
    }
    Ok(rest.get(..length))
}

/// Reads from the front of bytes.
struct Front<'a>(&'a [u8]);

impl<'a> Front<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("it ends too early")?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, &'static str> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Result<u16, &'static str> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// What is behind a length of one byte.
    fn short(&mut self) -> Result<&'a [u8], &'static str> {
        let length = self.u8()?;
        self.take(length.into())
    }

    /// What is behind a length of two bytes.
    fn long(&mut self) -> Result<&'a [u8], &'static str> {
        let length = self.u16()?;
        self.take(length.into())
    }
}

fn hello_in(body: &[u8]) -> Result<Hello, &'static str> {
    let mut front = Front(body);
    // The version, and what is random.
    front.take(2 + 32)?;
    let (session, suites) = (front.short()?, front.long()?);
    if session.len() > 32 || suites.is_empty() || suites.len() % 2 != 0 {
        return Err("its session or its suites are none");
    }
    if front.short()?.is_empty() {
        return Err("it names no compression, not even none");
    }
    let mut hello = Hello::default();
    if front.0.is_empty() {
        return Ok(hello);
    }
    let mut extensions = Front(front.long()?);
    if !front.0.is_empty() {
        return Err("something is behind its extensions");
    }
    while !extensions.0.is_empty() {
        let kind = extensions.u16()?;
        let content = extensions.long()?;
        match kind {
            EXTENSION_SERVER_NAME if hello.name.is_some() => {
                return Err("it names its server twice");
            }
            EXTENSION_SERVER_NAME => hello.name = Some(host_name(content)?),
            EXTENSION_PROTOCOLS => hello.guest = hello.guest.or(guest_in(content)?),
            _ => {}
        }
    }
    Ok(hello)
}

/// The guest among the protocols that a client speaks.
fn guest_in(content: &[u8]) -> Result<Option<Guest>, &'static str> {
    let mut protocols = Front(Front(content).long()?);
    let mut guest = None;
    while !protocols.0.is_empty() {
        guest = guest.or(Guest::named(protocols.short()?));
    }
    Ok(guest)
}

impl Guest {
    fn named(protocol: &[u8]) -> Option<Self> {
        let protocol = protocol.strip_prefix(b"thalweg-relay-")?;
        match protocol.strip_prefix(b"offers/") {
            Some(hex) => Rendezvous::read(hex).map(Self::Offers),
            None => Rendezvous::read(protocol.strip_prefix(b"joins/")?).map(Self::Joins),
        }
    }
}

impl Rendezvous {
    fn read(hex: &[u8]) -> Option<Self> {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let mut bytes = [0; 16];
        if hex.len() != 2 * bytes.len() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
        }
        Some(Self(bytes))
    }
}

fn host_name(content: &[u8]) -> Result<String, &'static str> {
    let mut content = Front(content);
    let mut list = Front(content.long()?);
    if !content.0.is_empty() {
        return Err("something is behind the name of its server");
    }
    let (kind, name) = (list.u8()?, list.long()?);
    if kind != HOST_NAME || !list.0.is_empty() {
        return Err("its server's name is of an unknown kind, or there are several");
    }
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._".contains(byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.iter().all(is_name) {
        return Err("its server's name is no name of a host");
    }
    Ok(name
        .iter()
        .map(|byte| char::from(byte.to_ascii_lowercase()))
        .collect())
}

/// An alert of TLS that ends a connection before it has a version.
pub fn alert(description: Alert) -> [u8; 7] {
    const ALERT: u8 = 21;
    const FATAL: u8 = 2;
    [ALERT, 3, 3, 0, 2, FATAL, description as u8]
}

/// Why a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Alert {
    /// The bytes are no TLS.
    DecodeError = 50,
    /// Who asks may not.
    AccessDenied = 49,
    /// The server that is meant does not answer.
    InternalError = 80,
    /// There is no server of that name.
    UnrecognizedName = 112,
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::ServerName;
    use std::sync::Arc;

    /// The first bytes of a real client.
    pub fn of_a_client(name: &str) -> Vec<u8> {
        that_speaks(name, &[])
    }

    fn that_speaks(name: &str, protocols: &[&str]) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let protocols = protocols.iter().map(|name| name.as_bytes().to_vec());
        config.alpn_protocols = protocols.collect();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    fn hello(name: &str) -> Look {
        Look::Hello(Hello {
            name: Some(name.to_owned()),
            guest: None,
        })
    }

    #[test]
    fn a_relay_says_whom_it_wants_to_meet() {
        let id = "00ff0123456789abcdefABCDEF102030";
        let guest = |protocols: &[&str]| match look(&that_speaks("gate.site.org", protocols)) {
            Look::Hello(hello) => hello.guest,
            other => panic!("{other:?}"),
        };
        let bytes = Rendezvous([
            0, 0xff, 1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0xab, 0xcd, 0xef, 0x10, 0x20,
            0x30,
        ]);
        let (offers, joins) = (
            format!("thalweg-relay-offers/{id}"),
            format!("thalweg-relay-joins/{id}"),
        );
        assert_eq!(guest(&[&offers]), Some(Guest::Offers(bytes)));
        assert_eq!(
            guest(&["thalweg-relay/1", &joins]),
            Some(Guest::Joins(bytes))
        );
        for other in [
            &joins[..joins.len() - 1],
            &offers.replace('f', "g"),
            "thalweg-relay/1",
        ] {
            assert_eq!(guest(&[other]), None, "{other}");
        }
    }

    #[test]
    fn a_clients_first_bytes_say_whom_it_means_however_they_come() {
        let bytes = of_a_client("Stf008-Run42.stream.site.org");
        let expected = hello("stf008-run42.stream.site.org");
        assert_eq!(look(&bytes), expected);
        for length in 0..bytes.len() {
            assert_eq!(look(&bytes[..length]), Look::More, "{length}");
        }
        // In records of seven bytes each.
        let mut pieces = Vec::new();
        for piece in bytes[5..].chunks(7) {
            pieces.extend([22, 3, 1, 0, piece.len() as u8]);
            pieces.extend(piece);
        }
        assert_eq!(look(&pieces), expected);
        // What follows is not looked at.
        let more = [bytes.as_slice(), b"anything"].concat();
        assert_eq!(look(&more), expected);
    }

    #[test]
    fn who_dials_an_address_names_nobody() {
        assert_eq!(
            look(&of_a_client("127.0.0.1")),
            Look::Hello(Hello::default())
        );
    }

    #[test]
    fn what_is_no_hello_is_refused_at_the_first_byte_that_shows_it() {
        for (bytes, why) in [
            (&b"GET / HTTP/1.1\r\n"[..], "does not begin"),
            (b"\x80", "does not begin"),
            (b"\x16\x02", "no version"),
            (b"\x16\x03\x01\x00\x00", "length that none has"),
            (b"\x16\x03\x01\x40\x01", "length that none has"),
            (b"\x16\x03\x01\x00\x04\x02", "not a client's"),
            (b"\x16\x03\x01\x00\x04\x01\xff\xff\xff", "too long"),
            (b"\x16\x03\x01\x00\x04\x01\x00\x00\x00", "ends too early"),
        ] {
            match look(bytes) {
                Look::Refused(said) => assert!(said.contains(why), "{bytes:?}: {said}"),
                other => panic!("{bytes:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_name_that_no_host_has_is_refused() {
        let bytes = of_a_client("stf008.site.org");
        let at = bytes.windows(6).position(|part| part == b"stf008").unwrap();
        for bad in [b'/', b'\0', b'\n', b' ', 0xc3] {
            let mut bytes = bytes.clone();
            bytes[at + 1] = bad;
            assert!(matches!(look(&bytes), Look::Refused(_)), "{bad}");
        }
    }

    /// Any bytes give an answer, and what is cut or changed gives no name that was not there.
    /// `GATEWAY_SEEDS=1..1000000` runs other seeds.
    #[test]
    fn any_bytes_give_an_answer() {
        let meets = "thalweg-relay-joins/00112233445566778899aabbccddeeff";
        let original = that_speaks("stf008-run42.stream.site.org", &["h2", meets]);
        crate::chance::seeds(1..3000, |chance| {
            let mut bytes = original.clone();
            match chance.below(4) {
                0 => bytes.truncate(chance.below(original.len())),
                1 => bytes = (0..chance.below(600)).map(|_| chance.byte()).collect(),
                _ => {}
            }
            for _ in 0..chance.below(6) {
                let count = bytes.len();
                if count > 0 {
                    let at = chance.below(count);
                    match chance.below(3) {
                        0 => bytes[at] = chance.byte(),
                        1 => drop(bytes.remove(at)),
                        _ => bytes.insert(at, chance.byte()),
                    }
                }
            }
            if let Look::Hello(Hello {
                name: Some(name), ..
            }) = look(&bytes)
            {
                assert!(name.len() <= NAME_BYTES_MAX);
                assert!(
                    name.bytes()
                        .all(|one| one.is_ascii_graphic() && one != b'/')
                );
            }
        });
    }
}
