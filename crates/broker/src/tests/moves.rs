//! Topics that go from one node of a cluster to another, with all that is known of them.

use super::farm::{done, member};
use super::harness::*;
use super::mirrors::stamped;
use super::registered::{Cluster, assert_unsupported};
use crate::faults::Fault;
use crate::node::LinkId;
use crate::partition::appends::Writer;
use wire::batch::{Batch, BatchKind, Verify, skipped_batch};
use wire::message::*;
use wire::record::{ConsumerKind, Gap};
use wire::*;

/// Who moves a topic: a connection to each of the two nodes.
struct Mover {
    topic: TopicId,
    from: (usize, LinkId),
    to: (usize, LinkId),
    /// What the node that it leaves has said when it yielded it.
    yielded: Option<TopicYielded>,
}

type Done = Result<(), ErrorReply>;

impl Mover {
    fn new(cluster: &mut Cluster, topic: TopicId, from: usize, to: usize) -> Self {
        Self {
            topic,
            from: (from, cluster.client(from)),
            to: (to, cluster.client(to)),
            yielded: None,
        }
    }

    fn ask<T: Codec>(
        &self,
        cluster: &mut Cluster,
        (site, link): (usize, LinkId),
        method: Method,
        body: &impl Codec,
    ) -> Result<T, ErrorReply> {
        let world = &mut cluster.sites[site].world;
        let asked = world.request(link, method, self.topic, body, &[]);
        cluster.carry();
        cluster.sites[site].world.answered(link, asked)
    }

    fn begin(&self, cluster: &mut Cluster) -> Done {
        let to = cluster.sites[self.to.0].id;
        self.ask::<Empty>(cluster, self.from, Method::MoveTopic, &MoveTopic { to })?;
        Ok(())
    }

    /// Copies what the other node has not, and says up to where that has all.
    fn copy(&self, cluster: &mut Cluster) -> Result<Vec<u64>, ErrorReply> {
        let receive = ReceiveTopic { opening: 1 };
        let at: MirrorOpened = self.ask(cluster, self.to, Method::ReceiveTopic, &receive)?;
        let mut ends = Vec::new();
        for position in at.partitions {
            assert_eq!(position.next, position.durable);
            ends.push(self.copy_one(cluster, position.partition, position.next));
        }
        Ok(ends)
    }

    fn copy_one(&self, cluster: &mut Cluster, partition: PartitionIndex, next: Offset) -> u64 {
        let mut end = next.0;
        loop {
            let batches = self.fetch(cluster, partition, end);
            if batches.is_empty() {
                return end;
            }
            for batch in batches {
                end = self.append(cluster, partition, &batch);
            }
        }
    }

    /// What is stored from there on where the topic is: what is lost as it is at the other node.
    fn fetch(&self, cluster: &mut Cluster, partition: PartitionIndex, from: u64) -> Vec<Vec<u8>> {
        let fetch = Fetch {
            partition,
            from: at(1, from),
            bytes_max: 1 << 20,
            wait_max_ms: 0,
            inline_data: true,
        };
        let (site, link) = self.from;
        let world = &mut cluster.sites[site].world;
        let asked = world.request(link, Method::Fetch, self.topic, &fetch, &[]);
        let message = world.answer(link, asked).unwrap().unwrap();
        let head = Fetched::from_bytes("fetched", &message.head).unwrap();
        let payload = message.payload.concat();
        let mut read = 0;
        let batches = head.batch_bytes.into_iter().map(|bytes| {
            let batch = &payload[read..read + bytes as usize];
            read += bytes as usize;
            let known = Batch::read(batch, Verify::Sections).unwrap();
            if known.header.kind != BatchKind::Gap {
                return batch.to_vec();
            }
            let gap = Gap::from_bytes("gap", known.metadata_section()).unwrap();
            stamped(&skipped_batch(self.topic, &gap).to_vec(), gap.first.0)
        });
        batches.collect()
    }

    /// Appends a batch where the topic goes, and says where that ends then.
    fn append(&self, cluster: &mut Cluster, partition: PartitionIndex, batch: &[u8]) -> u64 {
        let append = AppendMirrored {
            partition,
            opening: 1,
            durability: Durability::Memory,
            regions: Vec::new(),
        };
        let (site, link) = self.to;
        let world = &mut cluster.sites[site].world;
        let asked = world.request(link, Method::AppendMirrored, self.topic, &append, batch);
        let produced: Produced = world.answered(link, asked).unwrap();
        let batch = Batch::read(batch, Verify::Headers).unwrap();
        produced.base_offset.0 + batch.header.offset_count()
    }

