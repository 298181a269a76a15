//! What a queue lost before it was settled, until its members are notified.

use std::time::Duration;
use wire::PartitionIndex;
use wire::record::Gap;

/// Gaps that are kept while nobody is there; of more, the latest. All are recorded for the topic.
const GAPS_MAX: usize = 256;
/// Members are notified once in this time: where retention drops something with every batch,
/// what it dropped meanwhile is one gap.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct UnreportedGaps {
    gaps: Vec<(PartitionIndex, Gap)>,
    /// Not before this time again.
    report_at: Duration,
}

impl UnreportedGaps {
    /// Another one; joined with the last one of its partition if it goes on there.
    pub fn add(&mut self, partition: PartitionIndex, gap: Gap) {
        let mut gaps = self.gaps.iter_mut().rev();
        let last = gaps.find(|(of, _)| *of == partition);
        if last.is_some_and(|(_, last)| last.join(&gap)) {
            return;
        }
        if self.gaps.len() == GAPS_MAX {
            self.gaps.remove(0);
        }
        self.gaps.push((partition, gap));
    }

    /// When members are to be notified, if there is something to say.
    pub fn due(&self) -> Option<Duration> {
        (!self.gaps.is_empty()).then_some(self.report_at)
    }

    /// What they are notified of now.
    pub fn take(&mut self, now: Duration) -> Vec<(PartitionIndex, Gap)> {
        self.report_at = now + REPORT_EVERY;
        std::mem::take(&mut self.gaps)
    }
}
