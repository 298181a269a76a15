//! Who writes a stream: the run that is open, and who waits for it to end.

use super::core::Core;
use super::core::RANKS_MAX;
use super::event::Event;
use super::groups::Groups;
use super::held::KeptBy;
use super::intake::{FoundParts, Intakes};
use super::lent::Lent;
use super::pins;
use super::ranks::Presence;
use super::records::{self, NewRecord, Recalled, Waiter};
use super::run::{Admission, CompleteStep, OpenRun, RunOptions, STEPS_AHEAD_MAX};
use crate::answer::Answer;
use crate::faults::Fault;
use crate::ids::RequestId;
use crate::refusal::{Refused, refuse};
use bytes::Bytes;
use std::time::Duration;
use wire::message::{
    AdmitStep, AttendRun, AwaitStep, CloseRun, Distribution, HoldParts, OpenRun as OpenRequest,
    PartsWanted, RunEnded, RunOpened, StepAdmitted, WhenFull,
};
use wire::step::{
    Attribute, CheckedPart, PartData, PartPlace, RecordKind, STEP_VERSION, StepTable,
};
use wire::{
    ErrorCode, ErrorReply, Incarnation, Offset, PartitionIndex, ProducerEpoch, ProducerId, Rank,
    Run, Step, TopicId,
};

/// See the module.
#[derive(Default)]
pub(super) struct Writers {
    run: Option<OpenRun>,
    /// The last run that was opened.
    last_run: Run,
    /// Ranks that have closed, of which no record says so yet.
    closing: Vec<Closing>,
    /// Who waits for the open run to be closed.
    closers: Vec<RequestId>,
    /// Who waits for it to end, to open another one.
    openings: Vec<(RequestId, OpenRequest)>,
}

/// A rank that closes its run.
struct Closing {
    caller: RequestId,
    rank: Rank,
    steps: u64,
}

impl Writers {
    /// The run that is open.
    pub fn open(&self) -> Option<Run> {
        self.run.as_ref().map(|run| run.run)
    }

    /// A rank opens a run, or joins the one that is open.
    pub fn open_run(
        &mut self,
        caller: RequestId,
        open: OpenRequest,
        (core, intakes): (&mut Core, &Intakes),
        lent: &mut Lent<'_>,
    ) -> Result<(), Refused> {
        if lent.is_draining {
            return Err(crate::refusal::draining());
        }
        if open.ranks == 0 || open.ranks > RANKS_MAX || open.rank.0 >= open.ranks {
            return Err(refuse(
                ErrorCode::InvalidEvent,
                format!(
                    "rank {} of {}; a program has 1 to {RANKS_MAX} ranks",
                    open.rank, open.ranks
                ),
            ));
        }
        check_producer(
            (core, &open.writer),
            open.rank,
            (open.producer, open.epoch),
            lent,
        )?;
        let now = lent.ctx.now.monotonic;
        if let Some(run) = &mut self.run {
            let is_same = run.writer == open.writer && run.ranks.len() == open.ranks as usize;
            let has_closed = is_same && run.ranks.has_closed(open.rank);
            if has_closed || run.ranks.are_closed() {
                // Another run: it begins when this one has ended.
                self.openings.push((caller, open));
                return Ok(());
            }
            if !is_same && !run.ranks.are_deserted() {
                return Err(refuse(
                    ErrorCode::InvalidConsumer,
                    format!(
                        "run {} of {} is open: {:?} writes it with {} ranks, {:?} with {} is to wait until it has ended",
                        run.run,
                        core.name,
                        run.writer,
                        run.ranks.len(),
                        open.writer,
                        open.ranks
                    ),
                ));
            }
            if !is_same {
                let reason = format!(
                    "{:?} opened another run when nobody wrote this one",
                    open.writer
                );
                self.break_run(&reason, (core, intakes), lent);
            }
        }
        if self.run.is_none() {
            if !core.records.has_room() {
                let why = format!("{}: {}", core.name, core.records.why_full());
                return Err(ErrorReply::retryable(ErrorCode::LimitExceeded, 1000, why));
            }
            self.begin_run(&open, (core, intakes), now);
        }
        let before = Run(self.last_run.0 - 1);
        let Some(run) = &mut self.run else {
            return Ok(());
        };
        run.set_options(RunOptions::of(&open));
        core.held.renewed(open.producer, open.epoch);
        if let Some((Presence::Present(other), epoch)) = run.ranks.get(open.rank)
            && epoch != open.epoch
        {
            let reason = format!(
                "rank {} was opened again by another life of {:?}",
                open.rank, open.writer
            );
            run.ranks.set_presence(open.rank, Presence::Away(now));
            lent.ctx
                .answer(other, Answer::RunEnded(RunEnded { reason }));
        }
        let epoch = match lent.ctx.planted(Fault::FencedPart) {
            true => ProducerEpoch(0),
            false => open.epoch,
        };
        run.reopened(open.rank, epoch, now);
        let answer = Answer::RunOpened(RunOpened {
            run: run.run,
            next: run.next,
            before,
            attributes: run.attributes.values().cloned().collect(),
        });
        let kind = (run.run, RecordKind::Opened);
        if let Some(answer) = core.records.wait_for_kind(kind, caller, answer) {
            lent.ctx.answer(caller, answer);
        }
        Ok(())
    }

