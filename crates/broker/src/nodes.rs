//! The nodes of a table: how many there are, where clients find each, and which of them a new topic is on.

use crate::coordinator::table::TableNodes;
use crate::ids::LEADER;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::sync::{Arc, OnceLock};
use topic::{Placement, key_hash, part_of_name};
use wire::record::{NodeRecord, NodeState};
use wire::{DirectoryId, NodeId};

/// The nodes of one table, by their ids.
#[derive(Debug)]
pub struct Nodes(Known);

#[derive(Debug)]
enum Known {
    /// The shards of one server, in one process: node K is shard K. Each says where it is once it listens; what was said stays.
    Shards(Vec<OnceLock<Listening>>),
    /// What the table of a node has said last ([`Nodes::follow`]).
    Table(TableNodes),
}

/// Where a shard is.
#[derive(Debug)]
struct Listening {
    directory: DirectoryId,
    endpoints: Vec<String>,
}

impl Default for Nodes {
    /// A node that is alone.
    fn default() -> Self {
        Self::new(1)
    }
}

impl Nodes {
    /// So many, and nothing is known of where they are.
    pub fn new(count: usize) -> Self {
        let shards = (0..count.max(1)).map(|_| OnceLock::new());
        Self(Known::Shards(shards.collect()))
    }

    /// Those that the table of a node says: none, until it has one. The node that leads such a table has no topics.
    pub fn of_table() -> Self {
        Self(Known::Table(TableNodes::default()))
    }

    /// Has a node go by what its table says now, if it goes by that. The node's own thread calls this when its table has changed:
    /// others that hold the former value keep it. A node that does not looks at one byte each time.
    #[inline(always)]
    pub(crate) fn follow(own: &mut Arc<Self>, table: &TableNodes) {
        if let Known::Table(_) = &own.0 {
            Self::follow_table(own, table);
        }
    }

    fn follow_table(own: &mut Arc<Self>, table: &TableNodes) {
        if let Known::Table(known) = &own.0
            && !known.is_same(table)
        {
            *own = Arc::new(Self(Known::Table(table.clone())));
        }
    }

    /// How many there are. Those that are removed do not count.
    pub fn count(&self) -> usize {
        match &self.0 {
            Known::Shards(shards) => shards.len(),
            Known::Table(nodes) => nodes.present().count(),
        }
    }

    /// Whether they are those that the table says.
    pub(crate) fn are_of_table(&self) -> bool {
        matches!(self.0, Known::Table(_))
    }

    /// Whether new topics are made on this node.
    pub(crate) fn takes_topics(&self, node: NodeId) -> bool {
        match &self.0 {
            Known::Shards(_) => true,
            Known::Table(nodes) => nodes.get(node).is_some_and(is_serving),
        }
    }

    /// Whether a node has not been reached for a while, as the table says.
    pub(crate) fn is_away(&self, node: NodeId) -> bool {
        match &self.0 {
            Known::Shards(_) => false,
            Known::Table(nodes) => {
                let record = nodes.get(node);
                record.is_some_and(|record| record.state == NodeState::Away)
            }
        }
    }

    /// A shard listens at these addresses; one of every interface is at the host that its client has reached. What it has said
    /// before stays; a node of another table is none. Of nodes of a table the table says where they are.
    pub fn listens(&self, node: NodeId, directory: DirectoryId, endpoints: Vec<String>) {
        if let Known::Shards(shards) = &self.0
            && let Some(place) = shards.get(node.0 as usize)
        {
            let _ = place.set(Listening {
                directory,
                endpoints,
            });
        }
    }

