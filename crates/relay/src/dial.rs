//! The way to the other side: TCP, a proxy perhaps, TLS, and the greeting.

use crate::error::RelayError;
use crate::frame::{Frame, FrameError, HELLO_BYTES_MAX, Hello, Welcome};
use crate::proof::Binding;
use crate::tls;
use bytes::BytesMut;
use net::{NetError, Proxies};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::SockRef;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// How long the way there may take, and the answer of the other side.
const DIAL_TIMEOUT: Duration = Duration::from_secs(15);
/// What the kernel may hold unsent of one connection: what waits behind it waits for no more than this.
const UNSENT_BYTES: u32 = 256 << 10;

/// Where the other side is, and how it is reached.
#[derive(Debug, Clone)]
pub(crate) struct Destination {
    pub host: String,
    pub port: u16,
    pub proxies: Proxies,
    pub config: Arc<ClientConfig>,
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

    /// Connects.
    pub(crate) async fn dial(&self) -> Result<Dialled, RelayError> {
        let late = || {
            RelayError::Unreachable(format!(
                "{} does not answer in {} s",
                self.authority(),
                DIAL_TIMEOUT.as_secs()
            ))
        };
        timeout(DIAL_TIMEOUT, self.connect())
            .await
            .map_err(|_| late())?
    }

    async fn connect(&self) -> Result<Dialled, RelayError> {
        let name = ServerName::try_from(self.host.clone())
            .map_err(|_| RelayError::Usage(format!("{:?} is no name of a host", self.host)))?;
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
        let stream = TlsConnector::from(self.config.clone())
            .connect(name, socket)
            .await
            .map_err(|error| {
                RelayError::Protocol(format!("{authority}: no TLS with a relay: {error}"))
            })?;
        let binding = tls::binding(stream.get_ref().1)?;
        Ok(Dialled { stream, binding })
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
