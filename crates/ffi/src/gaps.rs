//! Gaps, as JSON.

use client::{Gap, PartitionIndex};
use serde_json::{Value, json};

/// A list of what is known of each.
pub fn describe(gaps: &[(PartitionIndex, Gap)]) -> String {
    let described = gaps.iter().map(|(partition, gap)| {
        json!({
            "partition": partition.0,
            "incarnation": gap.incarnation.0,
            "first": gap.first.0,
            "end": gap.end.0,
            "reason": gap.reason.name(),
            "time_ns": gap.time,
        })
    });
    Value::from(described.collect::<Vec<_>>()).to_string()
}
