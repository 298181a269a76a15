//! Routing: the trie against patterns that are tried one by one, and the cases that a model does not have.

use super::rig::{Rig, bind, declare, exchange, short};
use super::{Chance, seeds};
use crate::binding::Binding;
use crate::faults::{Fault, with};
use crate::id::Destination;
use crate::routes::Routes;
use crate::shrink::shrink;
use crate::trie::Trie;
use crate::*;
use amqp::{Array, Table, Value};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Whether a key matches a pattern, by trying.
fn is_match(pattern: &[&str], words: &[&str]) -> bool {
    match pattern {
        [] => words.is_empty(),
        ["#", rest @ ..] => (0..=words.len()).any(|count| is_match(rest, &words[count..])),
        ["*", rest @ ..] => !words.is_empty() && is_match(rest, &words[1..]),
        [word, rest @ ..] => words.first() == Some(word) && is_match(rest, &words[1..]),
    }
}

fn words(key: &str) -> Vec<&str> {
    match key {
        "" => Vec::new(),
        key => key.split('.').collect(),
    }
}

fn queue(number: usize) -> Destination {
    Destination::Queue(QueueId(number as u64))
}

fn the_trie_finds_what_trying_finds_for(count: u64) {
    for seed in seeds(count) {
        let mut chance = Chance(seed);
        let mut trie = Trie::default();
        let mut bound: Vec<(String, usize)> = Vec::new();
        for _ in 0..40 {
            if !bound.is_empty() && chance.one_in(3) {
                let (pattern, number) = bound.swap_remove(chance.below(bound.len()));
                trie.remove(&pattern, queue(number));
            } else {
                let one = (chance.pattern(), chance.below(8));
                trie.insert(&one.0, queue(one.1));
                bound.push(one);
            }
            let key = chance.key();
            let mut found = Vec::new();
            trie.route(&key, &mut found);
            let found: BTreeSet<_> = found.into_iter().collect();
            let matching = bound
                .iter()
                .filter(|(pattern, _)| is_match(&words(pattern), &words(&key)));
            let expected: BTreeSet<_> = matching.map(|(_, number)| queue(*number)).collect();
            assert_eq!(
                found,
                expected,
                "VHOST_SEEDS={seed}..{}: {key} {bound:?}",
                seed + 1
            );
        }
        for (pattern, number) in bound {
            trie.remove(&pattern, queue(number));
        }
        assert_eq!(trie.nodes(), 0, "VHOST_SEEDS={seed}..{}", seed + 1);
    }
}

#[test]
fn the_trie_finds_what_trying_finds() {
    the_trie_finds_what_trying_finds_for(3000);
}

macro_rules! noticed {
    ($($name:ident: $fault:ident, $test:expr;)*) => {$(
        #[test]
        #[should_panic]
        fn $name() {
            with(Fault::$fault, || $test);
        }
    )*};
}

noticed! {
    a_hash_of_one_word_is_noticed: HashIsOneWord, the_trie_finds_what_trying_finds_for(3000);
    a_star_of_no_word_is_noticed: StarIsNoWord, the_trie_finds_what_trying_finds_for(3000);
    left_nodes_are_noticed: LeftNodes, the_trie_finds_what_trying_finds_for(3000);
    a_destination_counted_once_is_noticed: CountedOnce, the_trie_finds_what_trying_finds_for(3000);
    a_dead_letter_under_its_own_key_is_noticed: OwnKey, dead_letters_go_where_their_queue_says();
}

/// Of ten thousand bindings, a message looks at those that it can match.
#[test]
fn a_message_does_not_look_at_all_bindings() {
    let mut trie = Trie::default();
    for number in 0..10_000 {
        let (site, run) = (number % 100, number / 100);
        trie.insert(&format!("site{site}.run{run}.detector.#"), queue(number));
    }
    trie.insert("site7.*.detector.*", queue(10_000));
    trie.insert("#.frame", queue(10_001));
    let mut found = Vec::new();
    trie.route("site7.run42.detector.frame", &mut found);
    found.sort();
    assert_eq!(found, [queue(4207), queue(10_000), queue(10_001)]);
    assert!(trie.looked_at() < 20, "{} nodes", trie.looked_at());
}

/// Many `#` behind each other take no more looks than there are nodes and words.
#[test]
fn hashes_do_not_multiply() {
    let mut trie = Trie::default();
    let pattern = ["#"; 60].join(".") + ".end";
    trie.insert(&pattern, queue(1));
    let key = ["a"; 120].join(".");
    let mut found = Vec::new();
    trie.route(&key, &mut found);
    assert_eq!(found, []);
    assert!(trie.looked_at() <= 62 * 121, "{} looks", trie.looked_at());
}

