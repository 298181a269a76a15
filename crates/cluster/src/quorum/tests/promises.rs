//! What interface.rs promises of several voters, and that a change of members is known by those who
//! are to go on without the members that it removed.

use super::*;
use log::testing::Survival;
use std::collections::VecDeque;

/// What a voter has put out, but for messages and what its disk is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Said {
    Apply(u64, u128),
    Restore(u64),
    Answer(u128, Result<u64, Refused>),
    Leader(u64, Option<u64>),
    Over,
}

/// Voters whose disks do at once what they are to do. Messages arrive one at a time, in order.
struct Several {
    disks: BTreeMap<u64, FaultyDisk>,
    running: BTreeMap<u64, Quorum>,
    wire: VecDeque<(u64, u64, Bytes)>,
    /// Messages from these, and to them, are lost.
    silent: Vec<u64>,
    deaf: Vec<u64>,
    said: BTreeMap<u64, Vec<Said>>,
    now: Duration,
}

fn settings() -> Settings {
    Settings {
        snapshot_entries: 20,
        trailing_entries: 1000,
        ..Settings::default()
    }
}

impl Several {
    fn founded(count: u64) -> Self {
        let mut several = Self {
            disks: BTreeMap::new(),
            running: BTreeMap::new(),
            wire: VecDeque::new(),
            silent: Vec::new(),
            deaf: Vec::new(),
            said: BTreeMap::new(),
            now: Duration::from_secs(1),
        };
        for id in 1..=count {
            let disk = empty_disk();
            found_on(&disk, id, count);
            several.disks.insert(id, disk);
            several.start(id);
        }
        several
    }

    /// Voters of which one leads, and all have applied something.
    fn led(count: u64) -> (Self, u64) {
        let mut several = Self::founded(count);
        let leader = several.elect();
        several.propose(leader, 1000);
        several.pass(3);
        for id in 1..=count {
            assert_eq!(several.payloads(id), [1000]);
        }
        (several, leader)
    }

    fn start(&mut self, id: u64) {
        let recovered = recover(&self.disks[&id], Path::new(DIRECTORY), identity(id)).unwrap();
        let quorum = Quorum::open(settings(), id, self.now, recovered).unwrap();
        self.running.insert(id, quorum);
        self.said.insert(id, Vec::new());
        self.outputs(id);
    }

    /// Power is lost, and with it what no sync has covered.
    fn stop(&mut self, id: u64) {
        self.running.remove(&id);
        self.disks[&id].power_loss(Survival::Nothing);
    }

    fn outputs(&mut self, id: u64) {
        while let Some(quorum) = self.running.get_mut(&id)
            && let Some(output) = quorum.poll_output()
        {
            let said = match output {
                Output::Send { to, bytes } => {
                    self.wire.push_back((id, to.0, bytes));
                    continue;
                }
                Output::Disk { token, operation } => {
                    let result = self.disks[&id].execute(operation);
                    quorum.handle(self.now, Input::DiskDone { token, result });
                    continue;
                }
                Output::TakeSnapshot { upto: index } => {
                    let bytes = Bytes::new();
                    quorum.handle(self.now, Input::Snapshot { index, bytes });
                    continue;
                }
                Output::Apply { index, payload, .. } => {
                    let payload = payload[..16].try_into().unwrap();
                    Said::Apply(index, u128::from_le_bytes(payload))
                }
                Output::Restore { index, .. } => Said::Restore(index),
                Output::Answer { request, result } => Said::Answer(request.0, result),
                Output::Leader { term, leader } => Said::Leader(term, leader.map(|id| id.0)),
                Output::Removed | Output::Failed(_) => Said::Over,
            };
            self.said.entry(id).or_default().push(said);
        }
    }

    fn handle(&mut self, id: u64, input: Input) {
        if let Some(quorum) = self.running.get_mut(&id) {
            quorum.handle(self.now, input);
            self.outputs(id);
        }
    }

    /// The next message arrives, if there is one.
    fn step(&mut self) -> bool {
        let Some((from, to, bytes)) = self.wire.pop_front() else {
            return false;
        };
        if !self.silent.contains(&from) && !self.deaf.contains(&to) {
            let from = VoterId(from);
            self.handle(to, Input::Message { from, bytes });
        }
        true
    }

    fn tick(&mut self) {
        self.now += Duration::from_millis(100);
        for id in self.ids() {
            self.handle(id, Input::Timer);
        }
    }

    fn pass(&mut self, ticks: u64) {
        for _ in 0..ticks {
            self.tick();
            while self.step() {}
        }
    }

    fn ids(&self) -> Vec<u64> {
        self.running.keys().copied().collect()
    }

