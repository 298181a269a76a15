//! The start of a node: what is there is compared with what the table's log says, that and the
//! ledger are replayed, every partition is opened, and what no record names is set aside.

mod aside;
mod logs;
mod remembered;
mod survey;

pub(crate) use remembered::Remembered;

use crate::blocking::{Blocking, make_directory};
use crate::coordinator::Coordinator;
use crate::coordinator::commands::Commands;
use crate::coordinator::controller::{
    CatchingUp, Command, CommandToken, Controller, Following, Home, LEADER, Leading, Single,
};
use crate::coordinator::keep::keep_partition;
use crate::coordinator::served_topic::{Slot, Topic, durability_of};
use crate::coordinator::table::Table;
use crate::coordinator::topics::open_partition;
use crate::ctx::Ctx;
use crate::effects::NewPartition;
use crate::faults::Fault;
use crate::ids::{Now, PartitionKey, StorageId};
use crate::nodes::Nodes;
use crate::options::{NodeError, NodeOptions, StartReport, TableRole};
use crate::partition::{Partition, Partitions};
use crate::session::Used;
use access::UnixTime;
use log::StorageKind;
use log::{Disk, OpenPartition, Recovery, Storage};
use logs::open_logs;
use std::sync::Arc;
use std::time::Duration;
use survey::{Loss, Survey};
use topic::Definition;
use wire::record::{Gap, GapReason, GapRecord, NodeState, PartitionRecord, Record};
use wire::table::TableMessage;
use wire::{Durability, Incarnation, NodeId, Offset, TableId};

/// Ended lives of a partition that are remembered. A position in an older one
/// goes on at the first event there is.
const ENDED_LIVES_MAX: usize = 64;
/// Records of one command of a start.
const RECORDS_PER_COMMAND: usize = 1024;

/// A node that was opened, but for its groups and queues.
pub(crate) struct Opened {
    pub ctx: Ctx,
    pub coordinator: Coordinator,
    pub partitions: Partitions,
    pub remembered: Remembered,
    pub used: Used,
    /// What lies in `lost+found`.
    pub set_aside: Vec<String>,
}

