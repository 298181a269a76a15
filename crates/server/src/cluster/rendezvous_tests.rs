//! What servers that are started together decide, case by case.

use super::fake_share::{Share, View};
use super::faults::{Fault, with};
use super::rank_file::{
    Membership, RECORD_FILE, RankFile, Record, RunId, cluster_of, rank_file_name,
};
use super::refused::{Absence, Contradiction, Refused, Waiting};
use super::rendezvous::{Arrival, Decision, Rendezvous, TAKEN_BACK_WITHIN};
use super::shared::{Published, Shared};
use crate::host::Host;
use cluster::{ClusterId, DirectoryId, VoterId};
use std::path::PathBuf;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

fn host() -> Host {
    Host {
        name: "node7".to_owned(),
        boot_id: String::new(),
    }
}

/// A server of four with three voters.
fn arrival(rank: u32, directory: u128) -> Arrival {
    Arrival {
        rank,
        size: 4,
        voters: 3,
        settings: Vec::new(),
        directory: DirectoryId(directory),
        peers: vec![format!("tls://node{rank}:{directory}")],
        endpoints: vec![vec![format!("tcp://node{rank}:1")]],
        member: None,
    }
}

fn member(cluster: ClusterId, voter: Option<u64>) -> Membership {
    let voter = voter.map(VoterId);
    Membership { cluster, voter }
}

struct Server {
    rendezvous: Rendezvous,
    view: View,
}

impl Server {
    fn enter(share: &Share, arrival: Arrival) -> Self {
        Self::try_enter(share, arrival).unwrap()
    }

    fn try_enter(share: &Share, arrival: Arrival) -> Result<Self, Refused> {
        let mut view = share.view();
        let rendezvous = Rendezvous::enter(arrival, &host(), &mut view)?;
        Ok(Self { rendezvous, view })
    }

    fn look(&mut self) -> Option<Decision> {
        self.rendezvous.look(&mut self.view).unwrap()
    }

    fn refused(&mut self) -> String {
        self.rendezvous
            .look(&mut self.view)
            .unwrap_err()
            .to_string()
    }

    fn waits(&mut self) -> Waiting {
        match self.rendezvous.meet(PATIENCE, &mut self.view) {
            Err(Refused::Waiting(waiting)) => *waiting,
            other => panic!("{other:?}"),
        }
    }

    fn announce(&mut self, member: Membership) {
        self.rendezvous.announce(member, &mut self.view).unwrap();
    }
}

/// Founders with data directories 10, 11 and 12, which have met; none has made its log.
fn met(share: &Share) -> Vec<Server> {
    let mut founders: Vec<_> = (0..3)
        .map(|rank| Server::enter(share, arrival(rank, 10 + u128::from(rank))))
        .collect();
    for _ in 0..2 {
        for founder in &mut founders {
            founder.look();
        }
    }
    founders
}

/// The cluster of those.
fn theirs() -> ClusterId {
    cluster_of(&[10, 11, 12].map(DirectoryId))
}

/// As [`met`], and all have announced.
fn founded(share: &Share) -> Vec<Server> {
    let mut founders = met(share);
    for (founder, voter) in founders.iter_mut().zip(1..) {
        founder.announce(member(theirs(), Some(voter)));
    }
    founders
}

