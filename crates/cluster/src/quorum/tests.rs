//! One voter by itself, over a faulty disk; what several promise; and what a proposal costs three.

mod promises;

use super::*;
use log::testing::{Fault as DiskFault, FaultyDisk};
use log::{Disk, FileId, Operation, Outcome};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const DIRECTORY: &str = "/quorum";

fn identity(voter: u64) -> Identity {
    Identity {
        cluster: ClusterId(0xc1),
        voter: VoterId(voter),
        directory: DirectoryId(u128::from(0xd0 + voter)),
    }
}

fn founders(count: u64) -> Vec<(VoterId, DirectoryId)> {
    let each = (1..=count).map(identity);
    each.map(|one| (one.voter, one.directory)).collect()
}

fn empty_disk() -> FaultyDisk {
    let disk = FaultyDisk::new();
    let path = PathBuf::from(DIRECTORY);
    disk.execute(Operation::CreateDirectory { path }).unwrap();
    let path = PathBuf::from("/");
    disk.execute(Operation::SyncDirectory { path }).unwrap();
    disk
}

fn found_on(disk: &FaultyDisk, voter: u64, count: u64) {
    let path = Path::new(DIRECTORY);
    found(disk, path, identity(voter), &founders(count), 7).unwrap();
}

fn recover_on(disk: &FaultyDisk) -> Result<Recovered, RecoveryError> {
    recover(disk, Path::new(DIRECTORY), identity(1))
}

/// The only voter of a cluster, whose disk does at once what it is to do.
struct Alone {
    disk: FaultyDisk,
    quorum: Quorum,
    now: Duration,
    answers: Vec<(RequestId, Result<u64, Refused>)>,
    applied: Vec<Bytes>,
    failed: Option<String>,
}

impl Alone {
    fn founded() -> Self {
        let disk = empty_disk();
        found_on(&disk, 1, 1);
        Self::opened(disk)
    }

    fn opened(disk: FaultyDisk) -> Self {
        let recovered = recover_on(&disk).unwrap();
        let now = Duration::from_secs(5);
        let settings = Settings {
            snapshot_entries: 50,
            trailing_entries: 5,
            ..Settings::default()
        };
        let mut alone = Self {
            quorum: Quorum::open(settings, 1, now, recovered).unwrap(),
            disk,
            now,
            answers: Vec::new(),
            applied: Vec::new(),
            failed: None,
        };
        alone.outputs();
        alone.pass(Duration::from_secs(2));
        alone
    }

    fn outputs(&mut self) {
        while let Some(output) = self.quorum.poll_output() {
            match output {
                Output::Disk { token, operation } => {
                    let result = self.disk.execute(operation);
                    self.quorum
                        .handle(self.now, Input::DiskDone { token, result });
                }
                Output::Apply { payload, .. } => self.applied.push(payload),
                Output::Restore { bytes, .. } => {
                    let payloads = bytes.chunks(8).map(Bytes::copy_from_slice);
                    self.applied = payloads.collect();
                }
                Output::TakeSnapshot { upto: index } => {
                    let bytes = self.applied.concat().into();
                    self.handle(Input::Snapshot { index, bytes });
                }
                Output::Answer { request, result } => self.answers.push((request, result)),
                Output::Failed(reason) => self.failed = Some(reason),
                Output::Send { .. }
                | Output::Leader { .. }
                | Output::LeaderReady { .. }
                | Output::Removed => {}
            }
        }
    }

    fn handle(&mut self, input: Input) {
        self.quorum.handle(self.now, input);
        self.outputs();
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = self.quorum.next_timer().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.handle(Input::Timer);
        }
        self.now = end;
    }

    /// Proposes a payload of eight bytes.
    fn propose(&mut self, id: u64) {
        self.handle(Input::Propose {
            request: RequestId(id.into()),
            payload: id.to_le_bytes().to_vec().into(),
        });
    }

    fn last_answer(&self) -> &Result<u64, Refused> {
        &self.answers.last().unwrap().1
    }

    fn log_file(&self) -> (PathBuf, Vec<u8>) {
        let path = self.disk.paths().pop().unwrap();
        let bytes = self.disk.content(&path).unwrap();
        (path, bytes)
    }
}