    fn leader(&self) -> Option<u64> {
        let reached = |id: &u64| !self.silent.contains(id) && !self.deaf.contains(id);
        let mut leaders = self.running.iter().filter(|(_, one)| one.leads());
        leaders.find(|(id, _)| reached(id)).map(|(id, _)| *id)
    }

    fn elect(&mut self) -> u64 {
        for _ in 0..300 {
            if let Some(leader) = self.leader() {
                return leader;
            }
            self.pass(1);
        }
        panic!("nobody leads after 300 ticks");
    }

    /// Proposes a payload that says which it is.
    fn propose(&mut self, to: u64, id: u128) {
        self.propose_bytes(to, id, 16);
    }

    fn propose_bytes(&mut self, to: u64, id: u128, bytes: usize) {
        let request = RequestId(id);
        let mut payload = id.to_le_bytes().to_vec();
        payload.resize(bytes, 0);
        let payload = payload.into();
        self.handle(to, Input::Propose { request, payload });
    }

    fn change(&mut self, to: u64, id: u128, change: Change) {
        let request = RequestId(id);
        self.handle(to, Input::ChangeVoters { request, change });
    }

    /// The answers of a voter to a request.
    fn answers(&self, of: u64, id: u128) -> Vec<Result<u64, Refused>> {
        let answers = self.said[&of].iter().filter_map(|one| match one {
            Said::Answer(request, result) if *request == id => Some(result.clone()),
            _ => None,
        });
        answers.collect()
    }

    fn payloads(&self, of: u64) -> Vec<u128> {
        let payloads = self.said[&of].iter().filter_map(|one| match one {
            Said::Apply(_, payload) => Some(*payload),
            _ => None,
        });
        payloads.collect()
    }
}

/// Voter 1 of four has gone, and is removed. At the moment of the answer another goes: the two that
/// are left are a majority of the three that vote now.
fn two_of_three_go_on(restart: bool) {
    for gone in 2..=4 {
        let (mut several, _) = Several::led(4);
        several.stop(1);
        let leader = several.elect();
        several.pass(3);
        let voter = VoterId(1);
        several.change(leader, 7, Change::Remove { voter });
        let mut ticks = 0;
        while several.answers(leader, 7).is_empty() {
            if !several.step() {
                several.tick();
                ticks += 1;
                assert!(ticks < 100, "the change is not answered");
            }
        }
        assert!(several.answers(leader, 7)[0].is_ok());
        several.wire.clear();
        several.stop(gone);
        for id in several.ids() {
            if restart {
                several.stop(id);
                several.start(id);
            }
        }
        let leader = several.elect();
        several.propose(leader, 8);
        several.pass(3);
        assert!(several.answers(leader, 8)[0].is_ok());
    }
}

#[test]
fn when_a_removal_is_answered_the_others_go_on_without_the_member() {
    two_of_three_go_on(false);
}

#[test]
fn when_a_removal_is_answered_the_others_know_it_after_a_restart() {
    two_of_three_go_on(true);
}

/// The change is decided and applied, and nobody else hears that: it is not answered until they do.
#[test]
fn a_change_is_answered_once_most_of_those_who_vote_now_know_it() {
    let (mut several, leader) = Several::led(4);
    let voter = VoterId(leader % 4 + 1);
    several.change(leader, 7, Change::Remove { voter });
    // The appends arrive, and the answers to them; what the leader says then does not.
    while several.running[&leader].members().count() == 4 {
        assert!(several.step());
    }
    several.silent.push(leader);
    for _ in 0..3 {
        while several.step() {}
        several.tick();
    }
    assert_eq!(several.answers(leader, 7), []);
    // Nor is another change begun, or the first one answered when it is asked for again.
    let others = several.ids().into_iter().map(VoterId);
    let other = others.filter(|id| id.0 != leader && *id != voter).min();
    let voter_next = other.unwrap();
    several.change(leader, 8, Change::Remove { voter: voter_next });
    let refused = several.answers(leader, 8);
    assert!(matches!(refused[..], [Err(Refused::Change(_))]));
    several.change(leader, 7, Change::Remove { voter });
    assert_eq!(several.answers(leader, 7), []);
    several.silent.clear();
    several.pass(3);
    let answers = several.answers(leader, 7);
    assert_eq!(answers.len(), 2);
    assert!(answers[0].is_ok() && answers[0] == answers[1]);
    // And another leader finds out for itself.
    let to = voter_next;
    several.handle(leader, Input::TransferLeader { to });
    several.pass(5);
    let next = several.leader().unwrap();
    assert_eq!(next, to.0);
    several.change(next, 7, Change::Remove { voter });
    several.pass(3);
    assert_eq!(several.answers(next, 7), answers[..1]);
    several.change(leader, 7, Change::Remove { voter });
    let hint = Some(VoterId(next));
    let last = several.answers(leader, 7).pop();
    assert_eq!(last, Some(Err(Refused::NotLeader { hint })));
}
