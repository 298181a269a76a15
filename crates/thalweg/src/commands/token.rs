//! `thalweg token`: credentials of members of a project.
//!
//! None of it asks a server: a token is made where the data directory is, and narrowed, shown and
//! checked wherever it is.

mod args;
mod time;

pub use args::TokenCommand;
pub use time::length;

use crate::cli::WhyNotArgs;
use crate::failure::{About, Code, Failure};
use crate::output::Output;
use access::{
    Certificate, Decision, Grants, Identity, Limits, Name, Origin, SEED_BYTES, Seed, Token,
    TokenError, TokenId, UnixTime, Verb, Verified,
};
use args::{
    CheckArgs, Destination, Directory, Narrow, NewArgs, RestrictArgs, RevokeArgs, ShowArgs,
};
use jiff::Zoned;
use serde_json::{Value, json};
use server::{AccessFiles, DataDirectory};
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// How long a token is good for where nothing is said.
const USUAL: Duration = Duration::from_secs(8 * 3600);
/// How long a token is good for at most.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);
/// More than any token has.
const FILE_BYTES_MAX: u64 = 64 << 10;

pub fn run(command: &TokenCommand) -> Result<(), Failure> {
    match command {
        TokenCommand::New(args) => new(args),
        TokenCommand::Show(args) => show(args),
        TokenCommand::Restrict(args) => restrict(args),
        TokenCommand::Check(args) => check(args),
        TokenCommand::Revoke(args) => revoke(args),
    }
}

fn new(args: &NewArgs) -> Result<(), Failure> {
    let files = args.directory.files()?;
    let now = Zoned::now();
    let mut limits = limits(&args.narrow, &now)?;
    let can = args.narrow.can.as_deref().unwrap_or(&[Verb::Read]);
    if can.contains(&Verb::Admin) {
        return Err(Failure::usage(
            "--can",
            "admin is about the server, and no grant gives it to a project: only its owner has it",
        ));
    }
    limits.verbs = Some(can.iter().copied().collect());
    limits.project = Some(args.project.clone());
    limits.once = args.once;
    let begins = limits.not_before.unwrap_or(time::of(&now));
    let lasts = args.narrow.lasts.unwrap_or(USUAL);
    if lasts > LONGEST {
        return Err(Failure::usage(
            "--for",
            format!("a token is good for 7 days at most, and not for {lasts:?}"),
        ));
    }
    limits.expires = Some(time::later(begins, lasts));
    let key = files.issuer().about(args.directory.subject())?;
    let token = Token::issue(&key, &limits, seed()).map_err(refused("the token"))?;
    args.destination.put(&token)
}

/// The text of a token of the default project that lets its holder do all that members may, for so long from now on, on
/// the server of this data directory.
pub fn of_member(directory: &Path, lasts: Duration) -> Result<String, Failure> {
    let subject = directory.display().to_string();
    let limits = Limits {
        verbs: Some(
            [Verb::Read, Verb::Write, Verb::Manage]
                .into_iter()
                .collect(),
        ),
        project: Some(String::new()),
        expires: Some(time::later(time::of(&Zoned::now()), lasts)),
        ..Limits::default()
    };
    let files = DataDirectory::access_at(directory).about(&subject)?;
    let key = files.issuer().about(&subject)?;
    let token = Token::issue(&key, &limits, seed()).map_err(refused("the token"))?;
    Ok(token.to_text())
}

fn restrict(args: &RestrictArgs) -> Result<(), Failure> {
    let (token, subject) = read(args.file.as_deref())?;
    let now = Zoned::now();
    let mut limits = limits(&args.narrow, &now)?;
    limits.verbs = args
        .narrow
        .can
        .as_ref()
        .map(|can| can.iter().copied().collect());
    let begins = limits.not_before.unwrap_or(time::of(&now));
    limits.expires = args.narrow.lasts.map(|lasts| time::later(begins, lasts));
    let narrow = token.restrict(&limits, seed()).map_err(refused(&subject))?;
    args.destination.put(&narrow)
}

