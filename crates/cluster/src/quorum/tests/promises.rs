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
    Ready(u64),
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
                Output::LeaderReady { term } => Said::Ready(term),
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

    fn place(&self, of: u64, what: &Said) -> usize {
        let said = &self.said[&of];
        let place = said.iter().position(|one| one == what);
        place.unwrap_or_else(|| panic!("{what:?} is not in {said:?}"))
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

#[test]
fn what_is_refused_is_refused_by_the_same_call() {
    let (mut several, leader) = Several::led(3);
    let other = leader % 3 + 1;
    let hint = |id| Some(VoterId(id));
    several.propose(other, 1);
    let not_leader = |id| Err(Refused::NotLeader { hint: hint(id) });
    assert_eq!(several.answers(other, 1), [not_leader(leader)]);
    several.propose_bytes(leader, 2, PAYLOAD_BYTES_MAX + 1);
    assert_eq!(several.answers(leader, 2), [Err(Refused::TooLarge)]);
    // More than may be undecided: nothing is delivered between these.
    for id in 10..20 {
        several.propose_bytes(leader, id, PAYLOAD_BYTES_MAX);
    }
    let taken = (10..20).take_while(|id| several.answers(leader, *id).is_empty());
    let taken = taken.count() as u128;
    assert!(taken > 0 && taken < 10);
    for id in 10 + taken..20 {
        assert_eq!(several.answers(leader, id), [Err(Refused::Full)]);
    }
    several.pass(3);
    for id in 10..10 + taken {
        assert!(several.answers(leader, id)[0].is_ok());
    }
    // More than may wait.
    let count = settings::WAITING_MAX as u128;
    for id in 2000..=2000 + count {
        several.propose(leader, id);
    }
    assert_eq!(several.answers(leader, 1999 + count), []);
    assert_eq!(several.answers(leader, 2000 + count), [Err(Refused::Full)]);
    several.pass(10);
    assert!(several.answers(leader, 1999 + count)[0].is_ok());
    // Another is to lead, which has not all entries yet.
    several.deaf.push(other);
    several.propose(leader, 3);
    let to = VoterId(other);
    several.handle(leader, Input::TransferLeader { to });
    several.propose(leader, 4);
    assert_eq!(several.answers(leader, 4), [not_leader(other)]);
    // It does not hear that, and all goes on as before.
    let leaders = |said: &[Said]| {
        let each = said.iter().filter(|one| matches!(one, Said::Leader(..)));
        each.count()
    };
    let before = leaders(&several.said[&leader]);
    several.pass(2 * settings().election_ticks_min as u64);
    several.propose(leader, 4);
    several.pass(1);
    assert!(several.answers(leader, 4)[1].is_ok());
    assert_eq!(leaders(&several.said[&leader]), before);
}

#[test]
fn the_log_has_proposals_in_the_order_of_their_calls() {
    let (mut several, leader) = Several::led(3);
    let ids: Vec<u128> = (1..=60).map(|id| id * 77 % 61 + 1).collect();
    for (count, id) in ids.iter().enumerate() {
        several.propose(leader, *id);
        if count == 30 {
            // A change of members has its place among them.
            let (voter, directory) = (VoterId(4), DirectoryId(4));
            several.change(leader, 500, Change::Add { voter, directory });
        }
        if count % 7 == 0 {
            several.propose(leader, ids[count / 2]);
            several.step();
        }
    }
    several.pass(5);
    let index = |id| several.answers(leader, id)[0].clone().unwrap();
    assert!(ids.windows(2).all(|two| index(two[0]) < index(two[1])));
    let change = index(500);
    assert!(index(ids[30]) < change && change < index(ids[31]));
    for id in 1..=3 {
        assert_eq!(several.payloads(id)[1..], ids);
    }
}

/// Everything was decided by a leader that died before it could say so.
#[test]
fn a_leader_says_when_it_has_applied_what_was_decided_before_it() {
    let (mut several, first) = Several::led(3);
    for id in 1..=5 {
        several.propose(first, id);
    }
    while several.answers(first, 5).is_empty() {
        assert!(several.step());
    }
    several.stop(first);
    several.wire.clear();
    let next = several.ids().into_iter();
    let before: Vec<_> = next.map(|id| several.payloads(id).len()).collect();
    assert_eq!(before, [1, 1], "nobody else has applied them");
    while several.leader().is_none() {
        if !several.step() {
            several.tick();
        }
    }
    let next = several.leader().unwrap();
    let term = several.running[&next].leader().0;
    // It takes a request before it has applied them.
    several.propose(next, 6);
    assert_eq!(several.payloads(next).len(), 1);
    several.pass(3);
    let leads = several.place(next, &Said::Leader(term, Some(next)));
    let ready = several.place(next, &Said::Ready(term));
    let said = &several.said[&next];
    let payloads = |said: &[Said]| {
        let each = said.iter().filter_map(|one| match one {
            Said::Apply(_, payload) => Some(*payload),
            _ => None,
        });
        each.collect::<Vec<_>>()
    };
    assert_eq!(payloads(&said[leads..ready]), [1, 2, 3, 4, 5]);
    assert_eq!(payloads(&said[ready..]), [6]);
    let count = said.iter().filter(|one| matches!(one, Said::Ready(_)));
    assert_eq!(count.count(), 1);
    // Followers are not ready for anything.
    let other = several.ids().into_iter().find(|id| *id != next).unwrap();
    let said = &several.said[&other];
    assert!(
        !said
            .iter()
            .any(|one| matches!(one, Said::Ready(now) if *now == term))
    );
}

/// How many requests a voter has answered `Ok`: each behind what it says.
fn answered(several: &Several, of: u64) -> usize {
    let (mut have, mut count) = (0, 0);
    for said in &several.said[&of] {
        match said {
            Said::Apply(index, _) | Said::Restore(index) => have = *index,
            Said::Answer(request, Ok(index)) => {
                assert!(*index <= have, "{of}: {request} is at {index} > {have}");
                count += 1;
            }
            _ => {}
        }
    }
    count
}

#[test]
fn a_request_is_answered_behind_its_apply_or_the_snapshot_that_has_it() {
    let (mut several, leader) = Several::led(3);
    let other = leader % 3 + 1;
    for id in 1..=50 {
        several.propose(leader, id);
        if id % 10 == 0 {
            several.pass(1);
        }
    }
    assert_eq!(answered(&several, leader), 51);
    // A follower answers what it has applied,
    several.propose(other, 50);
    several.propose(other, 51);
    assert_eq!(answered(&several, other), 1);
    // and a voter that comes back what its snapshot has.
    several.stop(other);
    several.start(other);
    assert!(matches!(several.said[&other][0], Said::Restore(10..)));
    several.propose(other, 1);
    assert_eq!(answered(&several, other), 1);
    assert!(!several.payloads(other).contains(&1));
}

/// The others have the entries, and the leader does not hear that. Another leads and decides them.
#[test]
fn what_is_open_is_answered_when_leadership_is_lost_and_not_again_when_it_is_applied() {
    let (mut several, first) = Several::led(3);
    for id in 1..=5 {
        several.propose(first, id);
    }
    several.deaf.push(first);
    while several.step() {}
    let others = several.ids().into_iter().filter(|id| *id != first);
    let others: Vec<_> = others.collect();
    several.silent.push(first);
    let next = several.elect();
    assert!(others.contains(&next));
    several.pass(3);
    assert_eq!(several.payloads(next)[1..], [1, 2, 3, 4, 5]);
    several.silent.clear();
    several.deaf.clear();
    several.pass(5);
    let said = &several.said[&first];
    let led = said.iter().position(|one| matches!(one, Said::Ready(_)));
    let mut lost = said.iter().skip(led.unwrap());
    let lost = lost.position(|one| matches!(one, Said::Leader(..)));
    let lost = led.unwrap() + lost.unwrap();
    for id in 1..=5 {
        assert_eq!(several.answers(first, id), [Err(Refused::Unknown)]);
        let answered = several.place(first, &Said::Answer(id, Err(Refused::Unknown)));
        let applied = said
            .iter()
            .position(|one| matches!(one, Said::Apply(_, of) if *of == id));
        assert!(answered < lost && lost < applied.unwrap(), "{said:?}");
    }
    // When they are tried again, they are known.
    several.propose(next, 1);
    assert!(several.answers(next, 1)[0].is_ok());
}
