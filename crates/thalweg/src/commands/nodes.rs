//! `thalweg nodes`: the nodes of a cluster, and which of them get topics. And `thalweg topic place`.

mod args;

pub use args::NodesCommand;

use crate::cli::{Client, TopicPlaceArgs};
use crate::commands::topic::{COMPANIONS, companion_of};
use crate::connection::Connection;
use crate::failure::{About, Code, Failure};
use crate::output::{Output, report, table};
use crate::progress::{Beside, Progress};
use client::{Driver, NodeDescription, NodeId, NodeState};
use mirror::{Moved, move_topic};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub fn run(command: &NodesCommand) -> Result<(), Failure> {
    match command {
        NodesCommand::List(args) => list(&args.client),
        NodesCommand::Drain(args) => {
            set(&args.client, &args.nodes, NodeState::Draining, false)?;
            match args.keep_topics {
                true => Ok(()),
                false => args
                    .nodes
                    .iter()
                    .try_for_each(|node| empty(&args.client, NodeId(*node))),
            }
        }
        NodesCommand::Resume(args) => set(&args.client, &args.nodes, NodeState::Serving, false),
        NodesCommand::Remove(args) => {
            let nodes = [args.node];
            set(&args.client, &nodes, NodeState::Removed, args.accept_loss)
        }
    }
}

/// `thalweg topic place`.
pub fn place(args: &TopicPlaceArgs) -> Result<(), Failure> {
    let connection = &args.client.connection;
    let (driver, _) = nodes_of(&args.client)?;
    let to = NodeId(args.node);
    let there = driver.topics_of_node(to).about(connection.subject())?;
    let is_there = |name: &str| {
        let mut there = there.iter();
        there.any(|(namespace, topic)| namespace == connection.namespace() && topic == name)
    };
    let mut output = Output::new(args.client.json);
    if is_there(&args.name) {
        // One that was on its way stays.
        let topic = driver.open_topic(&args.name).about(&args.name)?;
        topic.begin_move(to).wait().about(&args.name)?;
        let value = json!({"topic": args.name, "node": to.0, "events": 0});
        output.either(&value, &format!("topic {} stays on node {to}", args.name))?;
    } else {
        say(&mut output, &args.name, to, go(connection, &args.name, to)?)?;
    }
    // What its queues and requesters need goes along.
    let topics = driver.list_topics().about(connection.subject())?;
    for ending in COMPANIONS {
        let name = format!("{}{ending}", args.name);
        if topics.iter().any(|topic| topic.name == name) && !is_there(&name) {
            say(&mut output, &name, to, go(connection, &name, to)?)?;
        }
    }
    output.flush()
}

fn nodes_of(client: &Client) -> Result<(Driver, Vec<NodeDescription>), Failure> {
    let driver = client.connection.driver()?;
    let nodes = driver.list_nodes().about(client.connection.subject())?;
    if nodes.is_empty() {
        let why = "this server is no part of a cluster (thalweg serve --cluster)";
        return Err(Failure::usage(client.connection.subject(), why));
    }
    Ok((driver, nodes))
}

fn list(client: &Client) -> Result<(), Failure> {
    let (_, nodes) = nodes_of(client)?;
    let mut output = Output::new(client.json);
    if output.is_json() {
        for node in &nodes {
            output.json(&to_json(node))?;
        }
        return output.flush();
    }
    let rows: Vec<_> = nodes.iter().map(row).collect();
    let header = ["node", "state", "topics", "host", "rank", "shard", "at"];
    output.line(&table(&header, &rows))?;
    output.flush()
}

/// Gives each of the nodes that state, one after the other. The first that is refused ends it.
fn set(client: &Client, nodes: &[u32], state: NodeState, accept_loss: bool) -> Result<(), Failure> {
    let (driver, known) = nodes_of(client)?;
    let mut output = Output::new(client.json);
    for number in nodes {
        let node = NodeId(*number);
        let subject = format!("node {node}");
        let topics = known.iter().find(|it| it.node == node);
        let topics = topics.map_or(0, |it| it.topics);
        driver.set_node(node, state, accept_loss).about(&subject)?;
        let said = match (state, topics) {
            (NodeState::Removed, 0) => "is removed".to_owned(),
            (NodeState::Removed, _) => format!("is removed, and topics with it: {topics}"),
            (NodeState::Draining, _) => format!("gets no new topics; it has {topics}"),
            _ => format!("gets new topics; it has {topics}"),
        };
        let value = json!({"node": number, "state": state.name(), "topics": topics});
        output.either(&value, &format!("{subject} {said}"))?;
    }
    output.flush()
}

