//! What the kernel counts of a TCP connection, asked by sock_diag(7): `getsockopt(TCP_INFO)` gives the same, but no library here does it
//! without unsafe code. Linux alone has it.

use std::net::SocketAddr;

/// Segments that were sent again on the connection of this process from one address to the other; `None` where that cannot be known.
pub(crate) fn retransmits(own: SocketAddr, peer: SocketAddr) -> Option<u32> {
    #[cfg(target_os = "linux")]
    return diagnosis::ask(own, peer).ok().flatten();
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (own, peer);
        None
    }
}

#[cfg(target_os = "linux")]
mod diagnosis {
    use rustix::io;
    use rustix::net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send,
        socket_with,
    };
    use std::net::{IpAddr, SocketAddr};

    /// `SOCK_DIAG_BY_FAMILY`, the message that asks and the one that answers.
    const BY_FAMILY: u16 = 20;
    const REQUEST: u16 = 1;
    const IPPROTO_TCP: u8 = 6;
    /// `INET_DIAG_INFO`: a `tcp_info`.
    const INFO: u16 = 2;
    const HEADER_BYTES: usize = 16;
    /// An `inet_diag_msg`, behind the header.
    const MESSAGE_BYTES: usize = 72;
    /// Where `tcpi_total_retrans` is.
    const TOTAL_RETRANSMITS_AT: usize = 100;

    pub fn ask(own: SocketAddr, peer: SocketAddr) -> io::Result<Option<u32>> {
        let flags = SocketFlags::CLOEXEC;
        let protocol = Some(netlink::SOCK_DIAG);
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        send(&socket, &request(own, peer), SendFlags::empty())?;
        let mut answer = [0; 4096];
        // The kernel has answered when it has taken the question.
        let (read, _) = recv(&socket, &mut answer[..], RecvFlags::DONTWAIT)?;
        Ok(answer.get(..read).and_then(total_in))
    }

    fn request(own: SocketAddr, peer: SocketAddr) -> Vec<u8> {
        let family = match own.is_ipv4() {
            true => AddressFamily::INET,
            false => AddressFamily::INET6,
        };
        // inet_diag_req_v2, as linux/inet_diag.h has it: what is asked for, in any state; then inet_diag_sockid.
        let mut body = vec![family.as_raw() as u8, IPPROTO_TCP, 1 << (INFO - 1), 0];
        body.extend(u32::MAX.to_ne_bytes());
        body.extend(own.port().to_be_bytes());
        body.extend(peer.port().to_be_bytes());
        for address in [own.ip(), peer.ip()] {
            let mut bytes = [0; 16];
            match address {
                IpAddr::V4(address) => bytes[..4].copy_from_slice(&address.octets()),
                IpAddr::V6(address) => bytes = address.octets(),
            }
            body.extend(bytes);
        }
        // Any interface, any cookie.
        body.extend(0_u32.to_ne_bytes());
        body.extend([0xff; 8]);
        let mut message = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
        message.extend(BY_FAMILY.to_ne_bytes());
        message.extend(REQUEST.to_ne_bytes());
        message.extend([0; 8]);
        message.extend(body);
        message
    }

    /// The count in an answer, if it is one and has it. Takes any bytes.
    pub fn total_in(answer: &[u8]) -> Option<u32> {
        let u16_at = |bytes: &[u8], at: usize| {
            let bytes = bytes.get(at..at + 2)?;
            Some(u16::from_ne_bytes(bytes.try_into().ok()?))
        };
        if u16_at(answer, 4)? != BY_FAMILY {
            return None;
        }
        let mut rest = answer.get(HEADER_BYTES + MESSAGE_BYTES..)?;
        loop {
            let length = usize::from(u16_at(rest, 0)?);
            let content = rest.get(4..length)?;
            if u16_at(rest, 2)? == INFO {
                let count = content.get(TOTAL_RETRANSMITS_AT..TOTAL_RETRANSMITS_AT + 4)?;
                return Some(u32::from_ne_bytes(count.try_into().ok()?));
            }
            rest = rest.get(length.next_multiple_of(4)..)?;
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use socket2::{Domain, Socket, Type};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    #[test]
    fn a_connection_that_stands_has_a_count_and_one_that_is_not_there_has_none() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                continue;
            };
            let there = listener.local_addr().unwrap();
            let near = TcpStream::connect(there).unwrap();
            let (far, _) = listener.accept().unwrap();
            for end in [&near, &far] {
                let (own, peer) = (end.local_addr().unwrap(), end.peer_addr().unwrap());
                assert_eq!(retransmits(own, peer), Some(0));
            }
            let nobody = SocketAddr::new(there.ip(), 1);
            assert_eq!(retransmits(nobody, nobody), None);
        }
    }

    #[test]
    fn what_is_sent_again_is_counted() {
        // Its queue is full with one connection: a second one is asked for again and again.
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener
            .bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into())
            .unwrap();
        listener.listen(0).unwrap();
        let there = listener.local_addr().unwrap();
        let all: Vec<Socket> = (0..4)
            .map(|_| {
                let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
                socket.set_nonblocking(true).unwrap();
                let _ = socket.connect(&there);
                socket
            })
            .collect();
        let own = all[3].local_addr().unwrap().as_socket().unwrap();
        let began = Instant::now();
        while retransmits(own, there.as_socket().unwrap()) == Some(0) {
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "nothing is sent again"
            );
            std::thread::yield_now();
        }
        assert!(retransmits(own, there.as_socket().unwrap()) > Some(0));
    }

    #[test]
    fn any_bytes_give_an_answer() {
        let mut state = 7_u64;
        for _ in 0..20_000 {
            let mut next = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            };
            let count = usize::from(next());
            let mut bytes: Vec<u8> = (0..count).map(|_| next() & 0x1f).collect();
            if let Some(kind) = bytes.get_mut(4..6) {
                kind.copy_from_slice(&20_u16.to_ne_bytes());
            }
            let _ = diagnosis::total_in(&bytes);
        }
    }
}
