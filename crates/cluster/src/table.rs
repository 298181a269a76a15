//! The table of a cluster, whose commands the controller quorum orders.
//!
//! [`TableVoter`] is one voter, with its copy of the table. The one that leads the quorum leads the table's protocol, too
//! ([`broker::controller::TableLeader`]): nodes follow it, wherever they are. See the README for the drawing.

mod log;

use crate::faults::{Fault, planted};
use crate::quorum::{
    self, Change, Member, Quorum, Recovered, Refused, RequestId, Settings, VoterId,
};
use crate::random::Random;
use ::log::{DiskError, Operation, Outcome};
use broker::controller::{TableLeader, TableLog};
use broker::node::LinkId;
use broker::table::Table;
use bytes::Bytes;
use log::QuorumLog;
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;
use wire::record::NodeState;
use wire::table::{Register, Registered, TableMessage};
use wire::{ErrorCode, ErrorReply, NodeId, TableId};

/// Something that happened.
#[derive(Debug)]
pub enum Input {
    /// Another voter sent a message.
    Voter {
        /// Who, as the connection says.
        from: VoterId,
        /// As [`Output::Voter`] gave it.
        bytes: Bytes,
    },
    /// A link of a node that follows stands, new, or is gone. It may stand while [`TableVoter::is_leading`].
    Linked(NodeId),
    /// A node that follows sent a message on its link.
    Node {
        /// Which.
        from: NodeId,
        /// The message.
        message: TableMessage,
    },
    /// A server asks which node it is, under a name of the caller's. Answered by [`Output::Registered`], unless
    /// [`Output::Leading`] says before that this voter does not lead any more.
    Register(LinkId, Register),
    /// A node that has registered is to have this state, if this voter leads. The table says what became of it.
    SetState(NodeId, NodeState),
    /// An operation of [`Output::Disk`] was carried out.
    DiskDone {
        /// Which.
        token: u64,
        /// What came of it.
        result: Result<Outcome, DiskError>,
    },
    /// A voter is to change. Answered by [`Output::Changed`].
    Change {
        /// Its id; the same whenever it is tried again.
        request: RequestId,
        /// What is to change.
        change: Change,
    },
    /// Another voter is to lead, if it can.
    Transfer(VoterId),
    /// The time of [`TableVoter::next_timer`] has come.
    Timer,
}

/// Something to be done. In order.
#[derive(Debug)]
pub enum Output {
    /// A message to another voter. It may be lost, doubled or late.
    Voter {
        /// To whom.
        to: VoterId,
        /// The message.
        bytes: Bytes,
    },
    /// A message to a node that follows, on its link.
    Node {
        /// To which.
        to: NodeId,
        /// The message.
        message: TableMessage,
    },
    /// An operation on the disk. One at a time is out; answered by [`Input::DiskDone`].
    Disk {
        /// To be given back.
        token: u64,
        /// What to do.
        operation: Operation,
    },
    /// This voter leads the table, or does not any more. Then the links of all nodes that follow it are over: they are to
    /// be cut, so that the nodes follow another one.
    Leading(bool),
    /// Another leads the quorum, or none is known. It is not yet known whether it leads the table.
    Leader(Option<VoterId>),
    /// Which node a server is that has asked: it is decided. Or why it is none.
    Registered(LinkId, Result<Registered, ErrorReply>),
    /// What became of a change of voters.
    Changed {
        /// Which.
        request: RequestId,
        /// How.
        result: Result<u64, Refused>,
    },
    /// This voter was removed, and does nothing any more.
    Removed,
    /// This voter failed, and does nothing until it is opened again.
    Failed(String),
}

/// Whether this voter leads the table. The drawing is in the README.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It does not.
    Away,
    /// It does.
    Leading,
    /// It was removed, or failed.
    Over,
}

/// One voter of the quorum, and its copy of the cluster's table.
///
/// Each thing that happens is given to [`TableVoter::handle`], whereupon [`TableVoter::poll_output`] is asked until it
/// gives nothing more, and every output is done in its order.
pub struct TableVoter {
    quorum: Quorum,
    log: QuorumLog,
    leader: TableLeader,
    standing: Standing,
    /// Changes of voters that were asked for and are not answered, each as often as it was asked for.
    changes: Vec<RequestId>,
    outputs: VecDeque<Output>,
    now: Duration,
}

