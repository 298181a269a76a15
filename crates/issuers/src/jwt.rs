//! JSON Web Tokens: RFC 7519, in the compact form of RFC 7515.
//!
//! Which algorithms and which keys count is said by the server's file, never by the token. Signatures are `ring`'s.

use crate::algorithm::Algorithm;
use crate::check::Refusal;
use crate::faults::{Fault, planted};
use crate::file::Issuer;
use crate::introspection::Claims;
use crate::json;
use crate::keys::cut;
use access::UnixTime;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use std::time::Duration;

/// The longest JWT: what is longer is not looked at.
pub const JWT_BYTES_MAX: usize = 16 << 10;

/// What an object of JSON begins with in base64url: `{"`.
const JSON_BEGINS: &str = "eyJ";
/// So many parts are looked at of what may be one.
const PARTS_MAX: usize = 8;

/// A JWT as it was read: nothing of it counts before [`Jwt::verify`].
pub(crate) struct Jwt<'a> {
    header: Claims,
    claims: Claims,
    /// What is signed.
    message: &'a str,
    signature: Vec<u8>,
}

/// What is left of a JWT that counts.
pub(crate) struct Right<'a> {
    pub claims: Claims,
    pub subject: String,
    /// When its time is over, the leeway included.
    pub over: UnixTime,
    /// What was signed: another signature of it makes no other JWT.
    pub message: &'a str,
}

impl<'a> Jwt<'a> {
    /// Takes any text. `None` if it is no JWT, and has nothing of one.
    ///
    /// # Errors
    /// What is wrong with it, if it was one once, perhaps.
    pub fn read(text: &'a str) -> Result<Option<Self>, &'static str> {
        if text.len() > JWT_BYTES_MAX {
            return Ok(None);
        }
        let parts: Vec<&str> = text.split('.').take(PARTS_MAX).collect();
        let is_like = text.contains('.') && text.contains(JSON_BEGINS);
        let has_object = parts.len() > 1 && parts.iter().any(|part| object(part).is_some());
        if !is_like && !has_object {
            return Ok(None);
        }
        let [header, claims, signature] = parts[..] else {
            return Err("it has not three parts");
        };
        let signature = URL_SAFE_NO_PAD.decode(signature);
        let jwt = Self {
            header: object(header).ok_or("its header is no object of JSON in base64url")?,
            claims: object(claims).ok_or("its claims are no object of JSON in base64url")?,
            message: &text[..header.len() + 1 + claims.len()],
            signature: signature.map_err(|_| "its signature is no base64url")?,
        };
        let is_text = |value: Option<&Value>| value.is_none_or(Value::is_string);
        match is_text(jwt.claims.get("iss")) && is_text(jwt.header.get("alg")) {
            true => Ok(Some(jwt)),
            false => Err("its issuer or its algorithm is no text"),
        }
    }

    /// Who has issued it, as it says.
    pub fn issuer(&self) -> Option<&str> {
        self.claims.get("iss")?.as_str()
    }

    /// Whether it counts.
    ///
    /// # Errors
    /// The first thing that is not so.
    pub fn verify(self, issuer: &Issuer, now: UnixTime) -> Result<Right<'a>, Refusal> {
        if issuer.keys.is_unread() {
            let why = "the keys of its issuer cannot be read: the server's log says why";
            return Err(Refusal::Unknown(why.to_owned()));
        }
        self.verify_signature(issuer).map_err(Refusal::No)?;
        let no = |why: &str| Refusal::No(why.to_owned());
        if self.issuer() != Some(issuer.name.as_str()) {
            return Err(no("it is of another issuer"));
        }
        self.verify_audience(issuer).map_err(Refusal::No)?;
        let over = self.verify_times(issuer.leeway, now)?;
        let subject = self.claims.get("sub").and_then(Value::as_str);
        let subject = subject.filter(|text| !text.is_empty() && text.len() <= 255);
        let subject = subject.ok_or_else(|| no("it names no subject, of at most 255 bytes"))?;
        Ok(Right {
            subject: subject.to_owned(),
            over,
            claims: self.claims,
            message: self.message,
        })
    }

