//! Records: bytes of each kind, bytes by chance, and what a log that is none of a virtual host makes.

use super::rig::{Rig, bind, bind_exchange, declare, delete, delete_exchange, exchange, unbind};
use super::{Chance, seeds};
use crate::faults::{Fault, with};
use crate::*;
use amqp::{Table, Value};

/// A virtual host whose log has a record of each kind.
fn written() -> Rig {
    let mut rig = Rig::new();
    let one = rig.vhost.connect();
    let durable = |name: &str| amqp::queue::Declare {
        durable: true,
        auto_delete: name == "jobs",
        arguments: Table::of([("x-max-length", Value::I32(7))]),
        ..declare(name)
    };
    let lasting = |name: &str| amqp::exchange::Declare {
        durable: true,
        auto_delete: true,
        internal: name == "inner",
        ..exchange(name, "topic")
    };
    rig.ask(one, durable("jobs")).unwrap();
    rig.ask(one, durable("other")).unwrap();
    rig.ask(one, lasting("events")).unwrap();
    rig.ask(one, lasting("inner")).unwrap();
    let none = Table::default();
    rig.ask(
        one,
        bind(
            "jobs",
            "events",
            "a.#",
            Table::of([("k", Value::Bool(true))]),
        ),
    )
    .unwrap();
    rig.ask(one, bind("other", "events", "b", none.clone()))
        .unwrap();
    rig.ask(one, bind_exchange("events", "inner", "", none.clone()))
        .unwrap();
    rig.ask(one, unbind("other", "events", "b", none)).unwrap();
    rig.ask(one, delete("other")).unwrap();
    rig.ask(one, delete_exchange("inner")).unwrap();
    rig
}

/// The bytes of version 1, in a file that stays when there is another version.
#[test]
fn bytes_are_those_of_the_page() {
    let rig = written();
    let lines = rig.log.iter().map(|bytes| {
        let bytes: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        bytes.concat()
    });
    let found: String = lines.map(|line| line + "\n").collect();
    assert_eq!(found, include_str!("../../tests/golden/records-1.hex"));
    let again = rig.recovered();
    assert_eq!(again.durable(), rig.vhost.durable());
    let kinds: std::collections::BTreeSet<_> = rig.log.iter().map(|bytes| bytes[1]).collect();
    assert_eq!(kinds, (1..=7).collect());
}

