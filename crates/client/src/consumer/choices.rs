//! What a consumer's data selector chose, for those who wonder why there is no data.

use crate::event::EventInfo;
use crate::options::DataMode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers that only explain: nothing is ordered by them.
#[derive(Debug, Default)]
pub(crate) struct Choices {
    /// Events whose data a selector was asked about.
    asked: AtomicU64,
    /// Those of them of which it chose nothing.
    nothing: AtomicU64,
}

impl Choices {
    /// `mode`, whose selector, if it has one, is counted here.
    pub fn counted(self: &Arc<Self>, mode: DataMode) -> DataMode {
        let DataMode::Select(select) = mode else {
            return mode;
        };
        let choices = self.clone();
        DataMode::Select(Arc::new(move |event: &EventInfo<'_>| {
            let view = select(event)?;
            choices.asked.fetch_add(1, Ordering::Relaxed);
            if view.is_empty() {
                choices.nothing.fetch_add(1, Ordering::Relaxed);
            }
            Ok(view)
        }))
    }

    /// How many events a selector was asked about, if it chose nothing of any.
    pub fn all_nothing(&self) -> Option<u64> {
        let asked = self.asked.load(Ordering::Relaxed);
        let nothing = self.nothing.load(Ordering::Relaxed);
        (asked > 0 && asked == nothing).then_some(asked)
    }
}
