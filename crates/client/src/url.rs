//! One string that says whom to reach, whom to trust there, and by which right:
//! `thalweg://TOKEN@HOST:PORT/PROJECT/…?name=HOST&sha256=HEX`. The page is `docs/reference/gateway.md`.
//!
//! It is taken wherever a group file or an address is: as the text itself, in a file, or from the environment
//! variable [`VARIABLE`].

use crate::error::ClientError;
use crate::options::{DriverOptions, Endpoint};
use crate::presented::{TOKEN_PREFIX, is_jwt, of_content};
use crate::vouched::names_munge;
use bytes::Bytes;
use std::fmt;
use std::io::Read;
use std::path::Path;
use wire::message::STRIPES_MAX;

/// What it begins with.
pub const SCHEME: &str = "thalweg://";
/// The variable that has it.
pub const VARIABLE: &str = "THALWEG_URL";
/// The port of an address that names none.
const PORT: u16 = 443;
/// A file longer than this holds something else.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// What such a string says.
#[derive(Clone, PartialEq, Eq)]
pub struct StreamUrl {
    /// The address of TLS.
    pub address: String,
    /// The text of the token, or a JWT. Whoever has it has what it allows.
    pub token: Bytes,
    /// How many connections there may be, if it says so.
    pub stripes: Option<u8>,
}

impl fmt::Debug for StreamUrl {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamUrl")
            .field("address", &self.address)
            .field("stripes", &self.stripes)
            .finish_non_exhaustive()
    }
}

impl StreamUrl {
    /// Takes it apart.
    ///
    /// # Errors
    /// Says what is wrong, without a part of the text: there may be a token in it.
    pub fn parse(text: &str) -> Result<Self, String> {
        const FORM: &str = "it is thalweg://TOKEN@HOST:PORT/PROJECT/NAME?sha256=HEX";
        let refuse = |why: &str| Err(format!("the thalweg:// URL {why}; {FORM}"));
        let Some(rest) = text.trim().strip_prefix(SCHEME) else {
            return refuse("does not begin so");
        };
        let Some((token, rest)) = rest.split_once('@') else {
            return refuse("has no token");
        };
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if token.is_empty() || !token.bytes().all(is_token) {
            return refuse("has a token with characters that none has");
        }
        let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, _) = place.split_once('/').unwrap_or((place, ""));
        let is_clean =
            |part: &str| !part.contains(|one: char| one.is_control() || one == '@' || one == ' ');
        if authority.is_empty() || !is_clean(rest) {
            return refuse("names no host");
        }
        let has_port = match authority.rsplit_once(':') {
            Some((host, port)) => !host.is_empty() && port.parse::<u16>().is_ok(),
            None => false,
        };
        let mut address = format!("tls://{authority}");
        if !has_port {
            address.push_str(&format!(":{PORT}"));
        }
        if !options.is_empty() {
            address.push_str(&format!("?{options}"));
        }
        let (address, stripes) = match take_stripes(&address) {
            Ok(taken) => taken,
            Err(why) => return refuse(&format!("has {why}")),
        };
        let is_jwt = is_jwt(token.as_bytes());
        if token.contains('.') && !is_jwt {
            return refuse("has a token with characters that none has");
        }
        Ok(Self {
            address,
            token: match is_jwt {
                true => token.to_owned().into(),
                false => format!("{TOKEN_PREFIX}{token}").into(),
            },
            stripes,
        })
    }

    /// Where a driver with these options connects to, and the options that it says.
    fn resolved(self, mut options: DriverOptions) -> (Endpoint, DriverOptions) {
        options.stripes = self.stripes.unwrap_or(options.stripes);
        let endpoint = Endpoint::Address {
            address: self.address,
            token: Some(self.token),
            directory: None,
        };
        (endpoint, options)
    }
}

/// An address without `stripes=N` behind its `?`, and what that says.
///
/// # Errors
/// If it says no number of connections.
fn take_stripes(address: &str) -> Result<(String, Option<u8>), String> {
    let Some((place, options)) = address.split_once('?') else {
        return Ok((address.to_owned(), None));
    };
    let is_stripes = |option: &&str| option.starts_with("stripes=");
    let mut found = options.split('&').filter(is_stripes);
    let Some(first) = found.next() else {
        return Ok((address.to_owned(), None));
    };
    let count = first["stripes=".len()..].parse::<u8>().ok();
    let count = count.filter(|count| (1..=STRIPES_MAX).contains(count) && found.next().is_none());
    let count = count.ok_or_else(|| format!("stripes that are not 1 to {STRIPES_MAX}, once"))?;
    let others = options.split('&').filter(|option| !is_stripes(option));
    let others: Vec<&str> = others.collect();
    Ok(match others.is_empty() {
        true => (place.to_owned(), Some(count)),
        false => (format!("{place}?{}", others.join("&")), Some(count)),
    })
}

