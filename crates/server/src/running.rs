//! One node of a server, on a thread of its own.

use crate::access_files::{AccessFiles, Believed};
use crate::address;
use crate::amqp_listener::{self, AmqpListener};
use crate::audit_trail::AuditTrail;
use crate::certificates::{self, Certificates};
use crate::cluster::{ClientFiles, ClusterPart, Seat};
use crate::config::Config;
use crate::descriptors::{self, Descriptors};
use crate::directory::DataDirectory;
use crate::disk_threads::DiskThreads;
use crate::error::{ConfigError, ServerError};
use crate::examine_threads::ExamineThreads;
use crate::executor::Executor;
use crate::fate::{Ends, Fate, PartHandle};
use crate::file_system::{FileSystem, measure_sync};
use crate::group_file::{Group, GroupFile, OtherServer};
use crate::host::{Host, random_u128};
use crate::placement::Cores;
use crate::server_log::ServerLog;
use crate::shards::Joining;
use crate::storages::Storages;
use crate::system::{self, End, Parts, ShutdownRequest, System};
use broker::{ClientCertificates, Counters, Limits, Line, Node, NodeError, NodeOptions, TableRole};
use fabric::{Shm, ShmOptions};
use log::{Disk, OsDisk, StorageKind};
use memory::Pool;
use memory::thread::JoinHandle;
use net::{
    Carries, Identities, Inproc, LinkOptions, Listener, NetError, Reactor, Tcp, Tls, Transports,
    Unix,
};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use wire::{DirectoryId, ServerInstance};

/// The longest path of a unix socket that every system takes.
pub(crate) const SOCKET_PATH_BYTES_MAX: usize = 100;

/// The longest payload of a frame whose sender is not known yet: a `Hello`
/// has none, and memory is not for everybody who can reach a port.
const FIRST_PAYLOAD_BYTES_MAX: u64 = 64 << 10;

/// A node that runs on a thread of its own, until it is drained or killed.
#[derive(Debug)]
pub(crate) struct Running {
    pub endpoints: Vec<String>,
    pub amqp_endpoints: Vec<String>,
    pub directory: DirectoryId,
    pub instance: ServerInstance,
    pub token: [u8; 32],
    pub counters: Arc<Counters>,
    thread: Option<JoinHandle<Result<Ended, ServerError>>>,
    /// Of the first node, if it listens by TLS.
    certificates: Option<Arc<Mutex<Certificates>>>,
    /// What the other nodes of the server share with the first.
    shared: Shared,
}

/// How a node has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was asked to end at once, and has closed nothing.
    Killed,
    /// It has closed what it had.
    Closed,
}

/// What all nodes of a server have of the first.
#[derive(Debug, Clone)]
struct Shared {
    token: [u8; 32],
    access: AccessFiles,
    certificates: Option<Shown>,
}

/// What listeners of TLS show, and by which certificates clients are let in.
#[derive(Debug, Clone)]
struct Shown {
    identities: Identities,
    clients: ClientCertificates,
}

impl From<&Certificates> for Shown {
    fn from(certificates: &Certificates) -> Self {
        Self {
            identities: certificates.identities(),
            clients: certificates.of_clients().clone(),
        }
    }
}

/// Which node of a server is started.
pub(crate) struct Part<'a> {
    pub place: Place<'a>,
    /// How many nodes the server has.
    pub count: u32,
    /// The first, for one behind it.
    pub first: Option<&'a Running>,
    /// Ends with it, and ends it.
    pub fate: Arc<Fate>,
    /// Whether its clients are in its process.
    pub is_embedded: bool,
}

/// The table that a node is of.
pub(crate) enum Place<'a> {
    /// The server's own.
    Own(Seat),
    /// That of a cluster, where this shard of the server registers when it listens.
    Cluster(&'a mut ClusterPart, u32),
}

