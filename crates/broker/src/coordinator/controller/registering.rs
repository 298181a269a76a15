//! Which nodes those are that ask the leader: a data directory that is known is its own node again, one
//! that is not is the next. And the state that a node is to have.

use super::{ControlError, undecided};
use crate::coordinator::table::{Table, TableNodes};
use crate::faults::{Fault, Planted};
use crate::ids::LinkId;
use std::collections::{BTreeMap, VecDeque};
use wire::record::{NodeRecord, NodeState, Record};
use wire::table::{Register, Registered};
use wire::{ErrorCode, ErrorReply, NodeId};

/// Registrations that wait. One more is refused, to be asked again.
const WAITING_MAX: usize = 1024;
/// Registrations that one command decides on.
const TOGETHER_MAX: usize = 64;

/// Registrations that are not answered. One command of them is under way at a time, and each is made of
/// what the table says when it is submitted: so no two give one id, whatever is asked at once. One is answered when
/// its command is decided, and one whose leader has ended before that is asked again, of a table that has it or not.
///
/// ```text
///  register ──► waiting ──next_command──► under way ──decided──► answers ──poll_answer
///                  └──────── refused ─────────────────────────────▲
/// ```
///
/// Who calls sees to it that no other command about nodes is under way when [`Registering::next_command`] is called.
pub(super) struct Registering {
    /// At most one of each data directory.
    waiting: VecDeque<(LinkId, Register)>,
    /// What each is answered when the command is decided.
    under_way: Vec<(LinkId, Registered)>,
    answers: VecDeque<(LinkId, Result<Registered, ErrorReply>)>,
    /// States that nodes are to have.
    states: BTreeMap<NodeId, NodeState>,
    planted: Planted,
}

impl Registering {
    pub fn new(planted: Planted) -> Self {
        Self {
            waiting: VecDeque::new(),
            under_way: Vec::new(),
            answers: VecDeque::new(),
            states: BTreeMap::new(),
            planted,
        }
    }

    /// A node is to have this state, if it has registered and was not removed. Nobody hears what became of it but by the table.
    pub fn set_state(&mut self, node: NodeId, state: NodeState) {
        self.states.insert(node, state);
    }

    /// Takes a registration, which came by this link. Each is answered on its own: two links that ask for one data directory
    /// may be two processes, and get two epochs.
    pub fn register(&mut self, link: LinkId, register: Register) {
        let is_same = |it: &&mut (LinkId, Register)| it.1.directory == register.directory;
        if let Some(waiting) = self.waiting.iter_mut().find(is_same) {
            let (before, _) = std::mem::replace(waiting, (link, register));
            if before != link {
                let message = "the data directory was registered by another connection since";
                let error = ErrorReply::retryable(ErrorCode::WrongServer, 1000, message);
                self.answers.push_back((before, Err(error)));
            }
        } else if self.waiting.len() >= WAITING_MAX {
            let message = format!("{WAITING_MAX} registrations wait");
            let error = ErrorReply::retryable(ErrorCode::LimitExceeded, 1000, message);
            self.answers.push_back((link, Err(error)));
        } else {
            self.waiting.push_back((link, register));
        }
    }

    /// Whether there is something for [`Registering::next_command`].
    pub fn is_waiting(&self) -> bool {
        self.under_way.is_empty() && !(self.waiting.is_empty() && self.states.is_empty())
    }

    /// The records of the next command, if there is one; [`Registering::decided`] says what became of it.
    pub fn next_command(&mut self, table: &Table) -> Option<Vec<Record>> {
        if !self.is_waiting() {
            return None;
        }
        let mut nodes = table.nodes().clone();
        let mut records = Vec::new();
        while records.len() < TOGETHER_MAX
            && let Some((link, register)) = self.waiting.pop_front()
        {
            match self.record_of(register, &nodes) {
                Err(error) => self.answers.push_back((link, Err(error))),
                Ok(record) => {
                    let NodeRecord { node, epoch, .. } = record;
                    nodes.apply(record.clone());
                    records.push(Record::Node(record));
                    self.under_way.push((link, Registered { node, epoch }));
                }
            }
        }
        while records.len() < TOGETHER_MAX
            && let Some((node, state)) = self.states.pop_first()
        {
            let known = nodes.get(node).filter(|it| it.state != state);
            let record = known.map(|known| NodeRecord {
                state,
                ..known.clone()
            });
            if let Some(record) = record.filter(|record| nodes.admits(record).is_ok()) {
                nodes.apply(record.clone());
                records.push(Record::Node(record));
            }
        }
        if self.planted.is(Fault::RegisteredEarly) {
            self.answer(&Ok(()));
        }
        (!records.is_empty()).then_some(records)
    }

