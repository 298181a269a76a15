//! `amqp://USER:PASSWORD@HOST:PORT/VIRTUAL-HOST`: where a server is, and who one is there. `amqps://` is the same over
//! TLS, with RabbitMQ's own options: `?cacertfile=FILE&server_name_indication=HOST`.

use super::super::server_url::{Kind, decode, place, written};
use std::fmt;
use std::path::PathBuf;

/// How it is given.
pub const KIND: Kind = Kind {
    name: "AMQP",
    schemes: &[SCHEME, ENCRYPTED],
    variable: "THALWEG_AMQP_URL",
    is_secret: |text| AmqpUrl::parse(text).map(|url| url.is_secret()),
};
/// What it begins with.
const SCHEME: &str = "amqp://";
/// The same, encrypted.
const ENCRYPTED: &str = "amqps://";
/// Who one is if the URL does not say it, and the password that everybody knows.
const GUEST: &str = "guest";

/// The ports of a URL that names none.
const PORT: u16 = 5672;
const ENCRYPTED_PORT: u16 = 5671;

const FORM: &str = "it is amqp://USER:PASSWORD@HOST:PORT/VIRTUAL-HOST, in which %XX stands for a byte, or amqps:// with \
                    ?cacertfile=FILE&server_name_indication=HOST where they are needed";

/// How a connection is encrypted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Encryption {
    /// The file of the authorities that are trusted, if it is none of the system's.
    pub authorities: Option<PathBuf>,
    /// The name that is asked for, and that the certificate is to have, if it is not the host's.
    pub name: Option<String>,
}

/// A URL, taken apart.
#[derive(Clone, PartialEq, Eq)]
pub struct AmqpUrl {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub password: String,
    pub virtual_host: String,
    /// Of `amqps://`.
    pub encryption: Option<Encryption>,
}

/// Without who one is.
impl fmt::Display for AmqpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme(), self.authority())
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
        let refuse = |why: &str| Err(format!("the URL of AMQP {why}; {FORM}"));
        let (rest, is_encrypted) = match (text.strip_prefix(SCHEME), text.strip_prefix(ENCRYPTED)) {
            (Some(rest), _) => (rest, false),
            (None, Some(rest)) => (rest, true),
            (None, None) => return refuse("does not begin with amqp:// or amqps://"),
        };
        let (rest, options) = match rest.split_once('?') {
            Some((rest, options)) => (rest, Some(options)),
            None => (rest, None),
        };
        if rest.contains('#')
            || options.is_some_and(|options| !is_encrypted || options.contains('#'))
        {
            return refuse("has options, and those of amqps:// alone are known");
        }
        let encryption = match Encryption::parse(options.unwrap_or_default()) {
            Some(encryption) => is_encrypted.then_some(encryption),
            None => return refuse("has options that are not known, or twice"),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, at) = match authority.rsplit_once('@') {
            Some((credentials, at)) => (Some(credentials), at),
            None => (None, authority),
        };
        let usual = match is_encrypted {
            true => ENCRYPTED_PORT,
            false => PORT,
        };
        let (host, port) = match place(at, usual) {
            Ok(found) => found,
            Err(why) => return refuse(why),
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
            host,
            port,
            user,
            password,
            // As most clients have it: a URL without a path, or with an empty one, is that of "/".
            virtual_host: match path.is_empty() {
                true => "/".to_owned(),
                false => path,
            },
            encryption,
        })
    }

    /// As text, with all that is in it.
    pub fn to_text(&self) -> String {
        let [user, password, path] =
            [&self.user, &self.password, &self.virtual_host].map(|part| encode(part));
        let options = self.encryption.as_ref().map(Encryption::options);
        format!(
            "{}://{user}:{password}@{}/{path}{}",
            self.scheme(),
            self.authority(),
            options.unwrap_or_default()
        )
    }

    /// `amqp` or `amqps`.
    pub fn scheme(&self) -> &'static str {
        match self.encryption {
            Some(_) => "amqps",
            None => "amqp",
        }
    }

    /// Host and port.
    pub fn authority(&self) -> String {
        written(&(self.host.clone(), self.port))
    }

    /// Whether others may see it.
    fn is_secret(&self) -> bool {
        self.password != GUEST && !self.password.is_empty()
    }
}

