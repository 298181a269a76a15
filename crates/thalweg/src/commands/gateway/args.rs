//! What `thalweg gateway` takes.

use crate::connection::seconds;
use crate::failure::Failure;
use access::Network;
use clap::Args;
use gateway::{Launch, Limits, Meetings, Mode, Options, Report, SiteFiles};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// What `thalweg gateway` takes.
#[derive(Debug, Args)]
pub struct GatewayArgs {
    /// The gateway's directory, which it makes if it is not there: keys, instances, archive
    directory: PathBuf,
    /// The name of the gateway's own interface, as in api.stream.site.org
    #[arg(long, value_name = "HOST")]
    name: String,
    /// The domain of instances: PROJECT-NAME.DOMAIN is one
    #[arg(long, value_name = "HOST")]
    domain: String,
    /// Where to listen; may be given several times
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:443")]
    listen: Vec<SocketAddr>,
    /// What clients dial, where names of the domain do not lead to the gateway: URLs have it, and the name beside it
    #[arg(long, value_name = "HOST[:PORT]", value_parser = dialled)]
    dialled: Option<Dialled>,
    /// End the TLS of connections to instances, with one certificate for *.DOMAIN, instead of passing it on
    #[arg(long)]
    end_tls: bool,
    /// The site's certificate, and those that it was signed with, in a file (PEM) [default: one of the gateway's own
    /// authority, tls/authority.pem of its directory]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert, in a file (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The address of this host at which instances listen, besides for clients that are inside
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    inside: String,
    /// Words before the command of an instance's server, as in 'srun -J {label} -c {cpus}'; {project}, {name},
    /// {cpu_percent} and {ram_gbs} are known as well, and quotes are not
    #[arg(long, value_name = "WORDS")]
    launcher: Option<String>,
    /// A command that reads a token of the site and prints, as JSON, whose it is
    #[arg(long, value_name = "WORDS")]
    introspect: Option<String>,
    /// A command that is called when an instance serves for the first time, with THALWEG_URL, THALWEG_TOKEN,
    /// THALWEG_PROJECT, THALWEG_INSTANCE and THALWEG_EXPIRES
    #[arg(long, value_name = "WORDS")]
    on_ready: Option<String>,
    /// Let instances go on when the gateway ends in order, for the next one to take up
    #[arg(long)]
    leave_instances: bool,
    /// Let relays of two sites meet here (thalweg relay offer --meet): those that offer come from this network, as in
    /// 10.1.0.0/16, or from anywhere with `any`; may be given several times [default: none may]
    #[arg(long, value_name = "NETWORK")]
    meet: Vec<Meet>,
    /// Print the line that tells that it is ready as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    bounds: Bounds,
}

/// How much it takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Bounds")]
struct Bounds {
    /// Connections at once
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().connections_max)]
    connections_max: usize,
    /// Connections that have not said whom they mean; the oldest is dropped where one more comes
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().half_open_max)]
    half_open_max: usize,
    /// For how long a connection may not have said so, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    hello_timeout: f64,
    /// For how long nothing may pass on a connection, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3600.0, value_parser = seconds)]
    idle_timeout: f64,
    /// How long a connection, or a request that makes an instance, waits for it to serve, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 15.0, value_parser = seconds)]
    wait: f64,
    /// Stop an instance that nobody was connected to for so long, seconds; the next connection starts it [default:
    /// never]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    rest_after: Option<f64>,
    /// Pairs of relays that meet, with --meet
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().meetings_max)]
    meetings_max: usize,
    /// Instances
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().instances_max)]
    instances_max: usize,
    /// Instances of one project
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().project_instances_max)]
    project_instances_max: usize,
    /// Processors of one instance
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().cpus_max)]
    cpus_max: u32,
    /// Memory of one instance, GiB
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().ram_gbs_max)]
    ram_gbs_max: u32,
}

impl GatewayArgs {
    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The options of a gateway whose instances are started with `program serve`.
    pub fn options(&self, program: &str, report: Report) -> Result<Options, Failure> {
        let certificate = self.tls_cert.clone().zip(self.tls_key.clone());
        Ok(Options {
            directory: self.directory.clone(),
            listen: self.listen.clone(),
            api: self.name.clone(),
            domain: self.domain.clone(),
            dialled: self.dialled.clone(),
            mode: match self.end_tls {
                true => Mode::End,
                false => Mode::Pass,
            },
            meetings: meetings(&self.meet),
            certificate: certificate.map(|(certificate, key)| SiteFiles { certificate, key }),
            launch: Launch {
                program: vec![program.to_owned(), "serve".to_owned()],
                launcher: self.launcher.as_deref().map(words).unwrap_or_default(),
                inside: self.inside.clone(),
                plain: self.end_tls,
            },
            introspect: command("--introspect", self.introspect.as_deref())?,
            on_ready: command("--on-ready", self.on_ready.as_deref())?,
            leave_instances: self.leave_instances,
            limits: self.bounds.limits(),
            report,
        })
    }
}

impl Bounds {
    fn limits(&self) -> Limits {
        let time = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        Limits {
            connections_max: self.connections_max,
            half_open_max: self.half_open_max,
            hello: time(self.hello_timeout),
            idle: time(self.idle_timeout).min(YEAR),
            wait: time(self.wait).min(YEAR),
            meetings_max: self.meetings_max,
            instances_max: self.instances_max,
            project_instances_max: self.project_instances_max,
            cpus_max: self.cpus_max,
            ram_gbs_max: self.ram_gbs_max,
            rest: self.rest_after.map(time),
            ..Limits::default()
        }
    }
}

/// Clocks count no further than some centuries.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Where relays come from that may wait for others.
#[derive(Debug, Clone)]
enum Meet {
    Any,
    From(Network),
}

impl FromStr for Meet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "any" => Ok(Self::Any),
            network => network.parse().map(Self::From),
        }
    }
}

fn meetings(meet: &[Meet]) -> Option<Meetings> {
    let network = |meet: &Meet| match meet {
        Meet::Any => None,
        Meet::From(network) => Some(*network),
    };
    let networks: Option<Vec<Network>> = meet.iter().map(network).collect();
    match networks {
        None => Some(Meetings::OfAnybody),
        Some(networks) => (!networks.is_empty()).then_some(Meetings::Of(networks)),
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn command(option: &str, text: Option<&str>) -> Result<Option<Vec<String>>, Failure> {
    let words = text.map(words);
    match words.as_ref().is_some_and(Vec::is_empty) {
        true => Err(Failure::usage(option, "names no command")),
        false => Ok(words),
    }
}

fn dialled(text: &str) -> Result<Dialled, String> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().map(Some)),
        None => (text, Ok(None)),
    };
    let is_host = !host.is_empty() && !host.contains(['/', '@', '?', '#', ' ']);
    match (is_host, port) {
        (true, Ok(port)) => Ok((host.to_owned(), port)),
        _ => Err("is a host, and a port behind it, as in gate.site.org:443".to_owned()),
    }
}

type Dialled = (String, Option<u16>);
