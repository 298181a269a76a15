//! What is presented of who one is: a token of the server, or what another issuer has made.
//!
//! A token of a server is known by what its text begins with. Any other single word is presented as what it is: a JWT
//! of an issuer that the server may know, or a token that a command of its site does.

use bytes::Bytes;
use wire::message::{ACCESS_TOKEN, ISSUED};

/// What the text of a token of a server begins with; a `thalweg://` URL leaves it out.
pub(crate) const TOKEN_PREFIX: &str = "thalweg-token-1:";
/// The longest word that is presented.
const WORD_BYTES_MAX: usize = 16 << 10;

/// What is presented of the content of a file: its only line, without blank lines and those that begin with `#`, if
/// that is what others issue. Whatever else it is the server says what is wrong with it.
pub(crate) fn of_content(content: Bytes) -> Bytes {
    let Ok(text) = std::str::from_utf8(&content) else {
        return content;
    };
    let lines = text.lines().map(str::trim);
    let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    match (lines.next(), lines.next()) {
        (Some(line), None) if is_issued(line.as_bytes()) => content.slice_ref(line.as_bytes()),
        _ => content,
    }
}

/// How it is presented.
pub(crate) fn mechanism(text: &[u8]) -> &'static str {
    match is_issued(text) {
        true => ISSUED,
        false => ACCESS_TOKEN,
    }
}

/// Whether others have issued it: it is one word, and no token of a server.
fn is_issued(text: &[u8]) -> bool {
    let is_word =
        (1..=WORD_BYTES_MAX).contains(&text.len()) && text.iter().all(u8::is_ascii_graphic);
    is_word && !text.starts_with(TOKEN_PREFIX.as_bytes())
}

/// Whether it looks like a JWT: an object of JSON in base64, and two parts more.
pub(crate) fn is_jwt(text: &[u8]) -> bool {
    let dots = text.iter().filter(|byte| **byte == b'.').count();
    text.starts_with(b"eyJ") && dots == 2 && is_issued(text)
}

/// Whether somebody on the way to an address may hear what is sent there: so it is, unless the
/// address is encrypted, or stays on this host.
pub(crate) fn is_overheard(address: &str) -> bool {
    const HEARD_BY_NOBODY: [&str; 5] = ["tls", "unix", "inproc", "shm", "sim"];
    let scheme = address.split_once("://").map(|(scheme, _)| scheme);
    !scheme.is_some_and(|scheme| HEARD_BY_NOBODY.contains(&scheme))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_overheard_unless_it_is_known_not_to_be() {
        for address in ["tls://host:1", "unix:///run/x", "inproc://x", "shm://x"] {
            assert!(!is_overheard(address), "{address}");
        }
        for address in ["tcp://host:1", "later://host", "host:1", ""] {
            assert!(is_overheard(address), "{address}");
        }
    }

    #[test]
    fn a_word_that_is_no_token_of_a_server_was_issued_by_others() {
        for (content, presented, how) in [
            (
                "thalweg-token-1:abc\n",
                "thalweg-token-1:abc\n",
                ACCESS_TOKEN,
            ),
            ("# of today\n\n eyJh.eyJi.c \n", "eyJh.eyJi.c", ISSUED),
            ("opaque\n", "opaque", ISSUED),
            // The server says what is wrong with these.
            ("", "", ACCESS_TOKEN),
            ("one\ntwo\n", "one\ntwo\n", ACCESS_TOKEN),
            ("{\"a\": 1}", "{\"a\": 1}", ACCESS_TOKEN),
            ("\u{e4}", "\u{e4}", ACCESS_TOKEN),
        ] {
            let found = of_content(Bytes::from_static(content.as_bytes()));
            assert_eq!(found, presented.as_bytes(), "{content:?}");
            assert_eq!(mechanism(&found), how, "{content:?}");
        }
        let long = vec![b'x'; WORD_BYTES_MAX + 1];
        assert_eq!(mechanism(&long), ACCESS_TOKEN);
        assert!(is_jwt(b"eyJh.eyJi.c") && !is_jwt(b"eyJh.eyJi") && !is_jwt(b"a.b.c"));
    }
}
