//! `redis://USER:PASSWORD@HOST:PORT/DATABASE`: where a server is, and who one is there.

use super::super::server_url::{Kind, Place, decode, place, written};
use std::fmt;

pub const KIND: Kind = Kind {
    name: "Redis",
    schemes: &[SCHEME],
    variable: "THALWEG_REDIS_URL",
    is_secret: |text| RedisUrl::parse(text).map(|url| url.credentials.is_some()),
};

const SCHEME: &str = "redis://";
/// The same, encrypted.
const ENCRYPTED: &str = "rediss://";
const PORT: u16 = 6379;

const FORM: &str = "it is redis://HOST:PORT, redis://:PASSWORD@HOST:PORT or redis://USER:PASSWORD@HOST:PORT/DATABASE, in \
                    which %XX stands for a byte";

/// Who one is. A user without a name is the usual one.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub user: Option<String>,
    pub password: String,
}

/// A URL, taken apart.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    pub place: Place,
    pub credentials: Option<Credentials>,
    pub database: u32,
}

/// Without who one is.
impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", written(&self.place))
    }
}

/// Likewise.
impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl RedisUrl {
    /// Takes it apart. An error has no part of the text: there may be a password in it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with(ENCRYPTED) {
            return Err(
                "this command does not speak TLS with Redis: give the redis:// address of a TLS client, as stunnel is one"
                    .to_owned(),
            );
        }
        let refuse = |why: &str| Err(format!("the URL of Redis {why}; {FORM}"));
        let Some(rest) = text.strip_prefix(SCHEME) else {
            return refuse("does not begin with redis://");
        };
        // Nor is what follows a password that is not encoded.
        if rest.contains(['?', '#']) {
            return refuse("has options, and none is known");
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, at) = match authority.rsplit_once('@') {
            Some((credentials, at)) => (Some(credentials), at),
            None => (None, authority),
        };
        let place = match place(at, PORT) {
            Ok(place) => place,
            Err(why) => return refuse(why),
        };
        let credentials = match credentials.map(|both| both.split_once(':')) {
            None => None,
            Some(None) => return refuse("has a user without a password"),
            Some(Some((user, password))) => match (decode(user), decode(password)) {
                (Some(user), Some(password)) => Some(Credentials {
                    user: (!user.is_empty()).then_some(user),
                    password,
                }),
                _ => return refuse("has a % without two hexadecimal digits of UTF-8"),
            },
        };
        let database = match path {
            "" => Ok(0),
            path => path.parse(),
        };
        let Ok(database) = database else {
            return refuse("has a database that is no number");
        };
        Ok(Self {
            place,
            credentials,
            database,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_who() {
        let url = RedisUrl::parse("redis://lab:p%40ss:word@host.org:7/3").unwrap();
        assert_eq!(url.place, ("host.org".to_owned(), 7));
        let credentials = url.credentials.as_ref().unwrap();
        assert_eq!(credentials.user.as_deref(), Some("lab"));
        assert_eq!(credentials.password, "p@ss:word");
        assert_eq!(url.database, 3);
        assert_eq!(
            format!("{url} {url:?}"),
            "redis://host.org:7 redis://host.org:7"
        );
        let url = RedisUrl::parse("redis://:secret@[::1]").unwrap();
        assert_eq!(url.credentials.as_ref().unwrap().user, None);
        assert_eq!(url.to_string(), "redis://[::1]:6379");
        let url = RedisUrl::parse("redis://host/").unwrap();
        assert!(url.credentials.is_none() && url.database == 0);
    }

    #[test]
    fn what_is_none_is_refused_and_no_password_is_said() {
        for (text, says) in [
            ("http://u:secret@host", "does not begin with redis://"),
            ("rediss://u:secret@host", "does not speak TLS"),
            ("redis://u:secret@", "names no host"),
            ("redis://secret@host", "a user without a password"),
            ("redis://u:secret@host:port", "a port that is none"),
            ("redis://u:secret@host/base", "a database that is no number"),
            ("redis://u:secret@host?db=1", "has options"),
            ("redis://u:secret%zz@host", "two hexadecimal digits"),
        ] {
            let why = RedisUrl::parse(text).unwrap_err();
            assert!(why.contains(says), "{text}: {why}");
            assert!(!why.contains("secret"), "{why}");
        }
    }
}
