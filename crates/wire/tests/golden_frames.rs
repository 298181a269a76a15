//! The bytes of version 2 of every frame kind and every message. They never
//! change; a new version adds files.
//!
//! `UPDATE_GOLDEN=1 cargo test -p thalweg-wire --test golden_frames` writes
//! the lines of what has none yet, and leaves the others alone.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;
use wire::codec::Appended;
use wire::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind, HEARTBEAT_ANSWER};
use wire::message::*;
use wire::record::{
    ConsumerKind, Endpoints, Gap, GapReason, Labels, NodeState, Position, ProducerState,
    SequenceRange,
};
use wire::view::{Repeat, Segment, StridedSegment};
use wire::*;

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/frames-2.txt")
}

/// The file: a line for each example, its name and its bytes in hexadecimal.
fn golden() -> BTreeMap<String, Vec<u8>> {
    let text = std::fs::read_to_string(path()).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, hex) = line.split_once(": ").expect("a name and bytes");
            let digits: Vec<_> = hex.chars().map(|c| c.to_digit(16).expect("hex")).collect();
            let bytes = digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8);
            (name.to_owned(), bytes.collect())
        })
        .collect()
}

/// Checks examples against the file, or adds those that it lacks.
struct Examples {
    golden: BTreeMap<String, Vec<u8>>,
    missing: Vec<String>,
    seen: Vec<String>,
}

impl Examples {
    fn check(&mut self, name: &str, bytes: &[u8]) {
        self.seen.push(name.to_owned());
        match self.golden.get(name) {
            Some(golden) => assert_eq!(
                bytes, golden,
                "the bytes of {name} have changed: a new version, or a mistake"
            ),
            None => {
                self.golden.insert(name.to_owned(), bytes.to_vec());
                self.missing.push(name.to_owned());
            }
        }
    }

    fn message<T: Codec + PartialEq + Debug>(&mut self, value: T) {
        let name = name_of::<T>();
        let bytes = value.to_bytes();
        self.check(&name, &bytes);
        let back = T::from_bytes("golden", &self.golden[&name]).expect("golden bytes decode");
        assert_eq!(back, value, "{name} means the same as ever");
        // A field that a later version appends is no matter.
        let longer = [&bytes[..], b"later"].concat();
        assert_eq!(T::from_bytes("golden", &longer).as_ref(), Ok(&value));
        for end in 0..bytes.len() {
            let cut = T::from_bytes("golden", &bytes[..end]);
            assert!(cut.is_err(), "{name} cut at {end}");
        }
    }

    /// A message to which `field` was appended: `before`, which lacks it, has
    /// the bytes of before, and is read still. Empty, the field has so many bytes.
    fn appended<T: Codec + PartialEq + Debug>(
        &mut self,
        (field, field_bytes): (&str, usize),
        before: T,
        value: T,
    ) {
        let name = name_of::<T>();
        let bytes = before.to_bytes();
        let end = bytes.len() - field_bytes;
        self.check(&name, &bytes[..end]);
        let back = T::from_bytes("golden", &self.golden[&name]).expect("golden bytes decode");
        assert_eq!(back, before, "{name} without {field}");
        for cut in end + 1..bytes.len() {
            assert!(T::from_bytes("golden", &bytes[..cut]).is_err());
        }
        self.check(&format!("{name} {field}"), &value.to_bytes());
        assert_eq!(T::from_bytes("golden", &value.to_bytes()), Ok(value));
    }
}

/// What a message is called in the file.
fn name_of<T>() -> String {
    let name = std::any::type_name::<T>().rsplit(':').next();
    name.unwrap().to_owned()
}

fn region() -> Region {
    Region {
        key: Bytes::from_static(&[1, 0, 0, 0, 0, 0, 0, 0]),
        base: 4096,
        bytes: 5 << 30,
        memory_kind: 0,
        rails: 0,
    }
}

fn watermarks() -> Watermarks {
    Watermarks {
        end: Offset(300),
        durable: Offset(200),
        committed: Offset(200),
    }
}