    /// The nodes but for this one, as the status has it: where each is, once it listens.
    pub(crate) fn status_of_others(&self, own: NodeId) -> Value {
        match &self.0 {
            Known::Shards(shards) => {
                let others = (0..).map(NodeId).zip(shards);
                let others = others.filter(|(node, _)| *node != own);
                let others = others.map(|(node, place)| {
                    let place = place.get();
                    json!({
                        "node": node.0,
                        "directory": place.map(|place| place.directory.to_string()),
                        "endpoints": place.map(|place| &place.endpoints),
                    })
                });
                others.collect()
            }
            Known::Table(nodes) => {
                let others = nodes.present().filter(|it| it.node != own);
                let others = others.map(|it| {
                    json!({
                        "node": it.node.0,
                        "directory": it.directory.to_string(),
                        "endpoints": it.endpoints.0,
                        "state": it.state.name(),
                        "epoch": it.epoch,
                        "shard": it.shard,
                        "labels": it.labels.0,
                    })
                });
                others.collect()
            }
        }
    }

    /// What a client of the node `own` hears of where another node is, whose own address is `peer`: `ADDRESS#DIRECTORY`, for the
    /// transport that it came by. Sockets are of one host: on another one a client of these gets TLS, or TCP where there is none.
    /// Without the directory, `#NODE`, as long as that node has not said where it is.
    pub fn hint(&self, node: NodeId, own: NodeId, peer: &str) -> String {
        let Some((directory, endpoints)) = self.place(node) else {
            return format!("#{node}");
        };
        let schemes: &[&str] = match (scheme(peer), self.are_on_one_host(node, own)) {
            ("shm", true) => &["shm", "unix"],
            ("unix", true) => &["unix"],
            ("shm" | "unix", false) => &["tls", "tcp"],
            // Who came encrypted goes on so.
            ("tls", _) => &["tls"],
            ("tcp", _) => &["tcp", "tls"],
            (other, _) => &[other],
        };
        let mut address = schemes.iter().filter_map(|wanted| {
            let mut endpoints = endpoints.iter();
            endpoints.find(|one| scheme(one) == *wanted)
        });
        let address = address.next().map_or("", String::as_str);
        format!("{address}#{directory}")
    }

    /// Whether two nodes are on one host, as far as they have said where they are. The shards of one server are.
    fn are_on_one_host(&self, one: NodeId, other: NodeId) -> bool {
        match &self.0 {
            Known::Shards(_) => true,
            Known::Table(nodes) => {
                let host = |node| {
                    nodes
                        .get(node)
                        .and_then(|record| record.labels.0.get("host"))
                };
                host(one).is_some() && host(one) == host(other)
            }
        }
    }

    /// The node that a new topic of this name is on, which all nodes agree on: the one whose number gives the greatest hash
    /// with it (rendezvous hashing, Thaler and Ravishankar 1998), so that one node more takes its share from each of the others and moves
    /// nothing between those. Of nodes of a table those alone that serve; that of none is node 0, which has no topics of such a table.
    /// The partitions of a spread topic take the nodes in turn, in the order of those hashes with the topic's name: no node has two more
    /// than another.
    pub fn home_of(&self, namespace: &str, name: &str) -> NodeId {
        let home = self.home_among(namespace, name, &Placement::default());
        home.unwrap_or(LEADER)
    }

    /// The same among the nodes with these labels: `None` if none of them takes topics.
    pub(crate) fn home_among(
        &self,
        namespace: &str,
        name: &str,
        placement: &Placement,
    ) -> Option<NodeId> {
        let (name, place) = part_of_name(name).unwrap_or((name, 0));
        let weight = |node: &NodeId| {
            let mut key = node.0.to_le_bytes().to_vec();
            key.extend_from_slice(namespace.as_bytes());
            // No name has it.
            key.push(0);
            key.extend_from_slice(name.as_bytes());
            key_hash(&key)
        };
        let mut nodes: Vec<NodeId> = match &self.0 {
            // Those have no labels.
            Known::Shards(_) if !placement.is_anywhere() => Vec::new(),
            Known::Shards(shards) => (0..shards.len() as u32).map(NodeId).collect(),
            Known::Table(nodes) => {
                let wanted = |it: &&NodeRecord| is_serving(it) && placement.accepts(&it.labels.0);
                nodes.present().filter(wanted).map(|it| it.node).collect()
            }
        };
        if place == 0 {
            return nodes.into_iter().max_by_key(weight);
        }
        nodes.sort_by_cached_key(|node| Reverse(weight(node)));
        let turn = place as usize % nodes.len().max(1);
        nodes.get(turn).copied()
    }

