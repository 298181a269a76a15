//! Who waits until readers have released the steps of a run: writers that leave, of a stream that
//! nothing else keeps.

use super::groups::{Backlog, Groups};
use super::records::Records;
use crate::answer::Answer;
use crate::ctx::Ctx;
use crate::ids::RequestId;
use std::time::Duration;
use wire::message::AwaitReaders;
use wire::step::RecordKind;

/// So many groups that are behind are named.
const NAMED_MAX: usize = 4;

/// See the module.
#[derive(Default)]
pub(super) struct Releases {
    waiting: Vec<(RequestId, AwaitReaders)>,
}

impl Releases {
    /// A rank waits. It is answered with the next [`Releases::answer`] at the earliest.
    pub fn ask(&mut self, caller: RequestId, wait: AwaitReaders) {
        self.waiting.push((caller, wait));
    }

    /// Answers those for whom nobody is behind any more.
    pub fn answer(&mut self, groups: &Groups, records: &Records, ctx: &mut Ctx) {
        let groups = (groups, ctx.now.monotonic);
        let is_over = |(_, wait): &mut (RequestId, AwaitReaders)| {
            behind(wait, groups, records).next().is_none()
        };
        for (caller, _) in self.waiting.extract_if(.., is_over) {
            ctx.answer(caller, Answer::Done);
        }
    }

    /// Who is behind, for people; `None` if the caller does not wait here.
    pub fn why(
        &self,
        caller: RequestId,
        groups: (&Groups, Duration),
        records: &Records,
    ) -> Option<String> {
        let (_, wait) = self.waiting.iter().find(|(one, _)| *one == caller)?;
        let mut behind = behind(wait, groups, records);
        let named: Vec<String> = behind.by_ref().take(NAMED_MAX).collect();
        let more = match behind.count() {
            0 => String::new(),
            count => format!(", and {count} more"),
        };
        Some(format!("{}{more}", named.join(", ")))
    }

    /// A caller is gone, or waits no more.
    pub fn forget(&mut self, caller: RequestId) {
        self.waiting.retain(|(one, _)| *one != caller);
    }

    /// Everybody who waits.
    pub fn take_callers(&mut self) -> Vec<RequestId> {
        let waiting = self.waiting.drain(..);
        waiting.map(|(caller, _)| caller).collect()
    }
}

/// The readers with all of their ranks that have not released the steps before one of a run: what
/// there is to say of each.
fn behind<'a>(
    wait: &AwaitReaders,
    (groups, now): (&'a Groups, Duration),
    records: &'a Records,
) -> impl Iterator<Item = String> + 'a {
    let before = (wait.run, wait.step);
    let entries = &records.entries;
    let first = entries.partition_point(|entry| (entry.run, entry.step) < before);
    let others = entries.range(first..);
    let others = others
        .filter(|entry| entry.kind == RecordKind::Step)
        .count() as u64;
    let backlogs = groups.backlogs(records, now).into_iter();
    let behind = backlogs.filter(move |backlog| backlog.steps > others);
    behind.map(|backlog| {
        let Backlog { reader, .. } = backlog;
        let place = backlog.place(records);
        format!("readers {reader:?} have not released {place}")
    })
}