fn position() -> Position {
    Position {
        incarnation: Incarnation(2),
        offset: Offset(150),
    }
}

fn storage() -> PartitionStorage {
    PartitionStorage {
        kind: "disk".into(),
        config: r#"{"segment_bytes_max":67108864}"#.into(),
    }
}

fn partition() -> PartitionDescription {
    PartitionDescription {
        partition: PartitionIndex(3),
        storage: storage(),
        durability: Durability::Synced,
        incarnation: Incarnation(2),
        leader_epoch: 3,
        ended: vec![(Incarnation(1), Offset(77))],
        first: Offset(10),
        watermarks: watermarks(),
        bytes: 123_456,
        failure: String::new(),
    }
}

fn topic() -> TopicDescription {
    TopicDescription {
        name: "beam/shots".into(),
        topic: TopicId(0x0123_4567_89ab_cdef_0011_2233_4455_6677),
        definition: r#"{"validator":"json"}"#.into(),
        partitions: vec![partition()],
    }
}

fn error() -> ErrorReply {
    ErrorReply {
        code: ErrorCode::StorageFull,
        retryable: true,
        retry_after_ms: 1500,
        leader_hint: "tcp://node-2:9000".into(),
        message: "partition 3 of beam/shots: 4096 bytes needed, 0 free".into(),
    }
}

fn hello() -> Hello {
    Hello {
        version_min: PROTOCOL_VERSION,
        version_max: PROTOCOL_VERSION,
        features_required: 0,
        features_optional: 0,
        namespace: String::new(),
        mechanism: "token".into(),
        proof: Bytes::from_static(&[0xa5; 32]),
        session: SessionId(0x1111_2222_3333_4444_5555_6666_7777_8888),
        role: Role::Control,
        directory: DirectoryId(0x9999_aaaa_bbbb_cccc_dddd_eeee_ffff_0000),
        trace: 0,
        client_name: "acquire 4711".into(),
        stripes: Appended(0),
    }
}