    fn yield_topic(&mut self, cluster: &mut Cluster) -> Done {
        let to = cluster.sites[self.to.0].id;
        let yields = YieldTopic { to };
        self.yielded = Some(self.ask(cluster, self.from, Method::YieldTopic, &yields)?);
        Ok(())
    }

    fn adopt(&self, cluster: &mut Cluster) -> Done {
        let yielded = self.yielded.clone().unwrap();
        let adopt = AdoptLedger {
            is_first: true,
            records: yielded.ledger,
            producers: yielded.producers,
        };
        self.ask::<Empty>(cluster, self.to, Method::AdoptLedger, &adopt)?;
        Ok(())
    }

    fn hand_over(&self, cluster: &mut Cluster) -> Done {
        self.ask::<Empty>(cluster, self.from, Method::HandOverTopic, &Empty)?;
        Ok(())
    }

    /// All of it.
    fn run(&mut self, cluster: &mut Cluster) -> Done {
        self.begin(cluster)?;
        self.copy(cluster)?;
        self.yield_topic(cluster)?;
        let copied = self.copy(cluster)?;
        let ends = self.yielded.clone().unwrap().ends;
        assert_eq!(ends.iter().map(|end| end.1.0).collect::<Vec<_>>(), copied);
        self.adopt(cluster)?;
        self.hand_over(cluster)
    }
}

/// A cluster of so many nodes, and a topic on the first one, with these events.
fn with_topic(nodes: usize, events: &[&str]) -> (Cluster, String, TopicId) {
    let mut cluster = Cluster::new(nodes);
    let name = cluster.name_on(1);
    let topic = cluster.create(1, &name).unwrap().topic;
    let client = cluster.client(1);
    let world = &mut cluster.sites[1].world;
    if !events.is_empty() {
        world.stored(client, topic, (5, 0), events);
    }
    (cluster, name, topic)
}

/// What a consumer gets from its cursor on, or from the beginning.
fn read(cluster: &mut Cluster, site: usize, topic: TopicId) -> Vec<String> {
    let client = cluster.client(site);
    let world = &mut cluster.sites[site].world;
    let id = world.subscribe(client, topic, "", Start::Beginning);
    world.texts(client, id)
}

#[test]
fn events_producers_and_cursors_go_along() {
    let (mut cluster, name, topic) = with_topic(3, &["a", "b"]);
    let client = cluster.client(1);
    let world = &mut cluster.sites[1].world;
    let moved = world.move_cursor(client, topic, CursorMove::Seek, at(1, 1));
    world.answered::<Empty>(client, moved).unwrap();
    let before = cluster.sites[1].ground.directories();
    assert!(before.iter().any(|name| name.contains(&topic.to_string())));
    let mut mover = Mover::new(&mut cluster, topic, 1, 2);
    mover.run(&mut cluster).unwrap();
    for site in [1, 3] {
        let elsewhere = cluster.describe(site, &name);
        cluster.assert_at(elsewhere, 2);
    }
    let description = cluster.describe(2, &name).unwrap();
    assert_eq!(description.partitions[0].leader_epoch, 2);
    assert_eq!(description.partitions[0].watermarks.end, Offset(2));
    // A retry is known, the next batch follows, and the cursor is where it was.
    let client = cluster.client(2);
    let world = &mut cluster.sites[2].world;
    let again = world.stored(client, topic, (5, 0), &["a", "b"]);
    assert!(again.duplicate);
    let next = world.stored(client, topic, (5, 2), &["c"]);
    assert_eq!((next.duplicate, next.base_offset), (false, Offset(2)));
    assert_eq!(world.cursor(client, topic), Some(at(1, 1)));
    assert_eq!(read(&mut cluster, 2, topic), ["a", "b", "c"]);
    // Nothing is left of it where it was.
    let left = cluster.sites[1].ground.directories();
    assert!(!left.iter().any(|name| name.contains(&topic.to_string())));
    // Starts of either node change nothing.
    for site in [1, 2] {
        cluster.lose(site);
        cluster.start(site).unwrap();
    }
    assert_eq!(read(&mut cluster, 2, topic), ["a", "b", "c"]);
    let client = cluster.client(2);
    let world = &mut cluster.sites[2].world;
    assert_eq!(world.cursor(client, topic), Some(at(1, 1)));
    let elsewhere = cluster.describe(1, &name);
    cluster.assert_at(elsewhere, 2);
    // It comes back as well.
    let mut back = Mover::new(&mut cluster, topic, 2, 1);
    back.run(&mut cluster).unwrap();
    assert_eq!(read(&mut cluster, 1, topic), ["a", "b", "c"]);
    let description = cluster.describe(1, &name).unwrap();
    assert_eq!(description.partitions[0].leader_epoch, 3);
}