impl Encryption {
    /// Of what stands behind the `?`. None if there is anything that is not known.
    fn parse(options: &str) -> Option<Self> {
        let mut found = Self::default();
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (key, value) = option.split_once('=')?;
            let value = decode(value).filter(|value| !value.is_empty())?;
            let is_new = match key {
                "cacertfile" => found.authorities.replace(value.into()).is_none(),
                "server_name_indication" => found.name.replace(value).is_none(),
                _ => false,
            };
            if !is_new {
                return None;
            }
        }
        Some(found)
    }

    fn options(&self) -> String {
        let authorities = self.authorities.as_ref();
        let authorities =
            authorities.map(|path| format!("cacertfile={}", encode(&path.to_string_lossy())));
        let name = self.name.as_ref();
        let name = name.map(|name| format!("server_name_indication={}", encode(name)));
        let options: Vec<String> = [authorities, name].into_iter().flatten().collect();
        match options.is_empty() {
            true => String::new(),
            false => format!("?{}", options.join("&")),
        }
    }
}

/// `%XX` for bytes that have a meaning in URLs, or may have.
fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            true => encoded.push(byte.into()),
            false => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// The URL of the user guest at a server of this host, whose certificate is for `localhost` if it speaks TLS.
pub fn of_guest(address: &str, authorities: Option<PathBuf>) -> String {
    let encryption = authorities.map(|path| Encryption {
        authorities: Some(path),
        name: Some("localhost".to_owned()),
    });
    let (scheme, options) = match encryption {
        None => (SCHEME, String::new()),
        Some(encryption) => (ENCRYPTED, encryption.options()),
    };
    format!("{scheme}{GUEST}:{GUEST}@{address}/{options}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

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
    fn a_url_of_tls_says_whom_to_trust_and_is_the_same_as_text() {
        let url = AmqpUrl::parse("amqps://host.org").unwrap();
        assert_eq!((url.port, url.scheme()), (5671, "amqps"));
        assert_eq!(url.encryption, Some(Encryption::default()));
        let text = "amqps://lab:p%40ss@[::1]:7/a%2Fb?cacertfile=%2Fetc%2Flab%20ca.pem&server_name_indication=host.org";
        let url = AmqpUrl::parse(text).unwrap();
        let encryption = url.encryption.as_ref().unwrap();
        assert_eq!(
            encryption.authorities.as_deref(),
            Some(Path::new("/etc/lab ca.pem"))
        );
        assert_eq!(encryption.name.as_deref(), Some("host.org"));
        assert_eq!(url.to_text(), text);
        assert_eq!(url.to_string(), "amqps://[::1]:7");
        let plain = AmqpUrl::parse("amqp://host").unwrap().to_text();
        assert_eq!(plain, "amqp://guest:guest@host:5672/%2F");
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
            (
                "amqps://u:secret@host?verify=verify_none",
                "options that are not known",
            ),
            (
                "amqps://u:secret@host?cacertfile=a&cacertfile=b",
                "or twice",
            ),
            (
                "amqps://u:secret@host?cacertfile=",
                "options that are not known",
            ),
        ] {
            let why = AmqpUrl::parse(text).unwrap_err();
            assert!(why.contains(says), "{text}: {why}");
            assert!(!why.contains("secret"), "{why}");
        }
        let url = AmqpUrl::parse("amqp://u:secret@host/").unwrap();
        assert!(!format!("{url} {url:?}").contains("secret"));
        let refused = KIND
            .find(Some("amqp://u:secret@host/"), None)
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains(KIND.variable) && !refused.contains("secret"),
            "{refused}"
        );
    }

    #[test]
    fn a_file_has_it_in_its_first_line_that_says_something() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("url");
        std::fs::write(&path, "# of the lab\n\n amqp://u:secret@host/ \n").unwrap();
        let option = path.display().to_string();
        assert_eq!(
            KIND.find(Some(&option), None).unwrap().as_deref(),
            Some("amqp://u:secret@host/")
        );
        std::fs::write(&path, "thalweg://AQ@host").unwrap();
        assert!(KIND.find(Some(&option), None).is_err());
    }
}
