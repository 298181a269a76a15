//! What can be chosen, with the defaults in one place.

use crate::certificate::SiteFiles;
use crate::error::GatewayError;
use crate::names::is_host;
use crate::report::Report;
use access::Network;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Who ends the TLS of connections to instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The instance: the gateway passes bytes, and has no key to read them with.
    #[default]
    Pass,
    /// The gateway, with one certificate for all instances; it passes what it decrypts to the instance on this
    /// host.
    End,
}

/// Who may meet whom at the gateway, of relays of two sites that nobody reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meetings {
    /// Anybody meets anybody.
    OfAnybody,
    /// Those who offer come from one of these networks; who joins comes from anywhere.
    Of(Vec<Network>),
}

impl Meetings {
    /// Whether one from there may wait for who joins.
    pub(crate) fn may_offer(&self, from: IpAddr) -> bool {
        match self {
            Self::OfAnybody => true,
            Self::Of(networks) => networks.iter().any(|network| network.has(from)),
        }
    }
}

/// How the server of an instance is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The program, and what comes before the data directory: `thalweg serve`.
    pub program: Vec<String>,
    /// Words before that, such as `srun` with its options; `{label}`, `{project}`, `{name}`, `{cpus}`,
    /// `{cpu_percent}` and `{ram_gbs}` are replaced.
    pub launcher: Vec<String>,
    /// The address at which instances listen for clients that are inside, without a port.
    pub inside: String,
    /// Whether they listen without TLS on this host, for a gateway that ends it.
    pub plain: bool,
}

/// How much a gateway takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once.
    pub connections_max: usize,
    /// Connections that have not said whom they mean; the oldest is dropped where one more comes.
    pub half_open_max: usize,
    /// For how long one may not have said so.
    pub hello: Duration,
    /// For how long nothing may pass on a connection.
    pub idle: Duration,
    /// How long a connection waits for its instance to serve.
    pub wait: Duration,
    /// Connections that wait to meet another one; at the bound one of the address that has most is dropped.
    pub meeting_waiting_max: usize,
    /// Pairs of them that have met.
    pub meetings_max: usize,
    /// How long an offer waits until it has to come again; who joins waits half as long for one.
    pub meeting_wait: Duration,
    /// Instances, and instances of one project.
    pub instances_max: usize,
    /// Instances of one project.
    pub project_instances_max: usize,
    /// Processors of one instance.
    pub cpus_max: u32,
    /// Memory of one instance, GiB.
    pub ram_gbs_max: u32,
    /// How long the start of an instance may take.
    pub start: Duration,
    /// How long its end may take before it is forced.
    pub stop: Duration,
    /// Without a connection for so long an instance is stopped; `None` is never.
    pub rest: Option<Duration>,
    /// How often instances are looked at for that, and for the end of their time.
    pub look: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 4096,
            half_open_max: 256,
            hello: Duration::from_secs(5),
            idle: Duration::from_secs(3600),
            wait: Duration::from_secs(15),
            meeting_waiting_max: 256,
            meetings_max: 256,
            meeting_wait: Duration::from_secs(20),
            instances_max: 256,
            project_instances_max: 8,
            cpus_max: 64,
            ram_gbs_max: 256,
            start: Duration::from_secs(60),
            stop: Duration::from_secs(45),
            rest: None,
            look: Duration::from_secs(10),
        }
    }
}

/// What a gateway is started with.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its directory.
    pub directory: PathBuf,
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    /// The name by which its own interface is reached.
    pub api: String,
    /// The domain whose names are those of instances.
    pub domain: String,
    /// Host that clients dial, where names of the domain do not lead here, and the port, if it is another one.
    pub dialled: Option<(String, Option<u16>)>,
    /// Who ends TLS.
    pub mode: Mode,
    /// Which relays may meet here; `None` is none.
    pub meetings: Option<Meetings>,
    /// The site's certificate for the interface, and in mode [`Mode::End`] for instances.
    pub certificate: Option<SiteFiles>,
    /// How instances are started.
    pub launch: Launch,
    /// A command that says who the holder of a token of the site is.
    pub introspect: Option<Vec<String>>,
    /// A command that is called when an instance serves for the first time.
    pub on_ready: Option<Vec<String>>,
    /// Whether instances go on when the gateway ends.
    pub leave_instances: bool,
    /// How much it takes.
    pub limits: Limits,
    /// Where lines for the operator go.
    pub report: Report,
}

impl Options {
    /// Checks what each option alone cannot say.
    ///
    /// # Errors
    /// Names the option.
    pub fn check(&self) -> Result<(), GatewayError> {
        let refuse = |option, why: String| Err(GatewayError::Option(option, why));
        for (option, name) in [("--name", &self.api), ("--domain", &self.domain)] {
            if !is_host(name) {
                let why = "is no name of a host: labels of small letters, digits and -, with dots between them";
                return refuse(option, format!("{name:?} {why}"));
            }
        }
        let of_domain = self
            .api
            .strip_suffix(&self.domain)
            .and_then(|rest| rest.strip_suffix('.'));
        if of_domain.is_some_and(|label| label.contains('-') && !label.contains('.')) {
            let why = "would be the name of an instance; give the interface one without -";
            return refuse("--name", format!("{} {why}", self.api));
        }
        if self.listen.is_empty() {
            return refuse("--listen", "there is no address to listen at".to_owned());
        }
        if self.launch.program.is_empty() {
            return refuse(
                "--program",
                "there is no program to start instances with".to_owned(),
            );
        }
        let limits = &self.limits;
        for (option, value) in [
            ("--connections-max", limits.connections_max),
            ("--half-open-max", limits.half_open_max),
            ("--meetings-max", limits.meetings_max),
            ("--instances-max", limits.instances_max),
            ("--project-instances-max", limits.project_instances_max),
            ("--cpus-max", limits.cpus_max as usize),
            ("--ram-gbs-max", limits.ram_gbs_max as usize),
        ] {
            if value == 0 {
                return refuse(option, "is at least 1".to_owned());
            }
        }
        Ok(())
    }
}