    fn verify_signature(&self, issuer: &Issuer) -> Result<(), String> {
        let text = |name: &str| self.header.get(name).and_then(Value::as_str);
        let named = text("alg").ok_or("it names no algorithm")?;
        let taken = named.parse::<Algorithm>().ok();
        let taken =
            taken.filter(|one| issuer.algorithms.contains(one) || planted(Fault::AnyAlgorithm));
        let algorithm = taken.ok_or_else(|| {
            let taken: Vec<&str> = issuer.algorithms.iter().map(|one| one.name()).collect();
            format!(
                "it is signed by {:?}, and of that issuer {} is taken",
                cut(named),
                taken.join(" or ")
            )
        })?;
        // RFC 7515, 4.1.11: whoever does not understand what is critical refuses.
        if self.header.contains_key("crit") {
            return Err("it says that something is critical that is not known here".to_owned());
        }
        let id = match self.header.get("kid") {
            None => None,
            Some(Value::String(id)) => Some(id.as_str()),
            Some(_) => return Err("its key is named by something that is no text".to_owned()),
        };
        if issuer.keys.is_empty() {
            return Err("its issuer has no keys: the server's log says why".to_owned());
        }
        let key = issuer.keys.of(id, algorithm)?;
        let message = self.message.as_bytes();
        let is_right = algorithm.verify(&key.material, message, &self.signature);
        match is_right || planted(Fault::AnySignature) {
            true => Ok(()),
            false => Err("its signature is wrong: it was damaged or forged".to_owned()),
        }
    }

    fn verify_audience(&self, issuer: &Issuer) -> Result<(), String> {
        let is_for_us = is_for(self.claims.get("aud"), &issuer.audience);
        match is_for_us || planted(Fault::AnyAudience) {
            true => Ok(()),
            false => Err(format!(
                "it is not for {}, by which this server is known to its issuer",
                issuer.audience.join(" or ")
            )),
        }
    }

    /// RFC 7519, 4.1.4 and 4.1.5. What is there and no time makes the whole thing none.
    fn verify_times(&self, leeway: Duration, now: UnixTime) -> Result<UnixTime, Refusal> {
        let leeway = leeway.as_nanos() as u64;
        let expires = self.time("exp").map_err(Refusal::No)?;
        let expires = expires.ok_or_else(|| Refusal::No("it has no end (exp)".to_owned()))?;
        let over = UnixTime(expires.0.saturating_add(leeway));
        if now >= over && !planted(Fault::NeverOver) {
            return Err(Refusal::Expired(format!("it expired at {expires}")));
        }
        for name in ["nbf", "iat"] {
            let begins = self.time(name).map_err(Refusal::No)?;
            if let Some(begins) = begins.filter(|begins| now.0.saturating_add(leeway) < begins.0) {
                return Err(Refusal::No(format!("it is good from {begins} on ({name})")));
            }
        }
        Ok(over)
    }

    fn time(&self, name: &str) -> Result<Option<UnixTime>, String> {
        let Some(value) = self.claims.get(name) else {
            return Ok(None);
        };
        let time = time(value);
        time.map(Some)
            .ok_or_else(|| format!("its {name} is no time in seconds"))
    }
}

/// Whether an `aud` is, or has, one of these.
pub(crate) fn is_for(audience: Option<&Value>, own: &[String]) -> bool {
    let is_own = |value: &Value| {
        let text = value.as_str();
        text.is_some_and(|text| own.iter().any(|own| own == text))
    };
    match audience {
        Some(Value::Array(several)) => several.iter().any(is_own),
        Some(one) => is_own(one),
        None => false,
    }
}

/// A NumericDate: seconds since 1970, which may have a fraction.
pub(crate) fn time(value: &Value) -> Option<UnixTime> {
    const NS: u64 = 1_000_000_000;
    let seconds = match value.as_u64() {
        Some(seconds) => seconds,
        None => {
            let seconds = value.as_f64()?;
            (0.0..1e15).contains(&seconds).then_some(seconds as u64)?
        }
    };
    Some(UnixTime(seconds.saturating_mul(NS)))
}

fn object(part: &str) -> Option<Claims> {
    let bytes = URL_SAFE_NO_PAD.decode(part).ok()?;
    match json::parse(&bytes).ok()? {
        Value::Object(object) => Some(object),
        _ => None,
    }
}