#[test]
fn what_was_answered_is_applied_again_after_a_restart() {
    let mut alone = Alone::founded();
    for id in 1..=180 {
        alone.propose(id);
        assert!(
            alone.last_answer().is_ok(),
            "{id}: {:?}",
            alone.last_answer()
        );
    }
    let applied = alone.applied.clone();
    assert_eq!(applied.len(), 180);
    assert_eq!(alone.disk.paths().len(), 1, "old files are removed");
    alone.disk.power_loss(log::testing::Survival::Nothing);
    let mut again = Alone::opened(alone.disk);
    assert_eq!(again.applied, applied);
    // And a request of before is known.
    let before = alone.answers[20].1.clone();
    again.propose(21);
    assert_eq!(*again.last_answer(), before);
    assert_eq!(again.applied, applied);
}

#[test]
fn a_request_that_comes_twice_is_applied_once_and_answered_twice() {
    let mut alone = Alone::founded();
    let request = RequestId(1);
    for _ in 0..2 {
        let payload = Bytes::from_static(b"12345678");
        alone
            .quorum
            .handle(alone.now, Input::Propose { request, payload });
    }
    alone.outputs();
    assert_eq!(alone.answers.len(), 2);
    assert_eq!(alone.answers[0], alone.answers[1]);
    assert_eq!(alone.applied.len(), 1);
}

#[test]
fn a_payload_that_is_too_large_is_refused() {
    let mut alone = Alone::founded();
    let request = RequestId(1);
    let payload = Bytes::from(vec![0; PAYLOAD_BYTES_MAX + 1]);
    alone.handle(Input::Propose { request, payload });
    assert_eq!(*alone.last_answer(), Err(Refused::TooLarge));
    let payload = Bytes::from(vec![0; PAYLOAD_BYTES_MAX]);
    alone.handle(Input::Propose { request, payload });
    assert!(alone.last_answer().is_ok());
}

#[test]
fn a_full_disk_refuses_and_goes_on_when_there_is_space() {
    let mut alone = Alone::founded();
    alone.propose(1);
    let used = alone.log_file().1.len() as u64;
    alone.disk.set_space(Some(used + 20));
    alone.propose(2);
    assert_eq!(alone.answers.len(), 1, "it is under way");
    alone.propose(3);
    assert_eq!(*alone.last_answer(), Err(Refused::Full));
    alone.pass(Duration::from_secs(3));
    alone.disk.set_space(None);
    alone.pass(Duration::from_secs(3));
    assert_eq!(alone.answers.last().unwrap().0, RequestId(2));
    assert!(alone.last_answer().is_ok());
    alone.propose(3);
    assert!(alone.last_answer().is_ok());
    assert!(alone.failed.is_none());
}

/// The log is long, and the snapshot that would make it short comes when there is no space for what is
/// to be written next.
#[test]
fn a_full_disk_gets_space_from_a_log_that_a_snapshot_makes_shorter() {
    let mut alone = Alone::founded();
    for id in 1..=45 {
        alone.propose(id);
    }
    let (path, bytes) = alone.log_file();
    let used = bytes.len() as u64;
    // Less than the log, and more than a snapshot of it.
    let payload = Bytes::from(vec![7; used as usize - 100]);
    alone.disk.set_space(Some(2 * used - 200));
    let request = RequestId(100);
    alone.handle(Input::Propose { request, payload });
    alone.pass(Duration::from_secs(5));
    assert!(alone.failed.is_none());
    assert_eq!(alone.answers.last().unwrap().0, request);
    assert!(alone.last_answer().is_ok());
    assert_ne!(alone.log_file().0, path);
    assert_eq!(alone.disk.paths().len(), 1, "the old file is removed");
    alone.propose(101);
    assert!(alone.last_answer().is_ok(), "{:?}", alone.last_answer());
    // And it is all there at the next start.
    let applied = alone.applied.concat();
    alone.disk.set_space(None);
    alone.disk.power_loss(log::testing::Survival::Nothing);
    let again = Alone::opened(alone.disk);
    assert_eq!(again.applied.concat(), applied);
}

