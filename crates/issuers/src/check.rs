//! The check itself.

use crate::faults::{Fault, planted};
use crate::file::{INTROSPECTED_LIFE_MAX, Introspected, Issuers, LIFE_MAX};
use crate::introspection::{Claims, Failure};
use crate::jwt::{JWT_BYTES_MAX, Jwt, is_for, time};
use crate::mapping::Maps;
use crate::munged::{Munged, is_munged};
use access::{Issued, Limits, UnixTime, Verified};
use std::fmt;
use std::time::{Duration, Instant};

/// What a token of a server begins with: of one that was damaged enough is left to be mended.
const OWN: &str = "thalweg-token";
/// What a subject begins with that is a name of a user, and no `sub`.
const OF_USERNAME: &str = "username ";

/// Why somebody is not let in. Never has a part of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It does not count.
    No(String),
    /// It did once.
    Expired(String),
    /// Whether it counts could not be found out: it may be asked again.
    Unknown(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::No(why) | Self::Expired(why) | Self::Unknown(why) => f.write_str(why),
        }
    }
}

/// Who asks, and when.
#[derive(Debug, Clone, Copy)]
pub struct Asker<'a> {
    /// The namespace that it names; empty if it leaves that open.
    pub namespace: &'a str,
    /// The time of day.
    pub now: UnixTime,
    /// The SHA-256 of certificates that the server shows; none where it is without TLS.
    pub certificates: &'a [[u8; 32]],
}

impl Issuers {
    /// Who presents a text: somebody of an issuer that is named here, or somebody whom the site's command knows. A
    /// JWT of an issuer that is named here is never given to the command. Blocks until `deadline` at most.
    ///
    /// # Errors
    /// Why it does not count.
    pub fn check(
        &self,
        text: &str,
        asker: Asker<'_>,
        deadline: Instant,
    ) -> Result<Verified, Refusal> {
        if let Some(cluster) = self.munged_of(text) {
            return munged(cluster, text, asker, deadline);
        }
        match self.of_jwt(text)? {
            Some(checked) => self.check_jwt(checked, asker),
            None => self.introspect(text, asker, deadline),
        }
    }

    /// The cluster that has made a text, if its users are taken here.
    fn munged_of(&self, text: &str) -> Option<&Munged> {
        self.munged.as_ref().filter(|_| is_munged(text))
    }

    /// Whether a text is for the command, or for MUNGE's daemon: that takes its time.
    pub fn takes_long(&self, text: &str) -> bool {
        if self.munged_of(text).is_some() {
            return true;
        }
        let is_asked = |site: &Introspected| site.asked.answered(text).is_none();
        self.introspected.as_ref().is_some_and(is_asked) && matches!(self.of_jwt(text), Ok(None))
    }