/// The endpoint and the options of a driver, where an address says how many connections there may be.
///
/// # Errors
/// If they are no number that there may be, or for a transport that has one.
fn with_stripes(
    endpoint: Endpoint,
    mut options: DriverOptions,
) -> Result<(Endpoint, DriverOptions), ClientError> {
    let (address, token, directory) = match endpoint {
        Endpoint::Address {
            address,
            token,
            directory,
        } => (address, token, directory),
        file => {
            check_stripes(options.stripes, None)?;
            return Ok((file, options));
        }
    };
    let taken = take_stripes(&address);
    let (address, stripes) =
        taken.map_err(|why| ClientError::Invalid(format!("{address} has {why}")))?;
    options.stripes = stripes.unwrap_or(options.stripes);
    check_stripes(options.stripes, Some(&address))?;
    let endpoint = Endpoint::Address {
        address,
        token,
        directory,
    };
    Ok((endpoint, options))
}

/// Whether a session at an address may have several connections.
pub(crate) fn has_stripes(address: &str) -> bool {
    address.starts_with("tcp://") || address.starts_with("tls://")
}

fn check_stripes(stripes: u8, address: Option<&str>) -> Result<(), ClientError> {
    if !(1..=STRIPES_MAX).contains(&stripes) {
        let why = format!("stripes is {stripes}; it is 1 to {STRIPES_MAX}");
        return Err(ClientError::Invalid(why));
    }
    match address.filter(|address| stripes > 1 && !has_stripes(address)) {
        Some(address) => Err(ClientError::Invalid(format!(
            "{address} with {stripes} stripes: several connections are for tcp:// and tls://, leave stripes out"
        ))),
        None => Ok(()),
    }
}

/// The one in a text, if it begins with one: blank lines and those that begin with `#` are left out.
pub(crate) fn line_of(text: &str) -> Option<&str> {
    first_line(text).filter(|line| line.starts_with(SCHEME))
}

/// The first line of a text that is not blank and does not begin with `#`.
pub fn first_line(text: &str) -> Option<&str> {
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| !line.is_empty() && !line.starts_with('#'))
}

/// What is to be presented of the content of a file of a credential: the token, where it is a URL with one; else what
/// it holds.
///
/// # Errors
/// If there is a URL that is none.
pub(crate) fn presented(content: Bytes) -> Result<Bytes, String> {
    match std::str::from_utf8(&content).ok().and_then(line_of) {
        Some(line) => StreamUrl::parse(line).map(|url| url.token),
        None => Ok(of_content(content)),
    }
}

/// The endpoint and the options of a driver, where one of them may be such a string: an address then, with the token
/// to present. A file with one is its own credential, and is read again as those are. Where there is no group file at
/// a path, the variable has it, or the file of the credential.
///
/// # Errors
/// If there is one that is none.
pub(crate) fn resolve(
    endpoint: Endpoint,
    options: DriverOptions,
) -> Result<(Endpoint, DriverOptions), ClientError> {
    let (endpoint, options) = resolve_url(endpoint, options)?;
    with_stripes(endpoint, options)
}