/// Opens a node on its data directory. Blocks.
pub(crate) fn open(
    options: NodeOptions,
    now: Now,
    upstream: Option<&mut dyn Upstream>,
) -> Result<(Opened, StartReport), NodeError> {
    let disk = options.disk.clone();
    let disk = disk.as_ref();
    let mut report = StartReport::default();
    for kind in &options.kinds {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if kind.name().is_empty() || !kind.name().chars().all(plain) {
            return Err(NodeError::Invalid(format!(
                "storage kind {:?} is not made of letters, digits and '_'",
                kind.name()
            )));
        }
    }
    let known = Remembered::read(disk, &options.directory, now.unix_ns)?;
    let used = Used::read(disk, &options.directory, UnixTime(now.unix_ns))?;
    let survey = Survey::take(&options, now)?;
    check_role(&options, &survey.table, upstream.is_some())?;
    let start = examine(&options, &survey, &known, now, &mut report)?;
    if start.renews_table && options.role == TableRole::Leads && options.nodes.count() > 1 {
        return Err(NodeError::Loss(format!(
            "the start is refused, and nothing was changed: records of the table's log (`internal`) are lost, which the \
             other {} shards have copies of. Put the newest copy of the whole data directory back, with all of its \
             shards (docs/operations/damage.md)",
            options.nodes.count() - 1
        )));
    }
    aside::remember(&known, &start, disk, &options.directory, &mut report)?;
    if let Err(error) = used.begin(disk, &options.directory) {
        report.lines.push(format!(
            "used-tokens.json is not written: {error}; the next start takes no token for one session \
             that was made before it"
        ));
    }
    let kind = options.kinds.iter().find(|kind| kind.name() == "disk");
    let Some(kind) = kind.cloned() else {
        return Err(NodeError::Invalid("no storage kind is called disk".into()));
    };
    let (mut single, _) = open_logs(&options, kind.as_ref(), disk, now)?;
    single.set_time(now);
    let mut ctx = Ctx::new(options, now);
    ctx.dirty.controller = true;
    let directory = ctx.options.directory.clone();
    for name in ["partitions", "topics"] {
        make_directory(disk, &directory, name)?;
    }
    // One that follows has its table from its leader.
    if ctx.options.accept_loss && !matches!(ctx.options.role, TableRole::Follows(_)) {
        rebuild(&survey, &mut single, &mut ctx, &mut report)?;
    }
    if upstream.is_none() {
        // What is lost of it was told by the survey.
        single.replay_ledger(&mut Vec::new(), &Blocking { disk })?;
    }
    if start.renews_table && ctx.options.role == TableRole::Leads {
        // To those that have copies it is another table, before any of them is answered.
        let id = Record::Table(TableId(ctx.random.id()));
        write(Home::Table, vec![id], &mut single, &mut ctx, disk)?;
    }
    let has_leader = upstream.is_some();
    let mut controller = controller_of(single, start.renews_table && has_leader, &mut ctx);
    controller.set_time(now);
    if let Some(upstream) = upstream {
        let was_new = controller.table().followed() == 0;
        catch_up(controller.as_mut(), upstream, disk, &ctx.options)?;
        check_emptied(&ctx.options, was_new, controller.table())?;
        // Now the table has all topics that the ledger speaks of.
        controller.replay_ledger(disk)?;
    }
    Nodes::follow(&mut ctx.options.nodes, controller.table().nodes());
    check_registered(&ctx.options, has_leader, controller.table())?;
    let mut opening = Opening {
        ctx,
        coordinator: Coordinator::new(Commands::new(controller)),
        partitions: Partitions::new(),
        found: Vec::new(),
        report,
    };
    let table = opening.coordinator.commands.table();
    let (ctx, report) = (&opening.ctx, &mut opening.report);
    if !ctx.planted(Fault::KeepLeftovers) {
        aside::clear_up((table, has_leader), ctx, &survey, disk, report)?;
    }
    if has_leader && ctx.options.nodes.are_of_table() {
        aside::clear_up_moved(table, ctx, &survey, disk, report)?;
    }
    aside::keep_topic_files(table, ctx, &survey, disk, report);
    opening.open_topics();
    opening.record_found(disk)?;
    let Opening {
        mut ctx,
        mut coordinator,
        mut partitions,
        mut report,
        ..
    } = opening;
    coordinator.record_found(&mut ctx);
    let table = coordinator.commands.table();
    for partition in partitions.values_mut() {
        let store = &mut partition.store;
        let entry = table.topic(store.key.topic);
        let ends = entry.map(|entry| entry.ends_of_lives(store.key.partition));
        store.ends = ends.unwrap_or_default();
    }
    let set_aside = aside::names(disk, &directory);
    let known = start.clone();
    let remembered = Remembered {
        ends: Home::ALL.map(|home| coordinator.commands.log().end(home).0),
        // A table without an id was never copied. A node that is alone may lead later.
        renews_table: start.renews_table
            && match ctx.options.role {
                TableRole::Alone => coordinator.commands.table().id() != TableId(0),
                TableRole::Leads => false,
                // Its leader has given it what was lost.
                TableRole::Follows(_) => !has_leader,
            },
        ..start
    };
    aside::remember(&known, &remembered, disk, &directory, &mut report)?;
    report.topic_count = coordinator.topics.len();
    report.partition_count = partitions.len();
    let opened = Opened {
        ctx,
        coordinator,
        partitions,
        remembered,
        used,
        set_aside,
    };
    Ok((opened, report))
}

/// What a start with these options would tell an operator of the table's log and of the ledger: each
/// a line. Blocks, and changes nothing; the partitions of topics are not opened.
///
/// # Errors
/// As [`crate::Node::open`].
pub fn look(options: &NodeOptions, now: Now) -> Result<Vec<String>, NodeError> {
    let mut report = StartReport::default();
    let known = Remembered::read(options.disk.as_ref(), &options.directory, now.unix_ns)?;
    Used::read(
        options.disk.as_ref(),
        &options.directory,
        UnixTime(now.unix_ns),
    )?;
    let survey = Survey::take(options, now)?;
    examine(options, &survey, &known, now, &mut report)?;
    Ok(report.lines)
}

