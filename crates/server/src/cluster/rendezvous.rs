//! How servers that are started together find each other, and who founds the cluster. See the README.
//!
//! Use: [`Rendezvous::enter`], then [`Rendezvous::meet`], or [`Rendezvous::look`] from time to time. A founder makes
//! its log, a server that joins does so through one of the members; each then says so by [`Rendezvous::announce`],
//! before its voter takes part in anything.

use super::faults::{Fault, planted};
use super::rank_file::{Membership, RECORD_FILE, RankFile, Record, RunId, rank_file_name, seed_of};
use super::refused::{Absence, Contradiction, Missing, Refused, Waiting};
use super::shared::{Published, Shared};
use crate::host::{Host, random_u128};
use cluster::{ClusterId, DirectoryId, VoterId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long is waited between two looks, at first and later.
const INTERVAL_MIN: Duration = Duration::from_millis(50);
const INTERVAL_MAX: Duration = Duration::from_secs(2);
/// How long a server waits that has replaced the file of another data directory: one that runs looks at its file more
/// often, and takes it back.
pub(super) const TAKEN_BACK_WITHIN: Duration = Duration::from_secs(5);
/// How many ranks that are no founders are asked, where the founders' ranks do not have who is looked for.
const FURTHER_MAX: u32 = 64;
/// A setting, in messages.
const VOTERS: &str = "the number of voters";

/// What a server knows of itself when it comes.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// From 0.
    pub rank: u32,
    /// How many servers are started together.
    pub size: u32,
    /// How many of them found a cluster: 1, 3 or 5.
    pub voters: u32,
    /// Further settings that all founders must have in common, by name and value.
    pub settings: Vec<(&'static str, String)>,
    /// Its data directory.
    pub directory: DirectoryId,
    /// Where other servers reach it.
    pub peers: Vec<String>,
    /// Where clients reach it: a list for each of its shards.
    pub endpoints: Vec<Vec<String>>,
    /// The cluster that its data directory is a part of already.
    pub member: Option<Membership>,
}

impl Arrival {
    /// What cannot be right with it, in words.
    fn check(&self) -> Result<(), String> {
        let (rank, size, voters) = (self.rank, self.size, self.voters);
        if rank >= size {
            return Err(format!("rank {rank} is not below the size, {size}"));
        }
        if ![1, 3, 5].contains(&voters) {
            return Err(format!("a cluster has 1, 3 or 5 voters, not {voters}"));
        }
        if voters > size {
            return Err(format!(
                "a cluster with {voters} voters needs {voters} servers, and {size} are started"
            ));
        }
        Ok(())
    }
}

/// What a server does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It founds the cluster, together with the others of `founders`, each of which is given the same ones.
    Found {
        /// The id, which follows from the founders' data directories.
        cluster: ClusterId,
        /// What this server is among them.
        voter: VoterId,
        /// By voter.
        founders: Vec<Founder>,
    },
    /// It joins a cluster through one of its members. A member may be gone: then it looks again.
    Join {
        /// Which.
        cluster: ClusterId,
        /// By whom; at least one.
        through: Vec<Contact>,
    },
    /// It is a member already.
    GoOn(Membership),
}

/// One of those who found a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Founder {
    /// From 1.
    pub voter: VoterId,
    /// Its data directory.
    pub directory: DirectoryId,
    /// Where it was reached when its file was read, in all files of this data directory; nothing if there was none.
    pub peers: Vec<String>,
}

/// Where a server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contact {
    /// Its rank.
    pub rank: u32,
    /// Its data directory.
    pub directory: DirectoryId,
    /// The cluster that this is a part of.
    pub member: Option<Membership>,
    /// Where it was reached when its file was read.
    pub peers: Vec<String>,
    /// Its host.
    pub host: String,
    /// Where clients reached its first shard then.
    pub endpoints: Vec<String>,
}

impl Contact {
    fn of(file: &RankFile) -> Self {
        Self {
            rank: file.rank,
            directory: file.directory,
            member: file.member,
            peers: file.peers.clone(),
            host: file.host.clone(),
            endpoints: file.endpoints.first().cloned().unwrap_or_default(),
        }
    }
}

/// A server at a rendezvous.
#[derive(Debug)]
pub struct Rendezvous {
    own: RankFile,
    name: String,
    /// What came of the record the last time that it was to be published.
    published: Option<Published>,
    /// The start whose file this one has replaced, if that had another data directory: it may run.
    replaced: Option<RunId>,
    /// Whether it was not waited yet for it to take the file back.
    is_in_doubt: bool,
}

