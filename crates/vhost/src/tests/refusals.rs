//! What is refused: code, method and text, as RabbitMQ has them.

use super::rig::{
    Rig, bind, bind_exchange, consume, declare, delete, delete_exchange, exchange, short,
};
use crate::faults::{Fault, with};
use crate::*;
use amqp::{Table, Value, exchange as xc, queue as qu};

/// A virtual host in which the second connection asks, and what it gets.
fn refusal(act: impl Into<Act>) -> String {
    let mut rig = Rig::new();
    let (one, two) = (rig.vhost.connect(), rig.vhost.connect());
    let limited = qu::Declare {
        durable: true,
        arguments: Table::of([("x-max-length", Value::I32(10))]),
        ..declare("q")
    };
    let mine = qu::Declare {
        exclusive: true,
        ..declare("mine")
    };
    let inner = xc::Declare {
        internal: true,
        arguments: Table::of([("alternate-exchange", Value::text("e"))]),
        ..exchange("inner", "direct")
    };
    rig.ask(one, limited).unwrap();
    rig.ask(one, mine).unwrap();
    rig.ask(one, exchange("e", "topic")).unwrap();
    rig.ask(one, inner).unwrap();
    rig.ask(one, bind("q", "e", "#", Table::default())).unwrap();
    rig.ask(one, declare("used")).unwrap();
    let Ok(Answer::Consuming(_)) = rig.ask(one, consume("used")) else {
        panic!("it consumes");
    };
    let act = act.into();
    let failure = rig.ask(two, act.clone()).unwrap_err();
    assert_eq!(failure.method, Some(act.method()));
    rig.vhost.check();
    failure.to_string()
}

fn with_argument(name: &str, argument: (&str, Value)) -> qu::Declare {
    qu::Declare {
        arguments: Table::of([argument]),
        ..declare(name)
    }
}

