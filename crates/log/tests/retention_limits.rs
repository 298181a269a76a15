//! A limit of retention is kept to within one segment, also in files, also
//! when nothing is appended any more, and when it is changed.

use log::testing::{Driven, EventSpec, Fault, FaultyDisk, open_partition, origin};
use log::*;
use std::path::Path;
use std::sync::Arc;
use wire::*;

const SECOND: u64 = 1_000_000_000;

struct Ground {
    disk: Arc<FaultyDisk>,
    driven: Driven,
    now: u64,
    next: u64,
}

impl Ground {
    fn new(retention: Retention, durability: Durability) -> Self {
        let disk = Arc::new(FaultyDisk::new());
        // The configuration is the default: segments of 256 MiB.
        let mut open = open_partition(durability, "", true);
        open.retention = retention;
        let (storage, _) = DiskKind::seeded(disk.clone(), 5).open(open).unwrap();
        let driven = Driven::new(storage, Some(disk.clone()));
        Self {
            disk,
            driven,
            now: SECOND,
            next: 0,
        }
    }

    /// Appends `count` events of `bytes` bytes, `gap_ns` apart.
    fn fill(&mut self, count: u64, bytes: usize, external: bool, gap_ns: u64) {
        for _ in 0..count {
            let event = EventSpec {
                metadata: b"m".to_vec(),
                data: vec![self.next as u8; bytes],
                external,
            };
            self.now += gap_ns;
            let appended =
                self.driven
                    .append(origin(self.next), &[event], Durability::Synced, self.now);
            assert_eq!(appended, Ok(Offset(self.next)));
            self.next += 1;
            self.pass(0);
        }
    }

    /// Lets time pass, tick by tick, as whoever drives the storage does.
    fn pass(&mut self, time: u64) {
        let until = self.now + time;
        while let Some(at) = self.driven.storage.next_tick().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.driven.storage.tick(self.now);
            self.driven.settle();
            let again = self.driven.storage.next_tick();
            assert!(
                again.is_none_or(|next| next > at),
                "the tick at {at} was of no use"
            );
        }
        self.now = until;
    }

    /// The tick that follows the last append within a second.
    fn tick(&mut self) {
        self.pass(SECOND);
        self.driven.storage.tick(self.now);
        self.pass(2 * SECOND);
        self.driven.settle();
    }

    fn disk_bytes(&self) -> u64 {
        let paths = self.disk.paths();
        let lengths = paths.iter().map(|path: &std::path::PathBuf| {
            let content = self.disk.content(Path::new(path));
            content.map_or(0, |content| content.len() as u64)
        });
        lengths.sum()
    }

    fn kept(&self) -> u64 {
        let state = self.driven.storage.state();
        state.end.0 - state.first.0
    }

    fn set(&mut self, retention: Retention) {
        let storage = &mut self.driven.storage;
        storage.set_retention(retention, Offset(u64::MAX));
        self.driven.settle();
    }

    /// Appends an event of 2 MB. Whether it is refused.
    fn refuses(&mut self, external: bool) -> bool {
        let event = EventSpec {
            metadata: b"m".to_vec(),
            data: vec![0; 2_000_000],
            external,
        };
        let next = self.next;
        let durability = Durability::Synced;
        let _ = self
            .driven
            .append(origin(next), &[event], durability, self.now);
        self.driven.storage.state().end == Offset(next)
    }

    fn assert_readable(&mut self) {
        let state = self.driven.storage.state();
        let contents = self.driven.read_all(state.end, 1 << 20).unwrap();
        assert!(contents.damaged.is_empty(), "{:?}", contents.damaged);
        assert_eq!(contents.events.len() as u64, self.kept());
    }
}

fn bytes(most: u64) -> Retention {
    Retention {
        bytes: Some(most),
        ..Retention::default()
    }
}