    /// A new run: its record is the next one.
    fn begin_run(
        &mut self,
        open: &OpenRequest,
        (core, intakes): (&mut Core, &Intakes),
        now: Duration,
    ) {
        self.last_run = Run(self.last_run.0 + 1);
        let (at, options) = ((self.last_run, Step(0)), RunOptions::of(open));
        let mut run = OpenRun::new(at, open.writer.clone(), open.ranks, options, now);
        let record = record(intakes, RecordKind::Opened, &mut run, String::new());
        core.records.push(record, &run.attributes);
        self.run = Some(run);
    }

    /// A rank says that it is there.
    pub fn attend_run(
        &mut self,
        caller: RequestId,
        attend: &AttendRun,
        core: &mut Core,
        lent: &mut Lent<'_>,
    ) -> Result<(), Refused> {
        let Some(run) = self.run.as_mut().filter(|run| run.run == attend.run) else {
            let reason = end_of(core, attend.run);
            lent.ctx
                .answer(caller, Answer::RunEnded(RunEnded { reason }));
            return Ok(());
        };
        let (writer, rank) = (run.writer.clone(), attend.rank);
        check_producer((core, &writer), rank, (attend.producer, attend.epoch), lent)?;
        let Some(run) = &mut self.run else {
            return Ok(());
        };
        let Some((before, known)) = run.ranks.get(rank) else {
            return Err(refuse(
                ErrorCode::InvalidEvent,
                format!("there is no rank {rank}"),
            ));
        };
        if before == Presence::Never && known == ProducerEpoch(0) {
            // It was in a run of this number that was lost, with where the rank was in it.
            let reason = format!(
                "run {} of {} was lost with its records, and begun anew without rank {rank}",
                run.run, core.name
            );
            lent.ctx
                .answer(caller, Answer::RunEnded(RunEnded { reason }));
            return Ok(());
        }
        run.ranks.set_epoch(rank, attend.epoch);
        run.ranks.set_presence(rank, Presence::Present(caller));
        if let Presence::Present(other) = before
            && other != caller
        {
            let reason = format!("rank {rank} attends elsewhere");
            lent.ctx
                .answer(other, Answer::RunEnded(RunEnded { reason }));
        }
        Ok(())
    }