    /// What the table is to say of a node that registers.
    fn record_of(&self, register: Register, nodes: &TableNodes) -> Result<NodeRecord, ErrorReply> {
        let Register {
            directory,
            endpoints,
            labels,
            shard,
        } = register;
        let (node, epoch, state) = match nodes.of_directory(directory) {
            Some(known) if known.state == NodeState::Removed => {
                let node = known.node;
                let message = format!(
                    "this data directory is that of node {node}, which was removed: it does not come \
                     back. Begin with an empty one"
                );
                return Err(ErrorReply::fatal(ErrorCode::WrongServer, message));
            }
            Some(known) => {
                let state = match known.state {
                    NodeState::Away => NodeState::Serving,
                    state => state,
                };
                (known.node, known.epoch + 1, state)
            }
            None if self.planted.is(Fault::NodeIdAgain) => {
                let count = nodes.present().count() as u32;
                (NodeId(count + 1), 1, NodeState::Serving)
            }
            None => (nodes.next_id(), 1, NodeState::Serving),
        };
        let record = NodeRecord {
            node,
            directory,
            epoch,
            shard,
            endpoints,
            labels,
            state,
        };
        match nodes.admits(&record) {
            Err(error) if !self.planted.is(Fault::NodeIdAgain) => Err(error),
            _ => Ok(record),
        }
    }

    /// The command is decided, or was refused.
    pub fn decided(&mut self, result: &Result<(), ControlError>) {
        self.answer(result);
    }

    fn answer(&mut self, result: &Result<(), ControlError>) {
        let answers = self.under_way.drain(..).map(|(link, registered)| {
            let answer = result.as_ref().map(|()| registered).map_err(undecided);
            (link, answer)
        });
        self.answers.extend(answers);
    }

