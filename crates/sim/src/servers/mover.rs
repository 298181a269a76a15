//! A mover: the program that has a topic go to another node. Whatever happens to it, the topic is on one of the two nodes.

use super::errand::{Done, Outcome};
use crate::fiber::{self, FiberWait};
use client::{AdoptLedger, ClientError, Driver, NodeId, SimulatedWait};
use mirror::{Stop, Time, move_topic_by};
use std::time::{Duration, Instant};

/// How often it looks whether there are news.
const LOOK: Duration = Duration::from_millis(5);
/// After so much time nothing is waited for any more.
const LATER: Duration = Duration::from_secs(1 << 20);

/// The time of the simulation.
struct Simulated(Instant);

impl Time for Simulated {
    fn now(&self) -> Instant {
        let passed = fiber::now().map_or(LATER, Duration::from_nanos);
        self.0 + passed
    }

    fn wait(&self, _: &Stop, longest: Duration) {
        FiberWait.go_on(longest.min(LOOK));
    }
}

/// Moves a topic, by the drivers of the node that has it and of the one that it goes to.
pub fn move_to(drivers: &[Driver], topic: &str, to: NodeId) -> Outcome {
    let time = Simulated(Instant::now());
    let moved = move_topic_by(&time, (&drivers[0], &drivers[1]), topic, to);
    moved
        .map(|_| Done::Moved)
        .map_err(|error| error.to_string())
}

/// A mover that asks for the handing over of what it has not asked to be yielded, and has not copied: it is refused.
pub fn move_early(drivers: &[Driver], topic: &str, to: NodeId) -> Outcome {
    let moved = hand_over_early(drivers, topic, to);
    moved
        .map(|()| Done::Moved)
        .map_err(|error| error.to_string())
}

fn hand_over_early(drivers: &[Driver], topic: &str, to: NodeId) -> Result<(), ClientError> {
    let source = drivers[0].open_topic_itself(topic)?;
    let described = source.refresh()?;
    source.begin_move(to).wait()?;
    let copy = drivers[1].topic_as_described(described)?;
    copy.begin_receive(1).wait()?;
    let nothing = AdoptLedger {
        is_first: true,
        records: Vec::new(),
        producers: Vec::new(),
    };
    copy.begin_adopt(&nothing).wait()?;
    source.begin_hand_over().wait()
}
