//! What a seed chooses.

use crate::quorum::Settings;
use crate::random::Random;
use std::time::Duration;

/// What may go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mishap {
    /// Voters lose power, some or all at once.
    PowerLoss,
    /// A process dies; what it wrote stays in the page cache.
    Death,
    /// A voter does nothing for a while.
    Pause,
    /// Voters are cut into two groups.
    Split,
    /// One does not hear another.
    OneWay,
    /// One is cut off from all others, often the leader.
    Isolate,
    /// All links are whole again.
    Heal,
    /// A disk has no space for a while.
    Full,
    /// A sync fails.
    SyncFails,
    /// Another is to lead.
    Transfer,
    /// A member comes, goes, or loses its directory and is replaced.
    Members,
}

const MISHAPS: [Mishap; 11] = [
    Mishap::PowerLoss,
    Mishap::Death,
    Mishap::Pause,
    Mishap::Split,
    Mishap::OneWay,
    Mishap::Isolate,
    Mishap::Heal,
    Mishap::Full,
    Mishap::SyncFails,
    Mishap::Transfer,
    Mishap::Members,
];

/// What a seed chooses. Times are microseconds.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) voters: u64,
    pub(super) settings: Settings,
    /// How long things go wrong.
    pub(super) chaos_us: u64,
    pub(super) mishaps: Vec<Mishap>,
    /// Time between mishaps, at most.
    pub(super) mishap_us: u64,
    pub(super) clients: u64,
    /// Time between a client's requests, at most.
    pub(super) request_us: u64,
    /// How long an operation on a disk takes.
    pub(super) disk_us: (u64, u64),
    /// How long a message takes, usually.
    pub(super) link_us: (u64, u64),
    /// One message in so many is late, lost, doubled.
    pub(super) late: u64,
    pub(super) lost: u64,
    pub(super) doubled: u64,
    /// Clocks run at 900 to 1100 thousandths.
    pub(super) clocks_differ: bool,
    /// Disks that lose what they said was synced.
    pub(super) disks_lie: bool,
}

impl Plan {
    pub(super) fn of(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let random = &mut random;
        let mishaps: Vec<_> = MISHAPS.into_iter().filter(|_| !random.one_in(3)).collect();
        let small = random.below(4) > 0;
        let settings = Settings {
            snapshot_entries: if small { random.within(5, 60) } else { 10_000 },
            snapshot_bytes: if small { 1 << 20 } else { 8 << 20 },
            trailing_entries: random.below(20),
            requests_max: if random.one_in(8) { 64 } else { 65_536 },
            retry_deadline: Duration::from_secs(random.within(10, 30)),
            chunk_bytes: random.within(200, 4000) as usize,
            ..Settings::default()
        };
        let slow = random.one_in(4);
        Self {
            seed,
            voters: if random.one_in(3) { 3 } else { 5 },
            settings,
            chaos_us: random.within(15, 40) * 1_000_000,
            mishaps,
            mishap_us: random.within(300, 4000) * 1000,
            clients: random.within(1, 4),
            request_us: random.within(20, 400) * 1000,
            disk_us: if slow { (3000, 60_000) } else { (500, 12_000) },
            link_us: (100, random.within(300, 20_000)),
            late: random.pick(&[0, 20, 200]).unwrap_or(0),
            lost: random.pick(&[0, 10, 50, 500]).unwrap_or(0),
            doubled: random.pick(&[0, 20, 200]).unwrap_or(0),
            clocks_differ: !random.one_in(4),
            disks_lie: false,
        }
    }

    /// Voters to which nothing happens but what a test does.
    pub(super) fn calm(seed: u64, voters: u64) -> Self {
        Self {
            voters,
            settings: Settings::default(),
            chaos_us: 0,
            mishaps: Vec::new(),
            clients: 0,
            disk_us: (1000, 5000),
            link_us: (100, 500),
            late: 0,
            lost: 0,
            doubled: 0,
            ..Self::of(seed)
        }
    }
}
