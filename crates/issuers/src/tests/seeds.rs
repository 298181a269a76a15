//! Texts and files that chance has changed.

use super::command::site;
use super::*;
use crate::jwt::Jwt;

/// Chance by a seed: splitmix64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end.max(1) as u64) as usize
    }
}

/// The seeds of a test: those of `ISSUERS_SEEDS`, as in `81000..81050`, or the first `count`.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("ISSUERS_SEEDS") else {
        return 0..count;
    };
    let (from, to) = text.split_once("..").expect("ISSUERS_SEEDS is FROM..TO");
    from.parse().unwrap()..to.parse().unwrap()
}

/// Bytes of JSON, or of a text, with something of them changed.
fn changed(chance: &mut Chance, mut bytes: Vec<u8>, with: &[&str]) -> Vec<u8> {
    for _ in 0..=chance.below(4) {
        let at = chance.below(bytes.len());
        match chance.below(4) {
            0 if !bytes.is_empty() => bytes[at] = chance.below(256) as u8,
            1 => bytes.truncate(at.max(1)),
            2 => drop(bytes.drain(at..(at + chance.below(9)).min(bytes.len()))),
            _ => {
                let piece = with[chance.below(with.len())].bytes();
                drop(bytes.splice(at..at, piece));
            }
        }
    }
    bytes
}

/// No text but what the issuer has signed counts, and none is given to a command that may have been it.
#[test]
fn no_jwt_that_was_changed_counts_or_reaches_the_command() {
    let ground = Ground::new();
    let right = ground.signer.sign(&header(), &claims());
    let mut with_command = ground.issuers.clone();
    with_command.introspected = site("exit 1").introspected;
    let dots = [".", "=", "eyJ", "A", "-", "e30"];
    let json = [
        "\"iss\":\"x\",",
        "null",
        "{",
        "[",
        "\"",
        "\\u0000",
        "1e999",
        "\u{e4}",
    ];
    let signature = right.rsplit_once('.').unwrap().1;
    for number in seeds(3000) {
        let chance = &mut Chance(number);
        // The text itself, or what is in its parts.
        let text = match chance.below(2) {
            0 => changed(chance, right.clone().into_bytes(), &dots),
            _ => {
                let header = changed(chance, header().to_string().into_bytes(), &json);
                let claims = changed(chance, claims().to_string().into_bytes(), &json);
                format!("{}.{}.{signature}", text(header), text(claims)).into_bytes()
            }
        };
        let Ok(text) = String::from_utf8(text) else {
            continue;
        };
        let seed = || format!("ISSUERS_SEEDS={number}..{}: {text}", number + 1);
        assert!(
            text == right || ground.checked(&text).is_err(),
            "{}",
            seed()
        );
        let is_jwt = text.starts_with("eyJ") && text.matches('.').count() == 2;
        // What is no JWT without a flaw names nobody else, either.
        let names_issuer = match Jwt::read(&text) {
            Ok(Some(jwt)) => jwt.issuer() == Some(ISSUER),
            Ok(None) | Err(_) => true,
        };
        let is_asked = with_command.takes_long(&text);
        assert!(!is_asked || !is_jwt || !names_issuer, "{}", seed());
    }
}

/// Any bytes of a set of keys, of a file, or of an answer give an answer.
#[test]
fn any_bytes_are_read_to_an_end() {
    let signer = Signer::new();
    let keys = json!({"keys": [signer.public("one")]}).to_string();
    let json = [
        "null",
        "{}",
        "[",
        "\"",
        "\"kty\":\"RSA\",",
        "\"AQAB\"",
        "{\"claim\":\"x\"}",
    ];
    for number in seeds(3000) {
        let chance = &mut Chance(number);
        let of = |text: &str, chance: &mut Chance| {
            let bytes = changed(chance, text.as_bytes().to_vec(), &json);
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let _ = Keys::parse(&of(&keys, chance));
        let issuers = Issuers::parse(&of(&file().to_string(), chance));
        if let Ok(mut issuers) = issuers {
            for issuer in &mut issuers.issuers {
                issuer.keys = Keys::parse(&keys).unwrap();
            }
            let _ = issuers.check(&signer.sign(&header(), &claims()), HERE, soon());
        }
    }
}
