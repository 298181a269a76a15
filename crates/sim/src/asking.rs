//! The part of a run that is about requests: those who ask and those who
//! reply are driven, and all that was asked is to have its answer.

use crate::answerer::AnswererActor;
use crate::plan::Trouble;
use crate::requester::RequesterActor;
use crate::trace::Violation;
use crate::world::World;

impl World {
    /// Does what is due now. True if there was something.
    pub(crate) fn settle_asking(&mut self) -> Result<bool, Violation> {
        let now = self.now;
        let mut moved = false;
        for one in &mut self.answerers {
            moved |= one.program.turn(now);
            one.observe(now, &mut self.asked);
            if one.wake_at <= now && !one.program.is_stopped(now) {
                moved = true;
                one.act(now, &mut self.asked)?;
            }
        }
        for one in &mut self.requesters {
            moved |= one.program.turn(now);
            one.observe(now, &mut self.asked)?;
            if one.wake_at <= now && !one.program.is_stopped(now) {
                moved = true;
                let topic = (&self.plan.definition, &self.plan.partitions[..]);
                one.act(now, &mut self.asked, topic)?;
            }
        }
        Ok(moved)
    }

    /// When something is due.
    pub(crate) fn next_asking(&self) -> Option<u64> {
        let now = self.now;
        let answerers = self.answerers.iter().map(|one| (&one.program, one.wake_at));
        let requesters = self.requesters.iter();
        let requesters = requesters.map(|one| (&one.program, one.wake_at));
        let times = answerers.chain(requesters).flat_map(|(program, wake_at)| {
            let wake_at = (!program.is_stopped(now)).then_some(wake_at);
            program.next_event().into_iter().chain(wake_at)
        });
        times.min()
    }

    /// Something happens to one who asks.
    pub(crate) fn trouble_requester(&mut self, index: usize, trouble: Trouble) {
        let now = self.now;
        let one: &mut RequesterActor = &mut self.requesters[index];
        if trouble == Trouble::Dies {
            one.die(now);
        }
    }

    /// Something happens to one who replies.
    pub(crate) fn trouble_answerer(&mut self, index: usize, trouble: Trouble) {
        let now = self.now;
        let one: &mut AnswererActor = &mut self.answerers[index];
        match trouble {
            Trouble::Dies => one.die(now, &mut self.asked),
            Trouble::Leaves => one.leave(),
            _ => {}
        }
    }

    /// Nothing goes wrong any more, and everybody replies.
    pub(crate) fn heal_asking(&mut self) {
        let now = self.now;
        for one in &mut self.answerers {
            one.is_to_be_diligent();
            one.program.stop(now);
        }
        for one in &mut self.requesters {
            one.program.stop(now);
        }
    }

    /// Those who ask and those who reply are done.
    pub(crate) fn end_asking(&mut self) {
        let now = self.now;
        for one in &mut self.requesters {
            one.program.kill(now);
        }
        for one in &mut self.answerers {
            one.program.kill(now);
        }
        self.requesters.clear();
        self.answerers.clear();
        let asked = &self.asked;
        self.summary.replied = asked.replied_count;
        self.summary.late = asked.late_count;
        self.summary.gathered = asked.gathered_count;
        self.summary.missing = asked.missing_count;
    }
}
