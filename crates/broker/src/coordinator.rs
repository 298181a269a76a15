//! What a node decides of its topics as a whole: the table, topics, cursors, named producers,
//! groups and queues.

pub(crate) mod alter;
pub(crate) mod commands;
pub mod controller;
pub(crate) mod cursor_proposals;
pub(crate) mod cursors;
pub(crate) mod gaps;
pub(crate) mod keep;
pub(crate) mod members;
pub(crate) mod producer_epochs;
pub(crate) mod producers;
pub(crate) mod served_topic;
pub mod table;
pub(crate) mod topic_file;
pub(crate) mod topics;