fn resolve_url(
    endpoint: Endpoint,
    mut options: DriverOptions,
) -> Result<(Endpoint, DriverOptions), ClientError> {
    let from_text = |text: &str| StreamUrl::parse(text).map_err(ClientError::Invalid);
    let path = match &endpoint {
        Endpoint::Address { address, token, .. } if address.starts_with(SCHEME) => {
            if token.is_some() {
                let why = "a thalweg:// URL has its own token: there is no place for another one";
                return Err(ClientError::Invalid(why.to_owned()));
            }
            return Ok(from_text(address)?.resolved(options));
        }
        Endpoint::Address { .. } => return Ok((endpoint, options)),
        Endpoint::GroupFile(path) => path,
    };
    if let Some(text) = path.to_str().filter(|text| text.starts_with(SCHEME)) {
        return Ok(from_text(text)?.resolved(options));
    }
    let found = match (path.exists(), from_environment()) {
        (true, _) => url_in(path)?.map(|url| (url, path.clone())),
        (false, Some(text)) => return Ok(from_text(&text)?.resolved(options)),
        (false, None) => match options.credential.clone() {
            // There is no file.
            Some(path) if names_munge(&path) => None,
            Some(path) => match address_in(&path) {
                Some(address) => return Ok((Endpoint::address(address), options)),
                None => url_in(&path)?.map(|url| (url, path)),
            },
            None => None,
        },
    };
    let Some((url, file)) = found else {
        return Ok((endpoint, options));
    };
    options.credential = Some(file);
    options.stripes = url.stripes.unwrap_or(options.stripes);
    let endpoint = Endpoint::address(url.address);
    Ok((endpoint, options))
}

/// The one of the environment.
pub fn from_environment() -> Option<String> {
    std::env::var(VARIABLE)
        .ok()
        .filter(|text| !text.trim().is_empty())
}

/// Where the server is if nobody says: the one of the environment, or the group file that `THALWEG_GROUP_FILE`
/// names, or `thalweg.json`.
pub fn usual_endpoint() -> Endpoint {
    if let Some(text) = from_environment() {
        return Endpoint::address(text.trim());
    }
    let named = std::env::var_os("THALWEG_GROUP_FILE").filter(|path| !path.is_empty());
    Endpoint::GroupFile(named.unwrap_or_else(|| "thalweg.json".into()).into())
}

/// The one in a file, if it begins with one.
///
/// # Errors
/// [`ClientError::Invalid`], if it is none after all.
pub fn url_in(path: &Path) -> Result<Option<StreamUrl>, ClientError> {
    let Some(text) = beginning(path) else {
        return Ok(None);
    };
    let Some(line) = line_of(&text) else {
        return Ok(None);
    };
    let named = |why| ClientError::Invalid(format!("{}: {why}", path.display()));
    StreamUrl::parse(line).map(Some).map_err(named)
}

/// The address of TLS that the file of a certificate begins with, if it does.
fn address_in(path: &Path) -> Option<String> {
    let text = beginning(path)?;
    let line = first_line(&text)?;
    line.starts_with("tls://").then(|| line.to_owned())
}