/// A node that is being opened.
struct Opening {
    ctx: Ctx,
    coordinator: Coordinator,
    partitions: Partitions,
    /// What is to be recorded, partition by partition.
    found: Vec<Record>,
    report: StartReport,
}

impl Opening {
    /// Makes what the start has found durable before anybody is served: what was lost before the
    /// life that ended with it, for else nothing would say so if the start died in between.
    fn record_found(&mut self, disk: &dyn Disk) -> Result<(), NodeError> {
        let found = std::mem::take(&mut self.found);
        let (of_ledger, of_table): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|record| Home::of(record) == Home::Ledger);
        for (home, records) in [(Home::Ledger, of_ledger), (Home::Table, of_table)] {
            // Each is by itself: a command as large as any start would need has no bound.
            for records in records.chunks(RECORDS_PER_COMMAND) {
                if home == Home::Table && matches!(self.ctx.options.role, TableRole::Follows(_)) {
                    // The leader may be away: nobody waits for it.
                    self.coordinator.found(records.to_vec());
                    continue;
                }
                let controller = self.coordinator.commands.controller();
                write(home, records.to_vec(), controller, &mut self.ctx, disk)?;
            }
        }
        Ok(())
    }

    fn open_topics(&mut self) {
        let node = self.ctx.node();
        let entries = self.coordinator.commands.table().topics();
        let any = self.ctx.planted(Fault::ServesAny);
        let entries = entries.filter(|(_, entry)| any || entry.home() == node);
        let entries: Vec<_> = entries
            .map(|(id, entry)| (*id, entry.record.clone(), entry.partitions.clone()))
            .collect();
        let mut known = Vec::new();
        let mut to_open = Vec::new();
        for (id, record, partitions) in entries {
            let definition = match Definition::from_json(&record.definition) {
                Ok(definition) => Arc::new(definition),
                Err(error) => {
                    // Kept in the table, so that a later version can serve it.
                    let line = format!("topic {:?}: {error}", record.name);
                    self.report.failed.push(line);
                    continue;
                }
            };
            let partitions = partitions.into_values().map(|record| {
                let outcome = self.to_open(&record, &definition).map(|(kind, open)| {
                    let durability = open.durability;
                    to_open.push((kind, open));
                    durability
                });
                (record, outcome)
            });
            let partitions: Vec<_> = partitions.collect();
            known.push((id, Topic::new(&record, definition), partitions));
        }
        let mut opened = (self.ctx.options.open_partitions)(to_open).into_iter();
        for (id, mut topic, partitions) in known {
            for (record, outcome) in partitions {
                let index = record.partition;
                let outcome = outcome.and_then(|durability| {
                    let opened = opened.next().expect("each partition has its outcome");
                    let opened = opened.map_err(|error| error.to_string())?;
                    Ok((durability, opened))
                });
                let slot = match outcome {
                    Ok((durability, opened)) => {
                        self.install_known(&topic, record, opened, durability)
                    }
                    Err(reason) => {
                        let name = &topic.name;
                        let line = format!("partition {index} of {name:?}: {reason}");
                        self.report.failed.push(line);
                        Slot::Failed(reason)
                    }
                };
                topic.partitions.push(slot);
            }
            self.coordinator.topics.insert(id, topic);
        }
    }

    /// How a partition that the table names is opened, or why it cannot be.
    fn to_open(
        &self,
        record: &PartitionRecord,
        definition: &Definition,
    ) -> Result<(Arc<dyn StorageKind>, OpenPartition), String> {
        let Some(kind) = self.ctx.kind(&record.storage) else {
            return Err(format!("storage {:?} is not known", record.storage));
        };
        let durability =
            durability_of(definition, kind.as_ref()).map_err(|error| error.to_string())?;
        let table = self.coordinator.commands.table();
        let mut open = open_partition(record, definition, durability, table, &self.ctx);
        if kind.durability_max() == Durability::Memory {
            // It has no file that says in which life it was.
            open.incarnation = self.with_ended_lives(record.clone(), None).incarnation;
        }
        Ok((kind, open))
    }

    /// A partition's record with the lives of which the ledger says that they ended, up to the present
    /// one: the table may hear of them later, from a node whose leader is away.
    fn with_ended_lives(
        &self,
        mut record: PartitionRecord,
        present: Option<Incarnation>,
    ) -> PartitionRecord {
        let table = self.coordinator.commands.table().topic(record.topic);
        let ends = table.map(|entry| entry.ends_of_lives(record.partition));
        for (life, gap) in ends.unwrap_or_default() {
            let is_over = present.is_none_or(|present| life < present);
            if life >= record.incarnation && is_over {
                end_life(&mut record, gap.end, Incarnation(life.0 + 1));
            }
        }
        record
    }

    /// Takes an opened partition that the table names, and records what was lost.
    fn install_known(
        &mut self,
        served: &Topic,
        mut record: PartitionRecord,
        (storage, recovery): (Box<dyn Storage>, Recovery),
        durability: Durability,
    ) -> Slot {
        let topic = record.topic;
        let present = storage.state().incarnation;
        let recorded = record.clone();
        if !self.ctx.planted(Fault::SameIncarnation) {
            record = self.with_ended_lives(record, Some(present));
        }
        let report = &mut self.report;
        report.verified_bytes += recovery.verified_bytes;
        report.cut_bytes += recovery.cut_bytes;
        let name = format!("partition {} of topic {topic}", record.partition);
        if recovery.cut_bytes > 0 {
            let bytes = recovery.cut_bytes;
            report.lines.push(format!(
                "{name}: cut {bytes} bytes behind what is known to be synced: a crash tore them, or they are damaged"
            ));
        }
        let mut gaps = recovery.gaps.clone();
        let mut records = Vec::new();
        if present > record.incarnation && !self.ctx.planted(Fault::SameIncarnation) {
            // A start that died before it had recorded the new life leaves one
            // of which nobody heard: then all that is there is of the old one.
            let end = recovery.ended.map_or(storage.state().end, |(_, end)| end);
            let is_end = |gap: &Gap| gap.end == end && gap.reason != GapReason::Retention;
            if !gaps.iter().any(is_end) {
                gaps.push(end_of_life(&record, end, durability, self.ctx.now.unix_ns));
            }
            end_life(&mut record, end, present);
        }
        if record != recorded {
            records.push(Record::Partition(record.clone()));
        }
        for gap in gaps {
            report.lines.push(format!(
                "{name}: lost offsets {} to {} of incarnation {} ({})",
                gap.first, gap.end, gap.incarnation, gap.reason
            ));
            if !self.ctx.planted(Fault::NoGap) {
                records.push(Record::Gap(GapRecord {
                    topic,
                    partition: record.partition,
                    gap,
                }));
            }
        }
        self.found.append(&mut records);
        self.report_cursors_beyond(&record, storage.state().end);
        let id = StorageId(self.ctx.next_id());
        let key = PartitionKey {
            topic,
            partition: record.partition,
        };
        let new = NewPartition {
            topic_name: served.name.clone(),
            definition: served.definition.clone(),
            storage,
            record,
        };
        if let Some(partition) = Partition::new(id, new, &self.ctx) {
            self.partitions.insert(id, partition);
        }
        let table = self.coordinator.commands.table();
        keep_partition(id, key, &served.definition, table, &mut self.ctx);
        Slot::Open(id)
    }

    /// A cursor beyond the end of the same life: events that were durable are
    /// gone, which no disk that keeps its promises lets happen.
    fn report_cursors_beyond(&mut self, record: &PartitionRecord, end: Offset) {
        let entry = self.coordinator.commands.table().topic(record.topic);
        for (consumer, cursors) in entry.iter().flat_map(|entry| &entry.cursors) {
            let cursor = cursors.get(&record.partition);
            let beyond = cursor
                .filter(|cursor| cursor.incarnation == record.incarnation && cursor.offset > end);
            if let Some(cursor) = beyond {
                self.report.lines.push(format!(
                    "partition {} of topic {} ends at {end}, but consumer {consumer:?} has been at {}: \
                     the disk has lost what it said was synced",
                    record.partition, record.topic, cursor.offset
                ));
            }
        }
    }
}