#[test]
fn a_queue_goes_along_with_what_is_settled_and_who_is_a_member() {
    let (mut cluster, name, topic) = with_topic(2, &["a", "b", "c"]);
    let dead = super::nodes::to_create(&format!("{name}.dead"));
    let created = cluster.call::<TopicDescription>(1, Method::CreateTopic, topic, &dead);
    created.unwrap();
    let worker = cluster.client(1);
    let world = &mut cluster.sites[1].world;
    let join = world.request(worker, Method::Join, topic, &member(1), &[]);
    cluster.carry();
    let world = &mut cluster.sites[1].world;
    world.answered::<Joined>(worker, join).unwrap();
    let given = world.given(worker, join);
    assert_eq!(given.len(), 3);
    let settle = world.send_settle(worker, topic, (1, 1), vec![done(given[1].lease)]);
    world.answered::<Settled>(worker, settle).unwrap();
    let mut mover = Mover::new(&mut cluster, topic, 1, 2);
    mover.run(&mut cluster).unwrap();
    // The member was told, and comes to the other node with what it holds.
    let ended = cluster.sites[1].world.ended(worker, join).unwrap();
    assert_eq!((ended.code, ended.retryable), (ErrorCode::NotLeader, true));
    let worker = cluster.client(2);
    let again = Join {
        held: vec![given[0].lease],
        ..member(1)
    };
    let world = &mut cluster.sites[2].world;
    let join = world.request(worker, Method::Join, topic, &again, &[]);
    cluster.carry();
    let world = &mut cluster.sites[2].world;
    let joined: Joined = world.answered(worker, join).unwrap();
    assert!(joined.expired.is_empty(), "{joined:?}");
    let texts = world.given(worker, join).into_iter().map(|it| it.text);
    assert_eq!(texts.collect::<Vec<_>>(), ["c"]);
}

#[test]
fn what_was_yielded_is_served_again_when_its_mover_is_gone() {
    let (mut cluster, _, topic) = with_topic(2, &["a"]);
    let reader = cluster.client(1);
    let world = &mut cluster.sites[1].world;
    let subscribed = world.subscribe(reader, topic, "", Start::Beginning);
    let mut mover = Mover::new(&mut cluster, topic, 1, 2);
    mover.begin(&mut cluster).unwrap();
    mover.copy(&mut cluster).unwrap();
    mover.yield_topic(&mut cluster).unwrap();
    // Nobody reads or writes it meanwhile.
    let world = &mut cluster.sites[1].world;
    let ended = world.ended(reader, subscribed).unwrap();
    assert_eq!((ended.code, ended.retryable), (ErrorCode::NotLeader, true));
    let late = world.produce(reader, topic, &batch(topic, 5, 0, 1, &["b"]));
    let refused = world.error(reader, late).unwrap();
    assert_eq!(
        (refused.code, refused.retryable),
        (ErrorCode::NotLeader, true)
    );
    assert_eq!(refused.leader_hint, "");
    world.disconnect(mover.from.1);
    let world = &mut cluster.sites[1].world;
    world.stored(reader, topic, (5, 1), &["b"]);
    assert_eq!(read(&mut cluster, 1, topic), ["a", "b"]);
    // It cannot be handed over by who has not got all of it.
    let refused = Mover::new(&mut cluster, topic, 1, 2).hand_over(&mut cluster);
    assert_eq!(refused.unwrap_err().code, ErrorCode::Unsupported);
    // The next one goes on where this one was.
    cluster.sites[2].world.disconnect(mover.to.1);
    let mut next = Mover::new(&mut cluster, topic, 1, 2);
    next.run(&mut cluster).unwrap();
    assert_eq!(read(&mut cluster, 2, topic), ["a", "b"]);
}