fn texts_are_those_of_rabbitmq() {
    let locked = |name: &str| {
        format!(
            "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{name}' in vhost '/'. It could be \
             originally declared on another connection or the exclusive property value does not match that of the \
             original declaration."
        )
    };
    let durable = |declare: qu::Declare| qu::Declare {
        durable: true,
        ..declare
    };
    let none = Table::default;

    // A second declaration.
    assert_eq!(
        refusal(declare("q")),
        "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost '/': received 'false' but current is 'true'"
    );
    assert_eq!(
        refusal(durable(declare("q"))),
        "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'q' in vhost '/': received none but current \
         is the value '10' of type 'signedint'"
    );
    assert_eq!(
        refusal(durable(with_argument(
            "q",
            ("x-max-length", Value::I64(20))
        ))),
        "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'q' in vhost '/': received '20' but current is '10'"
    );
    let more = Table::of([
        ("x-max-length", Value::I64(10)),
        ("x-expires", Value::I64(5)),
    ]);
    let more = qu::Declare {
        arguments: more,
        ..declare("q")
    };
    assert_eq!(
        refusal(durable(more)),
        "PRECONDITION_FAILED - inequivalent arg 'x-expires' for queue 'q' in vhost '/': received the value '5' of \
         type 'long' but current is none"
    );
    let auto = qu::Declare {
        auto_delete: true,
        ..declare("used")
    };
    assert_eq!(
        refusal(auto),
        "PRECONDITION_FAILED - inequivalent arg 'auto_delete' for queue 'used' in vhost '/': received 'true' but current is 'false'"
    );
    assert_eq!(
        refusal(exchange("e", "fanout")),
        "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'e' in vhost '/': received 'fanout' but current is 'topic'"
    );
    let inner = xc::Declare {
        internal: true,
        ..exchange("inner", "direct")
    };
    assert_eq!(
        refusal(inner),
        "PRECONDITION_FAILED - inequivalent arg 'alternate-exchange' for exchange 'inner' in vhost '/': received none \
         but current is the value 'e' of type 'longstr'"
    );
    assert_eq!(
        refusal(exchange("inner", "direct")),
        "PRECONDITION_FAILED - inequivalent arg 'internal' for exchange 'inner' in vhost '/': received 'false' but current is 'true'"
    );

    // What is another connection's.
    let passive = |name: &str| qu::Declare {
        passive: true,
        ..declare(name)
    };
    let exclusive = |name: &str| qu::Declare {
        exclusive: true,
        ..declare(name)
    };
    assert_eq!(refusal(declare("mine")), locked("mine"));
    assert_eq!(refusal(passive("mine")), locked("mine"));
    assert_eq!(refusal(exclusive("mine")), locked("mine"));
    assert_eq!(refusal(exclusive("used")), locked("used"));
    assert_eq!(refusal(delete("mine")), locked("mine"));
    assert_eq!(refusal(consume("mine")), locked("mine"));
    assert_eq!(refusal(bind("mine", "e", "", none())), locked("mine"));
    let alone = amqp::basic::Consume {
        exclusive: true,
        ..consume("used")
    };
    assert_eq!(
        refusal(alone),
        "ACCESS_REFUSED - queue 'used' in vhost '/' in exclusive use"
    );

    // What is not there.
    let no_queue = "NOT_FOUND - no queue 'none' in vhost '/'";
    let no_exchange = "NOT_FOUND - no exchange 'none' in vhost '/'";
    assert_eq!(refusal(passive("none")), no_queue);
    assert_eq!(refusal(consume("none")), no_queue);
    assert_eq!(refusal(bind("none", "e", "", none())), no_queue);
    assert_eq!(refusal(bind("q", "none", "", none())), no_exchange);
    assert_eq!(refusal(bind_exchange("none", "e", "", none())), no_exchange);
    let passive_exchange = xc::Declare {
        passive: true,
        ..exchange("none", "")
    };
    assert_eq!(refusal(passive_exchange), no_exchange);

    // Names that are not for clients.
    assert_eq!(
        refusal(declare("amq.mine")),
        "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'"
    );
    assert_eq!(
        refusal(exchange("amq.mine", "topic")),
        "ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'"
    );
    let default = "ACCESS_REFUSED - operation not permitted on the default exchange";
    assert_eq!(refusal(exchange("", "direct")), default);
    assert_eq!(refusal(delete_exchange("")), default);
    assert_eq!(refusal(bind("q", "", "", none())), default);
    assert_eq!(refusal(bind_exchange("", "e", "", none())), default);
    assert_eq!(
        refusal(delete_exchange("amq.topic")),
        "ACCESS_REFUSED - deletion of system exchange 'amq.topic' in vhost '/' not allowed"
    );
    assert_eq!(
        refusal(bind("amq.rabbitmq.reply-to.g1", "e", "", none())),
        "ACCESS_REFUSED - cannot bind or unbind to a volatile (direct reply-to) queue"
    );

    // What is in use.
    let unused = qu::Delete {
        if_unused: true,
        ..delete("used")
    };
    assert_eq!(
        refusal(unused),
        "PRECONDITION_FAILED - queue 'used' in vhost '/' in use"
    );
    let unused = xc::Delete {
        if_unused: true,
        ..delete_exchange("e")
    };
    assert_eq!(
        refusal(unused),
        "PRECONDITION_FAILED - exchange 'e' in vhost '/' in use"
    );
}

#[test]
fn texts() {
    texts_are_those_of_rabbitmq();
}

#[test]
#[should_panic]
fn an_exclusive_queue_for_all_is_noticed() {
    with(Fault::Shared, texts_are_those_of_rabbitmq);
}

#[test]
#[should_panic]
fn a_declaration_that_is_not_compared_is_noticed() {
    with(Fault::NotCompared, texts_are_those_of_rabbitmq);
}