impl Place<'_> {
    /// What the cluster is to clients.
    fn clients(&self) -> Option<&ClientFiles> {
        match self {
            Self::Own(_) => None,
            Self::Cluster(part, _) => Some(part.clients()),
        }
    }

    /// The node is where its listeners are: now others can know of it.
    fn take(
        self,
        directory: &DataDirectory,
        listeners: &[Box<dyn Listener>],
        host: &Host,
    ) -> Result<Seat, ServerError> {
        let addresses = listeners.iter().flat_map(|one| addresses(one.address()));
        match self {
            Self::Own(seat) => {
                // All are on one host: a client reaches each where it has reached another.
                let addresses = addresses.map(|one| address::anywhere(&one));
                seat.nodes
                    .listens(seat.role.node(), directory.id(), addresses.collect());
                Ok(seat)
            }
            Self::Cluster(part, shard) => {
                let endpoints: Vec<String> = addresses.map(|one| host.named(&one)).collect();
                if shard == 0 {
                    part.join(directory, &endpoints)?;
                }
                part.register(directory.id(), endpoints, shard)
            }
        }
    }
}

impl Running {
    /// Starts a node that listens.
    pub fn launch(
        config: Config,
        storages: Storages,
        log: &ServerLog,
        part: Part<'_>,
    ) -> Result<Self, ServerError> {
        let embedded = part.is_embedded;
        let host = Host::this();
        let directory = DataDirectory::open(&config.directory, &host, config.take_over)?;
        let file_system = FileSystem::of(directory.path())?;
        for caution in directory.cautions() {
            log.write(&Line::warning(caution.clone()));
        }
        if !embedded && part.first.is_none() {
            // A program that has a server within it sets its limits itself.
            if let Some(line) = descriptors::raise_limit() {
                log.write(&Line::info(line));
            }
            report_storage(log, directory.path(), file_system);
        }
        // What memory partitions and readers give up is what the next ones
        // need; what nobody needs is given back.
        let pool = Pool::new(config.memory_bytes_max as usize);
        let certificates = match certificates::are_needed(&config) && !embedded {
            true if part.first.is_none() => {
                let of_cluster = part.place.clients();
                let authority = match of_cluster {
                    Some(clients) => (clients.path.as_path(), clients.site),
                    None => (directory.path(), directory.id()),
                };
                let now = SystemTime::now();
                Some(Certificates::open(&config, authority, &host, now)?)
            }
            _ => None,
        };
        let shared = match part.first {
            Some(first) => first.shared.clone(),
            None => {
                let (token, access) = match part.place.clients() {
                    Some(clients) => (&clients.token, &clients.access),
                    None => (directory.token(), directory.access()),
                };
                Shared {
                    token: *token,
                    access: access.clone(),
                    certificates: certificates.as_ref().map(Shown::from),
                }
            }
        };
        let mut transports = transports(&config, &pool, log);
        if let Some(shown) = &shared.certificates {
            let tls = Tls::new(port_options(&config, &pool));
            let tls = tls.listening_as(shown.identities.clone());
            transports = transports.with(tls.asking(shown.clients.authorities.clone()));
        }
        let mut listeners = listen(&config, &directory, file_system, &transports, embedded, log)?;
        let amqp = match embedded {
            // Its clients are in its process.
            true => Vec::new(),
            false => listen_for_amqp(&config, &pool, shared.certificates.as_ref())?,
        };
        let amqp_endpoints: Vec<String> = shared_ports(&config, &listeners)
            .chain(&amqp)
            .flat_map(|listener| endpoints(listener.address(), &host))
            .collect();
        let of_clients = shared.certificates.as_ref();
        let of_clients = of_clients.map(|shown| shown.clients.clone());
        let certificates = certificates.map(|certificates| Arc::new(Mutex::new(certificates)));
        let endpoints: Vec<String> = listeners
            .iter()
            .flat_map(|listener| endpoints(listener.address(), &host))
            .collect();
        let seat = part.place.take(&directory, &listeners, &host)?;
        let believed = Believed::at_start(&shared.access, log);
        if let Some(of_clients) = &of_clients {
            believed.others().show(of_clients.shown.clone());
        }
        let started = Instant::now();
        let disk: Arc<dyn Disk> = Arc::new(OsDisk::with_pool(pool.clone()));
        let counters = Arc::<Counters>::default();
        let mut reactor = Reactor::new().map_err(net_system)?;
        reactor.set_spin(Duration::from_micros(config.spin_us.into()));
        let waker = reactor.waker();
        let node = open_node(
            &config,
            &directory,
            &host,
            Stores {
                disk: disk.clone(),
                kinds: storages.into_kinds(&disk)?,
                pool: pool.clone(),
                counters: counters.clone(),
                believed: &believed,
                certificates: of_clients,
                token: shared.token,
            },
            (&seat, started),
            log,
        )?;
        directory.keep_path()?;
        if let Some(peers) = &seat.peers {
            peers.wake_with(waker.clone());
        }
        let threads = place("disk_cores", &config.disk_cores, || {
            let count = config.disk_threads;
            let (log, counters) = (log.clone(), counters.clone());
            DiskThreads::start(disk.clone(), waker.clone(), log, counters, count)
        })?;
        let examine = ExamineThreads::new(believed.others().clone(), waker.clone());
        let audit = place("disk_cores", &config.disk_cores, || {
            AuditTrail::start(directory.path(), log.clone(), counters.clone())
        })?;
        let shutdown = Arc::new(ShutdownRequest::default());
        let serves_amqp = !amqp_endpoints.is_empty();
        listeners.extend(amqp);
        let amqp_options = amqp_listener::Options {
            payload_bytes_max: config.payload_bytes_max,
            pool: pool.clone(),
            random: random_u128,
            guest: config.amqp_guest.then_some(shared.token),
        };
        if serves_amqp && config.amqp_guest {
            log.warn(
                "the user guest with the password guest is the owner at the addresses of amqp: every user of this \
                 host can read and write everything (amqp_guest)"
                    .to_owned(),
            );
        }
        let system = System::new(Parts {
            reactor,
            listeners,
            disk,
            threads,
            examine,
            directory: directory.path().to_owned(),
            access: believed,
            pool,
            log: log.clone(),
            shutdown: shutdown.clone(),
            started,
            descriptors: Descriptors::of_process(part.count.into()),
            certificates: certificates.clone(),
            audit,
            peers: seat.peers,
        })
        .map_err(net_system)?;
        let pending_connections_max = config.pending_connections_max as usize;
        let mut executor = Executor::new(node, system, pending_connections_max, counters.clone());
        if serves_amqp {
            executor = executor.with_amqp(AmqpListener::new(amqp_options));
        }
        let (id, instance) = (directory.id(), directory.instance());
        let slice = Duration::from_micros(config.slice_us.into());
        let ends = part.fate.joined(PartHandle { shutdown, waker });
        let log = log.clone();
        let thread = place("cores", &config.cores, || {
            memory::thread::spawn("thalweg-node", move || {
                if !slice.is_zero() {
                    report_slice(&log, slice, memory::set_time_slice(slice));
                }
                let ended = log.scope(|| run(executor, directory, ends, &log));
                log.flush_all();
                ended
            })
        })?;
        Ok(Self {
            endpoints,
            amqp_endpoints,
            directory: id,
            instance,
            token: shared.token,
            counters,
            thread: Some(thread),
            shared,
            certificates,
        })
    }