    /// Whether a node has these labels, be it away or draining.
    pub(crate) fn has_labelled(&self, placement: &Placement) -> bool {
        match &self.0 {
            _ if placement.is_anywhere() => true,
            Known::Shards(_) => false,
            Known::Table(nodes) => {
                let mut present = nodes.present();
                present.any(|it| placement.accepts(&it.labels.0))
            }
        }
    }

    /// The node that has this data directory.
    pub(crate) fn node_of(&self, directory: DirectoryId) -> Option<NodeId> {
        match &self.0 {
            Known::Shards(shards) => {
                let has = |place: &OnceLock<Listening>| {
                    place.get().is_some_and(|it| it.directory == directory)
                };
                let mut shards = (0..).map(NodeId).zip(shards);
                shards.find(|(_, place)| has(place)).map(|(node, _)| node)
            }
            Known::Table(nodes) => {
                let mut nodes = nodes.present();
                nodes.find(|it| it.directory == directory).map(|it| it.node)
            }
        }
    }

    /// Where a node is, as far as it has said so.
    fn place(&self, node: NodeId) -> Option<(DirectoryId, &[String])> {
        match &self.0 {
            Known::Shards(shards) => {
                let place = shards.get(node.0 as usize)?.get()?;
                Some((place.directory, &place.endpoints))
            }
            Known::Table(nodes) => {
                let record = nodes.get(node)?;
                let is_there = record.state != NodeState::Removed;
                is_there.then_some((record.directory, record.endpoints.0.as_slice()))
            }
        }
    }
}

fn is_serving(record: &NodeRecord) -> bool {
    record.state == NodeState::Serving
}