    /// A rank asks whether it may write a step.
    pub fn admit(
        &mut self,
        caller: RequestId,
        admit: &AdmitStep,
        core: &mut Core,
        lent: &mut Lent<'_>,
    ) -> Result<(), Refused> {
        let AdmitStep {
            run, step, pinned, ..
        } = *admit;
        if self.run.as_ref().is_none_or(|open| open.run != run) {
            return Err(ended(core, run));
        }
        let Some(open) = &mut self.run else {
            return Ok(());
        };
        if step < open.next {
            let discarded = false;
            lent.ctx
                .answer(caller, Answer::StepAdmitted(StepAdmitted { discarded }));
            return Ok(());
        }
        if step.0 - open.next.0 > STEPS_AHEAD_MAX {
            return Err(refuse(
                ErrorCode::InvalidEvent,
                format!(
                    "step {step} is far ahead: step {} is the next of run {run}",
                    open.next
                ),
            ));
        }
        // The first of its ranks asks for all of them.
        if pinned && !open.pinned.contains(&step) {
            pins::check_room(core, open.pinned.len(), lent)?;
            open.pinned.insert(step);
        }
        open.admissions.push(Admission { caller, step });
        Ok(())
    }

    /// A step is waited for.
    pub fn await_step(
        &mut self,
        caller: RequestId,
        wait: &AwaitStep,
        core: &mut Core,
        lent: &mut Lent<'_>,
    ) -> Result<(), Refused> {
        let AwaitStep { run, step } = *wait;
        if let Some(entry) = core.records.of_step(run, step) {
            let incarnation = lent.incarnation(core.topic);
            lent.ctx
                .answer(caller, records::decided(entry, incarnation));
            return Ok(());
        }
        if core.records.wait_for(run, step, caller) {
            return Ok(());
        }
        match &mut self.run {
            Some(open) if open.run == run && step < open.next => Err(refuse(
                ErrorCode::OffsetOutOfRange,
                format!("step {step} of run {run} has left: retention took its record"),
            )),
            Some(open) if open.run == run => {
                open.awaited.push((caller, step));
                Ok(())
            }
            _ => Err(ended(core, run)),
        }
    }

    /// A rank has written its last step.
    pub fn close_run(
        &mut self,
        caller: RequestId,
        close: &CloseRun,
        core: &mut Core,
        lent: &mut Lent<'_>,
    ) -> Result<(), Refused> {
        let is_open = self.run.as_ref().is_some_and(|run| run.run == close.run);
        if !is_open {
            // It may be asked again, when its answer was lost.
            if !end_of(core, close.run).is_empty() {
                return Err(ended(core, close.run));
            }
            let kind = (close.run, RecordKind::Closed);
            if let Some(answer) = core.records.wait_for_kind(kind, caller, Answer::Done) {
                lent.ctx.answer(caller, answer);
            }
            return Ok(());
        }
        let writer = self
            .run
            .as_ref()
            .map_or_else(String::new, |run| run.writer.clone());
        check_producer(
            (core, &writer),
            close.rank,
            (close.producer, close.epoch),
            lent,
        )?;
        let Some(run) = &mut self.run else {
            return Ok(());
        };
        if run.ranks.get(close.rank).is_none() {
            return Err(refuse(
                ErrorCode::InvalidEvent,
                format!("there is no rank {}", close.rank),
            ));
        }
        run.close(close.rank, close.steps, lent.ctx.now.monotonic);
        match run.ranks.are_closed() {
            true => self.closers.push(caller),
            false if lent.ctx.planted(Fault::CloseUnrecorded) => {
                lent.ctx.answer(caller, Answer::Done);
            }
            false => self.closing.push(Closing {
                caller,
                rank: close.rank,
                steps: close.steps,
            }),
        }
        Ok(())
    }

    /// A rank that keeps its parts asks for what is wanted of it.
    pub fn hold_parts(
        &mut self,
        caller: RequestId,
        hold: HoldParts,
        core: &mut Core,
        lent: &mut Lent<'_>,
    ) -> Result<(), Refused> {
        if !core.held.is_holder(&hold) {
            let run = self.run.as_ref().filter(|run| run.run == hold.run);
            let Some(run) = run else {
                return Err(ended(core, hold.run));
            };
            let who = (hold.producer, hold.epoch);
            check_producer((core, &run.writer), hold.rank, who, lent)?;
        }
        for answered in core.held.attend(caller, hold) {
            let nothing = PartsWanted {
                steps: Vec::new(),
                released_before: Step(0),
                left_before: Step(0),
            };
            lent.ctx.answer(answered, Answer::PartsWanted(nothing));
        }
        Ok(())
    }