    /// Writes where clients of other processes find it, and the others of its cluster.
    pub fn publish(
        &self,
        path: &Path,
        cluster: Option<(u128, Vec<OtherServer>)>,
    ) -> Result<GroupFile, ServerError> {
        let mut certificates = self
            .certificates
            .as_ref()
            .map(|it| it.lock().expect("no holder panics here"));
        let trusted = certificates.as_ref().map(|it| it.trusted());
        let file = GroupFile::write(
            path,
            &Group {
                directory: self.directory,
                instance: self.instance,
                host: &Host::this(),
                endpoints: &self.endpoints,
                token: &self.token,
                certificates: trusted.unwrap_or_default(),
                cluster,
            },
        )?;
        if let Some(certificates) = &mut certificates {
            certificates.publish_in(file.clone());
        }
        Ok(file)
    }

    /// Waits until its thread has ended. Says nothing the second time.
    pub fn join(&mut self) -> Result<Ended, ServerError> {
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(Ended::Closed),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(ServerError::Node(
                "the server's thread panicked, which is a bug; the next start recovers the data"
                    .to_owned(),
            )),
        }
    }

    /// Whether it was not waited for.
    pub fn may_run(&self) -> bool {
        self.thread.is_some()
    }
}

/// Starts threads where the setting `key` says.
pub(crate) fn place<T>(
    key: &str,
    cores: &Cores,
    start: impl FnOnce() -> io::Result<T>,
) -> Result<T, ServerError> {
    let placed = cores.place(start).map_err(|error| ConfigError::Value {
        key: key.to_owned(),
        why: error.to_string(),
    })?;
    placed.map_err(ServerError::System)
}

