//! `amqp://USER:PASSWORD@HOST:PORT/VIRTUAL-HOST`: where a server is, and who one is there.

use crate::failure::{About, Failure};
use std::fmt;
use std::io::Read;
use std::path::Path;

/// The variable that has it, where no option and no scenario does.
pub const VARIABLE: &str = "THALWEG_AMQP_URL";
/// What it begins with.
const SCHEME: &str = "amqp://";
/// The same, encrypted.
const ENCRYPTED: &str = "amqps://";
/// A longer file holds something else.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Who one is if the URL does not say it, and the password that everybody knows.
const GUEST: &str = "guest";

const FORM: &str =
    "it is amqp://USER:PASSWORD@HOST:PORT/VIRTUAL-HOST, in which %XX stands for a byte";

/// A URL, taken apart.
#[derive(Clone, PartialEq, Eq)]
pub struct AmqpUrl {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub password: String,
    pub virtual_host: String,
}

/// Without who one is.
impl fmt::Display for AmqpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "{SCHEME}[{}]:{}", self.host, self.port),
            false => write!(f, "{SCHEME}{}:{}", self.host, self.port),
        }
    }
}

/// Likewise.
impl fmt::Debug for AmqpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl AmqpUrl {
    /// Takes it apart. An error has no part of the text: there may be a password in it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with(ENCRYPTED) {
            return Err(
                "this command does not speak TLS with AMQP: give the amqp:// address of a TLS client, as stunnel is one"
                    .to_owned(),
            );
        }
        let refuse = |why: &str| Err(format!("the URL of AMQP {why}; {FORM}"));
        let Some(rest) = text.strip_prefix(SCHEME) else {
            return refuse("does not begin with amqp://");
        };
        if rest.contains(['?', '#']) {
            return refuse("has options, and none is known");
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, place) = match authority.rsplit_once('@') {
            Some((credentials, place)) => (Some(credentials), place),
            None => (None, authority),
        };
        let (host, port) = match place.strip_prefix('[').map(|rest| rest.split_once(']')) {
            Some(Some((host, rest))) => (host, rest.strip_prefix(':')),
            Some(None) => return refuse("has no end of its address"),
            None => match place.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (place, None),
            },
        };
        let is_clean = |one: char| !one.is_control() && !one.is_whitespace();
        if host.is_empty() || !host.chars().all(is_clean) {
            return refuse("names no host");
        }
        let Ok(port) = port.map_or(Ok(5672), str::parse::<u16>) else {
            return refuse("has a port that is none");
        };
        let decoded = credentials.map(|credentials| {
            let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
            Some((decode(user)?, decode(password)?))
        });
        let (user, password) = match decoded {
            None => (GUEST.to_owned(), GUEST.to_owned()),
            Some(Some(found)) => found,
            Some(None) => return refuse("has a % without two hexadecimal digits of UTF-8"),
        };
        let Some(path) = decode(path) else {
            return refuse("has a % without two hexadecimal digits of UTF-8");
        };
        Ok(Self {
            host: host.to_owned(),
            port,
            user,
            password,
            // As most clients have it: a URL without a path, or with an empty one, is that of "/".
            virtual_host: match path.is_empty() {
                true => "/".to_owned(),
                false => path,
            },
        })
    }

    /// Whether others may see it.
    fn is_secret(&self) -> bool {
        self.password != GUEST && !self.password.is_empty()
    }
}

/// Bytes for `%XX`.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push(match byte {
            b'%' => (digit(rest.next()?)? * 16 + digit(rest.next()?)?) as u8,
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// The server of a run: that of the option, of the scenario, or of the environment. Each is a URL, or a file with one.
pub fn find(option: Option<&str>, scenario: Option<&str>) -> Result<Option<String>, Failure> {
    if let Some(option) = option {
        return of_option(option).map(Some);
    }
    if let Some(text) = scenario {
        return of_text("url", text).map(Some);
    }
    match std::env::var(VARIABLE) {
        Ok(text) if !text.trim().is_empty() => of_text(VARIABLE, text.trim()).map(Some),
        _ => Ok(None),
    }
}

