//! Faults that are planted to see whether they are found: tests of the tests.

use broker::Fault;

/// A planted fault, and where it sits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// In the node.
    Broker(Fault),
}

impl Planted {
    /// The node's, if it is one of its.
    pub fn broker(self) -> Option<Fault> {
        match self {
            Self::Broker(fault) => Some(fault),
        }
    }
}