/// The server's thread: until the end of the executor, then of the rest.
fn run(
    executor: Executor<System>,
    directory: DataDirectory,
    ends: Ends,
    log: &ServerLog,
) -> Result<Ended, ServerError> {
    // The executor is gone after this, and with it listeners and disk threads:
    // nothing touches the directory any more.
    let mut drained_from = Instant::now();
    let drain_begins = || {
        drained_from = Instant::now();
        let line = "drain: nothing new is taken, what was taken is answered";
        log.write_each(&Line::info(line.to_owned()));
        ends.begin();
    };
    let end = system::run(executor, drain_begins).map_err(net_system)?;
    if matches!(end, End::Drained) {
        let took = drained_from.elapsed().as_secs_f64();
        log.write_each(&Line::info(format!(
            "drained in {took:.1} s: everything is closed"
        )));
    }
    match end {
        // As after a death: the owner's record stays behind.
        End::Killed => Ok(Ended::Killed),
        End::Drained => directory.give_back().map(|()| Ended::Closed),
        End::Unclean { why } => {
            // Nobody has the directory any more, whatever failed in it.
            Err(ServerError::Unclean(match directory.give_back() {
                Ok(()) => why,
                Err(error) => format!("{why}; {error}"),
            }))
        }
        End::TimedOut { waited } => Err(ServerError::DrainTimeout {
            waited_ms: waited.as_millis() as u64,
        }),
    }
}

/// Reports what events are kept on. The measurement is for the operator alone: where it
/// fails, as on a full disk, the server starts without it.
fn report_storage(log: &ServerLog, path: &Path, file_system: FileSystem) {
    let name = file_system.name;
    let directory = path.display();
    match measure_sync(path) {
        Ok(sync) => log.write(&Line::info(format!(
            "{directory} lies on {name}; a sync of 4 KiB takes {:.2} ms",
            sync.as_secs_f64() * 1e3
        ))),
        Err(error) => log.write(&Line::warning(format!(
            "{directory} lies on {name}; what a sync takes is not known: {error}"
        ))),
    }
    if let Some(caution) = file_system.warning() {
        log.write(&Line::warning(caution));
    }
}

/// The server goes without a time slice of its own where that is not allowed, as in
/// some containers; an operator who wonders why it is slower there finds the reason.
fn report_slice(log: &ServerLog, slice: Duration, outcome: io::Result<()>) {
    if let Err(error) = outcome {
        let slice_us = slice.as_micros();
        log.write(&Line::warning(format!(
            "slice_us: the system refuses a time slice of {slice_us} us, and the server goes on \
             with the one it has: {error}"
        )));
    }
}

/// What partitions are kept on and in, what is counted, whose tokens are taken, and what they allow.
struct Stores<'a> {
    disk: Arc<dyn Disk>,
    kinds: Vec<Arc<dyn StorageKind>>,
    pool: Pool,
    counters: Arc<Counters>,
    believed: &'a Believed,
    certificates: Option<ClientCertificates>,
    token: [u8; 32],
}

