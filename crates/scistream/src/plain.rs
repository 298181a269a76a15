//! What comes to listeners, passed on over TCP as it is: for the other side that is no relay of ours.

use crate::place::Place;
use net::Bucket;
use socket2::{SockRef, TcpKeepalive};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};

/// Connections of one session at once.
const CONNECTIONS_MAX: usize = 256;
/// How long a target may take to take a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Bytes that are read at a time.
const PIECE_BYTES: usize = 64 << 10;
/// After a listener that could not accept.
const PAUSE: Duration = Duration::from_millis(100);
/// Silence after which a peer is asked whether it is there, and how long it may stay silent then.
const ALIVE: Duration = Duration::from_secs(30);

/// A session's way without encryption. Dropping it ends its connections.
pub struct Plain {
    /// Its tasks, which are aborted when this is dropped.
    _tasks: JoinSet<()>,
    shared: Arc<Shared>,
}

struct Shared {
    /// Locked for a look: there, and back.
    buckets: [Mutex<Bucket>; 2],
    places: Arc<Semaphore>,
    bytes: AtomicU64,
    refused: AtomicU64,
}

impl Plain {
    /// Each listener leads to the next place, and again from the first one.
    pub fn start(listeners: Vec<TcpListener>, places: &[Place], rate: Option<u64>) -> Self {
        let bucket = || Mutex::new(Bucket::new(rate, Instant::now()));
        let shared = Arc::new(Shared {
            buckets: [bucket(), bucket()],
            places: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            bytes: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        });
        let mut tasks = JoinSet::new();
        for (listener, place) in listeners.into_iter().zip(places.iter().cycle()) {
            tasks.spawn(accept(shared.clone(), listener, place.to_string()));
        }
        Self {
            _tasks: tasks,
            shared,
        }
    }

    /// Bytes that have passed, both ways.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// Connections that the target did not take, since this was asked last.
    pub fn refused(&self) -> u64 {
        self.shared.refused.swap(0, Ordering::Relaxed)
    }
}

async fn accept(shared: Arc<Shared>, listener: TcpListener, target: String) {
    // Those of this listener end with it.
    let mut connections = JoinSet::new();
    loop {
        let Ok(place) = shared.places.clone().acquire_owned().await else {
            return;
        };
        while connections.try_join_next().is_some() {}
        let Ok((socket, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let (shared, target) = (shared.clone(), target.clone());
        connections.spawn(async move {
            match timeout(CONNECT, TcpStream::connect(&target)).await {
                Ok(Ok(server)) => pass(&shared, socket, server).await,
                Ok(Err(_)) | Err(_) => {
                    shared.refused.fetch_add(1, Ordering::Relaxed);
                    // Without it the program sees an end in order.
                    let _ = SockRef::from(&socket).set_linger(Some(Duration::ZERO));
                }
            }
            drop(place);
        });
    }
}

async fn pass(shared: &Shared, mut client: TcpStream, mut server: TcpStream) {
    for socket in [&client, &server] {
        let socket = SockRef::from(socket);
        // None of them is needed to go on.
        let _ = socket.set_tcp_nodelay(true);
        let _ =
            socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(ALIVE).with_interval(ALIVE));
        let _ = socket.set_tcp_user_timeout(Some(2 * ALIVE));
    }
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let [there, back] = &shared.buckets;
    // A direction that breaks ends both.
    let _ = tokio::try_join!(
        one_way(&shared.bytes, there, from_client, to_server),
        one_way(&shared.bytes, back, from_server, to_client),
    );
}

async fn one_way(
    bytes: &AtomicU64,
    bucket: &Mutex<Bucket>,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> std::io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let count = from.read(&mut piece).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        loop {
            let opens = {
                let mut bucket = bucket.lock().expect("no holder panics");
                let opens = bucket.opens(Instant::now());
                if opens.is_none() {
                    bucket.take(count);
                }
                opens
            };
            match opens {
                None => break,
                Some(at) => sleep_until(at.into()).await,
            }
        }
        to.write_all(&piece[..count]).await?;
        bytes.fetch_add(count as u64, Ordering::Relaxed);
    }
}
