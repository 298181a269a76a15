//! How often a transport copies data between memories of its own: alone in
//! its process, because the counter is the process's.

use bytes::Bytes;
use memory::{Buffer, Target, copies};
use net::*;
use wire::frame::{BULK_CHUNK_BYTES, FrameKind};

const CHUNKS: usize = 40;

fn next(reactor: &mut Reactor) -> LinkEvent {
    loop {
        match reactor.next() {
            Some(ReactorEvent::Link { event, .. }) => return event,
            Some(_) => {}
            None => reactor.wait(None).unwrap(),
        }
    }
}

/// Moves data both ways by regions, and once as a message. Returns the bytes
/// that were copied for reads, writes and messages.
fn copied(transport: &dyn Transport, address: &str) -> [u64; 3] {
    let mut listener = transport.listen(address).unwrap();
    let client = transport.connect(&listener.address()).unwrap();
    let mut server = None;
    while server.is_none() {
        server = listener.accept().unwrap();
    }
    let mut reactor = Reactor::new().unwrap();
    let client = reactor.add_link(client).unwrap();
    let server = reactor.add_link(server.unwrap()).unwrap();
    for _ in 0..2 {
        assert!(matches!(next(&mut reactor), LinkEvent::Up));
    }
    let data = Bytes::from(vec![3; CHUNKS * BULK_CHUNK_BYTES]);
    let start = copies::bytes();

    let exposed = reactor.link(client).unwrap().expose(data.clone());
    for chunk in 0..CHUNKS {
        let read = RegionRead {
            region: exposed.clone(),
            offset: (chunk * BULK_CHUNK_BYTES) as u64,
            into: Buffer::zeroed(BULK_CHUNK_BYTES),
            block_bytes: 4096,
        };
        let link = reactor.link(server).unwrap();
        link.read(BulkToken(chunk as u64), read);
    }
    for _ in 0..CHUNKS {
        let event = next(&mut reactor);
        assert!(matches!(event, LinkEvent::ReadDone { result: Ok(_), .. }));
    }
    let after_reads = copies::bytes();

    let target = Target::new(Buffer::zeroed(data.len()));
    let lent = reactor.link(client).unwrap().lend(target);
    let link = reactor.link(server).unwrap();
    for chunk in 0..CHUNKS {
        let at = chunk * BULK_CHUNK_BYTES;
        let write = RegionWrite {
            region: lent.clone(),
            offset: at as u64,
            pieces: vec![data.slice(at..at + BULK_CHUNK_BYTES)],
        };
        link.write(BulkToken(chunk as u64), write);
    }
    let message = |payload| Message {
        payload,
        lane: Lane::Bulk,
        ..Message::control(FrameKind::Reply, 1, Bytes::new())
    };
    link.send(message(Vec::new()));
    while !matches!(next(&mut reactor), LinkEvent::Message(_)) {}
    let after_writes = copies::bytes();

    let link = reactor.link(client).unwrap();
    link.send(message(vec![data.clone()]));
    while !matches!(next(&mut reactor), LinkEvent::Message(_)) {}
    let end = copies::bytes();
    [
        after_reads - start,
        after_writes - after_reads,
        end - after_writes,
    ]
}

#[test]
fn sockets_copy_nothing_and_in_process_links_once() {
    let data = (CHUNKS * BULK_CHUNK_BYTES) as u64;
    let directory = tempfile::tempdir().unwrap();
    let unix = format!("unix://{}/socket", directory.path().display());
    for copied in [
        copied(&Tcp::default(), "tcp://127.0.0.1:0"),
        copied(&Unix::default(), &unix),
    ] {
        // What came along with a header that looked unlike the one before it
        // is at most one buffer's worth, and not once a chunk.
        for bytes in copied {
            assert!(bytes <= 64 * 1024, "{bytes} of {data} bytes copied");
        }
    }
    let inproc = copied(&Inproc::default(), "inproc://copies");
    assert_eq!(inproc, [data; 3], "once");
}