/// The file of another rank.
type Other = Option<Result<RankFile, String>>;

impl Rendezvous {
    /// Writes this server's file. `host` is where it runs.
    ///
    /// # Errors
    /// [`Refused::Contradiction`] if the file that is there says that the data directory is another one's; then nothing
    /// was changed. [`Refused::Arrival`] if there cannot be such a server.
    pub fn enter(arrival: Arrival, host: &Host, shared: &mut impl Shared) -> Result<Self, Refused> {
        Self::enter_as(arrival, host, RunId(random_u128()), shared)
    }

    pub(super) fn enter_as(
        arrival: Arrival,
        host: &Host,
        run: RunId,
        shared: &mut impl Shared,
    ) -> Result<Self, Refused> {
        arrival.check().map_err(Refused::Arrival)?;
        let (size, voters) = (arrival.size.to_string(), arrival.voters.to_string());
        let mut settings = vec![("size", size.as_str()), ("voters", voters.as_str())];
        let further = arrival.settings.iter();
        settings.extend(further.map(|(name, value)| (*name, value.as_str())));
        let own = RankFile {
            rank: arrival.rank,
            size: arrival.size,
            voters: arrival.voters,
            seed: seed_of(&settings),
            directory: arrival.directory,
            run,
            host: host.name.clone(),
            pid: std::process::id(),
            peers: arrival.peers,
            endpoints: arrival.endpoints,
            member: arrival.member,
            heard: BTreeMap::new(),
        };
        let mut rendezvous = Self {
            name: rank_file_name(own.rank),
            own,
            published: None,
            replaced: None,
            is_in_doubt: false,
        };
        if let Some(before) = rendezvous.read_file(rendezvous.own.rank, shared)? {
            let path = shared.path(&rendezvous.name);
            let before = before.map_err(|why| Contradiction::Unreadable {
                path: path.clone(),
                why,
            })?;
            rendezvous.check_log(&before, shared)?;
            // The lock of a data directory keeps a second server from it, and says nothing of another one.
            if before.directory != rendezvous.own.directory {
                rendezvous.replaced = Some(before.run);
                rendezvous.is_in_doubt = true;
                rendezvous.own.heard.insert(before.rank, before.run);
            }
        }
        shared.replace(&rendezvous.name, &rendezvous.own.write())?;
        Ok(rendezvous)
    }

    /// Looks until there is a decision, for `patience` at most. On NFS a file may be seen a minute late.
    ///
    /// # Errors
    /// [`Refused::Waiting`] names who has not come, and so does [`Refused::Interrupted`].
    pub fn meet(
        &mut self,
        patience: Duration,
        shared: &mut impl Shared,
    ) -> Result<Decision, Refused> {
        let began = shared.now();
        let mut interval = INTERVAL_MIN;
        let doubt = match std::mem::take(&mut self.is_in_doubt) {
            true => TAKEN_BACK_WITHIN.min(patience),
            false => Duration::ZERO,
        };
        loop {
            if shared.now().saturating_sub(began) < doubt {
                self.check(shared)?;
            } else if let Some(decision) = self.look(shared)? {
                return Ok(decision);
            }
            let waited = shared.now().saturating_sub(began);
            if waited >= patience {
                return Err(self.missing(waited, shared)?.into());
            }
            if !shared.wait(interval.min(patience - waited)) {
                let waited = shared.now().saturating_sub(began);
                let missing = self.missing(waited, shared)?;
                return Err(Refused::Interrupted(Box::new(missing)));
            }
            interval = (interval * 3 / 2).min(INTERVAL_MAX);
        }
    }

    /// Looks once. `None`: others have not come.
    ///
    /// # Errors
    /// As [`Rendezvous::meet`], but for those who have not come.
    pub fn look(&mut self, shared: &mut impl Shared) -> Result<Option<Decision>, Refused> {
        self.check(shared)?;
        let record = self.read_record(shared)?;
        if let Some(member) = self.own.member {
            return self.go_on(member, record, shared);
        }
        if record.is_none() && !self.is_founder() {
            return Ok(None);
        }
        let others = self.read_founders(shared)?;
        for file in others.values().flatten().flatten() {
            if file.directory == self.own.directory {
                self.check_log(file, shared)?;
            }
        }
        match record {
            Some(record) => self.follow(&record, &others, shared),
            None => {
                self.hear(&others, shared)?;
                self.found(&others, shared)
            }
        }
    }

