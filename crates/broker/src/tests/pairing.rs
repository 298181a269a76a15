//! Pairing: who gets a certificate by a code, once.

use super::certificates::{Site, by_certificate, now, peer};
use super::harness::*;
use crate::Fault;
use crate::node::LinkId;
use access::{
    CODE_LASTS, CODE_WRONG_MAX, Certificate, Code, Pairing, prove_pairing, verify_pairing,
};
use bytes::Bytes;
use net::Peer;
use std::time::Duration;
use wire::frame::FrameKind;
use wire::message::*;
use wire::*;

fn offer(world: &mut World, owner: LinkId, project: &str, name: &str) -> Result<Code, ErrorReply> {
    let asked = OfferPairing {
        project: project.into(),
        name: name.into(),
        life_ms: 3_600_000,
    };
    let offered = world.call::<PairingOffered>(owner, Method::OfferPairing, TopicId(0), &asked)?;
    assert_eq!(offered.lasts_ms, CODE_LASTS.as_millis() as u64);
    Ok(offered.code.parse().unwrap())
}

/// A request, as the tests' authority takes one: the public key.
fn request() -> Bytes {
    let key = rcgen::KeyPair::generate().unwrap();
    rcgen::PublicKeyData::subject_public_key_info(&key).into()
}

/// Comes with a code, and what it thinks that the server has shown. What it gets.
fn join(world: &mut World, code: &Code, server: &[u8]) -> Result<Paired, ErrorReply> {
    let request = request();
    let proof = prove_pairing(code, server, Pairing::Joins(&request));
    let pair = Pair {
        proof: proof.to_vec().into(),
        request,
    };
    let hello = Hello {
        mechanism: PAIRING.into(),
        proof: pair.to_bytes().into(),
        ..hello()
    };
    let link = world.connect_as(peer(&[]), hello);
    assert!(
        world.links[&link].closed.is_some(),
        "nothing else is done there"
    );
    let inbox = &world.links[&link].inbox;
    match inbox
        .iter()
        .find(|message| message.kind == FrameKind::Reply)
    {
        Some(reply) => Ok(Paired::from_bytes("paired", &reply.head).unwrap()),
        None => Err(world.error(link, 0).expect("it is refused")),
    }
}

/// A server, and the certificate that it shows.
fn start(fault: Option<Fault>) -> (Site, World, LinkId, Bytes) {
    let mut site = Site::with(fault.map_or_else(Ground::new, Ground::with_fault));
    let mut world = site.ground.start();
    let owner = world.connect();
    let shown = site.shown.current().certificates().swap_remove(0);
    (site, world, owner, shown)
}

#[test]
fn a_code_buys_a_certificate_that_lets_its_holder_in() {
    let (_site, mut world, owner, shown) = start(None);
    let code = offer(&mut world, owner, "p", "beamline").unwrap();
    let paired = join(&mut world, &code, &shown).unwrap();
    assert_eq!(paired.holder, "thalweg://ornl/p/beamline");
    let own = &paired.certificates[0];
    assert!(verify_pairing(
        &code,
        &shown,
        Pairing::Offers(own),
        &paired.proof
    ));
    let certificate = Certificate::read(own).unwrap();
    assert_eq!(certificate.holder().uri(), paired.holder);
    assert_eq!(certificate.life(), Duration::from_millis(paired.life_ms));
    assert!(certificate.expires() > now(&world));
    let link = world.connect_as(peer(&paired.certificates), by_certificate());
    assert!(
        world.links[&link].closed.is_none(),
        "{:?}",
        world.error(link, 0)
    );
    // Nothing of it in the audit trail is a secret.
    let record = world
        .audited
        .iter()
        .find(|one| one.what.name() == "pair")
        .unwrap();
    let line = record.to_line();
    assert!(line.contains("thalweg://ornl/p/beamline"), "{line}");
    assert!(!line.contains(&code.to_text()));
}

/// Whether a code that was used lets a second one in.
fn twice(fault: Option<Fault>) -> bool {
    let (_site, mut world, owner, shown) = start(fault);
    let code = offer(&mut world, owner, "p", "n").unwrap();
    join(&mut world, &code, &shown).unwrap();
    join(&mut world, &code, &shown).is_ok()
}

