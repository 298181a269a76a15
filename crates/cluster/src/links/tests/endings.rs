//! Links that end, and peers that come back.

use super::super::frame::{Kind, header};
use super::certificates::Authority;
use super::stranger::Stranger;
use super::*;

#[test]
fn what_a_peer_does_not_read_is_bounded_and_its_silence_ends_the_link() {
    let settings = LinkSettings {
        message_bytes_max: 1 << 20,
        queue_bytes_max: 8 << 20,
        ..hasty()
    };
    let mut node = Node::new(1, &Security::Plain, settings);
    let mut peer = Stranger::to(&node, None);
    peer.greets(&mut node, PeerId(2));
    // From here on the peer neither reads nor says anything.
    let message = Bytes::from(vec![7; 1 << 20]);
    let mut sent = 0u64;
    let mut queued_max = 0;
    let error = loop {
        assert!(sent < 64 << 20, "the queue has no bound");
        match node.links.send(PeerId(2), message.clone()) {
            Ok(()) => sent += message.len() as u64,
            Err(error @ NotSent::Full { .. }) => break error,
            Err(error) => panic!("{error}"),
        }
        if let PeerState::Up { queued_bytes, .. } = node.links.status()[0].state {
            queued_max = queued_max.max(queued_bytes);
        }
    };
    assert!(
        queued_max <= 8 << 20 && sent > 6 << 20,
        "{queued_max} {sent}: {error}"
    );
    until(&mut [&mut node], "the link is gone", |nodes| {
        !nodes[0].downs().is_empty()
    });
    let reason = here(node.downs()[0]);
    assert!(
        matches!(reason, Some(Reason::Silent | Reason::Stuck)),
        "{reason:?}"
    );
    assert_eq!(
        node.links.send(PeerId(2), message),
        Err(NotSent::Down(PeerId(2)))
    );
}

#[test]
fn a_peer_that_reads_nothing_is_left_though_it_says_that_it_is_there() {
    let settings = LinkSettings {
        queue_bytes_max: 192 << 20,
        ..hasty()
    };
    let mut node = Node::new(1, &Security::Plain, settings);
    let mut peer = Stranger::to(&node, None);
    peer.greets(&mut node, PeerId(2));
    for _ in 0..32 {
        node.links.send(PeerId(2), vec![7; 1 << 20].into()).unwrap();
    }
    // A socket of its own, so that what comes to it is never read.
    let heartbeat = header(Kind::Heartbeat, b"");
    until(&mut [&mut node], "the link is gone", |nodes| {
        peer.say_unread(&heartbeat);
        !nodes[0].downs().is_empty()
    });
    assert_eq!(here(node.downs()[0]), Some(Reason::Stuck));
}

#[test]
fn half_a_frame_and_then_nothing_ends_the_link() {
    let mut node = Node::new(1, &Security::Plain, hasty());
    let mut peer = Stranger::to(&node, None);
    peer.greets(&mut node, PeerId(2));
    let frame = [&header(Kind::Message, &[1; 5_000])[..], &[1; 2_000]].concat();
    peer.say(frame);
    peer.until(&mut node, "the link is gone", |peer, node| {
        peer.is_down && !node.downs().is_empty()
    });
    assert_eq!(here(node.downs()[0]), Some(Reason::Silent));
    assert!(node.messages().is_empty());
}

#[test]
fn heartbeats_keep_a_link_on_which_nothing_is_sent() {
    let (mut one, mut other) = (
        Node::new(1, &Security::Plain, hasty()),
        Node::new(2, &Security::Plain, hasty()),
    );
    linked(&mut one, &mut other);
    let until_then = one.links.clock.elapsed() + 2 * hasty().silence_max;
    until(
        &mut [&mut one, &mut other],
        "silence would be over",
        |nodes| nodes[0].links.clock.elapsed() > until_then,
    );
    assert!(one.downs().is_empty() && other.downs().is_empty());
}