    /// Says in a record which ranks have closed, so that a start knows it: those that close while
    /// one is on its way are in the next one.
    pub fn say_closing(&mut self, (core, intakes): (&mut Core, &Intakes)) {
        let Some(run) = &mut self.run else {
            return;
        };
        if self.closing.is_empty() || core.records.is_closing() {
            return;
        }
        let closing = std::mem::take(&mut self.closing);
        let closed = closing.iter().map(|one| (one.rank, one.steps)).collect();
        let waiters = closing.iter();
        let waiters = waiters.map(|one| Waiter::Of(one.caller, Answer::Done));
        let record = NewRecord {
            closed,
            waiters: waiters.collect(),
            ..record(intakes, RecordKind::Closing, run, String::new())
        };
        core.records.push(record, &run.attributes);
    }

    /// Parts were found, or it was found that some are lost.
    pub fn take_parts(
        &mut self,
        found: Vec<FoundParts>,
        (core, intakes): (&mut Core, &Intakes),
        lent: &mut Lent<'_>,
    ) {
        for found in found {
            match found {
                FoundParts::Events(index, incarnation, events) => {
                    for event in events {
                        let taken = self.take_part((index, incarnation), event, core, lent);
                        if let Err(reason) = taken {
                            self.break_run(&reason, (core, intakes), lent);
                        }
                    }
                }
                FoundParts::Lost(reason) => self.break_run(&reason, (core, intakes), lent),
            }
        }
    }

    fn take_part(
        &mut self,
        (index, incarnation): (PartitionIndex, Incarnation),
        event: Event,
        core: &mut Core,
        lent: &mut Lent<'_>,
    ) -> Result<(), String> {
        let part = match CheckedPart::read(&event.metadata, event.data_bytes) {
            Ok(part) => part,
            Err(error) => {
                lent.ctx.report(format!(
                    "{}/{index}: what is at offset {} is no part of a step: {error}",
                    core.name, event.offset
                ));
                return Ok(());
            }
        };
        if part.head.data == PartData::Sent {
            let of = (part.head.run, part.head.step, part.head.rank);
            let by = (event.producer, event.epoch);
            core.held.sent(of, by, (event.offset, event.data_bytes));
            return Ok(());
        }
        let Some(run) = self.run.as_mut().filter(|run| run.run == part.head.run) else {
            return Ok(());
        };
        let name = producer_name(&run.writer, part.head.rank);
        let known = lent.commands.producer(core.topic, &name);
        let is_careless = lent.ctx.planted(Fault::FencedPart);
        // A part of a life that has ended counts for nothing, unless its step is complete, or the
        // rank has closed the run: its next life waits for the next one.
        let counts = is_careless || run.ranks.has_closed(part.head.rank);
        let is_of_rank = known.is_some_and(|known| {
            known.producer == event.producer && (known.epoch == event.epoch || counts)
        });
        if !is_of_rank {
            return Ok(());
        }
        let place = PartPlace {
            partition: index,
            incarnation,
            offset: event.offset,
            bytes: part.head.data.bytes(event.data_bytes),
        };
        let epoch = if is_careless {
            ProducerEpoch(0)
        } else {
            event.epoch
        };
        let bytes = event.metadata.len() as u64;
        run.part(part, place, (epoch, bytes), lent.ctx.now.monotonic)
    }

    /// Steps that are complete get their records, in order.
    pub fn commit(&mut self, (core, intakes): (&mut Core, &Intakes), lent: &mut Lent<'_>) {
        let short = usize::from(lent.ctx.planted(Fault::StepsShort));
        let now = lent.ctx.now.monotonic;
        let next = |run: &mut OpenRun| run.take_complete(short, now);
        // Where records can't be written, parts wait: they count in what is held of the run.
        while core.records.has_room()
            && let Some(complete) = self.run.as_mut().and_then(next)
        {
            self.commit_step(complete, (core, intakes), lent);
        }
    }

