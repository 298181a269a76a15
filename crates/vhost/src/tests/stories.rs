//! What programs do, one after the other.

use super::rig::{Rig, bind, consume, declare, exchange};
use crate::*;
use amqp::{Table, Value, queue as qu};

fn limited(name: &str, length: Value) -> qu::Declare {
    let arguments = Table::of([
        ("x-queue-type", Value::text("classic")),
        ("x-max-length", length),
        ("x-overflow", Value::text("reject-publish")),
    ]);
    qu::Declare {
        arguments,
        ..declare(name)
    }
}

fn own(name: &str) -> qu::Declare {
    qu::Declare {
        exclusive: true,
        auto_delete: true,
        ..declare(name)
    }
}

/// A streaming experiment: every process declares everything, consumers have queues of their own behind a fanout, replies
/// come by a direct exchange, and what is left when all have gone is what is not theirs alone.
#[test]
fn a_broadcast_with_replies() {
    let mut rig = Rig::new();
    let roles: Vec<_> = (0..5).map(|_| rig.vhost.connect()).collect();
    let (coordinator, producer, consumers) = (roles[0], roles[1], &roles[2..]);
    for (at, role) in roles.iter().enumerate() {
        for (name, kind) in [("prod_replyEx_0", "direct"), ("broadcastEx_0", "fanout")] {
            let lasting = amqp::exchange::Declare {
                durable: true,
                ..exchange(name, kind)
            };
            rig.ask(*role, lasting).unwrap();
        }
        // Clients differ in how wide they write a number.
        let length = match at % 2 {
            0 => Value::I64(6),
            _ => Value::I32(6),
        };
        rig.ask(*role, limited("result_Q_0", length)).unwrap();
        rig.ask(*role, declare("consQ_assignQ_0")).unwrap();
    }
    assert_eq!(rig.topics.len(), 2);

    for (at, role) in consumers.iter().enumerate() {
        let name = format!("throughputQ_{at}");
        rig.ask(*role, own(&name)).unwrap();
        rig.ask(*role, bind(&name, "broadcastEx_0", &name, Table::default()))
            .unwrap();
        assert!(matches!(
            rig.ask(*role, consume(&name)),
            Ok(Answer::Consuming(_))
        ));
    }
    rig.ask(producer, own("lat_replyQ_7")).unwrap();
    rig.ask(
        producer,
        bind(
            "lat_replyQ_7",
            "prod_replyEx_0",
            "lat_replyQ_7",
            Table::default(),
        ),
    )
    .unwrap();

    let all = ["throughputQ_0", "throughputQ_1", "throughputQ_2"];
    assert_eq!(rig.to("broadcastEx_0", "anything"), all);
    assert_eq!(rig.to("prod_replyEx_0", "lat_replyQ_7"), ["lat_replyQ_7"]);
    assert_eq!(rig.to("", "result_Q_0"), ["result_Q_0"]);
    assert!(rig.ask(coordinator, consume("throughputQ_0")).is_err());

    roles.iter().for_each(|role| rig.disconnect(*role));
    assert_eq!(rig.to("broadcastEx_0", "anything"), [""; 0]);
    assert_eq!((rig.topics.len(), rig.vhost.binding_count()), (2, 0));
    rig.vhost.check();
    // Nothing of it was durable but the exchanges.
    let again = rig.recovered();
    let mut names: Vec<_> = again.exchanges().map(|one| one.name.to_string()).collect();
    names.retain(|name| !name.is_empty() && !name.starts_with("amq."));
    names.sort();
    assert_eq!(names, ["broadcastEx_0", "prod_replyEx_0"]);
    assert_eq!(again.queues().count(), 0);
}

/// A worker of a task queue: a durable queue with dead letters, a control queue that expires, events by topic.
#[test]
fn a_worker_of_tasks() {
    let mut rig = Rig::new();
    let (worker, other) = (rig.vhost.connect(), rig.vhost.connect());
    let lasting = |name, kind| amqp::exchange::Declare {
        durable: true,
        ..exchange(name, kind)
    };
    let tasks = qu::Declare {
        durable: true,
        arguments: Table::of([("x-dead-letter-exchange", Value::text("failed"))]),
        ..declare("celery")
    };
    let control = qu::Declare {
        auto_delete: true,
        arguments: Table::of([
            ("x-expires", Value::I32(10_000)),
            ("x-message-ttl", Value::I32(5000)),
        ]),
        ..declare("celery@host.pidbox")
    };
    for connection in [worker, other] {
        rig.ask(connection, lasting("celery", "direct")).unwrap();
        rig.ask(connection, lasting("celeryev", "topic")).unwrap();
        rig.ask(connection, lasting("failed", "fanout")).unwrap();
        rig.ask(connection, tasks.clone()).unwrap();
        rig.ask(
            connection,
            bind("celery", "celery", "celery", Table::default()),
        )
        .unwrap();
    }
    rig.ask(worker, exchange("celery.pidbox", "fanout"))
        .unwrap();
    rig.ask(worker, control).unwrap();
    rig.ask(
        worker,
        bind("celery@host.pidbox", "celery.pidbox", "", Table::default()),
    )
    .unwrap();
    rig.ask(other, own("events")).unwrap();
    rig.ask(
        other,
        bind("events", "celeryev", "task.#", Table::default()),
    )
    .unwrap();
    assert_eq!(rig.to("celeryev", "task.received"), ["events"]);
    assert_eq!(rig.to("celeryev", "worker.online"), [""; 0]);

    let Ok(Answer::Consuming(consumer)) = rig.ask(worker, consume("celery@host.pidbox")) else {
        panic!("it consumes");
    };
    let queue = rig.vhost.queue(consumer.queue()).unwrap();
    assert_eq!(
        queue.options.expires,
        Some(std::time::Duration::from_secs(10))
    );
    rig.end(consumer);
    assert_eq!(rig.to("celery.pidbox", ""), [""; 0]);

    let before = rig
        .vhost
        .find_queue(other, "celery", amqp::basic::Get::ID)
        .unwrap()
        .clone();
    rig.vhost = rig.recovered();
    let one = rig.vhost.connect();
    assert_eq!(rig.to("celery", "celery"), ["celery"]);
    let Ok(Answer::QueueDeclared { queue, .. }) = rig.ask(one, tasks) else {
        panic!("it is the same");
    };
    assert_eq!(queue, before);
}