fn to(name: &str, key: &str) -> Table {
    let mut fields = Vec::new();
    if !name.is_empty() {
        fields.push(("x-dead-letter-exchange", Value::text(name)));
    }
    if !key.is_empty() {
        fields.push(("x-dead-letter-routing-key", Value::text(key)));
    }
    Table::of(fields)
}

fn dead_letters_go_where_their_queue_says() {
    let mut rig = Rig::new();
    let one = rig.vhost.connect();
    rig.ask(one, exchange("dlx", "direct")).unwrap();
    let inner = amqp::exchange::Declare {
        internal: true,
        ..exchange("inner", "fanout")
    };
    rig.ask(one, inner).unwrap();
    let queues = [
        ("plain", Table::default()),
        ("own", to("dlx", "")),
        ("other", to("dlx", "other-key")),
        ("hidden", to("inner", "")),
        ("lost", to("nowhere", "")),
        (
            "named",
            Table::of([
                ("x-dead-letter-exchange", Value::text("")),
                ("x-dead-letter-routing-key", Value::text("plain")),
            ]),
        ),
    ];
    for (name, arguments) in queues {
        let queue = amqp::queue::Declare {
            arguments,
            ..declare(name)
        };
        rig.ask(one, queue).unwrap();
    }
    for (queue, exchange, key) in [
        ("plain", "dlx", "key"),
        ("own", "dlx", "copy"),
        ("lost", "dlx", "other-key"),
        ("plain", "inner", ""),
    ] {
        rig.ask(one, bind(queue, exchange, key, Table::default()))
            .unwrap();
    }
    let headers = Table::of([("CC", Value::Array(Array::of([Value::text("copy")])))]);
    let letter = Message {
        exchange: "",
        routing_key: "key",
        headers: Some(&headers),
    };
    let of = |name: &str| {
        let queue = rig
            .vhost
            .find_queue(one, name, amqp::basic::Get::ID)
            .unwrap()
            .id;
        rig.vhost
            .dead_letter(queue, &letter)
            .map(|routed| rig.names(&routed))
    };
    let names = |names: &[&str]| Some(names.iter().map(ToString::to_string).collect::<Vec<_>>());
    assert_eq!(of("plain"), None);
    assert_eq!(of("own"), names(&["own", "plain"]));
    assert_eq!(
        of("other"),
        names(&["lost"]),
        "the copies do not count under another key"
    );
    assert_eq!(
        of("hidden"),
        names(&["plain"]),
        "an internal exchange takes dead letters"
    );
    assert_eq!(of("lost"), None);
    assert_eq!(of("named"), names(&["plain"]));
}

#[test]
fn dead_letters() {
    dead_letters_go_where_their_queue_says();
}

/// A key that is the address of a consumer of replies is no queue's name, and counts as a way.
#[test]
fn direct_replies_are_recognised() {
    let mut rig = Rig::new();
    let one = rig.vhost.connect();
    let to = |key| {
        let routed = rig.vhost.route(&Message {
            exchange: "",
            routing_key: key,
            headers: None,
        });
        routed.unwrap()
    };
    let routed = to("amq.rabbitmq.reply-to.g1h2");
    assert_eq!(routed.replies, ["g1h2".into()]);
    assert!(!routed.is_unroutable() && routed.queues.is_empty());
    assert!(to("amq.rabbitmq.reply-to").is_unroutable());
    assert!(to("nowhere").is_unroutable());
    let own = Answer::DirectReply(DirectReply::Own);
    assert_eq!(
        rig.ask(one, super::rig::consume("amq.rabbitmq.reply-to")),
        Ok(own)
    );
    let address = Answer::DirectReply(DirectReply::Address("g1".into()));
    assert_eq!(
        rig.ask(one, declare("amq.rabbitmq.reply-to.g1")),
        Ok(address)
    );
    assert_eq!(DirectReply::of("amq.rabbitmq.reply-too"), None);
    assert!(rig.topics.is_empty());
}

