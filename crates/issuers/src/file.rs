//! The file `access/issuers.json`: whose credentials a server takes, and what they are good for. Its page is
//! `docs/reference/issuers.md`.

use crate::algorithm::Algorithm;
use crate::introspection::Introspection;
use crate::json;
use crate::key_file::KnownKeys;
use crate::keys::Keys;
use crate::mapping::Maps;
use crate::munged::Munged;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How far an issuer's clock may be from the server's, at most.
pub const LEEWAY_MAX: Duration = Duration::from_secs(300);
/// How far it may be where the file says nothing.
const LEEWAY: Duration = Duration::from_secs(30);
/// How long somebody is believed at most, whatever the issuer says: then the credential is presented again.
pub const LIFE_MAX: Duration = Duration::from_secs(7 * 86_400);
/// How long the answer of a command is good at most: then it is asked again.
pub(crate) const INTROSPECTED_LIFE_MAX: Duration = Duration::from_secs(600);
/// The most issuers.
const ISSUERS_MAX: usize = 64;
/// The longest name of one.
const NAME_BYTES_MAX: usize = 255;

/// An issuer of JWTs.
#[derive(Debug, Clone, PartialEq)]
pub struct Issuer {
    /// Its `iss`.
    pub name: String,
    /// What it calls this server.
    pub(crate) audience: Vec<String>,
    pub(crate) algorithms: Vec<Algorithm>,
    keys_path: PathBuf,
    /// As far as they are known.
    pub(crate) keys: Keys,
    pub(crate) leeway: Duration,
    pub(crate) maps: Maps,
}

impl Issuer {
    /// Whether all that was true of another state of it is true of this one: it may have more keys.
    fn is_still(&self, before: &Self) -> bool {
        let same = Self {
            keys: before.keys.clone(),
            ..self.clone()
        };
        self.keys.has_all_of(&before.keys) && same == *before
    }
}

/// Tokens that a command of the site introspects.
#[derive(Debug, Clone)]
pub struct Introspected {
    /// What the site is called in the audit trail, and in errors.
    pub name: String,
    /// The command.
    pub asked: Arc<Introspection>,
    /// What it calls this server, if its answers are to say that.
    pub(crate) audience: Option<Vec<String>>,
    pub(crate) maps: Maps,
}

impl PartialEq for Introspected {
    fn eq(&self, other: &Self) -> bool {
        let is_same = self.asked.command() == other.asked.command();
        let is_for = self.audience == other.audience;
        is_same && is_for && self.name == other.name && self.maps == other.maps
    }
}

/// Whose credentials a server takes beside its own.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Issuers {
    pub(crate) issuers: Vec<Issuer>,
    pub(crate) introspected: Option<Introspected>,
    pub(crate) munged: Option<Munged>,
}

impl Issuers {
    /// What a file says. Keys are not there yet: [`Issuers::set_keys`].
    ///
    /// # Errors
    /// A sentence that names what cannot be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let document = json::parse(text.as_bytes())?;
        let document = object("the file", &document)?;
        let mut all = Self::default();
        for (key, value) in document {
            match key.as_str() {
                "issuers" => all.issuers = issuers(value)?,
                "introspection" => all.introspected = Some(introspected(value)?),
                "munge" => all.munged = Some(munged(value)?),
                _ => known("the file", document, &["issuers", "introspection", "munge"])?,
            }
        }
        let names = all.names();
        let twice = |(index, name): &(usize, &String)| names[..*index].contains(*name);
        if let Some((_, name)) = names.iter().enumerate().find(twice) {
            // Their people would be one another's.
            return Err(format!(
                "two of issuers, introspection and munge have the name {name:?}"
            ));
        }
        Ok(all)
    }

    /// The files of the keys of issuers, named from `directory`.
    pub fn key_files(&self, directory: &Path) -> BTreeSet<PathBuf> {
        let files = self.issuers.iter();
        files
            .map(|issuer| directory.join(&issuer.keys_path))
            .collect()
    }

    /// Gives issuers the keys that are known of their files.
    pub fn set_keys(&mut self, directory: &Path, known: &KnownKeys) {
        for issuer in &mut self.issuers {
            issuer.keys = known.of(&directory.join(&issuer.keys_path));
        }
    }

    /// Takes from an older state what commands have answered.
    pub fn keep_answers_of(&mut self, before: &Self) {
        if let (Some(now), Some(older)) = (&mut self.introspected, &before.introspected)
            && now.asked.command() == older.asked.command()
        {
            now.asked = older.asked.clone();
        }
        if let (Some(now), Some(older)) = (&mut self.munged, &before.munged) {
            now.keep_of(older);
        }
    }

    /// Ends the command that runs, unless `now` goes on with it. Does not wait.
    pub fn stop_if_replaced(&self, now: &Self) {
        if let Some(site) = &self.introspected {
            let goes_on = now.introspected.as_ref();
            if !goes_on.is_some_and(|next| Arc::ptr_eq(&next.asked, &site.asked)) {
                site.asked.stop();
            }
        }
    }

    /// Ends commands that run: nobody waits for them any more.
    pub fn end(&self) {
        if let Some(site) = &self.introspected {
            site.asked.end();
        }
    }

    /// The names of those for whom something is not so any more that was before: whoever was let in by them is to
    /// come anew.
    pub fn changed_since(&self, before: &Self) -> Vec<String> {
        let gone = before.issuers.iter().filter(|older| {
            let now = self.issuers.iter().find(|now| now.name == older.name);
            !now.is_some_and(|now| now.is_still(older))
        });
        let mut names: Vec<String> = gone.map(|older| older.name.clone()).collect();
        if let Some(older) = &before.introspected
            && self.introspected.as_ref() != Some(older)
        {
            names.push(older.name.clone());
        }
        if let Some(older) = &before.munged
            && self.munged.as_ref() != Some(older)
        {
            names.push(older.name.clone());
        }
        names
    }

    /// The names of all of them.
    pub fn names(&self) -> Vec<String> {
        let names = self.issuers.iter().map(|issuer| issuer.name.clone());
        let site = self.introspected.iter().map(|site| site.name.clone());
        let cluster = self.munged.iter().map(|cluster| cluster.name.clone());
        names.chain(site).chain(cluster).collect()
    }

    /// Whether it names nobody.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn issuers(value: &Value) -> Result<Vec<Issuer>, String> {
    let given = object("issuers", value)?;
    if given.len() > ISSUERS_MAX {
        return Err(format!("there are more than {ISSUERS_MAX} issuers"));
    }
    given
        .iter()
        .map(|(name, value)| issuer(name, value))
        .collect()
}

