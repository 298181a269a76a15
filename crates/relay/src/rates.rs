//! The most that passes, as both sides agree on it.

/// The most that passes, bytes a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rates {
    /// What this side sends.
    pub sends: Option<u64>,
    /// What it takes.
    pub takes: Option<u64>,
}

/// The lower one of two limits, of which each may be none.
pub(crate) fn lower(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