/// What is said alike of a new token and of one that is narrowed.
fn limits(narrow: &Narrow, now: &Zoned) -> Result<Limits, Failure> {
    let from = narrow.from.as_deref();
    let from = from.map(|text| time::point(text, now));
    Ok(Limits {
        topics: narrow.topics.clone(),
        networks: narrow.network.clone(),
        bytes_per_second: narrow.rate,
        not_before: from
            .transpose()
            .map_err(|what| Failure::usage("--from", what))?,
        note: narrow.note.clone(),
        ..Limits::default()
    })
}

fn show(args: &ShowArgs) -> Result<(), Failure> {
    let (token, subject) = read(args.file.as_deref())?;
    let verdict = verdict(&token, args.directory.as_deref())?;
    let mut output = Output::new(args.json);
    match args.json {
        true => output.json(&described(&token, &verdict))?,
        false => output.line(&sentences(&token, &verdict))?,
    }
    output.flush()?;
    match verdict {
        Verdict::Wrong(error) => Err(Failure::new(Code::Failure, subject, error)),
        Verdict::NotAsked | Verdict::Right(_) => Ok(()),
    }
}

fn check(args: &CheckArgs) -> Result<(), Failure> {
    let (token, subject) = read(args.file.as_deref())?;
    let verified = match verdict(&token, args.directory.as_deref())? {
        Verdict::NotAsked => token.as_if_verified(),
        Verdict::Right(verified) => verified,
        Verdict::Wrong(error) => return Err(Failure::new(Code::Failure, subject, error)),
    };
    let identity = verified
        .anywhere()
        .identity(Origin::default(), Arc::new(Grants::default()));
    let now = Zoned::now();
    let until = match &args.until {
        Some(text) => time::point(text, &now).map_err(|what| Failure::usage("--until", what))?,
        None => time::of(&now),
    };
    let may = allowed(args, &token, &identity, time::of(&now), until);
    let mut output = Output::new(args.json);
    let is_good = may.is_ok();
    let sentence = match may {
        Ok(sentence) => sentence,
        Err(why) if args.json => why,
        Err(why) => return Err(Failure::new(Code::Failure, subject, why)),
    };
    let value = json!({"good": is_good, "until": until.to_string(), "why": sentence});
    output.either(&value, &sentence)?;
    output.flush()?;
    match is_good {
        true => Ok(()),
        false => Err(Failure::new(Code::Failure, subject, sentence)),
    }
}

/// Whether a token is good for what is asked, at the beginning and at the end.
fn allowed(
    args: &CheckArgs,
    token: &Token,
    identity: &Identity,
    now: UnixTime,
    until: UnixTime,
) -> Result<String, String> {
    // A token that begins later is good for a job that begins then.
    let begins = token.limits().filter_map(|limits| limits.not_before).max();
    let from = begins.map_or(now, |begins| begins.max(now));
    for at in [from.min(until), until] {
        identity.check(at).map_err(|denied| denied.to_string())?;
        let Some(name) = &args.name else { continue };
        let project = token.project();
        let within = name
            .strip_prefix(project)
            .and_then(|rest| rest.strip_prefix('/'));
        let topic = within.unwrap_or(name);
        for verb in &args.can {
            match access::decide(identity, *verb, Name::Topic { project, topic }, at) {
                Decision::Allow => {}
                Decision::Deny(denied) => return Err(denied.to_string()),
            }
        }
    }
    let verbs: Vec<&str> = args.can.iter().map(|verb| verb.name()).collect();
    let what = match &args.name {
        Some(name) => format!("{} {name}", verbs.join(" and ")),
        None => "be used".to_owned(),
    };
    Ok(format!("{identity} may {what} until {until}"))
}