    /// Says in this server's file that its data directory is now a part of a cluster. Before this, a founder has
    /// made its log durable, and has sent nothing.
    ///
    /// # Errors
    /// As [`Rendezvous::check`].
    pub fn announce(
        &mut self,
        member: Membership,
        shared: &mut impl Shared,
    ) -> Result<(), Refused> {
        self.check(shared)?;
        self.own.member = Some(member);
        self.own.heard.clear();
        Ok(shared.replace(&self.name, &self.own.write())?)
    }

    /// Whether this server's file is its own still. To be called now and then while it runs. A file that was
    /// removed is written again, and so is one whose writer waits to see that: it has another data directory.
    ///
    /// # Errors
    /// [`Contradiction::RankInUse`] if this server has replaced another's file, which that one has taken back;
    /// [`Contradiction::SameRank`] if another process has replaced it.
    pub fn check(&mut self, shared: &mut impl Shared) -> Result<(), Refused> {
        let path = shared.path(&self.name);
        let asks = |file: &RankFile| file.heard.get(&file.rank) == Some(&self.own.run);
        match self.read_file(self.own.rank, shared)? {
            Some(Ok(file)) if file.run == self.own.run => Ok(()),
            Some(Ok(file)) if asks(&file) => Ok(shared.replace(&self.name, &self.own.write())?),
            Some(Ok(file)) if Some(file.run) == self.replaced => Err(Contradiction::RankInUse {
                path,
                rank: file.rank,
                host: file.host,
                pid: file.pid,
                directory: file.directory,
            }
            .into()),
            Some(Ok(file)) => Err(Contradiction::SameRank {
                path,
                rank: file.rank,
                host: file.host,
                pid: file.pid,
                directory: file.directory,
            }
            .into()),
            Some(Err(why)) => Err(Contradiction::Unreadable { path, why }.into()),
            None => Ok(shared.replace(&self.name, &self.own.write())?),
        }
    }

    /// Where servers are reached, as far as their files say, by rank: of the founders' ranks and the next 64, but for
    /// this one. A member that goes on finds the voters of its cluster so, by their data directories, for each
    /// may have another address than before. A file may be of an earlier start.
    ///
    /// # Errors
    /// [`Refused::File`].
    pub fn contacts(&self, shared: &mut impl Shared) -> Result<Vec<Contact>, Refused> {
        let others = self.read_founders(shared)?;
        let mut further = self.read_further(shared)?;
        // Who has come later has a rank beyond the size of then.
        let known = self.own.size.max(self.own.voters);
        for rank in known..(self.own.voters + FURTHER_MAX).max(known) {
            match self.read_file(rank, shared)? {
                Some(Ok(file)) => further.push(file),
                Some(Err(_)) => {}
                None => break,
            }
        }
        let files = others.values().flatten().flatten().chain(&further);
        Ok(files.map(Contact::of).collect())
    }

    fn is_founder(&self) -> bool {
        self.own.rank < self.own.voters
    }

    /// A member goes on. The first one to come to a directory without a record makes it that of its cluster.
    fn go_on(
        &mut self,
        member: Membership,
        record: Option<Record>,
        shared: &mut impl Shared,
    ) -> Result<Option<Decision>, Refused> {
        let cluster = member.cluster;
        let record = match record {
            Some(record) => record,
            None => {
                let founders = Vec::new();
                let record = Record { cluster, founders };
                if !self.publish(&record, shared)? {
                    return Ok(None);
                }
                record
            }
        };
        if record.cluster != cluster {
            return Err(Contradiction::TwoClusters {
                path: shared.path(RECORD_FILE),
                here: cluster,
                there: record.cluster,
            }
            .into());
        }
        Ok(Some(Decision::GoOn(member)))
    }

