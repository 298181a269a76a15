//! The keys of an issuer, a JSON Web Key Set (RFC 7517).

use crate::algorithm::Algorithm;
use crate::faults::{Fault, planted};
use crate::json;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

/// The longest file of keys.
pub const KEYS_BYTES_MAX: u64 = 1 << 20;
/// The most keys of a set that are kept.
const KEYS_MAX: usize = 64;

/// What a key is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Material {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// A point, uncompressed.
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// One key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    id: Option<String>,
    /// What it is for alone, if it says so.
    algorithm: Option<Algorithm>,
    pub material: Material,
}

/// The keys of an issuer that verify signatures. Others of its set are not there: secrets that are shared, keys for
/// encryption, kinds that are not known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Keys {
    keys: Vec<Key>,
    /// Whether there may be others, which could not be read.
    is_unread: bool,
}

impl Keys {
    /// None, for they could not be read.
    pub fn unread() -> Self {
        Self {
            keys: Vec::new(),
            is_unread: true,
        }
    }

    /// Whether they could not be read.
    pub fn is_unread(&self) -> bool {
        self.is_unread
    }

    /// Those of the text of a file.
    ///
    /// A set without a public key that verifies signatures is one without keys.
    ///
    /// # Errors
    /// If it is no set of keys.
    pub fn parse(text: &str) -> Result<Self, String> {
        let document = json::parse(text.as_bytes())?;
        let keys = document.get("keys").and_then(Value::as_array);
        let keys = keys.ok_or("it is no set of keys: it has no list \"keys\"")?;
        if keys.len() > KEYS_MAX {
            return Err(format!("it has more than {KEYS_MAX} keys"));
        }
        let found = keys.iter().filter_map(|key| of_value(key.as_object()?));
        Ok(Self {
            keys: found.collect(),
            is_unread: false,
        })
    }

    /// The key that has signed, by the id that a JWT names, or the only one that can have.
    ///
    /// # Errors
    /// If there is none, or nothing says which of several it is.
    pub(crate) fn of(&self, id: Option<&str>, algorithm: Algorithm) -> Result<&Key, String> {
        let fits = |key: &&Key| {
            key.algorithm.is_none_or(|own| own == algorithm) && algorithm.takes(&key.material)
        };
        let mut fitting = self.keys.iter().filter(fits);
        if let Some(id) = id.filter(|_| !planted(Fault::AnyKey)) {
            let found = fitting.find(|key| key.id.as_deref() == Some(id));
            return found.ok_or_else(|| {
                format!(
                    "its key {:?} is none of the issuer's for {algorithm}",
                    cut(id)
                )
            });
        }
        match (fitting.next(), fitting.next()) {
            (Some(key), None) => Ok(key),
            (None, _) => Err(format!("the issuer has no key for {algorithm}")),
            (Some(_), Some(_)) => Err(format!(
                "it does not name its key, and the issuer has several for {algorithm}"
            )),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether all keys of another set are in this one.
    pub fn has_all_of(&self, other: &Self) -> bool {
        other.keys.iter().all(|key| self.keys.contains(key))
    }
}

/// As much of a text of a stranger's as an error has.
pub(crate) fn cut(text: &str) -> String {
    text.chars().take(64).collect()
}

fn of_value(key: &Map<String, Value>) -> Option<Key> {
    let text = |name: &str| key.get(name).and_then(Value::as_str);
    if text("use").is_some_and(|usage| usage != "sig") {
        return None;
    }
    let algorithm = match text("alg") {
        Some(name) => Some(name.parse().ok()?),
        None => None,
    };
    let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?).ok();
    let material = match (text("kty")?, text("crv")) {
        ("RSA", _) => Material::Rsa {
            n: without_zeros(bytes("n")?),
            e: without_zeros(bytes("e")?),
        },
        ("EC", Some("P-256")) => Material::P256(point(bytes("x")?, bytes("y")?, 32)?),
        ("EC", Some("P-384")) => Material::P384(point(bytes("x")?, bytes("y")?, 48)?),
        ("OKP", Some("Ed25519")) => Material::Ed25519(bytes("x").filter(|x| x.len() == 32)?),
        _ => return None,
    };
    Some(Key {
        id: text("kid").map(str::to_owned),
        algorithm,
        material,
    })
}

/// A number without leading zeros, which some issuers write.
fn without_zeros(mut number: Vec<u8>) -> Vec<u8> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.drain(..zeros);
    number
}

/// A point in the form that SEC 1 calls uncompressed.
fn point(x: Vec<u8>, y: Vec<u8>, bytes: usize) -> Option<Vec<u8>> {
    let is_whole = x.len() == bytes && y.len() == bytes;
    is_whole.then(|| [vec![4], x, y].concat())
}
