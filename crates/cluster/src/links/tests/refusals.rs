//! Who is refused, and that both ends know why.

use super::super::frame::{Kind, header};
use super::super::hello::{Greeting, Hello};
use super::certificates::Authority;
use super::stranger::Stranger;
use super::*;
use crate::faults::{Fault, with};
use wire::checksum::crc32c;

/// Polls until the node that was dialled has refused somebody, and the other one knows that.
fn refusal(dialling: &mut Node, dialled: &mut Node, words: &str) {
    until(&mut [dialling, dialled], "it is refused", |nodes| {
        let peer = nodes[0].links.status()[0].peer;
        nodes[0].why(peer).contains(words) && !nodes[1].refused().is_empty()
    });
    assert_eq!((dialling.ups(), dialled.ups()), (0, 0));
}

fn reasons(node: &Node) -> Vec<Option<Reason>> {
    node.refused().into_iter().map(here).collect()
}

#[test]
fn a_server_whose_certificate_is_of_another_authority_is_refused_at_both_ends() {
    let mut node = Node::new(1, &Authority::new("cluster").security(), patient());
    let mut stranger = Node::new(2, &Authority::new("another").security(), patient());
    stranger.dials_node(&node);
    refusal(&mut stranger, &mut node, "no authority that is known here");
    assert_eq!(reasons(&node)[0], Some(Reason::Certificate));
}

#[test]
fn who_shows_no_certificate_or_one_that_does_not_count_is_told_so() {
    let cluster = Authority::new("cluster");
    let another = Authority::new("another").holder((2020, 2200));
    let expired = cluster.holder((2020, 2021));
    let future = cluster.holder((2190, 2200));
    let mut node = Node::new(1, &cluster.security(), patient());
    for (certificate, words) in [
        (None, "shows no certificate"),
        (Some(&another), "no authority that is known here"),
        (Some(&expired), "it has expired"),
        (Some(&future), "not valid yet"),
    ] {
        node.events.clear();
        let mut stranger = Stranger::to(&node, certificate);
        let goodbye = stranger.hears_why(&mut node);
        assert_eq!(goodbye.reason, Reason::Certificate);
        assert!(goodbye.text.contains(words), "{goodbye}");
        assert_eq!(reasons(&node), [Some(Reason::Certificate)]);
        assert_eq!(
            stranger.frames.len(),
            1,
            "nothing else is said to a stranger"
        );
    }
}

#[test]
fn what_a_stranger_says_behind_its_refusal_does_not_count() {
    let mut node = Node::new(1, &Authority::new("cluster").security(), patient());
    let mut stranger = Stranger::to(&node, None);
    stranger.hears_why(&mut node);
    let hello = Hello {
        cluster: CLUSTER,
        from: PeerId(2),
        to: node.id,
        greeting: Greeting { run: 1, ended: 0 },
    };
    stranger.say_frame(Kind::Hello, &hello.to_bytes());
    stranger.say_frame(Kind::Message, b"let me in");
    drop(stranger);
    until(&mut [&mut node], "it has gone", |nodes| {
        nodes[0].links.connections.is_empty()
    });
    assert_eq!((node.ups(), node.messages().len()), (0, 0));
}