/// Arguments that a queue, an exchange or a binding cannot have.
#[test]
fn arguments_that_are_none_are_refused() {
    let invalid = |argument: &str, why: &str| {
        format!("PRECONDITION_FAILED - invalid arg '{argument}' for queue 'n' in vhost '/': {why}")
    };
    for (argument, value, why) in [
        ("x-max-length", Value::I32(-1), "{value_negative,-1}"),
        (
            "x-max-length",
            Value::text("1"),
            "\"expected integer, got longstr\"",
        ),
        (
            "x-message-ttl",
            Value::I64(315_360_000_001),
            "{value_too_large,315360000001}",
        ),
        ("x-expires", Value::I32(0), "{value_zero,0}"),
        ("x-overflow", Value::text("spill"), "invalid_overflow"),
        ("x-overflow", Value::Bool(true), "{unacceptable_type,bool}"),
        (
            "x-dead-letter-routing-key",
            Value::text("k"),
            "routing_key_but_no_dlx_defined",
        ),
        (
            "x-single-active-consumer",
            Value::I32(1),
            "{unacceptable_type,signedint}",
        ),
        (
            "x-queue-type",
            Value::text("odd"),
            "\"unsupported queue type 'odd'\"",
        ),
        (
            "x-queue-type",
            Value::text("stream"),
            "\"unsupported queue type 'stream'\"",
        ),
        (
            "x-max-priority",
            Value::I32(256),
            "{max_value_exceeded,256}",
        ),
        (
            "x-max-priority",
            Value::I32(10),
            "\"queues with priorities are not supported\"",
        ),
    ] {
        let found = refusal(with_argument("n", (argument, value)));
        assert_eq!(found, invalid(argument, why));
    }
    assert_eq!(
        refusal(with_argument(
            "n",
            ("x-dead-letter-exchange", Value::I32(1))
        )),
        "PRECONDITION_FAILED - invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue 'n' in vhost '/'"
    );
    assert_eq!(
        refusal(with_argument("n", ("x-max-age", Value::text("1D")))),
        "PRECONDITION_FAILED - invalid arg 'x-max-age' for queue 'n' in vhost '/' of queue type rabbit_classic_queue"
    );
    assert_eq!(
        refusal(exchange("n", "x-delayed-message")),
        "PRECONDITION_FAILED - unknown exchange type 'x-delayed-message'"
    );
    let alternate = xc::Declare {
        arguments: Table::of([("alternate-exchange", Value::I32(1))]),
        ..exchange("n", "direct")
    };
    assert_eq!(
        refusal(alternate),
        "PRECONDITION_FAILED - invalid type 'signedint' for arg 'alternate-exchange' in exchange 'n' in vhost '/'"
    );
    let how = |value| bind("q", "amq.headers", "", Table::of([("x-match", value)]));
    assert_eq!(
        refusal(how(Value::text("some"))),
        "PRECONDITION_FAILED - Invalid x-match field value <<\"some\">>; expected all, any, all-with-x, or any-with-x"
    );
    assert_eq!(
        refusal(how(Value::I32(1))),
        "PRECONDITION_FAILED - Invalid x-match field type signedint (value 1); expected longstr"
    );
}

/// What a client publishes where it may not, or with copies that are none.
#[test]
fn messages_are_refused() {
    let mut rig = Rig::new();
    let one = rig.vhost.connect();
    let inner = xc::Declare {
        internal: true,
        ..exchange("inner", "direct")
    };
    rig.ask(one, inner).unwrap();
    let publish = |exchange, headers: Option<&Table>| {
        let routing_key = "";
        let message = Message {
            exchange,
            routing_key,
            headers,
        };
        let failure = rig.vhost.route(&message).unwrap_err();
        assert_eq!(failure.method, Some(amqp::basic::Publish::ID));
        failure.to_string()
    };
    assert_eq!(
        publish("none", None),
        "NOT_FOUND - no exchange 'none' in vhost '/'"
    );
    assert_eq!(
        publish("inner", None),
        "ACCESS_REFUSED - cannot publish to internal exchange 'inner' in vhost '/'"
    );
    let copies = Table::of([("CC", Value::text("a"))]);
    assert_eq!(
        publish("", Some(&copies)),
        "PRECONDITION_FAILED - invalid message: {unacceptable_type_in_header,\"CC\",longstr}"
    );
    let many = (0..1024).map(|number| Value::text(&number.to_string()));
    let copies = Table::of([("BCC", Value::Array(amqp::Array::of(many)))]);
    assert_eq!(
        publish("", Some(&copies)),
        "PRECONDITION_FAILED - invalid message: it has more than 1024 routing keys, its own and those of CC and BCC"
    );
    let long = Table::of([(
        "CC",
        Value::Array(amqp::Array::of([Value::text(&"k".repeat(256))])),
    )]);
    assert_eq!(
        publish("", Some(&long)),
        "PRECONDITION_FAILED - invalid message: a key of CC has 256 bytes, and 255 are the most"
    );
}

