//! Members of a group that join, leave, fall silent, come back and are killed
//! with the server, under a seed; what must hold is looked at after each step.

use super::harness::*;
use super::members::group;
use super::topics::alter;
use crate::Fault;
use crate::node::LinkId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::message::*;
use wire::*;

const SECOND: Duration = Duration::from_secs(1);

struct Storm {
    ground: Ground,
    world: World,
    topic: TopicId,
    partitions: u32,
    /// Connections of members, with their memberships.
    members: BTreeMap<u128, (LinkId, u64)>,
    /// Everybody who ever was a member.
    ever: BTreeSet<u128>,
    /// The greatest position that was confirmed for each partition.
    confirmed: BTreeMap<u32, u64>,
    state: u64,
}

impl Storm {
    fn new(seed: u64, fault: Option<Fault>) -> Self {
        let mut ground = Ground {
            fault,
            ..Ground::new()
        };
        ground.limits.internal_bytes_max = 16 * 1024;
        let mut world = ground.start();
        let link = world.connect();
        let topic = world.topic_of(link, 5);
        for partition in 0..5 {
            let events = vec!["e"; 200];
            world.stored_in(link, topic, partition, &events);
        }
        Self {
            ground,
            world,
            topic,
            partitions: 5,
            members: BTreeMap::new(),
            ever: BTreeSet::new(),
            confirmed: BTreeMap::new(),
            state: seed,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn some_member(&mut self) -> Option<(u128, LinkId, u64)> {
        let count = self.members.len() as u64;
        let place = (count > 0).then(|| self.below(count))?;
        let (member, (link, membership)) = self.members.iter().nth(place as usize)?;
        Some((*member, *link, *membership))
    }

    /// Ids come back now and then, as after a lost connection; some of them
    /// are static.
    fn join(&mut self) {
        let member = 10 + u128::from(self.below(8));
        let link = self.world.connect();
        let instance = match member % 4 {
            0 => format!("instance {}", self.below(2)),
            _ => String::new(),
        };
        let join = Join {
            instance,
            session_timeout_ms: 2000,
            options: r#"{"revoke_timeout_ms":3000}"#.into(),
            ..group(member)
        };
        let id = self
            .world
            .request(link, Method::Join, self.topic, &join, &[]);
        self.members.insert(member, (link, id));
        self.ever.insert(member);
    }

    fn step(&mut self) {
        let picked = self.some_member();
        match (self.below(100), picked) {
            (0..12, _) => self.join(),
            (12..16, Some((member, link, _))) => {
                self.world.disconnect(link);
                self.members.remove(&member);
            }
            (16..20, Some((member, link, _))) => {
                let leave = Leave {
                    consumer: "g".into(),
                    member: MemberId(member),
                };
                let topic = self.topic;
                self.world.request(link, Method::Leave, topic, &leave, &[]);
                self.members.remove(&member);
            }
            (20..35, Some((member, link, membership))) => {
                let (_, revoking) = self.world.assigned(link, membership);
                let release = Release {
                    consumer: "g".into(),
                    member: MemberId(member),
                    partitions: revoking.into_iter().map(PartitionIndex).collect(),
                };
                let topic = self.topic;
                self.world
                    .request(link, Method::Release, topic, &release, &[]);
            }
            (35..50, _) => {
                let time = Duration::from_millis(self.below(900));
                self.world.pass(time);
            }
            (50..65, _) => {
                let links: Vec<LinkId> = self.members.values().map(|(link, _)| *link).collect();
                for link in links {
                    // Some are stopped for a while.
                    if self.below(4) > 0 {
                        self.world.breathe(link);
                    }
                }
            }
            (65..67, _) => self.restart(),
            (67..70, _) => self.world.hold_disk = true,
            (70..75, _) => self.world.release_disk(),
            // Records are refused for a while.
            (75..77, _) => self.ground.disk.set_space(Some(0)),
            (77..81, _) => self.ground.disk.set_space(None),
            _ => {}
        }
    }

    fn restart(&mut self) {
        self.ground.disk.set_space(None);
        self.ground.kill();
        self.world = self.ground.start();
        self.members.clear();
    }

    /// No two members that stand are told of one partition.
    fn check_owners(&self) -> Result<(), String> {
        let mut owners: BTreeMap<u32, u128> = BTreeMap::new();
        for (member, (link, membership)) in &self.members {
            let over = self.world.links[link].closed.is_some()
                || self.world.ended(*link, *membership).is_some();
            if over {
                continue;
            }
            for partition in self.world.assigned(*link, *membership).0 {
                if let Some(other) = owners.insert(partition, *member) {
                    return Err(format!("{partition} is {member}'s and {other}'s"));
                }
            }
        }
        Ok(())
    }

    /// Everybody who was ever a member tries to move a cursor, forwards or to
    /// where an older one was: it counts from one at most, the owner.
    fn check_positions(&mut self) -> Result<(), String> {
        if self.world.hold_disk {
            return Ok(());
        }
        let watcher = self.world.connect();
        let partition = self.below(self.partitions.into()) as u32;
        let members: Vec<u128> = self.ever.iter().copied().collect();
        let before = self.confirmed.get(&partition).copied().unwrap_or(0);
        let mut takers = BTreeSet::new();
        for member in members {
            let forward = before + 1 + self.below(3);
            let to = if self.below(3) == 0 {
                before / 2
            } else {
                forward.min(200)
            };
            let topic = self.topic;
            match self
                .world
                .acknowledges(watcher, topic, member, (partition, to))
            {
                Ok(()) => {
                    takers.insert(member);
                    let confirmed = self.confirmed.entry(partition).or_default();
                    *confirmed = to.max(*confirmed);
                }
                Err(error) if error.code == ErrorCode::MemberFenced => {}
                Err(error) if error.code == ErrorCode::UnknownConsumer => {}
                Err(error) if error.code == ErrorCode::StorageFull => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        if takers.len() > 1 {
            return Err(format!("{takers:?} all own {partition}"));
        }
        let topic = self.topic;
        let stands: BTreeMap<u32, u64> = self.world.cursors(watcher, topic).into_iter().collect();
        for (partition, confirmed) in &self.confirmed {
            let offset = stands.get(partition).copied().unwrap_or(0);
            if offset < *confirmed {
                return Err(format!("{partition} is at {offset}, was at {confirmed}"));
            }
        }
        self.world.disconnect(watcher);
        Ok(())
    }

    /// When all is calm, everything is somebody's, evenly.
    fn heal(&mut self) -> Result<(), String> {
        self.ground.disk.set_space(None);
        self.world.release_disk();
        for (link, _) in std::mem::take(&mut self.members).into_values() {
            self.world.disconnect(link);
        }
        self.world.pass(SECOND * 5);
        let links = [self.world.connect(), self.world.connect()];
        let topic = self.topic;
        // The first that is refused has the disk looked at again.
        let _ = alter(&mut self.world, links[0], topic, "{}");
        self.world.pass(SECOND);
        let memberships = [101, 102].map(|member| {
            let link = links[member as usize - 101];
            self.world.joined(link, topic, &group(member))
        });
        let (owned, revoking) = self.world.assigned(links[0], memberships[0]);
        if !revoking.is_empty() {
            self.world.release(links[0], topic, 101, &revoking).unwrap();
        }
        let first = self.world.assigned(links[0], memberships[0]).0;
        let second = self.world.assigned(links[1], memberships[1]).0;
        let all: BTreeSet<u32> = first.iter().chain(&second).copied().collect();
        if all.len() != self.partitions as usize || first.len().abs_diff(second.len()) > 1 {
            return Err(format!("{owned:?} became {first:?} and {second:?}"));
        }
        Ok(())
    }
}

/// How far the group came under this seed.
fn storm(seed: u64, fault: Option<Fault>) -> Result<u64, String> {
    let mut storm = Storm::new(seed, fault);
    for step in 0..200 {
        storm.step();
        let checked = storm.check_owners().and_then(|()| storm.check_positions());
        checked.map_err(|error| format!("seed {seed}, step {step}: {error}"))?;
    }
    let healed = storm.heal();
    healed.map_err(|error| format!("seed {seed}: after healing: {error}"))?;
    Ok(storm.confirmed.values().sum())
}

#[test]
fn whatever_happens_a_partition_has_one_owner_and_positions_stay() {
    let runs = (0..100).map(|seed| storm(seed, None));
    let came = runs.map(|run| run.unwrap_or_else(|error| panic!("{error}")));
    let sum: u64 = came.sum();
    assert!(
        sum > 10_000,
        "the groups came {sum} events far: too little was tried"
    );
}

#[test]
fn planted_faults_of_groups_are_caught() {
    for fault in [Fault::FencedAck, Fault::GrantTwice] {
        let caught = (0..20).find(|seed| storm(*seed, Some(fault)).is_err());
        assert!(caught.is_some(), "{fault:?} is not noticed");
    }
}
