//! Bytes that pass from one end of a connection to the other.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};
use tokio::time::Instant;

/// What is read at a time, for each direction.
const PIECE_BYTES: usize = 64 << 10;

/// A stream of which some bytes were read already: they come first.
#[derive(Debug)]
pub struct Prefixed<S> {
    bytes: Vec<u8>,
    used: usize,
    stream: S,
}

impl<S> Prefixed<S> {
    /// `bytes`, then what `stream` has.
    pub fn new(bytes: Vec<u8>, stream: S) -> Self {
        Self {
            bytes,
            used: 0,
            stream,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefixed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let left = &self.bytes[self.used..];
        if left.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, into);
        }
        let count = left.len().min(into.remaining());
        into.put_slice(&left[..count]);
        self.used += count;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prefixed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Passes bytes both ways until both ends have ended, one has broken, or nothing has passed for `idle`. Counts them.
///
/// # Errors
/// That of the end that broke, or [`io::ErrorKind::TimedOut`].
pub async fn pass(
    client: impl AsyncRead + AsyncWrite + Unpin,
    mut server: impl AsyncRead + AsyncWrite + Unpin,
    idle: Duration,
    bytes: &AtomicU64,
) -> io::Result<()> {
    let moved = AtomicU64::new(0);
    let mut client = Counted {
        stream: client,
        moved: &moved,
        total: bytes,
    };
    let copy = copy_bidirectional_with_sizes(&mut client, &mut server, PIECE_BYTES, PIECE_BYTES);
    tokio::select! {
        done = copy => done.map(drop),
        () = no_move_for(idle, &moved) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Resolves once nothing has moved for so long, or up to twice that.
async fn no_move_for(idle: Duration, moved: &AtomicU64) {
    let mut before = 0;
    loop {
        tokio::time::sleep_until(Instant::now() + idle).await;
        let now = moved.load(Ordering::Relaxed);
        if now == before {
            return;
        }
        before = now;
    }
}

/// A stream whose bytes are counted.
struct Counted<'a, S> {
    stream: S,
    moved: &'a AtomicU64,
    total: &'a AtomicU64,
}

impl<S> Counted<'_, S> {
    fn count(&self, bytes: usize) {
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
        self.total.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
        self.count(into.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<'_, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.count(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
