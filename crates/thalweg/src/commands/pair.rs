//! `thalweg pair`: certificates for services and for other sites, by a one-time code.

mod args;
mod file;
mod greeting;

pub use args::PairCommand;

use crate::commands::relay::place::Place;
use crate::failure::{About, Code, Failure};
use crate::output::Output;
use access::{Pairing, UnixTime, prove_pairing, verify_pairing};
use args::{JoinArgs, OfferArgs, RenewArgs, ShowArgs};
use file::CredentialFile;
use greeting::Greeting;
use net::{Fingerprint, Trust};
use rcgen::{CertificateParams, KeyPair};
use serde_json::json;
use std::io::BufRead;
use std::path::absolute;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wire::codec::Codec;
use wire::frame::FrameKind;
use wire::message::{
    Authenticate, Authenticated, CERTIFICATE, OfferPairing, PAIRING, Pair, Paired,
    RENEW_CERTIFICATE,
};

pub fn run(command: &PairCommand) -> Result<(), Failure> {
    match command {
        PairCommand::Offer(args) => offer(args),
        PairCommand::Join(args) => join(args),
        PairCommand::Renew(args) => renew(args),
        PairCommand::Show(args) => show(args),
    }
}

fn offer(args: &OfferArgs) -> Result<(), Failure> {
    let connection = &args.client.connection;
    let driver = connection.driver()?;
    let asked = OfferPairing {
        project: args.project.clone(),
        name: args.name.clone(),
        life_ms: u64::try_from(args.lasts.as_millis()).unwrap_or(u64::MAX),
    };
    let offered = driver.offer_pairing(&asked).about(connection.subject())?;
    let place = connection.tls_authority();
    let join = format!(
        "{}@{}",
        offered.code,
        place.as_deref().unwrap_or("HOST:PORT")
    );
    let minutes = offered.lasts_ms / 60_000;
    let mut output = Output::new(args.client.json);
    let value = json!({
        "join": join,
        "code": offered.code,
        "holder": offered.holder,
        "lasts_seconds": offered.lasts_ms / 1000,
    });
    output.either(&value, &join)?;
    output.flush()?;
    if !args.client.json {
        eprintln!(
            "note: for {}; good once, for {minutes} minutes. There: thalweg pair join {join}",
            offered.holder
        );
    }
    Ok(())
}

fn join(args: &JoinArgs) -> Result<(), Failure> {
    let typed = match args.code.as_str() {
        "-" => {
            let mut line = String::new();
            let mut stdin = std::io::stdin().lock();
            stdin.read_line(&mut line).about("standard input")?;
            line
        }
        typed => typed.to_owned(),
    };
    let (code, place) = typed
        .trim()
        .rsplit_once('@')
        .ok_or_else(|| Failure::usage("join", "it takes what the offer printed, CODE@HOST"))?;
    let code: access::Code = code
        .parse()
        .map_err(|error| Failure::usage("join", error))?;
    let place: Place = place
        .parse()
        .map_err(|why: String| Failure::usage("join", why))?;
    let file = CredentialFile::new(&args.output, args.replace)?;

    let key = KeyPair::generate().map_err(|error| Failure::new(Code::Failure, "join", error))?;
    let request = CertificateParams::default().serialize_request(&key);
    let request = request.map_err(|error| Failure::new(Code::Failure, "join", error))?;
    let request = request.der().to_vec();

    let address = format!("tls://{}", place.with_port());
    // Who answers is verified by the code; by an authority besides, where one is named.
    let trust = match &args.tls_ca {
        Some(path) => Trust::Authorities(path.clone()),
        None => Trust::ByOtherProof,
    };
    let mut greeting = Greeting::connect(&address, Some(trust), None)?;
    let server = greeting.server();
    let own = server.first().cloned().unwrap_or_default();
    let proof = prove_pairing(&code, &own, Pairing::Joins(&request));
    let pair = Pair {
        proof: proof.to_vec().into(),
        request: request.into(),
    };
    greeting.hello(PAIRING, pair.to_bytes());
    let answer = greeting.hear(FrameKind::Reply)?;
    let paired = Paired::from_bytes("paired", &answer.head)
        .map_err(|error| greeting.failed(Code::Failure, &error.to_string()))?;
    let given = paired.certificates.first().cloned().unwrap_or_default();
    if !verify_pairing(&code, &own, Pairing::Offers(&given), &paired.proof) {
        let why =
            "who answers does not know the code: somebody may sit in between. Nothing was written";
        return Err(greeting.failed(Code::Failure, why));
    }

    // Whom to trust from now on: the authority that has signed both, or what the site has.
    let authority = paired.certificates.last();
    let trust = match (&args.tls_ca, authority) {
        (_, Some(authority)) if server.last() == Some(authority) && server.len() > 1 => {
            format!("sha256={}", Fingerprint::of_der(authority))
        }
        (Some(path), _) => {
            let path = absolute(path).about(path.display().to_string())?;
            format!("ca={}", path.display())
        }
        (None, _) => format!("sha256={}", Fingerprint::of_der(&own)),
    };
    let address = format!("{address}?{trust}");
    let text = format!(
        "# {}: a key and its certificate. Who has this file is its holder.\n{address}\n{}{}",
        paired.holder,
        key.serialize_pem(),
        net::certificates_pem(&paired.certificates)
    );
    file.write(&text)?;
    let shown = file.certificate(&text)?;
    let mut output = Output::new(args.json);
    let path = args.output.display().to_string();
    let said = format!(
        "paired as {}; the certificate is in {path}, good until {}, and renewed by the programs that use it\n\
         use it by: export THALWEG_CREDENTIAL={path}",
        paired.holder,
        shown.expires()
    );
    let value = json!({
        "holder": paired.holder,
        "file": path,
        "address": address,
        "expires": shown.expires().to_string(),
        "id": shown.ids()[0].to_string(),
    });
    output.either(&value, &said)?;
    output.flush()
}