    /// There is a cluster: this server is one of its founders, or joins it.
    fn follow(
        &self,
        record: &Record,
        others: &BTreeMap<u32, Other>,
        shared: &mut impl Shared,
    ) -> Result<Option<Decision>, Refused> {
        let founders = record.founders.len();
        if founders > 0 && founders != self.own.voters as usize {
            return Err(Contradiction::Settings {
                path: shared.path(RECORD_FILE),
                what: VOTERS,
                here: self.own.voters.to_string(),
                there: founders.to_string(),
            }
            .into());
        }
        // Another rank's file of this data directory is of an earlier start.
        let is_other = |file: &RankFile| file.directory != self.own.directory;
        let files = others.values().flatten().flatten().cloned();
        let mut files: Vec<RankFile> = files.filter(is_other).collect();
        files.push(self.own.clone());
        let is_member = |file: &&RankFile| {
            let member = file.member;
            member.is_some_and(|member| member.cluster == record.cluster)
        };
        let has_file = |founder: &DirectoryId| files.iter().any(|file| file.directory == *founder);
        let voter = record.voter_of(self.own.directory);
        let is_enough = match voter {
            Some(_) => record.founders.iter().all(has_file),
            None => files.iter().any(|file| is_member(&file)),
        };
        if !is_enough {
            files.extend(self.read_further(shared)?.into_iter().filter(is_other));
        }
        if let Some(voter) = voter {
            return Ok(Some(founding(record, voter, &files)));
        }
        let members = files.iter().filter(is_member);
        let through: Vec<_> = members.map(Contact::of).collect();
        let cluster = record.cluster;
        Ok((!through.is_empty()).then_some(Decision::Join { cluster, through }))
    }

    /// There is no cluster: if all founders are here and agree, it is recorded.
    fn found(
        &mut self,
        others: &BTreeMap<u32, Other>,
        shared: &mut impl Shared,
    ) -> Result<Option<Decision>, Refused> {
        let mut all = vec![self.own.clone()];
        let files = others.values().flatten().flatten();
        for file in files.filter(|file| self.is_here(file)) {
            self.compare(file, shared)?;
            // A member publishes the record of its cluster.
            if file.member.is_none() {
                all.push(file.clone());
            }
        }
        if all.len() < self.own.voters as usize {
            return Ok(None);
        }
        all.sort_by_key(|file| file.rank);
        let mut record = Record::of(all.iter().map(|file| file.directory).collect());
        let voter = VoterId(u64::from(self.own.rank) + 1);
        if planted(Fault::TwoFoundings) {
            record.cluster = ClusterId(self.own.run.0);
            return Ok(Some(founding(&record, voter, &all)));
        }
        if !planted(Fault::RecordIgnored) && !self.publish(&record, shared)? {
            return Ok(None);
        }
        Ok(Some(founding(&record, voter, &all)))
    }

    /// Whether a file was written by a process that has run since this one began: it has read this one's file.
    fn is_here(&self, file: &RankFile) -> bool {
        planted(Fault::StaleFileBelieved) || file.heard.get(&self.own.rank) == Some(&self.own.run)
    }

    /// Says whose files were read, if that is new. A file that says so is of this start and of no earlier one.
    fn hear(
        &mut self,
        others: &BTreeMap<u32, Other>,
        shared: &mut impl Shared,
    ) -> Result<(), Refused> {
        let mut heard = BTreeMap::new();
        heard.extend(self.replaced.map(|run| (self.own.rank, run)));
        for file in others.values().flatten().flatten() {
            heard.insert(file.rank, file.run);
        }
        if heard != self.own.heard {
            self.own.heard = heard;
            shared.replace(&self.name, &self.own.write())?;
        }
        Ok(())
    }

    /// Whether what founders must have in common is so.
    fn compare(&self, file: &RankFile, shared: &impl Shared) -> Result<(), Contradiction> {
        let path = || shared.path(&rank_file_name(file.rank));
        let own = &self.own;
        let settings = [
            (
                "the number of servers",
                own.size.to_string(),
                file.size.to_string(),
            ),
            (VOTERS, own.voters.to_string(), file.voters.to_string()),
            (
                "the hash of the cluster's settings",
                own.seed.clone(),
                file.seed.clone(),
            ),
        ];
        for (what, here, there) in settings {
            if here != there {
                let path = path();
                return Err(Contradiction::Settings {
                    path,
                    what,
                    here,
                    there,
                });
            }
        }
        match file.directory == own.directory {
            true => Err(Contradiction::SameDirectory {
                path: path(),
                rank: file.rank,
                directory: file.directory,
            }),
            false => Ok(()),
        }
    }

