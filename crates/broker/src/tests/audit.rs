//! The audit trail: what leaves a record, and what never is in one.

use super::harness::*;
use crate::AccessChange;
use crate::AuditRecord;
use crate::node::Input;
use access::{Limits, Rules, Seed, Token, Trust, UnixTime, Verbs};
use net::Peer;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use wire::message::*;
use wire::*;

fn token(limits: Limits) -> Token {
    let limits = Limits {
        project: Some("p".into()),
        ..limits
    };
    Token::issue(&issuer(), &limits, Seed([9; 32])).unwrap()
}

fn with_token(token: &Token) -> Hello {
    Hello {
        mechanism: ACCESS_TOKEN.into(),
        proof: token.to_text().into(),
        ..hello()
    }
}

fn from(address: &str) -> Peer {
    Peer {
        address: address.into(),
        ..Peer::default()
    }
}

/// What is new in the trail, as words of it.
fn new(world: &mut World) -> Vec<AuditRecord> {
    std::mem::take(&mut world.audited)
}

fn words(records: &[AuditRecord]) -> Vec<&str> {
    records.iter().map(|record| record.what.name()).collect()
}

fn text<'a>(record: &'a AuditRecord, field: &str) -> &'a str {
    let value = record.fields.get(field).and_then(Value::as_str);
    value.unwrap_or_else(|| panic!("no {field} in {record:?}"))
}

#[test]
fn who_comes_what_is_refused_and_what_is_changed_leaves_a_record() {
    let mut world = Ground::new().start();
    let mut all = Vec::new();
    let reader = token(Limits {
        verbs: Some(Verbs::MEMBER),
        expires: Some(UnixTime(world.now.unix_ns + 30_000_000_000)),
        ..Limits::default()
    });
    let link = world.connect_as(from("10.1.2.3:4567"), with_token(&reader));
    let records = new(&mut world);
    assert_eq!(words(&records), ["connect"]);
    assert_eq!(text(&records[0], "who"), "a member of project p");
    assert_eq!(text(&records[0], "how"), "token of a project");
    assert_eq!(text(&records[0], "address"), "10.1.2.3:4567");
    let ids = records[0].fields["token"].as_array().unwrap();
    assert_eq!(ids[0], reader.ids()[0].to_string());
    all.extend(records);

    // Acts, and what is no act.
    let topic = world.create(link, "t", "{}", &["disk"]).unwrap().topic;
    world.stored(
        link,
        topic,
        (5, 0),
        &["a payload that is nobody's business"],
    );
    world.describe(link, "t").unwrap();
    let name = TopicName { name: "t".into() };
    let deleted: Result<Empty, _> = world.call(link, Method::DeleteTopic, TopicId(0), &name);
    deleted.unwrap();
    let records = new(&mut world);
    assert_eq!(words(&records), ["act", "act"]);
    assert_eq!(text(&records[0], "asked"), "CreateTopic");
    assert_eq!(text(&records[1], "topic"), "p/t");
    all.extend(records);

    // What is not allowed.
    let refused: Result<Empty, _> = world.call(link, Method::Shutdown, TopicId(0), &Empty {});
    assert_eq!(refused.err().unwrap().code, ErrorCode::NotAuthorized);
    let mut foreign = with_token(&reader);
    let mut proof = foreign.proof.to_vec();
    let last = proof.len() - 5;
    proof[last] ^= 1;
    foreign.proof = proof.into();
    world.connect_as(from("10.9.9.9:1"), foreign);
    let records = new(&mut world);
    assert_eq!(words(&records), ["refuse", "refuse"]);
    assert_eq!(text(&records[0], "asked"), "Shutdown");
    assert_eq!(text(&records[1], "address"), "10.9.9.9:1");
    assert!(!text(&records[1], "reason").is_empty());
    all.extend(records);

    // The end of a token.
    world.live(&[link], Duration::from_secs(100));
    let records = new(&mut world);
    assert_eq!(words(&records), ["expire"]);
    assert_eq!(text(&records[0], "who"), "a member of project p");
    all.extend(records);

    // Revoked, with who has it.
    let good = token(Limits::default());
    world.connect_as(from("10.1.2.3:9"), with_token(&good));
    let trust = Trust {
        keys: vec![issuer().public()],
        revoked: [good.ids()[0]].into(),
    };
    world.input(Input::Access(AccessChange::Trust(Arc::new(trust))));
    world.input(Input::Access(AccessChange::Rules(Arc::new(
        Rules::default(),
    ))));
    let records = new(&mut world);
    assert_eq!(words(&records), ["connect", "revoke", "revoke", "rules"]);
    assert_eq!(text(&records[2], "address"), "10.1.2.3:9");
    assert_eq!(records[3].fields["grants"].as_array().unwrap().len(), 2);
    all.extend(records);

    let all: String = all.iter().map(AuditRecord::to_line).collect();
    for secret in [reader.to_text(), good.to_text()] {
        let part = &secret[secret.len() - 24..];
        assert!(!all.contains(part), "a token is in the trail");
    }
    assert!(
        !all.contains("nobody's business"),
        "an event is in the trail"
    );
}

fn stranger() -> Hello {
    Hello {
        mechanism: "token".into(),
        proof: vec![0; 32].into(),
        ..hello()
    }
}

#[test]
fn nobody_fills_the_trail_by_knocking() {
    let mut world = Ground::new().start();
    for _ in 0..1000 {
        let link = world.connect_as(from("10.9.9.9:1"), stranger());
        world.disconnect(link);
    }
    let kept = new(&mut world);
    assert!(!kept.is_empty() && kept.len() <= 100, "{}", kept.len());
    world.pass(Duration::from_secs(2));
    world.connect_as(from("10.9.9.9:1"), stranger());
    let last = new(&mut world).pop().unwrap();
    let left_out = last.fields["left_out"].as_u64().unwrap();
    assert_eq!(left_out as usize + kept.len(), 1000);
    let counters = world.node.status();
    assert_eq!(counters["counters"]["connections_refused"], 1001);
}