/// What a file begins with; whoever reads it for what it is says why it cannot be read.
fn beginning(path: &Path) -> Option<String> {
    let file = std::fs::File::open(path).ok()?;
    if !file.metadata().is_ok_and(|found| found.is_file()) {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    const URL: &str =
        "thalweg://AQ_-9@gate.site.org:443/stf008/run42?name=stf008-run42.site.org&sha256=ab";

    fn options(credential: Option<PathBuf>) -> DriverOptions {
        DriverOptions {
            credential,
            ..DriverOptions::default()
        }
    }

    fn address(endpoint: &Endpoint) -> (&str, Option<&[u8]>) {
        match endpoint {
            Endpoint::Address { address, token, .. } => (address, token.as_deref()),
            Endpoint::GroupFile(path) => panic!("{}", path.display()),
        }
    }

    const ADDRESS: &str = "tls://gate.site.org:443?name=stf008-run42.site.org&sha256=ab";

    #[test]
    fn one_string_says_where_and_by_which_right() {
        let url = StreamUrl::parse(URL).unwrap();
        assert_eq!(url.address, ADDRESS);
        assert_eq!(url.token, "thalweg-token-1:AQ_-9");
        assert!(!format!("{url:?}").contains("AQ_"));
        let least = StreamUrl::parse("thalweg://AQ@gate.site.org\n").unwrap();
        assert_eq!(least.address, "tls://gate.site.org:443");
        let six = StreamUrl::parse("thalweg://AQ@[::1]:7/p").unwrap();
        assert_eq!(six.address, "tls://[::1]:7");
    }

    #[test]
    fn what_is_none_is_refused_without_being_shown() {
        for text in [
            "",
            "tls://secret@host:1",
            "thalweg://host:1/secret",
            "thalweg://@host:1",
            "thalweg://sec ret@host:1",
            "thalweg://sec:ret@host:1",
            "thalweg://secret@",
            "thalweg://secret@/p",
            "thalweg://secret@?x",
            "thalweg://secret@a@b:1",
            "thalweg://secret@ho\nst:1",
        ] {
            let error = StreamUrl::parse(text).unwrap_err();
            assert!(error.contains("thalweg://TOKEN@HOST"), "{error}");
            assert!(
                !error.contains("secret") && !error.contains("ret@"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn an_address_says_how_many_connections_there_may_be() {
        let url = StreamUrl::parse(&format!("{URL}&stripes=4")).unwrap();
        assert_eq!((url.address.as_str(), url.stripes), (ADDRESS, Some(4)));
        let resolved = |text: &str| resolve(Endpoint::address(text), options(None));
        let found = |text: &str| {
            let (endpoint, options) = resolved(text).unwrap();
            (address(&endpoint).0.to_owned(), options.stripes)
        };
        assert_eq!(found("tcp://h:1?stripes=16"), ("tcp://h:1".to_owned(), 16));
        let given = found("tls://h:1?stripes=2&sha256=ab");
        assert_eq!(given, ("tls://h:1?sha256=ab".to_owned(), 2));
        assert_eq!(found(&format!("{URL}&stripes=3")), (ADDRESS.to_owned(), 3));
        assert_eq!(found("unix:///s?stripes=1"), ("unix:///s".to_owned(), 1));
        assert_eq!(found("tcp://h:1"), ("tcp://h:1".to_owned(), 1));
        for wrong in ["0", "17", "", "x", "2&stripes=2"] {
            let error = resolved(&format!("tcp://h:1?stripes={wrong}")).unwrap_err();
            assert!(error.to_string().contains("1 to 16"), "{error}");
        }
        for other in ["unix:///s", "inproc://s", "shm:///s"] {
            let error = resolved(&format!("{other}?stripes=2")).unwrap_err();
            assert!(
                error.to_string().contains("for tcp:// and tls://"),
                "{error}"
            );
        }
        let many = DriverOptions {
            stripes: 17,
            ..options(None)
        };
        assert!(resolve(Endpoint::GroupFile("none".into()), many).is_err());
    }

    #[test]
    fn it_is_taken_wherever_a_group_file_or_an_address_is() {
        let token = Some(&b"thalweg-token-1:AQ_-9"[..]);
        for endpoint in [Endpoint::address(URL), Endpoint::GroupFile(URL.into())] {
            let (endpoint, _) = resolve(endpoint, options(None)).unwrap();
            assert_eq!(address(&endpoint), (ADDRESS, token));
        }
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("run42.url");
        std::fs::write(&file, format!("# of run 42\n\n{URL}\n")).unwrap();
        // The file is the credential, too, and read again when it changes.
        let (endpoint, given) = resolve(Endpoint::GroupFile(file.clone()), options(None)).unwrap();
        assert_eq!(address(&endpoint), (ADDRESS, None));
        assert_eq!(given.credential.as_ref(), Some(&file));
        let missing = Endpoint::GroupFile(parent.path().join("thalweg.json"));
        let (endpoint, _) = resolve(missing.clone(), options(Some(file))).unwrap();
        assert_eq!(address(&endpoint), (ADDRESS, None));
        let (endpoint, _) = resolve(missing, options(None)).unwrap();
        assert!(matches!(endpoint, Endpoint::GroupFile(_)));
        let content = Bytes::from(format!("{URL}\n"));
        assert_eq!(presented(content).unwrap(), "thalweg-token-1:AQ_-9");
        assert_eq!(
            presented("thalweg-token-1:x".into()).unwrap(),
            "thalweg-token-1:x"
        );
    }

    #[test]
    fn another_file_stays_what_it_is_and_a_damaged_one_is_named() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("thalweg.json");
        std::fs::write(&file, "{}").unwrap();
        let endpoint = Endpoint::GroupFile(file.clone());
        let (same, _) = resolve(endpoint.clone(), options(None)).unwrap();
        assert!(matches!(same, Endpoint::GroupFile(path) if path == file));
        std::fs::write(&file, "thalweg://secret\n").unwrap();
        let error = resolve(endpoint, options(None)).unwrap_err().to_string();
        assert!(
            error.contains("thalweg.json") && !error.contains("secret"),
            "{error}"
        );
        let twice = Endpoint::Address {
            address: URL.to_owned(),
            token: Some(Bytes::from_static(b"x")),
            directory: None,
        };
        assert!(resolve(twice, options(None)).is_err());
    }
}