/// Every limit is one, acts under way count, and its text says it.
fn limits_hold() {
    let limits = Limits {
        queues_max: 2,
        exchanges_max: 1,
        bindings_max: 1,
        argument_bytes_max: 30,
        ..Limits::default()
    };
    let mut rig = Rig::with(limits);
    let one = rig.vhost.connect();
    let mut plans = Vec::new();
    for act in [
        declare("q").into(),
        declare("r").into(),
        Act::from(exchange("e", "topic")),
    ] {
        match rig.vhost.claim(one, &act).unwrap() {
            Claimed::Begun(plan) => plans.push(plan),
            other => panic!("{other:?}"),
        }
    }
    let refused = |rig: &mut Rig, act: Act| rig.vhost.claim(one, &act).unwrap_err().to_string();
    let queues =
        "PRECONDITION_FAILED - cannot declare queue 's': queue limit in vhost '/' (2) is reached";
    let exchanges = "PRECONDITION_FAILED - cannot declare exchange 'f' in vhost '/': exchange limit of 1 is reached";
    assert_eq!(refused(&mut rig, declare("s").into()), queues);
    assert_eq!(refused(&mut rig, exchange("f", "topic").into()), exchanges);
    for plan in plans {
        rig.make(&plan);
        rig.settle(&plan, Outcome::Done).unwrap();
    }
    assert_eq!(refused(&mut rig, declare("s").into()), queues);
    rig.ask(one, declare("q")).expect("it is there");
    rig.ask(one, bind("q", "e", "a", Table::default())).unwrap();
    assert_eq!(
        refused(&mut rig, bind("q", "e", "b", Table::default()).into()),
        "PRECONDITION_FAILED - cannot bind queue 'q' in vhost '/': binding limit in vhost '/' (1) is reached"
    );
    let long = Table::of([("a", Value::text(&"a".repeat(30)))]);
    assert_eq!(
        refused(&mut rig, bind("q", "e", "a", long.clone()).into()),
        "PRECONDITION_FAILED - arguments of queue 'q' in vhost '/' have 37 bytes, and 30 are the most"
    );
    let queue = qu::Declare {
        queue: short("s"),
        arguments: long,
        ..qu::Declare::default()
    };
    assert_eq!(
        refused(&mut rig, queue.into()),
        "PRECONDITION_FAILED - arguments of queue 's' in vhost '/' have 37 bytes, and 30 are the most"
    );
    rig.ask(one, delete("r")).unwrap();
    rig.ask(one, declare("s")).expect("there is space again");
}

#[test]
fn limits() {
    limits_hold();
}

#[test]
#[should_panic]
fn acts_that_do_not_count_are_noticed() {
    with(Fault::Uncounted, limits_hold);
}

/// What names, keys and arguments have together is bounded, in bytes, with what is under way.
#[test]
fn bytes_are_bounded() {
    let predeclared = Vhost::new("/", Limits::default())
        .exchanges()
        .map(|one| one.name.len())
        .sum::<usize>();
    let limits = Limits {
        bytes_max: predeclared + 12,
        ..Limits::default()
    };
    let mut rig = Rig::with(limits);
    let one = rig.vhost.connect();
    let Ok(Claimed::Begun(plan)) = rig.vhost.claim(one, &declare("12345678").into()) else {
        panic!("it begins");
    };
    let refused = |rig: &mut Rig, act: Act| rig.vhost.claim(one, &act).unwrap_err().to_string();
    let full = |named: &str| {
        let max = predeclared + 12;
        format!(
            "PRECONDITION_FAILED - no space for {named} in vhost '/': names, keys and arguments in vhost '/' may have \
             {max} bytes together"
        )
    };
    assert_eq!(
        refused(&mut rig, declare("12345").into()),
        full("queue '12345'")
    );
    rig.make(&plan);
    rig.settle(&plan, Outcome::Done).unwrap();
    assert_eq!(
        refused(&mut rig, exchange("12345", "topic").into()),
        full("exchange '12345'")
    );
    let act = |key| bind("12345678", "amq.direct", key, Table::default());
    assert_eq!(
        refused(&mut rig, act("12345").into()),
        full("queue '12345678'")
    );
    rig.ask(one, act("1234")).unwrap();
    rig.ask(one, delete("12345678")).unwrap();
    rig.ask(one, declare("123456789012")).unwrap();
    rig.vhost.check();
}

