//! `thalweg relay scistream`: the calls of SciStream's clients.

use super::place::Place;
use crate::failure::{Code, Failure};
use crate::interrupt::on_interrupt;
use crate::output::{self, Output};
use clap::Args;
use gateway::{Introspection, Keys};
use scistream::{Allowed, Inbound, Options, Scistream, ScistreamError, SiteTokens, TrustNow};
use serde_json::json;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};

/// What `thalweg relay scistream` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "Beyond this host calls need TLS and a token (--tls-cert, --tls-key, --tokens). A token is made by \
    thalweg token new --directory DIRECTORY --project NAME --topics scistream --can manage, and is the metadata \
    authorization of a call."
)]
pub struct ScistreamArgs {
    /// Where to take calls
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:5000")]
    listen: SocketAddr,
    /// The certificate of --listen, and those that signed it, PEM: what s2uc has as --server_cert
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// A directory whose tokens are taken, of a server, a gateway or a new one [default: on this host none is asked for]
    #[arg(long, value_name = "DIRECTORY")]
    tokens: Option<PathBuf>,
    /// A command that reads a token of the site, as SciStream's clients send it, and prints, as JSON, whose it is
    #[arg(long, value_name = "WORDS")]
    introspect: Option<String>,
    /// Where to listen for the other site, as in 0.0.0.0:443, so that there are inbound sessions
    #[arg(long, value_name = "ADDR")]
    inbound: Option<String>,
    /// The name or address of this host as the other site reaches --inbound, with a port if that is another one
    /// [default: this host's name]
    #[arg(long, value_name = "HOST", requires = "inbound")]
    name: Option<Place>,
    /// The address of this host at which outbound sessions listen
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    listener_ip: IpAddr,
    /// Let --listener-ip be an address that other hosts reach, though nothing is encrypted there
    #[arg(long)]
    insecure_listen: bool,
    /// The ports at which they do, or 0 for whichever are free
    #[arg(long, value_name = "FIRST-LAST", default_value = "5100-5200", value_parser = ports)]
    ports: RangeInclusive<u16>,
    /// A place that may be dialled: HOST:PORT, with a network for the host or FIRST-LAST or * for the port; may be
    /// given several times
    #[arg(long, value_name = "HOST:PORT", required = true)]
    allow: Vec<Allowed>,
    /// The most that passes in a session each way, as in 200Mbit, 1Gbit or 50MB (a second); of this and what a client asks
    /// for the lower one counts
    #[arg(long, value_name = "RATE", value_parser = super::rate::parse)]
    rate: Option<u64>,
    /// Let outbound sessions lead to what is no relay of Thalweg, by TCP without encryption
    #[arg(long, alias = "scistream-plain")]
    plain: bool,
    /// Print the line that tells that it is ready as JSON
    #[arg(long)]
    json: bool,
}

fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let refuse = || format!("{text:?} is no FIRST-LAST, as 5100-5200 is, and not 0");
    let port = |text: &str| text.parse::<u16>().map_err(|_| refuse());
    match text.split_once('-') {
        Some((first, last)) => Ok(port(first)?..=port(last)?),
        None => {
            let only = port(text)?;
            Ok(only..=only)
        }
    }
}

pub fn run(args: ScistreamArgs) -> Result<(), Failure> {
    let about = |error: &ScistreamError| {
        let code = match error {
            ScistreamError::Usage(_) => Code::Usage,
            ScistreamError::System(_) => Code::Failure,
        };
        Failure::new(code, "scistream", error)
    };
    let json = args.json;
    let options = args.options()?;
    let (asked, end) = mpsc::channel();
    on_interrupt(move || {
        // Nobody waits any more once the start has failed.
        let _ = asked.send(());
    })?;
    let face = Scistream::start(options).map_err(|error| about(&error))?;
    let inbound = face.inbound();
    let mut text = format!("takes calls at {}", face.address());
    if let Some(inbound) = inbound {
        text.push_str(&format!(", and the other site at {inbound}"));
    }
    let mut out = Output::new(json);
    let ready = json!({
        "event": "ready",
        "address": face.address().to_string(),
        "inbound": inbound.map(|address| address.to_string()),
    });
    out.either(&ready, &text)?;
    out.flush()?;
    drop(out);
    // It lasts until it is asked to end; the sender lives as long as the signals' thread.
    let _ = end.recv();
    face.stop();
    Ok(())
}

/// By the command that the gateway asks with, too.
fn site_tokens(command: Vec<String>) -> SiteTokens {
    let report = gateway::Report::new(output::report);
    let introspection = Arc::new(Introspection::new(command, report));
    Arc::new(move |token| {
        let introspection = introspection.clone();
        Box::pin(async move {
            let holder = introspection.holder(&token).await;
            holder.map(|holder| holder.project)
        })
    })
}

impl ScistreamArgs {
    fn options(self) -> Result<Options, Failure> {
        if !self.insecure_listen && !self.listener_ip.to_canonical().is_loopback() {
            let why = format!(
                "{} can be reached from other hosts, and nothing is encrypted there: \
                 --insecure-listen allows it",
                self.listener_ip
            );
            return Err(Failure::usage("--listener-ip", why));
        }
        let trust = match &self.tokens {
            None => None,
            Some(directory) => {
                let subject = directory.display().to_string();
                let keys = Keys::open(directory);
                let keys = keys.map_err(|error| Failure::new(Code::Failure, &subject, error))?;
                let trust: TrustNow = Arc::new(move || keys.trust());
                Some(trust)
            }
        };
        let words = self.introspect.iter();
        let words = words.flat_map(|words| words.split_ascii_whitespace());
        let words: Vec<String> = words.map(str::to_owned).collect();
        let site = (!words.is_empty()).then(|| site_tokens(words));
        let inbound = self.inbound.map(|listen| {
            let name = self.name.unwrap_or_else(|| Place {
                host: super::host_name(),
                port: None,
            });
            Inbound {
                listen,
                host: name.host,
                port: name.port,
            }
        });
        Ok(Options {
            listen: self.listen,
            certificate: self.tls_cert.zip(self.tls_key),
            trust,
            site,
            inbound,
            listener_ip: self.listener_ip,
            ports: self.ports,
            allowed: self.allow,
            rate: self.rate,
            plain: self.plain,
            report: Arc::new(output::report),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_a_range_or_any() {
        assert_eq!(ports("5100-5200"), Ok(5100..=5200));
        assert_eq!(ports("0"), Ok(0..=0));
        for text in ["", "-", "a", "1-", "1-70000", "1-2-3"] {
            assert!(ports(text).is_err(), "{text}");
        }
    }
}