fn messages(examples: &mut Examples) {
    let several = Hello {
        stripes: Appended(4),
        ..hello()
    };
    examples.appended(("stripes", 1), hello(), several);
    let welcome = |most, key| Welcome {
        version: PROTOCOL_VERSION,
        features: 0,
        directory: DirectoryId(7),
        instance: ServerInstance(8),
        produce_credit: 64 << 20,
        payload_bytes_max: 128 << 20,
        heartbeat_ms: 5000,
        server_version: "0.1.0".into(),
        stripes: Appended(most),
        stripe_key: Appended(Secret(key)),
    };
    let key = Bytes::from_static(&[0x5a; 32]);
    // Two fields that come together: an older side sends neither.
    let (before, several) = (welcome(0, Bytes::new()), welcome(4, key));
    let bytes = before.to_bytes();
    examples.check("Welcome", &bytes[..bytes.len() - 5]);
    let back = Welcome::from_bytes("golden", &examples.golden["Welcome"]);
    assert_eq!(back, Ok(before));
    examples.check("Welcome stripes", &several.to_bytes());
    assert!(!format!("{several:?}").contains("5a"), "{several:?}");
    assert_eq!(
        Welcome::from_bytes("golden", &several.to_bytes()),
        Ok(several)
    );
    examples.message(RequestHead {
        method: Method::Produce,
        remaining_ms: 120_000,
        topic: topic().topic,
        leader_epoch: 0,
        trace: 5,
    });
    examples.message(region());
    examples.message(storage());
    examples.message(CreateTopic {
        name: "beam/shots".into(),
        definition: "{}".into(),
        partitions: vec![storage()],
    });
    examples.message(AddPartitions {
        partitions: vec![storage(), storage()],
    });
    examples.message(AddPlacedPartitions {
        placement: "rank=2".to_owned(),
        partitions: vec![storage(), storage()],
    });
    examples.message(TopicName {
        name: "beam/shots".into(),
    });
    examples.message(partition());
    examples.message(watermarks());
    examples.message(topic());
    examples.message(TopicList {
        topics: vec![topic()],
        others: vec![TopicId(9)],
    });
    examples.message(OpenProducer {
        name: "camera-1".into(),
        resume: ProducerId(9),
        resume_epoch: ProducerEpoch(4),
    });
    examples.message(ProducerOpened {
        producer: ProducerId(9),
        epoch: ProducerEpoch(5),
        next: vec![(PartitionIndex(3), Sequence(1000))],
    });
    examples.message(Produce {
        partition: PartitionIndex(3),
        durability: Durability::Written,
        regions: vec![region()],
    });
    examples.message(Produced {
        incarnation: Incarnation(2),
        base_offset: Offset(300),
        append_time: 1_700_000_000_000_000_000,
        duplicate: true,
    });
    let subscribe = |latest| Subscribe {
        consumer: "viewer".into(),
        partition: PartitionIndex(3),
        start: Start::At(position()),
        credit: 16 << 20,
        inline_data: true,
        latest: Appended(latest),
    };
    examples.appended(("latest", 1), subscribe(false), subscribe(true));
    examples.message(Subscribed {
        position: position(),
        watermarks: watermarks(),
    });
    examples.message(Unsubscribe { subscription: 12 });
    examples.message(Deliver {
        incarnation: Incarnation(2),
        batch_bytes: vec![1000, 2000],
        watermarks: watermarks(),
    });
    examples.message(Credit { bytes: 3000 });
    examples.message(Fetch {
        partition: PartitionIndex(3),
        from: position(),
        bytes_max: 1 << 20,
        wait_max_ms: 500,
        inline_data: false,
    });
    examples.message(Fetched {
        incarnation: Incarnation(2),
        batch_bytes: vec![1000],
        watermarks: watermarks(),
    });
    let wanted = DataWanted {
        partition: PartitionIndex(3),
        incarnation: Incarnation(2),
        offset: Offset(151),
        segments: vec![Segment {
            offset: 4096,
            bytes: 100,
        }],
    };
    examples.message(wanted.clone());
    examples.message(Segment {
        offset: 1 << 33,
        bytes: 1,
    });
    let rows = StridedSegment {
        offset: 4096,
        bytes: 100,
        repeats: vec![
            Repeat {
                count: 3,
                stride: 1 << 20,
            },
            Repeat {
                count: 10,
                stride: 4000,
            },
        ],
    };
    let strided = StridedSelection {
        event: 1,
        segments: vec![rows.clone()],
    };
    examples.message(rows.repeats[1].clone());
    examples.message(rows);
    examples.message(strided.clone());
    let read = |strided| ReadData {
        events: vec![wanted.clone()],
        into: vec![region()],
        strided: Appended(strided),
    };
    examples.appended(("strided", 4), read(Vec::new()), read(vec![strided]));
    examples.message(DataRead {
        checksums: vec![0xdead_beef],
    });
    examples.message(ConsumerName {
        consumer: "viewer".into(),
    });
    examples.message(MoveCursors {
        consumer: "viewer".into(),
        how: CursorMove::Seek,
        positions: vec![(PartitionIndex(3), position())],
    });
    examples.message(ReadCursors {
        consumer: String::new(),
    });
    let cursor = Cursor {
        consumer: "viewer".into(),
        partition: PartitionIndex(3),
        position: position(),
    };
    examples.message(cursor.clone());
    examples.message(CursorList {
        cursors: vec![cursor],
    });
    let gap = Gap {
        incarnation: Incarnation(1),
        first: Offset(70),
        end: Offset(77),
        reason: GapReason::Damaged,
        time: 1_700_000_000_000_000_001,
    };
    examples.message(position());
    examples.message(gap);
    examples.message(GapList {
        gaps: vec![(PartitionIndex(3), gap)],
    });
    examples.message(StatusReply { json: "{}".into() });
    examples.message(authenticate());
    examples.message(Authenticated {
        expires_in_ms: 60_000,
        renew_in_ms: 40_000,
        refused: "the token was revoked".into(),
        message: "it expires soon".into(),
        issued: vec![Bytes::from_static(b"der")],
    });
    examples.message(ListNodes {
        topics_of: NodeId(2),
    });
    examples.message(MoveTopic { to: NodeId(2) });
    examples.message(ReceiveTopic { opening: 7 });
    examples.message(YieldTopic { to: NodeId(2) });
    examples.message(TopicYielded {
        ends: vec![(PartitionIndex(1), Offset(9))],
        ledger: vec![Bytes::from_static(b"record")],
        producers: vec![(PartitionIndex(1), vec![producer_state()])],
    });
    examples.message(AdoptLedger {
        is_first: true,
        records: vec![Bytes::from_static(b"record")],
        producers: vec![(PartitionIndex(1), vec![producer_state()])],
    });
    let nodes = node_list();
    examples.message(nodes.nodes[0].clone());
    examples.message(nodes);
    examples.message(SetNode {
        node: NodeId(2),
        state: NodeState::Removed,
        accept_loss: true,
    });
    examples.message(OfferPairing {
        project: "stf008".into(),
        name: "beamline".into(),
        life_ms: 86_400_000,
    });
    examples.message(PairingOffered {
        code: "7-olive".into(),
        holder: "thalweg://ornl/stf008/beamline".into(),
        lasts_ms: 600_000,
    });
    examples.message(Pair {
        proof: Bytes::from_static(b"proof"),
        request: Bytes::from_static(b"request"),
    });
    examples.message(Paired {
        proof: Bytes::from_static(b"proof"),
        holder: "thalweg://ornl/stf008/beamline".into(),
        life_ms: 86_400_000,
        certificates: vec![Bytes::from_static(b"own"), Bytes::from_static(b"authority")],
    });
    examples.message(CertificateChain {
        certificates: vec![Bytes::from_static(b"own"), Bytes::from_static(b"authority")],
    });
    examples.message(OpenMirror {
        link: "b".into(),
        source: TopicId(7),
        opening: 3,
    });
    examples.message(MirrorOpened {
        partitions: vec![MirrorPosition {
            partition: PartitionIndex(1),
            next: Offset(9),
            durable: Offset(5),
        }],
    });
    examples.message(AppendMirrored {
        partition: PartitionIndex(1),
        opening: 3,
        durability: Durability::Written,
        regions: vec![],
    });
    examples.message(CheckAccess {
        verb: "write".into(),
        topic: "frames".into(),
    });
    examples.message(AccessChecked {
        allowed: true,
        reason: "the owner of the server".into(),
    });
    examples.message(bulk_read());
    examples.message(bulk_data());
    examples.message(bulk_write());
    examples.message(BulkStatus {
        error: Some(error()),
    });
    examples.message(error());
    sharing(examples);
}