#[test]
fn a_topic_whose_mover_is_gone_gets_partitions_all_the_same() {
    let (mut cluster, _, topic) = with_topic(2, &["a"]);
    let mover = Mover::new(&mut cluster, topic, 1, 2);
    mover.begin(&mut cluster).unwrap();
    let admin = (1, cluster.client(1));
    let add = AddPartitions {
        partitions: vec![storage("disk")],
    };
    let ask = |cluster: &mut Cluster| {
        let asked = mover.ask::<TopicDescription>(cluster, admin, Method::AddPartitions, &add);
        asked
            .map(|_| ())
            .map_err(|error| (error.message, error.retryable))
    };
    // As long as there is one, it goes before.
    for _ in 0..2 {
        let (why, retryable) = ask(&mut cluster).unwrap_err();
        assert!(retryable && why.contains("is on its way to node"), "{why}");
    }
    cluster.sites[1].world.disconnect(mover.from.1);
    let (why, retryable) = ask(&mut cluster).unwrap_err();
    assert!(retryable, "{why}");
    ask(&mut cluster).unwrap();
    // Who moves it now moves all of it.
    let mut next = Mover::new(&mut cluster, topic, 1, 2);
    next.run(&mut cluster).unwrap();
    assert_eq!(read(&mut cluster, 2, topic), ["a"]);
}

#[test]
fn a_node_that_begins_anew_ends_what_was_on_its_way() {
    for lost in [1, 2] {
        let (mut cluster, name, topic) = with_topic(2, &["a"]);
        let mut mover = Mover::new(&mut cluster, topic, 1, 2);
        mover.begin(&mut cluster).unwrap();
        mover.copy(&mut cluster).unwrap();
        mover.yield_topic(&mut cluster).unwrap();
        cluster.lose(lost);
        cluster.start(lost).unwrap();
        if lost == 2 {
            let refused = mover.hand_over(&mut cluster).unwrap_err();
            assert!(refused.message.contains("not on its way"), "{refused}");
        }
        cluster.describe(1, &name).unwrap();
        assert_eq!(read(&mut cluster, 1, topic), ["a"]);
        // What was left there is no matter.
        let mut next = Mover::new(&mut cluster, topic, 1, 2);
        next.run(&mut cluster).unwrap();
        assert_eq!(read(&mut cluster, 2, topic), ["a"]);
    }
}

/// The node that had a topic dies while it is being decided that another one has it: one of them has it.
#[test]
fn what_was_proposed_by_an_earlier_life_moves_a_topic_or_nothing() {
    for is_decided in [false, true] {
        let (mut cluster, name, topic) = with_topic(2, &["a"]);
        let mut mover = Mover::new(&mut cluster, topic, 1, 2);
        mover.begin(&mut cluster).unwrap();
        mover.copy(&mut cluster).unwrap();
        mover.yield_topic(&mut cluster).unwrap();
        mover.adopt(&mut cluster).unwrap();
        let (site, link) = mover.from;
        let world = &mut cluster.sites[site].world;
        world.request(link, Method::HandOverTopic, topic, &Empty, &[]);
        if is_decided {
            // Its node does not hear of it.
            let answers = cluster.carry_but(Some(1));
            drop(answers);
        }
        cluster.lose(1);
        cluster.sites[1].world.to_peers.clear();
        cluster.start(1).unwrap();
        let at = if is_decided { 2 } else { 1 };
        assert_eq!(read(&mut cluster, at, topic), ["a"]);
        let elsewhere = cluster.describe(3 - at, &name);
        cluster.assert_at(elsewhere, at);
    }
}

/// A move to the third node was begun before; that it goes to the second one now, the third one hears when it has all copies.
#[test]
fn a_node_that_is_behind_adopts_nothing_that_goes_elsewhere() {
    let (mut cluster, _, topic) = with_topic(3, &["a"]);
    let first = Mover::new(&mut cluster, topic, 1, 3);
    first.begin(&mut cluster).unwrap();
    let mut mover = Mover::new(&mut cluster, topic, 1, 2);
    let (to, link) = (cluster.sites[2].id, mover.from.1);
    let world = &mut cluster.sites[1].world;
    world.request(link, Method::MoveTopic, topic, &MoveTopic { to }, &[]);
    let mut late = cluster.carry_but(Some(3));
    let world = &mut cluster.sites[1].world;
    let asked = world.request(link, Method::YieldTopic, topic, &YieldTopic { to }, &[]);
    late.extend(cluster.carry_but(Some(3)));
    let yielded: TopicYielded = cluster.sites[1].world.answered(link, asked).unwrap();
    let adopt = AdoptLedger {
        is_first: true,
        records: yielded.ledger,
        producers: yielded.producers,
    };
    mover.to = first.to;
    assert_eq!(mover.copy(&mut cluster), Ok(vec![1]));
    let world = &mut cluster.sites[3].world;
    let asked = world.request(mover.to.1, Method::AdoptLedger, topic, &adopt, &[]);
    late.into_iter().for_each(|input| world.input(input));
    cluster.carry();
    let adopted = cluster.sites[3].world.answered::<Empty>(mover.to.1, asked);
    let refused = adopted.map(|_| ()).unwrap_err();
    assert!(refused.message.contains("not come here"), "{refused}");
}

