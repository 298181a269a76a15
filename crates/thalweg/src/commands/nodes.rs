//! `thalweg nodes`: the nodes of a cluster, and which of them get topics. And `thalweg topic place`.

mod args;
mod spread;

pub use args::NodesCommand;

use crate::cli::{Client, TopicPlaceArgs};
use crate::commands::members;
use crate::commands::topic::companions;
use crate::connection::Connection;
use crate::failure::{About, Code, Failure};
use crate::output::{Output, report, table};
use crate::progress::{Beside, Progress};
use client::{ClientError, Driver, NodeDescription, NodeId, NodeState};
use mirror::{Moved, move_topic};
use serde_json::{Value, json};
use spread::{Family, Step};
use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

/// How long the servers of a cluster may take to notice that one of them has ended.
const BEHIND_MAX: Duration = Duration::from_secs(30);
/// How often they are asked meanwhile.
const LOOK: Duration = Duration::from_millis(100);
/// For how long it is tried to move what comes with a topic behind that one.
const FOLLOW_MAX: Duration = Duration::from_secs(60);

pub fn run(command: &NodesCommand) -> Result<(), Failure> {
    match command {
        NodesCommand::List(args) => list(&args.client),
        NodesCommand::Drain(args) => {
            if !args.keep_topics {
                refuse_away(&args.client, &args.nodes)?;
            }
            set(&args.client, &args.nodes, NodeState::Draining)?;
            match args.keep_topics {
                true => Ok(()),
                false => args
                    .nodes
                    .iter()
                    .try_for_each(|node| empty(&args.client, NodeId(*node))),
            }
        }
        NodesCommand::Resume(args) => set(&args.client, &args.nodes, NodeState::Serving),
        NodesCommand::Balance(args) => balance(&args.client, args.dry_run),
        NodesCommand::Remove(args) => remove(&args.client, NodeId(args.node), args.accept_loss),
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
    let topic = driver.open_topic_itself(&args.name).about(&args.name)?;
    if topic.definition().spread().is_some() {
        let why = format!(
            "its partitions go each by itself: thalweg topic place {}/0",
            args.name
        );
        return Err(Failure::usage(&args.name, why));
    }
    // What its queues and requesters need goes along.
    let mut others = Vec::new();
    for name in companions(&args.name).filter(|name| !is_there(name)) {
        if driver.topic_exists(&name).about(&name)? {
            others.push(name);
        }
    }
    let mut output = Output::new(args.client.json);
    if is_there(&args.name) {
        // One that was on its way stays.
        topic.begin_move(to).wait().about(&args.name)?;
        let value = json!({"topic": args.name, "node": to.0, "events": 0});
        output.either(&value, &format!("topic {} stays on node {to}", args.name))?;
    } else {
        let moved = go(connection, &args.name, to)?;
        say(&mut output, &args.name, to, moved)?;
    }
    output.flush()?;
    for name in others {
        let moved = follow(connection, &args.name, &name, to)?;
        say(&mut output, &name, to, moved)?;
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
fn set(client: &Client, nodes: &[u32], state: NodeState) -> Result<(), Failure> {
    let (driver, known) = nodes_of(client)?;
    let mut output = Output::new(client.json);
    for number in nodes {
        let node = NodeId(*number);
        let subject = format!("node {node}");
        let topics = known.iter().find(|it| it.node == node);
        let topics = topics.map_or(0, |it| it.topics);
        driver.set_node(node, state, false).about(&subject)?;
        let said = match state {
            NodeState::Draining => format!("gets no new topics; it has {topics}"),
            _ => format!("gets new topics; it has {topics}"),
        };
        let value = json!({"node": number, "state": state.name(), "topics": topics});
        output.either(&value, &format!("{subject} {said}"))?;
    }
    output.flush()
}

/// Takes a node out. That its server has ended the others may not know yet, if it has just done so.
fn remove(client: &Client, node: NodeId, accept_loss: bool) -> Result<(), Failure> {
    let (driver, known) = nodes_of(client)?;
    let subject = format!("node {node}");
    let known = known.into_iter().find(|it| it.node == node);
    let topics = known.as_ref().map_or(0, |it| it.topics);
    let began = Instant::now();
    let mut is_said = false;
    while let Err(error) = driver.set_node(node, NodeState::Removed, accept_loss) {
        // The others know of the topics, and refuse for these, whether it runs or not.
        let may_be_behind =
            matches!(&error, ClientError::Server(_)) && (topics == 0 || accept_loss);
        let has_ended = known.as_ref().is_some_and(members::has_ended);
        if !may_be_behind || !has_ended || began.elapsed() >= BEHIND_MAX {
            return Err(error).about(&subject);
        }
        if !std::mem::replace(&mut is_said, true) {
            report(&format!(
                "{subject}: its server has ended, and the others do not know that yet: waiting, for {} s at most",
                BEHIND_MAX.as_secs()
            ));
        }
        thread::sleep(LOOK);
    }
    let said = match (&known, topics) {
        (None, _) => "had been removed before".to_owned(),
        (Some(_), 0) => "is removed".to_owned(),
        (Some(_), _) => format!("is removed, and topics with it: {topics}"),
    };
    let mut output = Output::new(client.json);
    let value = json!({
        "node": node.0,
        "state": NodeState::Removed.name(),
        "topics": topics,
        "before": known.is_none(),
    });
    output.either(&value, &format!("{subject} {said}"))?;
    output.flush()
}

/// Nothing moves from a node whose server is not reached.
fn refuse_away(client: &Client, wanted: &[u32]) -> Result<(), Failure> {
    let (_, nodes) = nodes_of(client)?;
    let mut away = nodes
        .iter()
        .filter(|it| it.state == NodeState::Away && it.topics > 0);
    match away.find(|it| wanted.contains(&it.node.0)) {
        None => Ok(()),
        Some(it) => {
            let why = "its server is not reached, and its topics cannot be moved without it: start it again; or remove the node, and accept \
                       that they are lost";
            let subject = format!("node {}", it.node);
            Err(Failure::new(Code::NoServer, subject, why))
        }
    }
}

/// Moves all topics of a node to others, each to the one that has the fewest, with those that come with it.
fn empty(client: &Client, node: NodeId) -> Result<(), Failure> {
    let (driver, nodes) = nodes_of(client)?;
    let subject = format!("node {node}");
    let serving = nodes.iter().filter(|it| it.state == NodeState::Serving);
    let counts = serving.map(|it| (it.node, it.topics)).collect();
    let topics = driver.topics_of_node(node).about(&subject)?;
    match spread::drain(node, spread::families(&topics), counts) {
        Some(steps) => carry_out(client, &subject, &steps),
        None => {
            let why = "no other node takes topics: all are draining, or away";
            Err(Failure::new(Code::Failure, &subject, why))
        }
    }
}

/// Moves topics from nodes that have many to nodes that have few, or says which it would.
fn balance(client: &Client, dry_run: bool) -> Result<(), Failure> {
    let (driver, nodes) = nodes_of(client)?;
    let subject = client.connection.subject();
    let mut families = BTreeMap::new();
    for node in nodes.iter().filter(|it| it.state == NodeState::Serving) {
        let topics = driver.topics_of_node(node.node).about(&subject)?;
        families.insert(node.node, spread::families(&topics));
    }
    let steps = spread::balance(families);
    if !steps.is_empty() && !dry_run {
        return carry_out(client, &subject, &steps);
    }
    let mut output = Output::new(client.json);
    if steps.is_empty() {
        let text = "no two nodes differ by more than topics that stay together";
        output.either(&json!({"steps": 0}), text)?;
    }
    for Step { family, from, to } in &steps {
        for name in &family.topics {
            let value = json!({"topic": name, "from": from.0, "node": to.0});
            let text = format!("topic {name} would go from node {from} to node {to}");
            output.either(&value, &text)?;
        }
    }
    output.flush()
}

/// Moves what steps say. What stays is named, and the command fails then.
fn carry_out(client: &Client, subject: &str, steps: &[Step]) -> Result<(), Failure> {
    let mut output = Output::new(client.json);
    let mut left = 0;
    for step in steps {
        left += move_family(&mut output, client, &step.family, step.to)?;
    }
    match left {
        0 => Ok(()),
        left => {
            let why = format!("topics stay where they were: {left}");
            Err(Failure::new(Code::Failure, subject, why))
        }
    }
}

/// Moves each topic of a family, and says of each what came of it: all stay if the first one does. Gives how many do.
fn move_family(
    output: &mut Output,
    client: &Client,
    family: &Family,
    to: NodeId,
) -> Result<u64, Failure> {
    let connection = client.connection.in_namespace(&family.namespace);
    let Some((first, others)) = family.topics.split_first() else {
        return Ok(0);
    };
    match go(&connection, first, to) {
        Ok(moved) => say(output, first, to, moved)?,
        Err(failure) => {
            report(&failure.to_string());
            return Ok(family.topics.len() as u64);
        }
    }
    output.flush()?;
    let mut left = 0;
    for name in others {
        match follow(&connection, first, name, to) {
            Ok(moved) => say(output, name, to, moved)?,
            Err(failure) => {
                report(&failure.to_string());
                left += 1;
            }
        }
        output.flush()?;
    }
    Ok(left)
}

/// Moves a topic of the connection's namespace. Gives what was moved, if that is known: a connection that is lost at the end may
/// leave it there.
fn go(connection: &Connection, name: &str, to: NodeId) -> Result<Option<Moved>, Failure> {
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
    let error = match moved {
        Ok(moved) => return Ok(Some(moved)),
        Err(error) => error.to_string(),
    };
    let own = (connection.namespace().to_owned(), name.to_owned());
    let there = connection.driver().map(|driver| driver.topics_of_node(to));
    match there {
        Ok(Ok(there)) if there.contains(&own) => Ok(None),
        _ => Err(Failure::new(Code::Failure, name, error)),
    }
}

/// Moves a topic behind the one with which it comes. Dead letters and replies of that one wait until it is there, so that a
/// failure is tried again for a while. Gives what [`go`] does.
fn follow(
    connection: &Connection,
    whose: &str,
    name: &str,
    to: NodeId,
) -> Result<Option<Moved>, Failure> {
    let began = Instant::now();
    let mut is_said = false;
    loop {
        let failure = match go(connection, name, to) {
            Ok(moved) => return Ok(moved),
            Err(failure) => failure,
        };
        if began.elapsed() >= FOLLOW_MAX {
            let why = format!(
                "{failure}; {whose} is on node {to}, and what its queues and requesters write to {name} waits until that is there too: \
                 give the same command again"
            );
            return Err(Failure::new(Code::Failure, name, why));
        }
        if !std::mem::replace(&mut is_said, true) {
            report(&format!(
                "{failure}; {whose} is on node {to} already: {name} is tried again, for {} s at most",
                FOLLOW_MAX.as_secs()
            ));
        }
        thread::sleep(LOOK);
    }
}

fn say(output: &mut Output, name: &str, to: NodeId, moved: Option<Moved>) -> Result<(), Failure> {
    let Some(moved) = moved else {
        let value = json!({"topic": name, "node": to.0});
        return output.either(&value, &format!("topic {name} is on node {to}"));
    };
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