/// Names that a server gives: 128 bits of chance, and another one where one is taken.
#[test]
fn names_of_the_server_are_free_ones() {
    let mut rig = Rig::new();
    let one = rig.vhost.connect();
    let mut names = BTreeSet::new();
    for chance in [0, 0, 1, u128::MAX, u128::MAX] {
        let declare = declare("");
        let act = Act::DeclareQueue { declare, chance };
        let Ok(Answer::QueueDeclared { queue, .. }) = rig.ask(one, act) else {
            panic!("it is declared");
        };
        assert!(
            queue.name.starts_with("amq.gen-") && queue.name.len() == 30,
            "{}",
            queue.name
        );
        assert_eq!(rig.to("", &queue.name), [&*queue.name]);
        names.insert(queue.name.clone());
    }
    assert_eq!(names.len(), 5);
    assert!(names.contains("amq.gen-AAAAAAAAAAAAAAAAAAAAAA"));
    assert!(names.contains("amq.gen-_____________________w"));
}

/// Ends of lines are no part of a name.
#[test]
fn line_ends_are_stripped() {
    let mut rig = Rig::new();
    let one = rig.vhost.connect();
    let queue = amqp::queue::Declare {
        queue: short("q\r\n"),
        ..declare("")
    };
    rig.ask(one, queue).unwrap();
    assert_eq!(rig.to("", "q"), ["q"]);
}

/// What the arguments of a queue ask for.
#[test]
fn options_of_a_queue_are_read() {
    let mut rig = Rig::new();
    let one = rig.vhost.connect();
    let arguments = Table::of([
        ("x-max-length", Value::I32(10)),
        ("x-max-length-bytes", Value::U32(1 << 20)),
        ("x-overflow", Value::text("reject-publish-dlx")),
        ("x-message-ttl", Value::I64(0)),
        ("x-expires", Value::U16(60_000)),
        ("x-dead-letter-exchange", Value::text("dlx")),
        ("x-dead-letter-routing-key", Value::text("k")),
        ("x-single-active-consumer", Value::Bool(true)),
        ("x-queue-type", Value::text("quorum")),
        ("x-delivery-limit", Value::I32(5)),
    ]);
    let queue = amqp::queue::Declare {
        durable: true,
        arguments,
        ..declare("q")
    };
    let Ok(Answer::QueueDeclared { queue, .. }) = rig.ask(one, queue) else {
        panic!("it is declared");
    };
    let milliseconds = std::time::Duration::from_millis;
    let expected = QueueOptions {
        length_max: Some(10),
        length_bytes_max: Some(1 << 20),
        overflow: Overflow::RejectPublishDeadLetter,
        message_ttl: Some(milliseconds(0)),
        expires: Some(milliseconds(60_000)),
        dead_letter_exchange: Some("dlx".into()),
        dead_letter_routing_key: Some("k".into()),
        single_active_consumer: true,
    };
    assert_eq!(queue.options, expected);
    let again = rig.recovered();
    assert_eq!(again.queue(queue.id), Some(&queue));
}

/// A message with many keys may reach every queue by each of them: what is gathered meanwhile is not their product.
#[test]
fn many_keys_to_many_queues_are_not_gathered_one_by_one() {
    let mut routes = Routes::new(ExchangeKind::Topic);
    let count = 500;
    for number in 0..count {
        let binding = Binding {
            source: ExchangeId(3),
            destination: queue(number),
            key: "#".into(),
            arguments: Arguments::default(),
        };
        routes.insert(&Arc::new(binding)).unwrap();
    }
    let keys: Vec<_> = (0..1000).map(|key: usize| key.to_string()).collect();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    let mut found = Vec::new();
    routes.route(&keys, None, &mut found);
    assert!(
        found.capacity() <= 8 * count,
        "room for {}",
        found.capacity()
    );
    let found: BTreeSet<_> = found.into_iter().collect();
    assert_eq!(found.len(), count);
}

/// What was bound once takes no memory: there may be many exchanges, each of which once had all bindings.
#[test]
fn what_is_unbound_gives_its_memory_back() {
    let mut trie = Trie::default();
    let mut direct = HashMap::new();
    let key = |number: usize| format!("{number}.a.*.#.b");
    for number in 0..5000 {
        trie.insert(&key(number), queue(number));
        direct.insert(number, ());
    }
    for number in (0..5000).filter(|number| *number != 4321) {
        trie.remove(&key(number), queue(number));
        direct.remove(&number);
        shrink(&mut direct);
    }
    assert!(trie.room() < 100, "room for {} nodes", trie.room());
    assert!(direct.capacity() < 100, "room for {}", direct.capacity());
    let mut found = Vec::new();
    trie.route("4321.a.x.y.b", &mut found);
    assert_eq!(found, [queue(4321)]);
}