fn lease() -> Lease {
    Lease {
        partition: PartitionIndex(3),
        incarnation: Incarnation(2),
        first: Offset(150),
        end: Offset(160),
        lease: LeaseId(0x0123_4567_89ab_cdef),
        deliveries: 2,
    }
}

fn assigned() -> Assigned {
    Assigned {
        partitions: vec![PartitionIndex(0), PartitionIndex(3)],
        revoking: vec![PartitionIndex(3)],
        recovering_ms: Appended(0),
    }
}

fn sharing(examples: &mut Examples) {
    let member = MemberId(0x5555_6666_7777_8888_1111_2222_3333_4444);
    examples.message(AlterTopic {
        changes: r#"{"retention":{"bytes":1048576}}"#.into(),
    });
    examples.message(lease());
    examples.message(Join {
        consumer: "farm".into(),
        kind: ConsumerKind::Queue,
        options: r#"{"lease_ms":60000}"#.into(),
        start: Start::Latest,
        member,
        before: MemberId(member.0 + 1),
        instance: "node-7".into(),
        session_timeout_ms: 10_000,
        prefetch_events: 64,
        prefetch_bytes: 16 << 20,
        inline_data: true,
        held: vec![lease()],
    });
    let joined = |recovering_ms| Joined {
        options: "{}".into(),
        settled: vec![lease()],
        expired: vec![lease()],
        recovering_ms: Appended(recovering_ms),
    };
    examples.appended(("recovering_ms", 4), joined(0), joined(7500));
    examples.message(Leave {
        consumer: "farm".into(),
        member,
    });
    let recovering = Assigned {
        recovering_ms: Appended(7500),
        ..assigned()
    };
    examples.appended(("recovering_ms", 4), assigned(), recovering);
    examples.message(Release {
        consumer: "farm".into(),
        member,
        partitions: vec![PartitionIndex(3)],
    });
    let scoped = |latest| SubscribeScoped {
        member,
        key: Some(Bytes::from_static(b"camera-1")),
        subscribe: Subscribe {
            consumer: "farm".into(),
            partition: PartitionIndex(3),
            start: Start::Cursor,
            credit: 16 << 20,
            inline_data: true,
            latest: Appended(latest),
        },
    };
    examples.appended(("latest", 1), scoped(false), scoped(true));
    examples.message(MoveMemberCursors {
        member,
        moves: MoveCursors {
            consumer: "farm".into(),
            how: CursorMove::Acknowledge,
            positions: vec![(PartitionIndex(3), position())],
        },
    });
    let leased = |gaps| Leased {
        batch_bytes: vec![1000, 2000],
        leases: vec![lease()],
        lease_ms: 30_000,
        gaps: Appended(gaps),
    };
    let lost = (
        PartitionIndex(3),
        Gap {
            incarnation: Incarnation(1),
            first: Offset(70),
            end: Offset(77),
            reason: GapReason::Damaged,
            time: 1_700_000_000_000_000_001,
        },
    );
    examples.appended(("gaps", 4), leased(Vec::new()), leased(vec![lost]));
    let settlement = Settlement {
        lease: lease(),
        how: SettleAs::Reject,
        delay_ms: 0,
        reason: "no such file".into(),
    };
    examples.message(settlement.clone());
    examples.message(Settle {
        consumer: "farm".into(),
        member,
        sequence: 12,
        worked_us: 1500,
        settlements: vec![settlement],
    });
    examples.message(Settled {
        expired: vec![lease()],
    });
    examples.message(ExtendLeases {
        consumer: "farm".into(),
        member,
        leases: vec![lease()],
    });
    examples.message(LeasesExtended {
        lease_ms: 30_000,
        expired: Vec::new(),
    });
    let there = MemberDescription {
        member,
        instance: "node-7".into(),
        client_name: "worker 4712".into(),
        present: true,
        silent_ms: 12,
        partitions: vec![PartitionIndex(3)],
        leased_events: 10,
        leased_bytes: 10_000,
    };
    examples.message(there.clone());
    let stands = ConsumerPartition {
        partition: PartitionIndex(3),
        position: position(),
        end: Offset(300),
        settled: 5,
        leased: 10,
        returned: 1,
        delayed: 2,
        dead: 3,
    };
    examples.message(stands.clone());
    let consumer = ConsumerDescription {
        consumer: "farm".into(),
        kind: ConsumerKind::Queue,
        options: "{}".into(),
        members: vec![there],
        partitions: vec![stands],
    };
    examples.message(consumer.clone());
    examples.message(ConsumerList {
        consumers: vec![consumer],
    });
}

