//! What shared memory finds on this host, without a server or with one.

use crate::handshake;
use crate::pool::Pool;
use crate::remote;
use crate::segment;
use crate::shm::ShmOptions;
use crate::stream::{Outcome, ShmBytes};
use net::{NetError, UnixSocket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Makes memory, seals it, maps it a second time as another process would,
/// and reads back through that what was written here.
///
/// # Errors
/// What the system, or the memory, does not allow.
pub fn sealed_memory() -> io::Result<()> {
    const BYTES: usize = 64 * 1024;
    let (ours, memory) = segment::make("thalweg-examine", BYTES)?;
    let theirs = segment::map(&memory, BYTES)?;
    let nonce = handshake::nonce()?;
    ours.copy_in(&nonce, BYTES - nonce.len());
    let mut found = [0; 16];
    theirs.copy_out(BYTES - nonce.len(), &mut found);
    if found != nonce {
        return Err(io::Error::other("what was written is not what is read"));
    }
    Ok(())
}

/// Fills `into` with memory of another process.
///
/// # Errors
/// What the system says.
pub fn read_process(pid: u32, address: u64, into: &mut [u8]) -> io::Result<()> {
    remote::read(pid, address, into)
}

/// What a client and the server at a socket agree on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreement {
    /// Why shared memory would not be used; `None` if it would.
    pub refusal: Option<String>,
    /// Whether the server has proven that it reads this process's memory.
    pub reads_our_memory: bool,
}

/// Connects to the socket at `path` and agrees on shared memory with who
/// listens there, as a client would; then goes away again.
///
/// # Errors
/// [`NetError::Refused`] if nobody listens, [`NetError::Closed`] if no
/// agreement comes within `timeout`.
pub fn agree(path: &str, timeout: Duration) -> Result<Agreement, NetError> {
    let address = format!("shm://{path}");
    let socket = UnixSocket::connect(path, &address)?;
    let peer = UnixSocket::peer(&socket, &address)?;
    let refusal = Arc::new(Mutex::new(None));
    let kept = refusal.clone();
    let options = ShmOptions {
        report: Arc::new(move |line| {
            kept.lock()
                .expect("no holder panics here")
                .get_or_insert_with(|| line.to_owned());
        }),
        ..ShmOptions::default()
    };
    let mut stream =
        ShmBytes::connecting(socket, peer.pid, Arc::new(options), &Arc::new(Pool::new(0)));
    let until = Instant::now() + timeout;
    loop {
        let outcome = stream
            .outcome()
            .map_err(|error| NetError::Protocol(format!("{address} {error}")))?;
        let reads_our_memory = match outcome {
            Outcome::Pending => {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() || stream.is_gone() {
                    let text = format!("{address} has not agreed on anything");
                    return Err(NetError::Closed(text));
                }
                wait(&stream, left)?;
                continue;
            }
            Outcome::Rings { refers } => refers,
            Outcome::Plain => false,
        };
        let refusal = refusal.lock().expect("no holder panics here").take();
        return Ok(Agreement {
            refusal,
            reads_our_memory,
        });
    }
}

fn wait(stream: &ShmBytes, most: Duration) -> Result<(), NetError> {
    let mut sources = [PollFd::from_borrowed_fd(stream.socket(), PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: most.as_secs() as i64,
        tv_nsec: most.subsec_nanos().into(),
    };
    match poll(&mut sources, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(NetError::System(format!("waiting for an answer: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shm;
    use net::{Transport, Unix};

    #[test]
    fn this_host_has_sealed_memory() {
        sealed_memory().unwrap();
    }

    #[test]
    fn who_listens_is_asked() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket").display().to_string();
        let nobody = agree(&path, Duration::from_secs(60)).unwrap_err();
        assert!(matches!(nobody, NetError::Refused(_)), "{nobody:?}");
        let serve = |transport: Box<dyn Transport>, address: String| {
            let mut listener = transport.listen(&address).unwrap();
            let path = path.clone();
            let asking = std::thread::spawn(move || agree(&path, Duration::from_secs(60)));
            let mut links = Vec::new();
            while !asking.is_finished() {
                links.extend(listener.accept().unwrap());
                for link in &mut links {
                    link.source_ready(net::SourceReady::ALL);
                    while link.poll().is_some() {}
                }
                std::thread::yield_now();
            }
            asking.join().unwrap()
        };
        let agreed = serve(Box::<Shm>::default(), format!("shm://{path}")).unwrap();
        assert_eq!(agreed.refusal, None);
        let off = Shm::new(ShmOptions {
            is_on: false,
            ..ShmOptions::default()
        });
        let refused = serve(Box::new(off), format!("shm://{path}")).unwrap();
        assert!(refused.refusal.unwrap().contains("switched off"));
        // A server that knows nothing of it ends the connection.
        let plain = serve(Box::<Unix>::default(), format!("unix://{path}"));
        assert!(matches!(plain, Err(NetError::Closed(_))), "{plain:?}");
    }
}