#[test]
fn a_server_that_has_no_certificate_of_its_cluster_does_not_begin() {
    let (cluster, another) = (Authority::new("cluster"), Authority::new("another"));
    for (holder, words) in [
        (
            another.holder((2020, 2200)),
            "no authority that is known here",
        ),
        (cluster.holder((2020, 2021)), "it has expired"),
    ] {
        let security = cluster.security_of(&holder);
        let error = PeerLinks::open(&config(1, &security, patient())).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}

/// Whether one server of a cluster that says it is another one is refused, and both ends say so.
fn another_name_is_refused() -> bool {
    let cluster = Authority::new("cluster");
    let mut node = Node::new(1, &cluster.security(), patient());
    let certificate = cluster.holder_for(2..3, (2020, 2200));
    let mut stranger = Stranger::to(&node, Some(&certificate));
    let hello = Hello {
        cluster: CLUSTER,
        from: PeerId(3),
        to: node.id,
        greeting: Greeting { run: 1, ended: 0 },
    };
    stranger.until(&mut node, "it is connected", |stranger, _| stranger.is_up);
    stranger.say_frame(Kind::Hello, &hello.to_bytes());
    stranger.until(&mut node, "it is refused or not", |_, node| {
        node.ups() > 0 || !node.refused().is_empty()
    });
    if node.ups() > 0 {
        return false;
    }
    let goodbye = stranger.hears_why(&mut node);
    assert!(goodbye.text.contains("is not that of"), "{goodbye}");
    reasons(&node) == [Some(Reason::Certificate)]
}

#[test]
fn a_server_that_says_it_is_another_one_of_its_cluster_is_refused() {
    assert!(another_name_is_refused());
}

#[test]
fn a_name_that_nobody_checks_is_noticed() {
    assert!(!with(Fault::NameNotChecked, another_name_is_refused));
}

#[test]
fn a_server_whose_certificate_is_of_another_one_does_not_begin_and_does_not_take_it_later() {
    let cluster = Authority::new("cluster");
    let of_another = cluster.holder_for(2..3, (2020, 2200));
    let security = cluster.security_of(&of_another);
    let error = PeerLinks::open(&config(1, &security, patient())).unwrap_err();
    assert!(error.to_string().contains("is not that of"), "{error}");
    let mut links = PeerLinks::open(&config(1, &cluster.security(), patient())).unwrap();
    let renewed = links.renew(of_another.chain.as_bytes(), of_another.key.as_bytes());
    assert!(renewed.unwrap_err().to_string().contains("is not that of"));
    let own = cluster.holder_for(1..2, (2020, 2200));
    links
        .renew(own.chain.as_bytes(), own.key.as_bytes())
        .unwrap();
}

#[test]
fn without_tls_it_listens_on_loopback_addresses_alone() {
    let config = LinksConfig {
        listen: "tcp://0.0.0.0:0".to_owned(),
        ..config(1, &Security::Plain, patient())
    };
    let error = PeerLinks::open(&config).unwrap_err().to_string();
    assert!(error.contains("loopback addresses"), "{error}");
}

/// Whether a server of another cluster is refused, and both ends say so.
fn another_cluster_is_refused() -> bool {
    let mut node = Node::plain(1);
    let mut stranger = Node::of(&LinksConfig {
        cluster: ClusterId(0xc2),
        ..config(2, &Security::Plain, patient())
    });
    stranger.dials_node(&node);
    until(
        &mut [&mut stranger, &mut node],
        "it is refused or not",
        |nodes| {
            nodes[1].ups() > 0
                || (!nodes[0].why(PeerId(1)).is_empty() && !nodes[1].refused().is_empty())
        },
    );
    let why = stranger.why(node.id);
    reasons(&node).first() == Some(&Some(Reason::Cluster))
        && why.contains("the other end says")
        && why.contains("is of cluster")
}

#[test]
fn a_server_of_another_cluster_is_refused() {
    assert!(another_cluster_is_refused());
}

#[test]
fn a_cluster_that_nobody_checks_is_noticed() {
    assert!(!with(Fault::ClusterNotChecked, another_cluster_is_refused));
}

#[test]
fn a_server_that_wants_another_one_is_refused() {
    let mut node = Node::plain(1);
    let mut other = Node::plain(2);
    let address = node.links.address().to_owned();
    other.dials(&[(PeerId(77), &address)]);
    refusal(&mut other, &mut node, "the other end says: it wants server");
    assert_eq!(reasons(&node)[0], Some(Reason::Peer));
}

#[test]
fn a_server_that_dials_itself_knows_it() {
    let mut node = Node::plain(1);
    let address = node.links.address().to_owned();
    node.dials(&[(PeerId(77), &address), (PeerId(1), &address)]);
    assert_eq!(node.links.status().len(), 1, "it does not dial its own id");
    until(&mut [&mut node], "it is refused", |nodes| {
        nodes[0].why(PeerId(77)).contains("the same server") && !nodes[0].refused().is_empty()
    });
    assert_eq!(reasons(&node)[0], Some(Reason::Oneself));
}

#[test]
fn one_that_answers_as_another_server_is_left() {
    // A listener that answers every hello with one of server 9.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    let mut node = Node::plain(1);
    node.dials(&[(PeerId(2), &address)]);
    let hello = Hello {
        cluster: CLUSTER,
        from: PeerId(9),
        to: node.id,
        greeting: Greeting { run: 1, ended: 0 },
    };
    let frame = [
        &header(Kind::Hello, &hello.to_bytes())[..],
        &hello.to_bytes(),
    ]
    .concat();
    let mut taken = Vec::new();
    until(&mut [&mut node], "it is left", |nodes| {
        if let Ok((mut stream, _)) = listener.accept() {
            std::io::Write::write_all(&mut stream, &frame).unwrap();
            taken.push(stream);
        }
        nodes[0].why(PeerId(2)).contains("answers where")
    });
    assert_eq!(node.ups(), 0);
}

#[test]
fn another_version_is_refused_with_both_numbers_known() {
    let mut node = Node::plain(1);
    let mut stranger = Stranger::to(&node, None);
    let mut hello = Hello {
        cluster: CLUSTER,
        from: PeerId(2),
        to: node.id,
        greeting: Greeting { run: 1, ended: 0 },
    }
    .to_bytes();
    hello[0] = 9;
    hello.extend_from_slice(b"what later versions say");
    stranger.say_frame(Kind::Hello, &hello);
    let goodbye = stranger.hears_why(&mut node);
    assert_eq!(goodbye.reason, Reason::Version);
    assert!(goodbye.text.contains("version is 0x9"), "{goodbye}");
    assert_eq!(reasons(&node), [Some(Reason::Version)]);
}

/// The header of a message of this length, whose checksum is right.
fn promise(length: u32) -> Vec<u8> {
    let mut bytes = header(Kind::Message, b"").to_vec();
    bytes[12..16].copy_from_slice(&length.to_le_bytes());
    let crc = crc32c(&bytes[8..]);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn bytes_that_are_no_frame_end_it_before_a_hello() {
    let mut node = Node::plain(1);
    let tls = [0x16, 3, 1, 2, 0, 1];
    for (bytes, words) in [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "magic"),
        (tls.to_vec(), "the other end speaks TLS"),
        (promise(u32::MAX), "length is 0xffffffff"),
        (promise(1 << 20), "length is 0x100000"),
        (promise(0), "a frame Message must not come now"),
    ] {
        node.events.clear();
        let mut stranger = Stranger::to(&node, None);
        stranger.say(bytes);
        let goodbye = stranger.hears_why(&mut node);
        assert_eq!(goodbye.reason, Reason::Damaged);
        assert!(goodbye.text.contains(words), "{goodbye}");
        assert_eq!(reasons(&node), [Some(Reason::Damaged)]);
    }
}

#[test]
fn bytes_that_are_no_frame_end_a_link() {
    let mut node = Node::plain(1);
    for (bytes, words) in [
        (vec![0; 100], "magic"),
        (promise(u32::MAX), "length is 0xffffffff"),
        (header(Kind::Hello, b"").to_vec(), "Hello must not come now"),
    ] {
        node.events.clear();
        let mut peer = Stranger::to(&node, None);
        peer.greets(&mut node, PeerId(2));
        peer.say(bytes);
        let goodbye = peer.hears_why(&mut node);
        assert!(goodbye.text.contains(words), "{goodbye}");
        let downs: Vec<_> = node.downs().into_iter().map(here).collect();
        assert_eq!(downs, [Some(Reason::Damaged)]);
    }
}

/// Whether a message that was changed on its way ends the link, and nothing of it is taken.
fn a_changed_message_ends_the_link() -> bool {
    let mut node = Node::plain(1);
    let mut peer = Stranger::to(&node, None);
    peer.greets(&mut node, PeerId(2));
    let mut bytes = [&header(Kind::Message, b"ten euros")[..], b"ten euros"].concat();
    *bytes.last_mut().unwrap() ^= 1;
    peer.say(bytes);
    peer.until(&mut node, "it has come", |_, node| {
        node.messages().len() + node.downs().len() > 0
    });
    node.messages().is_empty() && here(node.downs()[0]) == Some(Reason::Damaged)
}

#[test]
fn a_message_that_was_changed_on_its_way_ends_the_link() {
    assert!(a_changed_message_ends_the_link());
}

#[test]
fn a_checksum_that_nobody_checks_is_noticed() {
    assert!(!with(Fault::CrcNotChecked, a_changed_message_ends_the_link));
}

#[test]
fn of_too_many_that_say_nothing_the_oldest_goes() {
    let settings = LinkSettings {
        unfinished_max: 3,
        ..patient()
    };
    let mut node = Node::new(1, &Security::Plain, settings);
    let mut strangers: Vec<Stranger> = Vec::new();
    for count in 1..=4 {
        strangers.push(Stranger::to(&node, None));
        let last = strangers.last_mut().unwrap();
        last.until(&mut node, "it is accepted", |_, node| {
            node.links.connections.len() + node.refused().len() == count
        });
    }
    let goodbye = strangers[0].hears_why(&mut node);
    assert_eq!(goodbye.reason, Reason::TooMany);
    assert_eq!(reasons(&node), [Some(Reason::TooMany)]);
    // A peer still gets its link.
    let mut peer = Stranger::to(&node, None);
    peer.greets(&mut node, PeerId(2));
}

#[test]
fn who_says_no_hello_or_half_of_one_is_not_waited_for() {
    let settings = LinkSettings {
        heartbeat: Duration::from_millis(10),
        handshake_max: Duration::from_millis(50),
        ..patient()
    };
    let half = &header(Kind::Hello, &[0; 72])[..9];
    for said in [&b""[..], half] {
        let mut node = Node::new(1, &Security::Plain, settings);
        let mut stranger = Stranger::to(&node, None);
        stranger.say(said.to_vec());
        stranger.until(&mut node, "it is ended", |stranger, node| {
            stranger.is_down && !node.refused().is_empty()
        });
        assert_eq!(reasons(&node), [Some(Reason::Late)]);
        assert_eq!(stranger.goodbye().map(|one| one.reason), Some(Reason::Late));
    }
}

#[test]
fn without_tls_nothing_is_let_in_where_tls_is_spoken() {
    let mut node = Node::new(1, &Authority::new("cluster").security(), patient());
    let address = node.links.address().replace("tls://", "tcp://");
    let mut stranger = Stranger::at(&address, None);
    stranger.say_frame(Kind::Hello, &[0; 72]);
    stranger.until(&mut node, "it is refused", |_, node| {
        !node.refused().is_empty()
    });
    let why = node.refused()[0].to_string();
    assert!(why.contains("no TLS"), "{why}");
    assert!(stranger.frames.is_empty());
}