/// Refuses a data directory that is another's part of a table than this node is to have.
fn check_role(options: &NodeOptions, table: &Table, has_leader: bool) -> Result<(), NodeError> {
    let wrong: String = match options.role {
        TableRole::Alone | TableRole::Leads if table.followed() > 0 => {
            "this data directory has a copy of another node's table: it follows, and can neither lead nor be alone".into()
        }
        TableRole::Alone | TableRole::Leads if has_beyond(options, table).is_some() => {
            let (name, node) = has_beyond(options, table).expect("the guard found one");
            format!(
                "topic {name:?} is on shard {node}, and this start has {}: start with all of them, where their \
                 directories are",
                options.nodes.count()
            )
        }
        TableRole::Follows(LEADER) => "node 0 leads: a node that follows has another id".into(),
        TableRole::Follows(_) if options.accept_loss && !has_leader => {
            "--accept-loss needs the node that leads: one that follows has its table from there".into()
        }
        TableRole::Follows(node) => match table.follower() {
            Some(own) if own != node => format!(
                "this data directory is that of node {own}, and this start is one of node {node}: cursors and \
                 settlements of the topics of node {own} are in its ledger. Start it as node {own}, or begin \
                 with an empty data directory"
            ),
            _ => return Ok(()),
        },
        _ => return Ok(()),
    };
    Err(NodeError::Invalid(wrong))
}