#[test]
fn what_cannot_be_moved_says_why() {
    let (mut cluster, name, topic) = with_topic(2, &[]);
    let asked = |cluster: &mut Cluster, to: u32| {
        let to = NodeId(to);
        let body = MoveTopic { to };
        let done = cluster.call::<Empty>(1, Method::MoveTopic, topic, &body);
        done.map(|_| ())
    };
    let refused = asked(&mut cluster, 7).unwrap_err();
    assert!(refused.message.contains("takes no topics"), "{refused}");
    // To where it is, and to where it is going already.
    asked(&mut cluster, 1).unwrap();
    for _ in 0..2 {
        asked(&mut cluster, 2).unwrap();
    }
    let more = AddPartitions {
        partitions: vec![storage("disk")],
    };
    let added = cluster.call::<TopicDescription>(1, Method::AddPartitions, topic, &more);
    let error = added.unwrap_err();
    assert!(
        error.retryable && error.message.contains("on its way"),
        "{error}"
    );
    // Who asks another node than the one that it goes to hears which that is.
    let receive = ReceiveTopic { opening: 1 };
    let elsewhere = cluster.call::<MirrorOpened>(1, Method::ReceiveTopic, topic, &receive);
    cluster.assert_at(elsewhere, 2);
    // It stays after all.
    asked(&mut cluster, 1).unwrap();
    let added = cluster.call::<TopicDescription>(1, Method::AddPartitions, topic, &more);
    assert_eq!(added.unwrap().partitions.len(), 2);
    let stays = cluster.call::<MirrorOpened>(1, Method::ReceiveTopic, topic, &receive);
    assert_unsupported(stays, "is on this node");
    let error = cluster
        .call::<MirrorOpened>(2, Method::ReceiveTopic, topic, &receive)
        .unwrap_err();
    assert!(
        error.retryable && error.message.contains("not on its way"),
        "{error}"
    );
    // One that is deleted meanwhile leaves nothing at the node that it was to go to.
    asked(&mut cluster, 2).unwrap();
    let mover = Mover::new(&mut cluster, topic, 1, 2);
    mover.copy(&mut cluster).unwrap();
    let has = |cluster: &Cluster, site: usize| {
        let names = cluster.sites[site].ground.directories();
        names.iter().any(|name| name.contains(&topic.to_string()))
    };
    assert!(has(&cluster, 2));
    let named = TopicName { name };
    cluster
        .call::<Empty>(1, Method::DeleteTopic, TopicId(0), &named)
        .unwrap();
    assert!(!has(&cluster, 2) && !has(&cluster, 1));
}

/// Whether a node would go on writing a topic that it has yielded: what does not ask as clients do, as a dead letter.
fn is_written_on(fault: Option<Fault>) -> bool {
    let mut cluster = Cluster::with_fault(2, fault);
    let name = cluster.name_on(1);
    let topic = cluster.create(1, &name).unwrap().topic;
    let mut mover = Mover::new(&mut cluster, topic, 1, 2);
    mover.begin(&mut cluster).unwrap();
    mover.copy(&mut cluster).unwrap();
    mover.yield_topic(&mut cluster).unwrap();
    let node = &cluster.sites[1].world.node;
    let mut storages = node.coordinator.topics.storages(topic);
    let (_, storage) = storages.next().unwrap();
    node.partitions[&storage].appends.writer == Writer::Anybody
}

#[test]
fn nobody_writes_what_was_yielded() {
    assert!(!is_written_on(None));
    assert!(is_written_on(Some(Fault::YieldedServes)));
}

#[test]
fn a_group_goes_along_with_who_owns_what() {
    let (mut cluster, _, topic) = with_topic(2, &["a", "b"]);
    let reader = cluster.client(1);
    let join = Join {
        session_timeout_ms: 600_000,
        ..super::members::join("g", ConsumerKind::Group, 1)
    };
    let world = &mut cluster.sites[1].world;
    let asked = world.request(reader, Method::Join, topic, &join, &[]);
    cluster.carry();
    cluster.sites[1]
        .world
        .answered::<Joined>(reader, asked)
        .unwrap();
    let mut mover = Mover::new(&mut cluster, topic, 1, 2);
    mover.run(&mut cluster).unwrap();
    let reader = cluster.client(2);
    let world = &mut cluster.sites[2].world;
    let asked = world.request(reader, Method::Join, topic, &join, &[]);
    cluster.carry();
    let world = &mut cluster.sites[2].world;
    world.answered::<Joined>(reader, asked).unwrap();
    assert_eq!(world.assigned(reader, asked).0, [0]);
}

