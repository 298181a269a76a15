//! Messages arrive whole and in order.

use super::certificates::Authority;
use super::*;

/// The message of this number: its length and bytes follow from that.
fn message(number: usize) -> Bytes {
    let lengths = [0, 1, 19, 4_096, 70_000, 300_000];
    let length = lengths[number % lengths.len()] + number % 7;
    let bytes = (0..length).map(|index| (index * 31 + number * 7) as u8);
    bytes.collect()
}

fn securities() -> [Security; 2] {
    [Security::Plain, Authority::new("cluster").security()]
}

#[test]
fn messages_arrive_whole_and_in_order_both_ways() {
    for security in securities() {
        let mut one = Node::new(1, &security, patient());
        let mut other = Node::new(2, &security, patient());
        linked(&mut one, &mut other);
        const COUNT: usize = 300;
        let mut sent = [0, 0];
        until(&mut [&mut one, &mut other], "all have come", |nodes| {
            for (index, sent) in sent.iter_mut().enumerate() {
                // A few at a time, so that both ends read and write at once.
                for _ in 0..5 {
                    if *sent < COUNT {
                        let to = nodes[1 - index].id;
                        nodes[index].links.send(to, message(*sent)).unwrap();
                        *sent += 1;
                    }
                }
            }
            nodes.iter().all(|node| node.messages().len() == COUNT)
        });
        for node in [&one, &other] {
            for (number, found) in node.messages().into_iter().enumerate() {
                assert_eq!(*found, message(number), "{security:?} {number}");
            }
            assert_eq!((node.ups(), node.downs().len()), (1, 0));
        }
    }
}

#[test]
fn a_message_of_100_mebibytes_arrives_and_so_does_the_one_behind_it() {
    for security in securities() {
        let mut one = Node::new(1, &security, patient());
        let mut other = Node::new(2, &security, patient());
        linked(&mut one, &mut other);
        let long: Bytes = (0..100u32 << 18).flat_map(u32::to_le_bytes).collect();
        one.links.send(other.id, long.clone()).unwrap();
        one.links.send(other.id, message(3)).unwrap();
        until(&mut [&mut one, &mut other], "both have come", |nodes| {
            nodes[1].messages().len() == 2
        });
        let found = other.messages();
        assert!(*found[0] == long && *found[1] == message(3), "{security:?}");
    }
}

#[test]
fn a_message_beyond_the_bound_is_refused_and_the_link_goes_on() {
    let settings = LinkSettings {
        message_bytes_max: 1_000,
        ..patient()
    };
    let mut one = Node::new(1, &Security::Plain, settings);
    let mut other = Node::plain(2);
    assert_eq!(
        one.links.send(other.id, Bytes::new()),
        Err(NotSent::Down(other.id))
    );
    linked(&mut one, &mut other);
    let error = one.links.send(other.id, vec![0; 1_001].into()).unwrap_err();
    assert_eq!(
        error,
        NotSent::TooLong {
            bytes: 1_001,
            message_bytes_max: 1_000
        }
    );
    one.links.send(other.id, vec![0; 1_000].into()).unwrap();
    until(&mut [&mut one, &mut other], "it has come", |nodes| {
        nodes[1].messages().len() == 1
    });
    // The other end has the greater bound, and learns that this one has another.
    other.links.send(one.id, vec![0; 1_001].into()).unwrap();
    until(&mut [&mut one, &mut other], "the link has ended", |nodes| {
        nodes.iter().all(|node| !node.downs().is_empty())
    });
    assert_eq!(here(one.downs()[0]), Some(Reason::Damaged));
    assert_eq!(there(other.downs()[0]), Some(Reason::Damaged));
}

#[test]
fn a_peer_is_reached_by_the_name_of_its_host() {
    let mut one = Node::plain(1);
    let mut other = Node::plain(2);
    let address = other.links.address().replace("127.0.0.1", "localhost");
    one.dials(&[(other.id, &address)]);
    until(&mut [&mut one, &mut other], "the link stands", |nodes| {
        nodes[0].is_up(PeerId(2)) && nodes[1].is_up(PeerId(1))
    });
}

#[test]
fn the_next_address_is_tried_where_one_does_not_answer() {
    let mut one = Node::plain(1);
    let mut other = Node::plain(2);
    let gone = Node::plain(3).links.address().to_owned();
    let refused = [
        ("nonsense", "tcp://HOST:PORT"),
        ("tls://127.0.0.1:1", "there is no certificate"),
        ("tcp://192.0.2.1:9", "loopback addresses"),
        (&gone, "refused"),
    ];
    for (address, words) in refused {
        one.dials(&[(other.id, address)]);
        until(&mut [&mut one], words, |nodes| {
            let why = nodes[0].why(PeerId(2));
            why.starts_with(address) && why.contains(words)
        });
        let status = &one.links.status()[0];
        assert!(status.failures > 0 && !matches!(status.state, PeerState::Up { .. }));
    }
    let mut addresses = refused.map(|(address, _)| address.to_owned()).to_vec();
    addresses.push(other.links.address().to_owned());
    one.links.set_peers(&[(other.id, addresses)].into());
    until(&mut [&mut one, &mut other], "the link stands", |nodes| {
        nodes[0].is_up(PeerId(2))
    });
    let status = &one.links.status()[0];
    assert_eq!((status.failures, &status.why), (0, &None));
}

#[test]
fn another_thread_wakes_it() {
    let mut node = Node::plain(1);
    let waker = node.links.waker();
    let thread = std::thread::spawn(move || waker.wake());
    // Without the waker this would wait for an hour.
    assert!(node.links.poll(None).unwrap().is_empty());
    thread.join().unwrap();
    assert!(node.links.deadline() > Instant::now());
}