/// What everybody on the host can see has no password.
fn of_option(option: &str) -> Result<String, Failure> {
    let text = of_text("--url", option)?;
    let is_secret = AmqpUrl::parse(option).is_ok_and(|url| url.is_secret());
    if is_secret {
        let what = format!(
            "this URL has a password, and a command line shows it to everybody on this host. Put it into a file that \
             only you can read, and give that; or into the environment variable {VARIABLE}"
        );
        return Err(Failure::usage("--url", what));
    }
    Ok(text)
}

fn of_text(subject: &str, text: &str) -> Result<String, Failure> {
    if !text.contains("://") {
        return of_file(Path::new(text));
    }
    AmqpUrl::parse(text).map_err(|why| Failure::usage(subject, why))?;
    Ok(text.to_owned())
}

/// The first line of a file that is not blank and does not begin with `#`.
fn of_file(path: &Path) -> Result<String, Failure> {
    let name = path.display().to_string();
    let mut text = String::new();
    let file = std::fs::File::open(path).about(&name)?;
    file.take(FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .about(&name)?;
    let line = ::client::url::first_line(&text);
    let line = line.ok_or_else(|| Failure::usage(&name, "has no line with a URL of AMQP"))?;
    AmqpUrl::parse(line).map_err(|why| Failure::usage(&name, why))?;
    Ok(line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_who() {
        let url = AmqpUrl::parse("amqp://lab%2Fa:p%40ss:word@host.org:5673/runs%2f7").unwrap();
        assert_eq!((url.host.as_str(), url.port), ("host.org", 5673));
        assert_eq!(
            (url.user.as_str(), url.password.as_str()),
            ("lab/a", "p@ss:word")
        );
        assert_eq!(url.virtual_host, "runs/7");
        for text in [
            "amqp://host",
            "amqp://host/",
            "amqp://guest:guest@host:5672/%2f",
        ] {
            let url = AmqpUrl::parse(text).unwrap();
            assert_eq!((url.user.as_str(), url.password.as_str()), (GUEST, GUEST));
            assert_eq!((url.virtual_host.as_str(), url.port), ("/", 5672), "{text}");
            assert!(!url.is_secret());
        }
        let url = AmqpUrl::parse("amqp://[::1]:7/").unwrap();
        assert_eq!((url.host.as_str(), url.port), ("::1", 7));
        assert_eq!(url.to_string(), "amqp://[::1]:7");
    }

    #[test]
    fn what_is_none_is_refused_and_no_password_is_said() {
        for (text, says) in [
            ("http://u:secret@host", "does not begin with amqp://"),
            ("amqp://u:secret@", "names no host"),
            ("amqp://u:secret@host:port/", "a port that is none"),
            ("amqp://u:secret@host/v?heartbeat=1", "has options"),
            ("amqp://u:secret%zz@host", "two hexadecimal digits"),
            ("amqp://u:secret%ff@host", "two hexadecimal digits"),
            ("amqp://u:secret@[::1", "no end of its address"),
            ("amqps://u:secret@host", "does not speak TLS"),
        ] {
            let why = AmqpUrl::parse(text).unwrap_err();
            assert!(why.contains(says), "{text}: {why}");
            assert!(!why.contains("secret"), "{why}");
        }
        let url = AmqpUrl::parse("amqp://u:secret@host/").unwrap();
        assert!(!format!("{url} {url:?}").contains("secret"));
        let refused = of_option("amqp://u:secret@host/").unwrap_err().to_string();
        assert!(
            refused.contains(VARIABLE) && !refused.contains("secret"),
            "{refused}"
        );
    }

    #[test]
    fn a_file_has_it_in_its_first_line_that_says_something() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("url");
        std::fs::write(&path, "# of the lab\n\n amqp://u:secret@host/ \n").unwrap();
        let option = path.display().to_string();
        assert_eq!(of_option(&option).unwrap(), "amqp://u:secret@host/");
        std::fs::write(&path, "thalweg://AQ@host").unwrap();
        assert!(of_option(&option).is_err());
    }
}