fn open_node(
    config: &Config,
    directory: &DataDirectory,
    host: &Host,
    stores: Stores<'_>,
    (seat, started): (&Seat, Instant),
    log: &ServerLog,
) -> Result<Node, ServerError> {
    let limits = Limits {
        heartbeat: Duration::from_millis(config.heartbeat_ms.into()),
        // The other half is for reading, for buffers kept and for control.
        data_bytes_max: config.memory_bytes_max / 2,
        produce_credit_bytes_max: config.produce_credit_bytes,
        payload_bytes_max: config.payload_bytes_max,
        members_max: config.members_max as usize,
        drain_timeout: Duration::from_millis(config.drain_timeout_ms.into()),
        ..Limits::default()
    };
    let mut options = NodeOptions::new(directory.path().to_owned(), stores.disk, stores.kinds);
    options.open_partitions = crate::opening::open_side_by_side;
    options.limits = limits;
    options.directory_id = directory.id();
    options.instance = directory.instance();
    options.token = stores.token;
    options.role = seat.role;
    options.nodes = seat.nodes.clone();
    options.trust = stores.believed.trust();
    options.rules = stores.believed.rules();
    options.examiner = stores.believed.others().clone();
    options.certificates = stores.certificates;
    options.owner_uid = Some(rustix::process::geteuid().as_raw());
    options.boot_id = host.boot_id.clone();
    options.server_version = env!("CARGO_PKG_VERSION").to_owned();
    options.pool = stores.pool;
    options.seed = random_u128();
    options.accept_loss = config.accept_loss;
    options.counters = stores.counters;
    let now = system::now(started);
    let opened = match (seat.role, &seat.peers) {
        (TableRole::Follows(_), Some(peers)) => {
            Node::open_led(options, now, &mut Joining::new(peers, started))
        }
        _ => Node::open(options, now),
    };
    let (node, start) = opened.map_err(|error| match error {
        NodeError::Interrupted => {
            ServerError::Interrupted("the cluster's table was not read".to_owned())
        }
        error => ServerError::Node(error.to_string()),
    })?;
    // None of these is left out: each may be about another loss.
    for line in start.lines.iter().chain(&start.failed) {
        log.write_each(&Line::warning(line.clone()));
    }
    log.write(&Line::info(format!(
        "{} topics with {} partitions; {} bytes verified, {} bytes of unsynced tails cut off",
        start.topic_count, start.partition_count, start.verified_bytes, start.cut_bytes
    )));
    Ok(node)
}

fn link_options(config: &Config, pool: &Pool) -> LinkOptions {
    LinkOptions {
        payload_bytes_max: config.payload_bytes_max,
        first_payload_bytes_max: FIRST_PAYLOAD_BYTES_MAX,
        pool: pool.clone(),
        ..LinkOptions::default()
    }
}

/// Links of AMQP carry bytes.
fn amqp_options(config: &Config, pool: &Pool) -> LinkOptions {
    LinkOptions {
        carries: Carries::Bytes,
        ..link_options(config, pool)
    }
}

// What begins a frame is no client of AMQP.
const _: () = assert!(wire::frame::FRAME_MAGIC != amqp::PROTOCOL_HEADER[0]);

/// Links of ports that clients of AMQP may share with others.
fn port_options(config: &Config, pool: &Pool) -> LinkOptions {
    LinkOptions {
        carries: match config.shares_ports() {
            true => Carries::BytesThatBeginWith(amqp::PROTOCOL_HEADER[0]),
            false => Carries::Frames,
        },
        ..link_options(config, pool)
    }
}

/// The listeners of `listen` that clients of AMQP may come to.
fn shared_ports<'a>(
    config: &Config,
    listeners: &'a [Box<dyn Listener>],
) -> impl Iterator<Item = &'a Box<dyn Listener>> {
    let is_shared = config.shares_ports();
    let listeners = listeners.iter();
    listeners.filter(move |one| is_shared && address::authority(&one.address()).is_some())
}

/// Listens for clients of AMQP.
fn listen_for_amqp(
    config: &Config,
    pool: &Pool,
    shown: Option<&Shown>,
) -> Result<Vec<Box<dyn Listener>>, ServerError> {
    let options = amqp_options(config, pool);
    let mut transports = Transports::new().with(Tcp::new(options.clone()));
    if let Some(shown) = shown {
        let tls = Tls::new(options).listening_as(shown.identities.clone());
        transports = transports.with(tls.asking(shown.clients.authorities.clone()));
    }
    let listen = |address: &String| {
        transports
            .listen(address)
            .map_err(|source| ServerError::Listen {
                address: address.clone(),
                source,
            })
    };
    config.amqp_alone().map(listen).collect()
}

