//! The way to the other side, or to where both meet: TCP, a proxy perhaps, TLS, and the greeting.

use crate::error::RelayError;
use crate::frame::{Frame, FrameError, HELLO_BYTES_MAX, Hello, Welcome};
use crate::proof::Binding;
use crate::tls;
use access::Rendezvous;
use bytes::BytesMut;
use net::{NetError, Proxies};
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConfig};
use socket2::SockRef;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// How long the way there may take, and the answer of the other side.
const DIAL_TIMEOUT: Duration = Duration::from_secs(15);
/// For so long the first look for an offer at a meeting place goes on, and so often it is made: one that waits there comes
/// again within this time of each visitor.
const MEET_WITHIN: Duration = Duration::from_secs(2);
const MEET_AGAIN: Duration = Duration::from_millis(50);
/// What a meeting place says to an offer that waits, `docs/format/relay.md`.
const WAITS: [u8; 6] = [20, 3, 3, 0, 1, 1];
/// What it says to one that may not begins so, and ends with why.
const ALERT: u8 = 21;
const ACCESS_DENIED: u8 = 49;
/// What the kernel may hold unsent of one connection: what waits behind it waits for no more than this.
const UNSENT_BYTES: u32 = 256 << 10;

/// A place to dial, and the way out.
#[derive(Debug, Clone)]
pub struct Destination {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The way out.
    pub proxies: Proxies,
}

/// A connection that TLS is on, and what binds proofs to it.
pub(crate) struct Dialled {
    pub stream: TlsStream<TcpStream>,
    pub binding: Binding,
}

impl Destination {
    /// Host and port, as `CONNECT` and people write them.
    pub(crate) fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// Connects to a relay.
    pub(crate) async fn dial(&self, config: &Arc<ClientConfig>) -> Result<Dialled, RelayError> {
        self.in_time(self.connect(config)).await
    }

    /// The same, for the first time: one who offers at a meeting place comes back there a moment after each who has come by
    /// the name of the offer, who may be anybody that has read it on the way. So who finds nobody there looks again for a
    /// while.
    pub(crate) async fn dial_first(
        &self,
        config: &Arc<ClientConfig>,
    ) -> Result<Dialled, RelayError> {
        let until = Instant::now() + MEET_WITHIN;
        loop {
            match self.dial(config).await {
                Err(RelayError::NobodyWaits(_)) if Instant::now() < until => {
                    sleep(MEET_AGAIN).await;
                }
                dialled => return dialled,
            }
        }
    }

    /// Gives up what takes too long.
    async fn in_time<T>(
        &self,
        act: impl Future<Output = Result<T, RelayError>>,
    ) -> Result<T, RelayError> {
        let late = || {
            RelayError::Unreachable(format!(
                "{} does not answer in {} s",
                self.authority(),
                DIAL_TIMEOUT.as_secs()
            ))
        };
        timeout(DIAL_TIMEOUT, act).await.map_err(|_| late())?
    }

    /// Waits at a meeting place: what is returned is a connection by which one comes that has the rendezvous.
    pub(crate) async fn wait(&self, rendezvous: Rendezvous) -> Result<TcpStream, RelayError> {
        self.in_time(async {
            let hello = tls::waiting(self.name()?, rendezvous)
                .map_err(|error| RelayError::System(format!("TLS: {error}")))?;
            let gone = |error: io::Error| RelayError::Unreachable(format!("{self}: {error}"));
            let mut socket = self.reach().await?;
            socket.write_all(&hello).await.map_err(gone)?;
            let mut answer = [0; 6];
            socket.read_exact(&mut answer).await.map_err(gone)?;
            match answer {
                WAITS => Ok(socket),
                [ALERT, ..] => {
                    let why = socket.read_u8().await.map_err(gone)?;
                    Err(self.refuses(why))
                }
                _ => Err(self.refuses(0)),
            }
        })
        .await
    }

    /// What an alert of a meeting place means.
    fn refuses(&self, alert: u8) -> RelayError {
        match alert {
            ACCESS_DENIED => RelayError::Protocol(format!(
                "{self} lets relays meet, but none wait that comes from here (its --meet)"
            )),
            _ => RelayError::Protocol(format!(
                "{self} is no gateway that lets relays meet (thalweg gateway --meet)"
            )),
        }
    }

