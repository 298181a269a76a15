//! Members that say anything at all: numbers at their bounds, leases that
//! never were, ids of others. Nothing of it is a panic, or outlasts a restart.

use super::farm::*;
use super::harness::*;
use super::members::join;
use super::steps_harness::plain;
use crate::node::LinkId;
use crate::random::Random;
use std::time::Duration;
use wire::codec::Appended;
use wire::frame::FrameKind;
use wire::message::*;
use wire::record::{ConsumerKind, Position};
use wire::*;

struct Storm {
    random: Random,
    world: World,
    links: Vec<LinkId>,
    topic: TopicId,
    /// Leases that were given.
    known: Vec<Lease>,
}

impl Storm {
    fn below(&mut self, below: usize) -> usize {
        (self.random.id() as u64 % below as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let at = self.below(from.len());
        from[at]
    }

    fn number(&mut self) -> u64 {
        self.pick(&[0, 1, 2, 5, 9, 10, 11, 4096, 1 << 40, u64::MAX - 1, u64::MAX])
    }

    fn short(&mut self) -> u32 {
        self.pick(&[0, 1, 2, 10, 100, 10_000, u32::MAX - 1, u32::MAX])
    }

    fn member(&mut self) -> MemberId {
        MemberId(self.pick(&[0, 1, 2, 3, 4, u128::MAX]))
    }

    fn partition(&mut self) -> PartitionIndex {
        PartitionIndex(self.pick(&[0, 0, 0, 1, u32::MAX]))
    }

    fn incarnation(&mut self) -> Incarnation {
        Incarnation(self.pick(&[0, 1, 1, 1, 2, u64::MAX]))
    }

    fn consumer(&mut self) -> String {
        self.pick(&["q", "k", "g", "new", ""]).to_owned()
    }

    /// A lease that was given, also before a restart, often with something of
    /// it changed.
    fn lease(&mut self) -> Lease {
        let link = self.pick(&self.links.clone());
        let inbox = self.world.links[&link].inbox.iter();
        let given = inbox.filter(|message| message.kind == FrameKind::Leased);
        let mut leases: Vec<Lease> = given
            .flat_map(|message| Leased::from_bytes("leased", &message.head).unwrap().leases)
            .collect();
        match leases.is_empty() {
            true => leases.clone_from(&self.known),
            false => self.known.clone_from(&leases),
        }
        let mut lease = Lease {
            partition: self.partition(),
            incarnation: self.incarnation(),
            first: Offset(self.number()),
            end: Offset(self.number()),
            lease: LeaseId(self.number()),
            deliveries: self.short(),
        };
        if !leases.is_empty() && self.below(4) > 0 {
            let real = leases[self.below(leases.len())];
            lease = match self.below(4) {
                0 => Lease {
                    end: lease.end,
                    ..real
                },
                1 => Lease {
                    first: lease.first,
                    deliveries: lease.deliveries,
                    ..real
                },
                _ => real,
            };
        }
        lease
    }

    fn leases(&mut self) -> Vec<Lease> {
        (0..self.below(6)).map(|_| self.lease()).collect()
    }

    fn settlements(&mut self) -> Vec<Settlement> {
        let leases = self.leases().into_iter();
        let settlement = |lease| Settlement {
            lease,
            how: self.pick(&[
                SettleAs::Acknowledge,
                SettleAs::Return,
                SettleAs::Reject,
                SettleAs::GiveBack,
            ]),
            delay_ms: self.short(),
            reason: "é".repeat(self.below(1000)),
        };
        leases.map(settlement).collect()
    }

    fn start(&mut self) -> Start {
        let position = Position {
            incarnation: self.incarnation(),
            offset: Offset(self.number()),
        };
        let time = self.number();
        self.pick(&[
            Start::Cursor,
            Start::Beginning,
            Start::Latest,
            Start::At(position),
            Start::CursorOrLatest,
            Start::Time(time),
        ])
    }

    fn join(&mut self) -> Join {
        let kinds = [
            ConsumerKind::Group,
            ConsumerKind::Queue,
            ConsumerKind::Independent,
        ];
        let options = [
            "",
            r#"{"deliveries_max":0}"#,
            r#"{"deliveries_max":1}"#,
            r#"{"deliveries_max":4294967295,"ordered_by_key":true}"#,
            r#"{"revoke_timeout_ms":100}"#,
            r#"{"lease_ms":18446744073709551615}"#,
        ];
        Join {
            consumer: self.consumer(),
            kind: self.pick(&kinds),
            options: self.pick(&options).to_owned(),
            start: self.start(),
            member: self.member(),
            before: self.member(),
            instance: self.pick(&["", "", "a", "b"]).to_owned(),
            session_timeout_ms: self.pick(&[0, 100, 10_000, 86_400_000, u32::MAX]),
            prefetch_events: self.short(),
            prefetch_bytes: self.number(),
            inline_data: self.below(2) == 0,
            held: self.leases(),
        }
    }

    fn moves(&mut self) -> MoveCursors {
        let position = |storm: &mut Self| Position {
            incarnation: storm.incarnation(),
            offset: Offset(storm.number()),
        };
        MoveCursors {
            consumer: self.consumer(),
            how: self.pick(&[CursorMove::Acknowledge, CursorMove::Seek]),
            positions: (0..self.below(3))
                .map(|_| (self.partition(), position(self)))
                .collect(),
        }
    }

    /// Whether the last answer says that there is no space for a record.
    fn refused(&self) -> usize {
        let last = self.links.iter().filter_map(|link| {
            let message = self.world.links[link].inbox.last()?;
            (message.kind == FrameKind::ErrorReply).then_some(&message.head)
        });
        let errors = last.filter_map(|head| ErrorReply::from_bytes("error", head).ok());
        errors
            .filter(|error| error.code == ErrorCode::StorageFull)
            .count()
    }

    fn step(&mut self) {
        let place = self.below(self.links.len());
        if self.world.links[&self.links[place]].closed.is_some() || self.below(40) == 0 {
            self.world.disconnect(self.links[place]);
            self.links[place] = self.world.connect();
        }
        let (link, topic) = (self.links[place], self.topic);
        let (consumer, member) = (self.consumer(), self.member());
        match self.below(12) {
            0 | 1 => {
                let join = self.join();
                self.world.request(link, Method::Join, topic, &join, &[]);
            }
            2 => {
                // One that is let in.
                let number = 1 + self.below(3) as u128;
                let (name, kind) = self.pick(&[
                    ("q", ConsumerKind::Queue),
                    ("k", ConsumerKind::Queue),
                    ("g", ConsumerKind::Group),
                ]);
                let join = Join {
                    prefetch_events: self.pick(&[1, 10, u32::MAX]),
                    held: self.leases(),
                    ..join(name, kind, number)
                };
                self.world.request(link, Method::Join, topic, &join, &[]);
            }
            3 => {
                let leave = Leave { consumer, member };
                self.world.request(link, Method::Leave, topic, &leave, &[]);
            }
            4 => {
                let release = Release {
                    consumer,
                    member,
                    partitions: (0..self.below(4)).map(|_| self.partition()).collect(),
                };
                self.world
                    .request(link, Method::Release, topic, &release, &[]);
            }
            5..=7 => {
                let settle = Settle {
                    consumer,
                    member,
                    sequence: self.number(),
                    worked_us: self.short(),
                    settlements: self.settlements(),
                };
                self.world
                    .request(link, Method::Settle, topic, &settle, &[]);
            }
            8 => {
                let extend = ExtendLeases {
                    consumer,
                    member,
                    leases: self.leases(),
                };
                self.world
                    .request(link, Method::ExtendLeases, topic, &extend, &[]);
            }
            9 => {
                let subscribe = SubscribeScoped {
                    member,
                    key: (self.below(2) == 0).then(|| "a".into()),
                    subscribe: Subscribe {
                        consumer,
                        partition: self.partition(),
                        start: self.start(),
                        credit: self.number(),
                        inline_data: self.below(2) == 0,
                        latest: Appended(self.below(2) == 0),
                    },
                };
                self.world
                    .request(link, Method::SubscribeScoped, topic, &subscribe, &[]);
            }
            10 => {
                let moves = self.moves();
                let moves = MoveMemberCursors { member, moves };
                self.world
                    .request(link, Method::MoveMemberCursors, topic, &moves, &[]);
            }
            _ => {
                let millis = self.pick(&[1, 60, 1000, 40_000]);
                self.world.pass(Duration::from_millis(millis));
            }
        }
    }
}

#[test]
fn nothing_that_a_member_says_is_a_panic() {
    let mut refused = 0;
    for seed in 0..12 {
        eprintln!("seed {seed}");
        let mut ground = Ground::new();
        ground.limits.internal_bytes_max = 16 << 10;
        let mut world = ground.start();
        let link = world.connect();
        let topic = world.farm(link);
        let ordered = Join {
            options: r#"{"ordered_by_key":true,"deliveries_max":2}"#.into(),
            ..join("k", ConsumerKind::Queue, 1)
        };
        world.joined(link, topic, &member(1));
        world.joined(link, topic, &ordered);
        world.joined(link, topic, &join("g", ConsumerKind::Group, 1));
        for at in 0..4 {
            let key = ["a", "b", "", "a"][at as usize];
            let events = ["0", "1", "2"].map(|text| (text, key));
            world.produce(link, topic, &keyed(topic, at * 3, &events));
        }
        let links = vec![link, world.connect(), world.connect()];
        let mut storm = Storm {
            random: Random::new(seed),
            world,
            links,
            topic,
            known: Vec::new(),
        };
        for step in 0..600 {
            storm.step();
            // Commands are refused now and then.
            refused += storm.refused();
            match storm.below(60) {
                0 => ground.disk.set_space(Some(0)),
                1..4 => ground.disk.set_space(None),
                _ => {}
            }
            if step % 200 == 199 {
                ground.disk.set_space(None);
                ground.kill();
                storm.world = ground.start();
                storm.links = (0..3).map(|_| storm.world.connect()).collect();
            }
        }
        // What it has left behind can be read, and is gone with its members.
        drop(storm);
        ground.disk.set_space(None);
        ground.kill();
        let mut world = ground.start();
        // Longer than any delay.
        world.pass(Duration::from_secs(5_000_000));
        let link = world.connect();
        let consumers = world.consumers(link, topic);
        assert!(consumers.iter().all(|consumer| consumer.members.is_empty()));
        let id = world.joined(link, topic, &member(9));
        loop {
            let given = world.given(link, id);
            let leases = given.iter().map(|given| done(given.lease)).collect();
            world.settled(link, topic, (9, given.len() as u64 + 1), leases);
            if world.given(link, id).len() == given.len() {
                break;
            }
        }
        let queue = world.queue(link, topic);
        assert_eq!(queue.position.offset, Offset(12), "seed {seed}: {queue:?}");
    }
    assert!(refused > 0, "space never ended");
}

#[test]
fn offsets_and_steps_that_cannot_be_are_refused() {
    let mut world = Ground::new().start();
    let topic = plain(&mut world);
    let a = world.writer(topic, 0, 1);
    let join = JoinReaders {
        who: ReaderMember {
            reader: "r".into(),
            group: String::new(),
            rank: Rank(0),
            member: MemberId(7),
        },
        ranks: 1,
        distribution: Distribution::All,
        start: StepStart::Cursor,
        latest: false,
        session_timeout_ms: 5_000,
        life: MemberId(7),
        turn: 2,
        released: 1,
        turns: vec![at(1, u64::MAX)],
    };
    let id = world.request(a.link, Method::JoinReaders, topic, &join, &[]);
    let error = world.error(a.link, id).unwrap();
    assert_eq!(error.code, ErrorCode::OffsetOutOfRange);
    // Turns that it does not name, those that it says it was not in, and a group among none.
    let far = JoinReaders {
        turn: u64::MAX,
        ..join.clone()
    };
    let first = JoinReaders {
        turn: 0,
        ..join.clone()
    };
    let mut grouped = join;
    grouped.who.group = "g".into();
    for join in [far, first, grouped] {
        let id = world.request(a.link, Method::JoinReaders, topic, &join, &[]);
        let error = world.error(a.link, id).unwrap();
        assert_eq!(error.code, ErrorCode::InvalidConsumer, "{}", error.message);
    }
    let id = world.admit(topic, &a, 1_000_000);
    assert_eq!(
        world.error(a.link, id).unwrap().code,
        ErrorCode::InvalidEvent
    );
    // A turn of which nobody knows waits.
    let mut reader = world.reader(topic, "r", 0, 1);
    reader.turn = u64::MAX;
    let id = world.ask(topic, &reader);
    assert!(world.answer(reader.link, id).is_none());
}