/// Words that only one key of a topic exchange has, and fields that a headers exchange looks for, take more memory than their
/// bytes, and count as that.
#[test]
fn words_and_fields_count_as_what_they_take() {
    let limits = Limits {
        bytes_max: 64 << 10,
        ..Limits::default()
    };
    let mut rig = Rig::with(limits);
    let one = rig.vhost.connect();
    rig.ask(one, declare("q")).unwrap();
    // Each has 250 words of its own and no 260 bytes.
    let dots = ".".repeat(249);
    let keys: Vec<_> = (0..10).map(|key| format!("{key}{dots}")).collect();
    let of_topic = |key: &str| bind("q", "amq.topic", key, Table::default());
    rig.ask(one, of_topic(&keys[0])).unwrap();
    let refused = rig
        .vhost
        .claim(one, &of_topic(&keys[1]).into())
        .unwrap_err();
    assert!(
        refused.text.starts_with("no space for queue 'q'"),
        "{refused}"
    );
    // What shares its words takes little more, and what is gone takes nothing.
    rig.ask(one, of_topic(&keys[0][..200])).unwrap();
    for key in [&keys[0], &keys[0][..200]] {
        let none = Table::default();
        rig.ask(one, super::rig::unbind("q", "amq.topic", key, none))
            .unwrap();
    }
    rig.ask(one, of_topic(&keys[1])).unwrap();
    rig.vhost.check();
    // 1,000 fields of 2 bytes.
    let fields = Table::of((0..1000).map(|_| ("", Value::Void)));
    let of_headers = bind("q", "amq.headers", "", fields);
    let refused = rig.vhost.claim(one, &of_headers.into()).unwrap_err();
    assert!(
        refused.text.starts_with("no space for queue 'q'"),
        "{refused}"
    );
}

/// More acts than may be under way wait for the first of them.
#[test]
fn acts_beyond_the_bound_wait() {
    let limits = Limits {
        acts_max: 1,
        ..Limits::default()
    };
    let mut rig = Rig::with(limits);
    let one = rig.vhost.connect();
    let Ok(Claimed::Begun(plan)) = rig.vhost.claim(one, &declare("q").into()) else {
        panic!("it begins");
    };
    let other = rig.vhost.claim(one, &declare("r").into());
    assert!(
        matches!(other, Ok(Claimed::Wait(act)) if act == plan.act),
        "{other:?}"
    );
    rig.make(&plan);
    rig.settle(&plan, Outcome::NotEmpty).unwrap_err();
    rig.ask(one, declare("r")).unwrap();
}

/// A queue that is deleted only if it is empty, and is not, stays.
#[test]
fn a_queue_with_messages_stays() {
    let mut rig = Rig::new();
    let one = rig.vhost.connect();
    rig.ask(one, declare("q")).unwrap();
    let empty = qu::Delete {
        if_empty: true,
        ..delete("q")
    };
    let Ok(Claimed::Begun(plan)) = rig.vhost.claim(one, &empty.into()) else {
        panic!("it begins");
    };
    assert!(plan.only_if_empty.is_some());
    let failure = rig.settle(&plan, Outcome::NotEmpty).unwrap_err();
    assert_eq!(
        failure.to_string(),
        "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty"
    );
    assert_eq!(rig.to("", "q"), ["q"]);
}

/// The client of a queue that is deleted under it is notified.
#[test]
fn consumers_of_a_deleted_queue_are_cancelled() {
    let mut rig = Rig::new();
    let one = rig.vhost.connect();
    let Ok(Answer::QueueDeclared { queue, .. }) = rig.ask(one, declare("q")) else {
        panic!("it is declared");
    };
    let Ok(Answer::Consuming(consumer)) = rig.ask(one, consume("q")) else {
        panic!("it consumes");
    };
    let Ok(Claimed::Begun(plan)) = rig.vhost.claim(one, &delete("q").into()) else {
        panic!("it begins");
    };
    let settled = rig.vhost.settle(plan.act, Outcome::Done);
    assert_eq!(
        settled.effects,
        [
            Effect::CancelConsumers(queue.id),
            Effect::DeleteTopic(queue.id)
        ]
    );
    assert_eq!(rig.vhost.end_consumer(consumer), None);
}