fn bulk_read() -> BulkRead {
    BulkRead {
        key: region().key,
        offset: 4096,
        bytes: 512 << 10,
        block_bytes: 4096,
    }
}

fn producer_state() -> ProducerState {
    ProducerState {
        producer: ProducerId(5),
        epoch: ProducerEpoch(2),
        last_time: 7,
        batches: vec![SequenceRange {
            first: Sequence(3),
            count: 2,
            base_offset: Offset(9),
        }],
    }
}

fn node_list() -> NodeList {
    let labels = [("host".to_owned(), "n1".to_owned())];
    NodeList {
        nodes: vec![NodeDescription {
            node: NodeId(2),
            directory: DirectoryId(7),
            epoch: 3,
            shard: 1,
            state: NodeState::Draining,
            endpoints: Endpoints(vec!["tls://n1:9001".into()]),
            labels: Labels(labels.into_iter().collect()),
            topics: 12,
        }],
        topics: vec![("stf008".into(), "frames".into())],
    }
}

fn authenticate() -> Authenticate {
    Authenticate {
        mechanism: ACCESS_TOKEN.into(),
        proof: Bytes::from_static(b"thalweg-token-1:AQ"),
    }
}

fn bulk_data() -> BulkData {
    BulkData {
        checksums: vec![1, 0xffff_fffe],
    }
}

