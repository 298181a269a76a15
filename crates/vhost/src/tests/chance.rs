//! Acts and messages by chance.

use super::rig::{
    bind, bind_exchange, consume, declare, delete, delete_exchange, exchange, short, unbind,
    unbind_exchange,
};
use crate::Act;
use amqp::{Table, Value};

/// Chance for tests: splitmix64.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn of<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }

    /// Words with dots, of which some are the two that mean others.
    pub(crate) fn pattern(&mut self) -> String {
        let count = self.below(5);
        let words: Vec<_> = (0..count)
            .map(|_| self.of(&["a", "b", "*", "#", "#", ""]))
            .collect();
        words.join(".")
    }

    pub(crate) fn key(&mut self) -> String {
        let count = self.below(6);
        let words: Vec<_> = (0..count).map(|_| self.of(&["a", "b", "c", ""])).collect();
        words.join(".")
    }

    /// Headers, and what headers exchanges are bound by. A field may be asked for without a value.
    pub(crate) fn headers(&mut self, is_binding: bool) -> Table {
        let mut fields = Vec::new();
        for name in ["a", "b", "x-c"] {
            match self.below(if is_binding { 6 } else { 5 }) {
                0 => fields.push((name, Value::I64(1))),
                1 => fields.push((name, Value::U8(1))),
                2 => fields.push((name, Value::text("1"))),
                5 => fields.push((name, Value::Void)),
                _ => {}
            }
        }
        if is_binding && self.one_in(2) {
            let choice = self.of(&["all", "any", "all-with-x", "any-with-x", "some"]);
            fields.push(("x-match", Value::text(choice)));
        }
        if self.one_in(2) {
            fields.reverse();
        }
        Table::of(fields)
    }

    fn exchange_name(&mut self) -> &'static str {
        self.of(&[
            "x0",
            "x1",
            "x2",
            "x3",
            "x0",
            "x1",
            "x2",
            "x3",
            "amq.topic",
            "amq.fanout",
            "",
        ])
    }

    fn queue_name(&mut self) -> &'static str {
        self.of(&["q0", "q1", "q2", "q3", "q4", "q5"])
    }

    fn queue_arguments(&mut self) -> Table {
        let mut fields = Vec::new();
        if self.one_in(8) {
            fields.push(("x-max-length", Value::I64(self.below(2) as i64)));
        }
        if self.one_in(8) {
            fields.push(("x-queue-type", Value::text("classic")));
        }
        if self.one_in(30) {
            fields.push(("x-overflow", Value::text("sideways")));
        }
        Table::of(fields)
    }

    /// What a client may ask for.
    pub(crate) fn act(&mut self) -> Act {
        let (queue, name, to) = (
            self.queue_name(),
            self.exchange_name(),
            self.exchange_name(),
        );
        let (key, arguments) = (self.pattern(), Table::default());
        let arguments = match self.one_in(3) {
            true => self.headers(true),
            false => arguments,
        };
        match self.below(20) {
            0..4 => {
                let mut act = declare(queue);
                act.durable = self.one_in(2);
                act.exclusive = self.one_in(5);
                act.auto_delete = self.one_in(3);
                act.passive = self.one_in(8);
                act.arguments = self.queue_arguments();
                if self.one_in(30) {
                    act.queue = short("amq.mine");
                }
                act.into()
            }
            4..6 => {
                let mut act = delete(queue);
                act.if_unused = self.one_in(3);
                act.if_empty = self.one_in(3);
                act.into()
            }
            6..9 => {
                let kind = self.of(&["direct", "fanout", "topic", "topic", "headers", "none"]);
                let mut act = exchange(name, kind);
                act.durable = self.one_in(2);
                act.auto_delete = self.one_in(2);
                act.internal = self.one_in(6);
                act.passive = self.one_in(8);
                if self.one_in(4) {
                    act.arguments = Table::of([("alternate-exchange", Value::text(to))]);
                }
                act.into()
            }
            9 => {
                let mut act = delete_exchange(name);
                act.if_unused = self.one_in(3);
                act.into()
            }
            10..14 => bind(queue, name, &key, arguments).into(),
            14 => unbind(queue, name, &key, arguments).into(),
            15..17 => bind_exchange(to, name, &key, arguments).into(),
            17 => unbind_exchange(to, name, &key, arguments).into(),
            _ => {
                let mut act = consume(queue);
                act.exclusive = self.one_in(4);
                act.into()
            }
        }
    }
}

/// The seeds of a test: those of `VHOST_SEEDS`, as in `81000..82000`, or the first `count`.
pub(crate) fn seeds(count: u64) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("VHOST_SEEDS") else {
        return 0..count;
    };
    let (from, to) = text.split_once("..").expect("VHOST_SEEDS is FROM..TO");
    from.parse().unwrap()..to.parse().unwrap()
}