/// A new file finds no space either: it is tried again and again, and so is the write.
#[test]
fn a_disk_without_any_space_is_tried_until_there_is_some() {
    let mut alone = Alone::founded();
    for id in 1..=45 {
        alone.propose(id);
    }
    let (path, bytes) = alone.log_file();
    alone.disk.set_space(Some(bytes.len() as u64));
    alone.propose(46);
    alone.pass(Duration::from_secs(10));
    assert!(alone.failed.is_none());
    assert_eq!(alone.log_file().0, path);
    alone.disk.set_space(None);
    alone.pass(Duration::from_secs(3));
    assert_eq!(alone.answers.last().unwrap().0, RequestId(46));
    assert!(alone.last_answer().is_ok());
    assert_ne!(alone.log_file().0, path);
    assert_eq!(alone.disk.paths().len(), 1);
    let applied = alone.applied.concat();
    alone.disk.power_loss(log::testing::Survival::Nothing);
    let again = Alone::opened(alone.disk);
    assert_eq!(again.applied.concat(), applied);
}

/// A voter that has lost its directory asks under its id, and the answer comes to the member.
#[test]
fn that_another_directory_is_gone_is_nothing_to_a_member() {
    for (directory, is_removed) in [(DirectoryId(0xdead), false), (identity(1).directory, true)] {
        let disk = empty_disk();
        found_on(&disk, 1, 3);
        let recovered = recover_on(&disk).unwrap();
        let now = Duration::from_secs(1);
        let mut quorum = Quorum::open(Settings::default(), 1, now, recovered).unwrap();
        let body = Body::Gone(directory);
        let (from, to) = (identity(2), VoterId(1));
        let bytes = Envelope { from, to, body }.to_bytes().into();
        let from = VoterId(2);
        quorum.handle(now, Input::Message { from, bytes });
        let outputs: Vec<_> = std::iter::from_fn(|| quorum.poll_output()).collect();
        let removed = outputs.iter().any(|one| matches!(one, Output::Removed));
        assert_eq!(removed, is_removed);
    }
}

#[test]
fn a_failed_sync_fails_the_voter_and_loses_nothing_that_was_answered() {
    let mut alone = Alone::founded();
    alone.propose(1);
    // The write, then the sync.
    let sync = alone.disk.operation_count() + 1;
    alone.disk.fail_at(sync, DiskFault::Error);
    alone.propose(2);
    assert_eq!(*alone.last_answer(), Err(Refused::Unknown));
    let reason = alone.failed.clone().unwrap();
    assert!(reason.contains("syncing /quorum/quorum-2.log"), "{reason}");
    assert_eq!(alone.quorum.next_timer(), None);
    alone.propose(3);
    assert_eq!(*alone.last_answer(), Err(Refused::NotLeader { hint: None }));
    // The process starts again and reads what no sync will ever cover; then power is lost.
    alone.disk.kill();
    let again = Alone::opened(alone.disk);
    let found = again.applied.clone();
    again.disk.power_loss(log::testing::Survival::Nothing);
    let last = Alone::opened(again.disk);
    assert_eq!(last.applied, found);
    assert!(!found.is_empty());
}

#[test]
fn a_tail_that_was_never_synced_is_cut_wherever_it_tore() {
    let mut alone = Alone::founded();
    alone.propose(1);
    let before = alone.log_file().1.len();
    alone.propose(2);
    let (path, bytes) = alone.log_file();
    for length in 0..bytes.len() {
        let disk = alone.disk.fork();
        disk.kill();
        let Ok(Outcome::File(file)) = disk.execute(Operation::Open { path: path.clone() }) else {
            unreachable!("it is there");
        };
        let bytes = length as u64;
        disk.execute(Operation::SetLength { file, bytes }).unwrap();
        match recover_on(&disk) {
            Ok(recovered) if length > before => {
                assert_eq!(recovered.entries.len(), 2, "the blank one and one more");
                let cut = recovered.cut().unwrap();
                assert_eq!((cut.1, cut.2), (before as u64, (length - before) as u64));
            }
            Ok(recovered) if length == before => assert!(recovered.cut().is_none()),
            Ok(_) => assert!(length > FILE_HEADER_BYTES + FRAME_HEADER_BYTES),
            Err(RecoveryError::Damaged { .. }) => assert!(length < before),
            Err(other) => panic!("{length} bytes: {other}"),
        }
    }
}