fn issuer(name: &str, value: &Value) -> Result<Issuer, String> {
    let what = format!("issuer {name:?}");
    check_name(&what, name)?;
    let given = object(&what, value)?;
    let keys = ["audience", "algorithms", "keys", "leeway_s", "maps"];
    known(&what, given, &keys)?;
    let missing = |key: &str| format!("{what} has no {key:?}");
    let audience = texts(given.get("audience")).ok_or_else(|| missing("audience"))?;
    let algorithms = texts(given.get("algorithms")).ok_or_else(|| missing("algorithms"))?;
    let algorithms = algorithms.iter().map(|name| name.parse::<Algorithm>());
    let algorithms = algorithms.collect::<Result<Vec<_>, _>>();
    let keys = given.get("keys").and_then(Value::as_str);
    let leeway = match given.get("leeway_s") {
        None => LEEWAY,
        Some(value) => {
            let seconds = value.as_u64().map(Duration::from_secs);
            seconds
                .filter(|leeway| *leeway <= LEEWAY_MAX)
                .ok_or_else(|| {
                    format!(
                        "{what}: leeway_s is no number up to {}",
                        LEEWAY_MAX.as_secs()
                    )
                })?
        }
    };
    Ok(Issuer {
        name: name.to_owned(),
        audience,
        algorithms: algorithms.map_err(|why| format!("{what}: {why}"))?,
        keys_path: keys.ok_or_else(|| missing("keys"))?.into(),
        keys: Keys::unread(),
        leeway,
        maps: Maps::parse(&what, given.get("maps").ok_or_else(|| missing("maps"))?)?,
    })
}

fn introspected(value: &Value) -> Result<Introspected, String> {
    let what = "introspection";
    let given = object(what, value)?;
    known(what, given, &["name", "command", "audience", "maps"])?;
    let name = match given.get("name") {
        None => "site",
        Some(name) => name
            .as_str()
            .ok_or_else(|| format!("{what}: name is no text"))?,
    };
    let audience = given.get("audience").map(|audience| {
        let wrong = || format!("{what}: audience is no text, or list of some");
        texts(Some(audience)).ok_or_else(wrong)
    });
    check_name(what, name)?;
    let command = texts(given.get("command"));
    let command = command.ok_or_else(|| format!("{what} has no list \"command\""))?;
    let maps = given.get("maps");
    Ok(Introspected {
        name: name.to_owned(),
        asked: Arc::new(Introspection::new(command)),
        audience: audience.transpose()?,
        maps: Maps::parse(what, maps.ok_or_else(|| format!("{what} has no \"maps\""))?)?,
    })
}

fn munged(value: &Value) -> Result<Munged, String> {
    let what = "munge";
    let given = object(what, value)?;
    known(what, given, &["name", "socket", "maps"])?;
    let text = |key: &str| match given.get(key) {
        None => Ok(None),
        Some(value) => value
            .as_str()
            .map(Some)
            .ok_or_else(|| format!("{what}: {key} is no text")),
    };
    let name = text("name")?.unwrap_or("cluster");
    check_name(what, name)?;
    let socket = text("socket")?.map(Path::new);
    if socket.is_some_and(|socket| !socket.is_absolute()) {
        return Err(format!("{what}: socket is no absolute path"));
    }
    let maps = given.get("maps");
    let maps = Maps::parse(what, maps.ok_or_else(|| format!("{what} has no \"maps\""))?)?;
    Ok(Munged::new(name, socket, maps))
}

fn check_name(what: &str, name: &str) -> Result<(), String> {
    let is_name = !name.is_empty() && name.len() <= NAME_BYTES_MAX;
    match is_name && !name.contains(char::is_control) {
        true => Ok(()),
        false => Err(format!(
            "{what}: a name has 1 to {NAME_BYTES_MAX} bytes without control characters"
        )),
    }
}

/// One text, or a list of some.
fn texts(value: Option<&Value>) -> Option<Vec<String>> {
    let texts: Vec<String> = match value? {
        Value::String(one) => vec![one.clone()],
        Value::Array(several) => {
            let texts = several.iter().map(|one| one.as_str().map(str::to_owned));
            texts.collect::<Option<_>>()?
        }
        _ => return None,
    };
    (!texts.is_empty()).then_some(texts)
}

fn object<'a>(what: &str, value: &'a Value) -> Result<&'a Map<String, Value>, String> {
    value
        .as_object()
        .ok_or_else(|| format!("{what} is no object of JSON"))
}

fn known(what: &str, given: &Map<String, Value>, keys: &[&str]) -> Result<(), String> {
    match given.keys().find(|key| !keys.contains(&key.as_str())) {
        None => Ok(()),
        Some(other) => Err(format!(
            "{what} has no key {other:?}; there are {}",
            keys.join(", ")
        )),
    }
}