fn renew(args: &RenewArgs) -> Result<(), Failure> {
    let subject = args.paired.file.display().to_string();
    let file = CredentialFile::at(&args.paired.file);
    let text = file.read()?;
    let address = file.address(&text)?;
    let mut greeting = Greeting::connect(&address, None, Some(text.as_bytes()))?;
    greeting.hello(CERTIFICATE, Vec::new());
    let heard = |greeting: &mut Greeting| {
        let said = greeting.hear(FrameKind::Authenticate)?;
        let said = Authenticated::from_bytes("authenticated", &said.head);
        said.map_err(|error| greeting.failed(Code::Failure, &error.to_string()))
    };
    let mut said = heard(&mut greeting)?;
    let is_due = said.renew_in_ms == 0 || !args.if_due;
    if is_due {
        let asked = Authenticate {
            mechanism: RENEW_CERTIFICATE.to_owned(),
            proof: Default::default(),
        };
        greeting.say(FrameKind::Authenticate, asked.to_bytes());
        said = heard(&mut greeting)?;
        if !said.refused.is_empty() {
            return Err(greeting.failed(Code::Failure, &said.refused));
        }
        file.write(&CredentialFile::with_certificates(&text, &said.issued))?;
    }
    let shown = file.certificate(&file.read()?)?;
    let mut output = Output::new(args.json);
    let expires = shown.expires();
    let value = json!({"file": subject, "renewed": is_due, "expires": expires.to_string()});
    let said = match is_due {
        true => format!("renewed: {subject} is good until {expires}"),
        false => format!("not due: {subject} is good until {expires}"),
    };
    output.either(&value, &said)?;
    output.flush()
}

fn show(args: &ShowArgs) -> Result<(), Failure> {
    let file = CredentialFile::at(&args.paired.file);
    let text = file.read()?;
    let shown = file.certificate(&text)?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let is_over = UnixTime(now.as_nanos() as u64) >= shown.expires();
    let address = file.address(&text).ok();
    let mut output = Output::new(args.json);
    let value = json!({
        "holder": shown.holder().uri(),
        "project": shown.holder().project(),
        "name": shown.holder().name(),
        "expires": shown.expires().to_string(),
        "is_over": is_over,
        "life_seconds": shown.life().as_secs(),
        "id": shown.ids()[0].to_string(),
        "address": address,
    });
    let hours = Duration::from_secs(shown.life().as_secs());
    let said = format!(
        "{}\n  a member of project {}, named {}\n  {} until {}, for {hours:?} each time\n  revoked by \
         `thalweg token revoke {}`\n  at {}",
        shown.holder().uri(),
        shown.holder().project(),
        shown.holder().name(),
        if is_over { "was good" } else { "good" },
        shown.expires(),
        shown.ids()[0],
        address
            .as_deref()
            .unwrap_or("no server that the file names"),
    );
    output.either(&value, &said)?;
    output.flush()
}