#[test]
fn damage_with_a_later_write_behind_it_is_said_and_not_repaired() {
    let mut alone = Alone::founded();
    alone.propose(1);
    let before = alone.log_file().1.len();
    for id in 2..=4 {
        alone.propose(id);
    }
    let (path, bytes) = alone.log_file();
    let last = bytes.len() - (bytes.len() - before) / 3;
    for at in (0..bytes.len()).step_by(3) {
        let disk = alone.disk.fork();
        disk.kill();
        disk.flip_bit(&path, at as u64 * 8 + 3);
        match recover_on(&disk) {
            Ok(recovered) => {
                assert!(at >= last, "byte {at} of {}", bytes.len());
                assert!(recovered.cut().is_some());
            }
            Err(error @ RecoveryError::Damaged { .. }) => {
                assert!(at < last, "byte {at}: {error}");
                let text = error.to_string();
                assert!(text.contains("quorum-2.log is damaged at byte"), "{text}");
                assert_eq!(disk.paths().len(), 1);
            }
            Err(other) => panic!("byte {at}: {other}"),
        }
    }
}

#[test]
fn the_log_of_another_is_refused() {
    let disk = empty_disk();
    let path = Path::new(DIRECTORY);
    let none = recover_on(&disk).unwrap_err();
    assert!(
        none.to_string()
            .contains("found a cluster with it, or join")
    );
    found_on(&disk, 1, 3);
    let twice = join(&disk, path, identity(1), 1).unwrap_err();
    assert!(twice.to_string().contains("not founded again"), "{twice}");
    let other_cluster = Identity {
        cluster: ClusterId(9),
        ..identity(1)
    };
    let other_directory = Identity {
        directory: DirectoryId(9),
        ..identity(1)
    };
    for other in [identity(2), other_cluster, other_directory] {
        let refused = recover(&disk, path, other).unwrap_err();
        assert!(refused.to_string().contains("use that one's directory"));
    }
    recover(&disk, path, identity(1)).unwrap();
}

/// Prints what three voters do for a proposal, with disks and links that take no time.
#[test]
fn what_a_proposal_costs() {
    const PROPOSALS: u64 = 5000;
    const AT_ONCE: u64 = 64;
    let mut voters = BTreeMap::new();
    for id in 1..=3 {
        let disk = empty_disk();
        found_on(&disk, id, 3);
        let recovered = recover(&disk, Path::new(DIRECTORY), identity(id)).unwrap();
        let quorum = Quorum::open(Settings::default(), id, Duration::ZERO, recovered).unwrap();
        voters.insert(VoterId(id), quorum);
    }
    let mut now = Duration::ZERO;
    let (mut answered, mut syncs) = (0, 0);
    let mut settle = |voters: &mut BTreeMap<VoterId, Quorum>, now: Duration| {
        let mut answers = 0;
        loop {
            let mut inputs = Vec::new();
            for (&id, quorum) in voters.iter_mut() {
                while let Some(output) = quorum.poll_output() {
                    match output {
                        Output::Send { to, bytes } => {
                            inputs.push((to, Input::Message { from: id, bytes }));
                        }
                        Output::Disk { token, operation } => {
                            let outcome = match operation {
                                Operation::Create { .. } => Outcome::File(FileId(99)),
                                _ => Outcome::Done,
                            };
                            syncs += u64::from(matches!(operation, Operation::SyncData { .. }));
                            let result = Ok(outcome);
                            inputs.push((id, Input::DiskDone { token, result }));
                        }
                        Output::Answer { result, .. } => answers += u64::from(result.is_ok()),
                        _ => {}
                    }
                }
            }
            if inputs.is_empty() {
                return answers;
            }
            for (to, input) in inputs {
                voters.get_mut(&to).unwrap().handle(now, input);
            }
        }
    };
    while !voters.values().any(Quorum::leads) {
        now += Duration::from_millis(100);
        for quorum in voters.values_mut() {
            quorum.handle(now, Input::Timer);
        }
        settle(&mut voters, now);
    }
    let leader = *voters.iter().find(|(_, one)| one.leads()).unwrap().0;
    let began = std::time::Instant::now();
    for first in (0..PROPOSALS).step_by(AT_ONCE as usize) {
        for id in first..(first + AT_ONCE).min(PROPOSALS) {
            let request = RequestId(u128::from(id) + 1);
            let payload = Bytes::from(vec![1; 200]);
            let quorum = voters.get_mut(&leader).unwrap();
            quorum.handle(now, Input::Propose { request, payload });
        }
        answered += settle(&mut voters, now);
    }
    let cost = began.elapsed().as_secs_f64() * 1e6 / PROPOSALS as f64;
    assert_eq!(answered, PROPOSALS);
    println!("{cost:.1} us a proposal of 200 bytes, three voters together, {syncs} syncs");
}