    /// The JWT of an issuer that is named here that a text is.
    ///
    /// # Errors
    /// If it is nothing that is taken, whoever issued it: what was a JWT once is for no command.
    fn of_jwt<'a>(&self, text: &'a str) -> Result<Option<Jwt<'a>>, Refusal> {
        if text.len() > JWT_BYTES_MAX {
            let bytes = text.len();
            return Err(Refusal::No(format!(
                "the credential has {bytes} bytes, and at most {JWT_BYTES_MAX} are looked at"
            )));
        }
        let is_printed = text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_printed || text.is_empty() {
            return Err(Refusal::No(
                "the credential is not one word of ASCII".to_owned(),
            ));
        }
        if text.contains(OWN) {
            return Err(Refusal::No(
                "the credential was a token of a server, and is damaged".to_owned(),
            ));
        }
        let jwt = match Jwt::read(text) {
            // It may have been of an issuer that is named here.
            Err(_) if planted(Fault::DamagedAsked) => None,
            Err(what) => {
                let why = format!("the credential was a JWT, and is damaged: {what}");
                return Err(Refusal::No(why));
            }
            Ok(jwt) => jwt,
        };
        Ok(jwt.filter(|jwt| self.issuer_of(jwt).is_some()))
    }

    fn issuer_of(&self, jwt: &Jwt<'_>) -> Option<&crate::file::Issuer> {
        let name = jwt.issuer()?;
        self.issuers.iter().find(|issuer| issuer.name == name)
    }

    fn check_jwt(&self, jwt: Jwt<'_>, asker: Asker<'_>) -> Result<Verified, Refusal> {
        let issuer = self.issuer_of(&jwt);
        let issuer = issuer.expect("the caller has looked");
        let of = |why: String| format!("the JWT of issuer {:?}: {why}", issuer.name);
        let right = jwt
            .verify(issuer, asker.now)
            .map_err(|refusal| match refusal {
                Refusal::No(why) => Refusal::No(of(why)),
                Refusal::Expired(why) => {
                    Refusal::Expired(format!("{}: put a newer one in its place", of(why)))
                }
                Refusal::Unknown(why) => Refusal::Unknown(of(why)),
            })?;
        let issued = Issued {
            issuer: issuer.name.clone(),
            subject: right.subject,
        };
        let over = right.over.min(after(asker.now, LIFE_MAX));
        let maps = (&issuer.maps, &right.claims);
        exchange(issued, maps, over, asker, right.message.as_bytes())
    }

    fn introspect(
        &self,
        text: &str,
        asker: Asker<'_>,
        deadline: Instant,
    ) -> Result<Verified, Refusal> {
        let Some(site) = &self.introspected else {
            return Err(Refusal::No(self.unknown(text)));
        };
        let name = &site.name;
        let claims = match site.asked.ask(text, deadline) {
            Ok(Some(claims)) => claims,
            Ok(None) => {
                let why = format!("{name:?} says that the credential is not active");
                return Err(Refusal::No(why));
            }
            Err(Failure(why)) => {
                return Err(Refusal::Unknown(format!(
                    "the credential could not be checked with {name:?}: {why}"
                )));
            }
        };
        let no_subject = || {
            Refusal::No(format!(
                "{name:?} names no subject of the credential (sub, username)"
            ))
        };
        let subject = subject(&claims).ok_or_else(no_subject)?;
        if let Some(audience) = &site.audience
            && !is_for(claims.get("aud"), audience)
        {
            let own = audience.join(" or ");
            let why = format!("{name:?} does not say that the credential is for {own}");
            return Err(Refusal::No(why));
        }
        if let Some(value) = claims.get("nbf")
            && time(value).is_none_or(|begins| asker.now < begins)
        {
            let why = format!("{name:?} says that the credential is not good yet (nbf)");
            return Err(Refusal::No(why));
        }
        let mut over = after(asker.now, INTROSPECTED_LIFE_MAX);
        if let Some(value) = claims.get("exp") {
            let expires = time(value);
            let expires = expires.ok_or_else(|| {
                Refusal::Unknown(format!("what {name:?} says as exp is no time in seconds"))
            })?;
            if expires <= asker.now {
                return Err(Refusal::Expired(format!(
                    "the credential expired at {expires}"
                )));
            }
            over = over.min(expires);
        }
        let issued = Issued {
            issuer: name.clone(),
            subject,
        };
        exchange(issued, (&site.maps, &claims), over, asker, text.as_bytes())
    }

    /// Why a text is nothing that is known here.
    fn unknown(&self, text: &str) -> String {
        let jwt = Jwt::read(text).ok().flatten();
        let named = jwt.and_then(|jwt| jwt.issuer().map(crate::keys::cut));
        let what = match named {
            _ if is_munged(text) => {
                "the credential is of MUNGE, which is not configured".to_owned()
            }
            Some(issuer) => format!("the credential is a JWT of issuer {issuer:?}"),
            None => "the credential is no token of this server, and no JWT".to_owned(),
        };
        let known: Vec<String> = self
            .issuers
            .iter()
            .map(|one| format!("{:?}", one.name))
            .collect();
        match known.is_empty() {
            true => format!("{what}; this server takes no credentials of others"),
            false => format!("{what}; this server takes those of {}", known.join(", ")),
        }
    }
}

fn munged(
    cluster: &Munged,
    text: &str,
    asker: Asker<'_>,
    deadline: Instant,
) -> Result<Verified, Refusal> {
    let checked = cluster.check(text, asker.certificates, asker.now, deadline);
    let (subject, claims, over) = checked?;
    let issued = Issued {
        issuer: cluster.name.clone(),
        subject,
    };
    exchange(
        issued,
        (&cluster.maps, &claims),
        over,
        asker,
        text.as_bytes(),
    )
}

/// What an answer calls the holder. A `sub` that is there is a text; nobody becomes by a `username` who others are by
/// their `sub`.
fn subject(claims: &Claims) -> Option<String> {
    let (name, prefix) = match claims.get("sub") {
        Some(sub) => (sub, ""),
        None => (claims.get("username")?, OF_USERNAME),
    };
    let name = name.as_str()?;
    let is_name = !name.is_empty() && name.len() <= 255 && !name.starts_with(OF_USERNAME);
    is_name.then(|| format!("{prefix}{name}"))
}

/// Somebody who was vouched for becomes somebody of a project here, within limits, for a time.
fn exchange(
    issued: Issued,
    (maps, claims): (&Maps, &Claims),
    over: UnixTime,
    asker: Asker<'_>,
    presented: &[u8],
) -> Result<Verified, Refusal> {
    let no = |why: String| Refusal::No(format!("{issued}: {why}"));
    let limits = maps.limits(claims, asker.namespace).map_err(no)?;
    let limits = Limits {
        expires: Some(over),
        ..limits
    };
    let verified = Verified::of_issuer(issued.clone(), limits, presented);
    verified.map_err(no)
}

fn after(now: UnixTime, life: Duration) -> UnixTime {
    UnixTime(now.0.saturating_add(life.as_nanos() as u64))
}