fn revoke(args: &RevokeArgs) -> Result<(), Failure> {
    let files = args.directory.files()?;
    let id: TokenId = match args.token.parse() {
        Ok(id) => id,
        Err(_) => id_in(Path::new(&args.token))?,
    };
    let now = time::of(&Zoned::now());
    let note = format!("{now} {}", args.note.as_deref().unwrap_or_default());
    files
        .revoke(id, note.trim())
        .about(args.directory.subject())?;
    let mut output = Output::new(args.json);
    let value = json!({"revoked": id.to_string(), "time": now.to_string()});
    let text = format!(
        "{id} is revoked, with all that was made from it; a server that runs knows it within 5 s"
    );
    output.either(&value, &text)?;
    output.flush()
}

/// What revokes the credential of a file: the token, or the key of the certificate.
fn id_in(path: &Path) -> Result<TokenId, Failure> {
    let subject = path.display().to_string();
    let text = text(Some(path), &subject)?;
    if !text.contains("-----BEGIN CERTIFICATE-----") {
        let token = Token::from_text(&text).map_err(refused(&subject))?;
        return Ok(own_id(&token));
    }
    let chain = net::certificates_in(text.as_bytes());
    let chain = chain.map_err(|error| Failure::usage(&subject, error))?;
    let own = Certificate::read(&chain[0]);
    let own = own.map_err(|error| Failure::usage(&subject, error))?;
    Ok(own.ids()[0])
}

/// `thalweg why-not`.
pub fn why_not(args: &WhyNotArgs) -> Result<ExitCode, Failure> {
    let connection = args.client.connection.clone();
    let connection = match &args.holder {
        Some(file) => connection.with_credential(file.clone()),
        None => connection,
    };
    let driver = connection.driver()?;
    let name = args.name.as_deref().unwrap_or_default();
    let checked = driver.check_access(args.verb.name(), name);
    let checked = checked.about(connection.subject())?;
    let mut output = Output::new(args.client.json);
    let value = json!({"allowed": checked.allowed, "reason": checked.reason});
    output.either(&value, &checked.reason)?;
    output.flush()?;
    Ok(match checked.allowed {
        true => ExitCode::SUCCESS,
        false => Code::Failure.into(),
    })
}

/// Whether a token counts, as far as was asked.
enum Verdict {
    /// No data directory was named.
    NotAsked,
    Right(Verified),
    Wrong(TokenError),
}

fn verdict(token: &Token, directory: Option<&Path>) -> Result<Verdict, Failure> {
    let Some(directory) = directory else {
        return Ok(Verdict::NotAsked);
    };
    let subject = directory.display().to_string();
    let files = DataDirectory::access_at(directory).about(&subject)?;
    let (trust, strange) = files.trust().about(&subject)?;
    for line in strange {
        eprintln!("note: {line}");
    }
    Ok(match token.verify(&trust) {
        Ok(verified) => Verdict::Right(verified),
        Err(error) => Verdict::Wrong(error),
    })
}

fn own_id(token: &Token) -> TokenId {
    *token.ids().last().expect("a token has a block")
}

fn sentences(token: &Token, verdict: &Verdict) -> String {
    let mut lines = Vec::new();
    for (index, (limits, id)) in token.limits().zip(token.ids()).enumerate() {
        let made = match index {
            0 => "issued",
            _ => "narrowed, besides",
        };
        let note = limits.note.as_ref().map(|note| format!(" ({note:?})"));
        lines.push(format!("{made} as {id}{}:", note.unwrap_or_default()));
        let said = limits.sentences();
        match said.is_empty() {
            true => lines.push("  no limit".to_owned()),
            false => lines.extend(said.iter().map(|sentence| format!("  {sentence}"))),
        }
    }
    lines.push(match verdict {
        Verdict::NotAsked => format!(
            "not verified: that takes the server's data directory (--directory); it says that key \
             {} issued it",
            token.issuer()
        ),
        Verdict::Right(_) => "verified: this server issued it, and it is not revoked".to_owned(),
        Verdict::Wrong(error) => format!("refused: {error}"),
    });
    lines.join("\n")
}

