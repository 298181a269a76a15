//! The arguments of `thalweg nodes`.

use crate::cli::Client;
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum NodesCommand {
    /// Show the nodes of a cluster: each shard of each of its servers, and how many topics are on it
    #[command(visible_alias = "ls")]
    List(NodesListArgs),
    /// Make no new topics on a node from now on, and move those that are there to other nodes
    ///
    /// Each goes to the node that has the fewest. Producers and consumers go on by themselves. Events pass through this command: let it run
    /// near the servers. What cannot be moved, as topics of steps, stays and is named; the command exits with 1 then, and may be
    /// given again.
    Drain(NodeDrainArgs),
    /// Make new topics on a node again that was drained
    Resume(NodeArgs),
    /// Move topics from nodes that have many to nodes that have few, until all have about as many
    ///
    /// As after a server has joined. What counts is the number of topics, not their size or traffic. A topic goes with its dead letters
    /// and replies. No topic moves that need not. What cannot be moved is named; the command exits with 1 then, and may be given again.
    Balance(NodesBalanceArgs),
    /// Take a node out of the cluster, for good
    ///
    /// Its server has to have ended. Its data directory is none of the cluster from then on, and is left as it is. A node
    /// that has topics is refused, unless their loss is accepted.
    Remove(NodeRemoveArgs),
}

#[derive(Debug, Args)]
pub struct NodesListArgs {
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct NodeArgs {
    /// The nodes, by their numbers
    #[arg(required = true, value_name = "NODE")]
    pub nodes: Vec<u32>,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct NodeDrainArgs {
    /// The nodes, by their numbers
    #[arg(required = true, value_name = "NODE")]
    pub nodes: Vec<u32>,
    /// Leave the topics where they are
    #[arg(long)]
    pub keep_topics: bool,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct NodesBalanceArgs {
    /// Say which topics would go where, and move none
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct NodeRemoveArgs {
    /// The node, by its number
    #[arg(value_name = "NODE")]
    pub node: u32,
    /// Delete the topics that are on it: their events are lost
    #[arg(long)]
    pub accept_loss: bool,
    #[command(flatten)]
    pub client: Client,
}