    fn commit_step(
        &mut self,
        complete: CompleteStep,
        (core, intakes): (&mut Core, &Intakes),
        lent: &mut Lent<'_>,
    ) {
        let Some(run) = &mut self.run else {
            return;
        };
        let CompleteStep {
            step,
            parts,
            places,
        } = complete;
        let is_discarded = parts.iter().any(|part| part.head.data == PartData::Dropped);
        let learned = match is_discarded && lent.ctx.planted(Fault::DiscardAttributes) {
            true => Ok(Vec::new()),
            false => run.learn(&parts),
        };
        let changed = match learned {
            Ok(changed) => changed,
            Err(reason) => return self.break_run(&reason, (core, intakes), lent),
        };
        let decided = run.admitted.remove(&step).flatten();
        run.admitted.retain(|known, _| *known > step);
        let merged = match is_discarded {
            true => Err(decided.unwrap_or_else(|| "its writer dropped it".to_owned())),
            false => wire::step::merge_checked(&parts).map_err(|error| error.0),
        };
        let was_let_in = run.pinned.remove(&step);
        run.pinned = run.pinned.split_off(&step);
        let pinned = pins::pinned_from(core, &places).and_then(|from| match from {
            // Not asked for, or before a start.
            Some(_) if !was_let_in => match pins::check_room(core, run.pinned.len(), lent) {
                Ok(()) => Ok(from),
                Err(refused) => Err(refused.message),
            },
            from => Ok(from),
        });
        let merged = merged.and_then(|merged| match &pinned {
            Ok(_) => Ok(merged),
            Err(reason) => Err(reason.clone()),
        });
        if merged.is_ok() {
            hold(&parts, &places, run, core, lent);
        }
        let (kind, reason, merged) = match merged {
            Ok(merged) => (RecordKind::Step, String::new(), merged),
            Err(reason) => (RecordKind::Discarded, reason, (Vec::new(), Bytes::new())),
        };
        let waiters = run.awaited.extract_if(.., |(_, wanted)| *wanted == step);
        let waiters = waiters.map(|(caller, _)| Waiter::Step(caller)).collect();
        let mut record = record(intakes, kind, run, reason);
        record.changed = changed;
        record.waiters = waiters;
        record.table.step = step;
        (record.table.variables, record.table.columns) = merged;
        if kind == RecordKind::Step {
            record.table.parts = places;
            record.pinned = pinned.unwrap_or_default();
        }
        core.records.push(record, &run.attributes);
    }

    /// All ranks have closed the run, and all steps that all have written have records.
    fn finish_run(&mut self, (core, intakes): (&mut Core, &Intakes), lent: &mut Lent<'_>) {
        let Some(mut run) = self.run.take() else {
            return;
        };
        let why = run.uneven();
        let mut record = record(intakes, RecordKind::Closed, &mut run, why);
        let closing = self.closing.drain(..).map(|one| one.caller);
        let closers = closing.chain(self.closers.drain(..));
        record.waiters = closers
            .map(|caller| Waiter::Of(caller, Answer::Done))
            .collect();
        core.records.push(record, &run.attributes);
        let (attending, waiting) = run.take_callers();
        for caller in attending {
            let reason = String::new();
            lent.ctx
                .answer(caller, Answer::RunEnded(RunEnded { reason }));
        }
        let error = refuse(
            ErrorCode::RunEnded,
            format!("run {} of {} was closed", run.run, core.name),
        );
        waiting
            .into_iter()
            .for_each(|caller| lent.ctx.refuse(caller, error.clone()));
        core.touch(lent);
    }

    /// The run has ended without being closed.
    fn break_run(
        &mut self,
        reason: &str,
        (core, intakes): (&mut Core, &Intakes),
        lent: &mut Lent<'_>,
    ) {
        let Some(mut run) = self.run.take() else {
            return;
        };
        lent.ctx.report(format!(
            "run {} of {} is broken: {reason}",
            run.run, core.name
        ));
        let (attending, mut waiting) = run.take_callers();
        waiting.append(&mut self.closers);
        waiting.extend(self.closing.drain(..).map(|one| one.caller));
        for caller in attending {
            let reason = reason.to_owned();
            lent.ctx
                .answer(caller, Answer::RunEnded(RunEnded { reason }));
        }
        let error = refuse(
            ErrorCode::RunEnded,
            format!("run {} of {} is broken: {reason}", run.run, core.name),
        );
        waiting
            .into_iter()
            .for_each(|caller| lent.ctx.refuse(caller, error.clone()));
        // Its parts that have no record are of no use any more.
        run.forget_parts();
        let record = record(intakes, RecordKind::Broken, &mut run, reason.to_owned());
        core.records.push(record, &run.attributes);
        core.touch(lent);
    }

