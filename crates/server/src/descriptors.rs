//! Descriptors of the process: as many as the system allows, and a share of
//! them that connections may not take.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The share of the limit that is kept for the disk is one in so many.
const RESERVED_SHARE: u64 = 8;
/// And it is at least and at most so many: a segment that is rolled needs a few.
const RESERVED_MIN: u64 = 16;
const RESERVED_MAX: u64 = 256;

/// Raises the limit of the process to what it may have. Says in a line what
/// came of it, if there was anything to do.
pub fn raise_limit() -> Option<String> {
    let limit = getrlimit(Resource::Nofile);
    let before = limit.current?;
    if limit.maximum.is_some_and(|maximum| maximum <= before) {
        return None;
    }
    let wanted = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let text = |limit: Option<u64>| limit.map_or("no limit".to_owned(), |it| it.to_string());
    Some(match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => format!(
            "the limit of open files was raised from {before} to {}",
            text(limit.maximum)
        ),
        Err(error) => format!(
            "the limit of open files stays at {before}, for the system refuses to raise it to {}: \
             {error}",
            text(limit.maximum)
        ),
    })
}

/// How many files the process may have open at most, once its limit is raised; `None` is no limit.
pub fn most() -> Option<u64> {
    getrlimit(Resource::Nofile).maximum
}

/// How many descriptors connections may have.
///
/// They are counted, which takes a look at each, only when as many connections
/// have come as could have made a difference.
#[derive(Debug, Clone)]
pub struct Descriptors {
    limit: Option<u64>,
    /// Kept for the disk.
    reserved: u64,
    /// So many connections may come before descriptors are counted again.
    uncounted: u64,
    /// How many count the same descriptors.
    sharers: u64,
}

impl Descriptors {
    /// By the limit that the process has now, which so many parts of it share.
    pub fn of_process(sharers: u64) -> Self {
        let limit = getrlimit(Resource::Nofile).current;
        Self {
            sharers: sharers.max(1),
            ..Self::of_limit(limit)
        }
    }

    fn of_limit(limit: Option<u64>) -> Self {
        let share = limit.map_or(0, |limit| limit / RESERVED_SHARE);
        Self {
            limit,
            reserved: share.clamp(RESERVED_MIN, RESERVED_MAX),
            uncounted: 0,
            sharers: 1,
        }
    }

    /// A connection has come. How many have to go, so that the disk keeps its
    /// share and the next few find space.
    pub fn connection_came(&mut self) -> u64 {
        self.came(open_count)
    }

    /// One could not be taken. How many have to go.
    pub fn none_left(&mut self) -> u64 {
        self.uncounted = 0;
        self.excess(open_count()).max(1)
    }

    fn came(&mut self, open: impl Fn() -> Option<u64>) -> u64 {
        if self.limit.is_none() {
            return 0;
        }
        if let Some(left) = self.uncounted.checked_sub(1) {
            self.uncounted = left;
            return 0;
        }
        let open = open();
        let excess = self.excess(open);
        let free = self
            .connections_end()
            .saturating_sub(open.unwrap_or(u64::MAX));
        // Others open files meanwhile, and a connection over shared memory has several.
        self.uncounted = (free + excess) / (4 * self.sharers);
        excess
    }

    /// By how many these are too many, and a few more; none if they are not.
    fn excess(&self, open: Option<u64>) -> u64 {
        let (end, most) = (self.connections_end(), self.limit.unwrap_or(u64::MAX));
        // What cannot be counted finds no descriptor to be counted with.
        let open = open.unwrap_or(most);
        match open > end {
            // Each lets its part of them go.
            true => (open - end + self.reserved / 2).div_ceil(self.sharers),
            false => 0,
        }
    }

    /// So many may be open before connections have to go.
    fn connections_end(&self) -> u64 {
        self.limit.unwrap_or(u64::MAX).saturating_sub(self.reserved)
    }

    /// The limit, for a line.
    pub fn describe(&self) -> String {
        match self.limit {
            Some(limit) => format!(
                "the limit of open files is {limit}, of which {} are kept for the disk",
                self.reserved.min(limit)
            ),
            None => "there is no limit of open files".to_owned(),
        }
    }
}

/// How many descriptors the process has open, as far as that can be seen.
fn open_count() -> Option<u64> {
    std::fs::read_dir("/proc/self/fd")
        .ok()
        .map(|open| open.count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_limit_is_the_disks() {
        for (limit, reserved) in [(256, 32), (1024, 128), (1 << 20, 256), (64, 16), (8, 16)] {
            assert_eq!(
                Descriptors::of_limit(Some(limit)).reserved,
                reserved,
                "{limit}"
            );
        }
        assert_eq!(
            Descriptors::of_limit(Some(256)).describe(),
            "the limit of open files is 256, of which 32 are kept for the disk"
        );
    }

    #[test]
    fn connections_go_when_the_disks_share_is_touched() {
        let mut descriptors = Descriptors::of_limit(Some(256));
        assert_eq!(descriptors.came(|| Some(224)), 0);
        // One too many, and half a share for those who come next, ...
        assert_eq!(descriptors.came(|| Some(225)), 17);
        // ... who are not counted one by one.
        for _ in 0..4 {
            assert_eq!(descriptors.came(|| unreachable!("counted too soon")), 0);
        }
        assert_eq!(descriptors.came(|| None), 48);
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let mut descriptors = Descriptors::of_limit(None);
        assert_eq!(
            descriptors.came(|| unreachable!("nothing to compare with")),
            0
        );
    }

    #[test]
    fn this_process_has_descriptors() {
        let before = open_count().unwrap();
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        assert!(before >= 3, "{before}");
        drop(file);
    }
}