/// A topic that is on none of the nodes that there are.
fn has_beyond<'a>(options: &NodeOptions, table: &'a Table) -> Option<(&'a str, NodeId)> {
    // Without them it is not known how many there are. A table of several servers says so itself.
    if options.nodes.are_of_table()
        || options.nodes.count() == 1 && options.role != TableRole::Alone
    {
        return None;
    }
    let is_beyond = |home: NodeId| home.0 as usize >= options.nodes.count();
    let mut topics = table.topics();
    topics.find_map(|(_, entry)| {
        let home = entry.home();
        is_beyond(home).then_some((entry.record.name.as_str(), home))
    })
}

/// Refuses a node that its table does not know as this data directory: its server has not registered, or it was
/// removed. A copy that was never filled says nothing.
fn check_registered(
    options: &NodeOptions,
    has_leader: bool,
    table: &Table,
) -> Result<(), NodeError> {
    let TableRole::Follows(node) = options.role else {
        return Ok(());
    };
    if !options.nodes.are_of_table() || table.followed() == 0 && !has_leader {
        return Ok(());
    }
    let own = options.directory_id;
    Err(NodeError::Invalid(match table.nodes().get(node) {
        None => format!("the table has no node {node}: this node has not registered"),
        Some(it) if it.state == NodeState::Removed => {
            format!("node {node} was removed from the table: begin with an empty data directory")
        }
        Some(it) if it.directory != own => format!(
            "node {node} of the table is data directory {}, and this one is {own}",
            it.directory
        ),
        Some(_) => return Ok(()),
    }))
}

/// Refuses a data directory that is new, and whose node has topics.
fn check_emptied(options: &NodeOptions, was_new: bool, table: &Table) -> Result<(), NodeError> {
    let mut own = table
        .topics()
        .filter(|(_, it)| it.home() == options.role.node());
    match own.next() {
        Some((_, entry)) if was_new && !options.accept_loss => Err(NodeError::Loss(format!(
            "the start is refused: {} is a new data directory, and the table has topics on it, {:?} first. Is its file system \
             there? Put it back; or start once with --accept-loss, which serves these topics empty",
            options.directory.display(),
            entry.record.name
        ))),
        _ => Ok(()),
    }
}

/// Who decides on a table that was replayed, of which a copy may have lost records.
fn controller_of(single: Single, is_torn: bool, ctx: &mut Ctx) -> Box<dyn Controller> {
    let planted = ctx.options.planted();
    match ctx.options.role {
        TableRole::Alone => Box::new(single),
        TableRole::Leads => {
            let id = TableId(ctx.random.id());
            Box::new(Leading::new(single, id, planted))
        }
        TableRole::Follows(node) => {
            let patience = ctx.options.limits.leader_timeout;
            let following = Following::new(single, node, patience, planted);
            Box::new(match is_torn {
                true => following.anew(),
                false => following,
            })
        }
    }
}