#[test]
fn a_producer_of_whose_events_none_is_left_is_known_at_the_new_node() {
    let mut cluster = Cluster::new(2);
    let create = CreateTopic {
        definition: r#"{"keep_until_acknowledged":["c"]}"#.into(),
        partitions: vec![storage("memory")],
        ..super::nodes::to_create(&cluster.name_on(1))
    };
    let made = cluster.call::<TopicDescription>(1, Method::CreateTopic, TopicId(0), &create);
    let topic = made.unwrap().topic;
    let client = cluster.client(1);
    let world = &mut cluster.sites[1].world;
    world.stored(client, topic, (5, 0), &["a"]);
    let moved = world.move_cursor(client, topic, CursorMove::Acknowledge, at(1, 1));
    world.answered::<Empty>(client, moved).unwrap();
    assert_eq!(read(&mut cluster, 1, topic), [] as [&str; 0]);
    let mut mover = Mover::new(&mut cluster, topic, 1, 2);
    mover.run(&mut cluster).unwrap();
    let client = cluster.client(2);
    let world = &mut cluster.sites[2].world;
    let again = world.stored(client, topic, (5, 0), &["a"]);
    assert!(again.duplicate);
    let next = world.stored(client, topic, (5, 1), &["b"]);
    assert_eq!((next.duplicate, next.base_offset), (false, Offset(1)));
    assert_eq!(read(&mut cluster, 2, topic), ["b"]);
}

/// A mover whose connection is gone while it waits, and comes again, hears of all that was acknowledged in between.
#[test]
fn what_another_mover_has_waited_for_says_nothing_to_the_next() {
    let (mut cluster, _, topic) = with_topic(2, &["a", "b"]);
    let consumer = cluster.client(1);
    let first = Mover::new(&mut cluster, topic, 1, 2);
    first.begin(&mut cluster).unwrap();
    let to = cluster.sites[2].id;
    let yields = YieldTopic { to };
    let (site, link) = first.from;
    let world = &mut cluster.sites[site].world;
    // What it waits for does not come: neither the leader nor the disk answers.
    world.hold_disk = true;
    world.request(link, Method::YieldTopic, topic, &yields, &[]);
    world.disconnect(link);
    let late = world.move_cursor(consumer, topic, CursorMove::Seek, at(1, 2));
    let refused = world.error(consumer, late).unwrap();
    assert_eq!(
        (refused.code, refused.retryable),
        (ErrorCode::NotLeader, true)
    );
    world.hold_disk = false;
    world.release_disk();
    cluster.carry();
    // It is served again, when all is decided.
    let world = &mut cluster.sites[1].world;
    let moved = world.move_cursor(consumer, topic, CursorMove::Seek, at(1, 2));
    world.answered::<Empty>(consumer, moved).unwrap();
    let mut next = Mover::new(&mut cluster, topic, 1, 2);
    next.run(&mut cluster).unwrap();
    let client = cluster.client(2);
    let world = &mut cluster.sites[2].world;
    assert_eq!(world.cursor(client, topic), Some(at(1, 2)));
}

/// Whether an event is lost that its producer was told is stored, where a mover hands over what it has copied.
fn loses_events(fault: Option<Fault>) -> bool {
    let mut cluster = Cluster::with_fault(2, fault);
    let name = cluster.name_on(1);
    let topic = cluster.create(1, &name).unwrap().topic;
    let mover = Mover::new(&mut cluster, topic, 1, 2);
    mover.begin(&mut cluster).unwrap();
    mover.copy(&mut cluster).unwrap();
    let producer = cluster.client(1);
    let world = &mut cluster.sites[1].world;
    world.stored(producer, topic, (5, 0), &["a"]);
    let home = match mover.hand_over(&mut cluster) {
        Ok(()) => 2,
        Err(_) => 1,
    };
    read(&mut cluster, home, topic) != ["a"]
}

#[test]
fn nothing_is_handed_over_that_others_may_write() {
    assert!(!loses_events(None));
    assert!(loses_events(Some(Fault::MovesEarly)));
}