/// How addresses are listened at, but for those of TLS.
fn transports(config: &Config, pool: &Pool, log: &ServerLog) -> Transports {
    let options = link_options(config, pool);
    Transports::new()
        .with(Inproc::new(options.clone()))
        .with(Unix::new(options.clone()))
        .with(Tcp::new(port_options(config, pool)))
        .with(Shm::new(ShmOptions {
            links: options,
            report: {
                let log = log.clone();
                Arc::new(move |line: &str| log.write(&Line::info(line.to_owned())))
            },
            ..ShmOptions::default()
        }))
}

fn listen(
    config: &Config,
    directory: &DataDirectory,
    file_system: FileSystem,
    transports: &Transports,
    embedded: bool,
    log: &ServerLog,
) -> Result<Vec<Box<dyn Listener>>, ServerError> {
    // One socket serves both kinds of clients.
    let scheme = match config.no_shared_memory {
        true => "unix",
        false => "shm",
    };
    let listen = |address: String| {
        let local = address::socket_path(&address).map(|path| format!("{scheme}://{path}"));
        transports
            .listen(local.as_ref().unwrap_or(&address))
            .map_err(|source| ServerError::Listen { address, source })
    };
    if embedded {
        let address = format!("inproc://thalweg-{}", directory.instance());
        return Ok(vec![listen(address)?]);
    }
    let mut listeners = Vec::with_capacity(config.listen.len() + 1);
    for address in &config.listen {
        listeners.push(listen(address.clone())?);
    }
    // An embedded server's clients are in its process; those of others on this host have a
    // socket, whatever else is listened at.
    let of_sockets = |address: &String| address::socket_path(address).is_some();
    if config.no_unix_socket || config.listen.iter().any(of_sockets) {
        return Ok(listeners);
    }
    let own = socket_path(directory, file_system)
        .and_then(|path| listen(format!("unix://{}", path.display())));
    match own {
        Ok(listener) => listeners.push(listener),
        // It was not asked for, and the addresses that were are served.
        Err(error) if !listeners.is_empty() => log.write(&Line::warning(format!(
            "there is no unix socket beside the addresses of `listen`, and so no shared memory: \
             {error}"
        ))),
        Err(error) => return Err(error),
    }
    Ok(listeners)
}

/// By which addresses clients can reach who listens at `address`.
fn endpoints(address: String, host: &Host) -> Vec<String> {
    match address::is_encrypted(&address) {
        // Every address of this host is none for others. The certificate has the name.
        true => vec![host.named(&address)],
        false => addresses(address),
    }
}

/// The addresses of one listener: a socket is one for clients with and without shared memory.
fn addresses(address: String) -> Vec<String> {
    match address.strip_prefix("shm://") {
        Some(path) => vec![format!("unix://{path}"), address],
        None => vec![address],
    }
}

/// In the data directory; or, if its path is too long for a socket or lies on
/// a file system of another machine, in the system's directory for temporary files.
fn socket_path(directory: &DataDirectory, file_system: FileSystem) -> Result<PathBuf, ServerError> {
    let inside = directory.path().join("thalweg.sock");
    if inside.as_os_str().len() <= SOCKET_PATH_BYTES_MAX && file_system.takes_sockets() {
        return Ok(inside);
    }
    let outside = std::env::temp_dir().join(format!("thalweg-{}", directory.id()));
    crate::durable_file::make_private(&outside)?;
    // Others may write there too, and may have been first.
    crate::directory::refuse_shared(&outside)?;
    Ok(outside.join("thalweg.sock"))
}

fn net_system(error: NetError) -> ServerError {
    ServerError::System(std::io::Error::other(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn a_time_slice_that_is_refused_is_reported_with_its_key_and_why() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = lines.clone();
        let log = Arc::new(move |line: &str| kept.lock().unwrap().push(line.to_owned()));
        let log = ServerLog::from(log);
        let slice = Duration::from_micros(100);
        report_slice(&log, slice, Ok(()));
        assert!(lines.lock().unwrap().is_empty());
        let refused = io::Error::from(io::ErrorKind::PermissionDenied);
        report_slice(&log, slice, Err(refused));
        assert_eq!(
            *lines.lock().unwrap(),
            [
                "slice_us: the system refuses a time slice of 100 us, and the server goes on \
              with the one it has: permission denied"
            ]
        );
    }
}