    fn name(&self) -> Result<ServerName<'static>, RelayError> {
        ServerName::try_from(self.host.clone())
            .map_err(|_| RelayError::Usage(format!("{:?} is no name of a host", self.host)))
    }

    /// A connection, through the site's proxy if there is one.
    async fn reach(&self) -> Result<TcpStream, RelayError> {
        let usage = |error: NetError| RelayError::Usage(error.to_string());
        let proxy = self
            .proxies
            .to(&self.host, &self.port.to_string())
            .map_err(usage)?;
        let authority = self.authority();
        let first = proxy.as_ref().map_or(&authority, |proxy| &proxy.authority);
        let mut socket = TcpStream::connect(first)
            .await
            .map_err(|error| RelayError::Unreachable(format!("{first}: {error}")))?;
        set_options(&socket);
        if let Some(proxy) = proxy {
            let request = proxy.request(&authority);
            let heard = ask_proxy(&mut socket, &request, |answer| proxy.read_answer(answer)).await;
            heard.map_err(RelayError::Unreachable)?;
        }
        Ok(socket)
    }

    async fn connect(&self, config: &Arc<ClientConfig>) -> Result<Dialled, RelayError> {
        let name = self.name()?;
        let socket = self.reach().await?;
        let stream = TlsConnector::from(config.clone()).connect(name, socket);
        let stream = stream.await.map_err(|error| self.no_tls(&error))?;
        let binding = tls::binding(stream.get_ref().1)?;
        Ok(Dialled { stream, binding })
    }
}

impl Destination {
    fn no_tls(&self, error: &io::Error) -> RelayError {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
        match inner {
            Some(rustls::Error::AlertReceived(AlertDescription::UnrecognisedName)) => {
                RelayError::NobodyWaits(format!(
                    "nobody waits at {self} with this code: the offer is over, or has not come there yet"
                ))
            }
            Some(rustls::Error::AlertReceived(AlertDescription::InternalError)) => {
                RelayError::Unreachable(format!(
                    "{self} has no room for one more pair of relays, or none for this offer's (its --meetings-max)"
                ))
            }
            _ => RelayError::Protocol(format!("{self}: no TLS with a relay: {error}")),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.authority())
    }
}

async fn ask_proxy(
    socket: &mut TcpStream,
    request: &[u8],
    is_whole: impl Fn(&[u8]) -> Result<bool, String>,
) -> Result<(), String> {
    socket
        .write_all(request)
        .await
        .map_err(|error| format!("HTTPS_PROXY: {error}"))?;
    let mut answer = Vec::new();
    // One byte at a time: what follows belongs to TLS.
    while !is_whole(&answer)? {
        match socket.read_u8().await {
            Ok(byte) => answer.push(byte),
            Err(error) => {
                return Err(format!(
                    "the proxy (HTTPS_PROXY) ended the connection: {error}"
                ));
            }
        }
    }
    Ok(())
}

/// A peer that is gone is noticed, small frames leave at once, and little waits in the kernel.
pub(crate) fn set_options(socket: &TcpStream) {
    let socket = SockRef::from(socket);
    // None of them is needed to go on.
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_user_timeout(Some(crate::session::SILENT_MAX));
    let _ = socket.set_tcp_notsent_lowat(UNSENT_BYTES);
}

/// Says Hello and hears the answer.
pub(crate) async fn greet(
    dialled: &mut Dialled,
    hello: Hello,
) -> Result<(Welcome, BytesMut), RelayError> {
    let gone = |error: io::Error| RelayError::Unreachable(format!("the other side: {error}"));
    write_frame(&mut dialled.stream, &Frame::Hello(hello))
        .await
        .map_err(gone)?;
    let answer = timeout(DIAL_TIMEOUT, read_frame(&mut dialled.stream));
    match answer.await {
        Ok(Ok((Frame::Welcome(welcome), rest))) => Ok((welcome, rest)),
        Ok(Ok((Frame::Refused(refusal), _))) => Err(RelayError::Refused(refusal)),
        Ok(Ok(_)) => Err(RelayError::Protocol("it answers out of turn".to_owned())),
        Ok(Err(error)) => Err(gone(error)),
        Err(_) => Err(RelayError::Unreachable(
            "the other side does not answer".to_owned(),
        )),
    }
}

/// Writes one frame.
pub(crate) async fn write_frame(
    stream: &mut (impl AsyncWriteExt + Unpin),
    frame: &Frame,
) -> io::Result<()> {
    let mut bytes = BytesMut::new();
    frame.encode(&mut bytes);
    stream.write_all(&bytes).await?;
    stream.flush().await
}

/// Reads one frame of a greeting, and what has come behind it.
pub(crate) async fn read_frame(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<(Frame, BytesMut)> {
    let invalid = |error: FrameError| io::Error::new(io::ErrorKind::InvalidData, error.to_string());
    let mut input = BytesMut::with_capacity(512);
    loop {
        if let Some(frame) = Frame::decode(&mut input, HELLO_BYTES_MAX).map_err(invalid)? {
            return Ok((frame, input));
        }
        if stream.read_buf(&mut input).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