#[test]
fn a_code_is_good_once() {
    assert!(!twice(None));
    assert!(twice(Some(Fault::CodeAgain)));
}

#[test]
fn a_code_is_good_for_ten_minutes_a_hundred_guesses_and_one_server() {
    let (_site, mut world, owner, shown) = start(None);
    let code = offer(&mut world, owner, "p", "n").unwrap();
    let wrong = Code::new([9; 10]);
    let error = join(&mut world, &wrong, &shown).unwrap_err();
    assert_eq!(error.code, ErrorCode::NotAuthenticated);
    assert!(error.message.contains("thalweg pair offer"), "{error}");
    // Who has seen the certificate of somebody in between proves nothing to the server.
    join(&mut world, &code, b"another certificate").unwrap_err();
    world.live(&[owner], CODE_LASTS - Duration::from_secs(1));
    let other = offer(&mut world, owner, "p", "m").unwrap();
    world.live(&[owner], Duration::from_secs(1));
    join(&mut world, &code, &shown).unwrap_err();
    // The other one has seen one guess.
    for _ in 2..CODE_WRONG_MAX {
        join(&mut world, &wrong, &shown).unwrap_err();
    }
    let last = offer(&mut world, owner, "p", "last").unwrap();
    join(&mut world, &wrong, &shown).unwrap_err();
    join(&mut world, &other, &shown).unwrap_err();
    assert_eq!(
        join(&mut world, &last, &shown).unwrap().holder,
        "thalweg://ornl/p/last"
    );
}

#[test]
fn an_offer_is_the_administrators_and_of_names_that_certificates_have() {
    let (site, mut world, owner, shown) = start(None);
    let key = rcgen::KeyPair::generate().unwrap();
    let chain = site.own.sign(
        "thalweg://ornl/p/n",
        &key,
        now(&world),
        Duration::from_secs(3600),
    );
    let member = world.connect_as(peer(&chain), by_certificate());
    let error = offer(&mut world, member, "p", "m").unwrap_err();
    assert_eq!(error.code, ErrorCode::NotAuthorized);
    for (project, name) in [
        ("", "n"),
        ("p", ""),
        ("p/q", "n"),
        ("p", "a b"),
        ("p", ".."),
    ] {
        let error = offer(&mut world, owner, project, name).unwrap_err();
        assert_eq!(error.code, ErrorCode::Unsupported, "{project:?} {name:?}");
    }
    for life_ms in [0, 2999, u64::MAX] {
        let asked = OfferPairing {
            project: "p".into(),
            name: "n".into(),
            life_ms,
        };
        let refused = world.call::<PairingOffered>(owner, Method::OfferPairing, TopicId(0), &asked);
        assert_eq!(refused.unwrap_err().code, ErrorCode::Unsupported);
    }
    // A request that is none costs the code, and gives nothing.
    let code = offer(&mut world, owner, "p", "n").unwrap();
    let proof = prove_pairing(&code, &shown, Pairing::Joins(b"nonsense"));
    let pair = Pair {
        proof: proof.to_vec().into(),
        request: Bytes::from_static(b"nonsense"),
    };
    let hello = Hello {
        mechanism: PAIRING.into(),
        proof: pair.to_bytes().into(),
        ..hello()
    };
    let link = world.connect_as(Peer::default(), hello);
    assert!(world.error(link, 0).unwrap().message.contains("used up"));
    join(&mut world, &code, &shown).unwrap_err();
    // As many as there may be, and one more.
    for number in 0..64 {
        offer(&mut world, owner, "p", &format!("n{number}")).unwrap();
    }
    let error = offer(&mut world, owner, "p", "more").unwrap_err();
    assert_eq!(error.code, ErrorCode::LimitExceeded);
    // A server without TLS offers nothing.
    let mut plain = Ground::new().start();
    let owner = plain.connect();
    assert!(
        offer(&mut plain, owner, "p", "n")
            .unwrap_err()
            .message
            .contains("tls://")
    );
}
