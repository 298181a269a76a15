//! What the operations of a partition are for.

use crate::storage::DataPlace;
use std::path::PathBuf;
use wire::Offset;

/// A file of the partition, open or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FileNumber(pub(super) u64);

/// What an operation is for.
#[derive(Debug)]
pub(super) enum Purpose {
    Ignored,
    Recycled(FileNumber),
    Opened(FileNumber),
    /// A write to a log, by its number in `in_flight`.
    Batch(u64),
    Allocated(Offset),
    Probed,
    DataChunk(DataPlace, u64),
    DataTable(DataPlace),
    /// Data of these places was synced.
    DataSynced(Offset, Vec<DataPlace>),
    DirectorySynced(u64),
    /// A step of the commit under way.
    CommitData,
    CommitLog,
    CheckpointWritten,
    CheckpointSynced,
    Read(u64),
    /// A segment's index, for a job that looks for something in it.
    Index(Offset, u64),
    Removed,
    /// A removed segment's file got this name, and has this length.
    Spared(PathBuf, u64),
    /// A removed data file got this name, and has this length.
    DataSpared(PathBuf, u64),
    UndoStep,
}