    /// Says of steps whether they may be written: once a step, for all of its ranks.
    pub fn decide_admissions(&mut self, groups: &Groups, core: &Core, lent: &mut Lent<'_>) {
        let Some(run) = &mut self.run else {
            return;
        };
        let is_met =
            run.next > Step(0) || groups.complete_count() >= run.options.readers_min as usize;
        let options = run.options;
        if run.admissions.is_empty() {
            return;
        }
        let backlogs = groups.backlogs(&core.records, lent.ctx.now.monotonic);
        let mut steps: Vec<Step> = run.admissions.iter().map(|one| one.step).collect();
        steps.sort_unstable();
        steps.dedup();
        for step in steps {
            if step < run.next {
                run.admitted.insert(step, None);
            }
            if run.admitted.contains_key(&step) {
                continue;
            }
            // One that is written again, behind which another rank is already: that one waits for it.
            if run
                .admitted
                .range(step..)
                .any(|(_, decided)| decided.is_none())
            {
                run.admitted.insert(step, None);
                continue;
            }
            if !is_met {
                break;
            }
            let under_way = run
                .admitted
                .values()
                .filter(|decided| decided.is_none())
                .count() as u64;
            let drafts = core.records.step_drafts();
            let full = backlogs.iter().find_map(|backlog| {
                let (steps, most) = (
                    backlog.steps + under_way + drafts,
                    u64::from(options.queue_steps),
                );
                let is_full = (most > 0 && steps >= most)
                    || (options.queue_bytes > 0 && backlog.bytes >= options.queue_bytes);
                is_full.then(|| backlog.describe(steps, &core.records))
            });
            match (full, options.when_full) {
                (None, _) => run.admitted.insert(step, None),
                (Some(why), WhenFull::Discard) => run.admitted.insert(step, Some(why)),
                (Some(_), WhenFull::Block) => break,
            };
        }
        let admitted = &run.admitted;
        let (decided, waiting) = run
            .admissions
            .drain(..)
            .partition::<Vec<_>, _>(|one| admitted.contains_key(&one.step));
        run.admissions = waiting;
        for Admission { caller, step } in decided {
            let discarded = run.admitted.get(&step).is_some_and(Option::is_some);
            lent.ctx
                .answer(caller, Answer::StepAdmitted(StepAdmitted { discarded }));
        }
        let next = run.next;
        run.admitted.retain(|step, _| *step >= next);
    }

    /// What a request waits for, for people; `None` if it is not known here.
    pub fn why(
        &self,
        caller: RequestId,
        (groups, core): (&Groups, &Core),
        now: Duration,
    ) -> Option<String> {
        if let Some(why) = core.records.why(caller) {
            return Some(why);
        }
        let run = self.run.as_ref()?;
        if let Some((_, step)) = run.awaited.iter().find(|(one, _)| *one == caller) {
            return Some(match core.records.has_room() {
                true => run.why(*step, now),
                false => core.records.why_full(),
            });
        }
        let closes =
            self.closers.contains(&caller) || self.closing.iter().any(|one| one.caller == caller);
        let opens = self.openings.iter().any(|(one, _)| *one == caller);
        if closes || opens {
            return Some(format!(
                "run {} is open: {}",
                run.run,
                run.why(run.next, now)
            ));
        }
        run.admissions.iter().find(|one| one.caller == caller)?;
        let attached = groups.complete_count();
        if run.next == Step(0) && attached < run.options.readers_min as usize {
            return Some(format!(
                "{attached} of {} groups of readers have attached",
                run.options.readers_min
            ));
        }
        let backlogs = groups.backlogs(&core.records, now).into_iter();
        let slowest = backlogs.max_by_key(|backlog| (backlog.steps, backlog.bytes))?;
        Some(slowest.describe(slowest.steps, &core.records))
    }