fn described(token: &Token, verdict: &Verdict) -> Value {
    let blocks: Vec<Value> = token
        .limits()
        .zip(token.ids())
        .map(|(limits, id)| {
            json!({
                "id": id.to_string(),
                "project": limits.project,
                "topics": limits.topics.as_ref().map(|topics| strings(topics)),
                "can": limits.verbs.map(|verbs| verbs.iter().map(Verb::name).collect::<Vec<_>>()),
                "not_before": limits.not_before.map(|time| time.to_string()),
                "expires": limits.expires.map(|time| time.to_string()),
                "networks": limits.networks.as_ref().map(|networks| strings(networks)),
                "bytes_per_second": limits.bytes_per_second,
                "directory": limits.instance.map(|id| id.to_string()),
                "once": limits.once,
                "note": limits.note,
            })
        })
        .collect();
    let (verified, why) = match verdict {
        Verdict::NotAsked => (None, None),
        Verdict::Right(_) => (Some(true), None),
        Verdict::Wrong(error) => (Some(false), Some(error.to_string())),
    };
    json!({
        "id": own_id(token).to_string(),
        "project": token.project(),
        "issuer": token.issuer().to_string(),
        "blocks": blocks,
        "verified": verified,
        "why": why,
    })
}

fn strings<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(T::to_string).collect()
}

fn seed() -> Seed {
    let mut seed = [0; SEED_BYTES];
    getrandom::fill(&mut seed).expect("the kernel gives random bytes once it has booted");
    Seed(seed)
}

fn refused(subject: &str) -> impl FnOnce(TokenError) -> Failure {
    move |error| Failure::usage(subject, error)
}

/// The token of a file, or of standard input, and what it is called.
fn read(file: Option<&Path>) -> Result<(Token, String), Failure> {
    let subject = match file {
        Some(path) => path.display().to_string(),
        None => "standard input".to_owned(),
    };
    let text = text(file, &subject)?;
    let token = Token::from_text(&text).map_err(refused(&subject))?;
    Ok((token, subject))
}

/// What a file, or standard input, holds.
fn text(file: Option<&Path>, subject: &str) -> Result<String, Failure> {
    let mut text = String::new();
    match file {
        Some(path) => {
            let opened = std::fs::File::open(path).about(subject)?;
            opened.take(FILE_BYTES_MAX).read_to_string(&mut text)
        }
        None => std::io::stdin()
            .lock()
            .take(FILE_BYTES_MAX)
            .read_to_string(&mut text),
    }
    .about(subject)?;
    Ok(text)
}

impl Directory {
    fn subject(&self) -> String {
        self.directory.display().to_string()
    }

    fn files(&self) -> Result<AccessFiles, Failure> {
        DataDirectory::access_at(&self.directory).about(self.subject())
    }
}

impl Destination {
    /// Writes a token to where it was asked for, and what it is to standard error.
    fn put(&self, token: &Token) -> Result<(), Failure> {
        let text = token.to_text();
        let id = own_id(token);
        let sentences: Vec<String> = token.limits().flat_map(Limits::sentences).collect();
        let mut output = Output::new(self.json);
        let mut value = json!({"id": id.to_string(), "limits": sentences});
        match &self.output {
            Some(path) => {
                write_new(path, &text)?;
                value["file"] = json!(path.display().to_string());
            }
            None => value["token"] = json!(text),
        }
        match (self.json, &self.output) {
            (true, _) => output.json(&value)?,
            (false, None) => output.line(&text)?,
            (false, Some(_)) => {}
        }
        output.flush()?;
        if !self.json {
            eprintln!("note: token {id}: {}", sentences.join("; "));
        }
        Ok(())
    }
}

/// Writes a token to a file that was not there, for its owner alone.
fn write_new(path: &PathBuf, text: &str) -> Result<(), Failure> {
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(format!("{text}\n").as_bytes())?;
        file.sync_all()
    };
    write().about(path.display().to_string())
}