#[test]
fn files_take_no_more_than_the_limit_and_one_segment() {
    const LIMIT: u64 = 2_000_000;
    for (size, external) in [
        (1_000, false),
        (20_000, false),
        (20_000, true),
        (300_000, true),
    ] {
        for durability in [Durability::Written, Durability::Synced] {
            let mut ground = Ground::new(bytes(LIMIT), durability);
            ground.fill(10 * LIMIT / size as u64, size, external, 1_000_000);
            ground.tick();
            // One batch may be larger than a segment.
            let segment = (LIMIT / 8).max(size as u64 + 4096);
            let most = LIMIT + segment;
            let found = ground.disk_bytes();
            assert!(
                found <= most,
                "{found} bytes in files of at most {most}: {size} {external}"
            );
            let state = ground.driven.storage.state();
            assert!(state.bytes >= LIMIT / 2, "{} bytes are kept", state.bytes);
            ground.assert_readable();
        }
    }
}

/// What lies in one segment, as all does without a limit, stays until what follows it is
/// as much as the new limit keeps.
#[test]
fn a_limit_that_is_lowered_or_set_later_takes_no_more_than_it_says() {
    for external in [false, true] {
        let mut ground = Ground::new(Retention::default(), Durability::Synced);
        ground.fill(400, 10_000, external, 1_000_000);
        ground.set(bytes(1_000_000));
        ground.tick();
        assert_eq!(ground.kept(), 400, "nothing follows the only segment");
        ground.assert_readable();
        ground.fill(50, 10_000, external, 1_000_000);
        ground.tick();
        assert_eq!(ground.kept(), 450, "less than the limit follows it");
        ground.fill(60, 10_000, external, 1_000_000);
        ground.tick();
        assert!(ground.kept() <= 120, "{} are kept", ground.kept());
        for limit in [300_000, 100_000, 20_000] {
            ground.fill(200, 10_000, external, 1_000_000);
            ground.tick();
            let before = ground.driven.storage.state().bytes;
            ground.set(bytes(limit));
            ground.tick();
            let state = ground.driven.storage.state();
            // Of segments that are no longer than such a limit makes them half is left.
            let least = (limit / 2).min(before);
            assert!(state.bytes >= least, "{limit}: {state:?}");
            ground.fill(200, 10_000, external, 1_000_000);
            ground.tick();
            let (found, state) = (ground.disk_bytes(), ground.driven.storage.state());
            assert!(
                found <= limit + (192 << 10),
                "{found} bytes of {limit} after events have followed"
            );
            assert!(state.bytes >= limit / 2, "{limit}: {state:?}");
            ground.assert_readable();
        }
    }
}

#[test]
fn events_that_are_too_old_leave_although_nothing_is_appended() {
    let age = Retention {
        age_ns: Some(80 * SECOND),
        ..Retention::default()
    };
    for durability in [Durability::Written, Durability::Synced] {
        let mut ground = Ground::new(age, durability);
        ground.fill(100, 100, false, SECOND / 10);
        ground.pass(60 * SECOND);
        assert_eq!(ground.kept(), 100, "nothing is older than the limit");
        // The limit and an eighth.
        ground.pass(31 * SECOND);
        assert_eq!(ground.kept(), 0, "{durability}: all are older");
        ground.fill(3, 100, false, SECOND);
        assert_eq!(ground.kept(), 3);
        ground.assert_readable();
        // Nor are there files left of what has gone.
        ground.pass(100 * SECOND);
        assert_eq!(ground.kept(), 0);
        let found = ground.disk_bytes();
        assert!(found < 600_000, "{found} bytes are left of nothing");
    }
}

#[test]
fn a_limit_by_count_acts_on_what_is_appended_to() {
    let count = Retention {
        count: Some(50),
        ..Retention::default()
    };
    let mut ground = Ground::new(count, Durability::Synced);
    ground.fill(1000, 100, false, 1_000_000);
    ground.tick();
    let kept = ground.kept();
    assert!(
        (50..=50 + 64).contains(&kept),
        "{kept} events are kept of 50"
    );
    ground.assert_readable();
}