    /// The next answer, and for whom.
    pub fn poll_answer(&mut self) -> Option<(LinkId, Result<Registered, ErrorReply>)> {
        self.answers.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::DirectoryId;
    use wire::record::{Endpoints, Labels};

    fn asked(directory: u128, port: u32) -> Register {
        Register {
            directory: DirectoryId(directory),
            endpoints: Endpoints(vec![format!("tcp://h:{port}")]),
            labels: Labels::default(),
            shard: 0,
        }
    }

    fn registering() -> Registering {
        Registering::new(Planted::default())
    }

    /// A node and its epoch, or why it is refused.
    type Answer = Result<(u32, u64), ErrorCode>;

    /// Decides on the next command, and gives all answers, each with its link.
    fn decide(registering: &mut Registering, table: &mut Table) -> Vec<(u64, Answer)> {
        let answered = |it: &Registering| it.answers.iter().filter(|(_, it)| it.is_ok()).count();
        let before = answered(registering);
        if let Some(records) = registering.next_command(table) {
            // Nobody hears of a node before that is decided.
            assert_eq!(answered(registering), before);
            table.admits(&records).unwrap();
            records.into_iter().for_each(|it| table.apply(it));
            registering.decided(&Ok(()));
        }
        let answers = std::iter::from_fn(|| registering.poll_answer());
        let answers = answers.map(|(link, answer)| {
            let answer = answer.map(|it| (it.node.0, it.epoch));
            (link.0, answer.map_err(|error| error.code))
        });
        answers.collect()
    }

    #[test]
    fn a_known_directory_is_its_own_node_again_and_a_new_one_the_next() {
        let (mut registering, mut table) = (registering(), Table::default());
        for (link, directory) in [(1, 0xa), (2, 0xb)] {
            registering.register(LinkId(link), asked(directory, 1));
        }
        let answers = decide(&mut registering, &mut table);
        assert_eq!(answers, [(1, Ok((1, 1))), (2, Ok((2, 1)))]);
        registering.register(LinkId(3), asked(0xa, 2));
        registering.register(LinkId(4), asked(0xc, 1));
        let answers = decide(&mut registering, &mut table);
        assert_eq!(answers, [(3, Ok((1, 2))), (4, Ok((3, 1)))]);
        let node = table.nodes().get(NodeId(1)).unwrap();
        assert_eq!(node.endpoints.0, ["tcp://h:2"]);
    }

    #[test]
    fn one_that_asks_again_on_another_link_is_answered_there() {
        let (mut registering, mut table) = (registering(), Table::default());
        registering.register(LinkId(1), asked(0xa, 1));
        // Its command is under way when the link is cut.
        let records = registering.next_command(&table).unwrap();
        registering.register(LinkId(2), asked(0xa, 1));
        registering.register(LinkId(3), asked(0xa, 2));
        assert!(registering.next_command(&table).is_none());
        records.into_iter().for_each(|it| table.apply(it));
        registering.decided(&Ok(()));
        let answers = decide(&mut registering, &mut table);
        let superseded = Err(ErrorCode::WrongServer);
        assert_eq!(answers, [(2, superseded), (1, Ok((1, 1))), (3, Ok((1, 2)))]);
        assert_eq!(table.nodes().all().count(), 1);
    }

    #[test]
    fn what_is_refused_is_answered_and_gives_no_id() {
        let (mut registering, mut table) = (registering(), Table::default());
        registering.register(LinkId(1), asked(0xa, 1));
        assert!(registering.next_command(&table).is_some());
        let full = ControlError::Full(super::super::Home::Table, "no space".into());
        registering.decided(&Err(full));
        let answers = decide(&mut registering, &mut table);
        assert_eq!(answers, [(1, Err(ErrorCode::StorageFull))]);
        registering.register(LinkId(2), asked(0xb, 1));
        let answers = decide(&mut registering, &mut table);
        assert_eq!(answers, [(2, Ok((1, 1)))]);
    }

    #[test]
    fn a_state_stays_and_who_was_removed_does_not_come_back() {
        let (mut registering, mut table) = (registering(), Table::default());
        for directory in [0xa, 0xb] {
            registering.register(LinkId(1), asked(directory, 1));
        }
        decide(&mut registering, &mut table);
        for (node, state) in [(1, NodeState::Draining), (2, NodeState::Removed)] {
            let known = table.nodes().get(NodeId(node)).unwrap().clone();
            table.apply(Record::Node(NodeRecord { state, ..known }));
        }
        for directory in [0xa, 0xb, 0xc] {
            registering.register(LinkId(2), asked(directory, 2));
        }
        let answers = decide(&mut registering, &mut table);
        let removed = Err(ErrorCode::WrongServer);
        assert_eq!(answers, [(2, removed), (2, Ok((1, 2))), (2, Ok((3, 1)))]);
        let node = table.nodes().get(NodeId(1)).unwrap();
        assert_eq!(node.state, NodeState::Draining);
    }

    #[test]
    fn waiting_and_one_command_have_a_bound() {
        let (mut registering, mut table) = (registering(), Table::default());
        for directory in 0..=WAITING_MAX as u128 {
            registering.register(LinkId(1), asked(directory, 1));
        }
        let (link, refused) = registering.poll_answer().unwrap();
        let error = refused.unwrap_err();
        assert_eq!((link, error.code), (LinkId(1), ErrorCode::LimitExceeded));
        assert!(error.retryable);
        let mut registered = Vec::new();
        while registering.is_waiting() {
            let answers = decide(&mut registering, &mut table);
            assert!(answers.len() <= TOGETHER_MAX);
            registered.extend(answers.into_iter().map(|(_, it)| it.unwrap().0));
        }
        assert_eq!(registered, (1..=WAITING_MAX as u32).collect::<Vec<_>>());
    }

    #[test]
    fn a_node_has_the_state_that_it_is_to_have_until_it_registers_or_is_removed() {
        use NodeState::{Away, Draining, Removed, Serving};
        let (mut registering, mut table) = (registering(), Table::default());
        registering.register(LinkId(1), asked(0xa, 1));
        registering.register(LinkId(2), asked(0xb, 1));
        decide(&mut registering, &mut table);
        let state = |table: &Table, node: u32| table.nodes().get(NodeId(node)).unwrap().state;
        let mut set = |registering: &mut Registering, node: u32, wanted: NodeState| {
            registering.set_state(NodeId(node), wanted);
            assert_eq!(decide(registering, &mut table), []);
            table.clone()
        };
        let now = set(&mut registering, 1, Away);
        assert_eq!((state(&now, 1), state(&now, 2)), (Away, Serving));
        assert_eq!(now.nodes().get(NodeId(1)).unwrap().epoch, 1);
        // One that is as it is to be, and one that there is not, make no command.
        registering.set_state(NodeId(1), Away);
        registering.set_state(NodeId(7), Away);
        assert_eq!(registering.next_command(&now), None);
        // It has started again.
        registering.register(LinkId(3), asked(0xa, 2));
        let mut table = now;
        assert_eq!(decide(&mut registering, &mut table), [(3, Ok((1, 2)))]);
        assert_eq!(state(&table, 1), Serving);
        // A drain outlasts that, and a removal everything.
        for (wanted, then) in [(Draining, Draining), (Removed, Removed), (Serving, Removed)] {
            registering.set_state(NodeId(2), wanted);
            decide(&mut registering, &mut table);
            registering.register(LinkId(4), asked(0xb, 2));
            decide(&mut registering, &mut table);
            assert_eq!(state(&table, 2), then);
        }
    }
}