impl fmt::Debug for TableVoter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableVoter")
            .field("identity", &self.quorum.identity())
            .field("standing", &self.standing)
            .field("leader", &self.leader)
            .finish_non_exhaustive()
    }
}

impl TableVoter {
    /// A voter with what was found of its log, at this time. `seed` is any number, and another one in each life.
    ///
    /// # Errors
    /// If the settings are not valid, or what was found cannot be gone on with.
    pub fn open(
        recovered: Recovered,
        settings: Settings,
        now: Duration,
        seed: u64,
    ) -> Result<Self, String> {
        let mut random = Random::new(seed);
        let seed = random.number();
        let mut log = QuorumLog::new(random, &settings);
        log.set_time(now);
        let quorum = Quorum::open(settings, seed, now, recovered)?;
        let mut voter = Self {
            quorum,
            log,
            leader: TableLeader::standby(0),
            standing: Standing::Away,
            changes: Vec::new(),
            outputs: VecDeque::new(),
            now,
        };
        voter.go_on();
        Ok(voter)
    }

    /// Has it lead with a fault that a simulation plants.
    #[cfg(any(test, feature = "testing"))]
    pub fn plant(&mut self, fault: Option<broker::Fault>) {
        self.leader.plant(fault);
    }

    /// The id of its table, which is that of the cluster.
    fn table_id(&self) -> TableId {
        TableId(self.quorum.identity().cluster.0)
    }

    /// The table, as far as this voter has heard what was decided.
    pub fn table(&self) -> &Table {
        self.log.table()
    }

    /// How far that is.
    pub fn applied(&self) -> u64 {
        self.quorum.applied()
    }

    /// Whether nodes may follow this voter.
    pub fn is_leading(&self) -> bool {
        self.standing == Standing::Leading
    }

    /// The term, and which voter leads the quorum in it as far as is known.
    pub fn leader(&self) -> (u64, Option<VoterId>) {
        self.quorum.leader()
    }