#[test]
fn a_backlog_that_is_spared_does_not_end_in_a_thousand_segments() {
    let mut ground = Ground::new(bytes(100_000), Durability::Synced);
    let storage = &mut ground.driven.storage;
    storage.set_retention(bytes(100_000), Offset(0));
    // 1000 times a segment's least.
    ground.fill(4000, 16_000, false, 1_000_000);
    ground.tick();
    assert_eq!(ground.kept(), 4000, "all is spared");
    let logs = ground.disk.paths();
    let is_log = |path: &&std::path::PathBuf| path.extension().is_some_and(|name| name == "log");
    let count = logs.iter().filter(is_log).count();
    // Of the least length there were 1333.
    assert!(count < 800, "{count} segments");
}

/// A partition whose disk has no space left, because of an event that it refused.
fn full_disk(retention: Retention, external: bool) -> Ground {
    let mut ground = Ground::new(Retention::default(), Durability::Synced);
    ground.fill(60, 100_000, external, SECOND);
    ground.set(retention);
    ground.disk.set_space(Some(ground.disk_bytes() + 50_000));
    assert!(ground.refuses(external), "external: {external}");
    let events = ground.driven.take_events();
    let full = |event: &StorageEvent| matches!(event, StorageEvent::Full(_));
    assert!(events.iter().any(full), "{events:?}");
    ground
}

/// Whether somebody has heard that there is space again.
fn has_space(ground: &mut Ground) -> bool {
    let events = ground.driven.take_events();
    let has_space = |event: &StorageEvent| matches!(event, StorageEvent::HasSpace);
    events.iter().any(has_space)
}

/// Both files of a partition, with all that it took, fill the disk: what a lower limit
/// drops is there for the next events, in the one segment that there was, too.
#[test]
fn a_limit_that_is_lowered_on_a_full_disk_makes_room() {
    // At first there may be no byte for the next segment, either.
    for (external, late) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut ground = full_disk(Retention::default(), external);
        // Nobody appends: it looks for space by itself, and finds none.
        ground.pass(10 * SECOND);
        assert!(!has_space(&mut ground));
        if late {
            ground.disk.set_space(Some(ground.disk_bytes()));
        }
        ground.set(bytes(1_000_000));
        ground.pass(10 * SECOND);
        if late {
            assert!(!has_space(&mut ground));
            ground.disk.set_space(Some(ground.disk_bytes() + 50_000));
            ground.pass(10 * SECOND);
        }
        assert!(has_space(&mut ground), "external: {external}, late: {late}");
        assert!(ground.kept() <= 12, "{} are kept", ground.kept());
        ground.assert_readable();
        assert!(!ground.refuses(external), "external: {external}");
    }
}

/// What a lower limit left, because nothing followed it, goes when there is no space.
#[test]
fn what_exceeds_a_limit_goes_when_the_disk_is_full() {
    for external in [false, true] {
        let mut ground = full_disk(bytes(1_000_000), external);
        ground.pass(10 * SECOND);
        assert!(has_space(&mut ground), "external: {external}");
        assert!(ground.kept() <= 12, "{} are kept", ground.kept());
        ground.assert_readable();
        assert!(!ground.refuses(external), "external: {external}");
    }
}

/// Whatever write finds no space while a lower limit takes effect on a full disk, the
/// files of what it drops go.
#[test]
fn a_lower_limit_takes_effect_whatever_write_finds_no_space() {
    let lowered = |full: Option<u64>| {
        let mut ground = full_disk(Retention::default(), false);
        let before = ground.disk.operation_count();
        if let Some(full) = full {
            ground.disk.fail_at(before + full, Fault::Full(0));
        }
        ground.set(bytes(1_000_000));
        ground.pass(10 * SECOND);
        let found = ground.disk_bytes();
        // With what the refused event needs, which is allocated to see that it is there.
        assert!(
            found <= 1_200_000 + 2_000_000,
            "{found} bytes, {full:?} found no space"
        );
        ground.assert_readable();
        ground.disk.trace().split_off(before as usize)
    };
    let writes: Vec<u64> = (0..)
        .zip(lowered(None))
        .filter(|(_, traced)| traced.what == "write")
        .map(|(number, _)| number)
        .collect();
    // The start of the next segment, an index, a checkpoint.
    assert!(writes.len() >= 3, "{writes:?}");
    for write in writes {
        lowered(Some(write));
    }
}