/// The way of a node that is being opened to the one that leads its table. The link is a new one, and goes on
/// when the node is open.
pub trait Upstream {
    /// The time, as in [`crate::Node::handle`].
    fn now(&mut self) -> Now;

    /// Sends a message to the leader.
    fn send(&mut self, message: TableMessage);

    /// What comes next of the leader. Waits at most as long for it.
    fn receive(&mut self, within: Duration) -> FromLeader;

    /// Whether the link stands from the beginning on. Else [`FromLeader::Linked`] says when it does.
    fn is_linked(&self) -> bool {
        true
    }

    /// How long the leader may send nothing; `None`: as long as a change of the table waits for it.
    fn patience(&self) -> Option<Duration> {
        None
    }
}

/// What a wait for the leader came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromLeader {
    /// A message.
    Message(TableMessage),
    /// Nothing in that time.
    Nothing,
    /// A link stands, new: to the one that leads now.
    Linked,
    /// The link is gone, and what was on its way. Another one may come.
    Cut,
    /// The link is gone, and nothing more comes.
    Gone,
    /// The start is to end: nothing more is waited for.
    Interrupted,
}

/// Takes over what the leader has decided so far. What this node proposed in an earlier life is among that, and its
/// topics are opened with it.
fn catch_up(
    controller: &mut dyn Controller,
    upstream: &mut dyn Upstream,
    disk: &dyn Disk,
    options: &NodeOptions,
) -> Result<(), NodeError> {
    let usual = options.limits.leader_timeout;
    let patience = upstream.patience().unwrap_or(usual);
    let mut until = upstream.now().monotonic + patience;
    // Why the copy is not written, as far as is known.
    let mut held = None;
    if upstream.is_linked() {
        controller.linked(LEADER, true);
    }
    let why = loop {
        let now = upstream.now();
        controller.set_time(now);
        loop {
            controller.advance();
            while let Some((_, message)) = controller.poll_message() {
                upstream.send(message);
            }
            let Some((storage, token, operation)) = controller.poll_operation() else {
                break;
            };
            let result = disk.execute(operation);
            held = result.as_ref().err().map(ToString::to_string).or(held);
            controller.complete(storage, token, result);
        }
        match controller.catching_up() {
            CatchingUp::Done => return Ok(()),
            CatchingUp::Never(why) => break why,
            CatchingUp::UnderWay if now.monotonic >= until => match held {
                Some(held) => {
                    break format!("the copy of the leader's table cannot be written: {held}");
                }
                None => {
                    break format!(
                        "the node that leads the table (node {LEADER}) has sent nothing for {} s",
                        patience.as_secs_f64()
                    );
                }
            },
            CatchingUp::UnderWay => {}
        }
        let wake = controller.next_timer().map_or(until, |at| at.min(until));
        match upstream.receive(wake.saturating_sub(now.monotonic)) {
            FromLeader::Message(message) => {
                until = upstream.now().monotonic + patience;
                controller.take_message(LEADER, message);
            }
            FromLeader::Linked => {
                until = upstream.now().monotonic + patience;
                controller.linked(LEADER, true);
            }
            FromLeader::Cut => controller.linked(LEADER, false),
            FromLeader::Nothing => {}
            FromLeader::Gone => {
                break format!("the node that leads the table (node {LEADER}) has ended");
            }
            FromLeader::Interrupted => return Err(NodeError::Interrupted),
        }
    };
    Err(NodeError::Invalid(why))
}

/// Makes topics known again that the table does not know.
fn rebuild(
    survey: &Survey,
    controller: &mut Single,
    ctx: &mut Ctx,
    report: &mut StartReport,
) -> Result<(), NodeError> {
    let (records, names) = survey.rebuild(&ctx.options, ctx.now);
    if records.is_empty() {
        return Ok(());
    }
    let disk = ctx.options.disk.clone();
    write(Home::Table, records, controller, ctx, disk.as_ref())?;
    report.lines.push(format!(
        "rebuilt from the files of topics: {}; their groups, queues and named producers are lost",
        names.join(", ")
    ));
    Ok(())
}

