//! What stands between clients and the server of a run.
//!
//! ```text
//!  direct   clients ─────────────────────────────────────────────────────────► server
//!  proxied  clients ──► near proxy ══ TLS ══► far proxy ─────────────────────► server
//!  managed  clients ══ TLS ══► HAProxy, a balancer ══► HAProxy, by SNI ──────► server, over TLS if it speaks TLS
//!           clients ══ TLS ══► thalweg gateway ══════════════════════════════► server, which the gateway has made
//! ```
//!
//! [`Route::clients`] is the one URL that clients get, and [`Route::control`] the one by which the command makes and
//! removes what a run needs: past all of it, so that a proxy which has died leaves nothing behind on a server.

mod certificate;
mod gateway;
mod haproxy;
pub mod launch;
mod nginx;
mod process;
mod programs;
mod quota;
mod relay;
mod stunnel;
mod upstream;

use super::cpu;
use crate::failure::{About, Code, Failure};
use certificate::Certificate;
use gateway::Instance;
use haproxy::Haproxies;
use process::{Process, Starter};
use std::sync::atomic::AtomicBool;
use upstream::Ends;
pub use upstream::Upstream;
use workload::{Architecture, Backend, Entrance, Proxy, ProxyLog, Scenario, Url};

/// What stands between, which ends when this is dropped.
pub struct Route {
    clients: Url,
    control: Url,
    /// The nearest to the clients first: they end in this order.
    proxies: Vec<Process>,
    /// The server, where the route has made it.
    instance: Option<Instance>,
    /// Last: processes write into it.
    folder: Option<tempfile::TempDir>,
}

/// Whether a server is made by what stands before it, so that there is to be none.
pub fn makes_server(architecture: Architecture) -> bool {
    let gateway = Architecture::Managed {
        by: Entrance::Gateway,
    };
    architecture == gateway
}

/// Whether a server of one's own is to speak TLS.
pub fn wants_tls(architecture: Architecture) -> bool {
    matches!(architecture, Architecture::Managed { .. })
}

impl Route {
    /// Starts all that is to stand between, and waits until it is ready.
    pub fn start(scenario: &Scenario, is_interrupted: &AtomicBool) -> Result<Self, Failure> {
        let architecture = scenario.architecture;
        if architecture == Architecture::Direct {
            return Self::direct(server_of(scenario)?);
        }
        let folder = tempfile::tempdir().about("a temporary directory")?;
        let (cores_thousandths, log) = match architecture {
            Architecture::Proxied {
                cores_thousandths,
                log,
                ..
            } => (cores_thousandths, log),
            _ => (None, ProxyLog::Read),
        };
        let starter = Starter {
            folder: folder.path(),
            cores_thousandths,
            is_unread: log == ProxyLog::Unread,
            is_interrupted,
        };
        let mut route = match architecture {
            Architecture::Direct => unreachable!("nothing is started for it"),
            Architecture::Proxied { by, .. } => Self::proxied(scenario, by, &starter)?,
            Architecture::Managed {
                by: Entrance::Haproxy,
            } => Self::balanced(scenario, &starter)?,
            Architecture::Managed {
                by: Entrance::Gateway,
            } => Self::gateway(&starter, scenario.backend)?,
        };
        route.folder = Some(folder);
        Ok(route)
    }

    fn direct(server: Url) -> Result<Self, Failure> {
        Ok(Self {
            clients: server.clone(),
            control: server,
            proxies: Vec::new(),
            instance: None,
            folder: None,
        })
    }

    fn proxied(scenario: &Scenario, by: Proxy, starter: &Starter<'_>) -> Result<Self, Failure> {
        let control = server_of(scenario)?;
        let upstream = Upstream::new(scenario.backend, &control)?;
        let server = upstream.authority();
        let clients = clients_of(scenario);
        let (proxies, port) = match by {
            Proxy::Relay => relay::pair(starter, &server)?,
            Proxy::Haproxy => Haproxies::new(starter, clients)?.pair(&server)?,
            Proxy::Stunnel => stunnel::pair(starter, &server)?,
            Proxy::Nginx => nginx::pair(starter, &server, clients)?,
        };
        Ok(Self {
            clients: upstream.through(port, starter.folder)?,
            control,
            proxies,
            instance: None,
            folder: None,
        })
    }

    /// HAProxy before one that routes by SNI.
    fn balanced(scenario: &Scenario, starter: &Starter<'_>) -> Result<Self, Failure> {
        let control = server_of(scenario)?;
        let upstream = Upstream::new(scenario.backend, &control)?;
        let (server, name) = (upstream.authority(), upstream.name()?);
        let haproxies = Haproxies::new(starter, clients_of(scenario))?;
        let (proxies, clients) = match upstream.is_encrypted() {
            true => {
                let (proxies, port) = haproxies.entrance(&server, &name, None)?;
                (proxies, upstream.through(port, starter.folder)?)
            }
            false => {
                let certificate = Certificate::make(starter.folder)?;
                let name = certificate::NAME;
                let (proxies, port) = haproxies.entrance(&server, name, Some(&certificate))?;
                let ends = Ends {
                    authority: &certificate.authority,
                    fingerprint: certificate.fingerprint,
                };
                (proxies, upstream.through_tls(port, &ends, starter.folder)?)
            }
        };
        Ok(Self {
            clients,
            control,
            proxies,
            instance: None,
            folder: None,
        })
    }

    fn gateway(starter: &Starter<'_>, backend: Backend) -> Result<Self, Failure> {
        let service = gateway::start(starter, backend)?;
        Ok(Self {
            clients: service.url,
            control: service.inside,
            proxies: vec![service.gateway],
            instance: Some(service.instance),
            folder: None,
        })
    }

    /// By which clients reach the server.
    pub fn clients(&self) -> &Url {
        &self.clients
    }

    /// By which the server is reached past all that stands between.
    pub fn control(&self) -> &Url {
        &self.control
    }

    /// The process of the server, where the route has made it.
    pub fn server(&self) -> Option<u32> {
        self.instance.as_ref().map(|instance| instance.pid)
    }

    /// The processes between, with the name of each, the nearest to the clients first.
    pub fn processes(&self) -> impl Iterator<Item = (&str, u32)> {
        self.proxies.iter().map(|one| (&*one.name, one.id()))
    }

    /// CPU seconds of all that stands between so far; none if nothing does.
    pub fn cpu_seconds(&self) -> Option<f64> {
        if self.proxies.is_empty() {
            return None;
        }
        let groups: Vec<u32> = self.processes().map(|(_, group)| group).collect();
        let of_them = cpu::processes().filter(|one| groups.contains(&one.group));
        Some(of_them.map(|one| one.seconds).sum())
    }

    /// Fails if one has ended by itself, and says which and why.
    pub fn check(&self) -> Result<(), Failure> {
        self.proxies.iter().try_for_each(Process::check)
    }

    /// Ends all of it.
    pub fn stop(mut self) -> Result<(), Failure> {
        self.proxies.clear();
        self.instance = None;
        let folder = self.folder.take();
        let closed = folder.map(tempfile::TempDir::close).transpose();
        closed.about("a temporary directory").map(drop)
    }
}

fn server_of(scenario: &Scenario) -> Result<Url, Failure> {
    let url = scenario.url.clone();
    url.ok_or_else(|| Failure::new(Code::Usage, "url", "there is none"))
}

/// How many members the largest run has.
fn clients_of(scenario: &Scenario) -> u64 {
    let runs = scenario.runs();
    let counts = runs.iter().map(|run| run.producers + run.consumers);
    counts.max().unwrap_or(0)
}