/// A record is read back as it was, and no shorter or longer one is it.
#[test]
fn records_come_back() {
    for bytes in written().log {
        let record = Record::decode(&bytes).unwrap();
        assert_eq!(record.encode(), bytes);
        for end in 0..bytes.len() {
            assert!(
                Record::decode(&bytes[..end]).is_err(),
                "{record:?} cut at {end}"
            );
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(Record::decode(&longer).is_err(), "{record:?}");
    }
}

fn records_of_other_versions_are_refused() {
    let bytes = written().log.remove(0);
    let text = |at: usize, value: u8| {
        let mut other = bytes.clone();
        other[at] = value;
        Record::decode(&other).unwrap_err().to_string()
    };
    assert_eq!(
        text(0, 2),
        "record of a virtual host has version 2, and this server reads version 1: start the server that wrote it"
    );
    assert_eq!(
        text(1, 9),
        "record of a virtual host has kind 9, which this server does not know: start the later one that wrote it"
    );
}

/// Arguments that no queue has here, as a later version may write them.
#[test]
fn arguments_of_later_versions_are_refused() {
    let mut bytes = vec![1, 4, 16, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, b'q'];
    let arguments = Table::of([("x-overflow", Value::text("spill"))]);
    let arguments = arguments.as_bytes();
    bytes.extend((arguments.len() as u32).to_le_bytes());
    bytes.extend(&arguments[..]);
    assert_eq!(
        Record::decode(&bytes).unwrap_err().to_string(),
        "record of a virtual host has arguments that this server does not take: invalid arg 'x-overflow' for queue \
         'q': invalid_overflow"
    );
    let last = bytes.len() - 6;
    bytes[last] = 200;
    let text = Record::decode(&bytes).unwrap_err().to_string();
    assert!(
        text.contains("a field at") && text.ends_with("in those of queue 'q'"),
        "{text}"
    );
}

#[test]
fn other_versions() {
    records_of_other_versions_are_refused();
}

#[test]
#[should_panic]
fn a_record_of_any_version_is_noticed() {
    with(Fault::AnyVersion, records_of_other_versions_are_refused);
}

/// Bytes by chance, and records with changed, cut and added bytes, are records or errors; what is a record is written
/// as it was read. What records by chance make is a virtual host or an error.
#[test]
fn any_bytes_are_a_record_or_an_error() {
    let log = written().log;
    for seed in seeds(3000) {
        let mut chance = Chance(seed);
        let hint = format!("VHOST_SEEDS={seed}..{}", seed + 1);
        let mut records = Vec::new();
        for _ in 0..20 {
            let mut bytes = match chance.one_in(4) {
                true => (0..chance.below(60)).map(|_| chance.next() as u8).collect(),
                false => log[chance.below(log.len())].clone(),
            };
            for _ in 0..chance.below(4) {
                if !bytes.is_empty() {
                    let at = chance.below(bytes.len());
                    match chance.below(4) {
                        0 => bytes[at] = chance.next() as u8,
                        1 => bytes[at] ^= 1 << chance.below(8),
                        2 => bytes.truncate(at),
                        _ => bytes.insert(at, chance.next() as u8),
                    }
                }
            }
            match Record::decode(&bytes) {
                Ok(record) => {
                    assert_eq!(
                        Record::decode(&record.encode()).as_ref(),
                        Ok(&record),
                        "{hint}"
                    );
                    records.push(record);
                }
                Err(error) => assert!(!error.to_string().is_empty(), "{hint}"),
            }
        }
        if let Ok(vhost) = Vhost::recover("/", Limits::default(), records) {
            vhost.check();
        }
    }
}

/// A record that does not follow from those before it is an error that says which.
#[test]
fn a_log_out_of_order_is_refused() {
    let rig = written();
    let records: Vec<_> = rig
        .log
        .iter()
        .map(|bytes| Record::decode(bytes).unwrap())
        .collect();
    let recover = |records: Vec<Record>| Vhost::recover("/", Limits::default(), records);
    let mut twice = records.clone();
    twice.insert(1, twice[1].clone());
    let error = recover(twice).unwrap_err();
    assert_eq!(error.index, 2);
    assert_eq!(
        error.to_string(),
        "record 2 of a virtual host does not follow from those before it: queue 16 'jobs' is declared, and is there"
    );
    let error = recover(records[records.len() - 1..].to_vec()).unwrap_err();
    assert_eq!(
        (error.index, &*error.why),
        (0, "exchange 19 is deleted, and is not there")
    );
    assert!(recover(records.into_iter().rev().collect()).is_err());
}

/// An id is of one queue for ever: over a deletion, a restart, and a snapshot.
fn ids_are_not_used_again() {
    let mut rig = Rig::new();
    let one = rig.vhost.connect();
    rig.ask(one, declare("q")).unwrap();
    rig.ask(one, delete("q")).unwrap();
    rig.vhost = rig.recovered();
    let one = rig.vhost.connect();
    // The rig refuses an id that it has seen.
    rig.ask(one, declare("q")).unwrap();
    let snapshot = rig.vhost.snapshot().unwrap();
    rig.vhost = Vhost::recover("/", Limits::default(), snapshot).unwrap();
    let one = rig.vhost.connect();
    rig.ask(one, declare("q")).unwrap();
    assert_eq!(rig.ids.len(), 3);
}

#[test]
fn ids() {
    ids_are_not_used_again();
}

#[test]
#[should_panic]
fn an_id_that_comes_again_is_noticed() {
    with(Fault::IdsAgain, ids_are_not_used_again);
}

/// What is recovered is what is there, whatever the limits are now.
#[test]
fn lower_limits_lose_nothing() {
    let rig = written();
    let limits = Limits {
        queues_max: 0,
        exchanges_max: 0,
        bindings_max: 0,
        argument_bytes_max: 0,
        ..Limits::default()
    };
    let records = rig.log.iter().map(|bytes| Record::decode(bytes).unwrap());
    let again = Vhost::recover("/", limits, records).unwrap();
    assert_eq!(again.durable(), rig.vhost.durable());
}

/// An id that no record reserves may be given out again: such a log is not whole.
#[test]
fn an_id_that_is_not_reserved_is_an_error() {
    let rig = written();
    let records: Vec<_> = rig
        .log
        .iter()
        .map(|bytes| Record::decode(bytes).unwrap())
        .collect();
    let unreserved = records.into_iter().filter(|record| record.encode()[1] != 1);
    let error = Vhost::recover("/", Limits::default(), unreserved).unwrap_err();
    assert_eq!(error.index, 0);
    assert!(
        error
            .to_string()
            .ends_with("is an id that no record before reserves"),
        "{error}"
    );
}
