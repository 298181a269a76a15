//! A peer that is gone is an error, and no signal: in a program whose language does not
//! ignore SIGPIPE, as C and C++ do not, it would end the process. A program of its own,
//! for it changes what the signal does.

use fabric::{Shm, ShmOptions};
use net::{LinkEvent, Message, Tcp, Transport, Unix};
use std::sync::atomic::{AtomicUsize, Ordering};
use wire::frame::FrameKind;

static SIGNALS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::SeqCst);
}

/// Sends until the connection is known to be down, without a look at what arrives.
fn send_to_nobody(transport: &dyn Transport, address: &str) {
    let mut listener = transport.listen(address).unwrap();
    for _ in 0..20 {
        let mut link = transport.connect(&listener.address()).unwrap();
        let peer = loop {
            link.flush();
            if let Some(peer) = listener.accept().unwrap() {
                break peer;
            }
        };
        drop(peer);
        loop {
            let message = Message::control(FrameKind::Request, 1, vec![0; 1000]);
            link.send(message);
            if !link.flush()
                && let Some(LinkEvent::Down(_)) = link.poll()
            {
                break;
            }
        }
    }
}

#[test]
fn a_peer_that_is_gone_raises_no_signal() {
    // SAFETY: the handler only counts.
    unsafe { libc::signal(libc::SIGPIPE, count as *const () as libc::sighandler_t) };
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| format!("{}/{name}", directory.path().display());
    send_to_nobody(&Tcp::default(), "tcp://127.0.0.1:0");
    send_to_nobody(&Unix::default(), &format!("unix://{}", path("unix")));
    let shm = Shm::new(ShmOptions::default());
    send_to_nobody(&shm, &format!("shm://{}", path("shm")));
    assert_eq!(SIGNALS.load(Ordering::SeqCst), 0);
}