    /// What a file says of this server's data directory has to be so: who has lost a log has forgotten whom it
    /// voted for.
    fn check_log(&self, file: &RankFile, shared: &impl Shared) -> Result<(), Contradiction> {
        let (Some(there), true) = (file.member, file.directory == self.own.directory) else {
            return Ok(());
        };
        let path = shared.path(&rank_file_name(file.rank));
        match self.own.member {
            None if planted(Fault::LostLogIgnored) => Ok(()),
            None => Err(Contradiction::lost_log(path, file, there)),
            Some(here) if here.cluster != there.cluster => Err(Contradiction::TwoClusters {
                path,
                here: here.cluster,
                there: there.cluster,
            }),
            Some(_) => Ok(()),
        }
    }

    fn read_file(&self, rank: u32, shared: &mut impl Shared) -> Result<Other, Refused> {
        let text = shared.read(&rank_file_name(rank))?;
        Ok(text.map(|text| RankFile::read(&text, rank)))
    }

    /// The files of the founders, but for this one's.
    fn read_founders(&self, shared: &mut impl Shared) -> Result<BTreeMap<u32, Other>, Refused> {
        let ranks = (0..self.own.voters).filter(|rank| *rank != self.own.rank);
        ranks
            .map(|rank| Ok((rank, self.read_file(rank, shared)?)))
            .collect()
    }

    /// The files of the ranks behind the founders, as many as are asked.
    fn read_further(&self, shared: &mut impl Shared) -> Result<Vec<RankFile>, Refused> {
        let voters = self.own.voters;
        let mut files = Vec::new();
        for rank in voters..self.own.size.min(voters + FURTHER_MAX) {
            if let Some(Ok(file)) = self.read_file(rank, shared)? {
                files.push(file);
            }
        }
        files.retain(|file| file.rank != self.own.rank);
        Ok(files)
    }

    fn read_record(&self, shared: &mut impl Shared) -> Result<Option<Record>, Refused> {
        let Some(text) = shared.read(RECORD_FILE)? else {
            return Ok(None);
        };
        let path = shared.path(RECORD_FILE);
        let record = Record::read(&text);
        Ok(Some(
            record.map_err(|why| Contradiction::Unreadable { path, why })?,
        ))
    }

    /// Whether the record is now the one that was given. If not, another one may be there, to be seen later.
    fn publish(&mut self, record: &Record, shared: &mut impl Shared) -> Result<bool, Refused> {
        let published = shared.publish(RECORD_FILE, &record.write())?;
        let is_made = published == Published::Made;
        self.published = Some(published);
        Ok(is_made)
    }

    /// Who has not come.
    fn missing(&self, waited: Duration, shared: &mut impl Shared) -> Result<Waiting, Refused> {
        let record = self.read_record(shared)?;
        let mut ranks = Vec::new();
        for (rank, other) in self.read_founders(shared)? {
            let is_awaited = self.is_founder() && record.is_none();
            let why = match other {
                None => Absence::NoFile,
                Some(Err(why)) => Absence::Unreadable(why),
                Some(Ok(file)) if is_awaited && !self.is_here(&file) => Absence::Silent {
                    host: file.host,
                    pid: file.pid,
                },
                Some(Ok(file)) if record.is_none() && file.member.is_some() => Absence::NoRecord,
                Some(Ok(_)) if is_awaited => continue,
                Some(Ok(_)) => Absence::NoMember,
            };
            let path = shared.path(&rank_file_name(rank));
            ranks.push(Missing { rank, path, why });
        }
        Ok(Waiting {
            waited,
            cluster: record.map(|record| record.cluster),
            record: shared.path(RECORD_FILE),
            ranks,
            published: self.published.clone(),
        })
    }
}

/// What a founder is to do, with addresses out of `files`.
fn founding(record: &Record, voter: VoterId, files: &[RankFile]) -> Decision {
    let peers_of = |directory: DirectoryId| {
        // Where it had another rank before, nothing says which file is of today.
        let files = files.iter().filter(|file| file.directory == directory);
        let mut peers: Vec<String> = files.flat_map(|file| file.peers.clone()).collect();
        let mut seen = BTreeSet::new();
        peers.retain(|peer| seen.insert(peer.clone()));
        peers
    };
    let founders = record.founders.iter().zip(1..);
    let founders = founders.map(|(&directory, voter)| Founder {
        voter: VoterId(voter),
        directory,
        peers: peers_of(directory),
    });
    Decision::Found {
        cluster: record.cluster,
        voter,
        founders: founders.collect(),
    }
}