fn voter_of(decision: Option<Decision>) -> (ClusterId, u64) {
    match decision {
        Some(Decision::Found { cluster, voter, .. }) => (cluster, voter.0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn founders_that_have_come_found_one_cluster_and_the_others_join_it() {
    let share = Share::default();
    let mut last = Server::enter(&share, arrival(3, 13));
    assert_eq!(last.look(), None);
    let mut founders = met(&share);
    for (founder, voter) in founders.iter_mut().zip(1..) {
        assert_eq!(voter_of(founder.look()), (theirs(), voter));
    }
    let Some(Decision::Found { founders: all, .. }) = founders[1].look() else {
        panic!();
    };
    let said: Vec<_> = all
        .iter()
        .map(|one| (one.voter.0, one.directory.0, one.peers[0].as_str()))
        .collect();
    let expected = [
        (1, 10, "tls://node0:10"),
        (2, 11, "tls://node1:11"),
        (3, 12, "tls://node2:12"),
    ];
    assert_eq!(said, expected);
    // Who is founding is no member yet.
    assert_eq!(last.look(), None);
    founders[2].announce(member(theirs(), Some(3)));
    let Some(Decision::Join { cluster, through }) = last.look() else {
        panic!();
    };
    assert_eq!(cluster, theirs());
    assert_eq!(through.len(), 1);
    assert_eq!(
        (through[0].rank, through[0].directory),
        (2, DirectoryId(12))
    );
    assert_eq!(through[0].peers, ["tls://node2:12"]);
}

#[test]
fn one_voter_founds_at_once() {
    let share = Share::default();
    let alone = Arrival {
        size: 1,
        voters: 1,
        ..arrival(0, 10)
    };
    let mut server = Server::enter(&share, alone);
    let decision = server.rendezvous.meet(Duration::ZERO, &mut server.view);
    let cluster = cluster_of(&[DirectoryId(10)]);
    assert_eq!(voter_of(decision.ok()), (cluster, 1));
}

#[test]
fn who_has_not_come_is_named_with_its_file_and_may_come_later() {
    let share = Share::default();
    let mut servers: Vec<_> = (0..2)
        .map(|rank| Server::enter(&share, arrival(rank, 10 + u128::from(rank))))
        .collect();
    let waiting = servers[0].waits();
    assert_eq!(waiting.waited, PATIENCE);
    assert_eq!(waiting.ranks.len(), 2);
    // Rank 1 has a file, but has not looked.
    assert!(matches!(waiting.ranks[0].why, Absence::Silent { .. }));
    assert_eq!(waiting.ranks[1].why, Absence::NoFile);
    let said = waiting.to_string();
    assert!(
        said.contains("rank 2, /shared/rank-2.json, has no file"),
        "{said}"
    );
    let process = std::process::id();
    let silent = format!("rank 1, /shared/rank-1.json, was written by process {process} on node7");
    assert!(said.contains(&silent), "{said}");
    servers[1].look();
    assert_eq!(servers[0].waits().ranks.len(), 1);
    servers.push(Server::enter(&share, arrival(2, 12)));
    for _ in 0..2 {
        for server in &mut servers {
            server.look();
        }
    }
    for (server, voter) in servers.iter_mut().zip(1..) {
        assert_eq!(voter_of(server.look()), (theirs(), voter));
    }
}

/// Files of a start that has waited for rank 2 until its end, and whose data directories are gone.
fn files_of_an_earlier_job(share: &Share) {
    for rank in 0..2 {
        let mut server = Server::enter(share, arrival(rank, 90 + u128::from(rank)));
        server.look();
    }
}

#[test]
fn files_of_an_earlier_job_are_no_founders() {
    let share = Share::default();
    files_of_an_earlier_job(&share);
    let mut servers: Vec<_> = [0, 2]
        .map(|rank| Server::enter(&share, arrival(rank, 10 + u128::from(rank))))
        .into();
    for _ in 0..3 {
        for server in &mut servers {
            assert_eq!(server.look(), None);
        }
    }
    let waiting = servers[0].waits();
    assert_eq!(waiting.ranks.len(), 1);
    assert_eq!(waiting.ranks[0].rank, 1);
    assert!(
        waiting.to_string().contains("an earlier start"),
        "{waiting}"
    );
    servers.insert(1, Server::enter(&share, arrival(1, 11)));
    for _ in 0..2 {
        for server in &mut servers {
            server.look();
        }
    }
    assert_eq!(voter_of(servers[2].look()), (theirs(), 3));
}

#[test]
fn a_stale_file_that_is_believed_founds_with_a_data_directory_that_is_gone() {
    with(Fault::StaleFileBelieved, || {
        let share = Share::default();
        files_of_an_earlier_job(&share);
        let mut servers = [0, 2].map(|rank| {
            let directory = 10 + u128::from(rank);
            Server::enter(&share, arrival(rank, directory))
        });
        let (cluster, _) = voter_of(servers[0].look());
        assert_eq!(cluster, cluster_of(&[10, 91, 12].map(DirectoryId)));
    });
}

#[test]
fn after_the_end_of_all_each_goes_on_and_waits_for_nobody() {
    let share = Share::default();
    drop(founded(&share));
    for rank in [2, 0] {
        let own = member(theirs(), Some(u64::from(rank) + 1));
        let arrival = Arrival {
            member: Some(own),
            ..arrival(rank, 10 + u128::from(rank))
        };
        let mut server = Server::enter(&share, arrival);
        assert_eq!(server.look(), Some(Decision::GoOn(own)));
    }
}

#[test]
fn a_founder_whose_data_directory_was_emptied_joins() {
    let share = Share::default();
    let _others = founded(&share);
    let mut wiped = Server::enter(&share, arrival(1, 99));
    let Some(Decision::Join { cluster, through }) = wiped.look() else {
        panic!();
    };
    assert_eq!(cluster, theirs());
    let ranks: Vec<_> = through.iter().map(|contact| contact.rank).collect();
    assert_eq!(ranks, [0, 2]);
    wiped.announce(member(cluster, None));
    let mut next = Server::enter(&share, arrival(0, 98));
    let Some(Decision::Join { through, .. }) = next.look() else {
        panic!();
    };
    assert_eq!(through[0].directory, DirectoryId(99));
}

#[test]
fn where_no_founder_is_a_member_any_more_another_rank_is_asked() {
    let share = Share::default();
    drop(founded(&share));
    let mut follower = Server::enter(&share, arrival(3, 13));
    assert!(matches!(follower.look(), Some(Decision::Join { .. })));
    follower.announce(member(theirs(), None));
    let wiped: Vec<_> = (0..3)
        .map(|rank| Server::enter(&share, arrival(rank, 90 + u128::from(rank))))
        .collect();
    for mut server in wiped {
        let Some(Decision::Join { through, .. }) = server.look() else {
            panic!();
        };
        assert_eq!(through.len(), 1);
        assert_eq!(through[0].rank, 3);
    }
}

#[test]
fn a_founder_that_died_before_it_made_its_log_founds_when_it_comes_back_elsewhere() {
    let share = Share::default();
    let mut founders = met(&share);
    founders[0].announce(member(theirs(), Some(1)));
    drop(founders);
    // The launcher has given its data directory another rank, and it has another address.
    let moved = Arrival {
        peers: vec!["tls://elsewhere:7".to_owned()],
        ..arrival(2, 11)
    };
    let mut back = Server::enter(&share, moved);
    let Some(Decision::Found {
        cluster,
        voter,
        founders,
    }) = back.look()
    else {
        panic!();
    };
    assert_eq!((cluster, voter), (theirs(), VoterId(2)));
    assert_eq!(founders[1].peers, ["tls://elsewhere:7"]);
    assert_eq!(founders[1].directory, DirectoryId(11));
    // Of whom there is no file any more, there is no address either.
    assert!(founders[2].peers.is_empty());
}

#[test]
fn a_voter_that_has_another_rank_and_address_is_found_by_its_data_directory() {
    let share = Share::default();
    drop(met(&share));
    let moved = Arrival {
        peers: vec!["tls://elsewhere:7".to_owned()],
        ..arrival(3, 11)
    };
    let _moved = Server::enter(&share, moved);
    let _other = Server::enter(&share, arrival(1, 99));
    let mut first = Server::enter(&share, arrival(0, 10));
    let Some(Decision::Found { founders, .. }) = first.look() else {
        panic!();
    };
    assert_eq!(founders[1].peers, ["tls://elsewhere:7"]);
    let contacts = first.rendezvous.contacts(&mut first.view).unwrap();
    let ranks: Vec<_> = contacts
        .iter()
        .map(|one| (one.rank, one.directory.0))
        .collect();
    assert_eq!(ranks, [(1, 99), (2, 12), (3, 11)]);
    assert_eq!(contacts[2].peers, ["tls://elsewhere:7"]);
}

#[test]
fn a_founder_that_came_back_before_the_founding_has_the_address_of_today() {
    let share = Share::default();
    let mut servers: Vec<_> = (0..2)
        .map(|rank| Server::enter(&share, arrival(rank, 10 + u128::from(rank))))
        .collect();
    for server in &mut servers {
        server.look();
    }
    let moved = Arrival {
        peers: vec!["tls://elsewhere:7".to_owned()],
        ..arrival(1, 11)
    };
    servers[1] = Server::enter(&share, moved);
    servers.push(Server::enter(&share, arrival(2, 12)));
    for _ in 0..2 {
        for server in &mut servers {
            server.look();
        }
    }
    let Some(Decision::Found {
        cluster, founders, ..
    }) = servers[0].look()
    else {
        panic!();
    };
    assert_eq!(cluster, theirs());
    assert_eq!(founders[1].peers, ["tls://elsewhere:7"]);
}

#[test]
fn settings_that_differ_are_named_on_both_sides() {
    for (other, what) in [
        (
            Arrival {
                size: 5,
                ..arrival(1, 11)
            },
            "the number of servers is 4 here and 5 in /shared/rank-1.json",
        ),
        (
            Arrival {
                settings: vec![("name", "b".to_owned())],
                ..arrival(1, 11)
            },
            "the hash of the cluster's settings is ",
        ),
        (
            arrival(1, 10),
            "rank 1 has the data directory of this server",
        ),
    ] {
        let share = Share::default();
        let mut one = Server::enter(&share, arrival(0, 10));
        let mut other = Server::enter(&share, other);
        // Nobody is refused for a file that may be of an earlier job.
        assert_eq!(one.look(), None);
        let refused = other.refused();
        assert!(refused.contains("rank-0.json"), "{refused}");
        let refused = one.refused();
        assert!(refused.contains(what), "{refused}");
    }
    let share = Share::default();
    drop(founded(&share));
    let other = Arrival {
        voters: 1,
        ..arrival(3, 13)
    };
    let refused = Server::enter(&share, other).refused();
    let said = "the number of voters is 1 here and 3 in /shared/cluster.json";
    assert!(refused.contains(said), "{refused}");
}

#[test]
fn a_rank_that_a_server_with_another_data_directory_has_is_refused() {
    let share = Share::default();
    let mut one = Server::enter(&share, arrival(0, 10));
    let file = share.latest("rank-0.json");
    let mut second = Server::enter(&share, arrival(0, 99));
    assert_ne!(share.latest("rank-0.json"), file);
    // Whether it waits or serves, it takes its file back when it looks at that.
    assert_eq!(one.look(), None);
    assert_eq!(share.latest("rank-0.json"), file);
    let refused = second.refused();
    let process = std::process::id();
    let directory = DirectoryId(10);
    let said = format!(
        "rank 0 is in use: process {process} on node7, with data directory {directory}, runs, and /shared/rank-0.json"
    );
    assert!(refused.contains(&said), "{refused}");
    // Also where the second one has looked at others meanwhile.
    let mut third = Server::enter(&share, arrival(0, 98));
    let mut other = Server::enter(&share, arrival(1, 11));
    other.look();
    assert_eq!(third.look(), None);
    one.rendezvous.check(&mut one.view).unwrap();
    assert!(third.refused().contains("is in use"));
    // One that has ended does not.
    drop(one);
    let mut fourth = Server::enter(&share, arrival(0, 97));
    for server in [&mut other, &mut fourth] {
        server.waits();
    }
    assert_eq!(share.latest("rank-2.json"), None);
}

#[test]
fn a_server_that_has_replaced_anothers_file_waits_for_it_to_be_taken_back() {
    let share = Share::default();
    drop(founded(&share));
    let waited = |arrival: Arrival| {
        let mut server = Server::enter(&share, arrival);
        let decision = server.rendezvous.meet(PATIENCE, &mut server.view);
        assert!(matches!(decision, Ok(Decision::Join { .. })));
        server.view.now()
    };
    assert_eq!(waited(arrival(3, 13)), Duration::ZERO);
    assert_eq!(waited(arrival(3, 13)), Duration::ZERO);
    assert!(waited(arrival(3, 99)) >= TAKEN_BACK_WITHIN);
}

#[test]
fn a_rank_that_is_started_twice_is_refused() {
    let share = Share::default();
    let mut one = Server::enter(&share, arrival(0, 10));
    // The lock of the data directory was taken over.
    let mut twin = Server::enter(&share, arrival(0, 10));
    let refused = one.refused();
    assert!(refused.contains("rank 0 is started twice"), "{refused}");
    assert!(
        refused.contains("0000000a, has replaced /shared/rank-0.json"),
        "{refused}"
    );
    assert_eq!(twin.look(), None);
    // Also one that serves, if it looks after its file; one that was removed is written again.
    let share = Share::default();
    let mut serving = Server::enter(&share, arrival(0, 10));
    share.remove("rank-0.json");
    serving.rendezvous.check(&mut serving.view).unwrap();
    assert!(share.latest("rank-0.json").is_some());
    // One that it did not see in time is there to stay.
    let mut late = Server::enter(&share, arrival(0, 99));
    late.announce(member(theirs(), None));
    let refused = serving.rendezvous.check(&mut serving.view).unwrap_err();
    assert!(refused.to_string().contains("is started twice"));
}

#[test]
fn a_member_of_another_cluster_is_refused() {
    let share = Share::default();
    drop(founded(&share));
    let foreign = Arrival {
        member: Some(member(ClusterId(5), Some(1))),
        ..arrival(1, 99)
    };
    let refused = Server::enter(&share, foreign).refused();
    assert!(
        refused.contains("is of cluster 00000000000000000000000000000005"),
        "{refused}"
    );
    let there = format!("/shared/cluster.json is of cluster {:032x}", theirs().0);
    assert!(refused.contains(&there), "{refused}");
}

/// A member whose data directory has its id still, and nothing of the cluster.
fn lost_log(share: &Share) -> Result<Server, Refused> {
    drop(founded(share));
    Server::try_enter(share, arrival(1, 11))
}

#[test]
fn a_member_that_has_lost_its_log_is_refused_and_changes_nothing() {
    let share = Share::default();
    let Err(Refused::Contradiction(contradiction)) = lost_log(&share) else {
        panic!();
    };
    let Contradiction::LostLog { path, .. } = *contradiction else {
        panic!("{contradiction}");
    };
    assert_eq!(path, PathBuf::from("/shared/rank-1.json"));
    let file = RankFile::read(&share.latest("rank-1.json").unwrap(), 1).unwrap();
    assert_eq!(file.member, Some(member(theirs(), Some(2))));
    // Nor under another rank.
    let mut moved = Server::enter(&share, arrival(0, 11));
    let refused = moved.refused();
    assert!(refused.contains("restored or emptied"), "{refused}");
}

#[test]
fn a_lost_log_that_is_ignored_is_noticed() {
    with(Fault::LostLogIgnored, || {
        let mut again = lost_log(&Share::default()).ok().unwrap();
        assert_eq!(voter_of(again.look()), (theirs(), 2), "it votes once more");
    });
}

#[test]
fn a_directory_that_is_used_again_for_new_data_directories_says_whose_it_is() {
    let share = Share::default();
    drop(founded(&share));
    let mut servers: Vec<_> = (0..4)
        .map(|rank| Server::enter(&share, arrival(rank, 90 + u128::from(rank))))
        .collect();
    for server in &mut servers {
        assert_eq!(server.look(), None);
    }
    for server in &mut servers {
        let said = server.waits().to_string();
        let whose = format!(
            "/shared/cluster.json says that the directory is for cluster {:032x}",
            theirs().0
        );
        assert!(said.contains(&whose), "{said}");
        assert!(said.contains("another --cluster directory"), "{said}");
        assert!(said.contains("is no member yet"), "{said}");
    }
    // Where an operator has removed the record alone, what else lies there does not matter.
    share.remove(RECORD_FILE);
    for _ in 0..3 {
        for server in &mut servers {
            server.look();
        }
    }
    let cluster = cluster_of(&[90, 91, 92].map(DirectoryId));
    assert_eq!(voter_of(servers[0].look()), (cluster, 1));
}

#[test]
fn members_make_an_empty_directory_that_of_their_cluster() {
    let share = Share::default();
    let cluster = ClusterId(5);
    let own = member(cluster, Some(7));
    let mut wiped: Vec<_> = [0, 2]
        .map(|rank| Server::enter(&share, arrival(rank, 90 + u128::from(rank))))
        .into();
    let arrival = Arrival {
        member: Some(own),
        ..arrival(1, 11)
    };
    let mut kept = Server::enter(&share, arrival);
    assert_eq!(kept.look(), Some(Decision::GoOn(own)));
    let record = Record::read(&share.latest(RECORD_FILE).unwrap()).unwrap();
    assert_eq!(record.cluster, cluster);
    assert!(record.founders.is_empty());
    for server in &mut wiped {
        assert!(matches!(server.look(), Some(Decision::Join { .. })));
    }
}

#[test]
fn what_cannot_be_read_is_named_and_the_record_at_once() {
    let share = Share::default();
    let mut view = share.view();
    view.replace("rank-0.json", "{\"format\": 2}").unwrap();
    let Err(refused) = Server::try_enter(&share, arrival(0, 10)) else {
        panic!();
    };
    let said = refused.to_string();
    assert!(
        said.contains("/shared/rank-0.json") && said.contains("same version"),
        "{said}"
    );
    let mut other = Server::enter(&share, arrival(1, 11));
    let said = other.waits().to_string();
    assert!(
        said.contains("rank 0, /shared/rank-0.json, cannot be read"),
        "{said}"
    );
    view.replace(RECORD_FILE, "").unwrap();
    let said = other.refused();
    assert!(said.contains("/shared/cluster.json"), "{said}");
}

#[test]
fn there_are_no_servers_that_cannot_be() {
    for (rank, size, voters, why) in [
        (4, 4, 3, "rank 4 is not below"),
        (0, 4, 2, "1, 3 or 5 voters, not 2"),
        (0, 4, 5, "needs 5 servers, and 4 are started"),
    ] {
        let arrival = Arrival {
            size,
            voters,
            ..arrival(rank, 10)
        };
        let Err(refused) = Server::try_enter(&Share::default(), arrival) else {
            panic!();
        };
        assert!(refused.to_string().contains(why), "{refused}");
    }
}

/// A directory where another process publishes the record for ever, or has, unseen.
struct Stuck(View, Published);

impl Shared for Stuck {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    fn read(&mut self, name: &str) -> Result<Option<String>, crate::ServerError> {
        self.0.read(name)
    }

    fn replace(&mut self, name: &str, text: &str) -> Result<(), crate::ServerError> {
        self.0.replace(name, text)
    }

    fn publish(&mut self, _: &str, _: &str) -> Result<Published, crate::ServerError> {
        Ok(self.1.clone())
    }

    fn now(&mut self) -> Duration {
        self.0.now()
    }

    fn wait(&mut self, time: Duration) -> bool {
        self.0.wait(time)
    }
}

#[test]
fn a_record_that_does_not_come_is_explained() {
    let begun = Published::Begun {
        marker: PathBuf::from("/shared/cluster.json.made"),
        by: "node3.5".to_owned(),
    };
    for (published, part) in [
        (
            begun,
            "process node3.5 had not written /shared/cluster.json: if that process is dead, remove /shared/cluster.json.made",
        ),
        (Published::Exists, "wait longer"),
    ] {
        let alone = Arrival {
            size: 1,
            voters: 1,
            ..arrival(0, 10)
        };
        let mut stuck = Stuck(Share::default().view(), published);
        let mut server = Rendezvous::enter(alone, &host(), &mut stuck).unwrap();
        let said = server.meet(PATIENCE, &mut stuck).unwrap_err().to_string();
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn the_files_of_a_start_are_those_of_the_page() {
    let share = Share::default();
    drop(met(&share));
    let file = RankFile::read(&share.latest(&rank_file_name(1)).unwrap(), 1).unwrap();
    assert_eq!((file.rank, file.size, file.voters), (1, 4, 3));
    assert_eq!(file.endpoints, [["tcp://node1:1"]]);
    assert_eq!((file.host.as_str(), file.member), ("node7", None));
    let heard: Vec<_> = file.heard.keys().copied().collect();
    assert_eq!(heard, [0, 2]);
    assert_ne!(file.run, RunId(0));
    let record = Record::read(&share.latest(RECORD_FILE).unwrap()).unwrap();
    assert_eq!(record, Record::of([10, 11, 12].map(DirectoryId).into()));
}
