//! Connections: whom they mean, and the bytes that pass.

use crate::client_hello::{Alert, Guest, HELLO_BYTES_MAX, Look, alert, look};
use crate::clock::Clock;
use crate::half_open::{HalfOpen, Place};
use crate::instances::{Instances, Route};
use crate::keeper::Instance;
use crate::names::quoted;
use crate::options::{Limits, Mode};
use crate::pairing::{Pairing, Passenger};
use crate::passing::{Prefixed, pass};
use crate::report::{RareLine, Report};
use rustls::ServerConfig;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long an instance on this host or beside it may take to take a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// After an error of the listener, such as too many open files.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// A connection whose TLS the gateway has ended.
pub type Ended = TlsStream<Prefixed<TcpStream>>;

/// Who serves connections that mean the gateway itself.
pub trait Api: Send + Sync + 'static {
    /// Serves one, to its end.
    fn serve(&self, stream: Ended, peer: SocketAddr) -> impl Future<Output = ()> + Send;
}

/// How often what happened, for the status.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections that were taken.
    pub accepted: AtomicU64,
    /// Those that were passed to an instance.
    pub passed: AtomicU64,
    /// Pairs of relays that met.
    pub met: AtomicU64,
    /// Those that named nobody, or nobody who is known.
    pub unknown: AtomicU64,
    /// Those whose first bytes were no TLS, or did not come in time.
    pub strange: AtomicU64,
    /// Bytes from clients and to them.
    pub bytes: AtomicU64,
}

/// What takes connections.
pub struct Ingress<A> {
    /// The routing table.
    pub instances: Arc<Instances>,
    /// The gateway's own interface.
    pub api: A,
    /// Its TLS.
    pub api_tls: Arc<ServerConfig>,
    /// TLS of connections to instances, in mode [`Mode::End`].
    pub instance_tls: Arc<ServerConfig>,
    /// Who ends TLS.
    pub mode: Mode,
    /// Bounds.
    pub limits: Limits,
    /// Where relays meet, if they may.
    pub pairing: Option<Arc<Pairing>>,
    /// Who says nothing.
    pub half_open: Arc<HalfOpen>,
    /// Connections that may still come.
    pub places: Arc<Semaphore>,
    /// What happened.
    pub counters: Arc<Counters>,
    /// The time.
    pub clock: Clock,
    /// Lines for the operator.
    pub report: Report,
    /// Lines about strangers.
    pub rare: RareLines,
}

/// Whom a connection means.
enum Whom {
    /// Another relay.
    Relay(Guest),
    /// Somebody of the routing table, or nobody.
    Named(Route),
}

/// Lines about strangers, by what they did.
#[derive(Debug, Default)]
pub struct RareLines {
    full: RareLine,
    unknown: RareLine,
    strange: RareLine,
    dead: RareLine,
    accept: RareLine,
}

