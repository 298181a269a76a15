//! What a requester can choose.

use crate::options::{DataMode, ProducerOptions};

/// What a requester can choose.
#[derive(Debug, Clone, Default)]
pub struct RequesterOptions {
    /// How requests are pushed.
    pub producer: ProducerOptions,
    /// Which data of replies is wanted. Default all.
    pub data: DataMode,
}