/// Makes records durable before there is anybody to wait for them. Blocks.
fn write(
    home: Home,
    records: Vec<Record>,
    controller: &mut dyn Controller,
    ctx: &mut Ctx,
    disk: &dyn Disk,
) -> Result<(), NodeError> {
    if !records.is_empty() {
        let command = Command {
            home,
            records,
            durability: Durability::Synced,
        };
        controller.submit(CommandToken(ctx.next_id()), command);
    }
    loop {
        controller.advance();
        let (mut refused, mut completed) = (None, false);
        while let Some((_, result)) = controller.poll_completion() {
            refused = refused.or(result.err());
            completed = true;
        }
        if let Some(error) = refused {
            return Err(NodeError::Invalid(format!(
                "writing what the start found: {error}"
            )));
        }
        if controller.is_idle() {
            return Ok(());
        }
        if completed {
            continue;
        }
        let Some((storage, token, operation)) = controller.poll_operation() else {
            return Err(NodeError::Invalid(format!(
                "writing what the start found: {home} does not become durable"
            )));
        };
        controller.complete(storage, token, disk.execute(operation));
    }
}

/// Ends the life of a record at this offset, and begins a later one.
fn end_life(record: &mut PartitionRecord, end: Offset, next: Incarnation) {
    record.ended.push((record.incarnation, end));
    let excess = record.ended.len().saturating_sub(ENDED_LIVES_MAX);
    record.ended.drain(..excess);
    // As many leaders as lives: a start may have died before it had recorded its own.
    let lives = next.0 - record.incarnation.0;
    let lives = u32::try_from(lives).unwrap_or(u32::MAX);
    record.leader_epoch = record.leader_epoch.saturating_add(lives);
    record.incarnation = next;
}

/// The gap that ends a partition's life. How many were lost is not known.
fn end_of_life(record: &PartitionRecord, end: Offset, durability: Durability, time: u64) -> Gap {
    Gap {
        incarnation: record.incarnation,
        first: end,
        end,
        reason: match durability {
            Durability::Memory => GapReason::MemoryLost,
            _ => GapReason::PowerLoss,
        },
        time,
    }
}

/// Compares what is there with what table and ledger say. Gives what is to be remembered
/// of it, or refuses the start.
fn examine(
    options: &NodeOptions,
    survey: &Survey,
    known: &Remembered,
    now: Now,
    report: &mut StartReport,
) -> Result<Remembered, NodeError> {
    let mut start = known.clone();
    let losses = survey.losses(known);
    if !losses.is_empty() && !options.accept_loss {
        let (_, names) = survey.rebuild(options, now);
        let rebuilt = match names.as_slice() {
            [] => "no topic can be rebuilt".to_owned(),
            names => format!("it rebuilds {} from their files", names.join(", ")),
        };
        let mut text = String::from("the start is refused, and nothing was changed:");
        for loss in survey.log_losses.iter().chain(&losses) {
            text.push_str("\n  ");
            text.push_str(&loss.what);
        }
        text.push_str(&format!(
            "\nPut the newest copies of `internal` and `ledgers` back; or start once with --accept-loss: {rebuilt}, \
             and moves what no record names to lost+found (docs/operations/damage.md)"
        ));
        return Err(NodeError::Loss(text));
    }
    if options.accept_loss {
        start.accept();
    }
    for loss in survey.log_losses.iter().chain(&losses) {
        let Loss { home, what } = loss;
        // What a start has reported and remembered before is reported below, or was accepted.
        if !known.damage.iter().any(|damage| damage.what == *what) {
            report.lines.push(what.clone());
            start.renews_table |= *home == Home::Table;
        }
        start.lose(what.clone(), now.unix_ns, options.accept_loss);
    }
    for damage in known.open_damage() {
        let what = &damage.what;
        report.lines.push(match options.accept_loss {
            true => format!("accepted: {what}"),
            false => format!("found at an earlier start: {what}; --accept-loss accepts it"),
        });
    }
    Ok(start)
}