impl<A: Api> Ingress<A> {
    /// Takes connections of a listener, for ever.
    pub async fn accept(self: Arc<Self>, listener: TcpListener) {
        loop {
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    let text = || format!("connections are not taken: {error}");
                    self.rare.accept.write(&self.report, text);
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                    continue;
                }
            };
            let Ok(place) = self.places.clone().try_acquire_owned() else {
                let most = self.limits.connections_max;
                let text = || format!("{} is refused: there are {most} connections", peer.ip());
                self.rare.full.write(&self.report, text);
                continue;
            };
            self.counters.accepted.fetch_add(1, Ordering::Relaxed);
            let half_open = self.half_open.enter();
            let ingress = self.clone();
            tokio::spawn(async move {
                // Where one breaks there is nobody to tell but its ends.
                let _ = ingress.connection(stream, peer, half_open, place).await;
            });
        }
    }

    async fn connection(
        &self,
        mut stream: TcpStream,
        peer: SocketAddr,
        mut place: Place,
        held: OwnedSemaphorePermit,
    ) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let greeted = tokio::select! {
            greeted = tokio::time::timeout(self.limits.hello, self.greet(&mut stream, peer)) => greeted,
            () = place.evicted() => return self.drop_strange(peer, "it is one of too many that say nothing"),
        };
        let Ok(greeted) = greeted else {
            return self.drop_strange(peer, "it does not say in time whom it means");
        };
        let Some((whom, bytes)) = greeted? else {
            return Ok(());
        };
        let route = match whom {
            Whom::Named(route) => route,
            Whom::Relay(guest) => {
                drop(place);
                let Some(pairing) = &self.pairing else {
                    return say(&mut stream, Alert::UnrecognizedName).await;
                };
                let passenger = Passenger {
                    stream,
                    bytes,
                    peer,
                    _place: held,
                };
                return pairing.serve(guest, passenger, &self.counters).await;
            }
        };
        match route {
            Route::Unknown => Ok(()),
            Route::Api => {
                let stream = self
                    .end_tls(stream, bytes, &self.api_tls, &mut place)
                    .await?;
                drop(place);
                self.api.serve(stream, peer).await;
                Ok(())
            }
            Route::Instance(instance) => match self.mode {
                Mode::Pass => {
                    drop(place);
                    self.pass_encrypted(stream, bytes, &instance).await
                }
                Mode::End => {
                    let stream = self
                        .end_tls(stream, bytes, &self.instance_tls, &mut place)
                        .await?;
                    drop(place);
                    self.pass_plain(stream, &instance).await
                }
            },
        }
    }

    /// Reads whom a connection means, and the bytes that say so. Who means nobody is told.
    async fn greet(
        &self,
        stream: &mut TcpStream,
        peer: SocketAddr,
    ) -> io::Result<Option<(Whom, Vec<u8>)>> {
        let mut bytes = Vec::with_capacity(2048);
        loop {
            match look(&bytes) {
                Look::Hello(hello) => {
                    if let Some(guest) = hello.guest {
                        return Ok(Some((Whom::Relay(guest), bytes)));
                    }
                    let name = hello.name;
                    let route = self.instances.route(name.as_deref());
                    if matches!(route, Route::Unknown) {
                        self.counters.unknown.fetch_add(1, Ordering::Relaxed);
                        let name = name.as_deref().map_or("no name".to_owned(), quoted);
                        let text = || format!("{} asks for {name}, which is nobody's", peer.ip());
                        self.rare.unknown.write(&self.report, text);
                        return say(stream, Alert::UnrecognizedName).await.map(|()| None);
                    }
                    return Ok(Some((Whom::Named(route), bytes)));
                }
                Look::Refused(why) => {
                    self.drop_strange(peer, why)?;
                    return say(stream, Alert::DecodeError).await.map(|()| None);
                }
                Look::More => {}
            }
            let space = HELLO_BYTES_MAX.saturating_sub(bytes.len()).max(1) as u64;
            let mut part = stream.take(space);
            if part.read_buf(&mut bytes).await? == 0 {
                return Ok(None);
            }
        }
    }

    fn drop_strange(&self, peer: SocketAddr, why: &str) -> io::Result<()> {
        self.counters.strange.fetch_add(1, Ordering::Relaxed);
        let text = || format!("a connection of {} is dropped: {why}", peer.ip());
        self.rare.strange.write(&self.report, text);
        Ok(())
    }

    async fn end_tls(
        &self,
        stream: TcpStream,
        bytes: Vec<u8>,
        config: &Arc<ServerConfig>,
        place: &mut Place,
    ) -> io::Result<Ended> {
        let acceptor = TlsAcceptor::from(config.clone());
        let handshake = acceptor.accept(Prefixed::new(bytes, stream));
        tokio::select! {
            done = tokio::time::timeout(self.limits.hello, handshake) => done?,
            () = place.evicted() => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    async fn pass_encrypted(
        &self,
        mut stream: TcpStream,
        bytes: Vec<u8>,
        instance: &Instance,
    ) -> io::Result<()> {
        let _used = instance.used(&self.clock);
        let reached = self
            .reach(instance, |endpoints| endpoints.tls.as_deref())
            .await;
        let Some(mut server) = reached else {
            return say(&mut stream, Alert::InternalError).await;
        };
        server.write_all(&bytes).await?;
        self.counters
            .bytes
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        pass(stream, server, self.limits.idle, &self.counters.bytes).await
    }

    async fn pass_plain(&self, stream: Ended, instance: &Instance) -> io::Result<()> {
        let _used = instance.used(&self.clock);
        // Never its unix socket: who comes by that is taken for the owner of the server.
        let reached = self
            .reach(instance, |endpoints| endpoints.plain.as_deref())
            .await;
        let Some(server) = reached else {
            return Ok(());
        };
        pass(stream, server, self.limits.idle, &self.counters.bytes).await
    }

    /// A connection to the server of an instance, at the address that the server itself has said.
    async fn reach(
        &self,
        instance: &Instance,
        address: impl Fn(&crate::process::Endpoints) -> Option<&str>,
    ) -> Option<TcpStream> {
        let connect = async {
            let view = instance.serving(self.limits.wait).await?;
            let address = view.endpoints.as_ref().and_then(&address);
            let address = address.ok_or("it does not listen where it would be reached")?;
            let connected = tokio::time::timeout(CONNECT, TcpStream::connect(address)).await;
            let connected = connected.map_err(|_| "its server takes no connection".to_owned())?;
            let stream =
                connected.map_err(|error| format!("its server takes no connection: {error}"))?;
            stream
                .set_nodelay(true)
                .map_err(|error| error.to_string())?;
            Ok::<_, String>(stream)
        };
        match connect.await {
            Ok(stream) => {
                self.counters.passed.fetch_add(1, Ordering::Relaxed);
                Some(stream)
            }
            Err(why) => {
                let text = || format!("instance {} is not reached: {why}", instance.name());
                self.rare.dead.write(&self.report, text);
                None
            }
        }
    }
}

/// Ends a connection with an alert.
pub(crate) async fn say(stream: &mut TcpStream, why: Alert) -> io::Result<()> {
    stream.write_all(&alert(why)).await?;
    stream.shutdown().await
}