fn bulk_write() -> BulkWrite {
    BulkWrite {
        key: region().key,
        offset: 77,
    }
}

/// One frame of each kind: flags, id, head and payload.
fn frame(kind: FrameKind) -> (u8, u64, Vec<u8>, &'static [u8]) {
    use FrameKind as K;
    let credit = Credit { bytes: 1 };
    match kind {
        // Without what was appended to the message.
        K::Hello => {
            let head = hello().to_bytes();
            (0, 0, head[..head.len() - 1].to_vec(), b"")
        }
        K::Welcome => (0, 0, Vec::new(), b""),
        K::Authenticate => (0, 0, authenticate().to_bytes(), b""),
        K::Request => (0, 5, b"request".to_vec(), b"a batch"),
        K::Reply => (0, 5, b"reply".to_vec(), b""),
        K::ErrorReply => (0, 5, error().to_bytes(), b""),
        K::Cancel => (0, 5, Vec::new(), b""),
        K::Deliver => (0, 6, b"deliver".to_vec(), b"two batches"),
        K::Credit => (0, 6, credit.to_bytes(), b""),
        K::Heartbeat => (HEARTBEAT_ANSWER, 0, Vec::new(), b""),
        K::GoAway => (0, 0, error().to_bytes(), b""),
        K::Ended => (0, 6, error().to_bytes(), b""),
        // Without what was appended to the message.
        K::Assigned => (0, 7, assigned().to_bytes()[..20].to_vec(), b""),
        K::Leased => (0, 7, b"leased".to_vec(), b"two batches"),
        K::BulkRead => (0, 1, bulk_read().to_bytes(), b""),
        K::BulkData => (0, 1, bulk_data().to_bytes(), b"the bytes"),
        K::BulkWrite => (0, 2, bulk_write().to_bytes(), b"the bytes"),
        K::BulkStatus => (0, 1, BulkStatus { error: None }.to_bytes(), b""),
    }
}