/// Moves all topics of a node to others, each to the one that has the fewest, with those that come with it.
fn empty(client: &Client, node: NodeId) -> Result<(), Failure> {
    let (driver, nodes) = nodes_of(client)?;
    let subject = format!("node {node}");
    let serving = nodes.iter().filter(|it| it.state == NodeState::Serving);
    let mut counts: BTreeMap<NodeId, u64> = serving.map(|it| (it.node, it.topics)).collect();
    let topics = driver.topics_of_node(node).about(&subject)?;
    let mut output = Output::new(client.json);
    let (mut left, mut places) = (0, BTreeMap::new());
    // One whose name begins another one's comes before it.
    for (namespace, name) in &topics {
        let whose = companion_of(name).unwrap_or(name).to_owned();
        let fewest = counts.iter().min_by_key(|(_, count)| **count);
        let fewest = fewest.map(|(to, _)| *to);
        let place = (namespace.clone(), whose);
        let Some(to) = places.get(&place).copied().or(fewest) else {
            let why = "no other node takes topics: all are draining, or away";
            return Err(Failure::new(Code::Failure, &subject, why));
        };
        places.insert(place, to);
        let connection = client.connection.in_namespace(namespace);
        match go(&connection, name, to) {
            Ok(moved) => {
                say(&mut output, name, to, moved)?;
                output.flush()?;
                *counts.entry(to).or_default() += 1;
            }
            Err(failure) => {
                report(&failure.to_string());
                left += 1;
            }
        }
    }
    output.flush()?;
    match left {
        0 => Ok(()),
        left => {
            let why = format!("topics stay on it: {left}");
            Err(Failure::new(Code::Failure, &subject, why))
        }
    }
}

/// Moves a topic of the connection's namespace.
fn go(connection: &Connection, name: &str, to: NodeId) -> Result<Moved, Failure> {
    // Each is bound to the node that it talks to about the topic.
    let (source, target) = (connection.driver()?, connection.driver()?);
    let mut shown: Option<(Progress, u64)> = None;
    let moved = move_topic((&source, &target), name, to, |left| {
        let (progress, before) = shown.get_or_insert_with(|| {
            let progress = Progress::events(name, Some(left), Beside::Lines);
            (progress, left)
        });
        progress.add(before.saturating_sub(left));
        *before = left;
    });
    moved.map_err(|error| Failure::new(Code::Failure, name, error.to_string()))
}

fn say(output: &mut Output, name: &str, to: NodeId, moved: Moved) -> Result<(), Failure> {
    let paused_ms = moved.paused.as_secs_f64() * 1e3;
    let value = json!({
        "topic": name,
        "node": to.0,
        "events": moved.events,
        "bytes": moved.bytes,
        "paused_ms": paused_ms,
    });
    let text = format!(
        "topic {name} is on node {to}: {} events were copied, and it waited for {paused_ms:.0} ms",
        moved.events
    );
    output.either(&value, &text)
}

fn row(node: &NodeDescription) -> Vec<String> {
    let label = |key: &str| {
        let label = node.labels.0.get(key);
        label.map_or("-", String::as_str).to_owned()
    };
    let endpoint = node.endpoints.0.first().map_or("-", String::as_str);
    vec![
        node.node.to_string(),
        node.state.to_string(),
        node.topics.to_string(),
        label("host"),
        label("rank"),
        node.shard.to_string(),
        endpoint.to_owned(),
    ]
}

fn to_json(node: &NodeDescription) -> Value {
    json!({
        "node": node.node.0,
        "state": node.state.name(),
        "topics": node.topics,
        "directory": node.directory.to_string(),
        "epoch": node.epoch,
        "shard": node.shard,
        "endpoints": node.endpoints.0,
        "labels": node.labels.0,
    })
}
