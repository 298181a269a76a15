//! A gateway that runs: the start, in order, and the end.

use crate::api::{Interface, Shared};
use crate::certificate::Certificate;
use crate::clock::Clock;
use crate::directory::Directory;
use crate::error::GatewayError;
use crate::files;
use crate::half_open::HalfOpen;
use crate::hook::OnReady;
use crate::ingress::{Counters, Ingress, RareLines};
use crate::instances::Instances;
use crate::introspection::Introspection;
use crate::keeper::Surroundings;
use crate::keys::Keys;
use crate::options::{Mode, Options};
use crate::pairing::Pairing;
use crate::way::Ways;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

/// How often certificates are looked at.
const CERTIFICATES: Duration = Duration::from_secs(10);
/// The file that says where it listens, while it does.
const FOUND: &str = "gateway.json";
/// How long tasks may take to end.
const ENDING: Duration = Duration::from_secs(5);

/// A gateway that runs, on threads of its own.
pub struct Gateway {
    /// The file that says where it listens.
    found: PathBuf,
    runtime: Option<Runtime>,
    interface: Shared,
    instances: Arc<Instances>,
    addresses: Vec<SocketAddr>,
    counters: Arc<Counters>,
    half_open: Arc<HalfOpen>,
    pairing: Option<Arc<Pairing>>,
    clock: Clock,
}

impl Gateway {
    /// Starts a gateway: it listens, and takes up the instances of before.
    ///
    /// # Errors
    /// Names the option, file or address that is in the way.
    pub fn start(options: Options) -> Result<Self, GatewayError> {
        options.check()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("gateway")
            .enable_all()
            .build()
            .map_err(|error| GatewayError::System("starting threads".to_owned(), error))?;
        let _within = runtime.enter();
        let directory = Directory::open(&options.directory)?;
        let keys = Keys::open(directory.path())?;
        let mut names = vec![options.api.clone()];
        if options.mode == Mode::End {
            names.push(format!("*.{}", options.domain));
        }
        let certificate = Certificate::open(
            directory.path(),
            names,
            options.certificate.clone(),
            SystemTime::now(),
        )?;
        let api_tls = certificate.config(&[b"http/1.1"])?;
        // Clients of AMQP name no protocol, ours names its own.
        let instance_tls = certificate.config(&[b"thalweg/1"])?;
        let listeners = listen(&options.listen)?;
        let addresses: Vec<_> = listeners
            .iter()
            .filter_map(|one| one.local_addr().ok())
            .collect();
        let port = addresses.first().map_or(443, SocketAddr::port);
        let certificate = Arc::new(RwLock::new(certificate));
        let dialled = options.dialled.clone();
        let dialled = dialled.map(|(host, own)| (host, own.unwrap_or(port)));
        let ways = Ways {
            domain: options.domain.clone(),
            port: dialled.as_ref().map_or(port, |(_, port)| *port),
            dialled: dialled.map(|(host, port)| format!("{host}:{port}")),
            mode: options.mode,
            certificate: certificate.clone(),
        };
        let clock = Clock::start();
        let (limits, report) = (options.limits, options.report.clone());
        let on_ready = options.on_ready.clone().map(|command| {
            let ways = ways.clone();
            Arc::new(OnReady { command, ways })
        });
        let mut launch = options.launch.clone();
        launch.plain = options.mode == Mode::End;
        let around = Surroundings {
            directory: Arc::new(directory),
            launch: Arc::new(launch),
            domain: options.domain.clone(),
            on_ready,
            leave_instances: options.leave_instances,
            limits,
            clock: clock.clone(),
            report: report.clone(),
        };
        let instances = Instances::open(options.api.clone(), around)?;
        let introspect = options.introspect.clone();
        let interface = Shared(Arc::new(Interface {
            instances: instances.clone(),
            keys,
            introspection: introspect.map(|command| Introspection::new(command, report.clone())),
            ways,
            host: options.api.clone(),
            limits,
            clock: clock.clone(),
            report: report.clone(),
        }));
        let pairing = options.meetings.clone();
        let pairing = pairing.map(|meetings| {
            let pairing = Pairing::new(meetings, &limits, report.clone());
            Arc::new(pairing)
        });
        let ingress = Arc::new(Ingress {
            instances: instances.clone(),
            api: interface.clone(),
            api_tls,
            instance_tls,
            mode: options.mode,
            limits,
            pairing: pairing.clone(),
            half_open: HalfOpen::new(limits.half_open_max),
            places: Arc::new(Semaphore::new(limits.connections_max)),
            counters: Arc::default(),
            clock: clock.clone(),
            report: report.clone(),
            rare: RareLines::default(),
        });
        let (counters, half_open) = (ingress.counters.clone(), ingress.half_open.clone());
        for listener in listeners {
            runtime.spawn(ingress.clone().accept(listener));
        }
        runtime.spawn(look_at_certificate(certificate.clone(), report));
        let found = options.directory.join(FOUND);
        let hash = certificate.read().expect("no holder panics").hash();
        write_found(&found, &addresses, &hash)?;
        drop(_within);
        Ok(Self {
            found,
            runtime: Some(runtime),
            interface,
            instances,
            addresses,
            counters,
            half_open,
            pairing,
            clock,
        })
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The SHA-256 by which its interface is known.
    pub fn certificate(&self) -> String {
        let ways = &self.interface.0.ways;
        ways.certificate.read().expect("no holder panics").hash()
    }

    /// What happened to connections.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Connections that have not said whom they mean.
    pub fn half_open(&self) -> usize {
        self.half_open.count()
    }

    /// Connections that wait to meet another one.
    pub fn waiting(&self) -> usize {
        let pairing = self.pairing.as_ref();
        pairing.map_or(0, |pairing| pairing.waiting())
    }

    /// Instances that there are.
    pub fn instances(&self) -> usize {
        self.instances.count()
    }

    /// Whose tokens its interface takes.
    pub fn keys(&self) -> &Keys {
        &self.interface.0.keys
    }

    /// Its time.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Ends it: no connection is taken any more, instances end in order or are left, as the options say.
    pub fn stop(mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.block_on(self.instances.leave());
            runtime.shutdown_timeout(ENDING);
            // It says where nobody listens any more; that it cannot be removed is no reason to fail.
            let _ = std::fs::remove_file(&self.found);
        }
    }
}

impl Drop for Gateway {
    /// As after a death: instances go on.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Where the gateway is, for programs of its host. Has no secret.
fn write_found(path: &Path, addresses: &[SocketAddr], hash: &str) -> Result<(), GatewayError> {
    let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    let value = serde_json::json!({
        "addresses": addresses,
        "certificate": hash,
        "pid": std::process::id(),
    });
    files::write(path, format!("{value:#}\n").as_bytes())
}

fn listen(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, GatewayError> {
    let listen = |address: &SocketAddr| {
        let bound = std::net::TcpListener::bind(address);
        let listener = bound.and_then(|listener| {
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        });
        listener.map_err(|error| GatewayError::System(format!("listening at {address}"), error))
    };
    addresses.iter().map(listen).collect()
}

async fn look_at_certificate(certificate: Arc<RwLock<Certificate>>, report: crate::report::Report) {
    loop {
        tokio::time::sleep(CERTIFICATES).await;
        let refreshed = {
            let mut certificate = certificate.write().expect("no holder panics");
            certificate.refresh(SystemTime::now())
        };
        match refreshed {
            Ok(None) => {}
            Ok(Some(said)) => report.line(said),
            Err(error) => report.line(format!("the certificate is not read again: {error}")),
        }
    }
}
