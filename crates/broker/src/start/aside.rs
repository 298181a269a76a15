//! `lost+found`: what no record names is set aside there, and stays until the operator removes it.

use super::remembered::Remembered;
use super::survey::{Survey, parse};
use crate::blocking::{list, make_directory};
use crate::coordinator::table::Table;
use crate::coordinator::topic_file;
use crate::ctx::Ctx;
use crate::faults::Fault;
use crate::options::{NodeError, StartReport, TableRole};
use crate::small_file;
use log::{Disk, Operation};
use std::path::{Path, PathBuf};
use wire::TopicId;

const DIRECTORY: &str = "lost+found";

/// What lies there. Blocks, for as long as one directory takes to be read.
pub(crate) fn names(disk: &dyn Disk, data: &Path) -> Vec<String> {
    list(disk, &data.join(DIRECTORY)).unwrap_or_default()
}

/// Removes what is left of deleted topics, and sets aside what no record names: of a table that has come up to its leader, or
/// that has none.
pub(super) fn clear_up(
    (table, has_leader): (&Table, bool),
    ctx: &Ctx,
    survey: &Survey,
    disk: &dyn Disk,
    report: &mut StartReport,
) -> Result<(), NodeError> {
    let data = &ctx.options.directory;
    let deleted: Vec<_> = table.deleted().copied().collect();
    for unnamed in &survey.unnamed {
        let is_known = unnamed.of.as_ref().is_some_and(|(topic, partition, _)| {
            let entry = table.topic(*topic);
            entry.is_some_and(|entry| entry.partitions.contains_key(partition))
        });
        // It was made known again.
        if is_known {
            continue;
        }
        let path = unnamed.path.display();
        let line = if unnamed.is_deleted || ctx.planted(Fault::DeleteUnnamed) {
            match remove_partition(
                unnamed.of.as_ref().map(|(_, _, kind)| kind.as_str()),
                &unnamed.path,
                ctx,
            ) {
                None => format!("removed {path}: its topic was deleted"),
                Some(why) => format!("{path}, of a deleted topic, stays: {why}"),
            }
        } else if matches!(ctx.options.role, TableRole::Follows(_)) && !has_leader {
            format!(
                "{path} stays, though this copy of the table names no topic of it: the leader may"
            )
        } else {
            let events = match unnamed.traces {
                Some(traces) if !traces.holds_events => ", and it never held an event",
                _ => "",
            };
            let moved = set_aside(ctx, disk, &unnamed.path, &unnamed.name)?;
            format!(
                "no topic names {path}{events}: moved to {}",
                moved.display()
            )
        };
        report.lines.push(line);
    }
    for topic in survey.topic_files.keys() {
        let path = topic_file::path(data, *topic);
        if table.topic(*topic).is_some() {
            continue;
        }
        if deleted.contains(topic) {
            small_file::remove(disk, &path)?;
            continue;
        }
        let moved = set_aside(ctx, disk, &path, &topic.to_string())?;
        report.lines.push(format!(
            "topic {topic} cannot be rebuilt from its file: moved to {}",
            moved.display()
        ));
    }
    Ok(())
}

/// Removes what is here of topics that the table has on other nodes: a copy that was never handed over, or what was about to be
/// removed of one that was. By a table that has come up to its leader, which names who has the topic with all that it had.
pub(super) fn clear_up_moved(
    table: &Table,
    ctx: &Ctx,
    survey: &Survey,
    disk: &dyn Disk,
    report: &mut StartReport,
) -> Result<(), NodeError> {
    let data = &ctx.options.directory;
    let elsewhere = |topic: &TopicId| {
        let entry = table.topic(*topic)?;
        (entry.home() != ctx.node()).then(|| (entry.record.name.as_str(), entry.home()))
    };
    let directory = data.join("partitions");
    for name in list(disk, &directory)? {
        let of = parse(&name);
        let Some((topic, home)) = of.as_ref().and_then(|(topic, ..)| elsewhere(topic)) else {
            continue;
        };
        let path = directory.join(&name);
        let kind = of.as_ref().map(|(_, _, kind)| kind.as_str());
        let stays = remove_partition(kind, &path, ctx);
        let path = path.display();
        report.lines.push(match stays {
            None => format!("removed {path}: topic {topic:?} is on node {home}"),
            Some(why) => format!("{path}, of a topic on node {home}, stays: {why}"),
        });
    }
    for topic in survey.topic_files.keys() {
        if elsewhere(topic).is_some() {
            small_file::remove(disk, &topic_file::path(data, *topic))?;
        }
    }
    Ok(())
}

/// Removes the directory of a partition of this kind of storage; says why it stays.
fn remove_partition(kind: Option<&str>, path: &Path, ctx: &Ctx) -> Option<String> {
    match kind.and_then(|kind| ctx.kind(kind)) {
        Some(kind) => kind.remove(path).err().map(|why| why.to_string()),
        None => Some("its kind of storage is not known".to_owned()),
    }
}

/// Moves a directory or file to `lost+found`, durably.
fn set_aside(ctx: &Ctx, disk: &dyn Disk, path: &Path, name: &str) -> Result<PathBuf, NodeError> {
    let data = &ctx.options.directory;
    make_directory(disk, data, DIRECTORY)?;
    let aside = data.join(DIRECTORY);
    let to = aside.join(format!("{name}-{}", ctx.now.unix_ns));
    let from = path.to_owned();
    disk.execute(Operation::Rename {
        from,
        to: to.clone(),
    })?;
    small_file::sync_directory(disk, &aside)?;
    if let Some(parent) = path.parent() {
        small_file::sync_directory(disk, parent)?;
    }
    Ok(to)
}

/// Makes the files of all topics say what the table says.
pub(super) fn keep_topic_files(
    table: &Table,
    ctx: &Ctx,
    survey: &Survey,
    disk: &dyn Disk,
    report: &mut StartReport,
) {
    let data = &ctx.options.directory;
    let mut failed = None;
    let own = table
        .topics()
        .filter(|(_, entry)| entry.home() == ctx.node());
    for (topic, entry) in own {
        let file = topic_file::TopicFile::of(entry);
        match survey.topic_files.get(topic) {
            Some(topic_file::Found::File(found)) if *found == file => continue,
            _ => {}
        }
        // Should a power loss damage it, the next start writes it again.
        let path = topic_file::path(data, *topic);
        if let Err(error) = small_file::write(disk, &path, file.to_bytes(), false) {
            failed = Some(error);
            break;
        }
    }
    if let Some(error) = failed {
        report.lines.push(format!(
            "not all files of topics are written, without which topics cannot be rebuilt \
                 should the table be lost: {error}"
        ));
    }
}

/// Writes what starts remember where it has changed. Only what was lost has to be written.
pub(super) fn remember(
    before: &Remembered,
    after: &Remembered,
    disk: &dyn Disk,
    data: &Path,
    report: &mut StartReport,
) -> Result<(), NodeError> {
    if before == after {
        return Ok(());
    }
    match after.write(disk, data) {
        Err(error) if before.damage == after.damage => report.lines.push(format!(
            "what the next start compares is not written: {error}"
        )),
        written => written?,
    }
    Ok(())
}