    /// Ends the run if all have closed it, or a rank is gone. Those who wait for that open theirs.
    pub fn end_overdue(&mut self, (core, intakes): (&mut Core, &Intakes), lent: &mut Lent<'_>) {
        let now = lent.ctx.now.monotonic;
        if let Some(run) = &self.run {
            match (run.steps_of_all(), run.broken_by(now)) {
                (Some(steps), _) if run.next.0 >= steps => self.finish_run((core, intakes), lent),
                (_, Some(reason)) => self.break_run(&reason, (core, intakes), lent),
                _ => {}
            }
        }
        for (caller, open) in std::mem::take(&mut self.openings) {
            if let Err(error) = self.open_run(caller, open, (core, intakes), lent) {
                lent.ctx.refuse(caller, error);
            }
        }
    }

    /// What a record says of the run that is open.
    pub fn recall(&mut self, recalled: &Recalled, topic: TopicId, lent: &Lent<'_>) {
        let Recalled { entry, .. } = recalled;
        self.last_run = self.last_run.max(entry.run);
        let next = match entry.kind {
            _ if lent.ctx.planted(Fault::StepsForgotten) => Step(0),
            RecordKind::Step | RecordKind::Discarded => Step(entry.step.0 + 1),
            RecordKind::Opened | RecordKind::Closing => entry.step,
            RecordKind::Closed | RecordKind::Broken => {
                self.run = None;
                return;
            }
        };
        let run = match self.run.take().filter(|run| run.run == entry.run) {
            Some(run) => run,
            None => recalled_run(recalled, topic, lent),
        };
        let run = self.run.insert(run);
        run.next = next;
        if let Some(options) = recalled.options {
            run.options = options;
        }
        for (rank, steps) in &recalled.closed {
            run.close(*rank, *steps, lent.ctx.now.monotonic);
        }
    }

    /// Attributes that a record has.
    pub fn recall_attributes(&mut self, run: Run, attributes: Vec<Attribute>) {
        if let Some(open) = self.run.as_mut().filter(|open| open.run == run) {
            attributes.into_iter().for_each(|one| open.keep(one));
        }
    }

    /// When a rank will have been away for too long.
    pub fn next_overdue(&self) -> Option<Duration> {
        self.run.as_ref()?.next_overdue()
    }

    /// A caller is gone, or waits no more.
    pub fn forget(&mut self, caller: RequestId, now: Duration) {
        self.openings.retain(|(one, _)| *one != caller);
        self.closers.retain(|one| *one != caller);
        self.closing.retain(|one| one.caller != caller);
        if let Some(run) = &mut self.run {
            run.forget(caller, now);
        }
    }

    /// Everybody who waits or attends; no run is left.
    pub fn take_callers(&mut self) -> Vec<RequestId> {
        let mut callers = std::mem::take(&mut self.closers);
        callers.extend(self.closing.drain(..).map(|one| one.caller));
        callers.extend(self.openings.drain(..).map(|(caller, _)| caller));
        if let Some(mut run) = self.run.take() {
            let (attending, waiting) = run.take_callers();
            callers.extend(attending.into_iter().chain(waiting));
        }
        callers
    }
}