#[test]
fn a_peer_that_stands_still_is_gone_and_is_back_when_it_goes_on() {
    let mut one = Node::new(1, &Security::Plain, hasty());
    let mut other = Node::new(2, &Security::Plain, patient());
    other.dials_node(&one);
    linked(&mut one, &mut other);
    until(&mut [&mut one], "the link is gone", |nodes| {
        !nodes[0].downs().is_empty()
    });
    assert_eq!(here(one.downs()[0]), Some(Reason::Silent));
    until(
        &mut [&mut one, &mut other],
        "a link stands again",
        |nodes| nodes.iter().all(|node| node.ups() >= 2),
    );
    // Why, it may not have read: it wrote to a socket that was closed.
    assert!(!other.downs().is_empty());
}

#[test]
fn a_peer_that_dies_and_comes_back_elsewhere_is_linked_again() {
    for security in [Security::Plain, Authority::new("cluster").security()] {
        let mut one = Node::new(1, &security, patient());
        let mut other = Node::new(2, &security, patient());
        linked(&mut one, &mut other);
        drop(other);
        until(&mut [&mut one], "the link is gone", |nodes| {
            !nodes[0].downs().is_empty()
        });
        assert!(matches!(one.downs()[0], Ended::Lost(_)));
        let mut other = Node::new(2, &security, patient());
        linked(&mut one, &mut other);
        other
            .links
            .send(one.id, Bytes::from_static(b"back"))
            .unwrap();
        until(&mut [&mut one, &mut other], "it speaks", |nodes| {
            nodes[0].messages().len() == 1
        });
        assert_eq!((one.ups(), one.downs().len()), (2, 1));
    }
}

#[test]
fn a_peer_that_has_started_again_replaces_its_old_link() {
    let mut node = Node::plain(1);
    let mut old = Node::plain(2);
    linked(&mut old, &mut node);
    node.events.clear();
    // Its host has lost its power: nothing ends the old connection, and silence is far off.
    let mut new = Node::plain(2);
    new.dials_node(&node);
    until(&mut [&mut node, &mut new], "the new link stands", |nodes| {
        nodes[0].ups() == 1 && nodes[1].is_up(PeerId(1))
    });
    let events = &node.events[..];
    let [PeerEvent::Down(peer, ended), PeerEvent::Up(again)] = events else {
        panic!("{events:?}");
    };
    assert_eq!((*peer, *again), (PeerId(2), PeerId(2)));
    assert_eq!(here(ended), Some(Reason::Replaced));
    node.links
        .send(PeerId(2), Bytes::from_static(b"to the new one"))
        .unwrap();
    until(&mut [&mut node, &mut new], "it has come", |nodes| {
        nodes[1].messages().len() == 1
    });
}

#[test]
fn a_link_that_its_owner_ends_says_why_and_is_made_again() {
    let (mut one, mut other) = (Node::plain(1), Node::plain(2));
    linked(&mut one, &mut other);
    other.links.end(one.id, "the table has moved");
    until(&mut [&mut one, &mut other], "it is made again", |nodes| {
        nodes.iter().all(|node| node.ups() == 2)
    });
    assert_eq!(here(other.downs()[0]), Some(Reason::Asked));
    let ended = one.downs()[0];
    assert_eq!(there(ended), Some(Reason::Asked));
    assert!(ended.to_string().contains("the table has moved"), "{ended}");
}

#[test]
fn a_server_that_stops_says_so() {
    let (mut one, mut other) = (Node::plain(1), Node::plain(2));
    linked(&mut one, &mut other);
    other.links.close("the server stops");
    until(&mut [&mut one], "it has heard so", |nodes| {
        !nodes[0].downs().is_empty()
    });
    let ended = one.downs()[0];
    assert!(ended.to_string().contains("the server stops"), "{ended}");
}

#[test]
fn a_peer_that_is_not_listed_any_more_is_not_dialled_and_keeps_its_link() {
    let (mut one, mut other) = (Node::plain(1), Node::plain(2));
    linked(&mut one, &mut other);
    one.dials(&[]);
    one.links
        .send(other.id, Bytes::from_static(b"still"))
        .unwrap();
    until(&mut [&mut one, &mut other], "it has come", |nodes| {
        nodes[1].messages().len() == 1
    });
    drop(other);
    until(&mut [&mut one], "the link is gone", |nodes| {
        !nodes[0].downs().is_empty()
    });
    assert!(one.links.status().is_empty());
}