fn scheme(address: &str) -> &str {
    address.split_once("://").map_or("", |(scheme, _)| scheme)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::record::{Endpoints, Labels};

    fn nodes(count: usize) -> Nodes {
        Nodes::new(count)
    }

    fn homes(nodes: &Nodes) -> Vec<u32> {
        let names = (0..3000).map(|number| format!("run.{number}"));
        names.map(|name| nodes.home_of("", &name).0).collect()
    }

    #[test]
    fn topics_are_spread_evenly_and_a_node_more_moves_its_share_alone() {
        let mut before = homes(&nodes(1));
        assert!(before.iter().all(|home| *home == 0));
        for count in 2..=5_u32 {
            let homes = homes(&nodes(count as usize));
            let fair = homes.len() / count as usize;
            for node in 0..count {
                let share = homes.iter().filter(|home| **home == node).count();
                // Six standard deviations.
                let off = 6.0 * (fair as f64).sqrt();
                assert!(
                    (share as f64 - fair as f64).abs() < off,
                    "{share} of {fair}"
                );
            }
            let moved = homes.iter().zip(&before).filter(|(now, was)| now != was);
            assert!(moved.clone().all(|(now, _)| *now == count - 1));
            before = homes;
        }
        assert_ne!(
            (0..64)
                .map(|n| nodes(2).home_of("a", &n.to_string()))
                .collect::<Vec<_>>(),
            (0..64)
                .map(|n| nodes(2).home_of("b", &n.to_string()))
                .collect::<Vec<_>>(),
        );
    }

    #[test]
    fn partitions_of_a_spread_topic_take_the_nodes_in_turn_and_begin_where_the_topic_is() {
        for count in 1..=5_u32 {
            let nodes = nodes(count as usize);
            for name in ["a", "b", "c"] {
                let homes: Vec<NodeId> = (0..2 * count)
                    .map(|index| nodes.home_of("p", &topic::part_name(name, index)))
                    .collect();
                assert_eq!(homes[0], nodes.home_of("p", name));
                let mut once = homes[..count as usize].to_vec();
                assert_eq!(once, homes[count as usize..]);
                once.sort();
                once.dedup();
                assert_eq!(once.len(), count as usize);
            }
        }
    }

    #[test]
    fn a_client_hears_of_an_address_of_its_own_transport() {
        let nodes = nodes(2);
        let other = NodeId(1);
        assert_eq!(nodes.hint(other, LEADER, "tcp://127.0.0.1:4242"), "#1");
        let endpoints = ["tcp://127.0.0.1:9001", "unix:///d/s", "shm:///d/s"].map(str::to_owned);
        nodes.listens(other, DirectoryId(0xd2), endpoints.to_vec());
        nodes.listens(other, DirectoryId(7), Vec::new());
        let directory = DirectoryId(0xd2);
        for (peer, address) in [
            ("tcp://10.0.0.7:4242", "tcp://127.0.0.1:9001"),
            ("unix://", "unix:///d/s"),
            ("shm://", "shm:///d/s"),
            ("tls://10.0.0.7:1", ""),
            ("", ""),
        ] {
            assert_eq!(
                nodes.hint(other, LEADER, peer),
                format!("{address}#{directory}")
            );
        }
        assert_eq!(nodes.hint(NodeId(2), LEADER, "tcp://h:1"), "#2");
    }

    /// A table's nodes: of each its id, how often it has registered, and its state.
    fn table(nodes: &[(u32, u64, NodeState)]) -> TableNodes {
        let mut table = TableNodes::default();
        for (node, epoch, state) in nodes.iter().copied() {
            table.apply(NodeRecord {
                node: NodeId(node),
                directory: DirectoryId(0xd0 + u128::from(node)),
                epoch,
                shard: 0,
                endpoints: Endpoints(vec![format!("tcp://h{node}:{epoch}")]),
                labels: Labels::default(),
                state,
            });
        }
        table
    }

    #[test]
    fn new_topics_are_spread_over_those_that_serve_as_the_table_says_last() {
        use NodeState::{Draining, Removed, Serving};
        let mut known = Arc::new(Nodes::of_table());
        let held = known.clone();
        assert_eq!((known.count(), known.home_of("", "t")), (0, LEADER));
        assert!(!known.takes_topics(LEADER));
        let all = [(1, 1, Serving), (2, 1, Serving), (4, 1, Serving)];
        Nodes::follow(&mut known, &table(&all));
        // Another thread's is as it was.
        assert_eq!(held.count(), 0);
        let before = homes(&known);
        for node in [1, 2, 4] {
            let share = before.iter().filter(|home| **home == node).count();
            assert!((800..1200).contains(&share), "{share} of 3000 on {node}");
        }
        let changed = [(1, 1, Serving), (2, 1, Draining), (4, 1, Removed)];
        Nodes::follow(&mut known, &table(&changed));
        assert_eq!(known.count(), 2);
        assert!(homes(&known).iter().all(|home| *home == 1));
        let takes = [1, 2, 3, 4].map(|node| known.takes_topics(NodeId(node)));
        assert_eq!(takes, [true, false, false, false]);
        // Those of a node that is gone alone are elsewhere.
        Nodes::follow(&mut known, &table(&[(1, 1, Serving), (4, 1, Serving)]));
        let moved = homes(&known).into_iter().zip(before);
        assert!(
            moved
                .filter(|(now, was)| now != was)
                .all(|(_, was)| was == 2)
        );
    }

    #[test]
    fn what_is_placed_by_labels_takes_the_nodes_that_have_them_in_turn() {
        use NodeState::{Away, Draining, Serving};
        let mut table = TableNodes::default();
        let nodes = [
            (1, "0", Serving),
            (2, "0", Serving),
            (3, "1", Away),
            (4, "2", Draining),
        ];
        for (node, rank, state) in nodes {
            table.apply(NodeRecord {
                node: NodeId(node),
                directory: DirectoryId(node.into()),
                epoch: 1,
                shard: 0,
                endpoints: Endpoints::default(),
                labels: Labels([("rank".to_owned(), rank.to_owned())].into_iter().collect()),
                state,
            });
        }
        let mut known = Arc::new(Nodes::of_table());
        assert!(known.has_labelled(&Placement::default()));
        assert!(!known.has_labelled(&Placement::rank(0)));
        Nodes::follow(&mut known, &table);
        let home = |index, rank| {
            known.home_among("", &topic::part_name("t", index), &Placement::rank(rank))
        };
        // The two shards of one server.
        assert_ne!(home(0, 0), home(1, 0));
        assert_eq!(home(0, 0), home(2, 0));
        assert!(
            [home(0, 0), home(1, 0)]
                .iter()
                .all(|it| it.unwrap() <= NodeId(2))
        );
        // They are known, and take nothing now.
        for rank in [1, 2] {
            assert!(home(0, rank).is_none() && known.has_labelled(&Placement::rank(rank)));
        }
        assert!(home(0, 3).is_none() && !known.has_labelled(&Placement::rank(3)));
    }

    #[test]
    fn where_a_node_is_its_record_says_until_it_is_removed() {
        use NodeState::{Draining, Removed, Serving};
        let mut known = Arc::new(Nodes::of_table());
        known.listens(NodeId(1), DirectoryId(7), Vec::new());
        let nodes = [(1, 1, Serving), (2, 5, Draining), (3, 1, Removed)];
        Nodes::follow(&mut known, &table(&nodes));
        let hint = |node: u32, address: &str| {
            let directory = DirectoryId(0xd0 + u128::from(node));
            assert_eq!(
                known.hint(NodeId(node), NodeId(1), "tcp://c:1"),
                format!("{address}#{directory}")
            );
            assert_eq!(known.node_of(directory), Some(NodeId(node)));
        };
        hint(1, "tcp://h1:1");
        hint(2, "tcp://h2:5");
        // One that is removed, or that nobody knows yet.
        for node in [3, 4] {
            assert_eq!(
                known.hint(NodeId(node), NodeId(1), "tcp://c:1"),
                format!("#{node}")
            );
            assert_eq!(known.node_of(DirectoryId(0xd0 + u128::from(node))), None);
        }
        let status = known.status_of_others(NodeId(1));
        let others = status.as_array().unwrap();
        assert_eq!(others.len(), 1);
        assert_eq!(
            (&others[0]["node"], &others[0]["state"]),
            (&json!(2), &json!("draining"))
        );
    }

    #[test]
    fn a_client_of_a_socket_gets_one_of_its_own_host_and_of_another_host_what_is_encrypted() {
        let mut table = TableNodes::default();
        for (node, host, endpoints) in [
            (1, "a", ["unix:///1", "shm:///1", "tcp://a:1", "tls://a:2"]),
            (2, "a", ["unix:///2", "shm:///2", "tcp://a:3", "tls://a:4"]),
            (3, "b", ["unix:///3", "shm:///3", "tcp://b:3", "tls://b:4"]),
            (4, "b", ["unix:///3", "shm:///3", "tcp://b:5", "tcp://b:6"]),
        ] {
            table.apply(NodeRecord {
                node: NodeId(node),
                directory: DirectoryId(node.into()),
                epoch: 1,
                shard: 0,
                endpoints: Endpoints(endpoints.map(str::to_owned).to_vec()),
                labels: Labels([("host".to_owned(), host.to_owned())].into_iter().collect()),
                state: NodeState::Serving,
            });
        }
        let mut known = Arc::new(Nodes::of_table());
        Nodes::follow(&mut known, &table);
        for (node, peer, address) in [
            (2, "unix://", "unix:///2"),
            (2, "shm://", "shm:///2"),
            (2, "tcp://a:9", "tcp://a:3"),
            (3, "unix://", "tls://b:4"),
            (3, "shm://", "tls://b:4"),
            (3, "tcp://a:9", "tcp://b:3"),
            (3, "tls://a:9", "tls://b:4"),
            (4, "unix://", "tcp://b:5"),
            (4, "tls://a:9", ""),
        ] {
            let hint = known.hint(NodeId(node), NodeId(1), peer);
            assert_eq!(hint.split_once('#').unwrap().0, address, "{node} {peer}");
        }
    }
}