/// The run that is open, as its first record that is there has it.
fn recalled_run(recalled: &Recalled, topic: TopicId, lent: &Lent<'_>) -> OpenRun {
    let Recalled { entry, writer, .. } = recalled;
    let now = lent.ctx.now.monotonic;
    let timeout = lent.ctx.options.limits.heartbeat * 4;
    // Its first record says what its ranks want; retention may have taken it.
    let options = RunOptions {
        session_timeout_ms: timeout.as_millis().try_into().unwrap_or(u32::MAX),
        readers_min: 0,
        queue_steps: 0,
        queue_bytes: 0,
        when_full: WhenFull::Block,
        distribution: Distribution::All,
    };
    let (at, ranks) = ((entry.run, entry.step), recalled.ranks.clamp(1, RANKS_MAX));
    let mut run = OpenRun::new(at, writer.clone(), ranks, options, now);
    run.are_options_said = true;
    // Its ranks have as long to come back as any that were away.
    for rank in (0..ranks).map(Rank) {
        run.ranks.set_presence(rank, Presence::Away(now));
        let known = lent.commands.producer(topic, &producer_name(writer, rank));
        let epoch = known.map_or(ProducerEpoch(0), |known| known.epoch);
        run.ranks.set_epoch(rank, epoch);
    }
    run
}

/// Notes which parts of a step that is complete their ranks keep.
fn hold(
    parts: &[CheckedPart],
    places: &[PartPlace],
    run: &OpenRun,
    core: &mut Core,
    lent: &Lent<'_>,
) {
    for (part, place) in parts.iter().zip(places) {
        let (PartData::Held(_), rank) = (part.head.data, part.head.rank) else {
            continue;
        };
        let name = producer_name(&run.writer, rank);
        if let Some(known) = lent.commands.producer(core.topic, &name) {
            let by = KeptBy {
                run: run.run,
                step: part.head.step,
                rank,
                producer: known.producer,
                epoch: known.epoch,
                session_timeout: run.options.session_timeout(),
            };
            core.held.committed(by, place, lent.ctx.now.monotonic);
        }
    }
}

/// Why a run is over: empty if it was closed by all of its ranks.
fn end_of(core: &Core, run: Run) -> String {
    match core.records.end_of(run) {
        Some(entry) if entry.kind == RecordKind::Closed => String::new(),
        Some(entry) if !entry.reason.is_empty() => entry.reason.clone(),
        _ => format!("run {run} of {} is over", core.name),
    }
}

fn ended(core: &Core, run: Run) -> Refused {
    let why = match end_of(core, run) {
        closed if closed.is_empty() => "it was closed".to_owned(),
        why => why,
    };
    refuse(
        ErrorCode::RunEnded,
        format!("run {run} of {}: {why}", core.name),
    )
}

/// Refuses who does not write by the producer of the rank's name, in its present life.
fn check_producer(
    (core, writer): (&Core, &str),
    rank: Rank,
    who: (ProducerId, ProducerEpoch),
    lent: &Lent<'_>,
) -> Result<(), Refused> {
    let name = producer_name(writer, rank);
    let known = lent.commands.producer(core.topic, &name);
    match known {
        Some(known) if (known.producer, known.epoch) == who => Ok(()),
        Some(known) if known.producer == who.0 => Err(crate::refusal::fenced(known.epoch, who.1)),
        _ => Err(refuse(
            ErrorCode::InvalidEvent,
            format!(
                "producer {} is not {name:?}, by which rank {rank} of {writer:?} writes",
                who.0
            ),
        )),
    }
}

/// A record of a run, but for what is of a step.
fn record(intakes: &Intakes, kind: RecordKind, run: &mut OpenRun, reason: String) -> NewRecord {
    let done = intakes.done(run);
    let options = (!run.are_options_said).then_some(run.options);
    run.are_options_said = true;
    let table = StepTable {
        version: STEP_VERSION,
        kind,
        writer: run.writer.clone(),
        run: run.run,
        step: run.next,
        ranks: run.ranks.len() as u32,
        reason,
        is_full: false,
        full_at: Offset(0),
        attributes: Vec::new(),
        parts: Vec::new(),
        done: done
            .iter()
            .map(|done| (done.partition, done.offset))
            .collect(),
        variables: Vec::new(),
        columns: Bytes::new(),
    };
    NewRecord {
        table,
        done,
        changed: Vec::new(),
        options,
        closed: Vec::new(),
        waiters: Vec::new(),
        pinned: None,
    }
}

/// The producer by which a rank writes.
fn producer_name(writer: &str, rank: Rank) -> String {
    format!("{writer}/{rank}")
}