    /// The voters, as far as this one has heard.
    pub fn members(&self) -> impl Iterator<Item = (VoterId, Member)> + '_ {
        self.quorum.members()
    }

    /// When [`Input::Timer`] is due. None if this voter waits for nothing any more.
    pub fn next_timer(&self) -> Option<Duration> {
        match self.standing {
            Standing::Over => None,
            _ => self.quorum.next_timer(),
        }
    }

    /// Whether it was removed or has failed: what it knows of the others is of before.
    pub fn is_over(&self) -> bool {
        self.standing == Standing::Over
    }

    /// Takes something that happened.
    pub fn handle(&mut self, now: Duration, input: Input) {
        self.now = self.now.max(now);
        self.log.set_time(self.now);
        if self.standing == Standing::Over {
            if let Input::Change { request, .. } = input {
                let result = Err(Refused::NotLeader { hint: None });
                self.outputs.push_back(Output::Changed { request, result });
            }
            return;
        }
        match input {
            Input::Voter { from, bytes } => self.give(quorum::Input::Message { from, bytes }),
            Input::DiskDone { token, result } => {
                self.give(quorum::Input::DiskDone { token, result })
            }
            Input::Change { request, change } => {
                self.changes.push(request);
                self.give(quorum::Input::ChangeVoters { request, change })
            }
            Input::Transfer(to) => self.give(quorum::Input::TransferLeader { to }),
            Input::Timer => {
                self.log.go_on();
                if self.is_leading() {
                    self.leader.retry(&mut self.log);
                }
                self.give(quorum::Input::Timer);
            }
            Input::Linked(node) => self.leader.linked(node),
            Input::Node { from, message } if self.is_leading() => {
                self.leader.take_message(&mut self.log, from, message);
            }
            // Its link is over, which it is about to hear.
            Input::Node { .. } => {}
            Input::Register(link, register) if self.is_leading() => {
                self.leader.register(link, register);
            }
            Input::SetState(node, state) if self.is_leading() => {
                self.leader.set_state(node, state);
            }
            Input::SetState(..) => {}
            Input::Register(link, _) => {
                let message = "this server does not lead the table";
                let error = ErrorReply::retryable(ErrorCode::NotLeader, 100, message);
                self.outputs.push_back(Output::Registered(link, Err(error)));
            }
        }
        self.go_on();
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Does all that can be done now.
    fn go_on(&mut self) {
        loop {
            let mut any = false;
            while let Some(output) = self.quorum.poll_output() {
                any = true;
                self.take(output);
            }
            if self.standing == Standing::Over {
                return;
            }
            if self.is_leading() {
                self.leader.submit_nodes(&mut self.log);
            }
            any |= self.leader.advance(&mut self.log);
            self.leader.pass(self.quorum.applied());
            if self.is_leading()
                && let Some((request, payload)) = self.log.next_to_propose()
            {
                // One at a time: behind one that is refused none is asked for.
                self.give(quorum::Input::Propose { request, payload });
                any = true;
            }
            if !any {
                break;
            }
        }
        while let Some((link, result)) = self.leader.poll_registered() {
            self.outputs.push_back(Output::Registered(link, result));
        }
        while self.is_leading()
            && let Some((to, message)) = self.leader.poll_message(&self.log)
        {
            self.outputs.push_back(Output::Node { to, message });
        }
    }

    fn give(&mut self, input: quorum::Input) {
        self.quorum.handle(self.now, input);
    }

    /// It leads the quorum, and has applied all that former leaders have decided.
    fn lead(&mut self) {
        if self.is_leading() {
            return;
        }
        self.standing = Standing::Leading;
        let id = self.table_id();
        self.leader.identify(&mut self.log, id);
        self.outputs.push_back(Output::Leading(true));
    }

    /// Another leads, or may.
    fn resign(&mut self) {
        if self.is_leading() {
            self.outputs.push_back(Output::Leading(false));
        }
        if self.standing != Standing::Over {
            self.standing = Standing::Away;
        }
        self.log.resign();
        if !planted(Fault::FollowersKept) {
            self.leader.resign();
        }
    }

    fn take(&mut self, output: quorum::Output) {
        if self.standing == Standing::Over {
            return;
        }
        match output {
            quorum::Output::Send { to, bytes } => {
                self.outputs.push_back(Output::Voter { to, bytes })
            }
            quorum::Output::Disk { token, operation } => {
                self.outputs.push_back(Output::Disk { token, operation });
            }
            quorum::Output::Apply { index, payload, .. } => {
                if let Err(error) = self.log.apply(index, &payload) {
                    self.end(format!("entry {index} of the quorum's log: {error}"));
                    return;
                }
                self.leader.advance(&mut self.log);
                self.leader.pass(index);
            }
            quorum::Output::Restore { index, bytes } => {
                self.resign();
                if let Err(error) = self.log.restore(&bytes) {
                    self.end(format!(
                        "the table at entry {index} of the quorum's log: {error}"
                    ));
                    return;
                }
                self.leader.restored(index);
            }
            quorum::Output::TakeSnapshot { upto } => {
                let bytes = self.log.take_snapshot();
                self.give(quorum::Input::Snapshot { index: upto, bytes });
            }
            quorum::Output::Answer { request, result } => self.answered(request, result),
            quorum::Output::Leader { leader, .. } => {
                if leader != Some(self.quorum.identity().voter) {
                    self.resign();
                }
                self.outputs.push_back(Output::Leader(leader));
                if self.quorum.leads() && planted(Fault::LedEarly) {
                    self.lead();
                }
            }
            quorum::Output::LeaderReady { .. } => self.lead(),
            quorum::Output::Removed => {
                self.over(Output::Removed, "this voter was removed".to_owned())
            }
            quorum::Output::Failed(reason) => self.over(Output::Failed(reason.clone()), reason),
        }
    }

    fn answered(&mut self, request: RequestId, result: Result<u64, Refused>) {
        if let Some(place) = self.changes.iter().position(|it| *it == request) {
            self.changes.remove(place);
            self.outputs.push_back(Output::Changed { request, result });
        } else if !self.log.answered(request, result) {
            self.resign();
        }
    }

    /// What the quorum has decided cannot be read: nobody is to see a table without it.
    fn end(&mut self, reason: String) {
        self.over(Output::Failed(reason.clone()), reason);
    }

    fn over(&mut self, output: Output, reason: String) {
        self.resign();
        self.standing = Standing::Over;
        self.log.fail(reason);
        for request in std::mem::take(&mut self.changes) {
            let result = Err(Refused::Unknown);
            self.outputs.push_back(Output::Changed { request, result });
        }
        self.outputs.push_back(output);
    }
}
