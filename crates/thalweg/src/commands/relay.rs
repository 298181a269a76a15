//! `thalweg relay`: tunnels and mirrors between two sites, and ends of other protocols.

mod args;
mod ends;
mod mirror;
pub mod place;
pub mod rate;
mod report;
mod scistream;

pub use args::RelayCommand;

use crate::failure::{About, Code, Failure};
use crate::interrupt::on_interrupt;
use args::{JoinArgs, OfferArgs};
use place::Place;
use relay::{Destination, JoinOptions, Offer, OfferOptions, Relay, RelayError, Way};
use report::Report;
use std::io::BufRead;

pub fn run(command: RelayCommand) -> Result<(), Failure> {
    // Each connection takes two, and the usual limit of a user is 1,024.
    let _ = server::raise_limit_of_files();
    match command {
        RelayCommand::Offer(args) => offer(args),
        RelayCommand::Join(args) => join(args),
        RelayCommand::Scistream(args) => scistream::run(args),
        RelayCommand::Mirror(args) => mirror::run(args),
        RelayCommand::Promote(args) => mirror::promote(&args),
        RelayCommand::Source(args) => ends::source(&args),
        RelayCommand::Sink(args) => ends::sink(&args),
    }
}

fn offer(args: OfferArgs) -> Result<(), Failure> {
    let (way, mut place) = match args.meet {
        Some(place) => (Way::Meets(destination(&place)), place),
        None => {
            let name = args.name.clone().unwrap_or_else(host_name);
            let place = name.parse().about_usage("--name")?;
            (Way::Listens(args.listen.clone()), place)
        }
    };
    let offer = Offer::start(OfferOptions {
        targets: args.targets.clone(),
        binds: args.both.bind.clone(),
        insecure_listen: args.both.insecure_listen,
        way,
        name: place.host.clone(),
        rate: args.both.rate,
        stripes: args.streams,
        lasts: args.lasts,
        certificate: args.tls_cert.zip(args.tls_key),
    });
    let offer = offer.map_err(|error| failure("offer", &error))?;
    stop_on_interrupt(&offer.relay)?;
    let own = offer.address.map(|address| address.port());
    place.port = place.port.or(own);
    let mut report = Report::new(args.both.json);
    let join = format!("{}@{place}", offer.code.to_text());
    report.offered(&join, offer.address, &args.targets)?;
    follow("offer", &offer.relay, report)
}

fn destination(place: &Place) -> Destination {
    Destination {
        host: place.host.clone(),
        port: place.port(),
        proxies: net::Proxies::from_environment(),
    }
}

fn join(args: JoinArgs) -> Result<(), Failure> {
    let typed = match args.code.as_str() {
        "-" => {
            let mut line = String::new();
            std::io::stdin()
                .lock()
                .read_line(&mut line)
                .about("standard input")?;
            line
        }
        typed => typed.to_owned(),
    };
    let (code, place) = typed
        .trim()
        .rsplit_once('@')
        .ok_or_else(|| Failure::usage("join", "it takes what the offer printed, CODE@HOST"))?;
    let place: Place = place.parse().about_usage("join")?;
    let relay = relay::join(JoinOptions {
        code: code
            .parse()
            .map_err(|error| Failure::usage("join", error))?,
        place: destination(&place),
        targets: args.expose,
        binds: args.both.bind,
        insecure_listen: args.both.insecure_listen,
        rate: args.both.rate,
        stripes: args.streams,
        authorities: args.ca,
    });
    let relay = relay.map_err(|error| failure(&place.to_string(), &error))?;
    stop_on_interrupt(&relay)?;
    follow("join", &relay, Report::new(args.both.json))
}

/// From the first line that it prints on, no signal ends it without its last account.
fn stop_on_interrupt(relay: &Relay) -> Result<(), Failure> {
    let stopper = relay.stopper();
    on_interrupt(move || stopper.stop())
}

/// Reports until the relay ends.
fn follow(what: &str, relay: &Relay, mut report: Report) -> Result<(), Failure> {
    loop {
        if let Some(event) = relay.event(report.until_account())
            && let Some(ended) = report.event(event)?
        {
            report.account(&relay.account(), true)?;
            return ended.map_err(|error| failure(what, &error));
        }
        report.account(&relay.account(), false)?;
    }
}

fn failure(subject: &str, error: &RelayError) -> Failure {
    let code = match error {
        RelayError::Usage(_) => Code::Usage,
        RelayError::Unreachable(_) | RelayError::NobodyWaits(_) => Code::NoServer,
        _ => Code::Failure,
    };
    Failure::new(code, subject, error)
}

fn host_name() -> String {
    let names = rustix::system::uname();
    names.nodename().to_string_lossy().into_owned()
}

trait AboutUsage<T> {
    fn about_usage(self, subject: &str) -> Result<T, Failure>;
}

impl<T> AboutUsage<T> for Result<T, String> {
    fn about_usage(self, subject: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure::usage(subject, error))
    }
}