/// The messages of ranks that write and read steps.
fn steps(examples: &mut Examples) {
    let (run, step, rank) = (Run(3), Step(17), Rank(2));
    let (producer, epoch) = (ProducerId(11), ProducerEpoch(4));
    let (reader, member, turn) = ("viewer".to_owned(), MemberId(77), 9);
    let position = Position {
        incarnation: Incarnation(1),
        offset: Offset(40),
    };
    examples.message(OpenRun {
        writer: "sim".into(),
        ranks: 4,
        rank,
        producer,
        epoch,
        session_timeout_ms: 30_000,
        readers_min: 1,
        queue_steps: 3,
        queue_bytes: 1 << 30,
        when_full: WhenFull::Discard,
        distribution: Distribution::RoundRobin,
    });
    examples.message(RunOpened {
        run,
        next: step,
        before: Run(2),
        attributes: vec![wire::step::Attribute {
            name: "dt".into(),
            dtype: "<f8".into(),
            is_list: false,
            value: Bytes::from_static(&[0, 0, 0, 0, 0, 0, 0xf0, 0x3f]),
        }],
    });
    examples.message(AttendRun {
        run,
        rank,
        producer,
        epoch,
    });
    examples.message(RunEnded {
        reason: "rank 1 of 4 is gone for 30 s".into(),
    });
    examples.message(AdmitStep {
        run,
        rank,
        step,
        pinned: true,
    });
    examples.message(StepAdmitted { discarded: true });
    examples.message(AwaitStep { run, step });
    examples.message(StepDecided {
        position,
        discarded: "2 steps are queued".into(),
    });
    examples.message(CloseRun {
        run,
        rank,
        producer,
        epoch,
        steps: 18,
    });
    examples.message(AwaitReaders { run, step });
    examples.message(HoldParts {
        run,
        rank,
        producer,
        epoch,
        session_timeout_ms: 30_000,
        from: Step(14),
        sending: vec![step],
        released_before: Step(15),
        left_before: Step(12),
    });
    examples.message(PartsWanted {
        steps: vec![step, Step(18)],
        released_before: Step(16),
        left_before: Step(13),
    });
    let who = ReaderMember {
        reader: reader.clone(),
        group: "worker-1".into(),
        rank: Rank(1),
        member,
    };
    examples.message(who.clone());
    examples.message(JoinReaders {
        who: who.clone(),
        ranks: 2,
        distribution: Distribution::OnDemand,
        start: StepStart::Run(run),
        latest: true,
        session_timeout_ms: 10_000,
        life: member,
        turn,
        released: 7,
        turns: vec![position],
    });
    examples.message(ReadersJoined {
        turn,
        life: member,
        began: position,
    });
    examples.message(AttendReaders { who: who.clone() });
    examples.message(LeaveReaders { who: who.clone() });
    examples.message(NextStep {
        who: who.clone(),
        turn,
        released: 8,
    });
    examples.message(StepGiven {
        turn,
        pinned: true,
        position,
        skipped: 5,
        lost: 0,
        batch_bytes: vec![512, 1024],
    });
    examples.message(ReleaseStep { who, turn });
}

fn frames(examples: &mut Examples) {
    for kind in FrameKind::ALL {
        let (flags, id, head, payload) = frame(*kind);
        let header = FrameHeader {
            kind: *kind,
            flags,
            head_bytes: head.len() as u32,
            payload_bytes: payload.len() as u64,
            id,
        };
        let name = format!("frame {kind:?}");
        let bytes = [&header.to_bytes(&head)[..], &head, payload].concat();
        examples.check(&name, &bytes);
        let golden = &examples.golden[&name];
        let front = golden.first_chunk::<FRAME_HEADER_BYTES>().unwrap();
        assert_eq!(FrameHeader::read(front), Ok(header));
        let head_end = FRAME_HEADER_BYTES + head.len();
        let head = &golden[FRAME_HEADER_BYTES..head_end];
        assert_eq!(FrameHeader::verify(front, head), Ok(()));
        assert_eq!(&golden[head_end..], payload);
    }
}

#[test]
fn the_bytes_of_version_2_are_what_they_were() {
    let mut examples = Examples {
        golden: golden(),
        missing: Vec::new(),
        seen: Vec::new(),
    };
    frames(&mut examples);
    messages(&mut examples);
    steps(&mut examples);
    let Examples {
        golden,
        missing,
        seen,
    } = examples;
    if !missing.is_empty() && std::env::var_os("UPDATE_GOLDEN").is_some() {
        let mut text =
            "# Version 2 of every frame and message: see tests/golden_frames.rs.\n".to_owned();
        for (name, bytes) in &golden {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            text += &format!("{name}: {hex}\n");
        }
        std::fs::create_dir_all(path().parent().unwrap()).unwrap();
        std::fs::write(path(), text).unwrap();
        return;
    }
    assert!(missing.is_empty(), "no golden bytes for {missing:?}");
    let forgotten: Vec<_> = golden.keys().filter(|name| !seen.contains(name)).collect();
    assert!(forgotten.is_empty(), "nothing checks {forgotten:?}");
}
