//! What a queue lost before it was settled, until its members are told.

use wire::PartitionIndex;
use wire::record::Gap;

/// Gaps that are kept while nobody is there; of more, the latest. All are recorded for the topic.
const GAPS_MAX: usize = 256;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Untold {
    gaps: Vec<(PartitionIndex, Gap)>,
}

impl Untold {
    /// Another one; joined with the last one of its partition if it goes on there.
    pub fn add(&mut self, partition: PartitionIndex, gap: Gap) {
        let mut gaps = self.gaps.iter_mut().rev();
        if let Some((_, last)) = gaps.find(|(of, _)| *of == partition)
            && (last.incarnation, last.reason, last.end) == (gap.incarnation, gap.reason, gap.first)
        {
            last.end = gap.end;
            last.time = gap.time;
            return;
        }
        if self.gaps.len() == GAPS_MAX {
            self.gaps.remove(0);
        }
        self.gaps.push((partition, gap));
    }

    pub fn is_empty(&self) -> bool {
        self.gaps.is_empty()
    }

    pub fn take(&mut self) -> Vec<(PartitionIndex, Gap)> {
        std::mem::take(&mut self.gaps)
    }
}
